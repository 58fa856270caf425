//! Annotations to the items that they mark.

use crate::{
    ast::{Annotation, ExprKind},
    diag::Diagnostic,
    ir::{Ddp, Expr, Field, ItemId, ItemKind, Procedure, ReplyBounds, Spec},
    resolve::Place,
};

pub(super) fn bind(spec: &mut Spec, marks: &[(Place, Annotation)], _out: &mut Vec<Diagnostic>) {
    for (place, annotation) in marks {
        match annotation.name.text.as_str() {
            "ddp" => {
                if let Some(field) = field(spec, *place) {
                    field.ddp = Some(Ddp { max: None, span: annotation.span.clone() });
                }
            }
            "idempotent" => {
                if let Some(procedure) = procedure(spec, *place) {
                    procedure.idempotent = true;
                }
            }
            "port" => {
                if let (Place::Program(p), Some((_, expr))) = (place, annotation.args.first())
                    && let (ExprKind::Int(n), Some(program)) = (&expr.kind, spec.programs.get_mut(*p))
                {
                    program.port = u16::try_from(*n).ok();
                }
            }
            "reply_max" => {
                if let (Some(procedure), Some((_, expr))) = (procedure(spec, *place), annotation.args.first())
                    && let ExprKind::Int(n) = &expr.kind
                {
                    procedure.bounds = ReplyBounds { inline: Expr::Const(*n), chunks: Vec::new() };
                }
            }
            _ => {}
        }
    }
}

fn procedure(spec: &mut Spec, place: Place) -> Option<&mut Procedure> {
    match place {
        Place::Procedure(p, v, q) => spec.programs.get_mut(p)?.versions.get_mut(v)?.procedures.get_mut(q),
        _ => None,
    }
}

/// The field at that place.
fn field(spec: &mut Spec, place: Place) -> Option<&mut Field> {
    match place {
        Place::Field(id, index) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Struct { fields, .. } => fields.get_mut(index),
            _ => None,
        },
        Place::Arm(id, index) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Union(union) => union.arms.get_mut(index)?.field.as_mut(),
            _ => None,
        },
        Place::Default(id) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Union(union) => union.default.as_mut()?.as_mut(),
            _ => None,
        },
        Place::Typedef(id) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Typedef(field) => Some(field),
            _ => None,
        },
        Place::Argument(p, v, q, index) => {
            spec.programs.get_mut(p)?.versions.get_mut(v)?.procedures.get_mut(q)?.args.get_mut(index)
        }
        Place::Procedure(p, v, q) => {
            spec.programs.get_mut(p)?.versions.get_mut(v)?.procedures.get_mut(q)?.result.as_mut()
        }
        Place::Item(_) | Place::Program(_) | Place::Version(..) => None,
    }
}

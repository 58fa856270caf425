//! Cross-references within the page: anchors, and the users of each type.

use std::collections::{HashMap, HashSet};

use super::html::Html;
use crate::{
    ir::{ItemId, ItemKind, Procedure, Program, Spec, Version},
    ulb::parts,
};

/// The items of a specification by name, with their users.
pub(super) struct ItemUsers<'a> {
    pub(super) spec: &'a Spec,
    items: HashMap<&'a str, ItemId>,
    users: Vec<Vec<User<'a>>>,
    /// Names of enumerators that several enumerations have.
    ambiguous: HashSet<&'a str>,
}

/// An item or procedure that uses a type.
#[derive(Clone, Copy)]
pub(super) enum User<'a> {
    Type(ItemId),
    Procedure(&'a Program, &'a Version, &'a Procedure),
}

impl User<'_> {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::Procedure(.., one), Self::Procedure(.., other)) => std::ptr::eq(*one, *other),
            _ => false,
        }
    }
}

impl<'a> ItemUsers<'a> {
    pub(super) fn new(spec: &'a Spec) -> Self {
        let items = spec.items.iter().enumerate().map(|(id, item)| (item.name.text.as_str(), ItemId(id))).collect();
        let mut users: Vec<Vec<User<'a>>> = vec![Vec::new(); spec.items.len()];
        let mut uses = |id: Option<ItemId>, user: User<'a>| {
            if let Some(list) = id.and_then(|id| users.get_mut(id.0))
                && !list.last().is_some_and(|last| last.is(&user))
            {
                list.push(user);
            }
        };
        for (id, item) in spec.items.iter().enumerate() {
            for (_, field) in parts(spec, ItemId(id)) {
                uses(field.ty.target(), User::Type(ItemId(id)));
            }
            if let ItemKind::Union(union) = &item.kind {
                uses(union.discriminant.ty.target(), User::Type(ItemId(id)));
            }
        }
        for program in &spec.programs {
            for version in &program.versions {
                let described = version.procedures.iter();
                for procedure in
                    described.filter(|procedure| std::ptr::eq(described_in(program, version, procedure), version))
                {
                    for field in procedure.args.iter().chain(&procedure.result) {
                        uses(field.ty.target(), User::Procedure(program, version, procedure));
                    }
                }
            }
        }
        let (mut once, mut ambiguous) = (HashSet::new(), HashSet::new());
        for item in &spec.items {
            let ItemKind::Enum(enumerators) = &item.kind else { continue };
            for name in enumerators.iter().map(|enumerator| enumerator.name.text.as_str()) {
                if !once.insert(name) {
                    ambiguous.insert(name);
                }
            }
        }
        Self { spec, items, users, ambiguous }
    }

    pub(super) fn find(&self, name: &str) -> Option<ItemId> {
        self.items.get(name).copied()
    }

    /// Returns `true` if several enumerations have an enumerator of this name. Such a name needs its enumeration:
    /// `color::RED`.
    pub(super) fn is_ambiguous(&self, enumerator: &str) -> bool {
        self.ambiguous.contains(enumerator)
    }

    pub(super) fn users(&self, id: ItemId) -> &[User<'a>] {
        self.users.get(id.0).map_or(&[], Vec::as_slice)
    }

    pub(super) fn name(&self, id: ItemId) -> &'a str {
        self.spec.items.get(id.0).map_or("", |item| item.name.text.as_str())
    }

    /// Writes `text` as a link to an item.
    pub(super) fn link(&self, id: ItemId, text: &str, out: &mut Html) {
        out.raw("<a href=\"#").text(&item_anchor(self.name(id))).raw("\">").text(text).raw("</a>");
    }

    pub(super) fn user(&self, user: User<'_>, out: &mut Html) {
        match user {
            User::Type(id) => self.link(id, self.name(id), out),
            User::Procedure(program, version, procedure) => {
                let anchor = procedure_anchor(program, version, procedure);
                out.raw("<a href=\"#").text(&anchor).raw("\">").text(&procedure.name.text).raw("</a>");
            }
        }
    }
}

pub(super) fn item_anchor(name: &str) -> String {
    format!("item-{name}")
}

/// Returns the anchor of a version. It consists of names and not of numbers, so that links stay valid if numbers
/// change.
pub(super) fn version_anchor(program: &Program, version: &Version) -> String {
    format!("version-{}-{}", program.name.text, version.name.text)
}

/// Returns the version whose section describes a procedure of `version`. This is the version that declares the
/// procedure, or `version` itself if the binding states other bounds or another idempotency for `version`.
pub(super) fn described_in<'p>(program: &'p Program, version: &'p Version, procedure: &Procedure) -> &'p Version {
    let declared_in = procedure.declared_in.and_then(|index| program.versions.get(index));
    let is_same = |other: &&Procedure| {
        other.number == procedure.number && other.bounds == procedure.bounds && other.idempotent == procedure.idempotent
    };
    declared_in.filter(|declared_in| declared_in.procedures.iter().any(|other| is_same(&other))).unwrap_or(version)
}

/// Returns the anchor of the section that describes a procedure.
pub(super) fn procedure_anchor(program: &Program, version: &Version, procedure: &Procedure) -> String {
    let version = described_in(program, version, procedure);
    format!("procedure-{}-{}-{}", program.name.text, version.name.text, procedure.name.text)
}

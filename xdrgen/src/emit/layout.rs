//! Analysis of the items of a specification before code generation: names, sizes, derivable traits and borrowed forms.

use std::{cell::OnceCell, collections::HashMap};

use proc_macro2::{Ident, TokenStream};

use super::names::{LetterCase, NameScope, RustName};
use crate::ir::{Arm, Base, Field, Item, ItemId, ItemKind, ShortInt, Spec, Type, TypeFacts, Union};

/// The maximum size of an inline fixed-length array, in bytes. Larger arrays are stored on the heap.
const MAX_IN_PLACE: u64 = 4096;

/// The maximum length, in bytes, of an encoding that is read and written in one piece, through a buffer on the stack.
const MAX_WORDS: u64 = 1024;

/// The maximum length of an array for which the standard library implements `Default`.
const MAX_DEFAULT_ARRAY: u32 = 32;

/// The analysis result for one item.
struct ItemLayout {
    name: RustName,
    /// The approximate inline size of a value, in bytes.
    size: u64,
    has_float: bool,
    has_default: bool,
    /// The variants of an enumeration that is a union discriminant, computed on first use.
    variants: OnceCell<HashMap<i64, Ident>>,
    /// The length of the encoding, in bytes, if the item can be part of a run. A run is a sequence of fields that are
    /// encoded or decoded together.
    words: Option<u64>,
    /// The name of the borrowed form, if the item has one.
    ref_name: Option<RustName>,
    /// `true` if the item is the status enumeration of a union that converts to a `Result`.
    is_status: bool,
}

/// A specification, with a Rust name and the analysis result for each item.
pub(crate) struct Layout<'a> {
    /// The specification.
    pub(crate) spec: &'a Spec,
    /// The path of the runtime crate.
    pub(crate) runtime: TokenStream,
    /// `true` to use absolute paths for standard names.
    pub(crate) absolute: bool,
    /// All names in the scope of the items.
    pub(crate) scope: NameScope,
    items: Vec<ItemLayout>,
}

impl std::fmt::Debug for Layout<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout").field("items", &self.items.len()).finish_non_exhaustive()
    }
}

impl<'a> Layout<'a> {
    /// Assigns a Rust name to every item of `spec`, and analyses the items. No item has a borrowed form yet.
    pub(crate) fn new(spec: &'a Spec, runtime: TokenStream, absolute: bool) -> Self {
        // Newtype constructors with these names would shadow the prelude names that generated code uses.
        let mut scope = NameScope::reserving(&["Ok", "Err", "Some", "None"]);
        let items = spec
            .items
            .iter()
            .map(|item| {
                let case = if matches!(item.kind, ItemKind::Const(_)) { LetterCase::Shouty } else { LetterCase::Camel };
                ItemLayout {
                    name: scope.claim(&item.name.text, case),
                    size: 8,
                    // An external type may not implement `Eq`.
                    has_float: matches!(item.kind, ItemKind::Extern(_)),
                    has_default: false,
                    variants: OnceCell::new(),
                    words: None,
                    ref_name: None,
                    is_status: false,
                }
            })
            .collect();
        let mut layout = Self { spec, runtime, absolute, scope, items };
        let order = dependency_order(spec);
        for &id in &order {
            layout.items[id].size = layout.item_size(id);
        }
        for &id in &order {
            layout.items[id].words = layout.item_words(id);
        }
        for &id in &order {
            layout.items[id].has_default = layout.item_default(id);
        }
        for item in &spec.items {
            if let ItemKind::Union(union) = &item.kind
                && let Some(status) = layout.status_of(union)
            {
                layout.items[status.0].is_status = true;
            }
        }
        // Mutually recursive items need more than one pass.
        let mut changed = true;
        while changed {
            changed = false;
            for &id in &order {
                if !layout.items[id].has_float && spec.items[id].fields().any(|field| layout.is_float(&field.ty)) {
                    layout.items[id].has_float = true;
                    changed = true;
                }
            }
        }
        layout
    }

    /// Returns the item with this id. Ids of the IR are indices of its items.
    pub(crate) fn item(&self, id: ItemId) -> &'a Item {
        &self.spec.items[id.0]
    }

    pub(crate) fn name(&self, id: ItemId) -> &RustName {
        &self.items[id.0].name
    }

    /// Returns `true` if the item contains neither floats nor external types, so that `Eq` and `Hash` can be derived.
    pub(crate) fn is_eq(&self, id: ItemId) -> bool {
        !self.items[id.0].has_float
    }

    /// Returns the status enumeration of a union that converts to a `Result`. Returns `None` for other unions.
    ///
    /// Such a union has exactly one case with data. The value of this case is 0, which means success by convention.
    /// There may be void cases if the default arm is void as well. The default arm handles the statuses without a case,
    /// of which there is at least one.
    pub(super) fn status_of(&self, union: &Union) -> Option<ItemId> {
        let Type::Base(base) = union.discriminant.ty else { return None };
        let Base::Item(id) = self.resolve(base) else { return None };
        let ItemKind::Enum(enumerators) = &self.item(id).kind else { return None };
        let holding: Vec<&Arm> = union.arms.iter().filter(|arm| arm.field.is_some()).collect();
        let [Arm { cases, .. }] = holding.as_slice() else { return None };
        let [case] = cases.as_slice() else { return None };
        let listed = union.arms.iter().flat_map(|arm| &arm.cases);
        let listed: Vec<i64> = listed.map(|case| case.value).collect();
        let is_exhaustive = enumerators.iter().all(|enumerator| listed.contains(&i64::from(enumerator.value)));
        // Void cases and a default arm with data would have failures of different types.
        let default = union.default.as_ref()?;
        let uniform = default.is_none() || union.arms.len() == 1;
        (case.value == 0 && uniform && !is_exhaustive).then_some(id)
    }

    /// Returns `true` if the item is the status of a union that converts to a `Result`.
    pub(crate) fn is_status(&self, id: ItemId) -> bool {
        self.items[id.0].is_status
    }

    /// Returns `true` if `Default` can be derived for the item.
    pub(crate) fn has_default(&self, id: ItemId) -> bool {
        self.items[id.0].has_default
    }

    /// Returns the variants of an enumeration by value. `named` computes them on first use. They are cached, because
    /// many unions may use one large enumeration.
    pub(crate) fn variants(&self, id: ItemId, named: impl FnOnce() -> HashMap<i64, Ident>) -> &HashMap<i64, Ident> {
        self.items[id.0].variants.get_or_init(named)
    }

    /// Returns the type that `base` stands for after resolving typedefs that are plain aliases.
    pub(crate) fn resolve(&self, base: Base) -> Base {
        self.spec.resolve(base)
    }

    /// Returns the length of the encoding of `base`, in bytes, if it is the same for all values.
    pub(super) fn fixed_len(&self, base: Base) -> Option<u64> {
        match self.resolve(base) {
            Base::Bool | Base::Int | Base::UInt | Base::Short(_) | Base::Float => Some(4),
            Base::Hyper | Base::UHyper | Base::Double => Some(8),
            Base::Quadruple => Some(16),
            Base::Item(id) => match self.item(id).facts {
                TypeFacts { min_len, max_len: Some(max_len), .. } if min_len == max_len => Some(min_len),
                _ => None,
            },
        }
    }

    /// Adds a borrowed form to the types for which `wanted` returns `true`, and to the types that they contain. Types
    /// that contain no field that is a view get no borrowed form.
    pub(crate) fn borrow(&mut self, wanted: impl Fn(&Item) -> bool) {
        let count = self.spec.items.len();
        let holds = |holding: &[bool], id: usize| {
            self.spec.items[id].fields().any(|field| {
                self.is_view(field) || field.ty.target().is_some_and(|of| holding.get(of.0).copied().unwrap_or(false))
            })
        };
        let mut holding = vec![false; count];
        let order = dependency_order(self.spec);
        let mut changed = true;
        while changed {
            changed = false;
            for &id in &order {
                if !holding[id] && holds(&holding, id) {
                    holding[id] = true;
                    changed = true;
                }
            }
        }
        let mut chosen: Vec<bool> = (0..count).map(|id| holding[id] && wanted(&self.spec.items[id])).collect();
        let mut stack: Vec<usize> = (0..count).filter(|&id| chosen[id]).collect();
        while let Some(id) = stack.pop() {
            for of in self.spec.items[id].fields().filter_map(|field| field.ty.target()) {
                if holding[of.0] && !std::mem::replace(&mut chosen[of.0], true) {
                    stack.push(of.0);
                }
            }
        }
        for id in (0..count).filter(|&id| chosen[id]) {
            let name = format!("{}_ref", self.spec.items[id].name.text);
            self.items[id].ref_name = Some(self.scope.claim(&name, LetterCase::Camel));
        }
    }

    /// Returns `true` if the field itself is a view in the borrowed form.
    pub(super) fn is_view(&self, field: &Field) -> bool {
        match &field.ty {
            Type::Opaque(_) | Type::String(_) => true,
            Type::OpaqueFixed(_) => self.is_exact(field),
            _ => false,
        }
    }

    /// Returns the name of an item's borrowed form, if it has one.
    pub(crate) fn ref_name(&self, id: ItemId) -> Option<&RustName> {
        self.items[id.0].ref_name.as_ref()
    }

    /// Returns the length of the encoding, in bytes, if the item implements `xdr::XdrFixed` and can be part of a run.
    pub(crate) fn words(&self, id: ItemId) -> Option<u64> {
        self.items[id.0].words
    }

    fn item_words(&self, id: usize) -> Option<u64> {
        let item = &self.spec.items[id];
        let words = match &item.kind {
            ItemKind::Enum(_) => 4,
            ItemKind::Struct { fields, list_node: false } if !item.recursive => {
                fields.iter().try_fold(0_u64, |sum, field| sum.checked_add(self.field_words(field)?))?
            }
            ItemKind::Typedef(field) if !item.recursive => self.field_words(field)?,
            // The discriminant of a union determines the length of the rest.
            _ => return None,
        };
        (words <= MAX_WORDS).then_some(words)
    }

    /// Returns the encoded length of a field, in bytes, if the field can be part of a run.
    pub(super) fn field_words(&self, field: &Field) -> Option<u64> {
        let base = |base: Base| match self.resolve(base) {
            Base::Bool | Base::Int | Base::UInt | Base::Short(_) | Base::Float => Some(4),
            Base::Hyper | Base::UHyper | Base::Double => Some(8),
            Base::Quadruple => Some(16),
            Base::Item(id) => self.items[id.0].words,
        };
        if field.ddp.is_some() || field.boxed || self.is_exact(field) {
            return None;
        }
        match &field.ty {
            Type::Base(of) => base(*of),
            Type::OpaqueFixed(len) => Some(padded(*len)),
            Type::ArrayFixed(of, len) => base(*of)?.checked_mul(u64::from(*len)),
            _ => None,
        }
        .filter(|words| *words <= MAX_WORDS)
    }

    /// Returns the approximate inline size of the value of `field`, in bytes.
    pub(crate) fn size(&self, field: &Field) -> u64 {
        self.type_size(&field.ty, field.boxed)
    }

    fn base_size(&self, base: Base) -> u64 {
        match base {
            Base::Bool | Base::Short(ShortInt::Char | ShortInt::UChar) => 1,
            Base::Short(ShortInt::Short | ShortInt::UShort) => 2,
            Base::Int | Base::UInt | Base::Float => 4,
            Base::Hyper | Base::UHyper | Base::Double => 8,
            Base::Quadruple => 16,
            Base::Item(id) => self.items[id.0].size,
        }
    }

    fn type_size(&self, ty: &Type, boxed: bool) -> u64 {
        match ty {
            _ if boxed => 8,
            Type::Base(base) => self.base_size(*base),
            Type::Optional(base) => self.base_size(*base).saturating_add(8),
            Type::OpaqueFixed(len) if u64::from(*len) <= MAX_IN_PLACE => u64::from(*len),
            Type::ArrayFixed(base, len) => {
                let size = self.base_size(*base).saturating_mul(u64::from(*len));
                if size <= MAX_IN_PLACE { size } else { 24 }
            }
            Type::OpaqueFixed(_) | Type::Opaque(_) | Type::String(_) => 32,
            Type::Array(..) | Type::List(_) => 24,
            Type::NonEmptyList(id) => self.items[id.0].size.saturating_add(24),
        }
    }

    fn item_size(&self, id: usize) -> u64 {
        let of = |field: &Field| self.type_size(&field.ty, field.boxed);
        match &self.spec.items[id].kind {
            ItemKind::Const(_) => 0,
            // The size is unknown. Use a value that does not cause boxing.
            ItemKind::Extern(_) => 8,
            ItemKind::Enum(_) => 4,
            ItemKind::Struct { fields, .. } => fields.iter().fold(0_u64, |sum, field| sum.saturating_add(of(field))),
            ItemKind::Union(union) => {
                let arms = union.arms.iter().filter_map(|arm| arm.field.as_ref());
                let all = arms.chain(union.default.iter().flatten());
                all.fold(0, |max, field| max.max(of(field))).saturating_add(8)
            }
            ItemKind::Typedef(field) => of(field),
        }
    }

    fn is_float(&self, ty: &Type) -> bool {
        match ty {
            Type::Base(base) | Type::ArrayFixed(base, _) | Type::Array(base, _) | Type::Optional(base) => match base {
                Base::Float | Base::Double => true,
                Base::Item(id) => self.items[id.0].has_float,
                _ => false,
            },
            Type::List(id) | Type::NonEmptyList(id) => self.items[id.0].has_float,
            Type::OpaqueFixed(_) | Type::Opaque(_) | Type::String(_) => false,
        }
    }

    fn item_default(&self, id: usize) -> bool {
        match &self.spec.items[id].kind {
            ItemKind::Struct { fields, .. } => fields.iter().all(|field| self.field_default(field)),
            ItemKind::Typedef(field) => self.field_default(field),
            ItemKind::Const(_) | ItemKind::Enum(_) | ItemKind::Union(_) | ItemKind::Extern(_) => false,
        }
    }

    fn field_default(&self, field: &Field) -> bool {
        let base = |base: Base| match base {
            Base::Item(id) => self.items[id.0].has_default,
            _ => true,
        };
        match &field.ty {
            Type::Base(of) => base(*of),
            Type::ArrayFixed(of, len) => *len <= MAX_DEFAULT_ARRAY && base(*of) && !self.is_exact(field),
            // The default of `Bytes` or `Vec` is empty, which is not valid for an item of fixed length.
            Type::OpaqueFixed(len) => *len <= MAX_DEFAULT_ARRAY && !self.is_exact(field),
            Type::NonEmptyList(_) => false,
            Type::Opaque(_) | Type::String(_) | Type::Array(..) | Type::Optional(_) | Type::List(_) => true,
        }
    }

    /// Returns `true` if `field` is an opaque item or array of fixed length that is stored on the heap.
    pub(super) fn is_exact(&self, field: &Field) -> bool {
        match &field.ty {
            Type::OpaqueFixed(len) => field.ddp.is_some() || u64::from(*len) > MAX_IN_PLACE,
            Type::ArrayFixed(base, len) => {
                let size = self.base_size(*base);
                field.boxed || size.saturating_mul(u64::from(*len)) > MAX_IN_PLACE
            }
            _ => false,
        }
    }
}

pub(super) fn padded(len: u32) -> u64 {
    u64::from(len).next_multiple_of(4)
}

/// Returns the indices of the items in dependency order: each item follows the items that it contains. The order of
/// mutually recursive items is arbitrary.
pub(super) fn dependency_order(spec: &Spec) -> Vec<usize> {
    let mut order = Vec::with_capacity(spec.items.len());
    let mut seen = vec![false; spec.items.len()];
    for root in 0..spec.items.len() {
        // Use an explicit stack, because types may nest as deeply as the specification is long.
        let mut stack = vec![(root, false)];
        while let Some((id, done)) = stack.pop() {
            if done {
                order.push(id);
            } else if !std::mem::replace(&mut seen[id], true) {
                stack.push((id, true));
                stack.extend(spec.items[id].fields().filter_map(|field| field.ty.target()).map(|id| (id.0, false)));
            }
        }
    }
    order
}

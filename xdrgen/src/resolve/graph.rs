//! Analysis of the type graph: recursion, types without a finite value, values that need a box, and nesting depth.

use crate::{
    diag::{Code, Diagnostic},
    ir::{Field, ItemId, ItemKind, Spec, Type},
};

/// Maximum nesting depth of types. Later stages, the generated codecs and the Rust compiler recurse once per level.
///
/// The Rust compiler checks whether a type is `Send` by visiting all types within it, to a default depth of 128 Rust
/// types. The remaining levels are for the user's futures and structs that contain the type.
const MAX_TYPE_NESTING: usize = 112;

/// Returns the number of Rust type levels between the type of `field` and its target. For example, `Vec<T>` contains
/// `RawVec<T>`, which contains `PhantomData<T>`.
fn levels(field: &Field) -> usize {
    match &field.ty {
        Type::Array(..) | Type::List(_) => 4,
        Type::NonEmptyList(_) => 5,
        // Longer arrays are generated as `Vec`s.
        Type::ArrayFixed(_, len) if *len <= 1 => 2,
        Type::ArrayFixed(..) => 4,
        Type::Optional(_) => 2,
        _ => 1,
    }
}

/// Returns `true` if every value of `ty` contains a value of its target.
fn requires(ty: &Type) -> bool {
    matches!(ty, Type::Base(_) | Type::ArrayFixed(..) | Type::NonEmptyList(_))
}

/// Returns `true` if the Rust type of `ty` may store its target in place rather than on the heap.
fn in_place(ty: &Type) -> bool {
    requires(ty) || matches!(ty, Type::Optional(_))
}

/// Reports types without a finite value and types that nest too deeply. Marks recursive items and fields that need a
/// box. Returns the items in an order in which each item follows the items that it contains, as far as recursion
/// permits.
pub(super) fn check(spec: &mut Spec, out: &mut Vec<Diagnostic>) -> Vec<ItemId> {
    finite(spec, out);
    let all = Components::new(spec, |_| true);
    for id in 0..spec.items.len() {
        let recursive = all.cyclic(id, spec);
        spec.items[id].recursive = recursive;
    }
    depth(spec, &all, out);
    let in_place_components = Components::new(spec, in_place);
    for id in 0..spec.items.len() {
        let boxed = |field: &mut Field, choice: bool| {
            let same = field
                .ty
                .target()
                .is_some_and(|target| in_place_components.component[target.0] == in_place_components.component[id]);
            field.boxed = same && (choice || matches!(field.ty, Type::Optional(_))) && in_place(&field.ty);
        };
        match &mut spec.items[id].kind {
            ItemKind::Struct { fields, .. } => fields.iter_mut().for_each(|field| boxed(field, false)),
            ItemKind::Typedef(field) => boxed(field, false),
            ItemKind::Union(union) => {
                let arms = union.arms.iter_mut().filter_map(|arm| arm.field.as_mut());
                arms.chain(union.default.as_mut().and_then(Option::as_mut)).for_each(|field| boxed(field, true));
            }
            ItemKind::Const(_) | ItemKind::Enum(_) | ItemKind::Extern(_) => {}
        }
    }
    all.order
}

/// Reports types without a finite value, such as `struct a { a x; };`.
///
/// A type has a finite value if all types that it requires have one. A union has a finite value if one of its arms has
/// one. The check proceeds from types already proven finite to the types that contain them.
fn finite(spec: &Spec, out: &mut Vec<Diagnostic>) {
    let n = spec.items.len();
    let mut open = vec![0_usize; n];
    let mut holders: Vec<Vec<usize>> = vec![Vec::new(); n];
    for (id, item) in spec.items.iter().enumerate() {
        let required = item.fields().filter(|field| requires(&field.ty));
        let required: Vec<usize> = required.filter_map(|field| field.ty.target()).map(|id| id.0).collect();
        open[id] = match &item.kind {
            ItemKind::Union(union) => {
                let arms = union.arms.len() + usize::from(union.default.is_some());
                // A union is finite if it has no arm, or if an arm requires no other type. Otherwise, one of its arms
                // must be proven.
                usize::from(required.len() == arms && arms > 0)
            }
            _ => required.len(),
        };
        for target in required {
            holders[target].push(id);
        }
    }
    let mut proven: Vec<usize> = (0..n).filter(|&id| open[id] == 0).collect();
    while let Some(id) = proven.pop() {
        for &holder in &holders[id] {
            if open[holder] > 0 {
                open[holder] -= 1;
                if open[holder] == 0 {
                    proven.push(holder);
                }
            }
        }
    }
    for (_, item) in spec.items.iter().enumerate().filter(|(id, _)| open[*id] > 0) {
        let mut diagnostic = Diagnostic::new(Code::Infinite, format!("type `{}` has no finite value", item.name.text))
            .at(&item.name.span, "");
        let endless = |field: &&Field| requires(&field.ty) && field.ty.target().is_some_and(|to| open[to.0] > 0);
        if let Some(field) = item.fields().find(endless) {
            diagnostic = diagnostic.also(&field.name.span, format!("every `{}` holds another here", item.name.text));
        }
        out.push(diagnostic.help("make the inner one optional with `*`"));
    }
}

/// Reports types that nest too deeply, except those that contain such a type.
fn depth(spec: &Spec, components: &Components, out: &mut Vec<Diagnostic>) {
    let mut depths = vec![0_usize; spec.items.len()];
    for &id in &components.order {
        let item = &spec.items[id.0];
        let contained = item.fields().filter_map(|field| Some((depths[field.ty.target()?.0], levels(field))));
        let (mut deepest, mut is_known) = (1, false);
        for (depth, levels) in contained {
            deepest = deepest.max(depth + levels);
            // Do not report the types that contain a type that is already reported.
            is_known |= depth > MAX_TYPE_NESTING;
        }
        depths[id.0] = deepest;
        if deepest > MAX_TYPE_NESTING && !is_known {
            let message = format!("type `{}` holds others more than {MAX_TYPE_NESTING} levels deep", item.name.text);
            out.push(
                Diagnostic::new(Code::TooDeep, message)
                    .at(&item.name.span, "")
                    .note("an array or list counts as 4 levels, an optional type as 2, any other as 1")
                    .note("the Rust compiler does not accept types that nest deeper"),
            );
        }
    }
}

/// Strongly connected components of the type graph (Tarjan's algorithm without recursion).
struct Components {
    component: Vec<usize>,
    /// Number of items in each component.
    size: Vec<usize>,
    order: Vec<ItemId>,
}

impl Components {
    fn new(spec: &Spec, edge: impl Fn(&Type) -> bool) -> Self {
        const UNSEEN: usize = usize::MAX;
        let n = spec.items.len();
        let edges: Vec<Vec<usize>> = spec
            .items
            .iter()
            .map(|item| {
                let fields = item.fields().filter(|field| edge(&field.ty));
                fields.filter_map(|field| field.ty.target()).map(|id| id.0).collect()
            })
            .collect();
        let mut index = vec![UNSEEN; n];
        let mut low = vec![0; n];
        let mut on_stack = vec![false; n];
        let mut stack = Vec::new();
        let mut next = 0;
        let mut out = Self { component: vec![0; n], size: Vec::new(), order: Vec::with_capacity(n) };
        for root in 0..n {
            if index[root] != UNSEEN {
                continue;
            }
            let mut path = vec![(root, 0)];
            while let Some((at, edge)) = path.last_mut() {
                let at = *at;
                if *edge == 0 {
                    index[at] = next;
                    low[at] = next;
                    next += 1;
                    stack.push(at);
                    on_stack[at] = true;
                }
                if let Some(&to) = edges[at].get(*edge) {
                    *edge += 1;
                    if index[to] == UNSEEN {
                        path.push((to, 0));
                    } else if on_stack[to] {
                        low[at] = low[at].min(index[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(above, _)) = path.last() {
                    low[above] = low[above].min(low[at]);
                }
                if low[at] == index[at] {
                    let component = out.size.len();
                    let mut size = 0;
                    while let Some(member) = stack.pop() {
                        on_stack[member] = false;
                        out.component[member] = component;
                        out.order.push(ItemId(member));
                        size += 1;
                        if member == at {
                            break;
                        }
                    }
                    out.size.push(size);
                }
            }
        }
        out
    }

    /// Returns `true` if an item refers to itself, directly or through other items.
    fn cyclic(&self, id: usize, spec: &Spec) -> bool {
        let to_itself = |field: &Field| field.ty.target() == Some(ItemId(id));
        self.size[self.component[id]] > 1 || spec.items[id].fields().any(to_itself)
    }
}

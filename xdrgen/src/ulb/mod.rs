//! The upper-layer binding: what is eligible for direct data placement, and how large replies get.

mod bind;

use crate::{
    diag::Diagnostic,
    ir::Spec,
    resolve::{Resolved, sizes},
};

/// Binds the annotations to a resolved specification, checks them and computes what follows.
pub(crate) fn bind(resolved: Resolved, out: &mut Vec<Diagnostic>) -> Spec {
    let Resolved { mut spec, marks, order, .. } = resolved;
    bind::bind(&mut spec, &marks, out);
    sizes::compute(&mut spec, &order);
    spec
}

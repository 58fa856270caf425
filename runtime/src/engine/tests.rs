//! What connections share with others of their server.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::{EngineConfig, Role, v1, v2};
use crate::{
    engine::v1::{PrivateData, Setup},
    memory::{Budget, Share},
};

/// A connection that is being closed, however long its peer takes for that, is not one that others wait behind.
#[test]
fn who_closes_leaves_the_queue_for_memory() {
    let budget = Budget::new(100);
    let _held = Share::of(Some(Arc::clone(&budget))).take(100).unwrap();
    let config = || EngineConfig { budget: Some(Arc::clone(&budget)), ..EngineConfig::default() };
    let says = PrivateData::new(&config(), true);
    let setup = Setup { local: says, peer: says, xid_seed: 0 };
    let mut one = v1::Connection::new(Role::Server, config(), setup);
    let mut two = v2::Connection::new(Role::Server, config(), setup);
    assert!(one.shared.memory.take(1).is_none() && two.shared.memory.take(1).is_none());
    assert_eq!(budget.waiting(), 2);
    one.close();
    assert_eq!((budget.waiting(), one.close_reason().is_some()), (1, true));
    two.close();
    assert_eq!((budget.waiting(), two.close_reason().is_some()), (0, true));
}

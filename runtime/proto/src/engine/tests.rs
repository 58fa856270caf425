//! Tests of resources that connections share with others of their server.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::{Connection, ConnectionSetup, Engine as _, EngineConfig, PrivateData, Role, Versions};
use crate::memory::{MemoryBudget, MemoryShare};

/// A connection that is closing leaves the queue for shared memory at once, however long its peer takes to close.
#[test]
fn closing_connection_leaves_the_queue_for_memory() {
    let budget = MemoryBudget::new(100);
    let _held = MemoryShare::of(Some(Arc::clone(&budget))).take(100).unwrap();
    let config = || EngineConfig { budget: Some(Arc::clone(&budget)), ..EngineConfig::default() };
    let says = PrivateData::new(&config(), true);
    let setup = ConnectionSetup { local: says, peer: says, xid_seed: 0 };
    for versions in [Versions::V1, Versions::V2] {
        let mut connection = Connection::new(Role::Server, EngineConfig { versions, ..config() }, setup);
        assert!(connection.core.shared.memory.take(1).is_none());
        assert_eq!(budget.waiting(), 1);
        connection.close();
        assert_eq!((budget.waiting(), connection.close_reason().is_some()), (0, true));
    }
}

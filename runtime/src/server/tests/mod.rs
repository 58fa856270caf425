#![allow(clippy::unwrap_used)]

mod accept;
mod bind;
mod hooks;
mod room;
mod room_threads;
mod shutdown;
mod shutdown_threads;

use std::{sync::Arc, time::Duration};

use super::{handle::ServerShared, room::ConnectionRoom};
use crate::{
    config::ConnectionConfig,
    memory::MemoryBudget,
    security::StandardAuthenticator,
    service::{Procedure, ProcedureInfo, ReplyBounds},
    session::{ChannelConfig, HookedService, InboundCall, ReplyFuture, Service, ServiceRegistry},
};

/// Returns the state of a server without services, with room for `max` connections.
fn shared(max: usize, drain_delay: Duration) -> Arc<ServerShared> {
    let registry = ServiceRegistry::new(std::iter::empty::<HookedService>(), Arc::new(StandardAuthenticator), None);
    let callbacks = ChannelConfig::new(ConnectionConfig::default(), 1);
    let room = ConnectionRoom::new(max, usize::MAX);
    let grace = Duration::from_secs(5);
    Arc::new(ServerShared::new(registry.unwrap(), callbacks, MemoryBudget::new(1 << 20), room, grace, drain_delay))
}

/// A service that declares only procedure 2, which is idempotent.
struct Version {
    program: u32,
    version: u32,
}

struct Idempotent;

impl Procedure for Idempotent {
    const PROGRAM: u32 = 7;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 2;
    const NAME: &'static str = "IDEMPOTENT";
    const IDEMPOTENT: bool = true;
    type Args = ();
    type Reply = ();
    fn reply_bounds((): &()) -> ReplyBounds {
        ReplyBounds::default()
    }
}

impl Service for Version {
    fn program(&self) -> u32 {
        self.program
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn name(&self) -> &'static str {
        "VERSION"
    }
    fn max_chunks(&self) -> u32 {
        1000 + self.version
    }
    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        (number == 2).then(ProcedureInfo::of::<Idempotent>)
    }
    fn dispatch(&self, _: InboundCall) -> ReplyFuture {
        unreachable!("no calls are made")
    }
}

fn service(program: u32, version: u32) -> Arc<dyn Service> {
    Arc::new(Version { program, version })
}

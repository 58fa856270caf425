//! The metrics of inbound calls.

use tokio::sync::Semaphore;

use super::{
    handlers::{Decides, Verdict, Waiting, late_replies, null, settle},
    *,
};
use crate::{metrics::served_calls, service::ProcedureInfo};

/// A procedure that no other test calls.
struct Measured;

impl Procedure for Measured {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION;
    const NUMBER: u32 = 0;
    const NAME: &'static str = "TESTS.MEASURED";
    type Args = ();
    type Reply = ();

    fn reply_bounds(_args: &()) -> ReplyBounds {
        ReplyBounds::default()
    }
}

/// A service with the procedure [`Measured`].
struct MeasuredService(Arc<dyn Service>);

impl Service for MeasuredService {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "TESTS"
    }

    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        (number == Measured::NUMBER).then(ProcedureInfo::of::<Measured>)
    }

    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        self.0.dispatch(call)
    }
}

/// A call counts once, whether or not its authenticator or its handler waits.
#[tokio::test]
async fn every_call_counts_once() {
    for (decision_waits, handler_waits) in [(false, false), (false, true), (true, false), (true, true)] {
        let (waiting, gate) = (Waiting::new(), Arc::new(Semaphore::new(0)));
        let service = Arc::new(MeasuredService(waiting.service()));
        let decides = Decides(Verdict::Accepts, decision_waits.then(|| Arc::clone(&gate)));
        let mut served = Served::guarded(Transport::Tcp, service, decides);
        if !handler_waits {
            waiting.gate.add_permits(1);
        }
        assert_eq!(served.call(null(1)).is_some(), !decision_waits && !handler_waits);
        gate.add_permits(1);
        settle().await;
        assert_eq!(served_calls(Measured::NAME), u64::from(!handler_waits));
        waiting.gate.add_permits(1);
        settle().await;
        assert_eq!(served_calls(Measured::NAME), u64::from(handler_waits));
        assert_eq!(late_replies(&served.port).len(), usize::from(decision_waits || handler_waits));
    }
}

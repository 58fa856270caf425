//! The NSM version 1 service (XNFS), by which clients report that they have restarted.
//!
//! The lock manager of this server keeps its own list of monitored hosts. The service refuses to monitor hosts for
//! other programs.

use rpcrdma::server::{Context, HandlerError};
use rpcrdma_specs::nsm1::{Mon, MonId, MyId, Res, SmName, SmStat, SmStatRes, StatChge, sm_vers::SmVers};

use super::manager::LockManager;

/// NSM service for one [`LockManager`].
#[derive(Debug, Clone)]
pub struct NsmService(pub(super) LockManager);

impl NsmService {
    /// Creates a service, which releases the locks of clients that have restarted.
    #[must_use]
    pub fn new(manager: LockManager) -> Self {
        Self(manager)
    }

    /// Returns the reply to SM_STAT and SM_MON: the refusal to monitor a host, and the state number of this server.
    pub(super) fn refusal(&self) -> SmStatRes {
        SmStatRes { res_stat: Res::Fail, state: self.0.state() }
    }
}

impl SmVers for NsmService {
    async fn sm_stat(&self, _cx: &Context, _args: SmName) -> Result<SmStatRes, HandlerError> {
        Ok(self.refusal())
    }

    async fn sm_mon(&self, _cx: &Context, _args: Mon) -> Result<SmStatRes, HandlerError> {
        Ok(self.refusal())
    }

    async fn sm_unmon(&self, _cx: &Context, _args: MonId) -> Result<SmStat, HandlerError> {
        Ok(SmStat { state: self.0.state() })
    }

    async fn sm_unmon_all(&self, _cx: &Context, _args: MyId) -> Result<SmStat, HandlerError> {
        Ok(SmStat { state: self.0.state() })
    }

    async fn sm_simu_crash(&self, _cx: &Context) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn sm_notify(&self, cx: &Context, args: StatChge) -> Result<(), HandlerError> {
        self.0.restarted(cx.peer_addr().ip(), args.mon_name.as_bytes(), args.state);
        Ok(())
    }
}

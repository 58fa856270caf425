//! The NLM version 4 service (RFC 1813, appendix II).

use std::sync::Arc;

use rpcrdma::server::{Context, HandlerError};
use rpcrdma_specs::nlm4::{
    Netobj, Nlm4Cancargs, Nlm4Holder, Nlm4Lock, Nlm4Lockargs, Nlm4Notify, Nlm4Res, Nlm4Shareargs, Nlm4Shareres,
    Nlm4Stat, Nlm4Stats, Nlm4Testargs, Nlm4Testres, Nlm4Testrply, Nlm4Unlockargs, nlm4_vers::Nlm4Vers,
};

use super::{
    manager::LockManager,
    owner::{Host, Owner},
    range::ByteRange,
    table::{CallbackData, LockRequest},
};
use crate::nfs3d::handle::FileId;

/// NLM service for one [`LockManager`].
#[derive(Debug, Clone)]
pub struct NlmService(LockManager);

impl NlmService {
    /// Creates a service for the locks of `manager`.
    #[must_use]
    pub fn new(manager: LockManager) -> Self {
        Self(manager)
    }

    /// Performs LOCK and NM_LOCK. `is_monitored` is `true` if the client is to be notified of a restart.
    async fn lock(&self, cx: &Context, args: &Nlm4Lockargs, is_monitored: bool) -> Result<Nlm4Stats, Nlm4Stats> {
        if self.0.is_in_grace() != args.reclaim {
            // Between the grace period and a late reclaim, another client may have had the lock.
            return Err(if args.reclaim { Nlm4Stats::Denied } else { Nlm4Stats::DeniedGracePeriod });
        }
        // A file whose lock is reclaimed may still have to be found after the restart. The permission was checked
        // before it.
        let file =
            if args.reclaim { self.0.file(&args.alock.fh)? } else { self.0.lockable(cx, &args.alock.fh).await? };
        let request = request(cx, &args.alock, file, args.exclusive, args.state)?;
        // A wildcard address tells nothing.
        let local = Some(cx.local_addr().ip().to_canonical()).filter(|local| !local.is_unspecified());
        if is_monitored {
            self.0.monitor(&request.owner.host, local).await?;
        }
        let (cookie, handle) = (&args.cookie.0, &args.alock.fh.0);
        let wait = (args.block && !args.reclaim).then(|| CallbackData {
            cookie: cookie.clone(),
            handle: handle.clone(),
            local,
        });
        Ok(self.0.lock(&request, wait))
    }
}

fn owner(cx: &Context, alock: &Nlm4Lock) -> Arc<Owner> {
    let host = Arc::new(Host::new(cx.peer_addr().ip(), alock.caller_name.as_bytes()));
    Arc::new(Owner { host, svid: alock.svid, oh: alock.oh.0.as_ref().into() })
}

fn range(alock: &Nlm4Lock) -> Result<ByteRange, Nlm4Stats> {
    ByteRange::new(alock.l_offset, alock.l_len).ok_or(Nlm4Stats::Fbig)
}

fn request(
    cx: &Context,
    alock: &Nlm4Lock,
    file: FileId,
    is_exclusive: bool,
    state: i32,
) -> Result<LockRequest, Nlm4Stats> {
    Ok(LockRequest { file, owner: owner(cx, alock), range: range(alock)?, is_exclusive, state })
}

fn reply(cookie: Netobj, outcome: Result<Nlm4Stats, Nlm4Stats>) -> Nlm4Res {
    let stat = outcome.unwrap_or_else(|refusal| refusal);
    Nlm4Res { cookie, stat: Nlm4Stat { stat } }
}

impl Nlm4Vers for NlmService {
    async fn nlmproc4_test(&self, cx: &Context, args: Nlm4Testargs) -> Result<Nlm4Testres, HandlerError> {
        let find = async {
            if self.0.is_in_grace() {
                return Err(Nlm4Stats::DeniedGracePeriod);
            }
            let file = self.0.lockable(cx, &args.alock.fh).await?;
            Ok(self.0.conflict(&request(cx, &args.alock, file, args.exclusive, 0)?))
        };
        let stat = match find.await {
            Ok(None) => Nlm4Testrply::Default(Nlm4Stats::Granted),
            Ok(Some(held)) => Nlm4Testrply::Denied(Nlm4Holder {
                exclusive: held.is_exclusive,
                svid: held.owner.svid,
                oh: Netobj(bytes::Bytes::copy_from_slice(&held.owner.oh)),
                l_offset: held.range.first,
                l_len: held.range.len(),
            }),
            Err(refusal) => Nlm4Testrply::Default(refusal),
        };
        Ok(Nlm4Testres { cookie: args.cookie, stat })
    }

    async fn nlmproc4_lock(&self, cx: &Context, args: Nlm4Lockargs) -> Result<Nlm4Res, HandlerError> {
        let outcome = self.lock(cx, &args, true).await;
        Ok(reply(args.cookie, outcome))
    }

    async fn nlmproc4_nm_lock(&self, cx: &Context, args: Nlm4Lockargs) -> Result<Nlm4Res, HandlerError> {
        let args = Nlm4Lockargs { block: false, ..args };
        let outcome = self.lock(cx, &args, false).await;
        Ok(reply(args.cookie, outcome))
    }

    async fn nlmproc4_cancel(&self, cx: &Context, args: Nlm4Cancargs) -> Result<Nlm4Res, HandlerError> {
        let cancel = || {
            if self.0.is_in_grace() {
                return Err(Nlm4Stats::DeniedGracePeriod);
            }
            let file = self.0.file(&args.alock.fh)?;
            Ok(self.0.cancel(&request(cx, &args.alock, file, args.exclusive, 0)?))
        };
        let outcome = cancel();
        Ok(reply(args.cookie, outcome))
    }

    async fn nlmproc4_unlock(&self, cx: &Context, args: Nlm4Unlockargs) -> Result<Nlm4Res, HandlerError> {
        let unlock = || {
            if self.0.is_in_grace() {
                return Err(Nlm4Stats::DeniedGracePeriod);
            }
            let file = self.0.file(&args.alock.fh)?;
            Ok(self.0.unlock(file, &owner(cx, &args.alock), range(&args.alock)?))
        };
        let outcome = unlock();
        Ok(reply(args.cookie, outcome))
    }

    async fn nlmproc4_free_all(&self, cx: &Context, args: Nlm4Notify) -> Result<(), HandlerError> {
        self.0.restarted(cx.peer_addr().ip(), args.name.as_bytes(), args.state);
        Ok(())
    }

    // The server calls GRANTED, and is not called.
    async fn nlmproc4_granted(&self, _cx: &Context, _args: Nlm4Testargs) -> Result<Nlm4Res, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_test_msg(&self, _cx: &Context, _args: Nlm4Testargs) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_lock_msg(&self, _cx: &Context, _args: Nlm4Lockargs) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_cancel_msg(&self, _cx: &Context, _args: Nlm4Cancargs) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_unlock_msg(&self, _cx: &Context, _args: Nlm4Unlockargs) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_granted_msg(&self, _cx: &Context, _args: Nlm4Testargs) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_test_res(&self, _cx: &Context, _args: Nlm4Testres) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_lock_res(&self, _cx: &Context, _args: Nlm4Res) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_cancel_res(&self, _cx: &Context, _args: Nlm4Res) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_unlock_res(&self, _cx: &Context, _args: Nlm4Res) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_granted_res(&self, _cx: &Context, _args: Nlm4Res) -> Result<(), HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_share(&self, _cx: &Context, _args: Nlm4Shareargs) -> Result<Nlm4Shareres, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn nlmproc4_unshare(&self, _cx: &Context, _args: Nlm4Shareargs) -> Result<Nlm4Shareres, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }
}

//! The duplicate request cache of one service.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    DuplicateRequests,
    cache::{Claim, DuplicateRequestCache, EarlierCopy, Lookup},
};
use crate::{
    ErrorChain,
    rpc::RpcError,
    service::ProcedureId,
    session::{EncodedReply, InboundCall, Service},
};

/// Creates the caches of programs. Fails with the number of a program that has no service.
pub(in crate::server) fn caches(
    services: &[Arc<dyn Service>],
    settings: BTreeMap<u32, DuplicateRequests>,
) -> Result<Vec<Arc<DuplicateRequestCache>>, u32> {
    let cache = |(program, settings)| {
        let has_service = services.iter().any(|service| service.program() == program);
        has_service.then(|| Arc::new(DuplicateRequestCache::new(program, settings))).ok_or(program)
    };
    settings.into_iter().map(cache).collect()
}

fn is_covered_by_default(service: &dyn Service, procedure: u32) -> bool {
    procedure != 0 && !service.procedure(procedure).is_some_and(|info| info.idempotent)
}

/// The duplicate request cache of a program, as one of the program's services uses it.
pub(in crate::server) struct ServiceDuplicates {
    program: u32,
    version: u32,
    cache: Arc<DuplicateRequestCache>,
    /// The procedures that do not follow the default. By default, the cache covers all procedures that are not
    /// idempotent, except procedure 0.
    exceptions: Vec<u32>,
}

/// The result of the look-up of a call that has arrived.
pub(in crate::server) enum Duplicate {
    /// The call was executed before.
    Replayed(EncodedReply),
    InProgress(EarlierCopy),
    New(Claim),
}

impl ServiceDuplicates {
    /// Returns the cache that calls of `service` pass through, or `None` if its program has no cache.
    pub(in crate::server) fn new(service: &dyn Service, caches: &[Arc<DuplicateRequestCache>]) -> Option<Self> {
        let (program, version) = (service.program(), service.version());
        let cache = caches.iter().find(|cache| cache.program() == program)?;
        let is_exception = |(id, is_covered): (&ProcedureId, &bool)| {
            let by_default = is_covered_by_default(service, id.procedure);
            let is_exception =
                (id.program, id.version) == (program, version) && *is_covered != by_default && id.procedure != 0;
            is_exception.then_some(id.procedure)
        };
        let exceptions = cache.config.exceptions.iter().filter_map(is_exception).collect();
        Some(Self { program, version, cache: Arc::clone(cache), exceptions })
    }

    /// Returns `true` if calls of a procedure pass through the cache.
    #[inline]
    pub(in crate::server) fn covers(&self, service: &dyn Service, procedure: u32) -> bool {
        is_covered_by_default(service, procedure) != self.exceptions.contains(&procedure)
    }

    /// Returns `true` if the cache has a store, for which calls have to wait.
    pub(in crate::server) fn has_store(&self) -> bool {
        self.cache.config.store.is_some()
    }

    /// Counts a call as executed, if the cache covers it.
    pub(in crate::server) fn execute(&self, call: &InboundCall) {
        if call.context().request_key().is_some() {
            self.cache.count_miss();
        }
    }

    /// Looks a call up in the cache. Claims a new call for execution.
    pub(in crate::server) fn arrive(&self, call: &mut InboundCall) -> Duplicate {
        let key = call.request_key(self.program, self.version, self.cache.config.ignores_stamp);
        match self.cache.lookup(key) {
            Lookup::Recorded(reply) => {
                let (program, xid) = (self.program, call.context().xid());
                tracing::debug!(target: "rpcrdma::call", program, xid, "call was executed before");
                Duplicate::Replayed(call.replay(&reply))
            }
            Lookup::InProgress(earlier) => Duplicate::InProgress(earlier),
            Lookup::New(claim) => Duplicate::New(claim),
        }
    }

    /// Waits while an earlier copy of a call is in progress, and then claims the call for execution.
    ///
    /// # Errors
    /// Returns the reply to send instead. It is the recorded reply if the cache or the store has one, and an error
    /// reply if the store fails.
    pub(in crate::server) async fn claim(
        &self,
        call: &mut InboundCall,
        duplicate: Duplicate,
    ) -> Result<Claim, EncodedReply> {
        let mut duplicate = duplicate;
        let claim = loop {
            match duplicate {
                Duplicate::Replayed(reply) => return Err(reply),
                Duplicate::InProgress(earlier) => earlier.ended().await,
                Duplicate::New(claim) => break claim,
            }
            duplicate = self.arrive(call);
        };
        let Some(store) = &self.cache.config.store else { return Ok(claim) };
        let key = &claim.call().key;
        match store.load(key).await {
            Ok(Some(reply)) => {
                tracing::debug!(target: "rpcrdma::call", ?key, "call was executed before");
                let replayed = call.replay(&reply);
                claim.hit(reply);
                Err(replayed)
            }
            Ok(None) => Ok(claim),
            Err(error) => {
                tracing::error!(target: "rpcrdma::call", ?key, error = %ErrorChain(&*error), "store of replies failed");
                Err(call.refuse(RpcError::Unavailable))
            }
        }
    }
}

impl Claim {
    /// Makes the handler of a call record its reply for the cache.
    pub(in crate::server) fn attach(&self, call: &mut InboundCall) {
        call.record(self.call());
    }

    /// Adds the reply that the handler has recorded, if any, to the cache. Does not wait for a store.
    pub(in crate::server) fn finish(self) {
        if let Some(reply) = self.call().take() {
            self.record(reply);
        }
    }

    /// Adds the reply that the handler has recorded, if any, to the store and to the cache.
    pub(in crate::server) async fn save(self) {
        let Some(reply) = self.call().take() else { return };
        if let Some(store) = self.store() {
            let key = &self.call().key;
            if let Err(error) = store.save(key, &reply).await {
                tracing::error!(target: "rpcrdma::call", ?key, error = %ErrorChain(&*error), "store of replies failed");
            }
        }
        self.record(reply);
    }
}

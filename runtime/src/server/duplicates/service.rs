//! Services whose calls pass through a duplicate request cache.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{
    DuplicateRequests,
    cache::{DuplicateRequestCache, Lookup},
};
use crate::{
    ErrorChain,
    rpc::RpcError,
    service::ProcedureInfo,
    session::{InboundCall, ReplyFuture, Service},
};

/// The services of a server, and their caches.
type Wrapped = (Vec<Arc<dyn Service>>, Vec<Arc<DuplicateRequestCache>>);

/// Wraps the services of some programs in their caches. The error is a program without a service.
pub(in crate::server) fn wrap(
    mut services: Vec<Arc<dyn Service>>,
    settings: BTreeMap<u32, DuplicateRequests>,
) -> Result<Wrapped, u32> {
    let mut caches = Vec::new();
    for (program, settings) in settings {
        let cache = Arc::new(DuplicateRequestCache::new(program, settings));
        let mut is_known = false;
        for service in services.iter_mut().filter(|service| service.program() == program) {
            *service = wrap_service(Arc::clone(service), &cache);
            is_known = true;
        }
        if !is_known {
            return Err(program);
        }
        caches.push(cache);
    }
    Ok((services, caches))
}

fn wrap_service(service: Arc<dyn Service>, cache: &Arc<DuplicateRequestCache>) -> Arc<dyn Service> {
    let (program, version) = (service.program(), service.version());
    let mut exceptions = HashSet::new();
    for (id, &is_covered) in &cache.config.exceptions {
        let by_default = is_covered_by_default(&*service, id.procedure);
        if (id.program, id.version) == (program, version) && is_covered != by_default && id.procedure != 0 {
            exceptions.insert(id.procedure);
        }
    }
    Arc::new(DeduplicatedService { service, cache: Arc::clone(cache), exceptions })
}

fn is_covered_by_default(service: &dyn Service, procedure: u32) -> bool {
    procedure != 0 && !service.procedure(procedure).is_some_and(|info| info.idempotent)
}

/// A service within a duplicate request cache.
struct DeduplicatedService {
    service: Arc<dyn Service>,
    cache: Arc<DuplicateRequestCache>,
    /// The procedures that do not follow the default.
    exceptions: HashSet<u32>,
}

impl DeduplicatedService {
    fn covers(&self, procedure: u32) -> bool {
        is_covered_by_default(&*self.service, procedure) != self.exceptions.contains(&procedure)
    }
}

impl Service for DeduplicatedService {
    fn program(&self) -> u32 {
        self.service.program()
    }

    fn version(&self) -> u32 {
        self.service.version()
    }

    fn name(&self) -> &'static str {
        self.service.name()
    }

    fn max_chunks(&self) -> u32 {
        self.service.max_chunks()
    }

    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        self.service.procedure(number)
    }

    fn dispatch(&self, mut call: InboundCall) -> ReplyFuture {
        if !self.covers(call.procedure()) {
            return self.service.dispatch(call);
        }
        let (service, cache) = (Arc::clone(&self.service), Arc::clone(&self.cache));
        Box::pin(async move {
            let key = call.request_key(service.program(), service.version(), cache.config.ignores_stamp);
            let claim = loop {
                match cache.lookup(&key) {
                    Lookup::Recorded(reply) => {
                        tracing::debug!(target: "rpcrdma::call", ?key, "call was executed before");
                        return call.replay(&reply);
                    }
                    // An error means that the earlier call has ended.
                    Lookup::InProgress(mut end) => while end.changed().await.is_ok() {},
                    Lookup::New(claim) => break claim,
                }
            };
            if let Some(store) = &cache.config.store {
                match store.load(&claim.key).await {
                    Ok(Some(reply)) => {
                        tracing::debug!(target: "rpcrdma::call", ?key, "call was executed before");
                        let replayed = call.replay(&reply);
                        claim.hit(reply);
                        return replayed;
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(target: "rpcrdma::call", ?key, error = %ErrorChain(&*error), "store of replies failed");
                        return call.refuse(RpcError::Unavailable);
                    }
                }
            }
            claim.execute();
            let recorded = call.record(key);
            let reply = service.dispatch(call).await;
            if let Some(result) = recorded.take() {
                if let Some(store) = &cache.config.store
                    && let Err(error) = store.save(&claim.key, &result).await
                {
                    let key = &claim.key;
                    tracing::error!(target: "rpcrdma::call", ?key, error = %ErrorChain(&*error), "store of replies failed");
                }
                claim.record(result);
            }
            reply
        })
    }
}

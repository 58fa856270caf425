//! The hooks of a server around the handlers of its services: introspection, duplicate request cache, limits and
//! layers.

use std::{collections::BTreeMap, sync::Arc, task::Context as TaskContext};

#[cfg(feature = "tower")]
use super::layers::Layers;
use super::{
    duplicates::{Claim, Duplicate, DuplicateRequestCache, ServiceDuplicates},
    limits::{Arrival, LimitScope, LimitedCall, Limiter, ServiceLimits},
};
#[cfg(feature = "introspection")]
use crate::introspection::ObservedCalls;
use crate::session::{CallHooks, HookedService, InboundCall, PolledCall, Service};

/// The hooks of all services of a server.
pub(super) struct ServerHooks<'a> {
    pub(super) caches: &'a [Arc<DuplicateRequestCache>],
    pub(super) limiters: &'a BTreeMap<LimitScope, Arc<Limiter>>,
    /// The programs to which the limits of the whole server do not apply.
    pub(super) exempt: &'a [u32],
    #[cfg(feature = "tower")]
    pub(super) layers: Option<Arc<Layers>>,
    #[cfg(feature = "introspection")]
    pub(super) observed: &'a [Arc<ObservedCalls>],
}

impl ServerHooks<'_> {
    /// Returns a service with the hooks that its calls pass through.
    pub(super) fn of(&self, service: Arc<dyn Service>) -> HookedService {
        let hooks = ServiceHooks {
            #[cfg(feature = "introspection")]
            observed: self
                .observed
                .iter()
                .find(|calls| (calls.program, calls.version) == (service.program(), service.version()))
                .cloned(),
            duplicates: ServiceDuplicates::new(&*service, self.caches).map(Arc::new),
            limits: ServiceLimits::new(&*service, self.limiters, self.exempt.contains(&service.program())),
            #[cfg(feature = "tower")]
            layers: self.layers.clone(),
        };
        let hooks = (!hooks.is_empty()).then(|| Arc::new(Arc::new(hooks)) as Arc<dyn CallHooks>);
        HookedService { service, hooks }
    }
}

/// The hooks of one service, in the order in which a call passes through them.
struct ServiceHooks {
    #[cfg(feature = "introspection")]
    observed: Option<Arc<ObservedCalls>>,
    duplicates: Option<Arc<ServiceDuplicates>>,
    limits: Option<ServiceLimits>,
    #[cfg(feature = "tower")]
    layers: Option<Arc<Layers>>,
}

impl CallHooks for Arc<ServiceHooks> {
    fn start(&self, service: &Arc<dyn Service>, call: InboundCall, cx: &mut TaskContext<'_>) -> PolledCall {
        #[cfg(feature = "introspection")]
        if let Some(observed) = &self.observed {
            let active = observed.start(&call);
            return match self.start_in_cache(service, call, cx) {
                PolledCall::Finished(reply) => {
                    active.finish(&reply);
                    PolledCall::Finished(reply)
                }
                PolledCall::Waiting(rest) => PolledCall::Waiting(Box::pin(active.wait(rest))),
            };
        }
        self.start_in_cache(service, call, cx)
    }
}

impl ServiceHooks {
    /// Returns `true` if calls pass through no hook.
    fn is_empty(&self) -> bool {
        #[cfg(feature = "introspection")]
        let is_observed = self.observed.is_some();
        #[cfg(not(feature = "introspection"))]
        let is_observed = false;
        #[cfg(feature = "tower")]
        let is_layered = self.layers.is_some();
        #[cfg(not(feature = "tower"))]
        let is_layered = false;
        !is_observed && self.duplicates.is_none() && self.limits.is_none() && !is_layered
    }

    /// Passes a call through the duplicate request cache, the limits and the layers.
    #[inline(always)]
    fn start_in_cache(
        self: &Arc<Self>,
        service: &Arc<dyn Service>,
        mut call: InboundCall,
        cx: &mut TaskContext<'_>,
    ) -> PolledCall {
        let duplicates = self.duplicates.as_ref().filter(|cache| cache.covers(&**service, call.procedure()));
        let Some(duplicates) = duplicates else { return self.start_in_limits(service, call, cx) };
        match duplicates.arrive(&mut call) {
            Duplicate::Replayed(reply) => PolledCall::Finished(reply),
            Duplicate::New(claim) if !duplicates.has_store() => self.start_claimed(service, call, claim, cx),
            duplicate => {
                let (hooks, service, duplicates) = (Arc::clone(self), Arc::clone(service), Arc::clone(duplicates));
                PolledCall::Waiting(Box::pin(async move {
                    match duplicates.claim(&mut call, duplicate).await {
                        Ok(claim) => PolledCall::run(|cx| hooks.start_claimed(&service, call, claim, cx)).await,
                        Err(reply) => reply,
                    }
                }))
            }
        }
    }

    /// Passes a call that was claimed for execution through the limits and the layers, and records its reply.
    #[inline(always)]
    fn start_claimed(
        self: &Arc<Self>,
        service: &Arc<dyn Service>,
        mut call: InboundCall,
        claim: Claim,
        cx: &mut TaskContext<'_>,
    ) -> PolledCall {
        claim.attach(&mut call);
        match self.start_in_limits(service, call, cx) {
            PolledCall::Finished(reply) if claim.store().is_none() => {
                claim.finish();
                PolledCall::Finished(reply)
            }
            PolledCall::Finished(reply) => PolledCall::Waiting(Box::pin(async move {
                claim.save().await;
                reply
            })),
            PolledCall::Waiting(rest) => PolledCall::Waiting(Box::pin(async move {
                let reply = rest.await;
                claim.save().await;
                reply
            })),
        }
    }

    /// Passes a call through the limits and the layers.
    #[inline(always)]
    fn start_in_limits(
        self: &Arc<Self>,
        service: &Arc<dyn Service>,
        mut call: InboundCall,
        cx: &mut TaskContext<'_>,
    ) -> PolledCall {
        let limiter = self.limits.as_ref().and_then(|limits| limits.find(call.procedure()));
        let Some(limiter) = limiter else { return self.start_in_layers(service, call, cx) };
        let limited = LimitedCall::new(limiter, &**service, &mut call);
        let permit = match limited.arrive(&call) {
            Arrival::Admitted(permit) => permit,
            Arrival::Refused => return PolledCall::Finished(limited.refused()),
            Arrival::Waits(waiting) => {
                let (hooks, service) = (Arc::clone(self), Arc::clone(service));
                let start = move |cx: &mut TaskContext<'_>| hooks.start_in_layers(&service, call, cx);
                return PolledCall::Waiting(Box::pin(limited.wait(waiting, start)));
            }
        };
        limited.execute();
        match self.start_in_layers(service, call, cx) {
            PolledCall::Finished(reply) => {
                drop(permit);
                PolledCall::Finished(reply)
            }
            PolledCall::Waiting(rest) => PolledCall::Waiting(Box::pin(limited.finish(permit, rest))),
        }
    }

    /// Passes a call that no limit refused through the layers to its service.
    #[inline(always)]
    fn start_in_layers(&self, service: &Arc<dyn Service>, call: InboundCall, cx: &mut TaskContext<'_>) -> PolledCall {
        if let Some(duplicates) = &self.duplicates {
            duplicates.execute(&call);
        }
        #[cfg(feature = "tower")]
        if let Some(layers) = &self.layers {
            return layers.start(service, call, cx);
        }
        PolledCall::dispatch(&**service, call, cx)
    }
}

//! The security of a channel: creates, refreshes and destroys contexts (RFC 2203 §5.3.3.3, §5.4).

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{runtime::Handle, sync::Semaphore, time::Instant};

use super::{
    client::{ClientContext, NoNumber},
    creation::{ContextCreation, CreatedContext, NextStep, failed},
    mechanism::{ClientMechanism, ContextSetup, GssError, SetupStep},
};
use crate::{
    blocking,
    security::{
        CallSecurity, ControlCall, ProtectionLevel, Secured, Security, SecurityError, SecurityFuture, SecurityLink,
    },
    service::ProcedureId,
};

/// The security of a channel's calls by RPCSEC_GSS. Clones share the security context.
///
/// The context is created with the first call. It is created again before it expires, when the server has dropped it,
/// and when its sequence numbers are used up. Calls in progress are not affected. The context stays in use after a
/// reconnect.
///
/// One instance is for one user at one server. Several channels to that server may share it. A balancer creates one for
/// each of its servers. For calls of several users over one channel, see
/// [`CallOptions::security`](crate::client::CallOptions::security).
///
/// The creation of a context needs a tokio runtime. Outside of a runtime, a call fails if there is no context.
///
/// [`Channel::close`](crate::Channel::close) destroys the context at the server, unless there are other clones of this
/// security.
pub struct GssSecurity<M> {
    shared: Arc<GssSecurityShared<M>>,
    level: ProtectionLevel,
}

impl<M> Clone for GssSecurity<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), level: self.level }
    }
}

struct GssSecurityShared<M> {
    mechanism: Arc<M>,
    contexts: Mutex<Contexts>,
    /// The lock that is held during the creation of a context. Other calls wait for it.
    creating: tokio::sync::Mutex<()>,
    /// A semaphore with one permit, for the step of the mechanism in progress. The step may outlive its call. A KDC
    /// that does not answer thus blocks only one thread, and not one for each call that gives up, or for each server.
    step: Arc<Semaphore>,
}

#[derive(Default)]
struct Contexts {
    current: Option<Arc<ClientContext>>,
    /// Contexts that were replaced before the server dropped them. When a new context has been created, and when the
    /// channel is closed, those without calls are destroyed.
    retired: Vec<Arc<ClientContext>>,
}

impl<M: ClientMechanism> GssSecurity<M> {
    /// Creates the security of the user that `mechanism` has credentials for.
    #[must_use]
    pub fn new(mechanism: M, level: ProtectionLevel) -> Self {
        let contexts = Mutex::default();
        let (creating, step) = (tokio::sync::Mutex::default(), Arc::new(Semaphore::new(1)));
        let shared = GssSecurityShared { mechanism: Arc::new(mechanism), contexts, creating, step };
        Self { shared: Arc::new(shared), level }
    }

    /// Returns a clone with another level of protection, which uses the same context (RFC 2203 §5.3).
    #[must_use]
    pub fn with_level(&self, level: ProtectionLevel) -> Self {
        Self { level, ..self.clone() }
    }

    /// Returns the level of protection of the calls.
    #[must_use]
    pub fn level(&self) -> ProtectionLevel {
        self.level
    }
}

impl<M> GssSecurityShared<M> {
    fn contexts(&self) -> std::sync::MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: ClientMechanism> GssSecurityShared<M> {
    fn usable(&self) -> Option<Arc<ClientContext>> {
        let now = Instant::now().into_std();
        self.contexts().current.as_ref().filter(|context| context.is_usable(now)).map(Arc::clone)
    }

    /// Returns the context in use. If there is none, creates one (RFC 2203 §5.2), and then destroys the retired
    /// contexts that no call uses.
    async fn context(&self, call: ProcedureId, link: SecurityLink<'_>) -> Result<Arc<ClientContext>, SecurityError> {
        if let Some(context) = self.usable() {
            return Ok(context);
        }
        let creating = self.creating.lock().await;
        if let Some(context) = self.usable() {
            return Ok(context);
        }
        let created = self.create(call, link).await?;
        let context = ClientContext::new(created, call.program, call.version, Instant::now().into_std());
        let context = Arc::new(context);
        tracing::debug!(target: "rpcrdma::gss", "security context created");
        self.replace(Some(Arc::clone(&context)));
        // Other calls need not wait for the destruction.
        drop(creating);
        for (call, security) in self.destructions() {
            // RFC 2203 §5.4: a failure needs no action.
            if let Err(error) = link.post(call).await {
                tracing::debug!(target: "rpcrdma::gss", %error, "security context not destroyed");
            }
            security.ended();
        }
        Ok(context)
    }

    async fn create(&self, call: ProcedureId, link: SecurityLink<'_>) -> Result<CreatedContext, SecurityError> {
        let mut creation = ContextCreation::new(call.program, call.version);
        let (mut setup, step) = self.step(None, None).await?;
        let mut next = creation.stepped(step)?;
        loop {
            next = match next {
                NextStep::Call(call) => {
                    let received = creation.received(link.call(call).await?);
                    let advice = creation.refusal().and_then(|(major, minor)| self.mechanism.advice(major, minor));
                    received.map_err(|error| match advice {
                        Some(advice) => SecurityError(format!("{error}: {advice}")),
                        None => error,
                    })?
                }
                // RFC 2203 §5.2.3.1.1: the mechanism goes on with the server's token.
                NextStep::Token(token) => {
                    let step;
                    (setup, step) = self.step(Some(setup), Some(token)).await?;
                    creation.stepped(step)?
                }
                NextStep::Done(created) => return Ok(created),
            };
        }
    }

    /// Executes a step of the mechanism on a thread for blocking work. Without `setup`, first begins a new context.
    /// Fails outside of a tokio runtime.
    async fn step(
        &self,
        setup: Option<Box<dyn ContextSetup>>,
        token: Option<bytes::Bytes>,
    ) -> Result<(Box<dyn ContextSetup>, SetupStep), SecurityError> {
        let runtime = Handle::try_current().map_err(|_| failed("it needs a tokio runtime, make the call in one"))?;
        let mechanism = Arc::clone(&self.mechanism);
        let permit = Arc::clone(&self.step).acquire_owned().await;
        let step = blocking::spawn(&runtime, move || {
            let _permit = permit;
            let mut setup = setup.map_or_else(|| mechanism.begin(), Ok)?;
            let step = setup.step(token.as_deref())?;
            Ok((setup, step))
        });
        let step = step.await.map_err(|error| failed(&format!("the mechanism failed: {error}")))?;
        step.map_err(|error: GssError| failed(&error.to_string()))
    }

    /// Replaces the context in use. Retires the old context, unless the server has dropped it or a call has found it
    /// expired.
    fn replace(&self, context: Option<Arc<ClientContext>>) {
        let mut contexts = self.contexts();
        let old = std::mem::replace(&mut contexts.current, context);
        // A context that the server has dropped need not be destroyed.
        contexts.retired.extend(old.filter(|old| !old.is_dead()));
    }

    /// Retires a context if it is in use.
    fn retire(&self, context: &Arc<ClientContext>) {
        let mut contexts = self.contexts();
        let current = contexts.current.take_if(|current| Arc::ptr_eq(current, context));
        contexts.retired.extend(current);
    }

    /// Removes the retired contexts that no call uses. Returns the calls that destroy these contexts at the server.
    fn destructions(&self) -> Vec<(ControlCall, Arc<dyn CallSecurity>)> {
        let mut contexts = self.contexts();
        let (idle, busy) = std::mem::take(&mut contexts.retired).into_iter().partition(|old| old.is_idle());
        contexts.retired = busy;
        let idle: Vec<Arc<ClientContext>> = idle;
        idle.iter().filter(|context| !context.is_dead()).filter_map(ClientContext::destruction).collect()
    }

    /// Destroys retired contexts at the server, and waits for its replies.
    async fn destroy_retired(&self, link: SecurityLink<'_>) {
        for (call, security) in self.destructions() {
            // RFC 2203 §5.4: a failure needs no action.
            let result = link.call(call).await.and_then(|reply| {
                reply.outcome.map_err(|error| SecurityError(error.to_string()))?;
                security.verify(&reply.verifier)
            });
            security.ended();
            if let Err(error) = result {
                tracing::debug!(target: "rpcrdma::gss", %error, "security context not destroyed");
            }
        }
    }
}

impl<M: ClientMechanism> Security for GssSecurity<M> {
    fn for_other_server(&self) -> Option<Arc<dyn Security>> {
        let shared = &self.shared;
        Some(Arc::new(Self {
            shared: Arc::new(GssSecurityShared {
                mechanism: Arc::clone(&shared.mechanism),
                contexts: Mutex::default(),
                creating: tokio::sync::Mutex::default(),
                step: Arc::clone(&shared.step),
            }),
            level: self.level,
        }))
    }

    fn secure<'a>(
        &'a self,
        call: ProcedureId,
        link: SecurityLink<'a>,
    ) -> SecurityFuture<'a, Result<Secured, SecurityError>> {
        Box::pin(async move {
            loop {
                let context = self.shared.context(call, link).await?;
                match context.secure_in_turn(self.level).await? {
                    Ok(secured) => return Ok(secured),
                    Err(NoNumber::WindowFull) => {}
                    // RFC 2203 §5.3.1: the next call needs a new context.
                    Err(NoNumber::Exhausted) => self.shared.retire(&context),
                }
            }
        })
    }

    // RFC 2203 §5.4.
    fn close<'a>(&'a self, link: SecurityLink<'a>) -> SecurityFuture<'a, ()> {
        Box::pin(async move {
            if Arc::strong_count(&self.shared) > 1 {
                return;
            }
            self.shared.replace(None);
            loop {
                let busy = self.shared.contexts().retired.iter().find(|old| !old.is_idle()).map(Arc::clone);
                let Some(busy) = busy else { break };
                busy.idle().await;
            }
            // The connection is closed next, which could overtake a call that nobody waits for.
            self.shared.destroy_retired(link).await;
        })
    }
}

#[cfg(test)]
impl<M> GssSecurity<M> {
    /// Returns the context in use.
    pub(super) fn current(&self) -> Option<Arc<ClientContext>> {
        self.shared.contexts().current.clone()
    }
}

impl<M: fmt::Debug> fmt::Debug for GssSecurity<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GssSecurity")
            .field("mechanism", &self.shared.mechanism)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

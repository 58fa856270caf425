//! The authenticator of a server, which runs the mechanism on threads for blocking work.

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::{runtime::Handle, task::JoinError, time::Instant};

use super::{
    contexts::GssServerConfig,
    credential::flavor,
    mechanism::{GssError, ServerMechanism, major},
    server::{Decision, GssServer, SetupRound},
};
use crate::{
    blocking,
    config::ConfigError,
    rpc::{AuthStat, CallHeader},
    security::{Admissions, Authentication, Authenticator, BlockingQueue, ControlReply, ReceivedCall},
};

/// An authenticator that accepts calls with RPCSEC_GSS, and creates the security contexts of their callers. Clones
/// share the contexts.
///
/// A context belongs to no connection: a client may use several contexts on one connection, and one context on several
/// connections, one after the other or at the same time.
///
/// Calls with other flavors get AUTH_TOOWEAK, unless [`or`](Self::or) names an authenticator for them.
pub struct GssAuthenticator<M> {
    shared: Arc<AuthenticatorShared<M>>,
    others: Option<Arc<dyn Authenticator>>,
}

impl<M> Clone for GssAuthenticator<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), others: self.others.clone() }
    }
}

struct AuthenticatorShared<M> {
    mechanism: M,
    server: GssServer,
    /// The limit on the number of steps that the mechanism executes at the same time.
    steps: Admissions,
}

impl<M: ServerMechanism> GssAuthenticator<M> {
    /// Creates an authenticator with the default limits.
    #[must_use]
    pub fn new(mechanism: M) -> Self {
        Self::create(mechanism, GssServerConfig::default())
    }

    /// Creates an authenticator with the limits of `config`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of its range.
    pub fn with_config(mechanism: M, config: GssServerConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self::create(mechanism, config))
    }

    fn create(mechanism: M, config: GssServerConfig) -> Self {
        let steps = Admissions::new(config.max_setups, config.max_setups_per_address);
        let server = GssServer::new(config);
        Self { shared: Arc::new(AuthenticatorShared { mechanism, server, steps }), others: None }
    }

    /// Sets the authenticator of calls with other flavors, for example
    /// [`StandardAuthenticator`](crate::security::StandardAuthenticator).
    #[must_use]
    pub fn or(mut self, others: impl Authenticator) -> Self {
        self.others = Some(Arc::new(others));
        self
    }

    /// Returns the number of established contexts.
    #[must_use]
    pub fn contexts(&self) -> usize {
        self.shared.server.contexts.counts().0
    }

    /// Returns the number of contexts in creation that wait for another token from their clients.
    #[must_use]
    pub fn setups(&self) -> usize {
        self.shared.server.contexts.counts().1
    }
}

impl<M: ServerMechanism> Authenticator for GssAuthenticator<M> {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        if call.header.credential.flavor != flavor() {
            return match &self.others {
                Some(others) => others.authenticate(call),
                None => Authentication::Rejected(AuthStat::AuthTooweak.into()),
            };
        }
        match self.shared.server.receive(call, false, Instant::now().into_std()) {
            Decision::Done(authentication) => authentication,
            Decision::Round(round) => {
                let shared = Arc::clone(&self.shared);
                Authentication::Pending(Box::pin(async move { Authentication::Answered(shared.run(round).await) }))
            }
            Decision::Busy(queue) => {
                let (shared, call) = (Arc::clone(&self.shared), CopiedCall::new(call));
                Authentication::Pending(Box::pin(async move { shared.receive_later(call, queue).await }))
            }
        }
    }
}

/// A copy of a received call, so that another thread can check its header.
struct CopiedCall {
    header: CallHeader,
    signed: Box<[u8]>,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
}

impl CopiedCall {
    fn new(call: &ReceivedCall<'_>) -> Self {
        let (peer_addr, local_addr) = (call.peer_addr, call.local_addr);
        Self { header: call.header.clone(), signed: call.signed.into(), peer_addr, local_addr }
    }
}

impl<M: ServerMechanism> AuthenticatorShared<M> {
    /// Decides on a call whose context is busy, on a thread for blocking work.
    async fn receive_later(self: Arc<Self>, call: CopiedCall, queue: BlockingQueue) -> Authentication {
        let decision = queue.run(Handle::current(), false, move || {
            let mut received = ReceivedCall::new(&call.header, call.peer_addr);
            (received.signed, received.local_addr) = (&call.signed, call.local_addr);
            self.server.receive(&received, true, Instant::now().into_std())
        });
        match decision.await {
            Ok(Decision::Done(authentication)) => authentication,
            // The other decisions are on calls that create contexts.
            _ => Authentication::Rejected(AuthStat::RpcsecGssCtxproblem.into()),
        }
    }

    /// Executes the mechanism's step for one round of a context's creation, and returns the reply.
    async fn run(self: Arc<Self>, mut round: SetupRound) -> ControlReply {
        let config = &self.server.config;
        // A call waits here if too many steps are in progress.
        let result = match tokio::time::timeout(config.setup_timeout, self.steps.admit(round.host)).await {
            Ok(admission) => {
                let (shared, setup, token) = (Arc::clone(&self), round.setup.take(), round.token.clone());
                let step = blocking::spawn(&Handle::current(), move || {
                    // Held to the end of the step, even if the connection is lost meanwhile.
                    let _admission = admission;
                    let mut setup = setup.map_or_else(|| shared.mechanism.begin(), Ok)?;
                    let step = setup.step(Some(&token))?;
                    Ok((setup, step))
                });
                let failed = |error: JoinError| GssError::new(major::FAILURE, format!("the mechanism failed: {error}"));
                step.await.unwrap_or_else(|error| Err(failed(error)))
            }
            Err(_) => Err(GssError::new(major::FAILURE, "the server is busy with other security contexts")),
        };
        self.server.finish_round(round, result, Instant::now().into_std())
    }
}

impl<M: fmt::Debug> fmt::Debug for GssAuthenticator<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GssAuthenticator")
            .field("mechanism", &self.shared.mechanism)
            .field("config", &self.shared.server.config)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

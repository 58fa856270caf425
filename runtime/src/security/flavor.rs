//! The interface of security flavors such as RPCSEC_GSS (RFC 2203): verifiers of calls, protection of arguments and
//! results, and the calls that create and destroy security contexts.
//!
//! | at the client | at the server | purpose |
//! | --- | --- | --- |
//! | [`Security`] | [`Authenticator`](super::Authenticator) | one for a channel or a server; holds the security contexts |
//! | [`CallSecurity`] | [`ReplySecurity`](super::ReplySecurity) | one for each call |
//! | [`Protection`] | [`Protection`] | protects the bodies of one call |
//! | [`ControlCall`] | [`Authentication`](super::Authentication)`::Answered` | calls of the flavor itself, which no service sees |
//!
//! A **sealed** call has a verifier over its own header, from the XID to the end of the credential (RFC 2203 §5.3.1).
//! The verifier of its reply covers the call's sequence number (§5.3.3.2). The channel chooses the XID of a sealed
//! call, and requests the verifier from a [`Seal`] in the caller's task, before it hands the call to the connection.
//!
//! Protection applies to the whole encoding of a body. An item removed from the encoding would not be protected, and
//! its padding, which is not sent, would be missing when the receiver checks the body. Therefore the engine **does not
//! reduce** protected calls. Their only chunks are the Position-Zero Read chunk of a Long call and the Reply chunk
//! (RFC 8166 §8.2.2.3; RPC-over-RDMA version 2, §11.2.2.3). Flavors that only authenticate, with credential and
//! verifier, do not prevent reduction (RFC 8166 §8.2.2.2). Credentials, verifiers and control calls always stay in the
//! payload stream (§8.2.2).

use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, PoisonError, RwLock, TryLockError},
    time::Instant,
};

use bytes::Bytes;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{
    blocking,
    rpc::{AuthFailure, OpaqueAuth, RpcError},
    service::ProcedureId,
};

/// An error of a security flavor. The message describes what failed and, where possible, what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecurityError(pub String);

/// The reason why a received body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnwrapError {
    /// The security context has expired. A server replies RPCSEC_GSS_CTXPROBLEM (RFC 2203 §5.3.3.3), and the client
    /// sends the call again with another context. If a client finds this error in results, the call fails, because the
    /// server has executed it.
    #[error("the security context has expired")]
    Expired,
    /// The body was modified, is malformed, or belongs to another call. A server replies GARBAGE_ARGS (RFC 2203
    /// §5.3.3.1, §5.3.3.4.2, §5.3.3.4.3).
    #[error(transparent)]
    Refused(#[from] SecurityError),
}

/// The part of a call that a security flavor protects (RFC 2203 §5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProtectionLevel {
    /// Header and verifiers only. Arguments and results travel as with AUTH_NONE, and may be reduced.
    Authentication,
    /// Header, verifiers, arguments and results are protected against changes.
    Integrity,
    /// Header and verifiers are protected against changes. Arguments and results are encrypted.
    Privacy,
}

/// An identity that a security flavor has authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Principal {
    /// Name of the caller in the form of its mechanism, such as `alice@EXAMPLE.COM` for Kerberos.
    pub name: String,
    /// Level of protection of the call.
    pub level: ProtectionLevel,
}

impl Principal {
    /// Creates the identity of a caller.
    #[must_use]
    pub fn new(name: impl Into<String>, level: ProtectionLevel) -> Self {
        Self { name: name.into(), level }
    }
}

/// Length in bytes of the longest body that is protected in the task of its call. MIT Kerberos 1.20 encrypts 4 KiB in
/// 65 microseconds, and 32 KiB in 440. Moving a body to another thread costs some tens of microseconds.
pub(crate) const MAX_BODY_IN_TASK: usize = 4 << 10;

/// The queue of the work of one security context. It uses at most two of the threads for blocking work: one for large
/// bodies, and one for short work that would otherwise wait for a large body in an async task. Further work waits in
/// the order of arrival, without a thread. Clones share the queue.
///
/// Short work runs in the task that needs it, unless a large body is in progress. No large body begins before such work
/// has ended.
#[derive(Debug, Clone)]
pub struct BlockingQueue(Arc<Turns>);

#[derive(Debug)]
struct Turns {
    large: Arc<Semaphore>,
    short: Arc<Semaphore>,
    /// A lock that is held for writing by a large body in progress, and for reading by short work in tasks.
    body: RwLock<()>,
}

impl Default for BlockingQueue {
    fn default() -> Self {
        let (large, short) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        Self(Arc::new(Turns { large, short, body: RwLock::new(()) }))
    }
}

impl BlockingQueue {
    /// Creates the queue of a new security context.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `work` on one of the two threads of the queue, once that thread is free. `is_large` selects the thread for
    /// large bodies instead of the thread for short work.
    ///
    /// # Errors
    /// Returns an error if `work` panics or the runtime is shutting down.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        runtime: Handle,
        is_large: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SecurityError> {
        let turns = if is_large { &self.0.large } else { &self.0.short };
        let turn = Arc::clone(turns).acquire_owned().await;
        let queue = self.clone();
        // Held to the end of the work, even if the caller gives up meanwhile.
        let done = blocking::spawn(&runtime, move || {
            let _turn = turn;
            queue.run_here(is_large, work)
        });
        done.await.map_err(|error| SecurityError(format!("the work of a security context failed: {error}")))
    }

    /// Runs `work` in this thread, which may block. If `is_large` is `true`, no short work runs in tasks meanwhile.
    pub(crate) fn run_here<T>(&self, is_large: bool, work: impl FnOnce() -> T) -> T {
        let _body = is_large.then(|| self.0.body.write().unwrap_or_else(PoisonError::into_inner));
        work()
    }

    /// Runs short `work` in this thread, which must not block. Returns `work` if it might wait for a large body.
    pub(crate) fn try_run<T, W: FnOnce() -> T>(&self, work: W) -> Result<T, W> {
        let _body = match self.0.body.try_read() {
            Ok(body) => body,
            Err(TryLockError::Poisoned(body)) => body.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(work),
        };
        Ok(work())
    }
}

/// Protects the bodies of one call: its arguments in one direction, its results in the other.
///
/// Bodies are XDR. Their length is a multiple of four bytes, both wrapped and unwrapped. The methods may take as long
/// as the computation needs, and may wait for each other. Within a tokio runtime, bodies of more than 4 KiB are
/// protected on a thread for blocking work, and so are all bodies while such a body of the same [`queue`](Self::queue)
/// is in progress.
pub trait Protection: fmt::Debug + Send + Sync + 'static {
    /// Protects a body before it is sent.
    ///
    /// # Errors
    /// Returns an error if the body cannot be protected. A client then does not send the call, and a server sends no
    /// RPC reply (RFC 2203 §5.3.3.4.1, §5.3.3.4.4).
    fn wrap(&self, body: Bytes) -> Result<Bytes, SecurityError>;

    /// Checks a received body and returns the original body.
    ///
    /// # Errors
    /// Returns an error if the body was modified or is malformed, if it belongs to another call, or if the security
    /// context has expired.
    fn unwrap(&self, body: Bytes) -> Result<Bytes, UnwrapError>;

    /// Returns the maximum wrapped length, in bytes, of a body of at most `len` bytes. A client provides memory for
    /// this length (RFC 8166 §6.2).
    fn max_wrapped(&self, len: u64) -> u64;

    /// Returns the queue of the security context. The default is a queue for this call alone.
    fn queue(&self) -> BlockingQueue {
        BlockingQueue::new()
    }
}

/// Creates the verifier of one call before the call is sent.
pub trait Seal: fmt::Debug + Send + Sync + 'static {
    /// Creates the verifier of the call. `header` contains the bytes that the verifier covers: the encoded header of
    /// the call from the XID to the end of the credential, as it is sent (RFC 2203 §5.3.1). May wait only for work of
    /// the same [`queue`](Self::queue).
    ///
    /// # Errors
    /// Returns an error if the verifier cannot be created. The call then fails without being sent.
    fn seal(&self, header: &[u8]) -> Result<OpaqueAuth, SecurityError>;

    /// Returns the queue of the security context, if verifiers wait for its large bodies. While such a body is in
    /// progress, verifiers are created and checked on a thread for blocking work, if there is a tokio runtime. The
    /// default is `None`: they never wait.
    fn queue(&self) -> Option<BlockingQueue> {
        None
    }
}

/// The security of one call on a client.
pub trait CallSecurity: Seal {
    /// Checks the verifier of a reply to an accepted call. The verifier of RPCSEC_GSS covers the sequence number in the
    /// call's credential (RFC 2203 §5.3.3.2). This method is not called for denied calls, whose replies have no
    /// verifier (RFC 5531 §9). An implementation may block only to wait for work of the same [`queue`](Seal::queue).
    ///
    /// # Errors
    /// Returns an error if the verifier is not authentic.
    fn verify(&self, verifier: &OpaqueAuth) -> Result<(), SecurityError>;

    /// Returns the protection of arguments and results. The default is `None`.
    fn protection(&self) -> Option<Arc<dyn Protection>> {
        None
    }

    /// Handles the denial of the call (AUTH_ERROR). Returns `true` if the call should be [secured](Security::secure)
    /// again and resent, for example after RPCSEC_GSS_CREDPROBLEM (RFC 2203 §5.3.3.3). The server has not executed a
    /// denied call. The channel resends a call at most three times on each connection, within the deadline of the call.
    /// The default is `false`.
    fn denied(&self, failure: AuthFailure) -> bool {
        let _ = failure;
        false
    }

    /// Handles a failure of [`seal`](Seal::seal) or [`Protection::wrap`]. Returns `true` if the call should be
    /// [secured](Security::secure) again, for example because its security context has expired. The call has not been
    /// sent. The same limits apply as to denied calls. An implementation may block only to wait for work of the same
    /// [`queue`](Seal::queue). The default is `false`.
    fn expired(&self) -> bool {
        false
    }

    /// Reports the end of the call: its reply was processed, the call failed, or the caller dropped it. Called once.
    /// The engine may keep the object for longer.
    fn ended(&self) {}
}

/// The credential and the security of one call.
#[derive(Debug, Clone)]
pub struct Secured {
    /// Credential of the caller.
    pub credential: OpaqueAuth,
    /// The security of the call. It creates the verifier of the call, checks the verifier of the reply, and protects
    /// the bodies.
    pub call: Arc<dyn CallSecurity>,
}

/// A future that a [`Security`] returns. It may borrow the security and the link.
pub type SecurityFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Secures the calls of a channel.
pub trait Security: fmt::Debug + Send + Sync + 'static {
    /// Secures the next call. Every attempt of a call is secured again because a sequence number is valid for a single
    /// call (RFC 2203 §5.3.3.1). For the same reason, the engine never sends a sealed call twice.
    ///
    /// The implementation may first make calls of its own with [`SecurityLink::call`]. The future is dropped when the
    /// call's deadline passes. Use `tokio::task::spawn_blocking` for calls that block.
    ///
    /// # Errors
    /// Returns an error if there is no security context and none can be created. The call is not sent.
    fn secure<'a>(
        &'a self,
        call: ProcedureId,
        link: SecurityLink<'a>,
    ) -> SecurityFuture<'a, Result<Secured, SecurityError>>;

    /// Returns a security for calls to another server. It shares no context with this security. A balancer uses one
    /// security for each server.
    ///
    /// The default returns `None`: all servers share this security.
    fn for_other_server(&self) -> Option<Arc<dyn Security>> {
        None
    }

    /// Ends the use of this security by a channel that is being closed, for example by destroying its security context
    /// (RFC 2203 §5.4). The channel closes its connection after that. The default does nothing.
    fn close<'a>(&'a self, link: SecurityLink<'a>) -> SecurityFuture<'a, ()> {
        let _ = link;
        Box::pin(std::future::ready(()))
    }
}

/// A call of a security flavor itself: procedure 0 of a program, with arguments (RFC 2203 §5.2.2). It is not reduced
/// (RFC 8166 §8.2.2).
///
/// The debug output does not contain the arguments, which may be a token of a GSS-API mechanism.
#[derive(Clone)]
pub struct ControlCall {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Credential of the call.
    pub credential: OpaqueAuth,
    /// The creator of the verifier. `None` stands for a verifier of AUTH_NONE.
    pub seal: Option<Arc<dyn Seal>>,
    /// Encoded arguments.
    pub arguments: Bytes,
    /// Maximum length of the encoded results in bytes. A call with longer results fails.
    pub max_results: u64,
}

impl fmt::Debug for ControlCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlCall")
            .field("program", &self.program)
            .field("version", &self.version)
            .field("credential", &self.credential)
            .field("seal", &self.seal)
            .field("arguments_len", &self.arguments.len())
            .field("max_results", &self.max_results)
            .finish()
    }
}

/// The reply to a [`ControlCall`]. The debug output does not contain the results.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlReply {
    /// Verifier of the reply.
    pub verifier: OpaqueAuth,
    /// Acceptance status of the reply: an error if the control call failed.
    pub outcome: Result<(), RpcError>,
    /// Encoded results. Empty if `outcome` is an error.
    pub results: Bytes,
}

impl fmt::Debug for ControlReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlReply")
            .field("verifier", &self.verifier)
            .field("outcome", &self.outcome)
            .field("results_len", &self.results.len())
            .finish()
    }
}

/// Makes control calls over one connection.
pub(crate) trait ControlPort: Send + Sync {
    fn call(&self, call: ControlCall) -> SecurityFuture<'_, Result<ControlReply, SecurityError>>;

    /// Sends a call, and does not wait for its reply.
    fn post(&self, call: ControlCall) -> SecurityFuture<'_, Result<(), SecurityError>>;
}

/// The connection of a call that has to be secured, or of a channel that is being closed. A [`Security`] makes calls of
/// its own over it.
#[derive(Clone, Copy)]
pub struct SecurityLink<'a> {
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    deadline: Option<Instant>,
    #[cfg(feature = "tls")]
    tls: Option<&'a super::TlsSession>,
    port: &'a dyn ControlPort,
}

impl<'a> SecurityLink<'a> {
    pub(crate) fn new(
        peer_addr: SocketAddr,
        local_addr: SocketAddr,
        deadline: Option<Instant>,
        port: &'a dyn ControlPort,
    ) -> Self {
        Self {
            peer_addr,
            local_addr,
            deadline,
            #[cfg(feature = "tls")]
            tls: None,
            port,
        }
    }

    /// Sets the TLS session of the connection.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(self, tls: Option<&'a super::TlsSession>) -> Self {
        Self { tls, ..self }
    }

    /// Returns the TLS session of the connection, with the server's certificate. `None` without TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&'a super::TlsSession> {
        self.tls
    }

    /// Returns the server's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// Returns the local address of the connection.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the deadline of the call that has to be secured, or of the close. `None` if there is no deadline.
    /// Control calls have the same deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Makes a control call, and waits for its reply.
    ///
    /// # Errors
    /// Returns an error if there is no valid reply. If the reason is the connection or the deadline, the call that has
    /// to be secured fails with that reason, and is retried like any other call that was not sent.
    pub async fn call(&self, call: ControlCall) -> Result<ControlReply, SecurityError> {
        self.port.call(call).await
    }

    /// Sends a control call, and does not wait for its reply.
    ///
    /// # Errors
    /// Returns an error if the call was not sent.
    pub async fn post(&self, call: ControlCall) -> Result<(), SecurityError> {
        self.port.post(call).await
    }
}

impl fmt::Debug for SecurityLink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurityLink")
            .field("peer_addr", &self.peer_addr)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

//! The origin of an inbound call, and the errors of its handler.

use std::{fmt, net::SocketAddr, sync::Arc};

use super::{
    config::ChannelConfig,
    info::ChannelInfo,
    recorded::{RecordedCall, RequestKey},
    reservations::ResultReservations,
};
use crate::{
    config::ConnectionConfig,
    driver::DriverPort,
    engine::{CloseReason, ConnectionCounters, ReplyToken},
    memory::BufferPool,
    rpc::{AuthFailure, Credential},
    security::Principal,
    transport::Transport,
    xdr::DecodeLimits,
};

/// The state that all inbound calls of one connection share.
pub(crate) struct ServedConnection {
    pub(crate) info: ChannelInfo,
    pub(crate) port: Arc<DriverPort>,
    /// The settings of the connection, and of channels back to the caller.
    pub(crate) back: Arc<ChannelConfig>,
    reservations: ResultReservations,
}

impl ServedConnection {
    pub(crate) fn new(info: ChannelInfo, port: Arc<DriverPort>, back: Arc<ChannelConfig>) -> Self {
        Self { info, port, back, reservations: ResultReservations::default() }
    }

    /// Returns the memory that is held for results.
    pub(super) fn reservations(&self) -> &ResultReservations {
        &self.reservations
    }

    /// Returns the pool for messages and for the memory of chunks.
    pub(super) fn pool(&self) -> &BufferPool {
        &self.back.connection.engine.pool
    }

    /// Returns the limits on decoding a call.
    pub(super) fn limits(&self) -> DecodeLimits {
        self.back.connection.decode_limits
    }
}

/// The origin of an inbound call: its connection and its caller.
///
/// ```no_run
/// use rpcrdma::{Context, HandlerError, rpc::Credential};
///
/// fn uid(cx: &Context) -> Result<u32, HandlerError> {
///     match cx.credential() {
///         Credential::Sys(sys) => Ok(sys.uid),
///         _ => Err(HandlerError::system(format!("{} sent no AUTH_SYS credential", cx.peer_addr()))),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Context {
    pub(crate) connection: Arc<ServedConnection>,
    token: ReplyToken,
    xid: u32,
    pub(super) credential: Credential,
    principal: Option<Arc<Principal>>,
    /// The record of the reply, if a duplicate request cache covers the call.
    pub(super) recorded: Option<Arc<RecordedCall>>,
    /// Values that layers have added.
    #[cfg(feature = "tower")]
    pub(super) extensions: http::Extensions,
}

impl Context {
    /// Creates the context of an inbound call.
    #[inline(always)]
    pub(super) fn new(
        token: ReplyToken,
        xid: u32,
        credential: Credential,
        principal: Option<Arc<Principal>>,
        connection: Arc<ServedConnection>,
    ) -> Self {
        Self {
            connection,
            token,
            xid,
            credential,
            principal,
            recorded: None,
            #[cfg(feature = "tower")]
            extensions: http::Extensions::new(),
        }
    }

    /// Creates a context without a connection, for tests that call a handler directly. The caller is anonymous, all
    /// addresses are unspecified, and there is no limit on memory. The `with_` methods change the caller.
    ///
    /// ```
    /// # extern crate rpcrdma;
    /// use rpcrdma::{Context, rpc::Credential, server::HandlerError};
    ///
    /// fn is_root(cx: &Context) -> Result<bool, HandlerError> {
    ///     match cx.credential() {
    ///         Credential::Sys(sys) => Ok(sys.uid == 0),
    ///         _ => Err(HandlerError::GarbageArguments),
    ///     }
    /// }
    ///
    /// let cx = Context::detached().with_credential(Credential::sys("client", 0, 0, []));
    /// assert!(is_root(&cx).unwrap());
    /// assert!(is_root(&Context::detached()).is_err());
    /// ```
    #[must_use]
    pub fn detached() -> Self {
        let info = ChannelInfo::unconnected(Transport::Rdma);
        let back = Arc::new(ChannelConfig::new(ConnectionConfig::new(), 1));
        let connection = ServedConnection::new(info, Arc::new(DriverPort::new(1)), back);
        Self::new(ReplyToken(0), 0, Credential::None, None, Arc::new(connection))
    }

    /// Sets the caller's credential.
    #[must_use]
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Sets the identity of the caller.
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = Some(Arc::new(principal));
        self
    }

    /// Adds a value that a layer would have added.
    #[cfg(feature = "tower")]
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }

    /// Returns the caller's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.info.peer_addr
    }

    /// Returns the local address of the connection.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.info.local_addr
    }

    /// Returns the kind of transport that carried the call.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.connection.info.transport
    }

    /// Returns the XID of the call.
    #[must_use]
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the caller's credential as the authenticator accepted it.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns the identity of the caller if a security flavor has authenticated it. A handler can insist on an
    /// identity and on a [level of protection](Principal::level), and reject other calls with AUTH_TOOWEAK.
    #[must_use]
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_deref()
    }

    /// Returns the TLS session of the connection, with the certificate of the peer. `None` without TLS. A handler can
    /// insist on a session or an identity, and reject other calls with AUTH_TOOWEAK.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&crate::security::TlsSession> {
        self.connection.info.tls.as_deref()
    }

    /// Returns the key of the call in the [duplicate request cache](crate::server::DuplicateRequests). `None` if no
    /// cache covers the procedure.
    ///
    /// A handler that stores its effect and a [`RecordedReply`](crate::server::RecordedReply) under this key in one
    /// transaction is executed exactly once, even if the server is killed; see
    /// [`ReplyStore`](crate::server::ReplyStore).
    #[must_use]
    pub fn request_key(&self) -> Option<&RequestKey> {
        self.recorded.as_deref().map(|recorded| &recorded.key)
    }

    /// Tells the duplicate request cache, if it covers the call, that the call fails before it has an effect. Call it
    /// before the handler returns. The cache then keeps no reply, so that clients that only cause errors use no room in
    /// it. A copy of the call is executed again, which is harmless.
    pub fn had_no_effect(&self) {
        if let Some(recorded) = &self.recorded {
            recorded.had_no_effect();
        }
    }

    /// Returns the values that the layers around the handler have added, by their types: see
    /// [`DispatchRequest::extensions_mut`](crate::server::DispatchRequest::extensions_mut).
    ///
    /// ```no_run
    /// use rpcrdma::{Context, HandlerError, rpc::AuthStat};
    ///
    /// #[derive(Clone)]
    /// struct Tenant(String);
    ///
    /// fn tenant(cx: &Context) -> Result<&Tenant, HandlerError> {
    ///     cx.extensions().get().ok_or(HandlerError::Rejected(AuthStat::AuthTooweak.into()))
    /// }
    /// ```
    #[cfg(feature = "tower")]
    #[must_use]
    pub fn extensions(&self) -> &http::Extensions {
        &self.extensions
    }

    /// Returns the pool to allocate eligible results from: fill the buffer of `pool().alloc(len)`, and freeze it. The
    /// memory returns to the pool when the result has been sent.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        self.connection.pool()
    }

    /// Waits until the server has `bytes` of memory for the results of this call, within
    /// [`max_memory`](crate::server::ServerBuilder::max_memory), and reserves them until the reply has been sent. Call
    /// it once, before the results are read into memory; if they turn out to be shorter, call
    /// [`shrink_results`](Self::shrink_results). Without such a limit, as in the handlers of a client, it returns at
    /// once.
    ///
    /// Clients that do not read their replies therefore keep no more memory than the limit. Hosts and connections share
    /// the memory: hosts and connections that hold much memory wait while others get some. If the connection closes
    /// during the wait, the error is [`HandlerError::Unavailable`].
    ///
    /// # Errors
    /// Fails if `bytes` exceed 7/16 of the limit, or if the connection is closed.
    pub async fn reserve_results(&self, bytes: u64) -> Result<(), HandlerError> {
        let Some(account) = &self.connection.back.connection.engine.budget else { return Ok(()) };
        let turn = account.take_results(bytes).map_err(|most| {
            HandlerError::system(format!(
                "results of {bytes} bytes exceed the {most} that the server may hold: raise ServerBuilder::max_memory"
            ))
        })?;
        let charge = tokio::select! {
            biased;
            charge = turn => charge,
            _ = self.connection.port.closed() => return Err(HandlerError::Unavailable),
        };
        if self.connection.reservations().hold(self.token, charge) { Ok(()) } else { Err(HandlerError::Unavailable) }
    }

    /// Reduces the memory that the call has [reserved](Self::reserve_results) for its results to `bytes`. Has no effect
    /// if the call holds less.
    pub fn shrink_results(&self, bytes: u64) {
        self.connection.reservations().shrink(self.token, bytes);
    }

    /// Waits until the connection of the call is closed, and returns the reason. A long-running handler can use it to
    /// stop early, because its reply can no longer be sent over that connection. By default, handlers run to their end.
    pub async fn closed(&self) -> CloseReason {
        self.connection.port.closed().await
    }

    /// Returns the counters of the connection.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        self.connection.port.counters()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("peer_addr", &self.peer_addr())
            .field("xid", &self.xid)
            .field("credential", &self.credential)
            .field("principal", &self.principal)
            .finish()
    }
}

/// The error of a handler, which determines the status of the reply (RFC 5531 §9). The operator `?` converts any other
/// error to [`System`](Self::System).
#[derive(Debug)]
#[non_exhaustive]
pub enum HandlerError {
    /// SYSTEM_ERR: the handler failed. The reason is traced locally and not sent to the caller.
    System(Box<dyn std::error::Error + Send + Sync>),
    /// GARBAGE_ARGS: the arguments are invalid.
    GarbageArguments,
    /// PROC_UNAVAIL: the procedure is not implemented.
    ProcedureUnavailable,
    /// AUTH_ERROR: the caller lacks permission.
    Rejected(AuthFailure),
    /// SYSTEM_ERR with the extension that reports that the call was not executed, for example because a resource is
    /// used up. Clients of this crate get [`RpcError::Unavailable`](crate::rpc::RpcError::Unavailable), and know that a
    /// retry is safe.
    Unavailable,
}

impl HandlerError {
    /// Creates a [`System`](Self::System) error with a reason for the local traces.
    pub fn system(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::System(reason.into())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::System(Box::new(error))
    }
}

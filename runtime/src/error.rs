//! The errors of calls and connections, for code that handles them.
//!
//! A call fails with [`CallError`], a connection attempt with [`ConnectError`], and a server that cannot listen with
//! [`BindError`]. The other types are the types of their fields, and the errors of individual functions, for example of
//! parsing or registering something. An error displays its own message only, and [`source`](std::error::Error::source)
//! returns its cause.
//!
//! ```
//! use rpcrdma::error::{CallError, CallFailure, CloseReason};
//!
//! /// Returns `true` if the peer sent an unusable reply or violated RPC-over-RDMA.
//! fn is_violation(error: &CallError) -> bool {
//!     matches!(
//!         error,
//!         CallError::Transport {
//!             failure: CallFailure::BadReply(_) | CallFailure::Closed { reason: CloseReason::PeerViolation(_), .. },
//!             ..
//!         }
//!     )
//! }
//! ```

pub use crate::{
    client::{CallError, ConnectError},
    config::ConfigError,
    provider::{DisconnectReason, IoError, RegisterError, SetupError},
    rpc::RpcError,
    security::SecurityError,
    server::BindError,
    transport::{SchemeError, UrlError},
    xdr::{DecodeError, EncodeError},
};

pub use rpcrdma_proto::engine::{
    CallFailure, CallLimit, CloseReason, HostAuthError, MalformedCall, MessageFault, NegotiationFailure,
    ProtocolViolation, StreamError, TransportError, UnknownVersion,
};

//! Transports: the URLs that select them, and the table of their schemes.
//!
//! A URL scheme stands for an RDMA provider, or for byte streams. `iwarp`, `tcp` and, with the feature `verbs` or
//! `verbs-dlopen`, `rdma` are built in. [`Scheme::register`] adds an RDMA provider from outside this crate, and
//! [`Scheme::register_stream`] adds a provider of byte streams.

mod built_in;
mod erased;
mod options;
mod scheme;
mod stream;
mod url;

use std::fmt;

pub(crate) use self::{
    erased::{AnyConnected, AnyConnector, AnyIncoming, AnyListener},
    scheme::SchemeKind,
    stream::{AnyIncomingStream, AnyStreamListener, BoxStream},
};
pub use self::{
    options::{UrlOption, UrlOptions},
    scheme::{Scheme, SchemeError, SchemeProvider},
    stream::{StreamListener, StreamProvider},
    url::{TlsPolicy, UnknownTlsPolicy, Url, UrlError},
};

/// The kind of transport that carries the RPC messages of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// RPC-over-RDMA, in any version and on any provider.
    Rdma,
    /// TCP, or another byte stream, with record marking (RFC 5531 §11). It has no direct data placement, no credits and
    /// no private data.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "RPC-over-RDMA",
            Self::Tcp => "TCP with record marking",
        })
    }
}

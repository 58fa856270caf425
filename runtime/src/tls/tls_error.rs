//! The errors of starting TLS on a connection.

use std::{sync::Arc, time::Duration};

use crate::provider::{IoError, SetupError};

/// The reason why a connection did not get a TLS session (RFC 9289).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The server does not offer TLS, or something between client and server has removed the offer (RFC 9289 §6.1.1).
    #[error(
        "TLS is required, but the server does not offer it, set it up there: its reply to the AUTH_TLS probe is {reply}"
    )]
    NotOffered {
        /// A description of the reply to the probe.
        reply: String,
    },
    /// The client began with something other than an AUTH_TLS probe, although TLS is required. The server denied a call
    /// with AUTH_TOOWEAK, or with AUTH_BADCRED if the call has a credential of flavor AUTH_TLS.
    #[error("TLS is required, but the client made a call without it")]
    NotRequested,
    /// The peer sent data between the AUTH_TLS probe and the handshake (RFC 9289 §5.1.1).
    #[error("the peer sent unprotected data between the AUTH_TLS probe and the TLS handshake")]
    SpuriousData,
    /// The handshake failed, for example because a certificate has expired, or has an unknown issuer or a wrong name.
    #[error("the TLS handshake failed: check the certificates and authorities of both sides")]
    Handshake(#[source] IoError),
    /// The peer did not negotiate the application protocol (RFC 9289 §5).
    #[error("the peer did not negotiate the application protocol `sunrpc` (ALPN)")]
    NoAlpn,
    /// The session does not have TLS version 1.3 (RFC 9289 §5).
    #[error("the peer negotiated a version of TLS before 1.3")]
    OldVersion,
    /// The peer's certificate cannot be parsed, or has a DNS name with a wildcard (RFC 9289 §5.2.1).
    #[error("the certificate of the peer {problem}")]
    Certificate {
        /// The problem, worded to follow "the certificate of the peer".
        problem: &'static str,
    },
    /// A step of starting TLS did not finish within this time limit: the arrival of the client's first byte, the
    /// AUTH_TLS probe together with the TLS handshake, or the handshake of a client's first attempt.
    #[error("the TLS handshake did not finish within {0:?}")]
    TimedOut(Duration),
}

impl TlsError {
    /// Returns the TLS error with which the set-up of a connection failed, or `None` if it failed for another reason.
    #[must_use]
    pub fn find(error: &SetupError) -> Option<&Self> {
        match error {
            SetupError::Layer(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl From<TlsError> for SetupError {
    fn from(error: TlsError) -> Self {
        Self::Layer(Arc::new(error))
    }
}

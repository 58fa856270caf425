//! The interface of GSS-API mechanisms.

use std::{fmt, sync::Arc, time::Duration};

/// Major status codes of the GSS-API with the values of RFC 2203 appendix A.
pub mod major {
    /// GSS_S_COMPLETE: success.
    pub const COMPLETE: u32 = 0;
    /// GSS_S_CONTINUE_NEEDED: the mechanism needs another token.
    pub const CONTINUE_NEEDED: u32 = 1;
    /// GSS_S_BAD_MECH: the mechanism is not supported.
    pub const BAD_MECH: u32 = 0x0001_0000;
    /// GSS_S_BAD_BINDINGS: the channel bindings differ.
    pub const BAD_BINDINGS: u32 = 0x0004_0000;
    /// GSS_S_BAD_MIC: a checksum is wrong.
    pub const BAD_MIC: u32 = 0x0006_0000;
    /// GSS_S_NO_CRED: there are no credentials.
    pub const NO_CRED: u32 = 0x0007_0000;
    /// GSS_S_NO_CONTEXT: the handle belongs to no context in creation.
    pub const NO_CONTEXT: u32 = 0x0008_0000;
    /// GSS_S_DEFECTIVE_TOKEN: a token is malformed.
    pub const DEFECTIVE_TOKEN: u32 = 0x0009_0000;
    /// GSS_S_CREDENTIALS_EXPIRED: the credentials have expired.
    pub const CREDENTIALS_EXPIRED: u32 = 0x000b_0000;
    /// GSS_S_CONTEXT_EXPIRED: the context has expired.
    pub const CONTEXT_EXPIRED: u32 = 0x000c_0000;
    /// GSS_S_FAILURE: any other failure. The minor status has the reason.
    pub const FAILURE: u32 = 0x000d_0000;

    /// Returns `true` if a major status is an error: its calling error or its routine error is not zero.
    #[must_use]
    pub fn is_error(status: u32) -> bool {
        status & 0xffff_0000 != 0
    }

    /// The bits of a major status that hold the routine error.
    pub(crate) const ROUTINE_ERROR: u32 = 0x00ff_0000;
}

/// An error of a GSS-API mechanism, or of the creation of a context.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (GSS-API major status {major:#010x}, minor status {minor})")]
pub struct GssError {
    /// Major status. See [`major`].
    pub major: u32,
    /// Minor status, which is specific to the mechanism.
    pub minor: u32,
    /// A description of the error, usually the mechanism's.
    pub message: String,
}

impl GssError {
    /// Creates an error. The minor status is 0.
    #[must_use]
    pub fn new(major: u32, message: impl Into<String>) -> Self {
        Self { major, minor: 0, message: message.into() }
    }

    /// Returns `true` if the credentials or the context have expired.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        matches!(self.major & major::ROUTINE_ERROR, major::CREDENTIALS_EXPIRED | major::CONTEXT_EXPIRED)
    }
}

/// The client side of a mechanism: credentials of a user, and the name of the server.
pub trait ClientMechanism: fmt::Debug + Send + Sync + 'static {
    /// Starts the creation of a context. Replay detection and sequencing must be off (RFC 2203 §5.2.2), and mutual
    /// authentication on.
    ///
    /// May block: it runs on a thread for blocking work.
    ///
    /// # Errors
    /// Returns an error if the creation cannot start, for example because there are no credentials.
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError>;

    /// Returns advice for the user if the server refuses a context with this major and minor status. The default is
    /// `None`.
    fn advice(&self, _major: u32, _minor: u32) -> Option<&'static str> {
        None
    }
}

/// The server side of a mechanism: the credentials of the server.
pub trait ServerMechanism: fmt::Debug + Send + Sync + 'static {
    /// Starts the creation of a context. May block: it runs on a thread for blocking work.
    ///
    /// # Errors
    /// Returns an error if the creation cannot start, for example because there are no credentials.
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError>;
}

/// A context in creation: the state of `GSS_Init_sec_context` or `GSS_Accept_sec_context` between two calls.
pub trait ContextSetup: Send + 'static {
    /// Processes the peer's token. The first token of a client is `None`. May block: it runs on a thread for blocking
    /// work.
    ///
    /// # Errors
    /// Returns an error if the context cannot be created. No further step is possible then.
    fn step(&mut self, token: Option<&[u8]>) -> Result<SetupStep, GssError>;
}

/// The result of one step of the creation of a context. The debug output does not contain the token.
#[derive(Default)]
pub struct SetupStep {
    /// The token for the peer, if there is one.
    pub token: Option<Vec<u8>>,
    /// The context, if it is complete.
    pub context: Option<Arc<dyn GssContext>>,
}

impl fmt::Debug for SetupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupStep")
            .field("token_len", &self.token.as_ref().map(Vec::len))
            .field("context", &self.context)
            .finish()
    }
}

/// An established security context.
///
/// The methods may take as long as the computation needs, and must not wait for anything but each other. They are
/// called concurrently. In a tokio runtime, bodies of more than 4 KiB are processed on a thread for blocking work, one
/// at a time. Shorter bodies and headers are processed in the tasks of calls and connections, and on a second such
/// thread while a large body is in progress. So no task waits for a large body, even if the context has a lock.
pub trait GssContext: fmt::Debug + Send + Sync + 'static {
    /// Returns the checksum of a message (`GSS_GetMIC`).
    ///
    /// # Errors
    /// Returns an error if the context has expired.
    fn get_mic(&self, message: &[u8]) -> Result<Vec<u8>, GssError>;

    /// Checks the checksum of a message (`GSS_VerifyMIC`).
    ///
    /// # Errors
    /// Returns an error if the checksum is wrong or the context has expired.
    fn verify_mic(&self, message: &[u8], mic: &[u8]) -> Result<(), GssError>;

    /// Encrypts a message (`GSS_Wrap` with confidentiality).
    ///
    /// # Errors
    /// Returns an error if the context has expired or has no confidentiality.
    fn wrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError>;

    /// Decrypts a message (`GSS_Unwrap`).
    ///
    /// # Errors
    /// Returns an error if the message was modified or is not encrypted, or if the context has expired.
    fn unwrap(&self, message: &[u8]) -> Result<Vec<u8>, GssError>;

    /// Returns the maximum length of a checksum in bytes. A verifier has at most 400 bytes (RFC 5531 §8.2).
    fn max_mic(&self) -> usize;

    /// Returns the maximum length in bytes of an encrypted message of `len` bytes.
    fn max_wrapped(&self, len: u64) -> u64;

    /// Returns the remaining lifetime of the context: zero if it has expired, `None` if it is unlimited.
    fn lifetime(&self) -> Option<Duration>;

    /// Returns the name of the peer, such as `alice@EXAMPLE.COM` for Kerberos.
    fn peer(&self) -> &str;
}

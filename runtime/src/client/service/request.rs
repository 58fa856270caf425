//! The request of a call over a `tower` service.

use std::{fmt, time::Instant};

use super::{
    super::{
        call::{CallOptions, CallParameters, CallTarget},
        error::{CallError, Retries},
        retry::RetryScope,
    },
    progress::Progress,
    response::CallResponse,
};
use crate::{
    engine::CallFailure,
    service::{Procedure, ReplyBounds},
    session::EncodedValue,
    xdr::{DecodeError, Decoder, DetachedMessage, XdrEncode as _},
};

type Detach = fn(&mut Decoder<'_>) -> Result<DetachedMessage, DecodeError>;

fn detach(decoder: &mut Decoder<'_>) -> Result<DetachedMessage, DecodeError> {
    Ok(decoder.detach())
}

/// The request type of `tower` services that carry calls: a procedure, its encoded arguments, and the options of the
/// caller.
///
/// Eligible arguments are kept by reference, so a request is small, and [`try_clone`](Self::try_clone) copies no data.
///
/// A layer that changes the options of all calls:
///
/// ```
/// use std::task::{Context, Poll};
///
/// use rpcrdma::{client::CallRequest, rpc::OpaqueAuth};
/// use tower::Service;
///
/// #[derive(Clone)]
/// struct WithCredential<S> {
///     inner: S,
///     credential: OpaqueAuth,
/// }
///
/// impl<S: Service<CallRequest>> Service<CallRequest> for WithCredential<S> {
///     type Response = S::Response;
///     type Error = S::Error;
///     type Future = S::Future;
///
///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
///         self.inner.poll_ready(cx)
///     }
///
///     fn call(&mut self, request: CallRequest) -> S::Future {
///         self.inner.call(request.map_options(|options| options.credential(self.credential.clone())))
///     }
/// }
/// ```
#[must_use]
pub struct CallRequest {
    pub(super) target: CallTarget,
    pub(super) arguments: EncodedValue,
    pub(super) bounds: ReplyBounds,
    pub(super) options: CallOptions,
    pub(super) progress: Progress,
}

impl CallRequest {
    /// Creates a call of `P`.
    ///
    /// # Errors
    /// Returns [`CallError::Encode`] if the arguments cannot be encoded, for example because they exceed a bound of
    /// their XDR declaration.
    pub fn new<P: Procedure>(args: &P::Args, mut options: CallOptions) -> Result<Self, CallError> {
        let arguments =
            EncodedValue::new(args, 0).map_err(|source| CallError::Encode { procedure: P::NAME, source })?;
        let bounds = options.bounds(|| P::reply_bounds(args));
        Ok(Self { target: CallTarget::of::<P>(), arguments, bounds, options, progress: Progress::default() })
    }

    /// Returns the program number.
    #[must_use]
    pub fn program(&self) -> u32 {
        self.target.program
    }

    /// Returns the program version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.target.version
    }

    /// Returns the procedure number.
    #[must_use]
    pub fn procedure(&self) -> u32 {
        self.target.number
    }

    /// Returns the name of the procedure: `VERSION.PROCEDURE`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.target.name
    }

    /// Returns `true` if the server may execute the call twice: the procedure is declared `@idempotent`, or the caller
    /// has set [`CallOptions::repeatable`].
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.options.is_idempotent(&self.target)
    }

    /// Returns the deadline of the call, if it has one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.options.deadline
    }

    /// Returns the length of the encoded arguments in bytes, including eligible items.
    #[must_use]
    pub fn arguments_len(&self) -> u64 {
        self.arguments.encoded_len() as u64
    }

    /// Returns the maximum sizes of the result: of its inline part, and of each eligible item.
    #[must_use]
    pub fn reply_bounds(&self) -> &ReplyBounds {
        &self.bounds
    }

    /// Replaces the options of the call by the result of `change`. Reply bounds in these options apply to this request.
    pub fn map_options(mut self, change: impl FnOnce(CallOptions) -> CallOptions) -> Self {
        self.options = change(self.options);
        self.bounds = self.options.bounds(|| self.bounds);
        self
    }

    /// Returns the number of the endpoint that got the last attempt, or 0 if there was none.
    #[cfg(feature = "discover")]
    pub(in crate::client) fn last_endpoint(&self) -> u64 {
        self.progress.last_endpoint()
    }

    /// Records the number of the endpoint that gets an attempt.
    #[cfg(feature = "discover")]
    pub(in crate::client) fn set_last_endpoint(&self, number: u64) {
        self.progress.set_last_endpoint(number);
    }

    /// Begins an attempt. Fails if the call was abandoned.
    #[inline]
    pub(super) fn begin(&self) -> Result<(), CallError> {
        if self.progress.begin() {
            return Ok(());
        }
        let failure = CallFailure::Cancelled { sent: false };
        Err(CallError::Transport { procedure: self.target.name, failure, retries: Retries::default() })
    }

    /// Returns the parameters of an attempt whose result is not decoded.
    #[inline]
    pub(super) fn parameters(&mut self, scope: RetryScope) -> CallParameters<'_, EncodedValue, Detach> {
        let Self { target, arguments: args, bounds, options, .. } = self;
        CallParameters { target, bounds, args, options, read: const { &(detach as Detach) }, scope }
    }

    /// Ends an attempt, and converts its result. After an error that is safe to retry, records that the server has not
    /// executed the attempt.
    #[inline]
    pub(super) fn end(&self, result: Result<DetachedMessage, CallError>) -> Result<CallResponse, CallError> {
        if result.as_ref().is_err_and(CallError::is_retry_safe) {
            self.progress.unexecuted();
        }
        result.map(|message| CallResponse::new(self.target.name, message))
    }

    /// Returns a copy for another attempt of the same call. Returns `None` if the caller provides a
    /// [landing buffer](CallOptions::landing), which only one attempt can use.
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self {
            target: self.target,
            arguments: self.arguments.clone(),
            bounds: self.bounds.clone(),
            options: self.options.try_clone()?,
            progress: self.progress.clone(),
        })
    }

    /// Returns `true` if another attempt cannot do harm: the call is idempotent, or the server has certainly not
    /// executed any earlier attempt. A retry policy should check this in addition to the error.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        self.is_idempotent() || !self.progress.may_be_executed()
    }
}

impl fmt::Debug for CallRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRequest")
            .field("name", &self.target.name)
            .field("arguments_len", &self.arguments_len())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

//! The request of a call over a `tower` service.

use std::{fmt, time::Instant};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    super::{
        call::{CallOptions, CallTarget},
        error::CallError,
    },
    progress::Progress,
};
use crate::{
    engine::DEFAULT_MIN_REDUCE,
    service::{Procedure, ReplyBounds},
    xdr::{EncodeError, ReducedItem, ReducingSink, Sink, XdrEncode, XdrType, padded_len},
};

/// A call to make: a procedure, its encoded arguments, and the options of the caller. The request of `tower` services that carry
/// calls.
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
    pub(super) arguments: EncodedArguments,
    pub(super) bounds: ReplyBounds,
    pub(super) options: CallOptions,
    pub(super) progress: Progress,
}

impl CallRequest {
    /// Creates a call of `P`.
    ///
    /// # Errors
    /// Returns [`CallError::Encode`] if the arguments exceed a bound of their XDR declaration.
    pub fn new<P: Procedure>(args: &P::Args, mut options: CallOptions) -> Result<Self, CallError> {
        let arguments =
            EncodedArguments::new(args).map_err(|source| CallError::Encode { procedure: P::NAME, source })?;
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

    /// Returns the name of the procedure: `PROGRAM.PROCEDURE`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.target.name
    }

    /// Returns `true` if the server may execute the call twice: the procedure is declared `@idempotent`, or the caller has set
    /// [`CallOptions::repeatable`].
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.options.is_idempotent(&self.target)
    }

    /// Returns the deadline of the caller.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.options.deadline
    }

    /// Returns the length of the encoded arguments in bytes, including eligible items.
    #[must_use]
    pub fn arguments_len(&self) -> u64 {
        self.arguments.len
    }

    /// Returns the maximum size of the result.
    #[must_use]
    pub fn reply_bounds(&self) -> &ReplyBounds {
        &self.bounds
    }

    /// Changes the options of the call.
    pub fn map_options(mut self, change: impl FnOnce(CallOptions) -> CallOptions) -> Self {
        self.options = change(self.options);
        self
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

    /// Returns `true` if another attempt cannot do harm: the call is idempotent, or the server has certainly not executed any
    /// earlier attempt. A retry policy should ask this in addition to looking at the error.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        self.is_idempotent() || !self.progress.may_be_executed()
    }
}

impl fmt::Debug for CallRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRequest")
            .field("name", &self.target.name)
            .field("arguments_len", &self.arguments.len)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Encoded arguments. They encode to the same stream, with the same eligible items.
#[derive(Debug, Clone)]
pub(super) struct EncodedArguments {
    /// The payload stream without the items in `reduced`.
    stream: Bytes,
    /// The eligible items, in order.
    reduced: SmallVec<[ReducedItem; 1]>,
    /// Length of the whole encoding, in bytes.
    len: u64,
}

impl EncodedArguments {
    fn new<A: XdrEncode>(args: &A) -> Result<Self, EncodeError> {
        let mut stream = Vec::new();
        let mut sink = ReducingSink::for_engine(&mut stream, DEFAULT_MIN_REDUCE);
        args.encode(&mut sink)?;
        let (reduced, _) = sink.finish();
        let items = reduced.iter().map(|item| padded_len(item.data.len()) as u64);
        let len = items.fold(stream.len() as u64, u64::saturating_add);
        Ok(Self { stream: stream.into(), reduced, len })
    }
}

impl XdrType for EncodedArguments {
    const MIN_LEN: usize = 0;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = None;
    const MAX_DDP_ITEMS: Option<u32> = None;
}

impl XdrEncode for EncodedArguments {
    fn encoded_len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        let (mut rest, mut position) = (&*self.stream, 0);
        for item in &self.reduced {
            let before = usize::try_from(item.position - position).unwrap_or(usize::MAX);
            let (inline, after) = rest.split_at_checked(before).unwrap_or((rest, &[]));
            sink.put(inline);
            if !sink.reduce(&item.data) {
                sink.put(&item.data);
                sink.put_padding(item.data.len());
            }
            position = item.position + padded_len(item.data.len()) as u64;
            rest = after;
        }
        sink.put(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{FlatSink, put_ddp_opaque};

    struct Two(Bytes, Bytes);

    impl XdrType for Two {
        const MIN_LEN: usize = 12;
        const MAX_LEN: Option<u64> = None;
        const MAX_INLINE: Option<u64> = Some(12);
        const MAX_DDP_ITEMS: Option<u32> = Some(2);
    }

    impl XdrEncode for Two {
        fn encoded_len(&self) -> usize {
            12 + padded_len(self.0.len()) + padded_len(self.1.len())
        }

        fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
            put_ddp_opaque(sink, &self.0, u32::MAX)?;
            sink.put_u32(7);
            put_ddp_opaque(sink, &self.1, u32::MAX)
        }
    }

    /// Encoded arguments are the original ones for every sink: items keep their positions and their memory.
    #[test]
    fn encoded_arguments_encode_again() {
        for (first, second) in [(5, 0), (0, 3), (2000, 4001), (0, 0)] {
            let args = Two(vec![1; first].into(), vec![2; second].into());
            let encoded = EncodedArguments::new(&args).unwrap();
            assert_eq!(encoded.encoded_len(), args.encoded_len());
            let flat = |args: &dyn Fn(&mut FlatSink<'_, Vec<u8>>)| {
                let mut out = Vec::new();
                args(&mut FlatSink::new(&mut out));
                out
            };
            assert_eq!(flat(&|sink| encoded.encode(sink).unwrap()), flat(&|sink| args.encode(sink).unwrap()));
            let (mut once, mut again) = (Vec::new(), Vec::new());
            let mut sink = ReducingSink::for_call(&mut once, 1000);
            args.encode(&mut sink).unwrap();
            let (wanted, _) = sink.finish();
            let mut sink = ReducingSink::for_call(&mut again, 1000);
            encoded.encode(&mut sink).unwrap();
            let (reduced, _) = sink.finish();
            assert_eq!(once, again);
            let key = |item: &ReducedItem| (item.position, item.chunk, item.data.as_ptr(), item.data.len());
            assert_eq!(reduced.iter().map(key).collect::<Vec<_>>(), wanted.iter().map(key).collect::<Vec<_>>());
        }
    }
}

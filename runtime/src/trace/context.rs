//! The trace context of a call (W3C Trace Context), which joins the spans of client and server in one trace.
//!
//! RPC has no field for the context. The client sends the context in the body of the AUTH_NONE verifier that
//! accompanies AUTH_NONE and AUTH_SYS credentials. RFC 5531 §10.1 only recommends that this body be empty. A call with
//! a credential of another flavor has a verifier of that flavor, and no trace context.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tracing::Span;

use crate::rpc::{AuthFlavor, CallHeader, OpaqueAuth};

/// The first four bytes of a verifier body with a trace context: "rpct" in ASCII.
const MARK: [u8; 4] = *b"rpct";

/// Length in bytes of a verifier body with a trace context: the mark, a word with the version 0 and the flags, and both
/// IDs.
const BODY_LEN: usize = 32;

/// The position of a span in a trace: the contents of the header `traceparent` of W3C Trace Context, version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The ID of the trace. At least one byte is not zero.
    pub trace_id: [u8; 16],
    /// The ID of the span that sends the call, which is the parent of the receiver's span. At least one byte is not
    /// zero.
    pub span_id: [u8; 8],
    /// The trace flags. Bit 0 is set if the trace is sampled.
    pub flags: u8,
}

impl TraceContext {
    /// Returns the verifier of a call with this context.
    pub(crate) fn verifier(&self) -> OpaqueAuth {
        let mut body = Vec::with_capacity(BODY_LEN);
        body.extend(MARK);
        body.extend([0, 0, 0, self.flags]);
        body.extend(self.trace_id);
        body.extend(self.span_id);
        OpaqueAuth { body: Bytes::from(body), ..OpaqueAuth::none() }
    }

    /// Returns the context of an encoded call. Returns `None` if the call has no context, a context of another version,
    /// or a context with an ID of zeros.
    fn of(call: &[u8]) -> Option<Self> {
        let (at, _) = CallHeader::split_verifier(call)?;
        let (flavor, rest) = call.get(at..)?.split_first_chunk()?;
        let (len, body) = rest.split_first_chunk()?;
        if u32::from_be_bytes(*flavor) != AuthFlavor::AuthNone as u32 || u32::from_be_bytes(*len) as usize != BODY_LEN {
            return None;
        }
        let (mark, body) = body.split_first_chunk()?;
        let ([0, 0, 0, flags], body) = body.split_first_chunk()? else { return None };
        let (trace_id, body) = body.split_first_chunk()?;
        let span_id = body.first_chunk()?;
        // W3C Trace Context §3.2.2: IDs of zeros are invalid.
        let is_valid = *mark == MARK && *trace_id != [0; 16] && *span_id != [0; 8];
        is_valid.then_some(Self { trace_id: *trace_id, span_id: *span_id, flags: *flags })
    }
}

/// Writes the value of the header `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", self.flags)
    }
}

type ReadContext = dyn Fn(&Span) -> Option<TraceContext> + Send + Sync;
type JoinContext = dyn Fn(&Span, TraceContext) + Send + Sync;

/// A client's function that returns the trace context of a call's span.
#[derive(Clone)]
pub(crate) struct TraceSource(Arc<ReadContext>);

impl TraceSource {
    pub(crate) fn new(context: impl Fn(&Span) -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        Self(Arc::new(context))
    }

    pub(crate) fn context(&self, span: &Span) -> Option<TraceContext> {
        (self.0)(span)
    }
}

/// A server's function that adds the span of a call to the client's trace.
#[derive(Clone)]
pub(crate) struct TraceJoin(Arc<JoinContext>);

impl TraceJoin {
    pub(crate) fn new(join: impl Fn(&Span, TraceContext) + Send + Sync + 'static) -> Self {
        Self(Arc::new(join))
    }

    /// Adds `span` to the trace of the encoded call, if the call has a trace context.
    pub(crate) fn join(&self, span: &Span, call: &[u8]) {
        if let Some(context) = TraceContext::of(call) {
            (self.0)(span, context);
        }
    }
}

impl fmt::Debug for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSource")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::xdr::FlatSink;

    const CONTEXT: TraceContext = TraceContext { trace_id: [0xab; 16], span_id: [0, 1, 2, 3, 4, 5, 6, 7], flags: 1 };

    fn encoded(credential: OpaqueAuth, verifier: OpaqueAuth) -> Vec<u8> {
        let mut call = Vec::new();
        let header = CallHeader { credential, verifier, ..CallHeader::new(1, 2, 3, 4) };
        header.encode(&mut FlatSink::new(&mut call)).unwrap();
        call
    }

    #[test]
    fn contexts_travel_in_verifiers() {
        let verifier = CONTEXT.verifier();
        assert_eq!(verifier.body.len(), BODY_LEN);
        for len in [0, 24, 400] {
            let credential = OpaqueAuth { flavor: 1, body: vec![7; len].into() };
            let call = encoded(credential.clone(), verifier.clone());
            assert_eq!(TraceContext::of(&call), Some(CONTEXT));
            assert_eq!(TraceContext::of(&encoded(credential, OpaqueAuth::none())), None);
            for end in 0..call.len() {
                assert_eq!(TraceContext::of(&call[..end]), None, "{end}");
            }
        }
        assert_eq!(CONTEXT.to_string(), "00-abababababababababababababababab-0001020304050607-01");
    }

    #[test]
    fn other_verifiers_are_ignored() {
        let OpaqueAuth { body, .. } = CONTEXT.verifier();
        let of = |flavor, body: Vec<u8>| {
            TraceContext::of(&encoded(OpaqueAuth::none(), OpaqueAuth { flavor, body: body.into() }))
        };
        assert_eq!(of(0, body.to_vec()), Some(CONTEXT));
        assert_eq!(of(6, body.to_vec()), None);
        assert_eq!(of(0, [&body[..], &[0]].concat()), None);
        // The mark, the version, and IDs of zeros.
        for range in [0..1, 4..5, 6..7] {
            let mut other = body.to_vec();
            other[range].fill(0xee);
            assert_eq!(of(0, other), None);
        }
        for range in [8..24, 24..32] {
            let mut other = body.to_vec();
            other[range].fill(0);
            assert_eq!(of(0, other), None);
        }
    }
}

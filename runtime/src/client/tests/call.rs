#![allow(clippy::unwrap_used)]

use bytes::Bytes;

use crate::{
    client::{
        call::{self, CallOptions, CallTarget},
        error::CallError,
    },
    engine::{ChunkItems, FormatChoice, FormatReason, IncomingReply, MessageFormat, MessagePayload},
    rpc::{ReplyHeader, RpcError},
    service::{Procedure, ReplyBounds},
    xdr::{DecodeLimits, FlatSink, XdrDecode as _, XdrEncode as _},
};

struct Plain;

impl Procedure for Plain {
    const PROGRAM: u32 = 1;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "PLAIN";
    const IDEMPOTENT: bool = false;
    type Args = ();
    type Reply = ();
    fn reply_bounds((): &()) -> ReplyBounds {
        ReplyBounds::default()
    }
}

/// A call is repeated if the procedure or the caller allows it.
#[test]
fn idempotent_calls() {
    let plain = CallTarget::of::<Plain>();
    let idempotent = CallTarget { idempotent: true, ..CallTarget::of::<Plain>() };
    for (options, expected) in [(CallOptions::new(), [false, true]), (CallOptions::new().repeatable(), [true, true])] {
        assert_eq!([&plain, &idempotent].map(|target| options.is_idempotent(target)), expected);
    }
}

/// A call with a landing buffer of its own has no memory for a second attempt.
#[test]
fn landing_buffers_serve_one_attempt() {
    assert!(CallOptions::new().can_retry());
    assert!(CallOptions::new().landing_pooled().can_retry());
    let buffer = || vec![0; 8].into();
    assert!(!CallOptions::new().landing(buffer()).can_retry());
    assert!(!CallOptions::new().landing_pooled().landing(buffer()).landing_pooled().can_retry());
}

/// A limit cuts each part of the bounds, those of the procedure and those of the caller.
#[test]
fn reply_limits() {
    let bounds = ReplyBounds::new;
    let computed = || bounds(100, &[10, 1000]);
    for (mut options, expected) in [
        (CallOptions::new(), computed()),
        (CallOptions::new().reply_limit(50), bounds(50, &[10, 50])),
        (CallOptions::new().reply_limit(5000), computed()),
        (CallOptions::new().reply_bounds(bounds(1, &[7])), bounds(1, &[7])),
        (CallOptions::new().reply_bounds(bounds(1, &[7])).reply_limit(3), bounds(1, &[3])),
    ] {
        assert_eq!(options.bounds(computed), expected);
    }
}

fn reply(header: &ReplyHeader, results: &[u32]) -> IncomingReply {
    let mut message = Vec::new();
    header.encode(&mut FlatSink::new(&mut message)).unwrap();
    results.iter().for_each(|word| word.encode(&mut FlatSink::new(&mut message)).unwrap());
    IncomingReply {
        payload: MessagePayload::Long(Bytes::from(message)),
        writes: ChunkItems::new(),
        format: MessageFormat::default(),
        reason: FormatReason::default(),
        call: FormatChoice::default(),
    }
}

/// A reply has exactly one result.
#[test]
fn results_are_complete() {
    let decode = |reply: &IncomingReply| call::decode("P", reply, DecodeLimits::default(), u32::decode);
    let success = ReplyHeader::success(7);
    assert_eq!(decode(&reply(&success, &[5])).unwrap(), 5);
    for results in [&[][..], &[5, 6]] {
        let error = decode(&reply(&success, results)).unwrap_err();
        assert!(matches!(error, CallError::Decode { procedure: "P", .. }), "{error:?}");
    }
    let error = decode(&reply(&ReplyHeader::failure(7, RpcError::SystemError), &[])).unwrap_err();
    assert!(matches!(error, CallError::Rpc { procedure: "P", source: RpcError::SystemError }), "{error:?}");
}

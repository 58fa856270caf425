#![allow(clippy::unwrap_used)]

use std::{sync::Arc, task::Poll};

use bytes::Bytes;

use super::fakes::*;
use crate::{
    client::{
        call::{self, CallOptions, CallTarget},
        channel::Channel,
        error::CallError,
        reconnect::Reconnect,
    },
    engine::IncomingReply,
    rpc::{ReplyHeader, RpcError},
    service::{Procedure, ReplyBounds},
    xdr::{DecodeError, DecodeLimits, Decoder, EncodeError, Sink, XdrDecode, XdrEncode, XdrType},
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

/// A call may be executed twice if the procedure or the caller allows it.
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

/// A limit reduces each bound of the reply, whether the procedure or the caller has set the bound.
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

/// A reply without a result, or with more than one result, is rejected.
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

/// An eligible item that is encoded like the items of generated types that are not stored as `Bytes`. Its length is a
/// multiple of four.
struct Item(Bytes);

impl XdrType for Item {
    const MIN_LEN: usize = 4;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = Some(4);
    const MAX_DDP_ITEMS: Option<u32> = Some(1);
}

impl XdrEncode for Item {
    fn encoded_len(&self) -> usize {
        4 + self.0.len()
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put_u32(self.0.len() as u32);
        if sink.would_reduce(self.0.len()) {
            sink.reduce(&self.0);
        } else {
            sink.keep(self.0.len());
            sink.put(&self.0);
        }
        Ok(())
    }
}

impl XdrDecode for Item {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.take_u32().map(|_| Self(Bytes::new()))
    }
}

struct Put;

impl Procedure for Put {
    const PROGRAM: u32 = 1;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 2;
    const NAME: &'static str = "PUT";
    const IDEMPOTENT: bool = false;
    type Args = Item;
    type Reply = ();
    fn reply_bounds(_: &Item) -> ReplyBounds {
        ReplyBounds::default()
    }
}

/// The bytes of eligible items that are too short to be reduced are counted as copied.
#[test]
fn short_items_are_copied() {
    let link = link(0);
    let channel = Channel::over(None, Arc::clone(&link), config(), Reconnect::Never);
    for (len, copied) in [(64, 64), (4, 68), (1 << 16, 68)] {
        let item = Item(vec![0; len].into());
        let mut call = Box::pin(channel.call::<Put>(&item, CallOptions::new()));
        assert!(poll(&mut call).is_pending());
        assert_eq!(channel.counters().copied_eligible_bytes, copied);
    }
}

/// A call fails if it has a landing buffer for a result that does not exist.
#[test]
fn superfluous_landing_buffers() {
    let channel = Channel::over(None, link(0), config(), Reconnect::Never);
    let options = CallOptions::new().landing(vec![0; 8].into());
    let mut call = Box::pin(channel.call::<Plain>(&(), options));
    match poll(&mut call) {
        Poll::Ready(Err(CallError::Landing { index: 0, len: 8, needed: 0, .. })) => {}
        other => panic!("{other:?}"),
    }
}

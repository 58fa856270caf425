//! The memory, the reduction, the protection and the bounds of replies.

use super::*;
use crate::{
    rpc::{AuthFailure, AuthStat, Credential},
    security::{
        AuthenticatedCaller, Authentication, BlockingQueue, Protection, ReceivedCall, ReplySecurity, SecurityError,
        UnwrapError,
    },
    trace::log::Log,
    xdr::encode_to_bytes,
};

/// Returns `true` if a reply is in this memory.
fn is_in(reply: &ReplyCommand, memory: &std::ops::Range<*const u8>) -> bool {
    match reply {
        ReplyCommand::Reply(reply) => memory.contains(&reply.message.as_ptr()),
        other => panic!("{other:?}"),
    }
}

/// A reply is written into the memory of its call, unless the call provides chunks for the reply.
#[test]
fn replies_use_the_memory_of_their_calls() {
    let mut served = Served::new(Transport::Rdma, service(echo));
    let mut pair = RdmaPair::new();
    let mut reply = |item: &Item, results: &[u64], max_inline: u64| {
        let mut call = pair.call_with(Store::NUMBER, item, results, max_inline);
        call.max_inline = 1000;
        let chunks = (call.reads().len(), call.write_chunks().len(), call.reply_chunk().is_some());
        let memory = match &call.payload {
            MessagePayload::Inline(message) => message.as_ptr_range(),
            MessagePayload::Long(_) => panic!("the call is long"),
        };
        let (token, reply) = (call.token, served.call(call).unwrap());
        let is_in = is_in(&reply, &memory);
        let arrived = pair.reply(token, reply).unwrap();
        assert_eq!(opened(arrived.payload.as_slice()).0, Ok(()));
        (chunks, is_in)
    };
    let (short, long) = (Item(1, Bytes::new()), Item(1, vec![7; 2000].into()));
    assert_eq!(reply(&short, &[], 500), ((0, 0, false), true));
    assert_eq!(reply(&long, &[2000], 500), ((1, 1, false), false));
    assert_eq!(reply(&short, &[2000], 500), ((0, 1, false), false));
    assert_eq!(reply(&short, &[], 5000), ((0, 0, true), false));
}

/// Over RDMA, eligible results go to the Write chunks of the call. If the call has no Write chunks, the results are
/// copied into the reply (RFC 8166 §4.3.2). Over TCP, they are sent without a copy.
#[test]
fn eligible_results_are_reduced() {
    let data = Bytes::from(vec![7; 600]);
    let arguments = encode_to_bytes(&Item(3, data.clone())).unwrap();
    for (transport, reduced, copied) in [(Transport::Rdma, 0, 600), (Transport::Tcp, 1, 0)] {
        let result = Item(3, data.clone());
        let handler = move |call: InboundCall| -> ReplyFuture {
            let result = result.clone();
            Box::pin(std::future::ready(answer::<Store>(call, |_| Ok(result))))
        };
        let mut served = Served::new(transport, service(handler));
        let call = || arrived(received(&message(&header(Store::NUMBER), &arguments)));
        let Some(ReplyCommand::Reply(reply)) = served.call(call()) else { panic!("no reply") };
        assert_eq!(reply.reduced.len(), reduced, "{transport:?}");
        assert!(reply.reduced.iter().all(|item| item.data.as_ptr() == data.as_ptr()));
        assert_eq!(served.port.counters().copied_eligible_bytes, copied);
        assert_eq!(served.reply(call()), (Ok(()), arguments.clone()));
    }
    let mut served = Served::new(Transport::Rdma, service(echo));
    let call = RdmaPair::new().call(Store::NUMBER, &Item(3, data.clone()), &[600]);
    let Some(ReplyCommand::Reply(reply)) = served.call(call) else { panic!("no reply") };
    assert_eq!((reply.reduced.len(), served.port.counters().copied_eligible_bytes), (1, 0));
}

/// RFC 8166 §4.3.2: without a Write chunk for it, an eligible result is inline.
#[test]
fn results_without_chunks_are_inline() {
    let mut served = Served::new(Transport::Rdma, service(echo));
    let mut pair = RdmaPair::new();
    for (chunks, reduced) in [(&[2000][..], 1), (&[2000, 2000], 2)] {
        let call = pair.call_with(Double::NUMBER, &Item(3, vec![7; 2000].into()), chunks, 5000);
        let (token, reply) = (call.token, served.call(call).unwrap());
        let reply = pair.reply(token, reply).unwrap();
        assert_eq!(reply.writes.iter().filter(|chunk| chunk.data.len() == 2000).count(), reduced);
        let (outcome, results) = opened(reply.payload.as_slice());
        assert_eq!((outcome, results.len()), (Ok(()), 16 + (2 - reduced) * 2000));
    }
}

/// A protection that inverts the bits of bodies. A received body that begins with the byte 0, 1 or 2 makes `unwrap`
/// report an expired context, report an error, or panic.
#[derive(Debug)]
struct Inverted;

fn inverted(body: &[u8]) -> Bytes {
    body.iter().map(|byte| !byte).collect::<Vec<_>>().into()
}

impl Protection for Inverted {
    fn wrap(&self, body: Bytes) -> Result<Bytes, SecurityError> {
        Ok(inverted(&body))
    }

    fn unwrap(&self, body: Bytes) -> Result<Bytes, UnwrapError> {
        match body.first() {
            Some(0) => Err(UnwrapError::Expired),
            Some(2) => panic!("a test makes the protection panic"),
            Some(1) => Err(SecurityError("the first byte is wrong".into()).into()),
            _ => Ok(inverted(&body)),
        }
    }

    fn max_wrapped(&self, len: u64) -> u64 {
        len
    }

    fn queue(&self) -> BlockingQueue {
        BlockingQueue::new()
    }
}

impl ReplySecurity for Inverted {
    fn verifier(&self) -> Result<OpaqueAuth, AuthFailure> {
        Ok(OpaqueAuth { flavor: 6, body: Bytes::from_static(b"server") })
    }

    fn protection(&self) -> Option<Arc<dyn Protection>> {
        Some(Arc::new(Self))
    }
}

/// An authenticator that accepts all calls, and protects their bodies with [`Inverted`].
#[derive(Debug)]
struct Inverting;

impl Authenticator for Inverting {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        let caller = AuthenticatedCaller::new(Credential::Other(call.header.credential.clone()));
        Authentication::Accepted(caller.with_security(Arc::new(Inverted)))
    }
}

/// RFC 2203 §5.3.2, §5.3.3: arguments and results are protected, and errors are not. RFC 8166 §8.2.2.3: nothing is
/// reduced. If the arguments are wrong, the handler does not run.
#[test]
fn protected_calls_have_protected_replies() {
    let item = Item(3, vec![7; 2000].into());
    let arguments = encode_to_bytes(&item).unwrap();
    for transport in [Transport::Rdma, Transport::Tcp] {
        let mut served = Served::guarded(transport, service(echo), Inverting);
        let mut replies = |procedure, body: &[u8]| {
            let message = message(&header(procedure), body);
            let inline = served.reply(arrived(received(&message)));
            assert_eq!(served.reply(arrived(MessagePayload::Long(message.into()))), inline);
            inline
        };
        assert_eq!(replies(Store::NUMBER, &inverted(&arguments)), (Ok(()), inverted(&arguments)));
        assert_eq!(replies(Store::NUMBER, &arguments), {
            let expired = AuthFailure::from(AuthStat::RpcsecGssCtxproblem);
            (Err(RpcError::Authentication(expired)), Bytes::new())
        });
        for wrong in [&[1, 2, 3, 4][..], &[7; 4], &[]] {
            assert_eq!(replies(Store::NUMBER, wrong), (Err(RpcError::GarbageArguments), Bytes::new()), "{wrong:?}");
        }
        assert_eq!(replies(99, &inverted(&[])), (Err(RpcError::ProcedureUnavailable), Bytes::new()));
    }
    let mut served = Served::guarded(Transport::Rdma, service(echo), Inverting);
    let panics = arrived(received(&message(&header(0), &[2, 0, 0, 0])));
    assert!(matches!(served.call(panics), Some(ReplyCommand::Discard)));
    let mut pair = RdmaPair::new();
    // The client inverts what it does not reduce.
    let mut call = pair.call(Store::NUMBER, &Item(!0, Bytes::new()), &[600]);
    let MessagePayload::Inline(message) = &mut call.payload else { panic!("the call is long") };
    let at = message.len() - 8;
    message[at..].copy_from_slice(&inverted(&[0; 8]));
    let (token, reply) = (call.token, served.call(call).unwrap());
    let reply = pair.reply(token, reply).unwrap();
    assert_eq!(opened(reply.payload.as_slice()), (Ok(()), inverted(&[0; 8])));
    assert!(reply.writes.iter().all(|chunk| chunk.data.is_empty()));
    // An item that the client has reduced.
    let call = pair.call(Store::NUMBER, &item, &[]);
    assert!(matches!(served.call(call), Some(ReplyCommand::ChunkError)));
}

/// A procedure whose arguments are the bounds of its result. The number is the bound of the stream, or 0 for an
/// estimate. The bytes are the bounds of the items.
struct Bounded;

impl Procedure for Bounded {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION;
    const NUMBER: u32 = 4;
    const NAME: &'static str = "TEST.BOUNDED";
    type Args = Item;
    type Reply = Twice;

    fn reply_bounds(Item(inline, items): &Item) -> ReplyBounds {
        let items: Vec<u64> = items.iter().map(|len| u64::from(*len)).collect();
        match inline {
            0 => ReplyBounds::new(0, &items).estimated(),
            _ => ReplyBounds::new((*inline).into(), &items),
        }
    }
}

/// RFC 8166 §6.2: a result that is longer than its binding allows is not sent, whatever the caller could receive. With
/// every transport, protected or not, the error is the same, and the server logs the part that is too long.
#[test]
fn results_within_their_bounds_are_sent() {
    let lens = [3, 5];
    let handler = move |call: InboundCall| -> ReplyFuture {
        let [first, second] = lens.map(|len| Item(0, vec![7; len].into()));
        Box::pin(std::future::ready(answer::<Bounded>(call, |_| Ok(Twice(first, second)))))
    };
    let item =
        |index, len, max| Some(format!("eligible item {index} of the result has {len} bytes, and may have {max}"));
    for (inline, items, excess) in [
        (16, &[3, 5][..], None),
        (100, &[4, 5, 0], None),
        (0, &[1], None),
        (100, &[2, 5], item(0, 3, 2)),
        (100, &[3, 4], item(1, 5, 4)),
        (100, &[5, 3], item(1, 5, 3)),
        (100, &[3], item(1, 5, 0)),
        (15, &[3, 5], Some("the result has 16 bytes without its eligible items, and may have 15".to_owned())),
    ] {
        let arguments = Item(inline, Bytes::copy_from_slice(items));
        let encoded = encode_to_bytes(&arguments).unwrap();
        let plain = |chunks: &[u64]| RdmaPair::new().call(Bounded::NUMBER, &arguments, chunks);
        let whole = |body: &[u8]| arrived(received(&message(&header(Bounded::NUMBER), body)));
        Log::of(|log| {
            for (transport, is_protected, call) in [
                (Transport::Tcp, false, whole(&encoded)),
                (Transport::Tcp, true, whole(&inverted(&encoded))),
                (Transport::Rdma, false, whole(&encoded)),
                (Transport::Rdma, true, whole(&inverted(&encoded))),
                (Transport::Rdma, false, plain(&[1000, 1000])),
                (Transport::Rdma, false, plain(&[1000])),
            ] {
                let mut served = match is_protected {
                    true => Served::guarded(transport, service(handler), Inverting),
                    false => Served::new(transport, service(handler)),
                };
                let (outcome, results) = served.reply(call);
                assert_eq!(outcome.is_ok(), excess.is_none(), "{inline}, {items:?}, {transport:?}, {is_protected}");
                assert!(outcome.is_ok() || (outcome == Err(RpcError::SystemError) && results.is_empty()));
                let expected = excess.as_ref().map(|excess| {
                    format!("{excess} for these arguments: return less, or raise the bound in the binding")
                });
                assert_eq!(log.take_messages().into_iter().find(|message| message.contains("may have")), expected);
            }
        });
    }
}

//! Every form of header, byte by byte, and the handling of invalid headers.

use bytes::Bytes;
use proptest::prelude::*;

use super::{wire::RpcMsg, *};
use crate::xdr::{DecodeErrorKind, Decoder, FlatSink, ReducingSink, XdrDecode, XdrType, encode_to_bytes};

const NONE: [u32; 2] = [0, 0];

fn encode_words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn encode_call(call: &CallHeader) -> Vec<u8> {
    let mut out = Vec::new();
    call.encode(&mut FlatSink::new(&mut out)).unwrap();
    assert_eq!(out, encode_to_bytes(&call.to_wire()).unwrap(), "the encoding is the generated one");
    assert_eq!(out.len(), call.encoded_len());
    out
}

fn encode_reply(reply: &ReplyHeader) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(&mut FlatSink::new(&mut out)).unwrap();
    let (message, reason) = out.split_at(out.len() - reason_len(reply));
    assert_eq!(message, encode_to_bytes(&reply.to_wire()).unwrap(), "the encoding is the generated one");
    assert_eq!(out.len(), reply.encoded_len());
    assert!(reason.is_empty() || reason.starts_with(b"rpcr"));
    out
}

/// Returns the length in bytes of the reason that follows SYSTEM_ERR, an extension of RFC 5531; 0 for other replies.
fn reason_len(reply: &ReplyHeader) -> usize {
    if matches!(reply.outcome, Err(RpcError::Unavailable | RpcError::HandlerTimedOut)) { 8 } else { 0 }
}

fn decode_call(bytes: &[u8]) -> Result<CallHeader, CallHeaderError> {
    CallHeader::decode(&mut Decoder::new(bytes))
}

fn decode_reply(bytes: &[u8]) -> Result<ReplyHeader, ReplyHeaderError> {
    ReplyHeader::decode(&mut Decoder::new(bytes))
}

fn opaque(flavor: u32, body: &'static [u8]) -> OpaqueAuth {
    OpaqueAuth { flavor, body: Bytes::from_static(body) }
}

#[test]
fn a_call_byte_by_byte() {
    let call = CallHeader::new(0xCAFE_0001, 100_003, 3, 6);
    let wire = encode_words(&[0xCAFE_0001, 0, 2, 100_003, 3, 6, 0, 0, 0, 0]);
    assert_eq!(encode_call(&call), wire);
    assert_eq!(decode_call(&wire), Ok(call));
}

/// A call may have an empty credential with a verifier, or a credential with an empty verifier.
#[test]
fn credentials_and_verifiers_are_independent() {
    for (credential, verifier) in [(&b""[..], &b"verf"[..]), (b"cred", b""), (b"cred", b"verf"), (b"", b"")] {
        let of = |flavor, body| OpaqueAuth { flavor, body: Bytes::copy_from_slice(body) };
        let call =
            CallHeader { credential: of(8, credential), verifier: of(9, verifier), ..CallHeader::new(7, 1, 2, 3) };
        let wire = encode_call(&call);
        let lens = [credential.len() as u32, verifier.len() as u32];
        let auth = [&encode_words(&[8, lens[0]]), credential, &encode_words(&[9, lens[1]]), verifier].concat();
        assert_eq!(wire, [encode_words(&[7, 0, 2, 1, 2, 3]), auth].concat());
        assert_eq!(decode_call(&wire), Ok(call));
    }
}

#[test]
fn a_call_leaves_the_decoder_at_the_arguments() {
    let mut wire = encode_call(&CallHeader::new(1, 2, 3, 4));
    wire.extend(encode_words(&[0xA11]));
    let mut decoder = Decoder::new(&wire);
    CallHeader::decode(&mut decoder).unwrap();
    assert_eq!((decoder.position(), decoder.take_u32()), (40, Ok(0xA11)));
    decoder.finish().unwrap();
}

/// RFC 8166 §8.2.2: credentials and verifiers are not reduced, however long they are.
#[test]
fn credentials_and_verifiers_are_not_reduced() {
    type NewSink = fn(&mut Vec<u8>) -> ReducingSink<'_, Vec<u8>>;
    let (credential, verifier) = (opaque(6, &[7; 400]), opaque(6, &[8; 399]));
    let call = CallHeader { credential, verifier: verifier.clone(), ..CallHeader::new(1, 2, 3, 4) };
    let reply = ReplyHeader::success(1).with_verifier(verifier);
    let sinks: [NewSink; 3] = [
        |out| ReducingSink::for_call(out, 1),
        |out| ReducingSink::for_engine(out, 1),
        |out| ReducingSink::for_reply(out, [true; 4]),
    ];
    for sink in sinks {
        let (mut calls, mut replies) = (Vec::new(), Vec::new());
        let mut calls_sink = sink(&mut calls);
        call.encode(&mut calls_sink).unwrap();
        let mut replies_sink = sink(&mut replies);
        reply.encode(&mut replies_sink).unwrap();
        assert!(calls_sink.finish().0.is_empty() && replies_sink.finish().0.is_empty());
        assert_eq!((calls, replies), (encode_call(&call), encode_reply(&reply)));
    }
}

#[test]
fn a_reply_leaves_the_decoder_at_the_results() {
    for verifier in [OpaqueAuth::none(), opaque(0, b"junk"), opaque(6, b"123"), opaque(6, &[7; 400])] {
        let reply = ReplyHeader::success(9).with_verifier(verifier);
        let mut wire = encode_reply(&reply);
        let len = wire.len();
        wire.extend(encode_words(&[0x5A, 0x5B]));
        let mut decoder = Decoder::new(&wire);
        assert_eq!(ReplyHeader::decode(&mut decoder), Ok(reply));
        assert_eq!((decoder.consumed(), decoder.take_u32(), decoder.take_u32()), (len, Ok(0x5A), Ok(0x5B)));
        decoder.finish().unwrap();
    }
}

#[test]
fn auth_sys_byte_by_byte() {
    let credential = Credential::sys("krypton", 1000, 100, [4, 24]);
    let mut call = CallHeader::new(7, 1, 1, 0);
    call.credential = credential.to_opaque().unwrap();
    let mut wire = encode_words(&[7, 0, 2, 1, 1, 0, 1, 36, 0, 7]);
    wire.extend(b"krypton\0");
    wire.extend(encode_words(&[1000, 100, 2, 4, 24]));
    wire.extend(encode_words(&NONE));
    assert_eq!(encode_call(&call), wire);
    let decoded = decode_call(&wire).unwrap();
    assert_eq!(Credential::from_opaque(&decoded.credential), Ok(credential));
}

/// Returns a reply of every kind in RFC 5531 §9, each as a header and as encoded words.
fn replies() -> Vec<(ReplyHeader, Vec<u32>)> {
    let accepted = |error, words: &[u32]| (ReplyHeader::failure(9, error), [&[9, 1, 0, 0, 0], words].concat());
    let denied = |error, words: &[u32]| (ReplyHeader::failure(9, error), [&[9, 1, 1], words].concat());
    let mut all = vec![
        (ReplyHeader::success(9), vec![9, 1, 0, 0, 0, 0]),
        accepted(RpcError::ProgramUnavailable, &[1]),
        accepted(RpcError::ProgramMismatch { low: 2, high: 4 }, &[2, 2, 4]),
        accepted(RpcError::ProcedureUnavailable, &[3]),
        accepted(RpcError::GarbageArguments, &[4]),
        accepted(RpcError::SystemError, &[5]),
        accepted(RpcError::Unavailable, &[5, 0x7270_6372, 1]),
        accepted(RpcError::HandlerTimedOut, &[5, 0x7270_6372, 2]),
        denied(RpcError::RpcMismatch { low: 2, high: 2 }, &[0, 2, 2]),
    ];
    // Every auth_stat of RFC 5531, and some unassigned values.
    for stat in (0..16).chain([390_003, u32::MAX]) {
        all.push(denied(RpcError::Authentication(AuthFailure(stat)), &[1, stat]));
    }
    all
}

#[test]
fn every_reply_byte_by_byte() {
    for (reply, words) in replies() {
        assert_eq!(encode_reply(&reply), encode_words(&words), "{reply:?}");
        assert_eq!(decode_reply(&encode_words(&words)), Ok(reply));
    }
}

#[test]
fn an_accepted_reply_has_a_verifier() {
    for (reply, _) in replies().into_iter().filter(|(reply, _)| !reply.outcome.is_err_and(|e| e.is_denied())) {
        let reply = reply.with_verifier(opaque(2, b"short"));
        let wire = encode_reply(&reply);
        assert_eq!(wire[..28], *[encode_words(&[9, 1, 0, 2, 5]), b"short\0\0\0".to_vec()].concat());
        assert_eq!(decode_reply(&wire), Ok(reply));
    }
    // The flavor of an empty verifier is kept.
    let reply = ReplyHeader::success(9).with_verifier(opaque(6, b""));
    let wire = encode_reply(&reply);
    assert_eq!(wire, encode_words(&[9, 1, 0, 6, 0, 0]));
    assert_eq!(decode_reply(&wire), Ok(reply));
    // Only the usual reply is read at once.
    let mut decoder = Decoder::new(&wire);
    assert_eq!((ReplyHeader::take_plain_success(&mut decoder), decoder.remaining()), (None, 24));
    let wire = encode_reply(&ReplyHeader::success(9));
    let mut decoder = Decoder::new(&wire);
    assert_eq!((ReplyHeader::take_plain_success(&mut decoder), decoder.remaining()), (Some(9), 0));
}

#[test]
fn every_truncation_is_an_error() {
    let mut call = CallHeader::new(7, 1, 1, 0);
    call.credential = Credential::sys("krypton", 0, 0, []).to_opaque().unwrap();
    let wire = encode_call(&call);
    for len in 0..wire.len() {
        let fault = decode_call(&wire[..len]).unwrap_err();
        match len {
            0..8 => assert!(matches!(fault, CallHeaderError::NotACall(_)) && fault.reply().is_none(), "{len}: {fault}"),
            // A message that is recognized as a call gets a reply.
            _ => assert_eq!(fault.reply(), Some(ReplyHeader::failure(7, RpcError::GarbageArguments)), "{len}"),
        }
    }
    for (reply, words) in replies() {
        let wire = encode_words(&words);
        for len in wire.len() - reason_len(&reply)..wire.len() {
            // Other servers send no reason, and one that cannot be read is ignored.
            assert_eq!(decode_reply(&wire[..len]), Ok(ReplyHeader::failure(9, RpcError::SystemError)));
        }
        for len in 0..wire.len() - reason_len(&reply) {
            assert!(matches!(decode_reply(&wire[..len]), Err(ReplyHeaderError::Malformed(_))), "{reply:?} {len}");
        }
    }
}

#[test]
fn another_rpc_version_is_a_mismatch_whatever_follows() {
    for tail in [&[][..], &[1, 2, 3, 0, 9999], &[1, 1, 0, 0, 0, 0, 0]] {
        for rpcvers in [0, 1, 3, u32::MAX] {
            let fault = decode_call(&encode_words(&[&[5, 0, rpcvers], tail].concat())).unwrap_err();
            assert_eq!(fault, CallHeaderError::RpcMismatch { xid: 5, rpcvers });
            let reply = fault.reply().unwrap();
            assert_eq!(encode_reply(&reply), encode_words(&[5, 1, 1, 0, 2, 2]));
        }
    }
}

#[test]
fn a_credential_or_verifier_over_400_bytes_is_rejected() {
    let of = |cred: u32, verf: u32| {
        let mut wire = encode_words(&[5, 0, 2, 1, 1, 0, 9, cred]);
        wire.extend(vec![0; cred.next_multiple_of(4) as usize]);
        wire.extend(encode_words(&[9, verf]));
        wire.extend(vec![0; verf.next_multiple_of(4) as usize]);
        decode_call(&wire)
    };
    assert_eq!(of(400, 400).unwrap().verifier.body.len(), 400);
    assert_eq!(of(399, 397).unwrap().verifier.body.len(), 397);
    let refusal = |fault: CallHeaderError| fault.reply().unwrap().outcome.unwrap_err();
    for len in [401, 404] {
        assert_eq!(refusal(of(len, 0).unwrap_err()), RpcError::Authentication(AuthStat::AuthBadcred.into()));
        assert_eq!(refusal(of(0, len).unwrap_err()), RpcError::Authentication(AuthStat::AuthBadverf.into()));
    }
    let fault = of(404, 0).unwrap_err();
    assert_eq!(fault.to_string(), "bad credential (AUTH_BADCRED)");
    let fault = core::error::Error::source(&fault).unwrap().to_string();
    assert!(fault.contains("opaque_auth.body") || fault.contains("cred.body"), "{fault}");
    assert!(fault.contains("length 404 exceeds the declared maximum 400"), "{fault}");
}

#[test]
fn a_credential_over_400_bytes_is_not_sent() {
    let mut call = CallHeader::new(1, 1, 1, 1);
    call.verifier = OpaqueAuth { flavor: 6, body: vec![0; 401].into() };
    let error = call.encode(&mut FlatSink::new(&mut Vec::new())).unwrap_err();
    assert_eq!(error.to_string(), "opaque_auth.body: length 401 exceeds the declared maximum 400");
    let reply = ReplyHeader::success(1).with_verifier(OpaqueAuth { flavor: 6, body: vec![0; 401].into() });
    assert!(reply.encode(&mut FlatSink::new(&mut Vec::new())).is_err());
}

#[test]
fn declared_lengths_beyond_the_message_are_errors() {
    let fault = decode_call(&encode_words(&[5, 0, 2, 1, 1, 0, 0, 400, 0])).unwrap_err();
    let CallHeaderError::Malformed { xid: 5, error } = fault else { panic!("{fault}") };
    assert_eq!(*error.kind(), DecodeErrorKind::LengthExceedsRemaining { len: 400, remaining: 4 });
}

#[test]
fn calls_are_not_replies_and_replies_are_not_calls() {
    let call = encode_call(&CallHeader::new(1, 2, 3, 4));
    let reply = encode_reply(&ReplyHeader::success(1));
    assert_eq!(decode_reply(&call), Err(ReplyHeaderError::NotAReply));
    assert!(matches!(decode_call(&reply), Err(CallHeaderError::NotACall(_))));
    // A message type that is neither call nor reply.
    let neither = encode_words(&[1, 2, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert!(matches!(decode_call(&neither), Err(CallHeaderError::NotACall(_))));
    assert!(matches!(decode_reply(&neither), Err(ReplyHeaderError::Malformed(_))));
}

#[test]
fn a_reply_of_unknown_status_is_malformed() {
    for words in [&[9, 1, 2][..], &[9, 1, 0, 0, 0, 6], &[9, 1, 0, 0, 0, u32::MAX], &[9, 1, 1, 2, 0, 0]] {
        let fault = decode_reply(&encode_words(words)).unwrap_err();
        let ReplyHeaderError::Malformed(error) = fault else { panic!("{words:?}: {fault}") };
        let is_unknown = matches!(
            error.kind(),
            DecodeErrorKind::UnknownEnumValue { .. } | DecodeErrorKind::UnknownDiscriminant { .. }
        );
        assert!(is_unknown, "{words:?}: {error}");
    }
}

#[test]
fn auth_sys_has_limits() {
    let name = |len: usize| Credential::sys("x".repeat(len), 0, 0, []).to_opaque();
    assert_eq!(name(255).unwrap().body.len(), 4 + 4 + 256 + 4 + 4 + 4);
    assert_eq!(
        name(256).unwrap_err().to_string(),
        "authsys_parms.machinename: length 256 exceeds the declared maximum 255"
    );
    let gids = |count: u32| Credential::sys("", 0, 0, 0..count).to_opaque();
    assert_eq!(Credential::from_opaque(&gids(16).unwrap()), Ok(Credential::sys("", 0, 0, 0..16)));
    assert_eq!(gids(17).unwrap_err().to_string(), "authsys_parms.gids: length 17 exceeds the declared maximum 16");
    // The same limits for a received credential.
    let received = |name: u32, gids: u32| {
        let mut body = encode_words(&[0, name]);
        body.resize(8 + name.next_multiple_of(4) as usize, b'x');
        body.extend(encode_words(&[1, 2, gids]));
        body.extend(encode_words(&vec![3; gids as usize]));
        Credential::from_opaque(&OpaqueAuth { flavor: 1, body: body.into() })
    };
    assert!(received(255, 16).is_ok() && received(0, 0).is_ok());
    assert_eq!(received(256, 0), Err(AuthStat::AuthBadcred.into()));
    assert_eq!(received(0, 17), Err(AuthStat::AuthBadcred.into()));
    // The longest AUTH_SYS credential fits the limit of the header.
    assert!(AuthsysParms::MAX_LEN.is_some_and(|len| len <= 400));
}

#[test]
fn every_error_except_system_err_is_safe_to_retry() {
    for (reply, _) in replies() {
        if let Err(error) = reply.outcome {
            let may_be_executed = matches!(error, RpcError::SystemError | RpcError::HandlerTimedOut);
            assert_eq!(error.is_retry_safe(), !may_be_executed, "{error}");
        }
    }
}

#[test]
fn every_auth_stat_has_a_description() {
    let said: std::collections::BTreeSet<String> = (0..16).map(|stat| AuthFailure(stat).to_string()).collect();
    assert_eq!(said.len(), 16);
    assert!(said.contains("auth_stat 15"));
    assert_eq!(AuthFailure(u32::MAX).to_string(), "auth_stat 4294967295");
    // Numbers that resemble an assigned one.
    for stat in [15, 16, 0x101, 0x8000_0001, u32::MAX] {
        assert_eq!(AuthFailure(stat).stat(), None, "{stat}");
    }
    assert_eq!(AuthFailure(14).stat(), Some(AuthStat::RpcsecGssCtxproblem));
}

#[test]
fn no_reply_is_longer_than_its_bound() {
    for verifier in [&b""[..], b"abc", &[7; 400]] {
        let verifier = OpaqueAuth { flavor: 2, body: Bytes::copy_from_slice(verifier) };
        let most = verifier.body.len() as u32;
        for (reply, _) in replies() {
            let results = if reply.outcome.is_ok() { 40 } else { 0 };
            let len = reply.with_verifier(verifier.clone()).encoded_len() as u64;
            assert!(len + results <= max_reply_len(most, results));
        }
        // A successful reply reaches the bound.
        let success = ReplyHeader::success(1).with_verifier(verifier).encoded_len() as u64;
        assert_eq!(max_reply_len(most, 40), success + 40);
    }
    assert_eq!(max_reply_len(400, u64::MAX), u64::MAX);
    assert_eq!(max_reply_verifier(&OpaqueAuth::none()), 0);
    assert_eq!(max_reply_verifier(&opaque(1, b"")), 400);
}

#[test]
fn wire_types_have_the_expected_bounds() {
    assert_eq!((RpcMsg::MIN_LEN, RpcMsg::MAX_LEN, RpcMsg::MAX_DDP_ITEMS), (20, Some(840), Some(0)));
}

fn any_opaque() -> impl Strategy<Value = OpaqueAuth> {
    (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..=400))
        .prop_map(|(flavor, body)| OpaqueAuth { flavor, body: body.into() })
}

fn any_outcome() -> impl Strategy<Value = Result<(), RpcError>> {
    prop_oneof![
        Just(Ok(())),
        Just(Err(RpcError::ProgramUnavailable)),
        any::<(u32, u32)>().prop_map(|(low, high)| Err(RpcError::ProgramMismatch { low, high })),
        Just(Err(RpcError::ProcedureUnavailable)),
        Just(Err(RpcError::GarbageArguments)),
        Just(Err(RpcError::SystemError)),
        Just(Err(RpcError::Unavailable)),
        Just(Err(RpcError::HandlerTimedOut)),
        any::<(u32, u32)>().prop_map(|(low, high)| Err(RpcError::RpcMismatch { low, high })),
        any::<u32>().prop_map(|stat| Err(RpcError::Authentication(AuthFailure(stat)))),
    ]
}

/// The flavor determines the form of a credential, whatever its body is.
#[test]
fn credentials_have_the_form_of_their_flavor() {
    let body = Credential::sys("client", 1, 1, [2]).to_opaque().unwrap().body;
    let of = |flavor| Credential::from_opaque(&OpaqueAuth { flavor, body: body.clone() });
    assert_eq!(of(0), Ok(Credential::None));
    assert!(matches!(of(1), Ok(Credential::Sys(_))));
    assert_eq!(of(6), Ok(Credential::Other(OpaqueAuth { flavor: 6, body: body.clone() })));
}

#[test]
fn an_encoded_call_is_split_at_its_verifier() {
    for (credential, verifier) in [(0, 0), (5, 0), (0, 7), (400, 400)] {
        let of = |len| OpaqueAuth { flavor: 9, body: vec![1; len].into() };
        let call = CallHeader { credential: of(credential), verifier: of(verifier), ..CallHeader::new(7, 1, 2, 3) };
        let message = encode_call(&call);
        let lens = (32 + credential.next_multiple_of(4), 8 + verifier.next_multiple_of(4));
        assert_eq!(CallHeader::split_verifier(&message), Some(lens));
        assert_eq!(CallHeader::split_verifier(&message[..message.len() - 1]), None);
        assert_eq!(CallHeader::has_no_credential(&message), credential == 0);
    }
}

/// A credential that equals the known one shares its memory. Any other is decoded as usual.
#[test]
fn known_credentials_share_their_memory() {
    let sys = |uid| Credential::sys("client", uid, 1, [2]).to_opaque().unwrap();
    let known = sys(1);
    let other_flavor = OpaqueAuth { flavor: 77, ..known.clone() };
    let shorter = OpaqueAuth { body: known.body.slice(..known.body.len() - 4), ..known.clone() };
    for (credential, is_shared) in [(sys(1), true), (sys(2), false), (other_flavor, false), (shorter, false)] {
        let call = CallHeader { credential, ..CallHeader::new(7, 1, 2, 3) };
        let message = encode_call(&call);
        let mut decoder = Decoder::new(&message);
        let decoded = CallHeader::decode_knowing(&mut decoder, Some(&known)).unwrap();
        assert_eq!((&decoded, decoder.remaining()), (&call, 0));
        assert_eq!(decoded.credential.body.as_ptr() == known.body.as_ptr(), is_shared);
    }
    // A body that has padding.
    let known = opaque(77, b"12345");
    let call = CallHeader { credential: known.clone(), verifier: opaque(6, b"123"), ..CallHeader::new(7, 1, 2, 3) };
    let message = encode_call(&call);
    let mut decoder = Decoder::new(&message);
    assert_eq!(CallHeader::decode_knowing(&mut decoder, Some(&known)), Ok(call));
    assert_eq!(decoder.remaining(), 0);
}

proptest! {
    /// The decoder of AUTH_SYS credentials accepts the same bodies as the generated decoder, with the same values.
    #[test]
    fn sys_credentials_as_generated(
        name in 0..260u32, gids in 0..20u32, cut in 0..8usize, more in 0..2usize, byte in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut words = vec![5u32, name];
        words.extend(vec![0x61616161; name.div_ceil(4) as usize]);
        words.extend([6, 7, gids]);
        words.extend(0..gids);
        let mut body = encode_words(&words);
        let len = body.len();
        body.truncate(len - cut.saturating_sub(4).min(len));
        body.extend(vec![0; more]);
        body[byte.0.index(len.min(8))] ^= byte.1;
        let generated = {
            let mut decoder = Decoder::new(&body);
            decoder.read::<AuthsysParms>().and_then(|parms| decoder.finish().map(|()| parms))
        };
        let opaque = OpaqueAuth { flavor: 1, body: Bytes::from(body) };
        prop_assert_eq!(Credential::from_opaque(&opaque).ok(), generated.ok().map(Credential::Sys));
    }
}

proptest! {
    #[test]
    fn calls_round_trip(ids in any::<[u32; 4]>(), credential in any_opaque(), verifier in any_opaque()) {
        let [xid, program, version, procedure] = ids;
        let call = CallHeader { xid, program, version, procedure, credential, verifier };
        prop_assert_eq!(decode_call(&encode_call(&call)), Ok(call));
    }

    #[test]
    fn replies_round_trip(xid: u32, verifier in any_opaque(), outcome in any_outcome()) {
        let mut reply = ReplyHeader { xid, verifier, outcome };
        let wire = encode_reply(&reply);
        if reply.outcome.is_err_and(|error| error.is_denied()) {
            reply.verifier = OpaqueAuth::none();
        }
        prop_assert_eq!(decode_reply(&wire), Ok(reply));
    }

    #[test]
    fn credentials_round_trip(name in "[ -~]{0,255}", ids: (u32, u32), gids in proptest::collection::vec(any::<u32>(), 0..=16)) {
        let credential = Credential::sys(name, ids.0, ids.1, gids);
        prop_assert_eq!(Credential::from_opaque(&credential.to_opaque().unwrap()), Ok(credential));
    }

    /// Messages that decode are encoded to the same length, and decode to the same value again. Other messages cause an
    /// error, not a panic.
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
        decode_anything(&bytes);
    }

    /// Words in the value ranges of a message's fields do not cause a panic.
    #[test]
    fn message_like_words_do_not_panic(words in proptest::collection::vec(prop_oneof![0..7u32, Just(400), any::<u32>()], 0..40)) {
        decode_anything(&encode_words(&words));
    }
}

fn decode_anything(bytes: &[u8]) {
    let mut decoder = Decoder::new(bytes);
    if let Ok(message) = RpcMsg::decode(&mut decoder) {
        // Any padding is accepted, but zero is sent.
        let encoded = encode_to_bytes(&message).unwrap();
        assert_eq!(encoded.len(), decoder.consumed());
        assert_eq!(RpcMsg::decode(&mut Decoder::new(&encoded)).unwrap(), message);
    }
    let mut decoder = Decoder::new(bytes);
    match CallHeader::decode(&mut decoder) {
        Ok(call) => {
            assert_eq!(as_generated(bytes), Some((call.to_wire(), decoder.consumed())));
        }
        Err(fault) => {
            let _ = (fault.reply(), fault.to_string());
        }
    }
    let mut decoder = Decoder::new(bytes);
    match ReplyHeader::decode(&mut decoder) {
        Ok(reply) => {
            let (message, consumed) = as_generated(bytes).unwrap();
            assert_eq!(consumed + reason_len(&reply), decoder.consumed());
            assert_eq!(message, reply.to_wire());
        }
        Err(fault) => {
            let _ = fault.to_string();
        }
    }
}

/// Returns the message that the generated codec decodes, and its length in bytes.
fn as_generated(bytes: &[u8]) -> Option<(RpcMsg, usize)> {
    let mut decoder = Decoder::new(bytes);
    RpcMsg::decode(&mut decoder).ok().map(|message| (message, decoder.consumed()))
}

#[test]
fn headers_without_authentication_do_not_allocate() {
    let (call, reply) = (CallHeader::new(1, 2, 3, 4), ReplyHeader::success(1));
    let mut out = Vec::with_capacity(100);
    let taken = allocation_counter::measure(|| {
        call.encode(&mut FlatSink::new(&mut out)).unwrap();
        assert!(decode_call(&out).is_ok());
        out.clear();
        reply.encode(&mut FlatSink::new(&mut out)).unwrap();
        assert!(decode_reply(&out).is_ok());
    });
    assert_eq!(taken.count_total, 0);
}

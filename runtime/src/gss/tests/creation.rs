//! Context creation (RFC 2203 §5.2).

use std::time::Duration;

use super::*;
use crate::{
    gss::{
        mechanism::major,
        wire::{MAXSEQ, RpcGssInitArg},
    },
    rpc::RpcError,
    security::ProtectionLevel,
};

fn init(handle: &[u8], procedure: RpcGssProcT, token: &[u8], now: Instant) -> TestCall {
    // RFC 2203 §5.2.2: sequence number and service are undefined, and the server must ignore them.
    let handle = Bytes::copy_from_slice(handle);
    let credential = GssCredential { procedure, sequence: u32::MAX, service: 99, handle };
    let mut call = TestCall::new(&credential, OpaqueAuth::none(), now);
    call.arguments = encode_to_bytes(&RpcGssInitArg { gss_token: Bytes::copy_from_slice(token) }).unwrap();
    call
}

fn first(token: &[u8], now: Instant) -> TestCall {
    init(&[], RpcGssProcT::RpcsecGssInit, token, now)
}

/// Returns the first token of a client.
fn token() -> Vec<u8> {
    ClientMechanism::begin(&client()).unwrap().step(None).unwrap().token.unwrap()
}

fn answered(authentication: Authentication) -> ControlReply {
    match authentication {
        Authentication::Answered(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// RFC 2203 §5.2: a context is created in as many rounds as the mechanism needs. Both sides then agree on the handle
/// and the window.
#[test]
fn contexts_are_created_in_several_rounds() {
    let now = Instant::now();
    for rounds in [1, 2, 3, 4, 8] {
        let mut server = TestServer::new(GssServerConfig { max_rounds: 9, ..GssServerConfig::default() });
        server.mechanism.rounds = rounds;
        let mut calls = Vec::new();
        let created = create_with(&client(), |call| {
            calls.push(GssCredential::decode(&call.credential.body).unwrap());
            assert_eq!((call.program, call.version, call.seal.is_none()), (2, 3, true));
            answered(server.receive(&TestCall::control(call, now)))
        });
        let created = created.unwrap();
        assert_eq!((calls.len(), created.handle.len(), created.window), (rounds.into(), 16, 2048));
        // RFC 2203 §5.2.2: undefined, and the same for every client.
        assert!(calls.iter().all(|call| (call.sequence, call.service) == (0, 1)));
        // The first request has no handle, and all others have the same.
        assert_eq!((calls[0].procedure, calls[0].handle.len()), (RpcGssProcT::RpcsecGssInit, 0));
        for later in &calls[1..] {
            assert_eq!((later.procedure, &later.handle), (RpcGssProcT::RpcsecGssContinueInit, &created.handle));
        }
        assert_eq!((server.server.contexts.counts(), created.context.peer()), ((1, 0), "nfs@server"));
        let Authentication::Accepted(caller) = server.data(&created, 1, 1, now) else { panic!("refused") };
        assert_eq!(caller.principal.unwrap().name, "alice@TEST");
    }
}

/// RFC 2203 §5.2.2: sequence number and service are undefined in each round, and the server ignores them.
#[test]
fn numbers_and_services_of_creation_requests_are_ignored() {
    let now = Instant::now();
    let mut server = TestServer::new(GssServerConfig::default());
    server.mechanism.rounds = 2;
    for (sequence, service) in [(0, 0), (0, 1), (1, 2), (7, 3), (MAXSEQ, 4), (MAXSEQ + 1, 1), (u32::MAX, u32::MAX)] {
        let created = create_with(&client(), |call| {
            let mut arrived = TestCall::control(call, now);
            let credential = GssCredential::decode(&call.credential.body).unwrap();
            arrived.header.credential = GssCredential { sequence, service, ..credential }.encode().unwrap();
            answered(server.receive(&arrived))
        });
        let created = created.unwrap();
        let Authentication::Accepted(_) = server.data(&created, 1, 1, now) else { panic!("{sequence}, {service}") };
    }
}

/// RFC 2203 §5.2.3.1: the reply that completes a context has the checksum of the window as its verifier. All other
/// replies have the NULL verifier.
#[test]
fn verifiers_of_creation_replies() {
    let now = Instant::now();
    let mut server = TestServer::new(GssServerConfig { sequence_window: 77, ..GssServerConfig::default() });
    server.mechanism.rounds = 2;
    let mut replies = Vec::new();
    let created = create_with(&client(), |call| {
        replies.push(answered(server.receive(&TestCall::control(call, now))));
        replies.last().unwrap().clone()
    });
    let created = created.unwrap();
    assert_eq!(replies[0].verifier, OpaqueAuth::none());
    assert_eq!(init_result(&replies[0]).gss_major, major::CONTINUE_NEEDED);
    assert!(replies.iter().all(|reply| init_result(reply).gss_minor == 0));
    assert_eq!(replies[1].verifier, gss_auth(created.context.get_mic(&77_u32.to_be_bytes()).unwrap().into()));
    assert_eq!((init_result(&replies[1]).gss_major, created.window), (major::COMPLETE, 77));
}

/// RFC 2203 §5.2.2: a server refuses creation requests of the wrong form.
#[test]
fn malformed_creation_requests() {
    let now = Instant::now();
    let server = TestServer::new(GssServerConfig::default());
    let later = || init(&[7; 16], RpcGssProcT::RpcsecGssContinueInit, &token(), now);
    for (flavor, body) in [(0, &b"body"[..]), (1, b""), (6, b""), (6, b"verifier")] {
        for mut call in [first(&token(), now), later()] {
            call.header.verifier = OpaqueAuth { flavor, body: body.into() };
            assert_eq!(rejected(server.receive(&call)), AuthStat::AuthBadverf, "{flavor}, {body:?}");
        }
    }
    let call = init(&[1], RpcGssProcT::RpcsecGssInit, &token(), now);
    assert_eq!(rejected(server.receive(&call)), AuthStat::AuthBadcred);
    for mut call in [first(&token(), now), later()] {
        call.header.procedure = 1;
        assert_eq!(rejected(server.receive(&call)), AuthStat::AuthBadcred);
    }
    // RFC 2203 §5.2.3.2: another status has a NULL verifier.
    let garbage =
        ControlReply { verifier: OpaqueAuth::none(), outcome: Err(RpcError::GarbageArguments), results: Bytes::new() };
    for arguments in [Bytes::new(), Bytes::from_static(&[0, 0, 0, 9, 1, 2, 3, 4]), vec![0; 8].into()] {
        let mut call = first(&token(), now);
        call.arguments = arguments;
        assert_eq!(answered(server.receive(&call)), garbage);
    }
    assert_eq!(answered(server.receive(&first(&vec![7; (64 << 10) + 1], now))), garbage);
    assert_eq!(answered(server.receive(&first(&vec![7; 64 << 10], now))).outcome, Ok(()));
    // RFC 8166 §8.2.2: a token is not reduced.
    let mut call = first(&token(), now);
    call.is_reduced = true;
    assert_eq!(answered(server.receive(&call)), garbage);
    assert_eq!(server.server.contexts.counts(), (0, 0));
}

/// RFC 2203 §5.2.3.1: the reply that reports a failure has neither handle nor token. §5.2.3.2: the failure is not
/// reported as CREDPROBLEM or CTXPROBLEM.
#[test]
fn failures_of_the_mechanism() {
    let now = Instant::now();
    let mut server = TestServer::new(GssServerConfig::default());
    server.mechanism.rounds = 2;
    let failed = |call: &TestCall| {
        let reply = answered(server.receive(call));
        assert_eq!(reply.verifier, OpaqueAuth::none());
        let result = init_result(&reply);
        assert!(result.handle.is_empty() && result.gss_token.is_empty(), "{result:?}");
        assert_eq!((result.gss_minor, result.seq_window), (0, 0));
        result.gss_major
    };
    assert_eq!(failed(&first(b"no token at all", now)), major::BAD_MIC);
    assert_eq!(failed(&first(b"short", now)), major::DEFECTIVE_TOKEN);
    for handle in [&[7; 16][..], &[7; 3], &[]] {
        let call = init(handle, RpcGssProcT::RpcsecGssContinueInit, &token(), now);
        assert_eq!(failed(&call), major::NO_CONTEXT);
    }
    // A later round fails. The handle is that of no context then.
    let second = [&[2][..], &mac_of(&[2])].concat();
    let begin = || init_result(&answered(server.receive(&first(&token(), now)))).handle;
    let go_on = |handle: &Bytes, token: &[u8]| init(handle, RpcGssProcT::RpcsecGssContinueInit, token, now);
    let handle = begin();
    assert_eq!(failed(&go_on(&handle, b"no token at all")), major::BAD_MIC);
    assert_eq!(failed(&go_on(&handle, &second)), major::NO_CONTEXT);
    // The status is that of the mechanism, and never a success.
    for (status, seen) in [(major::NO_CRED, major::NO_CRED), (0x0101_0000, 0x0101_0000), (2, major::FAILURE)] {
        let Decision::Round(round) = server.decide(&first(&token(), now)) else { panic!("no round") };
        let error = GssError { major: status, minor: 42, message: "a test made it fail".into() };
        let result = init_result(&server.server.finish_round(round, Err(error), now));
        assert_eq!((result.gss_major, result.gss_minor, result.seq_window), (seen, 42, 0));
        assert!(result.handle.is_empty() && result.gss_token.is_empty(), "{result:?}");
    }
    // The mechanism needs another token, but has none for the client.
    for token in [None, Some(Vec::new())] {
        let call = first(&super::creation::token(), now);
        let Decision::Round(mut round) = server.decide(&call) else { panic!("no round") };
        let step = server.step(&mut round).map(|(setup, _)| (setup, SetupStep { token, context: None }));
        assert_eq!(init_result(&server.server.finish_round(round, step, now)).gss_major, major::FAILURE);
    }
    // The context cannot sign the window.
    server.mechanism.faults.get_mic.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(failed(&go_on(&begin(), &second)), major::FAILURE);
    assert_eq!(server.server.contexts.counts(), (0, 0));
    server.mechanism.faults.get_mic.store(false, std::sync::atomic::Ordering::Relaxed);
    // The context is complete, so that the server expects no other token.
    let created = create(&server, &client(), now).unwrap();
    assert_eq!(failed(&go_on(&created.handle, &second)), major::NO_CONTEXT);
    let Authentication::Accepted(_) = server.data(&created, 1, 1, now) else { panic!("refused") };
}

/// Each method of [`GssServerConfig`] changes only its own setting.
#[test]
fn settings_of_servers() {
    let default = GssServerConfig::default;
    assert_eq!(GssServerConfig::new(), default());
    for (changed, expected) in [
        (default().max_contexts(7), GssServerConfig { max_contexts: 7, ..default() }),
        (default().max_contexts_per_address(7), GssServerConfig { max_contexts_per_address: 7, ..default() }),
        (default().max_setups(7), GssServerConfig { max_setups: 7, ..default() }),
        (default().max_setups_per_address(7), GssServerConfig { max_setups_per_address: 7, ..default() }),
        (default().max_rounds(7), GssServerConfig { max_rounds: 7, ..default() }),
        (default().max_token(7), GssServerConfig { max_token: 7, ..default() }),
        (default().sequence_window(7), GssServerConfig { sequence_window: 7, ..default() }),
        (
            default().setup_timeout(Duration::from_secs(7)),
            GssServerConfig { setup_timeout: Duration::from_secs(7), ..default() },
        ),
        (
            default().max_lifetime(Duration::from_secs(7)),
            GssServerConfig { max_lifetime: Duration::from_secs(7), ..default() },
        ),
        (
            default().min_level(ProtectionLevel::Privacy),
            GssServerConfig { min_level: ProtectionLevel::Privacy, ..default() },
        ),
    ] {
        assert!(changed == expected && changed != default(), "{changed:?}");
    }
}

/// Contexts in creation are limited in number, rounds and time.
#[test]
fn limits_of_contexts_in_creation() {
    let now = Instant::now();
    let config = GssServerConfig { max_setups: 2, max_rounds: 3, ..GssServerConfig::default() };
    let mut server = TestServer::new(config);
    server.mechanism.rounds = 3;
    let begin = |after: u64| {
        let reply = answered(server.receive(&first(&token(), now + Duration::from_secs(after))));
        init_result(&reply).handle
    };
    let go_on = |handle: &Bytes, after: u64| {
        let token = [&[2][..], &mac_of(&[2])].concat();
        let at = now + Duration::from_secs(after);
        let reply = server.receive(&init(handle, RpcGssProcT::RpcsecGssContinueInit, &token, at));
        init_result(&answered(reply)).gss_major
    };
    // The oldest is dropped.
    let (oldest, second, third) = (begin(0), begin(1), begin(2));
    assert_eq!(server.server.contexts.counts(), (0, 2));
    assert_eq!(go_on(&oldest, 3), major::NO_CONTEXT);
    assert_eq!(go_on(&second, 3), major::CONTINUE_NEEDED);
    // The time runs from the first token.
    assert_eq!(go_on(&third, 33), major::NO_CONTEXT);
    let late = begin(40);
    assert_eq!(server.server.contexts.counts(), (0, 1), "contexts past their time are dropped");
    assert_eq!(go_on(&late, 70), major::CONTINUE_NEEDED);

    server.mechanism.rounds = 4;
    let error = create(&server, &client(), now).unwrap_err();
    assert!(error.0.contains("the server refused it"), "{error}");
}

/// One host displaces only its own contexts in creation.
#[test]
fn contexts_in_creation_are_limited_for_each_host() {
    let config = GssServerConfig { max_setups: 4, max_setups_per_address: 2, ..GssServerConfig::default() };
    let mut server = TestServer::new(config);
    server.mechanism.rounds = 2;
    let now = Instant::now();
    let mut begin = |peer: &str| {
        server.peer = peer.parse().unwrap();
        let at = now + Duration::from_secs(server.peer.port().into());
        init_result(&answered(server.receive(&first(&token(), at)))).handle
    };
    let honest = begin("192.0.2.1:1");
    let handles = [1, 2, 3, 4, 5].map(|port| begin(&format!("192.0.2.9:{port}")));
    assert_eq!(server.server.contexts.counts(), (0, 3));
    let token = [&[2][..], &mac_of(&[2])].concat();
    let go_on = |handle: &Bytes| {
        let reply = server.receive(&init(handle, RpcGssProcT::RpcsecGssContinueInit, &token, now));
        init_result(&answered(reply)).gss_major
    };
    assert_eq!(go_on(&handles[2]), major::NO_CONTEXT);
    assert_eq!([&honest, &handles[3], &handles[4]].map(go_on), [major::COMPLETE; 3]);
}

/// Returns the checksum that ends a token of the test mechanism.
fn mac_of(message: &[u8]) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(KEY);
    hasher.write(message);
    hasher.finish().to_be_bytes().to_vec()
}

/// RFC 2203 §5.1, §5.2.3.2, §5.3.3.3: a server rejects versions other than 1, and credentials that cannot be decoded.
#[test]
fn versions_and_malformed_credentials() {
    let now = Instant::now();
    let server = TestServer::new(GssServerConfig::default());
    let of = |words: &[u32]| {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut call = first(&token(), now);
        call.header.credential = gss_auth(body.into());
        rejected(server.receive(&call))
    };
    for version in [0, 2, u32::MAX] {
        assert_eq!(of(&[version, 1, 0, 1, 0]), AuthStat::AuthRejectedcred, "creation");
        assert_eq!(of(&[version]), AuthStat::AuthRejectedcred, "unknown fields");
        assert_eq!(of(&[version, 0, 1, 1, 0]), AuthStat::AuthBadcred, "data");
        assert_eq!(of(&[version, 3, 1, 1, 0]), AuthStat::AuthBadcred, "destruction");
    }
    assert_eq!(of(&[]), AuthStat::AuthBadcred);
    assert_eq!(of(&[1, 1, 0, 1]), AuthStat::AuthBadcred, "truncated");
    assert_eq!(of(&[1, 1, 0, 1, 0, 0]), AuthStat::AuthBadcred, "too long");
    assert_eq!(of(&[1, 1, 0, 1, 8, 0]), AuthStat::AuthBadcred, "length beyond the end");
    assert_eq!(of(&[1, 4, 0, 1, 0]), AuthStat::AuthBadcred, "illegal control procedure");
}

/// RFC 2203 §5.2.3: a client does not accept a reply that violates the protocol.
#[test]
fn clients_check_creation_replies() {
    let now = Instant::now();
    let server = TestServer::new(GssServerConfig::default());
    let with = |rounds: u8, change: &dyn Fn(usize, &mut RpcGssInitRes, &mut OpaqueAuth)| {
        let mut server = TestServer::new(GssServerConfig::default());
        server.mechanism.rounds = rounds;
        let mut round = 0;
        let result = create_with(&client(), |call| {
            let mut reply = answered(server.receive(&TestCall::control(call, now)));
            let mut result = init_result(&reply);
            change(round, &mut result, &mut reply.verifier);
            reply.results = encode_to_bytes(&result).unwrap();
            round += 1;
            reply
        });
        result.unwrap_err().0
    };
    let text = with(1, &|_, result, _| result.handle = Bytes::new());
    assert!(text.contains("wrong context handle"), "{text}");
    let text = with(2, &|round, result, _| {
        if round == 1 {
            result.handle = Bytes::from_static(b"another");
        }
    });
    assert!(text.contains("wrong context handle"), "{text}");
    let text = with(1, &|_, result, _| result.seq_window = 0);
    assert!(text.contains("no call to be outstanding"), "{text}");
    let text = with(1, &|_, result, _| result.seq_window += 1);
    assert!(text.contains("verifier of the server's reply is wrong"), "{text}");
    let text = with(1, &|_, _, verifier| *verifier = OpaqueAuth::none());
    assert!(text.contains("no RPCSEC_GSS verifier"), "{text}");
    let text = with(1, &|_, result, _| result.gss_token = Bytes::new());
    assert!(text.contains("sent no token"), "{text}");
    let text = with(1, &|_, result, _| result.gss_major = major::CONTINUE_NEEDED);
    assert!(text.contains("expects another token"), "{text}");
    let text = with(2, &|_, result, _| result.gss_major = major::COMPLETE);
    assert!(text.contains("has another token"), "{text}");
    for (status, words) in [
        (major::NO_CRED, "no credentials for the service"),
        (major::CREDENTIALS_EXPIRED, "expired credentials"),
        (major::FAILURE, "failure"),
        (2, "GSS-API major status 0x00000002"),
    ] {
        let text = with(1, &|_, result, _| (result.gss_major, result.gss_minor) = (status, 42));
        assert!(text.contains("the server refused it") && text.contains(words) && text.contains("42"), "{text}");
    }
    // Malformed replies.
    let cut = |len: usize| {
        let result = create_with(&client(), |call| {
            let mut reply = answered(server.receive(&TestCall::control(call, now)));
            let mut results = reply.results.to_vec();
            results.resize(len.min(results.len() + 4), 0);
            reply.results = results.into();
            reply
        });
        result.unwrap_err().0
    };
    for len in [0, 3, 36, usize::MAX] {
        assert!(cut(len).contains("malformed"), "{len}");
    }
    let denied = |stat: AuthStat| {
        let outcome = Err(RpcError::Authentication(AuthFailure::from(stat)));
        let reply = ControlReply { verifier: OpaqueAuth::none(), outcome, results: Bytes::new() };
        create_with(&client(), |_| reply.clone()).unwrap_err().0
    };
    assert!(denied(AuthStat::AuthRejectedcred).contains("does not accept RPCSEC_GSS version 1"));
    let text = denied(AuthStat::AuthFailed);
    assert!(text.contains("AUTH_FAILED") && !text.contains("does not accept"), "{text}");
    // A key that the server does not have.
    let error = create(&server, &InsecureTestMechanism::new(1, "mallory"), now).unwrap_err();
    assert!(error.0.contains("wrong checksum"), "{error}");
    // A server that completes the context too late.
    for rounds in [9, 100] {
        let mut server = TestServer::new(GssServerConfig { max_rounds: 101, ..GssServerConfig::default() });
        server.mechanism.rounds = rounds;
        let error = create(&server, &client(), now).unwrap_err();
        assert!(error.0.contains("too many rounds"), "{error}");
    }
}

/// RFC 2203 §5.2.2: a step of the mechanism without a token must complete the context.
#[test]
fn mechanisms_without_token_and_context() {
    for token in [None, Some(Vec::new())] {
        let error = ContextCreation::new(2, 3).stepped(SetupStep { token, context: None }).unwrap_err();
        assert!(error.0.contains("neither a token nor a context"), "{error}");
    }
    // Without a round trip there is no handle.
    let setup = || {
        let mut initiator = ClientMechanism::begin(&client()).unwrap();
        let mut acceptor = ServerMechanism::begin(&InsecureTestMechanism::new(KEY, "nfs@server")).unwrap();
        let token = initiator.step(None).unwrap().token;
        initiator.step(acceptor.step(token.as_deref()).unwrap().token.as_deref()).unwrap()
    };
    let error = ContextCreation::new(2, 3).stepped(setup()).unwrap_err();
    assert!(error.0.contains("the server expects another token"), "{error}");
}

/// RFC 2203 §5.2.3.1, §5.2.3.1.1: a mechanism may complete the context without a token from the server.
#[test]
fn mechanisms_with_one_token() {
    let created = create(&TestServer::new(GssServerConfig::default()), &client(), Instant::now()).unwrap();
    let begin = || {
        let mut creation = ContextCreation::new(2, 3);
        let step = SetupStep { token: Some(vec![1]), context: Some(Arc::clone(&created.context)) };
        let NextStep::Call(_) = creation.stepped(step).unwrap() else { panic!("no request") };
        creation
    };
    let reply = |gss_major, token: &'static [u8]| {
        let (handle, gss_token) = (Bytes::from_static(b"handle"), Bytes::from_static(token));
        let results = RpcGssInitRes { handle, gss_major, gss_minor: 0, seq_window: 5, gss_token };
        ControlReply {
            verifier: gss_auth(created.context.get_mic(&5_u32.to_be_bytes()).unwrap().into()),
            outcome: Ok(()),
            results: encode_to_bytes(&results).unwrap(),
        }
    };
    let NextStep::Done(done) = begin().received(reply(major::COMPLETE, b"")).unwrap() else { panic!("not complete") };
    assert_eq!((&done.handle[..], done.window), (&b"handle"[..], 5));
    for (status, token, words) in [
        (major::CONTINUE_NEEDED, &b""[..], "expects another token"),
        (major::CONTINUE_NEEDED, b"token", "sent a token"),
        (major::COMPLETE, b"token", "sent a token"),
    ] {
        let error = begin().received(reply(status, token)).unwrap_err();
        assert!(error.0.contains(words), "{error}");
    }
}

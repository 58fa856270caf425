//! Data requests at server and client, and the limits, the expiry and the destruction of contexts (RFC 2203 §5.3.3,
//! §5.4).

use std::{sync::atomic::Ordering, time::Duration};

use super::*;
use crate::{
    gss::{
        body::BodyProtection,
        client::{ClientContext, NoNumber},
        contexts::ContextHandle,
        wire::{MAXSEQ, RpcGssInitArg},
    },
    security::{BlockingQueue, ProtectionLevel, Secured},
};

fn established(config: GssServerConfig) -> (TestServer, CreatedContext, Instant) {
    let (server, now) = (TestServer::new(config), Instant::now());
    let created = create(&server, &client(), now).unwrap();
    (server, created, now)
}

/// Returns the client's side of a context.
fn client_context(created: &CreatedContext, now: Instant) -> Arc<ClientContext> {
    let CreatedContext { context, handle, window } = created;
    let created = CreatedContext { context: Arc::clone(context), handle: handle.clone(), window: *window };
    Arc::new(ClientContext::new(created, 2, 3, now))
}

fn is_accepted(authentication: &Authentication) -> bool {
    matches!(authentication, Authentication::Accepted(_))
}

fn is_discarded(authentication: &Authentication) -> bool {
    matches!(authentication, Authentication::Discarded)
}

/// RFC 2203 §5.3.3.1: each number is accepted once. Repeated numbers and numbers below the window are silently
/// discarded.
#[test]
fn replayed_calls_are_discarded() {
    let (server, created, now) = established(GssServerConfig { sequence_window: 8, ..GssServerConfig::default() });
    for sequence in [5, 3, 20, 13] {
        assert!(is_accepted(&server.data(&created, sequence, 1, now)), "{sequence}");
    }
    for sequence in [20, 13, 12, 5, 0] {
        assert!(is_discarded(&server.data(&created, sequence, 1, now)), "{sequence}");
    }
    assert!(is_accepted(&server.data(&created, 14, 1, now)));
}

/// RFC 2203 §5.3.3.1, §7.2.1: the window moves only if the verifier is valid.
#[test]
fn forged_calls_do_not_move_the_window() {
    let (server, created, now) = established(GssServerConfig { sequence_window: 8, ..GssServerConfig::default() });
    let mut forged = TestCall::signed(&created, RpcGssProcT::RpcsecGssData, 1000, 1, now);
    let mut mic = forged.header.verifier.body.to_vec();
    for byte in 0..mic.len() {
        mic[byte] ^= 1;
        forged.header.verifier = gss_auth(mic.clone().into());
        // RFC 2203 §5.3.3.3, §5.3.3.4.2.
        assert_eq!(rejected(server.receive(&forged)), AuthStat::RpcsecGssCredproblem);
        mic[byte] ^= 1;
    }
    // The verifier covers all of the header.
    let changes: [fn(&mut CallHeader); 3] =
        [|header| header.xid += 1, |header| header.program += 1, |header| header.procedure += 1];
    for change in changes {
        let mut forged = TestCall::signed(&created, RpcGssProcT::RpcsecGssData, 1000, 1, now);
        change(&mut forged.header);
        assert_eq!(rejected(server.receive(&forged)), AuthStat::RpcsecGssCredproblem);
    }
    forged.header.verifier = OpaqueAuth::none();
    assert_eq!(rejected(server.receive(&forged)), AuthStat::AuthBadverf);
    assert!(is_accepted(&server.data(&created, 1, 1, now)));
    // RFC 2203 §7.2.2: a repeated number is discarded before its checksum is verified.
    let mut forged = TestCall::signed(&created, RpcGssProcT::RpcsecGssData, 1, 1, now);
    forged.header.verifier = gss_auth(Bytes::from_static(b"forgery!"));
    assert!(is_discarded(&server.receive(&forged)));
}

/// RFC 2203 §5.3.3.3: the status of the denial for an illegal service, an unknown handle, the handle of another
/// context, a sequence number above the maximum, and an expired context.
#[test]
fn denials() {
    let config = GssServerConfig { max_lifetime: Duration::from_secs(60), ..GssServerConfig::default() };
    let (server, created, now) = established(config);
    // An illegal service.
    for service in [0, 4, u32::MAX] {
        assert_eq!(rejected(server.data(&created, 1, service, now)), AuthStat::AuthBadcred);
    }
    // A handle that belongs to no context, as after a restart.
    for handle in [&[0; 16][..], &[1; 15], &[]] {
        let other =
            CreatedContext { handle: Bytes::copy_from_slice(handle), context: Arc::clone(&created.context), window: 1 };
        assert_eq!(rejected(server.data(&other, 1, 1, now)), AuthStat::RpcsecGssCredproblem);
    }
    // A context with the handle of another.
    let second = create(&server, &client(), now).unwrap();
    let swapped = CreatedContext { handle: second.handle, context: Arc::clone(&created.context), window: 1 };
    assert_eq!(rejected(server.data(&swapped, 1, 1, now)), AuthStat::RpcsecGssCredproblem);
    // The sequence number exceeds the maximum.
    assert_eq!(rejected(server.data(&created, MAXSEQ + 1, 1, now)), AuthStat::RpcsecGssCtxproblem);
    assert!(is_accepted(&server.data(&created, MAXSEQ - 1, 1, now)));
    assert!(is_accepted(&server.data(&created, MAXSEQ, 1, now)));
    // The context has expired.
    let late = now + Duration::from_secs(60);
    assert_eq!(rejected(server.data(&created, MAXSEQ, 1, late)), AuthStat::RpcsecGssCtxproblem);
    assert_eq!(rejected(server.data(&created, MAXSEQ, 1, late)), AuthStat::RpcsecGssCredproblem, "destroyed");
}

/// RFC 2203 §5.3.3.3: a call is denied with CTXPROBLEM if the mechanism reports that the context has expired.
#[test]
fn expired_contexts_of_the_mechanism() {
    let now = Instant::now();
    let mut server = TestServer::new(GssServerConfig::default());
    let created = create(&server, &client(), now).unwrap();
    server.mechanism.lifetime = Some(Duration::ZERO);
    // The server's clock lags behind that of the mechanism.
    let earlier = now - Duration::from_secs(1);
    let short = create(&server, &client(), earlier).unwrap();
    assert_eq!(rejected(server.data(&short, 1, 1, earlier - Duration::from_secs(1))), AuthStat::RpcsecGssCtxproblem);
    assert!(is_accepted(&server.data(&created, 1, 1, now)));
}

/// RFC 2203 §5.2.1: a server refuses data requests whose service is weaker than its policy requires. It accepts
/// requests to destroy a context even with the service `none`.
#[test]
fn weak_services_are_refused() {
    let config = GssServerConfig { min_level: ProtectionLevel::Integrity, ..GssServerConfig::default() };
    let (server, created, now) = established(config);
    assert_eq!(rejected(server.data(&created, 1, 1, now)), AuthStat::AuthTooweak);
    let Authentication::Accepted(caller) = server.data(&created, 2, 2, now) else { panic!("refused") };
    assert!(caller.protection().is_some());
    assert_eq!(caller.principal.unwrap().level, ProtectionLevel::Integrity);
    let Authentication::Accepted(caller) = server.data(&created, 3, 3, now) else { panic!("refused") };
    assert_eq!(caller.principal.unwrap().level, ProtectionLevel::Privacy);
    // Each service with each limit.
    let levels = [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];
    for min_level in levels {
        let (server, created, now) = established(GssServerConfig { min_level, ..GssServerConfig::default() });
        for (level, number) in levels.into_iter().zip(1..) {
            match server.data(&created, number, number, now) {
                Authentication::Accepted(caller) => {
                    let principal = caller.principal.unwrap();
                    assert_eq!((&*principal.name, principal.level), ("alice@TEST", level));
                    assert!(level >= min_level);
                }
                other => assert!(rejected(other) == AuthStat::AuthTooweak && level < min_level),
            }
        }
        // RFC 2203 §5.4: a request without arguments has nothing to protect.
        let destroy = TestCall::signed(&created, RpcGssProcT::RpcsecGssDestroy, 4, 1, now);
        let Authentication::Answered(_) = server.receive(&destroy) else { panic!("{min_level:?}") };
        assert_eq!(server.server.contexts.counts(), (0, 0));
    }
}

/// RFC 2203 §5.3.3.2: the verifier of a reply is the checksum of the call's sequence number. §5.3.3.4.1: if the
/// verifier cannot be created, the call is denied with CTXPROBLEM.
#[test]
fn verifiers_of_replies() {
    let (server, created, now) = established(GssServerConfig::default());
    let Authentication::Accepted(caller) = server.data(&created, 7, 1, now) else { panic!("refused") };
    assert!(caller.protection().is_none());
    let security = caller.security.unwrap();
    let expected = gss_auth(created.context.get_mic(&7_u32.to_be_bytes()).unwrap().into());
    assert_eq!(security.verifier(), Ok(expected));
    // The call is denied before it is executed.
    let call = TestCall::signed(&created, RpcGssProcT::RpcsecGssData, 8, 1, now);
    server.mechanism.faults.get_mic.store(true, Ordering::Relaxed);
    assert_eq!(rejected(server.receive(&call)), AuthStat::RpcsecGssCtxproblem);
}

/// RFC 2203 §5.4: a valid request destroys its context. Requests with another procedure than 0, a repeated sequence
/// number or a forged verifier do not.
#[test]
fn contexts_are_destroyed() {
    let (server, created, now) = established(GssServerConfig::default());
    let destroy = |sequence| TestCall::signed(&created, RpcGssProcT::RpcsecGssDestroy, sequence, 1, now);
    let mut call = destroy(5);
    call.header.procedure = 1;
    call.sign(&*created.context);
    assert_eq!(rejected(server.receive(&call)), AuthStat::AuthBadcred);
    // The sequence number and the verifier must be valid.
    assert!(is_accepted(&server.data(&created, 5, 1, now)));
    assert!(is_discarded(&server.receive(&destroy(5))));
    let mut call = destroy(6);
    call.header.verifier = gss_auth(Bytes::from_static(b"forgery!"));
    assert_eq!(rejected(server.receive(&call)), AuthStat::RpcsecGssCredproblem);
    assert_eq!(server.server.contexts.counts(), (1, 0));

    let created = client_context(&created, now);
    created.set_next(6);
    let (call, security) = created.destruction().unwrap();
    let Authentication::Answered(reply) = server.receive(&TestCall::control(&call, now)) else { panic!("refused") };
    assert_eq!((reply.outcome, reply.results.len()), (Ok(()), 0));
    security.verify(&reply.verifier).unwrap();
    assert_eq!(server.server.contexts.counts(), (0, 0));
    let Authentication::Rejected(failure) = server.receive(&TestCall::control(&call, now)) else { panic!("accepted") };
    assert_eq!(failure.stat(), Some(AuthStat::RpcsecGssCredproblem));
}

/// RFC 2203 §5.4: the response has the form of a response to a data request, so its empty results have the protection
/// that the credential requests.
#[test]
fn replies_about_destroyed_contexts_are_protected() {
    let levels = [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];
    for (service, level) in (1..).zip(levels) {
        let (server, created, now) = established(GssServerConfig::default());
        let call = TestCall::signed(&created, RpcGssProcT::RpcsecGssDestroy, 5, service, now);
        let Authentication::Answered(reply) = server.receive(&call) else { panic!("refused") };
        assert_eq!(reply.outcome, Ok(()));
        match BodyProtection::of(&created.context, &BlockingQueue::new(), 5, level) {
            Some(protection) => assert_eq!(protection.unwrap(reply.results).unwrap(), Bytes::new(), "{level:?}"),
            None => assert_eq!(reply.results, Bytes::new()),
        }
        assert_eq!(server.server.contexts.counts(), (0, 0));
    }
}

/// RFC 2203 §5.4: a request with an invalid sequence number or verifier destroys nothing.
#[test]
fn invalid_requests_destroy_no_context() {
    let (server, created, now) = established(GssServerConfig { sequence_window: 8, ..GssServerConfig::default() });
    let second = create(&server, &client(), now).unwrap();
    let destroy = |sequence| TestCall::signed(&created, RpcGssProcT::RpcsecGssDestroy, sequence, 1, now);
    assert!(is_accepted(&server.data(&created, 20, 1, now)));
    for sequence in [20, 12, 0] {
        assert!(is_discarded(&server.receive(&destroy(sequence))), "{sequence}");
    }
    assert_eq!(rejected(server.receive(&destroy(MAXSEQ + 1))), AuthStat::RpcsecGssCtxproblem);
    let mut call = destroy(21);
    call.header.verifier = destroy(22).header.verifier;
    assert_eq!(rejected(server.receive(&call)), AuthStat::RpcsecGssCredproblem);
    call.header.verifier = OpaqueAuth::none();
    assert_eq!(rejected(server.receive(&call)), AuthStat::AuthBadverf);
    // The handle of another context.
    let swapped = CreatedContext { handle: second.handle.clone(), context: Arc::clone(&created.context), window: 1 };
    let call = TestCall::signed(&swapped, RpcGssProcT::RpcsecGssDestroy, 21, 1, now);
    assert_eq!(rejected(server.receive(&call)), AuthStat::RpcsecGssCredproblem);
    for context in [&created, &second] {
        assert!(is_accepted(&server.data(context, 21, 1, now)));
    }
    let Authentication::Answered(_) = server.receive(&destroy(22)) else { panic!("refused") };
    assert_eq!(rejected(server.data(&created, 23, 1, now)), AuthStat::RpcsecGssCredproblem);
    assert!(is_accepted(&server.data(&second, 22, 1, now)));
}

/// RFC 2203 §5.2.2, §5.4: control messages have procedure 0. With another procedure, they are denied and do not reach a
/// service. Data requests may have any procedure.
#[test]
fn control_messages_reach_no_service() {
    let (server, created, now) = established(GssServerConfig::default());
    for procedure in [RpcGssProcT::RpcsecGssInit, RpcGssProcT::RpcsecGssContinueInit, RpcGssProcT::RpcsecGssDestroy] {
        for number in [1, u32::MAX] {
            let mut call = TestCall::signed(&created, procedure, 5, 1, now);
            call.header.procedure = number;
            call.sign(&*created.context);
            assert_eq!(rejected(server.receive(&call)), AuthStat::AuthBadcred, "{procedure:?}");
        }
    }
    for number in [0, 1, u32::MAX] {
        let mut call = TestCall::signed(&created, RpcGssProcT::RpcsecGssData, number.min(9), 1, now);
        call.header.procedure = number;
        call.sign(&*created.context);
        assert!(is_accepted(&server.receive(&call)), "{number}");
    }
}

/// RFC 2203 §5.4: a context expires after the mechanism's lifetime or the server's limit, whichever is shorter. The
/// server refuses calls in the last 10 s of that time, or in its last tenth if that is shorter.
#[test]
fn lifetimes_of_mechanism_and_server() {
    let now = Instant::now();
    for (of_mechanism, limit, end) in
        [(None, 60, 54), (Some(30), 60, 27), (Some(90), 60, 54), (Some(60), 6000, 54), (Some(9000), 6000, 5990)]
    {
        let max_lifetime = Duration::from_secs(limit);
        let mut server = TestServer::new(GssServerConfig { max_lifetime, ..GssServerConfig::default() });
        server.mechanism.lifetime = of_mechanism.map(Duration::from_secs);
        let created = create(&server, &client(), now).unwrap();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(is_accepted(&server.data(&created, 1, 1, at(end - 1))), "{of_mechanism:?}, {limit}");
        let stat = rejected(server.data(&created, 2, 1, at(end)));
        assert_eq!(stat, AuthStat::RpcsecGssCtxproblem, "{of_mechanism:?}, {limit}");
    }
}

/// The limit for each host counts the contexts of all its users. The total limit counts the contexts of all hosts. The
/// context of a user at one host may be used from another host.
#[test]
fn limits_of_hosts_with_several_users() {
    let config = GssServerConfig { max_contexts: 3, max_contexts_per_address: 2, ..GssServerConfig::default() };
    let (mut server, now) = (TestServer::new(config), Instant::now());
    let mut create_at = |peer: &str, user: &str| {
        server.peer = peer.parse().unwrap();
        create(&server, &InsecureTestMechanism::new(KEY, user), now).unwrap()
    };
    let elsewhere = create_at("192.0.2.1:1", "alice@TEST");
    let [alice, bob, carol] = ["alice@TEST", "bob@TEST", "carol@TEST"].map(|user| create_at("192.0.2.9:1", user));
    assert_eq!(server.server.contexts.counts(), (3, 0));
    assert_eq!(rejected(server.data(&alice, 1, 1, now)), AuthStat::RpcsecGssCredproblem);
    for (kept, user) in [(&elsewhere, "alice@TEST"), (&bob, "bob@TEST"), (&carol, "carol@TEST")] {
        let Authentication::Accepted(caller) = server.data(kept, 1, 1, now) else { panic!("{user}") };
        assert_eq!(caller.principal.unwrap().name, user);
    }
    // A third host displaces the context that was not used for the longest time, of whichever host.
    server.peer = "192.0.2.2:1".parse().unwrap();
    let other = create(&server, &client(), now).unwrap();
    assert_eq!(rejected(server.data(&elsewhere, 2, 1, now)), AuthStat::RpcsecGssCredproblem);
    assert!([&bob, &carol, &other].into_iter().all(|kept| is_accepted(&server.data(kept, 2, 1, now))));
}

/// RFC 2203 §5.4: the server removes contexts that clients leave behind. At the limit, it removes all expired contexts,
/// or else the context that was not used by an authentic call for the longest time.
#[test]
fn the_least_recently_used_context_is_evicted() {
    let config =
        GssServerConfig { max_contexts: 3, max_lifetime: Duration::from_secs(60), ..GssServerConfig::default() };
    let (server, now) = (TestServer::new(config), Instant::now());
    let [a, b, c] = [(); 3].map(|()| create(&server, &client(), now).unwrap());
    assert!(is_accepted(&server.data(&a, 1, 1, now)));
    // A forged call is no use of the context.
    let mut forged = TestCall::signed(&b, RpcGssProcT::RpcsecGssData, 1, 1, now);
    forged.header.verifier = gss_auth(Bytes::from_static(b"forgery!"));
    assert_eq!(rejected(server.receive(&forged)), AuthStat::RpcsecGssCredproblem);
    let d = create(&server, &client(), now).unwrap();
    assert_eq!(server.server.contexts.counts(), (3, 0));
    assert_eq!(rejected(server.data(&b, 1, 1, now)), AuthStat::RpcsecGssCredproblem);
    for kept in [&a, &c, &d] {
        assert!(is_accepted(&server.data(kept, 2, 1, now)));
    }
    // Expired contexts make room first.
    let late = now + Duration::from_secs(60);
    let e = create(&server, &client(), late).unwrap();
    assert_eq!(server.server.contexts.counts(), (1, 0));
    assert!(is_accepted(&server.data(&e, 1, 1, late)));
}

/// RFC 2203 §5.4: contexts are evicted in the order of their last use, whenever they were created.
#[test]
fn contexts_are_evicted_in_the_order_of_their_use() {
    let config = GssServerConfig { max_contexts: 6, ..GssServerConfig::default() };
    let (server, now) = (TestServer::new(config), Instant::now());
    let contexts = [(); 6].map(|()| create(&server, &client(), now).unwrap());
    let order = [3, 0, 5, 2, 4, 1];
    for index in order {
        assert!(is_accepted(&server.data(&contexts[index], 1, 1, now)));
    }
    for index in order {
        let is_kept = |created: &CreatedContext| {
            let handle = ContextHandle::of(&created.handle).unwrap();
            server.server.contexts.find(handle).is_some()
        };
        assert!(is_kept(&contexts[index]));
        create(&server, &client(), now).unwrap();
        assert!(!is_kept(&contexts[index]), "{index}");
    }
}

/// RFC 2203 §5.3.3.3: a client learns that its context has expired, as long as there is room for the context.
#[test]
fn expired_contexts_stay_while_there_is_room() {
    let config =
        GssServerConfig { max_contexts: 3, max_lifetime: Duration::from_secs(60), ..GssServerConfig::default() };
    let (server, created, now) = established(config);
    let late = now + Duration::from_secs(60);
    create(&server, &client(), late).unwrap();
    assert_eq!(server.server.contexts.counts(), (2, 0));
    assert_eq!(rejected(server.data(&created, 1, 1, late)), AuthStat::RpcsecGssCtxproblem);
    assert_eq!(server.server.contexts.counts(), (1, 0));
}

/// While a large body of a context is in progress, calls with this context do not wait in the task of their connection.
/// Other calls do not wait at all.
#[test]
fn calls_of_a_busy_context_leave_the_task() {
    let (server, created, now) = established(GssServerConfig::default());
    let queue = server.server.contexts.find(ContextHandle::of(&created.handle).unwrap()).unwrap().queue.clone();
    let decide = |procedure, sequence, may_block| {
        let call = TestCall::signed(&created, procedure, sequence, 1, now);
        server.decide_on(&call, may_block)
    };
    let of_a_creation = |may_block| {
        let credential = GssCredential {
            procedure: RpcGssProcT::RpcsecGssContinueInit,
            sequence: 0,
            service: 1,
            handle: created.handle.clone(),
        };
        let mut call = TestCall::new(&credential, OpaqueAuth::none(), now);
        call.arguments = encode_to_bytes(&RpcGssInitArg { gss_token: Bytes::from_static(b"token") }).unwrap();
        server.decide_on(&call, may_block)
    };
    queue.run_here(true, || {
        for procedure in [RpcGssProcT::RpcsecGssData, RpcGssProcT::RpcsecGssDestroy] {
            assert!(matches!(decide(procedure, 1, false), Decision::Busy(_)), "{procedure:?}");
        }
        assert!(matches!(decide(RpcGssProcT::RpcsecGssData, 1, true), Decision::Done(Authentication::Accepted(_))));
        for may_block in [false, true] {
            assert!(matches!(of_a_creation(may_block), Decision::Done(Authentication::Answered(_))));
        }
    });
    let decision = decide(RpcGssProcT::RpcsecGssData, 2, false);
    assert!(matches!(decision, Decision::Done(Authentication::Accepted(_))));
    // At the client, verifiers wait as well.
    let context = client_context(&created, now);
    let Secured { call, .. } = context.secure(ProtectionLevel::Integrity).unwrap().unwrap();
    let body = call.protection().unwrap().queue();
    body.run_here(true, || assert!(call.queue().unwrap().try_run(|| ()).is_err()));
    assert!(call.queue().unwrap().try_run(|| ()).is_ok());
}

/// RFC 5531 §8.2: a credential has at most 400 bytes, 20 of which are before the handle. A call whose credential cannot
/// be encoded counts as ended.
#[test]
fn handles_may_be_too_long() {
    let (_, created, now) = established(GssServerConfig::default());
    let with_handle = |len| {
        let CreatedContext { context, window, .. } = &created;
        let created = CreatedContext { context: Arc::clone(context), handle: vec![7; len].into(), window: *window };
        Arc::new(ClientContext::new(created, 2, 3, now))
    };
    let context = with_handle(380);
    context.secure(ProtectionLevel::Integrity).unwrap().unwrap().call.ended();
    assert!(context.destruction().is_some());
    for len in [381, 500] {
        let context = with_handle(len);
        let error = context.secure(ProtectionLevel::Integrity).unwrap_err();
        assert!(error.0.contains("the context handle is too long"), "{error}");
        assert!(context.destruction().is_none() && context.is_idle());
    }
}

/// RFC 2203 §5.2.3.1, §5.3.1: a client has no more calls outstanding than the window allows, and stops below MAXSEQ.
#[test]
fn sequence_numbers_of_a_client() {
    let (_, created, now) = established(GssServerConfig { sequence_window: 4, ..GssServerConfig::default() });
    let context = Arc::new(ClientContext::new(created, 2, 3, now));
    let secure = || context.secure(ProtectionLevel::Privacy).unwrap();
    let number = |credential: &OpaqueAuth| GssCredential::decode(&credential.body).unwrap().sequence;
    context.set_next(11);
    let mut calls: Vec<_> = (0..4).map(|_| secure().unwrap()).collect();
    assert_eq!(calls.iter().map(|call| number(&call.credential)).collect::<Vec<_>>(), [11, 12, 13, 14]);
    assert_eq!(secure().unwrap_err(), NoNumber::WindowFull);
    // The oldest call holds the window, because the server would discard it otherwise.
    calls.pop().unwrap().call.ended();
    assert_eq!(secure().unwrap_err(), NoNumber::WindowFull);
    calls.remove(0).call.ended();
    calls.push(secure().unwrap());
    assert_eq!(number(&calls[2].credential), 15);
    assert_eq!(secure().unwrap_err(), NoNumber::WindowFull);
    calls.drain(..).for_each(|call| call.call.ended());
    assert!(context.is_idle());

    context.set_next(MAXSEQ - 2);
    let last = secure().unwrap();
    assert_eq!((number(&last.credential), secure().unwrap_err()), (MAXSEQ - 2, NoNumber::Exhausted));
    // RFC 2203 §5.4: the client must destroy the context, which needs a number as well.
    let (destruction, _) = context.destruction().unwrap();
    assert_eq!(number(&destruction.credential), MAXSEQ - 1);
    assert!(context.destruction().is_none());
}

/// RFC 2203 §5.3.3.3: only RPCSEC_GSS_CREDPROBLEM and RPCSEC_GSS_CTXPROBLEM require a new context.
#[test]
fn denials_that_require_a_new_context() {
    let (_, created, now) = established(GssServerConfig::default());
    let problems = [AuthStat::RpcsecGssCredproblem, AuthStat::RpcsecGssCtxproblem].map(AuthFailure::from);
    for failure in (0..=20).chain([u32::MAX]).map(AuthFailure) {
        let context = client_context(&created, now);
        let Secured { call, .. } = context.secure(ProtectionLevel::Integrity).unwrap().unwrap();
        assert_eq!(call.denied(failure), problems.contains(&failure), "{failure:?}");
        assert_eq!(context.is_usable(now), !problems.contains(&failure), "{failure:?}");
    }
}

/// RFC 2203 §5.2.3.1, §5.3.1, §5.4: the credentials of all requests have the handle of the context, and a number of
/// their own.
#[test]
fn credentials_of_requests() {
    let (_, created, now) = established(GssServerConfig::default());
    let context = client_context(&created, now);
    let check = |credential: &OpaqueAuth, procedure, sequence, service| {
        let expected = GssCredential { procedure, sequence, service, handle: created.handle.clone() };
        assert_eq!((credential.flavor, GssCredential::decode(&credential.body).unwrap()), (6, expected));
    };
    let levels = [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];
    for (level, number) in levels.into_iter().zip(1..) {
        let Secured { credential, call } = context.secure(level).unwrap().unwrap();
        check(&credential, RpcGssProcT::RpcsecGssData, number, number);
        call.ended();
    }
    let (call, _) = context.destruction().unwrap();
    check(&call.credential, RpcGssProcT::RpcsecGssDestroy, 4, 1);
    assert_eq!((call.program, call.version, call.arguments.len(), call.max_results), (2, 3, 0, 0));
}

/// RFC 2203 §5.3.2, §5.3.3.2: each side accepts the arguments or results of the other side, with the protection that
/// the service of the call provides.
#[test]
fn services_of_calls() {
    let (server, created, now) = established(GssServerConfig::default());
    let context = client_context(&created, now);
    let body = Bytes::from_static(b"four words here!");
    for level in [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy] {
        let Secured { credential, call } = context.secure(level).unwrap().unwrap();
        let mut arrived = TestCall::new(&GssCredential::decode(&credential.body).unwrap(), OpaqueAuth::none(), now);
        arrived.header.verifier = call.seal(&arrived.header_bytes()).unwrap();
        let Authentication::Accepted(caller) = server.receive(&arrived) else { panic!("refused") };
        call.verify(&caller.security.as_ref().unwrap().verifier().unwrap()).unwrap();
        let (at_client, at_server) = (call.protection(), caller.protection());
        assert_eq!(at_client.is_none(), level == ProtectionLevel::Authentication);
        assert_eq!(at_server.is_none(), level == ProtectionLevel::Authentication);
        for (sender, receiver) in [(&at_client, &at_server), (&at_server, &at_client)] {
            let (Some(sender), Some(receiver)) = (sender, receiver) else { continue };
            let sent = sender.wrap(body.clone()).unwrap();
            let is_visible = sent.windows(body.len()).any(|window| window == body);
            assert_eq!(is_visible, level == ProtectionLevel::Integrity);
            assert_eq!(receiver.unwrap(sent).unwrap(), body);
        }
        call.ended();
    }
}

/// RFC 2203 §5.3.3.2: a client accepts only the checksum of the call's sequence number in network order.
#[test]
fn clients_check_verifiers_of_replies() {
    let (_, created, now) = established(GssServerConfig::default());
    let context = client_context(&created, now);
    context.set_next(7);
    let Secured { call, .. } = context.secure(ProtectionLevel::Authentication).unwrap().unwrap();
    let mic = |message: &[u8]| Bytes::from(created.context.get_mic(message).unwrap());
    let right = mic(&7_u32.to_be_bytes());
    call.verify(&gss_auth(right.clone())).unwrap();
    for wrong in [&6_u32.to_be_bytes()[..], &8_u32.to_be_bytes(), &7_u32.to_le_bytes(), &[]] {
        call.verify(&gss_auth(mic(wrong))).unwrap_err();
    }
    call.verify(&gss_auth(Bytes::new())).unwrap_err();
    call.verify(&gss_auth(right.slice(1..))).unwrap_err();
    call.verify(&OpaqueAuth::none()).unwrap_err();
    call.verify(&OpaqueAuth { body: right, ..OpaqueAuth::none() }).unwrap_err();
}

/// A client uses a context until 20 s before the end of its lifetime. If the lifetime is shorter than 40 s, it uses the
/// context for half of the lifetime.
#[tokio::test(start_paused = true)]
async fn contexts_are_not_used_until_the_last_moment() {
    let now = tokio::time::Instant::now().into_std();
    let server = TestServer::new(GssServerConfig::default());
    for (lifetime, end) in [(1000, 980), (40, 20), (10, 5)] {
        let mut mechanism = client();
        mechanism.lifetime = Some(Duration::from_secs(lifetime));
        let context = ClientContext::new(create(&server, &mechanism, now).unwrap(), 2, 3, now);
        let end = now + Duration::from_secs(end);
        assert!(context.is_usable(end - Duration::from_nanos(1)) && !context.is_usable(end), "{lifetime}");
    }
}

/// RFC 2203 §5.2.3.1, §5.3.3.2: the server's signature of its window is not the verifier of a reply to any call.
#[test]
fn the_signature_of_the_window_is_no_verifier() {
    let (server, created, now) = established(GssServerConfig { sequence_window: 3, ..GssServerConfig::default() });
    let signature = gss_auth(created.context.get_mic(&3_u32.to_be_bytes()).unwrap().into());
    let context = Arc::new(ClientContext::new(created, 2, 3, now));
    for expected in [1, 2, 4, 5] {
        let Secured { credential, call } = context.secure(ProtectionLevel::Authentication).unwrap().unwrap();
        assert_eq!(GssCredential::decode(&credential.body).unwrap().sequence, expected);
        assert!(call.verify(&signature).is_err());
        call.ended();
    }
    assert_eq!(server.server.contexts.counts(), (1, 0));
}

/// One host displaces only its own contexts. An IPv4-mapped address belongs to the IPv4 host, and all IPv6 addresses
/// with the same first 64 bits belong to one host.
#[test]
fn contexts_are_limited_for_each_host() {
    let config = GssServerConfig { max_contexts: 8, max_contexts_per_address: 2, ..GssServerConfig::default() };
    let (mut server, now) = (TestServer::new(config), Instant::now());
    let mut create_at = |peer: &str| {
        server.peer = peer.parse().unwrap();
        create(&server, &client(), now).unwrap()
    };
    let honest = create_at("192.0.2.1:700");
    let [first, second, third] = [1, 2, 3].map(|port| create_at(&format!("192.0.2.9:{port}")));
    // An address in IPv6 form is the same address, and a host has all addresses of its prefix.
    let mapped = create_at("[::ffff:192.0.2.9]:4");
    let [v6, same, next] =
        [("1", "a"), ("1", "b"), ("1", "c")].map(|(net, host)| create_at(&format!("[2001:db8:0:{net}::{host}]:5")));
    let other = create_at("[2001:db8:0:2::a]:5");
    let is_kept = |context: &CreatedContext| is_accepted(&server.data(context, 1, 1, now));
    assert!([&honest, &third, &mapped, &same, &next, &other].into_iter().all(is_kept));
    for dropped in [&first, &second, &v6] {
        assert_eq!(rejected(server.data(dropped, 1, 1, now)), AuthStat::RpcsecGssCredproblem);
    }
}

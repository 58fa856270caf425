//! Sealed calls and protected bodies (RFC 8166 §8.2.2.3, RPC-over-RDMA v2 §11.2.2.3).
//!
//! A stand-in for RPCSEC_GSS computes verifiers as a keyed hash over the data that RFC 2203 names. It protects a body
//! by scrambling it and prepending a sequence number and a checksum.

use std::{
    collections::HashSet,
    error::Error as _,
    hash::{DefaultHasher, Hasher},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    engine::{ConnectionCounters, Versions},
    error::CallFailure,
    rpc::{AuthFailure, AuthStat, CallHeader, Credential, OpaqueAuth, RpcError},
    security::{
        AuthenticatedCaller, Authentication, Authenticator, CallSecurity, Protection, ReceivedCall, ReplySecurity,
        Seal, Secured, Security, SecurityError, SecurityFuture, SecurityLink, UnwrapError,
    },
    server::Server,
    service::ProcedureId,
};
use tokio::sync::Semaphore;

/// An unassigned flavor.
const FLAVOR: u32 = 300_555;
/// Number of bytes that wrapping adds.
const WRAPPING: usize = 8;

/// The protection of one call, with a shared key.
#[derive(Debug)]
struct Scrambled {
    key: u8,
    sequence: u32,
    /// `true` if every attempt to protect a body fails.
    fails: bool,
}

/// Returns the authentication code of a message under a key.
fn mac(key: u8, message: &[u8]) -> [u8; 8] {
    // `DefaultHasher` is SipHash, a keyed hash.
    let mut hasher = DefaultHasher::new();
    hasher.write(&[key; 16]);
    hasher.write(message);
    hasher.finish().to_be_bytes()
}

fn checksum(body: &[u8], key: u8) -> u32 {
    body.iter().fold(u32::from(key), |sum, &byte| sum.rotate_left(5) ^ u32::from(byte).wrapping_mul(0x9e37_79b9))
}

impl Protection for Scrambled {
    fn wrap(&self, body: Bytes) -> Result<Bytes, SecurityError> {
        assert_eq!(body.len() % 4, 0, "XDR");
        if self.fails {
            return Err(SecurityError("the context has been destroyed".into()));
        }
        let scrambled: Vec<u8> = body.iter().map(|byte| byte ^ self.key).collect();
        let (sequence, sum) = (self.sequence.to_be_bytes(), checksum(&scrambled, self.key).to_be_bytes());
        Ok([&sequence[..], &sum, &scrambled].concat().into())
    }

    fn unwrap(&self, body: Bytes) -> Result<Bytes, UnwrapError> {
        let bad = |what: &str| UnwrapError::from(SecurityError(what.into()));
        let (head, scrambled) = body.split_at_checked(WRAPPING).ok_or_else(|| bad("body too short"))?;
        if head[..4] != self.sequence.to_be_bytes() {
            return Err(bad("body of another call"));
        }
        if head[4..] != checksum(scrambled, self.key).to_be_bytes() {
            return Err(bad("body checksum mismatch"));
        }
        Ok(scrambled.iter().map(|byte| byte ^ self.key).collect::<Vec<u8>>().into())
    }

    fn max_wrapped(&self, len: u64) -> u64 {
        len.saturating_add(WRAPPING as u64)
    }
}

fn opaque(bytes: &[u8]) -> OpaqueAuth {
    OpaqueAuth { flavor: FLAVOR, body: Bytes::copy_from_slice(bytes) }
}

/// The security of one call. It seals the call and verifies its reply.
#[derive(Debug)]
struct Mic {
    key: u8,
    sequence: u32,
    /// The headers that the context was asked to seal, each up to the end of the credential.
    sealed: Arc<Mutex<Vec<Bytes>>>,
    protects: bool,
    /// `true` if the call is to be secured again after a denial and after a failure to seal it.
    secures_again: bool,
}

impl Seal for Mic {
    // RFC 2203 §5.3.1.
    fn seal(&self, header: &[u8]) -> Result<OpaqueAuth, SecurityError> {
        self.sealed.lock().unwrap().push(Bytes::copy_from_slice(header));
        if self.sequence == UNSEALED {
            return Err(SecurityError("the context has been destroyed".into()));
        }
        Ok(opaque(&mac(self.key, header)))
    }
}

impl CallSecurity for Mic {
    // RFC 2203 §5.3.3.2.
    fn verify(&self, verifier: &OpaqueAuth) -> Result<(), SecurityError> {
        let expected = opaque(&mac(self.key, &self.sequence.to_be_bytes()));
        if *verifier == expected { Ok(()) } else { Err(SecurityError("verifier not from the server".into())) }
    }

    fn protection(&self) -> Option<Arc<dyn Protection>> {
        let scrambled = || Arc::new(Scrambled { key: self.key, sequence: self.sequence, fails: false });
        self.protects.then(|| scrambled() as Arc<dyn Protection>)
    }

    fn denied(&self, _failure: AuthFailure) -> bool {
        self.secures_again
    }

    fn expired(&self) -> bool {
        self.secures_again
    }
}

/// Sequence number of the call for which `secure` fails.
const EXPIRED: u32 = 1000;
/// Sequence number of the call for which `seal` fails.
const UNSEALED: u32 = 2000;

/// The client's security context.
#[derive(Debug, Default)]
struct Context {
    key: u8,
    /// `true` if bodies are left unprotected.
    authentication_only: bool,
    /// `true` if calls are to be secured again after a denial and after a failure to seal them.
    secures_again: bool,
    sequence: AtomicU32,
    sealed: Arc<Mutex<Vec<Bytes>>>,
}

impl Security for Context {
    fn secure<'a>(
        &'a self,
        call: ProcedureId,
        link: SecurityLink<'a>,
    ) -> SecurityFuture<'a, Result<Secured, SecurityError>> {
        assert!(call.program > 0 && link.peer_addr().port() > 0);
        Box::pin(async {
            // A context that is not ready when the call starts.
            tokio::task::yield_now().await;
            let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
            if sequence == EXPIRED {
                return Err(SecurityError("the context has expired".into()));
            }
            let (key, protects) = (self.key, !self.authentication_only);
            let (sealed, secures_again) = (Arc::clone(&self.sealed), self.secures_again);
            let call = Arc::new(Mic { key, sequence, sealed, protects, secures_again });
            Ok(Secured { credential: opaque(&sequence.to_be_bytes()), call })
        })
    }
}

/// The server's authenticator.
#[derive(Debug, Clone, Default)]
struct Guard {
    key: u8,
    /// `true` if bodies are left unprotected.
    authentication_only: bool,
    /// `true` if replies get a wrong verifier.
    impostor: bool,
    /// The behavior of [`Reply`].
    reply: ReplyBehavior,
    /// The controls with which a test holds back the decisions. `None` to decide at once.
    slow: Option<Arc<SlowDecisions>>,
    /// The key of the bodies, if it differs from `key`.
    body_key: Option<u8>,
    let_in: Arc<AtomicUsize>,
    /// The sequence numbers and the signed headers of accepted calls.
    seen: Arc<Mutex<(HashSet<u32>, Vec<Bytes>)>>,
}

/// The behavior of [`Reply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ReplyBehavior {
    #[default]
    Works,
    /// No verifier can be made.
    FailsToSign,
    /// No results can be protected.
    FailsToWrap,
}

/// The security of one reply.
#[derive(Debug)]
struct Reply {
    key: u8,
    sequence: u32,
    body_key: Option<u8>,
    behavior: ReplyBehavior,
}

impl ReplySecurity for Reply {
    fn verifier(&self) -> Result<OpaqueAuth, AuthFailure> {
        match self.behavior {
            ReplyBehavior::FailsToSign => Err(AuthStat::RpcsecGssCtxproblem.into()),
            _ => Ok(opaque(&mac(self.key, &self.sequence.to_be_bytes()))),
        }
    }

    fn protection(&self) -> Option<Arc<dyn Protection>> {
        let (key, fails) = (self.body_key?, self.behavior == ReplyBehavior::FailsToWrap);
        Some(Arc::new(Scrambled { key, sequence: self.sequence, fails }))
    }
}

fn sequence(call: &CallHeader) -> Option<u32> {
    let body = call.credential.body.first_chunk().copied().map(u32::from_be_bytes);
    body.filter(|_| call.credential.flavor == FLAVOR)
}

impl Guard {
    fn decide(&self, call: &ReceivedCall<'_>) -> Result<AuthenticatedCaller, AuthFailure> {
        let (header, signed) = (call.header, call.signed);
        let sequence = sequence(header).ok_or(AuthFailure::from(AuthStat::AuthTooweak))?;
        // RFC 2203 §5.3.3.1: the verifier covers the header as received.
        if header.verifier != opaque(&mac(self.key, signed)) {
            return Err(AuthStat::RpcsecGssCredproblem.into());
        }
        let mut seen = self.seen.lock().unwrap();
        assert!(seen.0.insert(sequence), "sequence number used twice");
        seen.1.push(Bytes::copy_from_slice(signed));
        self.let_in.fetch_add(1, Ordering::Relaxed);
        let body_key = (!self.authentication_only).then(|| self.body_key.unwrap_or(self.key));
        let key = if self.impostor { !self.key } else { self.key };
        let security = Reply { key, sequence, body_key, behavior: self.reply };
        Ok(AuthenticatedCaller::new(Credential::Other(header.credential.clone())).with_security(Arc::new(security)))
    }
}

impl Authenticator for Guard {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        assert_eq!((call.peer_addr.port() > 0, call.local_addr.port() > 0), (true, true));
        let decision = self.decide(call).into();
        match self.slow.clone() {
            None => decision,
            Some(slow) => Authentication::Pending(Box::pin(async move {
                slow.waiting.fetch_add(1, Ordering::SeqCst);
                slow.gate.acquire().await.unwrap().forget();
                decision
            })),
        }
    }
}

async fn secured(transport: &Transport, guard: Guard, context: Context) -> (Running, Arc<State>, Channel) {
    // The tests are about chunks, which version 2 uses less often.
    secured_by(transport, guard, context, 1).await
}

async fn secured_by(
    transport: &Transport,
    guard: Guard,
    context: Context,
    version: u32,
) -> (Running, Arc<State>, Channel) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let server = transport.serve(Server::builder().service(service).authenticator(guard)).await;
    let channel =
        server.connect(Channel::builder().security(context).versions(Versions::try_from(version).unwrap())).await;
    (server, state, channel)
}

fn keyed(key: u8) -> (Guard, Context) {
    (Guard { key, ..Guard::default() }, Context { key, ..Context::default() })
}

/// Awaits a call. Returns its result and the counters of the channel. Four of them count this call only: the bytes that
/// the peer has read and written, the eligible bytes that were copied, and the registrations.
async fn cost<T>(channel: &Channel, call: impl Future<Output = T>) -> (T, ConnectionCounters) {
    let before = channel.counters();
    let result = call.await;
    let mut after = channel.counters();
    after.read_by_peer_bytes -= before.read_by_peer_bytes;
    after.written_by_peer_bytes -= before.written_by_peer_bytes;
    after.registrations -= before.registrations;
    after.copied_eligible_bytes -= before.copied_eligible_bytes;
    (result, after)
}

/// Length in bytes of the header of a call, with credential and verifier.
const CALL_HEADER: u64 = 24 + 8 + 4 + 8 + 8;
/// Length in bytes of the header of a reply, with verifier.
const REPLY_HEADER: u64 = 12 + 8 + 8 + 4;

async fn nothing_is_reduced(transport: Transport) {
    let (guard, context) = keyed(0x5a);
    let (_server, state, channel) = secured(&transport, guard, context).await;
    let rdma = !matches!(transport, Transport::Tcp);
    assert_eq!(call::<Echo>(&channel, &Bytes::from_static(b"short")).await.unwrap(), "short");

    // A Long call: the Position-Zero Read chunk has all of the message, with the eligible item in place.
    let data = Bytes::from(pattern(3, 100_003));
    let (sum, counters) = cost(&channel, call::<Put>(&channel, &Data(data.clone()))).await;
    sum.unwrap();
    assert!(*state.last_put.lock().unwrap() == data);
    if rdma {
        assert_eq!(counters.read_by_peer_bytes, CALL_HEADER + WRAPPING as u64 + 4 + 100_004);
        assert_eq!((counters.registrations, counters.written_by_peer_bytes), (1, 0));
    }

    // A Long reply: the Reply chunk has all of it, although it has eligible results.
    let (got, counters) = cost(&channel, call::<Get>(&channel, &Range(1, 50_001))).await;
    assert!(got.unwrap().0 == pattern(1, 50_001));
    if rdma {
        assert_eq!(counters.written_by_peer_bytes, REPLY_HEADER + WRAPPING as u64 + 4 + 50_004);
        assert_eq!(counters.registrations, 1);
    }
    let both = call::<Both>(&channel, &Range(9, 5000)).await.unwrap();
    assert!((both.0, both.1, both.2) == (pattern(9, 5000).into(), 7, pattern(10, 2500).into()));

    // Caller-provided memory is ignored without an error.
    let landing = CallOptions::default().landing(channel.pool().alloc(3000));
    assert!(channel.call::<Get>(&Range(1, 3000), landing).await.unwrap().0 == pattern(1, 3000));

    // Errors are not protected (RFC 2203 §5.3.3.4), but their verifiers are checked.
    let error = call::<Missing>(&channel, &()).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::ProcedureUnavailable, .. }), "{error}");
    let error = channel.call_null(1, 1, CallOptions::default()).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::ProgramUnavailable, .. }), "{error}");
    assert_eq!(channel.counters().exposed_regions, 0);
}

/// RFC 8166 §8.2.2.2: authentication without protection keeps items eligible, and makes messages larger.
async fn authentication_only(transport: Transport) {
    let guard = Guard { authentication_only: true, ..Guard::default() };
    let context = Context { authentication_only: true, ..Context::default() };
    let (_server, state, channel) = secured(&transport, guard, context).await;
    let (sum, counters) = cost(&channel, call::<Put>(&channel, &Data(pattern(3, 100_003).into()))).await;
    sum.unwrap();
    assert!(*state.last_put.lock().unwrap() == pattern(3, 100_003));
    let (got, more) = cost(&channel, call::<Get>(&channel, &Range(1, 50_001))).await;
    assert!(got.unwrap().0 == pattern(1, 50_001));
    if !matches!(transport, Transport::Tcp) {
        assert_eq!((counters.read_by_peer_bytes, more.written_by_peer_bytes), (100_003, 50_001));
    }
}

/// RFC 2203 §5.3.1, §5.3.3.1: the verifier covers the header from the XID to the end of the credential, as sent and as
/// received, over every transport and version.
async fn verifiers_cover_the_header(transport: Transport) {
    let versions = if matches!(transport, Transport::Tcp) { 1..=1 } else { 1..=2 };
    for version in versions {
        let guard = Guard { authentication_only: true, ..Guard::default() };
        let context = Context { authentication_only: true, ..Context::default() };
        let (sealed, seen) = (Arc::clone(&context.sealed), Arc::clone(&guard.seen));
        let (_server, state, channel) = secured_by(&transport, guard, context, version).await;
        // Inline, in chunks, in several Sends, and as a Long message; single calls and concurrent ones.
        for len in [0, 100, 20_000, 300_000] {
            let data = Data(pattern(3, len).into());
            let put = || call::<Put>(&channel, &data);
            let puts = tokio::join!(put(), put(), put(), put());
            for put in [puts.0, puts.1, puts.2, puts.3] {
                put.unwrap();
            }
            assert!(*state.last_put.lock().unwrap() == pattern(3, len));
            assert!(call::<Get>(&channel, &Range(1, len)).await.unwrap().0 == pattern(1, len));
        }
        let (mut sent, mut arrived) = (sealed.lock().unwrap().clone(), seen.lock().unwrap().1.clone());
        sent.sort();
        arrived.sort();
        assert_eq!((sent.len(), &sent), (20, &arrived));
        for header in sent {
            let words: Vec<u32> = header.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
            // RFC 5531 §9: XID, CALL, RPC version 2, program and version, procedure; flavor, length, sequence number.
            assert_eq!((words.len(), &words[1..3], &words[6..8]), (9, &[0, 2][..], &[FLAVOR, 4][..]));
        }
        let xids: HashSet<&[u8]> = arrived.iter().map(|header| &header[..4]).collect();
        assert_eq!(xids.len(), 20, "calls share an XID");
    }
}

/// Client and server refuse invalid bodies and verifiers. A call that the context of the client cannot secure or seal
/// is not sent.
async fn invalid_bodies_and_verifiers(transport: Transport) {
    let (guard, context) = keyed(2);
    let calls = Arc::clone(&guard.let_in);
    let (_server, state, channel) = secured(&transport, Guard { body_key: Some(1), ..guard }, context).await;
    let error = call::<Put>(&channel, &Data(Bytes::from_static(b"four"))).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::GarbageArguments, .. }), "{error}");
    assert_eq!((calls.load(Ordering::Relaxed), state.put_bytes.load(Ordering::SeqCst)), (1, 0));

    // Only the client protects bodies, so the server cannot decode the arguments.
    let guard = Guard { authentication_only: true, ..keyed(2).0 };
    let (_server, _state, channel) = secured(&transport, guard, keyed(2).1).await;
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::GarbageArguments, .. }), "{error}");

    // A verifier with another key.
    let (guard, context) = (keyed(1).0, keyed(2).1);
    let calls = Arc::clone(&guard.let_in);
    let (_server, _state, channel) = secured(&transport, guard, context).await;
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    let denied = RpcError::Authentication(AuthStat::RpcsecGssCredproblem.into());
    assert!(matches!(error, CallError::Rpc { source, .. } if source == denied) && error.is_retry_safe(), "{error}");
    assert_eq!(calls.load(Ordering::Relaxed), 0);

    let (guard, context) = keyed(3);
    let (_server, _state, channel) = secured(&transport, Guard { impostor: true, ..guard }, context).await;
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    assert!(matches!(error, CallError::Security { sent: true, .. }) && !error.is_retry_safe(), "{error}");
    assert!(error.source().unwrap().to_string().contains("not from the server"), "{error:?}");

    let (guard, context) = keyed(3);
    context.sequence.store(EXPIRED - 1, Ordering::Relaxed);
    let (_server, _state, channel) = secured(&transport, guard, context).await;
    call::<Null>(&channel, &()).await.unwrap();
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    assert!(matches!(error, CallError::Security { sent: false, .. }) && error.is_retry_safe(), "{error}");

    let (guard, context) = keyed(3);
    context.sequence.store(UNSEALED, Ordering::Relaxed);
    let (_server, _state, channel) = secured(&transport, guard, context).await;
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    assert!(matches!(error, CallError::Security { sent: false, .. }) && error.is_retry_safe(), "{error}");
    call::<Null>(&channel, &()).await.unwrap();
    assert_eq!(channel.counters().exposed_regions, 0);
}

/// RFC 2203 §5.3.3.3: a call that is denied, or whose context has expired, is secured again, but not without end.
async fn calls_are_secured_again(transport: Transport) {
    let (guard, context) = (keyed(1).0, Context { secures_again: true, ..keyed(2).1 });
    let (calls, sealed) = (Arc::clone(&guard.let_in), Arc::clone(&context.sealed));
    let (_server, _state, channel) = secured(&transport, guard, context).await;
    let error = call::<Null>(&channel, &()).await.unwrap_err();
    let denied = RpcError::Authentication(AuthStat::RpcsecGssCredproblem.into());
    assert!(matches!(error, CallError::Rpc { source, .. } if source == denied) && error.is_retry_safe(), "{error}");
    assert_eq!((sealed.lock().unwrap().len(), calls.load(Ordering::Relaxed)), (4, 0));

    let (guard, context) = (keyed(3).0, Context { secures_again: true, ..keyed(3).1 });
    context.sequence.store(UNSEALED, Ordering::Relaxed);
    let (calls, sealed) = (Arc::clone(&guard.let_in), Arc::clone(&context.sealed));
    let (_server, _state, channel) = secured(&transport, guard, context).await;
    call::<Null>(&channel, &()).await.unwrap();
    assert_eq!((sealed.lock().unwrap().len(), calls.load(Ordering::Relaxed)), (2, 1));
}

/// The panic of a handler is reported as a system error (RFC 5531 §9). Its reply has a valid verifier (RFC 2203
/// §5.3.3.2), so the client does not take it for a forgery.
async fn reply_to_a_panic_has_a_verifier(transport: Transport) {
    let (guard, context) = keyed(3);
    let guard = Guard { authentication_only: true, ..guard };
    let context = Context { authentication_only: true, ..context };
    let (_server, _state, channel) = secured(&transport, guard, context).await;
    for later in [0, 1] {
        let error = call::<Panic>(&channel, &later).await.unwrap_err();
        assert!(matches!(error, CallError::Rpc { source: RpcError::SystemError, .. }), "{error}");
    }
}

/// RFC 2203 §5.3.3.4.1: the server denies a call whose reply it cannot sign. The client does not expect a verifier
/// then.
async fn unsigned_replies_are_denials(transport: Transport) {
    for authentication_only in [true, false] {
        let guard = Guard { authentication_only, reply: ReplyBehavior::FailsToSign, ..keyed(3).0 };
        let (_server, _state, channel) =
            secured(&transport, guard, Context { authentication_only, ..keyed(3).1 }).await;
        let denied = RpcError::Authentication(AuthStat::RpcsecGssCtxproblem.into());
        for error in [
            call::<Null>(&channel, &()).await.unwrap_err(),
            call::<Missing>(&channel, &()).await.unwrap_err(),
            call::<Panic>(&channel, &0).await.unwrap_err(),
        ] {
            assert!(matches!(error, CallError::Rpc { source, .. } if source == denied), "{error}");
        }
    }
}

/// RFC 2203 §5.3.3.4.4: results that cannot be protected are not sent. Over RDMA, a transport error ends the call, so
/// that it does not hold its credit (RFC 8166 §4.5.4).
async fn unprotected_results_are_not_sent(transport: Transport) {
    let is_tcp = matches!(transport, Transport::Tcp);
    let guard = Guard { reply: ReplyBehavior::FailsToWrap, ..keyed(3).0 };
    let (_server, state, channel) = secured(&transport, guard, keyed(3).1).await;
    let options = CallOptions::new().timeout(Duration::from_secs(1));
    let error = channel.call::<Put>(&Data(vec![7; 50].into()), options).await.unwrap_err();
    match error {
        CallError::Transport { failure: CallFailure::DeadlineExceeded { sent: true }, .. } if is_tcp => {}
        CallError::Transport { failure: CallFailure::ChunkError, .. } if !is_tcp => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(state.put_bytes.load(Ordering::SeqCst), 50, "the handler has run");
    // An error status has no results, so it is sent.
    let error = call::<Missing>(&channel, &()).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::ProcedureUnavailable, .. }), "{error}");
}

/// Delays the decisions of [`Guard`] until the test lets them end.
#[derive(Debug)]
struct SlowDecisions {
    /// Number of decisions that have waited or still wait.
    waiting: AtomicUsize,
    /// One permit for each decision that may end.
    gate: Semaphore,
}

/// A decision that takes time does not delay other calls of the connection.
async fn slow_decisions(transport: Transport) {
    let slow = Arc::new(SlowDecisions { waiting: AtomicUsize::new(0), gate: Semaphore::new(1) });
    let guard = Guard { slow: Some(Arc::clone(&slow)), ..keyed(3).0 };
    let (_server, _state, channel) = secured(&transport, guard, keyed(3).1).await;
    // Raises the number of credits.
    call::<Null>(&channel, &()).await.unwrap();
    let all: Vec<_> = (0..8).map(|n| tokio::spawn(echo(channel.clone(), vec![n; 100 << n].into()))).collect();
    eventually(|| slow.waiting.load(Ordering::SeqCst) == 9).await;
    slow.gate.add_permits(8);
    for one in all {
        one.await.unwrap();
    }
}

async fn echo(channel: Channel, data: Bytes) {
    assert_eq!(call::<Echo>(&channel, &data).await.unwrap(), data);
}

over_each!(
    nothing_is_reduced authentication_only verifiers_cover_the_header invalid_bodies_and_verifiers reply_to_a_panic_has_a_verifier
    unsigned_replies_are_denials slow_decisions calls_are_secured_again
);

over_each_in_step!(unprotected_results_are_not_sent);

/// A client that reduces items of a protected call gets ERR_CHUNK, as for items that are not eligible (RFC 8166 §6.1,
/// §8.2.2.3). The handler gets none of the data.
#[tokio::test]
async fn reduced_item_of_a_protected_call_is_refused() {
    timed(async {
        let (guard, _) = keyed(4);
        let context = Context { key: 4, authentication_only: true, ..Context::default() };
        let (_server, state, channel) = secured(&Transport::sim(), guard, context).await;
        let error = call::<Put>(&channel, &Data(vec![7; 5000].into())).await.unwrap_err();
        assert!(matches!(error, CallError::Transport { failure: CallFailure::ChunkError, .. }), "{error}");
        assert_eq!(state.put_bytes.load(Ordering::SeqCst), 0);
        assert_eq!(channel.close_reason(), None);
    })
    .await;
}

/// RPC-over-RDMA v2 §11.2.2.3: in version 2, items of protected calls are not reduced, whether the messages are
/// Continued or Long.
#[tokio::test]
async fn protected_calls_in_version_2() {
    timed(async {
        let (guard, context) = keyed(9);
        let service = TestService::default();
        let transport = Transport::sim();
        let server = transport.serve(Server::builder().service(service).authenticator(guard)).await;
        let channel = server.connect(Channel::builder().security(context).versions(Versions::V2)).await;
        call::<Put>(&channel, &Data(pattern(3, 20_000).into())).await.unwrap();
        assert!(call::<Get>(&channel, &Range(1, 20_001)).await.unwrap().0 == pattern(1, 20_001));
        // Several Sends each, without registered memory.
        let formats = channel.formats();
        assert_eq!((formats.calls.continued, formats.replies.continued, channel.counters().registrations), (1, 1, 0));
        call::<Put>(&channel, &Data(pattern(3, 200_000).into())).await.unwrap();
        assert!(call::<Get>(&channel, &Range(1, 200_001)).await.unwrap().0 == pattern(1, 200_001));
        let formats = channel.formats();
        assert_eq!((formats.calls.long, formats.replies.long), (1, 1));
        assert_eq!((formats.calls.chunked, formats.replies.chunked), (0, 0));
        let counters = channel.counters();
        assert_eq!(counters.read_by_peer_bytes, CALL_HEADER + WRAPPING as u64 + 4 + 200_000);
        assert_eq!(counters.written_by_peer_bytes, REPLY_HEADER + WRAPPING as u64 + 4 + 200_004);
    })
    .await;
}

/// RFC 5531 §8.2: a credential has at most 400 bytes. The error gives the length.
#[tokio::test]
async fn credentials_have_a_limit() {
    timed(async {
        let running =
            Transport::sim().serve(Server::builder().service(TestService::default()).authenticator(AnyCaller)).await;
        let channel = running.connect(Channel::builder()).await;
        let with = |len| CallOptions::new().credential(OpaqueAuth { flavor: 300_000, body: vec![7; len].into() });
        channel.call::<Null>(&(), with(400)).await.unwrap();
        let error = channel.call::<Null>(&(), with(401)).await.unwrap_err();
        assert!(matches!(error, CallError::Credential { len: 401, .. }) && error.is_retry_safe(), "{error}");
    })
    .await;
}

/// An authenticator that accepts every credential.
#[derive(Debug)]
struct AnyCaller;

impl Authenticator for AnyCaller {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        Authentication::Accepted(AuthenticatedCaller::new(Credential::Other(call.header.credential.clone())))
    }
}

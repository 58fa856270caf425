//! Entry points for fuzzers: messages that a peer can send to a server and to a client with RPCSEC_GSS.
//!
//! The peer of the server knows the formats and, for some steps, the key of the mechanism, so that a fuzzer reaches the
//! code behind the checksums.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    GssServerConfig,
    body::BodyProtection,
    client::ClientContext,
    creation::{ContextCreation, CreatedContext, NextStep},
    credential::{GssCredential, gss_auth},
    insecure_test_mechanism::{InsecureTestMechanism, signed},
    mechanism::{ClientMechanism, ContextSetup, GssContext, ServerMechanism, major},
    server::{Decision, GssServer, SetupRound},
    wire::{MAXSEQ, RpcGssInitArg, RpcGssInitRes, RpcGssProcT},
};
use crate::{
    rpc::{AuthFailure, CallHeader, OpaqueAuth, RpcError},
    security::{Authentication, ControlReply, Protection, ProtectionLevel, ReceivedCall},
    xdr::{Decoder, FlatSink, encode_to_bytes},
};

const KEY: u64 = 0x0123_4567_89ab_cdef;
const LEVELS: [ProtectionLevel; 3] =
    [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];

/// The rest of the fuzzer's input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Reads a length of one byte, and returns that many of the following bytes, or all of them if there are fewer.
    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    fn opaque(&mut self) -> Bytes {
        Bytes::copy_from_slice(self.bytes())
    }

    fn verifier(&mut self) -> OpaqueAuth {
        OpaqueAuth { flavor: u32::from(self.byte()), body: self.opaque() }
    }

    /// Changes at most one bit. Returns `true` if a bit was changed.
    fn damage(&mut self, bytes: &mut [u8]) -> bool {
        let (at, bit) = (usize::from(self.byte()), self.byte());
        match bytes.get_mut(at) {
            Some(byte) if bit < 8 => {
                *byte ^= 1 << bit;
                true
            }
            _ => false,
        }
    }
}

/// A server whose mechanism executes its steps at once.
struct FuzzServer {
    server: GssServer,
    mechanism: InsecureTestMechanism,
    now: Instant,
    /// The sequence numbers of accepted calls, by handle.
    accepted: BTreeMap<Bytes, BTreeSet<u32>>,
}

impl FuzzServer {
    fn new(rounds: u8) -> Self {
        let config = GssServerConfig {
            max_contexts: 3,
            max_contexts_per_address: 2,
            max_setups: 3,
            max_setups_per_address: 2,
            max_rounds: 4,
            max_token: 200,
            max_lifetime: Duration::from_secs(100),
            sequence_window: 5,
            ..GssServerConfig::default()
        };
        let mut mechanism = InsecureTestMechanism::new(KEY, "server");
        mechanism.rounds = rounds;
        Self { server: GssServer::new(config), mechanism, now: Instant::now(), accepted: BTreeMap::new() }
    }

    /// Passes a call to the server, and checks the server's decision.
    fn receive(&mut self, header: &CallHeader, arguments: &[u8], port: u8) -> Authentication {
        let mut message = Vec::new();
        if header.encode(&mut FlatSink::new(&mut message)).is_err() {
            return Authentication::Discarded;
        }
        let (signed, _) = CallHeader::split_verifier(&message).expect("an encoded call has a verifier");
        let mut call = ReceivedCall::new(header, ([127, 0, 0, port % 3], 1).into());
        (call.signed, call.arguments, call.is_reduced) = (&message[..signed], arguments, port & 0x80 != 0);
        let authentication = match self.server.receive(&call, true, self.now) {
            Decision::Done(authentication) => authentication,
            Decision::Busy(_) => panic!("a call may wait"),
            Decision::Round(round) => Authentication::Answered(self.finish(round)),
        };
        let (contexts, setups) = self.server.contexts.counts();
        assert!(contexts <= 3 && setups <= 3, "{contexts} contexts, {setups} in creation");
        match &authentication {
            Authentication::Answered(reply) => {
                assert!(reply.verifier.body.len() <= 400 && reply.results.len() % 4 == 0);
            }
            Authentication::Accepted(caller) => {
                let credential =
                    GssCredential::decode(&header.credential.body).expect("an accepted credential decodes");
                assert_eq!(credential.procedure, RpcGssProcT::RpcsecGssData);
                assert!(caller.principal.is_some() && credential.sequence <= MAXSEQ);
                let numbers = self.accepted.entry(credential.handle).or_default();
                assert!(numbers.insert(credential.sequence), "a sequence number was accepted twice");
            }
            _ => {}
        }
        authentication
    }

    fn finish(&self, mut round: SetupRound) -> ControlReply {
        let setup = round.setup.take().map_or_else(|| ServerMechanism::begin(&self.mechanism), Ok);
        let result = setup.and_then(|mut setup: Box<dyn ContextSetup>| {
            let step = setup.step(Some(&round.token))?;
            Ok((setup, step))
        });
        self.server.finish_round(round, result, self.now)
    }

    /// Creates a context as an honest client does.
    fn create(&mut self, port: u8) -> Option<CreatedContext> {
        let mut creation = ContextCreation::new(2, 3);
        let mut setup = ClientMechanism::begin(&InsecureTestMechanism::new(KEY, "client")).ok()?;
        let mut next = creation.stepped(setup.step(None).ok()?).ok()?;
        loop {
            next = match next {
                NextStep::Call(call) => {
                    let mut header = CallHeader::new(1, call.program, call.version, 0);
                    header.credential = call.credential;
                    let Authentication::Answered(reply) = self.receive(&header, &call.arguments, port & 3) else {
                        panic!("an honest client was refused");
                    };
                    creation.received(reply).ok()?
                }
                NextStep::Token(token) => creation.stepped(setup.step(Some(&token)).ok()?).ok()?,
                NextStep::Done(created) => return Some(created),
            };
        }
    }
}

fn header_bytes(header: &CallHeader) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    header.encode(&mut FlatSink::new(&mut message)).ok()?;
    let (signed, _) = CallHeader::split_verifier(&message)?;
    message.truncate(signed);
    Some(message)
}

/// Sends calls to a server with RPCSEC_GSS: credentials, verifiers, tokens and protected bodies, each of which is
/// honest, damaged or arbitrary.
///
/// The first byte, modulo 6, is the number of rounds of the mechanism. Each step begins with a byte that selects its
/// kind. The input for that kind follows.
pub fn gss_server(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut server = FuzzServer::new(input.byte() % 6);
    let mut contexts: Vec<CreatedContext> = Vec::new();
    let mut handle = Bytes::new();
    for _ in 0..64 {
        if input.0.is_empty() {
            return;
        }
        let kind = input.byte();
        let port = kind >> 4;
        match kind & 7 {
            // Any credential and verifier, with any arguments.
            0 => {
                let mut header = CallHeader::new(1, 2, 3, u32::from(input.byte() & 1));
                (header.credential, header.verifier) = (gss_auth(input.opaque()), input.verifier());
                let arguments = input.bytes();
                let _ = server.receive(&header, arguments, kind);
            }
            1 => contexts.extend(server.create(port).filter(|_| contexts.len() < 8)),
            // A token with the right checksum and any contents, for a new context or for the latest one in creation.
            2 | 3 => {
                let is_first = kind & 7 == 2;
                let token = signed(KEY, input.bytes().to_vec());
                let procedure = if is_first { RpcGssProcT::RpcsecGssInit } else { RpcGssProcT::RpcsecGssContinueInit };
                let of = if is_first { Bytes::new() } else { handle.clone() };
                let credential = GssCredential { procedure, sequence: input.word(), service: 9, handle: of };
                let mut header = CallHeader::new(1, 2, 3, 0);
                header.credential = credential.encode().expect("a short handle");
                let mut arguments =
                    encode_to_bytes(&RpcGssInitArg { gss_token: token.into() }).expect("a short token").to_vec();
                input.damage(&mut arguments);
                if let Authentication::Answered(ControlReply { outcome: Ok(()), results, .. }) =
                    server.receive(&header, &arguments, port)
                {
                    let result: RpcGssInitRes = Decoder::new(&results).read().expect("the server's reply decodes");
                    let failed = !matches!(result.gss_major, major::COMPLETE | major::CONTINUE_NEEDED);
                    assert_eq!(failed, result.handle.is_empty());
                    assert!(!failed || result.gss_token.is_empty());
                    handle = result.handle;
                }
            }
            // A call with an honest context, and one bit of its header changed.
            4 | 5 => {
                let Some(context) = contexts.get(usize::from(input.byte()) % contexts.len().max(1)) else { continue };
                let procedure = if kind & 7 == 4 { RpcGssProcT::RpcsecGssData } else { RpcGssProcT::RpcsecGssDestroy };
                let sequence = if kind & 8 == 0 { u32::from(input.byte()) } else { input.word() };
                let service = u32::from(input.byte() % 5);
                let credential = GssCredential { procedure, sequence, service, handle: context.handle.clone() };
                let mut header = CallHeader::new(1, 2, 3, u32::from(input.byte() & 1));
                header.credential = credential.encode().expect("a short handle");
                let mut signed = header_bytes(&header).expect("the header is well-formed");
                let is_damaged = input.damage(&mut signed);
                let mic = context.context.get_mic(&signed).expect("the test mechanism signs");
                header.verifier = gss_auth(mic.into());
                let decision = server.receive(&header, &[], port);
                let passed = matches!(decision, Authentication::Accepted(_))
                    || (procedure == RpcGssProcT::RpcsecGssDestroy && matches!(decision, Authentication::Answered(_)));
                assert!(!passed || !is_damaged, "a changed header was accepted");
                if let Authentication::Accepted(caller) = decision
                    && let Some(protection) = caller.protection()
                {
                    body(&mut input, &context.context, sequence, service, &*protection);
                }
            }
            // Time passes.
            6 => server.now += Duration::from_secs(input.byte().into()),
            _ => contexts.truncate(usize::from(input.byte() % 8)),
        }
    }
}

/// Unwraps an honest body with at most one bit changed, or an arbitrary body, and checks the result.
fn body(input: &mut Input<'_>, peer: &Arc<dyn GssContext>, sequence: u32, service: u32, protection: &dyn Protection) {
    let level = if service == 2 { ProtectionLevel::Integrity } else { ProtectionLevel::Privacy };
    let mut plain = input.bytes().to_vec();
    plain.resize(plain.len().next_multiple_of(4), 0);
    if sequence.is_multiple_of(2) {
        let other = BodyProtection::of(peer, &crate::security::BlockingQueue::new(), sequence, level)
            .expect("a level with protection");
        let mut wrapped = other.wrap(plain.clone().into()).expect("the test mechanism protects").to_vec();
        let is_damaged = input.damage(&mut wrapped);
        let unwrapped = protection.unwrap(wrapped.into());
        assert_eq!(unwrapped.ok().as_deref(), (!is_damaged).then_some(&plain[..]));
    } else {
        assert!(protection.unwrap(plain.into()).is_err(), "an arbitrary body was accepted");
    }
}

/// Sends replies to a client with RPCSEC_GSS: to requests that create a context, and to calls. The replies are honest,
/// damaged or arbitrary.
///
/// The first byte, modulo 6, is the number of rounds of the mechanism. The rest determines the replies, first to the
/// requests that create the context, then to the calls.
pub fn gss_client(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut server = FuzzServer::new(input.byte() % 6);
    let Some(created) = create_with_replies(&mut input, &mut server) else { return };
    let (gss, window) = (Arc::clone(&created.context), created.window);
    let context = Arc::new(ClientContext::new(created, 2, 3, server.now));
    for _ in 0..32 {
        if input.0.is_empty() {
            return;
        }
        let kind = input.byte();
        let level = LEVELS[usize::from(kind) % LEVELS.len()];
        let Ok(Ok(secured)) = context.secure(level) else { return };
        let credential = GssCredential::decode(&secured.credential.body).expect("the client's credential decodes");
        assert!(credential.sequence < MAXSEQ && credential.sequence != window);
        let mic = gss.get_mic(&credential.sequence.to_be_bytes()).expect("the test mechanism signs");
        let honest = gss_auth(mic.into());
        let verifier = if kind & 8 == 0 { input.verifier() } else { honest.clone() };
        assert_eq!(secured.call.verify(&verifier).is_ok(), verifier == honest);
        if let Some(protection) = secured.call.protection() {
            let service = if level == ProtectionLevel::Integrity { 2 } else { 3 };
            body(&mut input, &gss, credential.sequence, service, &*protection);
        }
        if kind & 16 == 0 {
            let resend = secured.call.denied(AuthFailure(u32::from(input.byte())));
            assert!(!resend || context.is_dead());
        }
        // The other calls remain outstanding.
        if kind & 32 == 0 {
            secured.call.ended();
        }
    }
}

/// Creates a context at a client, with replies of the server that the input may change. Returns the context if the
/// client accepts the replies.
fn create_with_replies(input: &mut Input<'_>, server: &mut FuzzServer) -> Option<CreatedContext> {
    let mut creation = ContextCreation::new(2, 3);
    let mut setup = ClientMechanism::begin(&InsecureTestMechanism::new(KEY, "client")).ok()?;
    let mut next = creation.stepped(setup.step(None).ok()?).ok()?;
    for _ in 0..20 {
        next = match next {
            NextStep::Call(call) => {
                let mut header = CallHeader::new(1, call.program, call.version, 0);
                header.credential = call.credential.clone();
                let Authentication::Answered(mut reply) = server.receive(&header, &call.arguments, 0) else {
                    return None;
                };
                match input.byte() % 6 {
                    0 => reply.results = input.opaque(),
                    1 => {
                        let mut results = reply.results.to_vec();
                        input.damage(&mut results);
                        reply.results = results.into();
                    }
                    2 => reply.verifier = input.verifier(),
                    3 => {
                        let failure = AuthFailure(u32::from(input.byte()));
                        reply.outcome = Err(RpcError::Authentication(failure));
                    }
                    _ => {}
                }
                creation.received(reply).ok()?
            }
            NextStep::Token(token) => creation.stepped(setup.step(Some(&token)).ok()?).ok()?,
            NextStep::Done(created) => {
                assert!(created.window > 0 && !created.handle.is_empty());
                return Some(created);
            }
        };
    }
    panic!("the client makes requests without end");
}

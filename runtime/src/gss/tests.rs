//! RPCSEC_GSS between a server and a client without I/O, and the errors that RFC 2203 requires.

mod bodies;
mod creation;
mod data;
mod refresh;
mod secrets;
mod threads;

use std::{net::SocketAddr, sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    GssServerConfig,
    creation::{ContextCreation, CreatedContext, NextStep},
    credential::{GssCredential, gss_auth},
    insecure_test_mechanism::InsecureTestMechanism,
    mechanism::{ClientMechanism, ContextSetup, GssContext, GssError, ServerMechanism, SetupStep},
    server::{Decision, GssServer, SetupRound},
    wire::{RpcGssInitRes, RpcGssProcT},
};
use crate::{
    rpc::{AuthFailure, AuthStat, CallHeader, OpaqueAuth},
    security::{Authentication, ControlCall, ControlReply, ReceivedCall, SecurityError},
    xdr::{Decoder, encode_to_bytes},
};

/// A server with its mechanism.
struct TestServer {
    server: GssServer,
    mechanism: InsecureTestMechanism,
    /// The address of the clients.
    peer: SocketAddr,
}

/// A call to a [`TestServer`].
struct TestCall {
    header: CallHeader,
    arguments: Bytes,
    is_reduced: bool,
    now: Instant,
}

impl TestServer {
    fn new(config: GssServerConfig) -> Self {
        let mechanism = InsecureTestMechanism::new(KEY, "nfs@server");
        Self { server: GssServer::new(config), mechanism, peer: ([127, 0, 0, 1], 1).into() }
    }

    /// Decides on a call. The mechanism executes its step at once.
    fn receive(&self, call: &TestCall) -> Authentication {
        match self.decide(call) {
            Decision::Done(authentication) => authentication,
            Decision::Busy(_) => panic!("the context is busy"),
            Decision::Round(mut round) => {
                let result = self.step(&mut round);
                Authentication::Answered(self.server.finish_round(round, result, call.now))
            }
        }
    }

    fn decide(&self, call: &TestCall) -> Decision {
        self.decide_on(call, true)
    }

    fn decide_on(&self, call: &TestCall, may_block: bool) -> Decision {
        let mut message = Vec::new();
        call.header.encode(&mut crate::xdr::FlatSink::new(&mut message)).unwrap();
        let (signed, _) = CallHeader::split_verifier(&message).unwrap();
        let mut received = ReceivedCall::new(&call.header, self.peer);
        received.signed = &message[..signed];
        received.arguments = &call.arguments;
        received.is_reduced = call.is_reduced;
        self.server.receive(&received, may_block, call.now)
    }

    fn step(&self, round: &mut SetupRound) -> Result<(Box<dyn ContextSetup>, SetupStep), GssError> {
        let mut setup = round.setup.take().map_or_else(|| ServerMechanism::begin(&self.mechanism), Ok)?;
        let step = setup.step(Some(&round.token))?;
        Ok((setup, step))
    }

    /// Passes a data call that is signed with the client's side of a context to the server. Returns the server's
    /// decision.
    fn data(&self, created: &CreatedContext, sequence: u32, service: u32, now: Instant) -> Authentication {
        self.receive(&TestCall::signed(created, RpcGssProcT::RpcsecGssData, sequence, service, now))
    }
}

const KEY: u64 = 0x1234_5678_9abc_def0;

impl TestCall {
    fn new(credential: &GssCredential, verifier: OpaqueAuth, now: Instant) -> Self {
        let mut header = CallHeader::new(1, 2, 3, 0);
        (header.credential, header.verifier) = (credential.encode().unwrap(), verifier);
        Self { header, arguments: Bytes::new(), is_reduced: false, now }
    }

    /// Converts a control call of a client to a call that arrives at the server.
    fn control(call: &ControlCall, now: Instant) -> Self {
        let mut header = CallHeader::new(1, call.program, call.version, 0);
        header.credential = call.credential.clone();
        let mut arrived = Self { header, arguments: call.arguments.clone(), is_reduced: false, now };
        if let Some(seal) = &call.seal {
            arrived.header.verifier = seal.seal(&arrived.header_bytes()).unwrap();
        }
        arrived
    }

    /// Returns a call without arguments that has a valid verifier.
    fn signed(created: &CreatedContext, procedure: RpcGssProcT, sequence: u32, service: u32, now: Instant) -> Self {
        let credential = GssCredential { procedure, sequence, service, handle: created.handle.clone() };
        let mut call = Self::new(&credential, OpaqueAuth::none(), now);
        call.sign(&*created.context);
        call
    }

    fn header_bytes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        self.header.encode(&mut crate::xdr::FlatSink::new(&mut message)).unwrap();
        let (signed, _) = CallHeader::split_verifier(&message).unwrap();
        message.truncate(signed);
        message
    }

    fn sign(&mut self, context: &dyn GssContext) {
        self.header.verifier = gss_auth(context.get_mic(&self.header_bytes()).unwrap().into());
    }
}

/// Creates a context between a server and a client.
fn create(server: &TestServer, client: &InsecureTestMechanism, now: Instant) -> Result<CreatedContext, SecurityError> {
    create_with(client, |call| match server.receive(&TestCall::control(call, now)) {
        Authentication::Answered(reply) => reply,
        other => panic!("{other:?}"),
    })
}

/// Creates a context at a client. `answer` returns the reply to each request of the client.
fn create_with(
    client: &InsecureTestMechanism,
    mut answer: impl FnMut(&ControlCall) -> ControlReply,
) -> Result<CreatedContext, SecurityError> {
    let failed = |error: GssError| SecurityError(error.to_string());
    let mut creation = ContextCreation::new(2, 3);
    let mut setup = ClientMechanism::begin(client).map_err(failed)?;
    let mut next = creation.stepped(setup.step(None).map_err(failed)?)?;
    loop {
        next = match next {
            NextStep::Call(call) => creation.received(answer(&call))?,
            NextStep::Token(token) => creation.stepped(setup.step(Some(&token)).map_err(failed)?)?,
            NextStep::Done(created) => return Ok(created),
        };
    }
}

fn client() -> InsecureTestMechanism {
    InsecureTestMechanism::new(KEY, "alice@TEST")
}

fn rejected(authentication: Authentication) -> AuthStat {
    match authentication {
        Authentication::Rejected(failure) => failure.stat().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn init_result(reply: &ControlReply) -> RpcGssInitRes {
    assert_eq!(reply.outcome, Ok(()));
    let mut decoder = Decoder::new(&reply.results);
    let result = decoder.read().unwrap();
    decoder.finish().unwrap();
    result
}

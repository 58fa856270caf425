//! Errors that affect more than one call: refused properties, versions, header types, and reverse-direction levels.
//! Also, the data of host authentication.

use rpcrdma_proto::engine::Engine as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rpcrdma_proto::engine::{
    CallFailure, CallPolicy, CloseReason, EngineConfig, Extension, ExtensionFactory, ExtensionMessage,
    ExtensionOutcome, ExtensionProperty, HostAuth, HostAuthError, HostAuthStep, HostAuthenticator, ReverseDirection,
    Role, TransportError,
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, RESPONSE},
};
use crate::support::Script;

#[derive(Debug)]
struct Picky;

impl ExtensionFactory for Picky {
    fn extension(&self, role: Role) -> Box<dyn Extension> {
        Box::new(PickyEnd(role))
    }
}

#[derive(Debug)]
struct PickyEnd(Role);

impl Extension for PickyEnd {
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        if self.0 == Role::Client { vec![ExtensionProperty::new(2000, &1u32)] } else { vec![] }
    }
    fn property(&mut self, which: u32, _: &[u8]) -> ExtensionOutcome {
        if which == 2000 { ExtensionOutcome::Refused(TransportError::BadProperty) } else { ExtensionOutcome::Unknown }
    }
}

/// §6.2.2.3, §7.2.2: if a server refuses the client's properties, even after its own last properties, the client closes
/// the connection.
#[test]
fn properties_refused_late() {
    let mut config = EngineConfig::default();
    config.extensions.push(Arc::new(Picky));
    let mut duo = PeerPair::new(config.clone(), config, stepped());
    let outcome = duo.one(CLIENT, Script::default());
    let second = duo.one(CLIENT, Script { number: 1, ..Script::default() });
    let reason = duo.sides[CLIENT].peer.conn.close_reason().cloned();
    assert!(
        matches!(reason, Some(CloseReason::NegotiationFailed { .. })),
        "{outcome:?}; {second:?}; closed: {reason:?}"
    );
}

#[derive(Debug, Clone, Default)]
struct Talkative(Arc<Mutex<Vec<Bytes>>>);

impl HostAuth for Talkative {
    fn authenticator(&self, role: Role) -> Box<dyn HostAuthenticator> {
        Box::new(TalkativeEnd { role, heard: Arc::clone(&self.0) })
    }
}

#[derive(Debug)]
struct TalkativeEnd {
    role: Role,
    heard: Arc<Mutex<Vec<Bytes>>>,
}

impl HostAuthenticator for TalkativeEnd {
    fn start(&mut self) -> Result<HostAuthStep, HostAuthError> {
        let say = if self.role == Role::Client { "client hello" } else { "server hello" };
        Ok(HostAuthStep { send: Some(Bytes::from_static(say.as_bytes())), done: false })
    }
    fn received(&mut self, material: &[u8]) -> Result<HostAuthStep, HostAuthError> {
        let mut heard = self.heard.lock().unwrap();
        heard.push(Bytes::copy_from_slice(material));
        Ok(match self.role {
            Role::Client => HostAuthStep { send: None, done: heard.len() == 2 },
            Role::Server => HostAuthStep { send: Some(Bytes::from_static(b"server answer")), done: true },
        })
    }
    fn peer_finished(&mut self) -> Result<(), HostAuthError> {
        Err(HostAuthError("peer stopped authenticating".into()))
    }
}

/// §5.2.6: a server's authenticator sends data at its start and in response to the client. Both arrive, in this order.
#[test]
fn authentication_data_at_start_and_in_response() {
    let (of_client, of_server) = (Talkative::default(), Talkative::default());
    let (mut client, mut server) = (EngineConfig::default(), EngineConfig::default());
    client.host_auth = Some(Arc::new(of_client.clone()));
    server.host_auth = Some(Arc::new(of_server));
    let mut duo = PeerPair::new(client, server, stepped());
    let outcome = duo.one(CLIENT, Script::default());
    let heard = of_client.0.lock().unwrap().clone();
    assert_eq!(heard, [&b"server hello"[..], b"server answer"], "{:?}", outcome.err());
    outcome.unwrap();
}

/// §7.3.2: a client that supports neither chunks nor continuation in the reverse direction responds with
/// RDMA2_ERR_REPLY_RESOURCE to a call that has a Write chunk.
#[test]
fn neither_write_chunks_nor_continuation() {
    let mut config = EngineConfig::default();
    config.reverse_direction = ReverseDirection::Simple;
    let mut facing = Facing::new(Role::Client, config);
    facing.send(&[3, 2, CREDIT, MSG, 0, 0, 0, 1, 1, 1, 4, 0, 0, 0, 0, 3, 0, 1]);
    let answer = facing.next().unwrap();
    assert_eq!(answer[3..6], [ERROR, RESPONSE, 10], "{answer:?}");
}

/// §6.4: a call in the reverse direction whose reply the client's reverse-direction level does not permit is not sent
/// again.
#[test]
fn call_that_cannot_succeed_is_not_sent_again() {
    let mut client = EngineConfig::default();
    client.reverse_direction = ReverseDirection::Simple;
    let mut duo = PeerPair::new(client, EngineConfig::default(), stepped());
    let policy = CallPolicy { idempotent: true, ..CallPolicy::default() };
    let outcome = duo.one(SERVER, Script { number: 1, reply_inline: 9000, policy, ..Script::default() });
    assert!(outcome.is_err());
    assert_eq!(duo.sides[CLIENT].served[&1], 1, "{:?}", outcome.err());
}

/// §6.2.2.2: RDMA2_ERROR with RDMA2_F_MORE is discarded.
#[test]
fn error_with_more_flag_is_discarded() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 4, ..Script::default() });
    let call = facing.next().unwrap();
    facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE | MORE, 100]);
    assert!(facing.finished().is_none(), "the error was processed");
}

/// §7.1.2: if the peer refuses one of two messages with the same XID and different header types, the sender cannot tell
/// which header type it was. It goes on sending the supported type.
#[test]
fn one_of_two_header_types_is_refused() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let message = |header_type| ExtensionMessage { header_type, xid: 0, flags: 0, body: Bytes::new() };
    assert!(facing.engine.conn.send_extension(message(1000)));
    facing.run();
    assert!(facing.engine.conn.send_extension(message(1001)));
    facing.run();
    facing.raw.received.clear();
    facing.send(&[0, 2, CREDIT, ERROR, RESPONSE, 4]);
    let (first, second) =
        (facing.engine.conn.send_extension(message(1000)), facing.engine.conn.send_extension(message(1001)));
    assert!(first, "1000 (accepted by the peer): {first}; 1001 (refused): {second}");
}

/// §7.1.1: a version that the peer reports as unsupported is not used again.
#[test]
fn version_refused_later() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 4, ..Script::default() });
    let call = facing.next().unwrap();
    facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 1, 3, 4]);
    assert!(matches!(facing.finished(), Some(Err(CallFailure::VersionMismatch { low: 3, high: 4 }))));
    facing.call(&Script { number: 5, ..Script::default() });
    let again = facing.next();
    assert!(again.is_none(), "sent again in version 2: {again:?}");
}

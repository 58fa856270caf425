#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    rpc::AuthsysParms,
    session::{InboundCall, ReplyFuture},
};

/// Channels of one builder share the pool of message buffers, but not the spare memory that the connections of a
/// channel keep for reuse.
#[test]
fn channels_have_memory_of_their_own() {
    let builder = ChannelBuilder::default();
    let engine = || builder.clone().config().unwrap().0.connection.engine;
    let [first, second] = [engine(), engine()];
    let spare = [&builder.config.connection.engine, &first, &second].map(|engine| Arc::as_ptr(&engine.spare.reduced));
    assert!(spare[0] != spare[1] && spare[0] != spare[2] && spare[1] != spare[2]);
    assert!(first.pool.is_same(&second.pool));
}

/// A credit is kept for probes, unless probes are disabled.
#[test]
fn probes_have_a_credit() {
    for (interval, keeps) in [(Duration::from_secs(30), true), (Duration::MAX, false)] {
        let connection = ConnectionConfig::default().keepalive_interval(interval);
        let (config, _) = ChannelBuilder::default().connection(connection).config().unwrap();
        assert_eq!(config.connection.engine.keeps_credit, keeps, "{interval:?}");
    }
}

/// A service whose calls have many chunks.
struct Wide;

impl Service for Wide {
    fn program(&self) -> u32 {
        1
    }

    fn version(&self) -> u32 {
        1
    }

    fn name(&self) -> &'static str {
        "WIDE"
    }

    fn max_chunks(&self) -> u32 {
        1000
    }

    fn dispatch(&self, _: InboundCall) -> ReplyFuture {
        panic!("there is no call")
    }
}

/// The services of a channel raise the limit on chunks of its connections.
#[test]
fn services_raise_limits() {
    let (config, registry) = ChannelBuilder::default().service(Wide).config().unwrap();
    assert_eq!((config.connection.engine.max_chunks, registry.is_some()), (1000, true));
}

/// An AUTH_SYS stamp that the caller has chosen stays. Stamp 0 is replaced by a random number.
#[test]
fn stamps_tell_clients_apart() {
    let stamped = |stamp| {
        let Credential::Sys(parms) = Credential::sys("client", 1, 2, []) else { panic!("not AUTH_SYS") };
        let mut credential = Credential::Sys(AuthsysParms { stamp, ..parms }).to_opaque().unwrap();
        super::stamp(&mut credential);
        match Credential::from_opaque(&credential) {
            Ok(Credential::Sys(parms)) => parms.stamp,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([7, u32::MAX].map(stamped), [7, u32::MAX]);
    assert_ne!(stamped(0), stamped(0));
}

/// The channel takes the versions of the best URL. These versions decide whether the channel may fall back
/// to version 1.
#[test]
fn versions_of_the_best_url() {
    for (target, expected) in [
        ("iwarp://a:1?version=2", Versions::V2),
        ("iwarp://a:1?version=1,iwarp://b:1?version=2", Versions::V1),
        ("iwarp://a:1", Versions::Both),
    ] {
        let Prepared { config, .. } = ChannelBuilder::default().prepare(Target::parse(target).unwrap()).unwrap();
        assert_eq!(config.connection.engine.versions, expected, "{target}");
    }
}

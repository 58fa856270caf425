//! Settings that are out of range are refused when a channel is created or a server binds.
#![allow(clippy::unwrap_used)]

mod net_support;

use std::time::Duration;

use net_support::*;
use rpcrdma::{
    client::{Channel, ChannelBuilder},
    config::ConnectionConfig,
    error::{BindError, ConfigError, ConnectError},
    server::{LimitScope, Limits, Server, ServerBuilder},
};

/// A URL where nothing listens. Settings are checked before the first attempt to connect.
const URL: &str = "iwarp://127.0.0.1:1";

/// Returns settings of connections that are out of range, with their names, values and ranges.
fn bad_connections() -> Vec<(ConnectionConfig, &'static str, u64, (u64, u64))> {
    let config = ConnectionConfig::new;
    vec![
        (config().credits(0), "credits", 0, (1, 65_535)),
        (config().credits(65_536), "credits", 65_536, (1, 65_535)),
        (config().reverse_credits(65_536), "reverse_credits", 65_536, (0, 65_535)),
        (config().inline_size(1023), "inline_size", 1023, (1024, 262_144)),
        (config().inline_size(262_145), "inline_size", 262_145, (1024, 262_144)),
        (config().connect_timeout(Duration::ZERO), "connect_timeout", 0, (1, u64::MAX)),
        (config().idle_timeout(Duration::ZERO), "idle_timeout", 0, (1, u64::MAX)),
        (config().fetch_timeout(Duration::ZERO), "fetch_timeout", 0, (1, u64::MAX)),
        (config().reply_timeout(Duration::ZERO), "reply_timeout", 0, (1, u64::MAX)),
        (config().max_segment_len(4095), "max_segment_len", 4095, (4096, u64::MAX)),
        (config().max_segments(0), "max_segments", 0, (1, u64::MAX)),
        (config().max_chunks(0), "max_chunks", 0, (1, u64::MAX)),
        (config().max_record(0), "max_record", 0, (1, u64::MAX)),
        (config().max_fragments(0), "max_fragments", 0, (1, u64::MAX)),
        (config().record_timeout(Duration::ZERO), "record_timeout", 0, (1, u64::MAX)),
        (config().fragment_size(0), "fragment_size", 0, (1, i32::MAX as u64)),
        (config().fragment_size(1 << 31), "fragment_size", 1 << 31, (1, i32::MAX as u64)),
    ]
}

async fn connect_error(builder: ChannelBuilder) -> ConfigError {
    let lazy = builder.clone().connect_lazy(URL).unwrap_err();
    let pool = builder.clone().connect_pool([URL]).await.unwrap_err();
    let error = builder.connect(URL).await.unwrap_err();
    match (lazy, pool, error) {
        (ConnectError::Config(lazy), ConnectError::Config(pool), ConnectError::Config(error)) => {
            assert_eq!((&lazy, &pool), (&error, &error));
            error
        }
        other => panic!("{other:?}"),
    }
}

async fn bind_error(builder: ServerBuilder) -> ConfigError {
    match builder.listen("iwarp://127.0.0.1:0").bind().await.map(|_| ()).unwrap_err() {
        BindError::Config(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn connections() {
    for (config, name, value, (min, max)) in bad_connections() {
        let error = connect_error(Channel::builder().connection(config.clone())).await;
        assert_eq!((error.value, error.min, error.max), (value, min, max), "{name}");
        let text = format!("ConnectionConfig::{name} is {value}, but has to be between {min} and {max}");
        assert_eq!(error.to_string(), text);
        assert_eq!(bind_error(Server::builder().connection(config)).await, error);
    }
}

/// Many settings at an end of their ranges are accepted together, and calls work with them.
#[tokio::test]
async fn bounds_are_accepted() {
    let least = ConnectionConfig::new()
        .credits(1)
        .inline_size(1024)
        .max_segment_len(4096)
        .max_segments(1)
        .max_chunks(1)
        .max_fragments(1)
        .max_record(100_000)
        .fragment_size(i32::MAX as u32);
    let greatest = ConnectionConfig::new().credits(65_535).inline_size(256 << 10);
    for transport in [Transport::Tcp, Transport::Iwarp] {
        for (config, other) in [(least.clone(), greatest.clone()), (greatest.clone(), least.clone())] {
            let server = Server::builder().connection(config).service(TestService::default());
            let running = transport.serve(server).await;
            let channel = running.connect(Channel::builder().connection(other)).await;
            call::<Null>(&channel, &()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn channels() {
    assert_eq!(connect_error(Channel::builder().max_calls(0)).await.setting, "ChannelBuilder::max_calls");
    assert_eq!(connect_error(Channel::builder().credits(0)).await.setting, "ConnectionConfig::credits");
    // Without a service, the number of reverse credits does not matter.
    let lazy = |builder: ChannelBuilder| builder.reverse_credits(0).connect_lazy(URL);
    assert!(lazy(Channel::builder()).is_ok());
    let error = lazy(Channel::builder().service(TestService::default())).unwrap_err();
    let ConnectError::Config(error) = error else { panic!("{error:?}") };
    assert_eq!(error.setting, "ChannelBuilder::reverse_credits");
}

#[tokio::test]
async fn servers() {
    let limits = |limits: Limits| Server::builder().limits(LimitScope::Server, limits);
    assert_eq!(bind_error(limits(Limits::new().concurrency(0))).await.setting, "Limits::concurrency");
    assert_eq!(bind_error(limits(Limits::new().per_caller(0))).await.setting, "Limits::per_caller");
    assert_eq!(bind_error(Server::builder().inline_size(0)).await.setting, "ConnectionConfig::inline_size");
}

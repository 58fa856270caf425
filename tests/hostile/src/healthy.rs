//! A healthy client, whose calls must succeed.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{
    CallOptions, Channel,
    client::{CallError, ChannelBuilder, Reconnect},
    config::ConnectionConfig,
    engine::Versions,
    gss::GssSecurity,
    security::ProtectionLevel,
};
use tokio::time::{Instant, timeout};

use crate::{
    gss::KEY,
    insecure_test_mechanism::InsecureTestMechanism,
    network::{Host, Network},
    plan::Setup,
    protocol::{Stored, Wanted, fuzzed_back_v1::FuzzedBackV1Server, fuzzed_v1::FuzzedV1Client},
    service::{self, FuzzedBackService},
};

/// Virtual time within which each call of a healthy client must succeed.
pub const HEALTHY_LIMIT: Duration = Duration::from_millis(500);

/// Number of kinds of calls.
const KINDS: u32 = 7;

/// A client that follows the protocol, and whose calls must succeed.
pub(crate) struct Healthy {
    channel: Channel,
    client: FuzzedV1Client,
    turn: u32,
}

/// Returns the version of RPC-over-RDMA that the clients of a run offer.
pub(crate) fn versions(is_v2: bool) -> Versions {
    if is_v2 { Versions::V2 } else { Versions::V1 }
}

impl Healthy {
    /// Connects from the host `from` to `port`, and makes a call, which must succeed.
    pub(crate) async fn connect(
        network: &Network,
        (from, port): (Host, u16),
        is_v2: bool,
        setup: Setup,
    ) -> Result<Self, String> {
        let mut builder: ChannelBuilder = Channel::builder()
            .connection(ConnectionConfig::new().versions(versions(is_v2)).inline_size(2048))
            .connect_timeout(HEALTHY_LIMIT)
            .reconnect(Reconnect::on_demand())
            .service(FuzzedBackV1Server::new(FuzzedBackService));
        if setup.number & 1 != 0 {
            let level = if setup.number & 2 == 0 { ProtectionLevel::Integrity } else { ProtectionLevel::Privacy };
            builder = builder.security(GssSecurity::new(InsecureTestMechanism::new(KEY, "healthy"), level));
        }
        let channel = network.connect(builder, from, port).await;
        let channel = channel.map_err(|error| format!("a healthy client could not connect: {error:?}"))?;
        let mut healthy = Self { client: FuzzedV1Client::new(channel.clone()), channel, turn: 0 };
        healthy.call().await?;
        Ok(healthy)
    }

    /// Makes a call of each kind.
    pub(crate) async fn call_all(&mut self) -> Result<(), String> {
        for _ in 0..KINDS {
            self.call().await?;
        }
        Ok(())
    }

    /// Makes a call, and checks that it returns the right result within [`HEALTHY_LIMIT`]. Consecutive calls go through
    /// all kinds of calls in turn.
    pub(crate) async fn call(&mut self) -> Result<(), String> {
        self.turn += 1;
        let (turn, start) = (self.turn, Instant::now());
        let result = timeout(HEALTHY_LIMIT, self.call_kind(turn)).await;
        match result {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(format!("healthy call {turn} returned wrong data")),
            Ok(Err(error)) => Err(format!("healthy call {turn} failed after {:?}: {error:?}", start.elapsed())),
            Err(_) => Err(format!("healthy call {turn} did not end within {HEALTHY_LIMIT:?}")),
        }
    }

    /// Makes a call of the kind `turn` modulo [`KINDS`]. Returns `true` if the result is right.
    async fn call_kind(&self, turn: u32) -> Result<bool, CallError> {
        let (client, options) = (&self.client, CallOptions::new());
        let len = 100 + turn * 577 % 2000;
        Ok(match turn % KINDS {
            0 => {
                client.null_with(options).await?;
                true
            }
            1 => {
                let data = service::data(turn, len);
                let expected = service::checksum(turn, &data);
                client.put_with(&Stored { key: turn, data }, options).await? == expected
            }
            2 => {
                let loaded = client.get_with(&Wanted { seed: turn, len }, options).await?;
                loaded.data == service::data(turn, len)
            }
            3 => {
                let len = len / 4;
                let numbers = (1..=len).collect::<Vec<_>>().into();
                client.sum_with(&numbers, options).await? == u64::from(len) * u64::from(len + 1) / 2
            }
            4 => client.count_with(len / 4, options).await?.iter().copied().eq(1..=len / 4),
            5 => client.ask_back_with(turn, options).await? == 2 * u64::from(turn),
            _ => {
                let stored = Stored { key: 1, data: Bytes::from_static(b"short") };
                let expected = service::checksum(1, &stored.data);
                client.put_with(&stored, options).await? == expected
            }
        })
    }

    /// Closes the connection. Returns the number of calls that were made.
    pub(crate) async fn close(self) -> Result<u32, String> {
        let closed = timeout(Duration::from_secs(10), self.channel.close()).await;
        closed.map_err(|_| "a healthy client could not close its connection".to_owned())?;
        Ok(self.turn)
    }
}

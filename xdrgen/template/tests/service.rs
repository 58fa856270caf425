//! Client and server in one process.

use std::error::Error;

use bytes::Bytes;
use rpcrdma::{
    client::{Channel, Reconnect},
    provider::sim::{SimConfig, SimFabric, SimFault},
    server::Server,
};

use {{crate_name}}::{
    protocol::{
        GetArgs, Key, KeyList, PutArgs, StoreStatus,
        store_v1::{StoreV1Client, StoreV1Server},
    },
    store::Store,
};

const MIB: usize = 1 << 20;

fn key(name: &str) -> Key {
    Key(name.into())
}

/// Calls every procedure except NULL of an empty store with room for 2 MiB.
async fn use_store(client: &StoreV1Client) -> Result<(), Box<dyn Error>> {
    let value = Bytes::from(vec![7; MIB]);
    let put = |name, value: &Bytes| PutArgs {
        key: key(name),
        value: value.clone(),
    };
    let get = |name, room| GetArgs {
        key: key(name),
        room,
    };

    assert_eq!(client.put(&put("b", &value)).await?, StoreStatus::Ok);
    assert_eq!(client.put(&put("a", &value)).await?, StoreStatus::Ok);
    assert_eq!(client.put(&put("c", &value)).await?, StoreStatus::Full);
    assert_eq!(
        client.list(&Key::default()).await?,
        KeyList(vec![key("a"), key("b")])
    );
    assert_eq!(client.list(&key("a")).await?, KeyList(vec![key("b")]));

    assert_eq!(
        client.get(&get("a", MIB as u32)).await?.into_result()?,
        value
    );
    let short = client.get(&get("a", MIB as u32 - 1)).await?;
    assert_eq!(short.into_result(), Err(StoreStatus::TooLong));
    assert_eq!(client.remove(&key("a")).await?, StoreStatus::Ok);
    assert_eq!(client.remove(&key("a")).await?, StoreStatus::NotFound);
    let gone = client.get(&get("a", MIB as u32)).await?;
    assert_eq!(gone.into_result(), Err(StoreStatus::NotFound));
    Ok(())
}

/// Calls the procedures over the simulated network, in virtual time. No eligible item is copied.
#[tokio::test(start_paused = true)]
async fn values_move_without_copies() -> Result<(), Box<dyn Error>> {
    let fabric = SimFabric::default();
    let service = StoreV1Server::new(Store::new(2 * MIB));
    let server = Server::builder()
        .service(service)
        .listen_with(fabric.listen(0)?)
        .bind()
        .await?;
    let (address, handle) = (server.local_addrs()[0], server.handle());
    let serving = tokio::spawn(server.serve());

    let channel = Channel::connect_with(fabric.connector(), address).await?;
    let client = StoreV1Client::new(channel);
    use_store(&client).await?;
    let counters = client.channel().counters();
    assert_eq!(counters.copied_eligible_bytes, 0);
    // The server read three values from the client, and wrote one back.
    assert_eq!(counters.read_by_peer_bytes, 3 * MIB as u64);
    assert_eq!(counters.written_by_peer_bytes, MIB as u64);

    drop(client);
    handle.shutdown();
    serving.await?;
    assert_eq!(handle.stats().open, 0);
    Ok(())
}

/// Calls the procedures over the embedded iWARP provider, which uses the kernel's TCP stack.
#[tokio::test]
async fn clients_and_servers_meet_over_iwarp() -> Result<(), Box<dyn Error>> {
    let service = StoreV1Server::new(Store::new(2 * MIB));
    let server = Server::builder()
        .service(service)
        .listen("iwarp://127.0.0.1:0")
        .bind()
        .await?;
    let (url, handle) = (server.urls()[0].clone(), server.handle());
    let serving = tokio::spawn(server.serve());

    let client = StoreV1Client::new(Channel::connect(&url).await?);
    use_store(&client).await?;
    assert_eq!(
        client.channel().counters().written_by_peer_bytes,
        MIB as u64
    );

    drop(client);
    handle.shutdown();
    serving.await?;
    Ok(())
}

/// If the connection is lost during a call, the server has stored the value as a whole or not at
/// all. Each run loses the connection at a different step.
#[tokio::test(start_paused = true)]
async fn a_lost_connection_leaves_no_part_of_a_value() -> Result<(), Box<dyn Error>> {
    let value = Bytes::from(vec![7; MIB]);
    let mut acknowledged = 0;
    for step in 0..40 {
        let mut config = SimConfig::default();
        config.seed = step;
        config.faults.push(SimFault::Disconnect(step));
        let (failing, working) = (SimFabric::new(config), SimFabric::default());
        let service = StoreV1Server::new(Store::new(2 * MIB));
        let server = Server::builder()
            .service(service)
            .listen_with(failing.listen(1)?)
            .listen_with(working.listen(1)?)
            .bind()
            .await?;
        let address = server.local_addrs()[0];
        let (handle, serving) = (server.handle(), tokio::spawn(server.serve()));

        let builder = Channel::builder().reconnect(Reconnect::Never);
        let args = PutArgs {
            key: key("a"),
            value: value.clone(),
        };
        let stored = match builder.connect_with(failing.connector(), address).await {
            Ok(channel) => StoreV1Client::new(channel).put(&args).await.is_ok(),
            Err(_) => false,
        };
        acknowledged += u32::from(stored);

        let channel = Channel::connect_with(working.connector(), address).await?;
        let args = GetArgs {
            key: key("a"),
            room: MIB as u32,
        };
        match StoreV1Client::new(channel).get(&args).await?.into_result() {
            Ok(found) => assert_eq!(found, value, "step {step}"),
            Err(status) => {
                assert_eq!(
                    (status, stored),
                    (StoreStatus::NotFound, false),
                    "step {step}"
                )
            }
        }
        handle.shutdown();
        serving.await?;
    }
    // Some steps come before the reply and some after it.
    assert!(
        (1..40).contains(&acknowledged),
        "{acknowledged} of 40 calls were acknowledged"
    );
    Ok(())
}

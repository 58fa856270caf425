//! The commands of the client.

use std::{
    io::{Write as _, stdout},
    path::PathBuf,
};

use anyhow::Context as _;
use clap::Args;
use rpcrdma::client::Channel;

use {{crate_name}}::protocol::{
    self, GetArgs, Key, StoreStatus, VALUE_MAX,
    store_v1::{PORT, StoreV1Client},
};

/// The option that all commands of the client have.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// URL of the server
    #[arg(long, value_name = "URL", default_value_t = format!("iwarp://127.0.0.1:{PORT}"))]
    server: String,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    #[command(flatten)]
    server: ServerArgs,
    key: String,
    file: PathBuf,
}

/// Arguments of `get` and `remove`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    #[command(flatten)]
    server: ServerArgs,
    key: String,
}

impl ServerArgs {
    async fn connect(&self) -> anyhow::Result<StoreV1Client> {
        Ok(StoreV1Client::new(Channel::connect(&self.server).await?))
    }
}

fn to_key(text: String) -> Key {
    Key(text.into())
}

/// Returns an error for every status but success.
fn check(status: StoreStatus) -> anyhow::Result<()> {
    if status == StoreStatus::Ok {
        Ok(())
    } else {
        Err(status.into())
    }
}

/// Stores a file.
pub async fn put(args: PutArgs) -> anyhow::Result<()> {
    let file = args.file.display();
    let value = tokio::fs::read(&args.file)
        .await
        .with_context(|| format!("cannot read {file}"))?;
    let client = args.server.connect().await?;
    let len = value.len();
    let key = to_key(args.key);
    // The call reads from the memory of `value`.
    let args = protocol::PutArgs {
        key,
        value: value.into(),
    };
    check(client.put(&args).await?)?;
    let by_rdma = client.channel().counters().read_by_peer_bytes;
    writeln!(
        stdout(),
        "stored {len} bytes, {by_rdma} of them by RDMA Read"
    )?;
    client.channel().close().await;
    Ok(())
}

/// Writes a value to standard output.
pub async fn get(args: KeyArgs) -> anyhow::Result<()> {
    let client = args.server.connect().await?;
    let args = GetArgs {
        key: to_key(args.key),
        room: VALUE_MAX,
    };
    let value = client.get(&args).await?.into_result()?;
    stdout().write_all(&value)?;
    client.channel().close().await;
    Ok(())
}

/// Removes a value.
pub async fn remove(args: KeyArgs) -> anyhow::Result<()> {
    let client = args.server.connect().await?;
    check(client.remove(&to_key(args.key)).await?)?;
    client.channel().close().await;
    Ok(())
}

/// Lists all keys.
pub async fn list(args: ServerArgs) -> anyhow::Result<()> {
    let client = args.connect().await?;
    let mut last = Key::default();
    loop {
        let keys = client.list(&last).await?.0;
        let Some(next) = keys.last().cloned() else {
            break;
        };
        for key in keys {
            writeln!(stdout(), "{}", key.0)?;
        }
        last = next;
    }
    client.channel().close().await;
    Ok(())
}

//! A minimal NFS version 4.1 client (RFC 8881): a session with a backchannel, and one open file.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use rpcrdma::{client::Channel, xdr::Bytes};
use rpcrdma_examples::say;
use rpcrdma_specs::nfs4::{
    self as nfs, ChannelAttrs4, Compound4args, NfsArgop4 as Op, NfsFh4, NfsResop4 as Res, Nfsstat4, Sessionid4,
    Stateid4, nfs_v4::NfsV4Client,
};

use crate::callbacks::{Callbacks, Delegation, SLOTS};

/// Maximum size of a callback and of its reply, in bytes: one page, as in Linux's client.
const MAX_CALLBACK: u32 = 4096;

/// Returns the maximum size of a callback and of its reply, in bytes, on a connection with the inline threshold
/// `receive_threshold`, which is zero over TCP.
// RFC 8267 §6.5.2: a size above the threshold would say that the client receives long callbacks, in chunks.
fn callback_size(receive_threshold: u32) -> u32 {
    if receive_threshold == 0 { MAX_CALLBACK } else { MAX_CALLBACK.min(receive_threshold) }
}

/// A session with a backchannel.
pub(crate) struct Session {
    rpc: NfsV4Client,
    client: u64,
    id: Sessionid4,
    /// Sequence number of the last request. All requests use slot 0.
    sequence: u32,
}

/// A file that is open for reading.
pub(crate) struct Opened {
    pub(crate) stateid: Stateid4,
    pub(crate) handle: NfsFh4,
    /// The server's answer to the request for a delegation. The server may have granted none.
    pub(crate) delegation: nfs::OpenDelegation4,
}

fn text(text: &str) -> nfs::Utf8string {
    nfs::Utf8string(Bytes::copy_from_slice(text.as_bytes()))
}

impl Session {
    /// Creates a session whose backchannel is the connection of `channel` (EXCHANGE_ID, CREATE_SESSION,
    /// RECLAIM_COMPLETE).
    pub(crate) async fn create(channel: Channel, callbacks: &Arc<Callbacks>) -> anyhow::Result<Self> {
        let rpc = NfsV4Client::new(channel);
        let owner = nfs::ClientOwner4 {
            // A verifier that differs in each run makes the server discard the state of earlier runs (RFC 8881
            // §18.35.4).
            co_verifier: nfs::Verifier4(getrandom::u64()?.to_be_bytes()),
            co_ownerid: Bytes::from(format!("nfs41cb {}", std::process::id())),
        };
        let exchange = nfs::ExchangeId4args {
            eia_clientowner: owner,
            eia_flags: nfs::EXCHGID4_FLAG_USE_NON_PNFS,
            eia_state_protect: nfs::StateProtect4A::None,
            eia_client_impl_id: Vec::new(),
        };
        let (client, sequence) = match compound(&rpc, vec![Op::ExchangeId(exchange)]).await?.pop() {
            Some(Res::ExchangeId(nfs::ExchangeId4res::Ok(ok))) => (ok.eir_clientid, ok.eir_sequenceid),
            other => bail!("EXCHANGE_ID: {other:?}"),
        };
        say!("client    {client:#x}");

        let fore = ChannelAttrs4 {
            ca_headerpadsize: 0,
            ca_maxrequestsize: 64 << 10,
            ca_maxresponsesize: 64 << 10,
            ca_maxresponsesize_cached: 4096,
            ca_maxoperations: 8,
            ca_maxrequests: 1,
            ca_rdma_ird: Vec::new(),
        };
        // The threshold is known once the version is.
        let callback_size = callback_size(rpc.channel().info().receive_threshold);
        let back = ChannelAttrs4 {
            ca_maxrequestsize: callback_size,
            ca_maxresponsesize: callback_size,
            ca_maxresponsesize_cached: 0,
            ca_maxoperations: 2,
            ca_maxrequests: SLOTS,
            ..fore.clone()
        };
        let credential =
            nfs::AuthsysParms { stamp: 0, machinename: "nfs41cb".into(), uid: 0, gid: 0, gids: Vec::new() };
        // CREATE_SESSION tells the server that this connection accepts reverse-direction calls (RFC 8167 §6,
        // RFC 8267 §6.5.2).
        let create = nfs::CreateSession4args {
            csa_clientid: client,
            csa_sequence: sequence,
            csa_flags: nfs::CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            csa_fore_chan_attrs: fore,
            csa_back_chan_attrs: back,
            csa_cb_program: nfs::nfs_cb::PROGRAM,
            csa_sec_parms: vec![nfs::CallbackSecParms4::AuthSys(credential)],
        };
        let created = match compound(&rpc, vec![Op::CreateSession(create)]).await?.pop() {
            Some(Res::CreateSession(nfs::CreateSession4res::Ok(ok))) => ok,
            other => bail!("CREATE_SESSION: {other:?}"),
        };
        if created.csr_flags & nfs::CREATE_SESSION4_FLAG_CONN_BACK_CHAN == 0 {
            bail!("the server does not use this connection as the backchannel (flags {:#x})", created.csr_flags);
        }
        callbacks.set_session(created.csr_sessionid.clone());
        say!("session   with this connection as its backchannel");
        let mut session = Self { rpc, client, id: created.csr_sessionid, sequence: 0 };
        session.call(vec![Op::ReclaimComplete(nfs::ReclaimComplete4args { rca_one_fs: false })]).await?;
        Ok(session)
    }

    /// Sends a COMPOUND request with SEQUENCE and `operations`. Returns the results of `operations`.
    async fn call(&mut self, operations: Vec<Op>) -> anyhow::Result<Vec<Res>> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = nfs::Sequence4args {
            sa_sessionid: self.id.clone(),
            sa_sequenceid: self.sequence,
            sa_slotid: 0,
            sa_highest_slotid: 0,
            sa_cachethis: false,
        };
        let mut all = vec![Op::Sequence(sequence)];
        all.extend(operations);
        let mut results = compound(&self.rpc, all).await?;
        results.remove(0);
        Ok(results)
    }

    /// Opens a file in the root directory for reading, and requests a delegation.
    pub(crate) async fn open(&mut self, name: &str) -> anyhow::Result<Opened> {
        let open = nfs::Open4args {
            seqid: 0,
            share_access: nfs::OPEN4_SHARE_ACCESS_READ | nfs::OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
            share_deny: nfs::OPEN4_SHARE_DENY_NONE,
            owner: nfs::OpenOwner4 { clientid: self.client, owner: Bytes::from_static(b"nfs41cb") },
            openhow: nfs::Openflag4::Default(nfs::Opentype4::Nocreate),
            claim: nfs::OpenClaim4::Null(text(name)),
        };
        let results = self.call(vec![Op::Putrootfh, Op::Open(open), Op::Getfh]).await?;
        match <[Res; 3]>::try_from(results) {
            Ok([_, Res::Open(nfs::Open4res::Ok(open)), Res::Getfh(nfs::Getfh4res::Ok(got))]) => {
                Ok(Opened { stateid: open.stateid, handle: got.object, delegation: open.delegation })
            }
            Ok(other) => bail!("OPEN: {other:?}"),
            Err(other) => bail!("OPEN: unexpected number of results: {}", other.len()),
        }
    }

    /// Gives a delegation back to the server (DELEGRETURN).
    pub(crate) async fn return_delegation(&mut self, delegation: &Delegation) -> anyhow::Result<()> {
        let object = delegation.handle.clone();
        let back = nfs::Delegreturn4args { deleg_stateid: delegation.stateid.clone() };
        self.call(vec![Op::Putfh(nfs::Putfh4args { object }), Op::Delegreturn(back)]).await?;
        Ok(())
    }

    /// Closes a file (CLOSE).
    pub(crate) async fn close(&mut self, opened: Opened) -> anyhow::Result<()> {
        let close = nfs::Close4args { seqid: 0, open_stateid: opened.stateid };
        let putfh = nfs::Putfh4args { object: opened.handle };
        self.call(vec![Op::Putfh(putfh), Op::Close(close)]).await?;
        Ok(())
    }

    /// Destroys the session and the client ID (DESTROY_SESSION, DESTROY_CLIENTID), and closes the connection.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let destroy = nfs::DestroySession4args { dsa_sessionid: self.id };
        compound(&self.rpc, vec![Op::DestroySession(destroy)]).await?;
        let destroy = nfs::DestroyClientid4args { dca_clientid: self.client };
        compound(&self.rpc, vec![Op::DestroyClientid(destroy)]).await?;
        self.rpc.channel().close().await;
        Ok(())
    }
}

/// Returns the name of an operation in capital letters, without underscores.
fn name(operation: &Op) -> String {
    let text = format!("{operation:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().trim_start_matches("Op").to_uppercase()
}

/// Sends a COMPOUND request and returns its results. Fails unless every operation succeeds.
async fn compound(rpc: &NfsV4Client, argarray: Vec<Op>) -> anyhow::Result<Vec<Res>> {
    let count = argarray.len();
    let what = argarray.iter().map(name).collect::<Vec<_>>().join(", ");
    let args = Compound4args { tag: text("nfs41cb"), minorversion: 1, argarray };
    let reply = rpc.nfsproc4_compound(&args).await.with_context(|| what.clone())?;
    if reply.status != Nfsstat4::Ok {
        bail!("{what}: {:?} after {} operations", reply.status, reply.resarray.len());
    }
    if reply.resarray.len() != count {
        bail!("{what}: unexpected number of results: {}", reply.resarray.len());
    }
    Ok(reply.resarray)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_fit_inline() {
        assert_eq!([0, 1024, 4095, 4096, 8192].map(callback_size), [4096, 1024, 4095, 4096, 4096]);
    }
}

//! Calls of NLMPROC4_GRANTED to clients.
//!
//! Each client address has a queue, and one task while the queue has grants, so a silent client delays only itself. The
//! task asks rpcbind on the client for its NLM service. If the client declines the lock, the server takes it back.
//! If a call may have arrived but was not answered, the client may act as the owner of the lock. It then keeps the lock
//! until it unlocks, cancels or restarts. If no call can have arrived, or if the client only answers that it is in a
//! grace period, the server takes the lock back and withdraws the client's other blocked requests. Linux's client asks
//! again every 30 s.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
};

use rpcrdma::{CallError, Channel, client::Reconnect};
use rpcrdma_specs::{
    nlm4::{
        Netobj, Nlm4Lock, Nlm4Stats, Nlm4Testargs,
        nlm4_vers::{self, Nlm4VersClient},
    },
    rpcbind::{Netid, Rpcbind},
};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::{manager::LockManager, table::Grant};
use crate::command::chain;

/// The grants to report, by client address. A queue exists while a task empties it.
#[derive(Debug, Default)]
pub(super) struct CallbackQueues(Mutex<HashMap<IpAddr, VecDeque<Grant>>>);

impl CallbackQueues {
    /// Adds a grant. Returns `true` if its queue needs a task.
    fn push(&self, grant: Grant) -> bool {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let addr = grant.lock.owner.host.addr;
        let is_new = !queues.contains_key(&addr);
        queues.entry(addr).or_default().push_back(grant);
        is_new
    }

    /// Returns the next grant of a queue. Removes the queue if it is empty.
    fn pop(&self, addr: IpAddr) -> Option<Grant> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let grant = queues.get_mut(&addr).and_then(VecDeque::pop_front);
        if grant.is_none() {
            queues.remove(&addr);
        }
        grant
    }
}

/// The reason why a call to a service of a client failed.
#[derive(Debug, Error)]
pub(super) enum PeerError {
    #[error("cannot connect to {0}")]
    Connect(SocketAddr, #[source] rpcrdma::ConnectError),
    #[error("rpcbind does not answer")]
    Lookup(#[source] CallError),
    #[error("rpcbind on the client has no registration of program {0} version {1} over TCP")]
    NotRegistered(u32, u32),
    #[error("the client does not answer")]
    Call(#[source] CallError),
}

impl PeerError {
    /// Returns `true` if the client certainly has not executed the call.
    fn is_unexecuted(&self) -> bool {
        match self {
            Self::Call(error) => error.is_retry_safe(),
            _ => true,
        }
    }
}

/// The outcome of the attempts to tell a client that it has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// The client has the lock, may believe that it has the lock, or has settled the grant in another way.
    Accepted,
    /// The client does not want the lock.
    Declined,
    /// The client cannot know that it has the lock.
    Undelivered,
}

impl LockManager {
    /// Tells the owners of grants that they have their locks.
    pub(super) fn call_back(&self, grants: Vec<Grant>) {
        for grant in grants {
            let addr = grant.lock.owner.host.addr;
            if self.inner().queues.push(grant) {
                let manager = self.clone();
                self.spawn(async move { manager.empty_queue(addr).await });
            }
        }
    }

    async fn empty_queue(self, addr: IpAddr) {
        let mut client = None;
        while let Some(grant) = self.inner().queues.pop(addr) {
            match self.deliver(&grant, &mut client).await {
                Delivery::Accepted => self.change(|table| table.confirm(&grant)),
                Delivery::Declined => self.change(|table| table.refuse(&grant)),
                Delivery::Undelivered => {
                    let withdrawn = self.change(|table| {
                        table.refuse(&grant);
                        table.stop_waiting(&grant.lock.owner.host)
                    });
                    tracing::warn!(%addr, withdrawn, "a client cannot be told that it has a lock, which is taken back");
                }
            }
        }
    }

    async fn deliver(&self, grant: &Grant, client: &mut Option<Nlm4VersClient>) -> Delivery {
        let timing = self.inner().config.timing;
        let deadline = Instant::now() + timing.granting;
        let mut may_know = false;
        loop {
            // The client may have asked again, unlocked or cancelled.
            if !self.table().is_unconfirmed(grant) {
                return Delivery::Accepted;
            }
            match self.granted(grant, client).await {
                Ok(Nlm4Stats::DeniedGracePeriod) => {}
                // The answer to an earlier attempt may be lost. Linux's client accepts a grant only once.
                Ok(Nlm4Stats::Denied) if !may_know => return Delivery::Declined,
                Ok(_) => return Delivery::Accepted,
                Err(error) => {
                    may_know |= !error.is_unexecuted();
                    let addr = grant.lock.owner.host.addr;
                    tracing::debug!(%addr, error = chain(&error), "NLMPROC4_GRANTED failed");
                    *client = None;
                }
            }
            if Instant::now() + timing.pause >= deadline {
                return if may_know { Delivery::Accepted } else { Delivery::Undelivered };
            }
            sleep(timing.pause).await;
        }
    }

    /// Calls NLMPROC4_GRANTED once. Connects to the client first if `client` is `None`.
    async fn granted(&self, grant: &Grant, client: &mut Option<Nlm4VersClient>) -> Result<Nlm4Stats, PeerError> {
        let owner = &grant.lock.owner;
        let client = match client {
            Some(client) => client,
            None => {
                let (program, version) = (nlm4_vers::PROGRAM, nlm4_vers::VERSION);
                let channel = self.peer(owner.host.addr, grant.data.local, program, version).await?;
                client.insert(Nlm4VersClient::new(channel))
            }
        };
        let alock = Nlm4Lock {
            caller_name: bytes::Bytes::copy_from_slice(&owner.host.name).into(),
            fh: Netobj(grant.data.handle.clone()),
            oh: Netobj(bytes::Bytes::copy_from_slice(&owner.oh)),
            svid: owner.svid,
            l_offset: grant.lock.range.first,
            l_len: grant.lock.range.len(),
        };
        let cookie = Netobj(grant.data.cookie.clone());
        let args = Nlm4Testargs { cookie, exclusive: grant.lock.is_exclusive, alock };
        let status = client.nlmproc4_granted(&args).await.map_err(PeerError::Call)?.stat.stat;
        tracing::debug!(addr = %owner.host.addr, ?status, "called NLMPROC4_GRANTED");
        Ok(status)
    }

    /// Finds a service on a client by the rpcbind of the client, and connects to the service. Linux's client recognizes
    /// the server by its address, so the connection comes from `local`, the address that the client uses, if it is
    /// known.
    pub(super) async fn peer(
        &self,
        addr: IpAddr,
        local: Option<IpAddr>,
        program: u32,
        version: u32,
    ) -> Result<Channel, PeerError> {
        let rpcbind = Rpcbind::new(self.connect(SocketAddr::new(addr, self.inner().config.rpcbind_port), local).await?);
        let netid = if addr.is_ipv4() { Netid::Tcp } else { Netid::Tcp6 };
        let found = rpcbind.lookup(program, version, netid).await.map_err(PeerError::Lookup)?;
        let port = found.ok_or(PeerError::NotRegistered(program, version))?.port();
        // A client must not make the server call another host.
        self.connect(SocketAddr::new(addr, port), local).await
    }

    async fn connect(&self, addr: SocketAddr, local: Option<IpAddr>) -> Result<Channel, PeerError> {
        let attempt = self.inner().config.timing.attempt;
        let builder = Channel::builder().connect_timeout(attempt).call_timeout(attempt).reconnect(Reconnect::Never);
        let local = local.filter(|local| local.is_ipv4() == addr.is_ipv4());
        let local = local.map_or_else(String::new, |local| format!("?local={local}"));
        builder.connect(&format!("tcp://{addr}{local}")).await.map_err(|error| PeerError::Connect(addr, error))
    }
}

//! The duplicate request cache (RFC 1813 §4.5): a call that is repeated is answered as it was, and not carried out again.
//!
//! A client that loses its connection sends on the next one what was not answered. Had the server carried it out, and the
//! reply was lost, then a REMOVE would now find nothing and a CREATE a file that is there. So the results of procedures
//! that change something are kept for a while; a repetition that comes while the call is still under way waits for it.

use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use rpcrdma::{
    rpc::Credential,
    server::{Context, Failure},
    transport::Transport,
    xdr::{XdrEncode, encode_to_bytes},
};
use tokio::sync::OnceCell;

use super::counters::Procedure;

/// Most results kept. Those of one client are at most as many as its credits, if it repeats them at once.
const MOST_REPLIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// How long: longer than Linux's client waits (60 s) before it gives a connection up and sends again.
const LIFETIME: Duration = Duration::from_secs(120);

/// What makes a call the same call: who sends it, its XID, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Call {
    client: IpAddr,
    /// Over TCP clients come back from the same port; that of an RDMA connection is a new one each time.
    port: Option<u16>,
    xid: u32,
    digest: [u8; 32],
}

type Kept = Arc<OnceCell<Box<dyn Any + Send + Sync>>>;

/// Results of calls of late.
#[derive(Debug)]
pub(super) struct Replies(Mutex<LruCache<Call, (Instant, Kept)>>);

impl Default for Replies {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST_REPLIES)))
    }
}

impl Replies {
    /// The result of a call: that of `carry_out`, or of the same call before. `args` are what tells it from another with
    /// its XID.
    pub(super) async fn once<T: Clone + Send + Sync + 'static>(
        &self,
        cx: &Context,
        procedure: Procedure,
        args: &(impl XdrEncode + Sync),
        carry_out: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        let by_tcp = cx.transport() == Transport::Tcp;
        let digest = digest(cx.credential(), procedure, args)?;
        self.once_for(call(cx.peer_addr(), by_tcp, cx.xid(), digest), carry_out).await
    }

    async fn once_for<T: Clone + Send + Sync + 'static>(
        &self,
        call: Call,
        carry_out: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        let cell = {
            let mut replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match replies.get(&call) {
                Some((since, cell)) if since.elapsed() < LIFETIME => Arc::clone(cell),
                _ => {
                    let cell = Kept::default();
                    replies.put(call, (Instant::now(), Arc::clone(&cell)));
                    cell
                }
            }
        };
        // One that fails leaves nothing behind, and the next is tried.
        let result = cell.get_or_try_init(|| async { Ok::<_, Failure>(Box::new(carry_out.await?) as Box<_>) }).await?;
        let result: Option<&T> = result.downcast_ref();
        result.cloned().ok_or_else(|| Failure::system("a result of another procedure's in the duplicate request cache"))
    }
}

fn call(peer: SocketAddr, by_tcp: bool, xid: u32, digest: [u8; 32]) -> Call {
    Call { client: peer.ip(), port: by_tcp.then_some(peer.port()), xid, digest }
}

fn digest(caller: &Credential, procedure: Procedure, args: &impl XdrEncode) -> Result<[u8; 32], Failure> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[procedure as u8]);
    if let Credential::Sys(caller) = caller {
        hasher.update(&caller.uid.to_be_bytes()).update(&caller.gid.to_be_bytes());
    }
    hasher.update(&encode_to_bytes(args)?);
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn from(address: &str, xid: u32, digest: u8) -> Call {
        call(address.parse().unwrap(), false, xid, [digest; 32])
    }

    #[tokio::test]
    async fn a_call_is_carried_out_once() {
        let (replies, times) = (Replies::default(), AtomicU32::new(0));
        let run = async |call: Call| {
            let carry_out = async {
                // Long enough for the others to come.
                tokio::task::yield_now().await;
                Ok(times.fetch_add(1, Ordering::Relaxed))
            };
            replies.once_for(call, carry_out).await.unwrap()
        };
        let together = tokio::join!(run(from("10.0.0.1:5", 7, 1)), run(from("10.0.0.1:5", 7, 1)));
        assert_eq!(together, (0, 0));
        assert_eq!(run(from("10.0.0.1:6", 7, 1)).await, 0, "from its next connection");
        let others = [from("10.0.0.1:5", 8, 1), from("10.0.0.1:5", 7, 2), from("10.0.0.2:5", 7, 1)];
        for (nth, other) in others.into_iter().enumerate() {
            assert_eq!(run(other).await as usize, nth + 1, "another call");
        }
    }

    #[test]
    fn over_tcp_a_client_is_known_by_its_port() {
        let by_tcp = |address: &str| call(address.parse().unwrap(), true, 7, [0; 32]);
        assert_ne!(by_tcp("10.0.0.1:5"), by_tcp("10.0.0.1:6"));
        assert_eq!(from("10.0.0.1:5", 7, 0), from("10.0.0.1:6", 7, 0));
    }

    #[tokio::test]
    async fn a_call_that_failed_is_tried_again() {
        let replies = Replies::default();
        let failed =
            replies.once_for::<u32>(from("10.0.0.1:5", 7, 1), async { Err(Failure::system("no thread")) }).await;
        assert!(failed.is_err());
        assert_eq!(replies.once_for(from("10.0.0.1:5", 7, 1), async { Ok(3) }).await.unwrap(), 3);
    }
}

//! The duplicate request cache (RFC 1813 §4.5), which returns the original reply to a retransmitted call instead of
//! performing the call again.
//!
//! A client that loses its connection repeats calls without a reply on the next one. If the server had performed such a
//! call and only the reply was lost, a repeated REMOVE would not find its file, and a repeated CREATE would find it.
//! Results of procedures that change something are therefore kept for a while. A repetition of a call that is still in
//! progress waits for its result.

use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use rpcrdma::{
    rpc::{Credential, Principal},
    server::{Context, HandlerError},
    transport::Transport,
    xdr::{XdrEncode, encode_to_bytes},
};
use tokio::sync::OnceCell;

use super::counters::Procedure;

/// Maximum number of results. A client that repeats calls at once needs at most as many as its credits.
const MOST_REPLIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Lifetime of a result. Linux's client repeats calls after at most 60 s, when it gives up a connection.
const LIFETIME: Duration = Duration::from_secs(120);

/// Key of a call: client, XID and contents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CallKey {
    client: IpAddr,
    /// Source port over TCP, where clients reconnect from the same port. `None` over RDMA, where the port changes with
    /// each connection.
    port: Option<u16>,
    xid: u32,
    digest: [u8; 32],
}

type CachedReply = Arc<OnceCell<Box<dyn Any + Send + Sync>>>;

/// Results of recent calls.
#[derive(Debug)]
pub(super) struct DuplicateRequestCache(Mutex<LruCache<CallKey, (Instant, CachedReply)>>);

impl Default for DuplicateRequestCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MOST_REPLIES)))
    }
}

impl DuplicateRequestCache {
    /// Returns the result of `carry_out`, or the result of an earlier identical call. `args` distinguish it from other
    /// calls with the same XID.
    pub(super) async fn once<T: Clone + Send + Sync + 'static>(
        &self,
        cx: &Context,
        procedure: Procedure,
        args: &(impl XdrEncode + Sync),
        carry_out: impl Future<Output = Result<T, HandlerError>> + Send,
    ) -> Result<T, HandlerError> {
        let by_tcp = cx.transport() == Transport::Tcp;
        let digest = digest(cx.credential(), cx.principal(), procedure, args)?;
        self.once_for(call(cx.peer_addr(), by_tcp, cx.xid(), digest), carry_out).await
    }

    async fn once_for<T: Clone + Send + Sync + 'static>(
        &self,
        call: CallKey,
        carry_out: impl Future<Output = Result<T, HandlerError>> + Send,
    ) -> Result<T, HandlerError> {
        let cell = {
            let mut replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match replies.get(&call) {
                Some((since, cell)) if since.elapsed() < LIFETIME => Arc::clone(cell),
                _ => {
                    let cell = CachedReply::default();
                    replies.put(call, (Instant::now(), Arc::clone(&cell)));
                    cell
                }
            }
        };
        // A failed call leaves the cell empty, so that a repetition is performed.
        let result =
            cell.get_or_try_init(|| async { Ok::<_, HandlerError>(Box::new(carry_out.await?) as Box<_>) }).await?;
        let result: Option<&T> = result.downcast_ref();
        result
            .cloned()
            .ok_or_else(|| HandlerError::system("the duplicate request cache has a result of another procedure"))
    }
}

fn call(peer: SocketAddr, by_tcp: bool, xid: u32, digest: [u8; 32]) -> CallKey {
    CallKey { client: peer.ip(), port: by_tcp.then_some(peer.port()), xid, digest }
}

fn digest(
    caller: &Credential,
    principal: Option<&Principal>,
    procedure: Procedure,
    args: &impl XdrEncode,
) -> Result<[u8; 32], HandlerError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[procedure as u8]);
    if let Credential::Sys(caller) = caller {
        hasher.update(&caller.uid.to_be_bytes()).update(&caller.gid.to_be_bytes());
    }
    if let Some(principal) = principal {
        // The credential of a retransmitted call has another sequence number (RFC 2203 §5.3.1).
        hasher.update(&(principal.name.len() as u64).to_be_bytes()).update(principal.name.as_bytes());
    }
    hasher.update(&encode_to_bytes(args)?);
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn from(address: &str, xid: u32, digest: u8) -> CallKey {
        call(address.parse().unwrap(), false, xid, [digest; 32])
    }

    #[tokio::test]
    async fn a_repeated_call_runs_once() {
        let (replies, times) = (DuplicateRequestCache::default(), AtomicU32::new(0));
        let run = async |call: CallKey| {
            let carry_out = async {
                // Yield, so that the other call arrives in the meantime.
                tokio::task::yield_now().await;
                Ok(times.fetch_add(1, Ordering::Relaxed))
            };
            replies.once_for(call, carry_out).await.unwrap()
        };
        let together = tokio::join!(run(from("10.0.0.1:5", 7, 1)), run(from("10.0.0.1:5", 7, 1)));
        assert_eq!(together, (0, 0));
        assert_eq!(run(from("10.0.0.1:6", 7, 1)).await, 0, "repeated on the client's next connection");
        let others = [from("10.0.0.1:5", 8, 1), from("10.0.0.1:5", 7, 2), from("10.0.0.2:5", 7, 1)];
        for (nth, other) in others.into_iter().enumerate() {
            assert_eq!(run(other).await as usize, nth + 1, "a different call");
        }
    }

    #[test]
    fn tcp_clients_are_identified_by_port() {
        let by_tcp = |address: &str| call(address.parse().unwrap(), true, 7, [0; 32]);
        assert_ne!(by_tcp("10.0.0.1:5"), by_tcp("10.0.0.1:6"));
        assert_eq!(from("10.0.0.1:5", 7, 0), from("10.0.0.1:6", 7, 0));
    }

    #[tokio::test]
    async fn a_call_that_failed_is_tried_again() {
        let replies = DuplicateRequestCache::default();
        let failed =
            replies.once_for::<u32>(from("10.0.0.1:5", 7, 1), async { Err(HandlerError::system("no thread")) }).await;
        assert!(failed.is_err());
        assert_eq!(replies.once_for(from("10.0.0.1:5", 7, 1), async { Ok(3) }).await.unwrap(), 3);
    }
}

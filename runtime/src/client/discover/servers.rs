//! The list of the servers of a service.

use std::{
    collections::BTreeSet,
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, PoisonError},
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tokio::sync::watch;

use super::super::service::outage::SharedFailure;

/// The changing list of the URLs of a service's servers. It is a stream of complete lists: each item replaces the list
/// before it. A list that is replaced before it is read is skipped.
///
/// The options `priority` and `weight` of a [`Url`](crate::transport::Url) are for the balancer.
#[must_use]
pub struct Servers {
    /// The future that waits for the next list. `None` if the list does not change any more.
    next: Option<Next>,
    failure: SharedFailure,
}

/// The URLs of the servers. `None` until the list is known.
type List = Option<BTreeSet<String>>;
type Next = Pin<Box<dyn Future<Output = Option<watch::Receiver<List>>> + Send>>;

fn next(mut list: watch::Receiver<List>) -> Next {
    Box::pin(async move { list.changed().await.is_ok().then_some(list) })
}

impl Servers {
    /// Returns a list that does not change.
    pub fn fixed<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        let (sender, servers) = Self::channel();
        sender.set(urls);
        servers
    }

    /// Returns a list, and its sender, for a source of your own. The list is unknown until the sender sets it. After
    /// the sender is dropped, the list does not change any more.
    ///
    /// ```
    /// use rpcrdma::client::discover::Servers;
    ///
    /// # async fn read_file() -> Vec<String> { Vec::new() }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (sender, servers) = Servers::channel();
    /// tokio::spawn(async move {
    ///     while !sender.is_closed() {
    ///         sender.set(read_file().await);
    ///         tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    ///     }
    /// });
    /// # drop(servers); }
    /// ```
    pub fn channel() -> (ServersSender, Self) {
        let (sender, list) = watch::channel(None);
        let failure = SharedFailure::default();
        let sender = ServersSender { list: sender, failure: Arc::clone(&failure) };
        (sender, Self { next: Some(next(list)), failure })
    }

    /// Returns the shared slot in which the source stores its latest error.
    pub(super) fn failure(&self) -> SharedFailure {
        Arc::clone(&self.failure)
    }
}

impl Stream for Servers {
    type Item = BTreeSet<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BTreeSet<String>>> {
        let Some(waiting) = &mut self.next else { return Poll::Ready(None) };
        let changed = ready!(waiting.as_mut().poll(cx));
        let servers = changed.map(|mut list| {
            let servers = list.borrow_and_update().clone().unwrap_or_default();
            (servers, next(list))
        });
        let (servers, next) = servers.unzip();
        self.next = next;
        Poll::Ready(servers)
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").finish_non_exhaustive()
    }
}

/// The sender of a list of servers, made by [`Servers::channel`].
#[derive(Debug)]
pub struct ServersSender {
    list: watch::Sender<List>,
    failure: SharedFailure,
}

impl ServersSender {
    /// Maximum number of servers in a list.
    pub const MAX_SERVERS: usize = 10_000;
    /// Maximum length of the URL of a server, in bytes.
    pub const MAX_URL_LEN: usize = 2048;

    /// Replaces the list. A list with the same URLs as before is not announced. The list has up to
    /// [`MAX_SERVERS`](Self::MAX_SERVERS) URLs of up to [`MAX_URL_LEN`](Self::MAX_URL_LEN) bytes. Further URLs and
    /// longer URLs are skipped, so that a faulty source cannot exhaust the memory.
    pub fn set<U: Into<String>>(&self, urls: impl IntoIterator<Item = U>) {
        let mut skipped = 0_usize;
        let mut listed = BTreeSet::new();
        for url in urls.into_iter().map(Into::into) {
            if url.len() <= Self::MAX_URL_LEN && (listed.len() < Self::MAX_SERVERS || listed.contains(&url)) {
                listed.insert(url);
            } else {
                skipped += 1;
            }
        }
        if skipped > 0 {
            tracing::warn!(
                target: "rpcrdma", skipped, "service discovery lists more than {} servers, or URLs of more than {} bytes",
                Self::MAX_SERVERS, Self::MAX_URL_LEN
            );
        }
        self.set_failure(None);
        let urls: List = Some(listed);
        self.list.send_if_modified(|list| {
            let is_new = *list != urls;
            *list = urls;
            is_new
        });
    }

    /// Reports that the servers cannot be listed now. The list stays as it is. Until the list is [set](Self::set)
    /// again, calls that no server takes fail with an error that has `error` in its chain of sources. The chain
    /// contains another error instead if no listed URL is valid, or if the last endpoint that failed could not connect.
    pub fn fail(&self, error: impl Error + Send + Sync + 'static) {
        self.set_failure(Some(Arc::new(error)));
    }

    fn set_failure(&self, failure: Option<Arc<dyn Error + Send + Sync>>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Returns `true` if the list was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.list.is_closed()
    }

    /// Waits until the list is dropped.
    pub async fn closed(&self) {
        self.list.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::trace::log::Log;

    fn poll(servers: &mut Servers) -> Poll<Option<usize>> {
        let list = Pin::new(servers).poll_next(&mut Context::from_waker(Waker::noop()));
        list.map(|list| list.map(|urls| urls.len()))
    }

    /// A list has a bounded number of URLs of a bounded length. A repeated URL counts once.
    #[test]
    fn lists_are_bounded() {
        let url = |n: usize| format!("iwarp://{n}:1");
        let (sender, mut servers) = Servers::channel();
        assert_eq!(poll(&mut servers), Poll::Pending);
        let fitting = "x".repeat(ServersSender::MAX_URL_LEN);
        sender.set([fitting.clone(), format!("{fitting}x"), "iwarp://a:1".to_owned()]);
        assert_eq!(sender.list.borrow().clone().unwrap_or_default().last(), Some(&fitting));
        assert_eq!(poll(&mut servers), Poll::Ready(Some(2)));
        for count in [ServersSender::MAX_SERVERS, ServersSender::MAX_SERVERS + 1] {
            sender.set((0..count).chain(0..1).map(url));
            let listed = sender.list.borrow().clone().unwrap_or_default();
            assert_eq!((listed.len(), listed.contains(&url(0))), (ServersSender::MAX_SERVERS, true));
        }
        assert_eq!(poll(&mut servers), Poll::Ready(Some(ServersSender::MAX_SERVERS)));
    }

    /// A list that did not change is not announced. The sender and the list each learn that the other was dropped.
    #[tokio::test]
    async fn only_changes_are_announced() {
        let (sender, mut servers) = Servers::channel();
        for (urls, announced) in [(vec!["a"], true), (vec!["a", "a"], false), (vec![], true), (vec![], false)] {
            sender.set(urls.clone());
            let expected = if announced { Poll::Ready(Some(urls.len())) } else { Poll::Pending };
            assert_eq!(poll(&mut servers), expected, "{urls:?}");
        }
        assert!(!sender.is_closed());
        let mut closed = Box::pin(sender.closed());
        assert!(closed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(servers);
        closed.await;
        assert!(sender.is_closed());

        let (sender, mut servers) = Servers::channel();
        drop(sender);
        assert_eq!((poll(&mut servers), poll(&mut servers)), (Poll::Ready(None), Poll::Ready(None)));
    }

    /// A log entry reports that a URL was skipped because it is longer than the maximum.
    #[test]
    fn skipped_servers_are_reported() {
        Log::of(|log| {
            let (sender, _servers) = Servers::channel();
            for (len, is_reported) in [(ServersSender::MAX_URL_LEN, false), (ServersSender::MAX_URL_LEN + 1, true)] {
                sender.set(["x".repeat(len)]);
                assert_eq!(log.take_messages().len(), usize::from(is_reported), "{len}");
            }
        });
    }
}

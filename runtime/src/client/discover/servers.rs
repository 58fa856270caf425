//! The list of the servers of a service.

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tokio::sync::watch;

/// The URLs of the servers of a service, which may change. A stream of complete lists: each item replaces the one before. Lists
/// that were not read in time are skipped.
#[must_use]
pub struct Servers {
    /// The wait for the next list. `None` if the list does not change any more.
    next: Option<Next>,
}

/// `None` until the list is known.
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

    /// Returns a list, and its sender, for a source of your own. The list is unknown until the sender sets it. After the sender is
    /// dropped, the list does not change any more.
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
        (ServersSender(sender), Self { next: Some(next(list)) })
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

/// Sets the list of [`Servers::channel`].
#[derive(Debug)]
pub struct ServersSender(watch::Sender<List>);

impl ServersSender {
    /// Replaces the list. A list with the same URLs as before is not announced.
    pub fn set<U: Into<String>>(&self, urls: impl IntoIterator<Item = U>) {
        let urls: List = Some(urls.into_iter().map(Into::into).collect());
        self.0.send_if_modified(|list| {
            let is_new = *list != urls;
            *list = urls;
            is_new
        });
    }

    /// Returns `true` if the list was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the list is dropped.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

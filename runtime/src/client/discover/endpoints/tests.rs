#![allow(clippy::unwrap_used)]

use std::task::Waker;

use super::*;
use crate::{Channel, client::service::health::EndpointFailure, trace::log::Log};

/// Returns endpoints for these servers, which connect only if they are polled.
fn listed<U: AsRef<str>>(max_open: usize, servers: &[U]) -> Endpoints {
    let mut endpoints = Endpoints::new(Servers::fixed(Vec::<String>::new()), Channel::builder()).max_open(max_open);
    list(&mut endpoints, servers);
    endpoints
}

fn list<U: AsRef<str>>(endpoints: &mut Endpoints, servers: &[U]) {
    endpoints.update(servers.iter().map(|url| url.as_ref().to_owned()).collect());
}

/// Returns the URLs of `count` servers.
fn urls(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("tcp://192.0.2.{n}:1")).collect()
}

/// A change of the endpoints, reduced to the URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Opened(String),
    Closed(String),
}

use Seen::{Closed, Opened};

/// Chooses the endpoints, and returns the changes since the last call, the oldest first.
fn choose(endpoints: &mut Endpoints) -> Vec<Seen> {
    endpoints.choose();
    let seen = endpoints.changes.drain(..).map(|change| match change {
        Change::Insert(url, _) => Opened(url),
        Change::Remove(url) => Closed(url),
    });
    seen.collect()
}

/// Returns the URLs in the order in which the servers are used.
fn ranked(endpoints: &Endpoints) -> Vec<String> {
    endpoints.candidates.iter().flatten().map(|(rank, _)| rank.url.to_string()).collect()
}

fn candidate<'a>(endpoints: &'a Endpoints, url: &str) -> &'a Candidate {
    endpoints.candidates.iter().flatten().find(|(rank, _)| &*rank.url == url).unwrap().1
}

fn health(endpoints: &Endpoints, url: &str) -> Arc<EndpointHealth> {
    Arc::clone(candidate(endpoints, url).health.as_ref().unwrap())
}

fn fail(endpoints: &Endpoints, urls: &[&String]) {
    urls.iter().for_each(|url| health(endpoints, url).failed(EndpointFailure::Silent));
}

/// Returns the time until the next choice if no event causes one earlier. Returns `None` if no choice is scheduled.
fn wait(endpoints: &Endpoints) -> Option<Duration> {
    endpoints.timer.as_ref().map(|timer| timer.deadline() - Instant::now())
}

/// Servers that have failed take turns of a second, in the order in which they lost their places.
#[tokio::test(start_paused = true)]
async fn failed_servers_take_turns() {
    let mut endpoints = listed(2, &urls(4));
    let [a, b, c, d] = &ranked(&endpoints)[..] else { panic!("four servers") };
    let opened = |url: &String| Opened(url.clone());
    let closed = |url: &String| Closed(url.clone());
    assert_eq!(choose(&mut endpoints), [a, b].map(opened));
    fail(&endpoints, &[a, b]);
    // One place is for servers that have failed. The first turn may begin at once.
    assert_eq!(choose(&mut endpoints), [closed(a), opened(c)]);
    assert_eq!(choose(&mut endpoints), [], "the turn of b has begun");
    fail(&endpoints, &[c]);
    assert_eq!(choose(&mut endpoints), [closed(c), opened(d)]);
    health(&endpoints, d).usable();
    for (last, next) in [(b, a), (a, c), (c, b), (b, a)] {
        tokio::time::advance(TURN - Duration::from_millis(1)).await;
        assert_eq!(choose(&mut endpoints), [], "the turn of {last}");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(choose(&mut endpoints), [closed(last), opened(next)]);
        assert_eq!(choose(&mut endpoints), []);
        fail(&endpoints, &[next]);
    }
    // A server whose place is free begins its turn without a change of another one.
    list(&mut endpoints, &[b, c, d]);
    tokio::time::advance(TURN).await;
    assert_eq!(choose(&mut endpoints), [closed(a), opened(c)]);
    assert_eq!(choose(&mut endpoints), []);
}

/// An endpoint that is closed because a better endpoint works has no place in the queue of failed endpoints.
#[tokio::test(start_paused = true)]
async fn only_failed_servers_wait_for_a_turn() {
    let [first, second] = &urls(2)[..] else { panic!("two servers") };
    let mut endpoints = listed(2, &[format!("{first}?priority=1"), format!("{second}?priority=2")]);
    assert_eq!(choose(&mut endpoints), [Opened(first.clone())]);
    fail(&endpoints, &[first]);
    assert_eq!(choose(&mut endpoints), [Opened(second.clone())]);
    health(&endpoints, second).usable();
    health(&endpoints, first).usable();
    assert_eq!(choose(&mut endpoints), [Closed(second.clone())]);
    assert_eq!(candidate(&endpoints, second).parked, 0);
}

/// The next choice is made when a server that connects counts as failed, or at the end of a turn, whichever is earlier.
#[tokio::test(start_paused = true)]
async fn choices_in_time() {
    let mut endpoints = listed(2, &urls(4));
    let [a, b, c, d] = &ranked(&endpoints)[..] else { panic!("four servers") };
    let ms = Duration::from_millis;
    choose(&mut endpoints);
    assert_eq!(wait(&endpoints), Some(PATIENCE));
    tokio::time::advance(ms(400)).await;
    health(&endpoints, a).usable();
    choose(&mut endpoints);
    assert_eq!(wait(&endpoints), Some(ms(600)), "b connects");
    health(&endpoints, b).usable();
    choose(&mut endpoints);
    assert_eq!(wait(&endpoints), None);
    // The turn of b begins, and c connects.
    fail(&endpoints, &[a, b]);
    assert_eq!(choose(&mut endpoints), [Closed(a.clone()), Opened(c.clone())]);
    assert_eq!(wait(&endpoints), Some(TURN));
    // Then d connects in place of c, and the turn ends first.
    tokio::time::advance(ms(300)).await;
    fail(&endpoints, &[c]);
    assert_eq!(choose(&mut endpoints), [Closed(c.clone()), Opened(d.clone())]);
    assert_eq!(wait(&endpoints), Some(ms(700)));
    // It is a's turn, but d counts as failed first.
    tokio::time::advance(ms(700)).await;
    assert_eq!(choose(&mut endpoints), [Closed(b.clone()), Opened(a.clone())]);
    assert_eq!(wait(&endpoints), Some(ms(300)));
    // Both places are for servers that have failed.
    tokio::time::advance(ms(300)).await;
    choose(&mut endpoints);
    assert_eq!(wait(&endpoints), Some(ms(700)));
}

/// A server that does not connect in time has failed, and is not waited for.
#[tokio::test(start_paused = true)]
async fn slow_servers_have_failed() {
    let mut endpoints = listed(2, &urls(1));
    choose(&mut endpoints);
    assert_eq!(wait(&endpoints), Some(PATIENCE));
    tokio::time::advance(PATIENCE).await;
    choose(&mut endpoints);
    assert_eq!(
        (wait(&endpoints), endpoints.candidates.iter().flatten().all(|(_, server)| server.has_failed)),
        (None, true)
    );
}

/// RFC 2782: servers with weight 0 are used only if there are too few servers with larger weights.
#[tokio::test(start_paused = true)]
async fn servers_without_weight_are_last() {
    let servers = |weighted: usize| -> Vec<_> {
        (0..50).map(|n| format!("tcp://192.0.2.{n}:1?weight={}", u8::from(n < weighted))).collect()
    };
    for (weighted, expected) in [(2, 2), (1, 1), (0, 0)] {
        let mut endpoints = listed(2, &servers(weighted));
        let opened = choose(&mut endpoints);
        let used = (0..weighted).filter(|n| opened.contains(&Opened(format!("tcp://192.0.2.{n}:1")))).count();
        assert_eq!((opened.len(), used), (2, expected));
    }
}

/// An endpoint takes its weight from the latest list. The removal of a server that has no endpoint causes no change.
#[tokio::test(start_paused = true)]
async fn lists_change() {
    let [first, second] = &urls(2)[..] else { panic!("two servers") };
    let weighted = |weight| [format!("{first}?priority=1"), format!("{second}?priority=2&weight={weight}")];
    let mut endpoints = listed(2, &weighted(5));
    assert_eq!(choose(&mut endpoints), [Opened(first.clone())]);
    list(&mut endpoints, &weighted(9));
    fail(&endpoints, &[first]);
    assert_eq!(choose(&mut endpoints), [Opened(second.clone())]);
    assert_eq!(health(&endpoints, second).share(), (2, 9));
    list(&mut endpoints, &weighted(7));
    assert_eq!(health(&endpoints, second).share(), (2, 7));
    health(&endpoints, first).usable();
    assert_eq!(choose(&mut endpoints), [Closed(second.clone())]);
    list(&mut endpoints, &weighted(7)[..1]);
    assert_eq!(choose(&mut endpoints), []);
    list(&mut endpoints, &[] as &[&str]);
    assert_eq!(choose(&mut endpoints), [Closed(first.clone())]);
}

/// Another server takes the place of a server whose URL does not match the settings of the channels.
#[cfg(feature = "tls")]
#[tokio::test(start_paused = true)]
async fn unsuitable_servers_are_replaced() {
    let [good, bad] = &urls(2)[..] else { panic!("two servers") };
    let mut endpoints = listed(2, &[format!("{good}?priority=2"), format!("{bad}?priority=1&tls=required")]);
    assert_eq!(choose(&mut endpoints), [Opened(good.clone())]);
}

/// A URL that is not valid is reported once.
#[test]
fn invalid_servers_are_reported_once() {
    Log::of(|log| {
        let mut endpoints = listed(2, &["nothing"]);
        assert_eq!(log.take_messages(), ["server skipped"]);
        list(&mut endpoints, &["nothing"]);
        assert_eq!(log.take_messages(), [] as [&str; 0]);
        list(&mut endpoints, &["nothing", "nowhere"]);
        assert_eq!(log.take_messages(), ["server skipped"]);
    });
}

/// The stream ends with a list that is empty and does not change any more.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream() {
    let next = |endpoints: &mut Endpoints| {
        let next = Pin::new(endpoints).poll_next(&mut Context::from_waker(Waker::noop()));
        next.map(|change| change.is_some())
    };
    let endpoints = |servers| Endpoints::new(servers, Channel::builder());
    assert_eq!(next(&mut endpoints(Servers::fixed(Vec::<String>::new()))), Poll::Ready(false));
    let (sender, servers) = Servers::channel();
    sender.set(Vec::<String>::new());
    let mut open = endpoints(servers);
    assert_eq!(next(&mut open), Poll::Pending);
    drop(sender);
    assert_eq!(next(&mut open), Poll::Ready(false));
    let mut one = endpoints(Servers::fixed(urls(1)));
    assert_eq!([next(&mut one), next(&mut one)], [Poll::Ready(true), Poll::Pending]);
    // A timer that has ended is not asked again.
    tokio::time::advance(PATIENCE).await;
    assert_eq!([next(&mut one), next(&mut one)], [Poll::Pending; 2]);
}

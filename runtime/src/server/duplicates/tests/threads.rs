//! Tests of copies of a call that wait for the first copy, in random interleavings chosen by `shuttle`.

// The cache is compiled twice, and parts of it are used only in one of the two places.
#![allow(clippy::duplicate_mod, clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../cache.rs"]
mod cache;

use std::sync::Arc;

use shuttle::{
    future::block_on,
    thread::{self, JoinHandle},
};

use self::cache::{DuplicateRequestCache, Lookup};
use crate::{
    rpc::Credential,
    server::duplicates::{DuplicateRequests, shares, store},
    session::{RecordedReply, RequestKey, recorded_key},
    sync::model::{self as sync, check, give_up},
};

/// The behavior of the handler of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Handler {
    Replies,
    /// The handler is dropped before it replies, because the connection of the call ends.
    IsDropped,
}

fn key() -> RequestKey {
    recorded_key(1, "10.0.0.1", &Credential::None, None, false)
}

fn reply(text: &str) -> RecordedReply {
    RecordedReply::success(&bytes::Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// Makes the call, with a handler that behaves like `handler`. Returns `true` if this copy was executed, and the reply.
async fn call(cache: &Arc<DuplicateRequestCache>, handler: Handler, text: &str) -> (bool, Option<RecordedReply>) {
    loop {
        match cache.lookup(key()) {
            Lookup::Recorded(reply) => return (false, Some(reply)),
            Lookup::InProgress(earlier) => earlier.ended().await,
            Lookup::New(claim) => {
                shuttle::future::yield_now().await;
                let reply = (handler == Handler::Replies).then(|| reply(text));
                if let Some(reply) = &reply {
                    cache.count_miss();
                    claim.record(reply.clone());
                }
                return (true, reply);
            }
        }
    }
}

fn copy(
    cache: &Arc<DuplicateRequestCache>,
    handler: Handler,
    text: &'static str,
) -> JoinHandle<(bool, Option<RecordedReply>)> {
    let cache = Arc::clone(cache);
    thread::spawn(move || block_on(call(&cache, handler, text)))
}

/// Makes a copy of the call in a new thread, and cancels the copy after up to `polls` polls.
fn gives_up(cache: &Arc<DuplicateRequestCache>, polls: usize) -> JoinHandle<()> {
    let cache = Arc::clone(cache);
    thread::spawn(move || drop(block_on(give_up(call(&cache, Handler::IsDropped, ""), polls))))
}

/// Exactly one copy is executed until it replies, and the other copies get its reply. If a copy is cancelled or ends
/// without a reply, another copy is executed.
#[test]
fn copies_get_one_reply() {
    check(|| {
        let cache = Arc::new(DuplicateRequestCache::new(7, DuplicateRequests::new()));
        let copies = [
            copy(&cache, Handler::Replies, "same"),
            copy(&cache, Handler::Replies, "same"),
            copy(&cache, Handler::IsDropped, ""),
        ];
        let cancelled = gives_up(&cache, 2);
        let [first, second, dropped] = copies.map(|copy| copy.join().unwrap());
        cancelled.join().unwrap();
        assert_eq!((first.1, second.1), (Some(reply("same")), Some(reply("same"))));
        assert!(first.0 != second.0, "one of the two is executed");
        assert!(dropped.0 != dropped.1.is_some(), "a copy without a reply of its own was executed");
        let stats = cache.stats();
        assert_eq!((stats.in_progress, stats.entries, stats.misses), (0, 1, 1));
    });
}

/// A reply that is too long to be recorded ends the call as well. Each copy is then executed.
#[test]
fn a_reply_that_is_not_recorded_wakes_the_copies() {
    check(|| {
        let cache = Arc::new(DuplicateRequestCache::new(7, DuplicateRequests::new().max_bytes(1)));
        let copies = [(); 3].map(|()| copy(&cache, Handler::Replies, "long"));
        let cancelled = gives_up(&cache, 1);
        assert!(copies.map(|copy| copy.join().unwrap()).iter().all(|(is_executed, _)| *is_executed));
        cancelled.join().unwrap();
        let stats = cache.stats();
        assert_eq!((stats.in_progress, stats.entries, stats.bytes, stats.misses), (0, 0, 0, 3));
    });
}

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use crate::{
    rpc::Credential,
    security::{Principal, ProtectionLevel},
    server::duplicates::{
        DuplicateRequests,
        cache::{Claim, DuplicateRequestCache, Lookup},
    },
    session::{RecordedCall, RecordedReply, RequestKey, recorded_key},
};

fn key(xid: u32) -> RequestKey {
    recorded_key(xid, "10.0.0.1", &Credential::None, None, false)
}

fn reply(text: &str) -> RecordedReply {
    RecordedReply::success(&bytes::Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn cache(config: DuplicateRequests) -> Arc<DuplicateRequestCache> {
    Arc::new(DuplicateRequestCache::new(7, config))
}

fn claim(cache: &Arc<DuplicateRequestCache>, key: &RequestKey) -> Claim {
    match cache.lookup(key.clone()) {
        Lookup::New(claim) => claim,
        _ => panic!("not new"),
    }
}

fn is_recorded(cache: &Arc<DuplicateRequestCache>, key: &RequestKey, expected: &RecordedReply) -> bool {
    matches!(cache.lookup(key.clone()), Lookup::Recorded(reply) if reply == *expected)
}

#[tokio::test(start_paused = true)]
async fn replies_expire_by_age() {
    let cache = cache(DuplicateRequests::new().max_age(Duration::from_secs(10)));
    claim(&cache, &key(1)).record(reply("one"));
    tokio::time::advance(Duration::from_secs(9)).await;
    claim(&cache, &key(2)).record(reply("two"));
    assert!(is_recorded(&cache, &key(1), &reply("one")));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(matches!(cache.lookup(key(1)), Lookup::New(_)), "a hit does not extend the age");
    assert!(is_recorded(&cache, &key(2), &reply("two")));
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.in_progress, stats.hits, stats.evicted), (1, 0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_reply_of_a_client_is_evicted_first() {
    let cache = cache(DuplicateRequests::new().max_entries(2));
    for xid in 1..=3 {
        claim(&cache, &key(xid)).record(reply("some"));
    }
    assert!(is_recorded(&cache, &key(2), &reply("some")) && is_recorded(&cache, &key(3), &reply("some")));
    assert!(matches!(cache.lookup(key(1)), Lookup::New(_)));
    assert_eq!(cache.stats().evicted, 1);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded() {
    let long = "x".repeat(1000);
    let cache = cache(DuplicateRequests::new().max_bytes(3000));
    for xid in 1..=10 {
        claim(&cache, &key(xid)).record(reply(&long));
        assert!(cache.stats().bytes <= 3000);
    }
    assert_eq!(cache.stats().entries, 2);
    // A reply that is longer than the bound displaces no others.
    claim(&cache, &key(11)).record(reply(&"x".repeat(3000)));
    assert!(matches!(cache.lookup(key(11)), Lookup::New(_)));
    assert!(is_recorded(&cache, &key(10), &reply(&long)));
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!((cache.stats().bytes, cache.stats().entries), (0, 0));
}

/// The size of an entry includes its key, its reply and its place in the table. One reply may take all the room.
#[tokio::test(start_paused = true)]
async fn the_whole_entry_counts() {
    let some = reply("some");
    let ample = cache(DuplicateRequests::new());
    claim(&ample, &key(1)).record(some.clone());
    let bytes = ample.stats().bytes;
    assert!(bytes > RecordedCall::new(key(1)).size() + some.size(), "{bytes}");
    for (max_bytes, is_kept) in [(bytes, true), (bytes - 1, false)] {
        let cache = cache(DuplicateRequests::new().max_bytes(max_bytes));
        claim(&cache, &key(1)).record(some.clone());
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.in_progress), (usize::from(is_kept), 0));
        assert_eq!((stats.bytes, stats.evicted), if is_kept { (bytes, 0) } else { (0, 1) });
    }
}

/// A reply that has expired when the next reply is recorded does not count as evicted.
#[tokio::test(start_paused = true)]
async fn expired_replies_make_room_first() {
    let cache = cache(DuplicateRequests::new().max_age(Duration::from_secs(10)).max_entries(1));
    claim(&cache, &key(1)).record(reply("one"));
    let two = claim(&cache, &key(2));
    tokio::time::advance(Duration::from_secs(10)).await;
    two.record(reply("two"));
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.in_progress, stats.evicted), (1, 0, 0));
    assert!(is_recorded(&cache, &key(2), &reply("two")));
}

/// A client can displace only its own replies, and an address only replies of its clients.
#[tokio::test(start_paused = true)]
async fn clients_have_shares() {
    let of = |xid, address: &str, credential: &Credential, principal: Option<&Principal>| {
        recorded_key(xid, address, credential, principal, false)
    };
    let none = Credential::None;
    let alice = Principal::new("alice@EXAMPLE.COM", ProtectionLevel::Privacy);
    let victims = [
        of(1, "10.0.0.9", &none, None),
        of(1, "10.0.0.1", &Credential::sys("a", 1, 1, []), None),
        of(1, "10.0.0.1", &none, Some(&alice)),
        of(1, "2001:db8:1::1", &none, None),
    ];
    let cache = cache(DuplicateRequests::new().max_entries(100));
    for victim in &victims {
        claim(&cache, victim).record(reply("mine"));
    }
    for xid in 0..1000 {
        claim(&cache, &of(xid, "10.0.0.1", &none, None)).record(reply("flood"));
        // A host chooses its address freely within a prefix of 64 bits.
        claim(&cache, &of(1, &format!("2001:db8::{xid:x}"), &none, None)).record(reply("flood"));
    }
    for victim in &victims {
        assert!(is_recorded(&cache, victim, &reply("mine")), "{victim:?}");
    }
    assert!(cache.stats().entries <= 100);
    // Another address has a share, however many identities it claims.
    for uid in 0..1000 {
        let credential = Credential::sys("b", uid, 1, []);
        claim(&cache, &of(1, "10.0.0.7", &credential, None)).record(reply("flood"));
    }
    for victim in &victims {
        assert!(is_recorded(&cache, victim, &reply("mine")), "{victim:?}");
    }
}

/// A copy of a call in progress waits. The copy is executed if the first call ends without a reply.
#[tokio::test(start_paused = true)]
async fn copies_wait() {
    let cache = cache(DuplicateRequests::new().max_entries(1));
    for ends_with_reply in [true, false] {
        let first = claim(&cache, &key(1));
        let Lookup::InProgress(earlier) = cache.lookup(key(1)) else { panic!("not in progress") };
        claim(&cache, &key(2)).record(reply("another"));
        claim(&cache, &key(3)).record(reply("another"));
        assert!(matches!(cache.lookup(key(1)), Lookup::InProgress(_)), "calls in progress are never evicted");
        let waiting = tokio::spawn(earlier.ended());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        if ends_with_reply {
            first.record(reply("done"));
        } else {
            drop(first);
        }
        waiting.await.unwrap();
        assert_eq!(is_recorded(&cache, &key(1), &reply("done")), ends_with_reply);
        tokio::time::advance(Duration::from_secs(120)).await;
    }
}

/// A principal at another address is another client, whose call is executed. The addresses share the room of the
/// principal.
#[tokio::test(start_paused = true)]
async fn a_principal_at_several_addresses() {
    let principal = |name: &str| Principal::new(name, ProtectionLevel::Integrity);
    let (alice, bob) = (principal("alice@EXAMPLE.COM"), principal("bob@EXAMPLE.COM"));
    let of = |xid, address: &str, principal| recorded_key(xid, address, &Credential::None, Some(principal), false);
    let cache = cache(DuplicateRequests::new().max_entries(100));
    let (here, there) = (of(1, "10.0.0.1", &alice), of(1, "10.0.0.2", &alice));
    claim(&cache, &here).record(reply("here"));
    claim(&cache, &there).record(reply("there"));
    assert!(is_recorded(&cache, &here, &reply("here")) && is_recorded(&cache, &there, &reply("there")));
    assert_ne!(here.to_bytes(), there.to_bytes());
    claim(&cache, &of(1, "10.0.0.1", &bob)).record(reply("mine"));
    for n in 0..1000 {
        let address = format!("10.1.{}.{}", n / 250, n % 250);
        claim(&cache, &of(1, &address, &alice)).record(reply("flood"));
    }
    assert!(is_recorded(&cache, &of(1, "10.0.0.1", &bob), &reply("mine")));
    assert!(cache.stats().entries <= 100 && cache.stats().evicted >= 900);
}

#[test]
fn clients_are_distinguished() {
    let sys = |machine: &str, stamp, uid| {
        let mut credential = Credential::sys(machine, uid, 100, []);
        if let Credential::Sys(parms) = &mut credential {
            parms.stamp = stamp;
        }
        credential
    };
    let principal = |name: &str, level| Some(Principal::new(name, level));
    let alice = principal("alice@EXAMPLE.COM", ProtectionLevel::Privacy);
    let of = |address, credential: &Credential, principal: Option<&Principal>, ignores_stamp| {
        recorded_key(7, address, credential, principal, ignores_stamp)
    };
    let base = of("10.0.0.1", &sys("a", 1, 5), None, false);
    assert_eq!(base, of("::ffff:10.0.0.1", &sys("a", 1, 5), None, false));
    let others = [
        of("10.0.0.2", &sys("a", 1, 5), None, false),
        of("10.0.0.1", &sys("b", 1, 5), None, false),
        of("10.0.0.1", &sys("a", 2, 5), None, false),
        of("10.0.0.1", &sys("a", 1, 6), None, false),
        of("10.0.0.1", &Credential::None, None, false),
        of("10.0.0.1", &sys("a", 1, 5), alice.as_ref(), false),
    ];
    for other in &others {
        assert_ne!(base, *other);
        assert_ne!(base.to_bytes(), other.to_bytes());
    }
    assert_eq!(of("10.0.0.1", &sys("a", 1, 5), None, true), of("10.0.0.1", &sys("a", 2, 5), None, true));
    // A security context that is made again may have another level of protection, and always has another credential.
    let again = principal("alice@EXAMPLE.COM", ProtectionLevel::Integrity);
    let first = of("10.0.0.1", &Credential::None, alice.as_ref(), false);
    assert_eq!(first, of("10.0.0.1", &sys("a", 1, 5), again.as_ref(), false));
}

//! Tests of blocked locks. The server grants them by calls to their clients, which may refuse them or not answer.

use std::{net::IpAddr, time::Duration};

use rpcrdma_specs::nlm4::{Nlm4Stats::*, *};

use super::{ALL, Answer, Client, Locked, Received, address, config, hand_over, queue};

/// Lets `client` lock the file. Repeats the request until the lock is granted.
async fn eventually_locked(client: &Client, file: &rpcrdma_specs::nfs3::NfsFh3) {
    tokio::time::timeout(super::LONG, async {
        while client.lock(file, ALL).await != Granted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_blocked_lock_is_granted_by_a_call() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, mut b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    assert_eq!([a.lock(&file, ALL).await, b.block(&file, (5, 7)).await], [Granted, Blocked]);
    assert_eq!(a.unlock(&file, (0, 5)).await, Granted);
    assert!(!b.was_called());
    assert_eq!(a.unlock(&file, ALL).await, Granted);
    let Received::Granted(from, args) = b.received().await else { panic!("no GRANTED") };
    assert_eq!(from, IpAddr::from([127, 0, 0, 1]), "the client recognizes the server by its address");
    let alock = b.alock(&file, 1, (5, 7));
    assert_eq!(args, Nlm4Testargs { cookie: Netobj(b"cookie".as_slice().into()), exclusive: true, alock });
    assert_eq!([a.lock(&file, (5, 1)).await, a.lock(&file, (12, 0)).await], [Denied, Granted]);
    assert_eq!(b.unlock(&file, ALL).await, Granted);
    assert_eq!(a.lock(&file, ALL).await, Granted);
}

#[tokio::test]
async fn requests_are_granted_in_order_and_shared_ones_together() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let (mut b, mut c, mut d) =
        (Client::new(&server, "b").await, Client::new(&server, "c").await, Client::new(&server, "d").await);
    assert_eq!(a.lock(&file, ALL).await, Granted);
    for client in [&b, &c] {
        let args = Nlm4Lockargs { block: true, ..client.args(&file, 1, ALL, false) };
        assert_eq!(client.call(&args).await, Blocked);
    }
    assert_eq!(d.block(&file, ALL).await, Blocked);
    assert_eq!(a.unlock(&file, ALL).await, Granted);
    assert!(!b.granted().await.exclusive && !c.granted().await.exclusive);
    assert_eq!(b.unlock(&file, ALL).await, Granted);
    assert!(!d.was_called());
    assert_eq!(c.unlock(&file, ALL).await, Granted);
    assert!(d.granted().await.exclusive);
}

#[tokio::test]
async fn a_lock_that_a_client_declines_goes_to_the_next() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let (mut b, mut c) = (Client::new(&server, "b").await, Client::new(&server, "c").await);
    b.answer.send_replace(Answer::Status(Denied));
    queue(&file, &a, [&b, &c]).await;
    assert_eq!(a.unlock(&file, ALL).await, Granted);
    b.granted().await;
    c.granted().await;
    assert_eq!(b.lock(&file, ALL).await, Denied);
    assert_eq!(c.unlock(&file, ALL).await, Granted);
    assert_eq!(b.lock(&file, ALL).await, Granted);
}

#[tokio::test]
async fn a_client_in_its_grace_period_is_called_again() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, mut b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    b.answer.send_replace(Answer::Status(DeniedGracePeriod));
    hand_over(&file, &a, &b).await;
    b.granted().await;
    b.granted().await;
    b.answer.send_replace(Answer::Status(Granted));
    b.granted().await;
    assert_eq!(a.lock(&file, ALL).await, Denied);
}

#[tokio::test]
async fn a_cancelled_request_is_not_granted() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let (mut b, mut c) = (Client::new(&server, "b").await, Client::new(&server, "c").await);
    queue(&file, &a, [&b, &c]).await;
    assert_eq!(
        [b.cancel(&file, (0, 5)).await, b.cancel(&file, ALL).await, b.cancel(&file, ALL).await],
        [Denied, Granted, Denied]
    );
    assert_eq!(a.unlock(&file, ALL).await, Granted);
    c.granted().await;
    assert!(!b.was_called());
    // A lock that its owner knows about is not cancelled.
    assert_eq!(a.lock(&file, ALL).await, Denied);
    eventually_locked(&c, &file).await;
    assert_eq!(c.cancel(&file, ALL).await, Denied);
    assert_eq!(a.lock(&file, ALL).await, Denied);
}

#[tokio::test]
async fn cancelling_wins_against_a_grant_that_is_under_way() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let (mut b, c) = (Client::new(&server, "b").await, Client::new(&server, "c").await);
    b.answer.send_replace(Answer::Silence);
    hand_over(&file, &a, &b).await;
    b.granted().await;
    assert_eq!(c.lock(&file, ALL).await, Denied);
    assert_eq!(b.cancel(&file, ALL).await, Granted);
    assert_eq!(c.lock(&file, ALL).await, Granted);
    // The answer that comes now has no effect, whatever it is: the next grant of this client follows it.
    let other = server.file("other").await;
    hand_over(&other, &a, &b).await;
    b.answer.send_replace(Answer::Status(Granted));
    b.granted().await;
    assert_eq!([b.lock(&file, ALL).await, a.lock(&file, ALL).await], [Denied; 2]);
    assert_eq!(c.unlock(&file, ALL).await, Granted);
    assert_eq!(a.lock(&file, ALL).await, Granted);
}

#[tokio::test]
async fn a_client_that_asks_again_has_the_lock_whatever_it_answers() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, mut b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    b.answer.send_replace(Answer::Silence);
    hand_over(&file, &a, &b).await;
    b.granted().await;
    // Linux's client asks again after 30 s, and does not wait any more when GRANTED arrives.
    assert_eq!(b.block(&file, ALL).await, Granted);
    let other = server.file("other").await;
    hand_over(&other, &a, &b).await;
    b.answer.send_replace(Answer::Status(Denied));
    b.granted().await;
    // It declines the second lock, which comes after the first.
    eventually_locked(&a, &other).await;
    assert_eq!(a.lock(&file, ALL).await, Denied);
}

#[tokio::test]
async fn a_repeated_request_is_granted_once() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, mut b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    assert_eq!(a.lock(&file, ALL).await, Granted);
    for _ in 0..3 {
        assert_eq!(b.block(&file, ALL).await, Blocked);
    }
    assert_eq!(a.unlock(&file, ALL).await, Granted);
    b.granted().await;
    assert_eq!(b.unlock(&file, ALL).await, Granted);
    eventually_locked(&a, &file).await;
    assert!(!b.was_called());
}

#[tokio::test]
async fn a_client_that_does_not_answer_keeps_its_lock_and_delays_nobody() {
    let mut config = config();
    config.timing.attempt = Duration::from_millis(100);
    config.timing.granting = Duration::from_millis(300);
    let server = Locked::with(config).await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let (mut b, mut c) = (Client::new(&server, "b").await, Client::new(&server, "c").await);
    b.answer.send_replace(Answer::Silence);
    hand_over(&file, &a, &b).await;
    b.granted().await;
    // Another client is served meanwhile.
    let other = server.file("other").await;
    hand_over(&other, &a, &c).await;
    c.granted().await;
    // Once the attempts have ended, the client may believe that it has the lock, so it keeps the lock.
    while server.manager.has_unconfirmed() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(a.lock(&file, ALL).await, Denied);
    assert_eq!(b.cancel(&file, ALL).await, Denied);
    assert_eq!(b.unlock(&file, ALL).await, Granted);
    assert_eq!(a.lock(&file, ALL).await, Granted);
}

#[tokio::test]
async fn a_lock_comes_back_from_a_client_that_cannot_be_called() {
    let mut config = config();
    config.timing.granting = Duration::from_millis(100);
    let server = Locked::with(config).await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let b = Client::at(&server, "b", address(), false).await;
    let mut c = Client::new(&server, "c").await;
    queue(&file, &a, [&b, &c]).await;
    // Another request of the same client, which would be next.
    let args = Nlm4Lockargs { block: true, ..b.args(&file, 2, ALL, true) };
    assert_eq!(b.call(&args).await, Blocked);
    assert_eq!(a.unlock(&file, ALL).await, Granted);
    c.granted().await;
    assert_eq!(b.lock(&file, ALL).await, Denied);
    assert_eq!(c.unlock(&file, ALL).await, Granted);
    assert_eq!(a.lock(&file, ALL).await, Granted, "the other request is withdrawn");
}

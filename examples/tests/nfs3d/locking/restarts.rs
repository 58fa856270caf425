//! Tests of restarts: of the server, whose clients reclaim their locks, and of clients, which lose them.

use std::{net::IpAddr, time::Duration};

use rpcrdma::xdr::{Decoder, XdrDecode as _, encode_to_bytes};
use rpcrdma_specs::{
    nlm4::{Nlm4Stats::*, *},
    nsm1::StatChge,
    rpc::{CallBody, OpaqueAuth, RPC_VERS, RpcMsg, RpcMsgBody},
};
use tokio::{net::UdpSocket, time::timeout};

use super::{ALL, Client, LONG, Locked, Received, address, config, queue};

async fn notify(client: &Client, name: &str, state: i32) {
    client.nsm.sm_notify(&StatChge { mon_name: name.into(), state }).await.unwrap();
}

#[tokio::test]
async fn locks_are_reclaimed_after_a_restart() {
    for is_killed in [true, false] {
        let server = Locked::new().await;
        let file = server.file("file").await;
        let (mut a, mut b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
        assert_eq!([a.lock(&file, (0, 10)).await, b.lock(&file, (10, 10)).await], [Granted; 2]);
        let state = server.manager.state();

        let server = server.restarted(config(), is_killed).await;
        for client in [&mut a, &mut b] {
            let Received::Notified(from, change) = client.received().await else { panic!("not notified") };
            assert_eq!(from, IpAddr::from([127, 0, 0, 1]));
            let name = rustix::system::uname().nodename().to_bytes().to_vec();
            assert_eq!((change.mon_name.as_bytes(), change.state), (name.as_slice(), state + 2));
            client.reconnect(&server).await;
        }
        assert!(server.manager.is_in_grace());
        assert_eq!([a.lock(&file, (0, 1)).await, a.block(&file, (0, 1)).await], [DeniedGracePeriod; 2]);
        assert_eq!([a.unlock(&file, ALL).await, a.cancel(&file, ALL).await], [DeniedGracePeriod; 2]);
        assert_eq!(a.test(&file, ALL).await, Nlm4Testrply::Default(DeniedGracePeriod));
        assert_eq!([a.reclaim(&file, (0, 10)).await, b.reclaim(&file, (10, 10)).await], [Granted; 2]);
        assert_eq!(b.reclaim(&file, (9, 1)).await, Denied);
    }
}

#[tokio::test]
async fn after_the_grace_period_locks_are_granted_and_not_reclaimed() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (mut a, mut b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    assert_eq!(a.lock(&file, ALL).await, Granted);
    let mut config = config();
    config.grace = Duration::from_millis(200);
    let server = server.restarted(config, true).await;
    a.reconnect(&server).await;
    b.reconnect(&server).await;
    let lock = async {
        loop {
            match b.lock(&file, ALL).await {
                DeniedGracePeriod => tokio::time::sleep(Duration::from_millis(5)).await,
                outcome => break outcome,
            }
        }
    };
    assert_eq!(timeout(LONG, lock).await.unwrap(), Granted);
    assert_eq!(b.unlock(&file, ALL).await, Granted);
    assert_eq!(a.reclaim(&file, ALL).await, Denied, "another client has had the lock");
    assert_eq!(a.lock(&file, ALL).await, Granted);
}

#[tokio::test]
async fn without_locks_there_is_no_grace_period() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let mut a = Client::new(&server, "alpha").await;
    assert_eq!([a.lock(&file, ALL).await, a.unlock(&file, ALL).await], [Granted; 2]);
    let server = server.restarted(config(), false).await;
    assert!(!server.manager.is_in_grace());
    a.reconnect(&server).await;
    assert_eq!(a.lock(&file, ALL).await, Granted);
    assert!(!a.was_called());
}

#[tokio::test]
async fn a_second_restart_in_the_grace_period_notifies_again() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let mut a = Client::new(&server, "alpha").await;
    assert_eq!(a.lock(&file, ALL).await, Granted);
    let server = server.restarted(config(), true).await;
    let Received::Notified(_, first) = a.received().await else { panic!("not notified") };
    let server = server.restarted(config(), false).await;
    let Received::Notified(_, second) = a.received().await else { panic!("not notified") };
    assert_eq!(second.state, first.state + 2);
    a.reconnect(&server).await;
    assert_eq!(a.reclaim(&file, ALL).await, Granted);
}

#[tokio::test]
async fn a_client_that_cannot_be_notified_is_asked_again() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let addr = address();
    let a = Client::at(&server, "alpha", addr, false).await;
    assert_eq!(a.lock(&file, ALL).await, Granted);
    drop(a);
    let server = server.restarted(config(), true).await;
    // The client is up only now.
    let mut a = Client::at(&server, "alpha", addr, true).await;
    assert!(matches!(a.received().await, Received::Notified(..)));
}

#[tokio::test]
async fn a_damaged_list_of_hosts_means_a_grace_period() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let mut a = Client::new(&server, "alpha").await;
    assert_eq!(a.lock(&file, ALL).await, Granted);
    let list = server.served.folder.path().join("state/locks");
    let text = std::fs::read(&list).unwrap();
    std::fs::write(&list, &text[..text.len() / 2]).unwrap();
    let server = server.restarted(config(), true).await;
    assert!(server.manager.is_in_grace());
    a.reconnect(&server).await;
    assert_eq!(a.reclaim(&file, ALL).await, Granted);
}

#[tokio::test]
async fn a_lock_is_denied_if_its_host_cannot_be_listed() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    std::fs::remove_dir_all(server.served.folder.path().join("state")).unwrap();
    assert_eq!(a.lock(&file, ALL).await, DeniedNolocks);
}

#[tokio::test]
async fn a_client_that_restarts_loses_its_locks() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (mut a, mut b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    let c = Client::new(&server, "gamma").await;
    assert_eq!([a.lock(&file, ALL).await, b.block(&file, ALL).await], [Granted, Blocked]);
    // Nobody can report the restart of another host.
    notify(&c, "alpha", 3).await;
    assert_eq!(c.lock(&file, ALL).await, Denied);
    assert!(!b.was_called());
    notify(&a, "alpha.example.com", 3).await;
    b.granted().await;
    assert_eq!(a.lock(&file, ALL).await, Denied);
    // What the client locks after its restart stays, although the notification is repeated.
    a.state = 3;
    let other = server.file("other").await;
    assert_eq!(a.lock(&other, ALL).await, Granted);
    notify(&a, "alpha.example.com", 3).await;
    notify(&a, "alpha", 3).await;
    assert_eq!(c.lock(&other, ALL).await, Denied);
    notify(&a, "alpha", 5).await;
    assert_eq!(c.lock(&other, ALL).await, Granted);
}

#[tokio::test]
async fn a_restart_withdraws_blocked_requests() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let (mut b, mut c) = (Client::new(&server, "b").await, Client::new(&server, "c").await);
    queue(&file, &a, [&b, &c]).await;
    notify(&b, "b", 3).await;
    assert_eq!(a.unlock(&file, ALL).await, Granted);
    c.granted().await;
    assert!(!b.was_called());
}

#[tokio::test]
async fn a_name_tells_clients_at_one_address_apart() {
    let server = Locked::new().await;
    let (one, two) = (server.file("one").await, server.file("two").await);
    let addr = address();
    let (a, b) = (Client::at(&server, "a", addr, true).await, Client::at(&server, "b", addr, false).await);
    let c = Client::new(&server, "c").await;
    assert_eq!([a.lock(&one, ALL).await, b.lock(&two, ALL).await], [Granted; 2]);
    notify(&a, "unknown", 3).await;
    assert_eq!([c.lock(&one, ALL).await, c.lock(&two, ALL).await], [Denied; 2]);
    notify(&a, "b", 3).await;
    assert_eq!([c.lock(&one, ALL).await, c.lock(&two, ALL).await], [Denied, Granted]);
    // The only host with locks at an address may have another name.
    notify(&a, "unknown", 5).await;
    assert_eq!(c.lock(&one, ALL).await, Granted);
}

#[tokio::test]
async fn free_all_releases_the_locks_of_its_caller() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    assert_eq!(a.lock(&file, ALL).await, Granted);
    let free = Nlm4Notify { name: "alpha".into(), state: 3 };
    b.nlm.nlmproc4_free_all(&free).await.unwrap();
    assert_eq!(b.lock(&file, ALL).await, Denied);
    a.nlm.nlmproc4_free_all(&free).await.unwrap();
    assert_eq!(b.lock(&file, ALL).await, Granted);
}

/// A restart is reported over UDP, as by Linux's `sm-notify`.
#[tokio::test]
async fn restarts_are_reported_over_udp() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    assert_eq!(a.lock(&file, ALL).await, Granted);
    let none = OpaqueAuth::default;
    let call = CallBody { rpcvers: RPC_VERS, prog: 100_024, vers: 1, r#proc: 6, cred: none(), verf: none() };
    let header = encode_to_bytes(&RpcMsg { xid: 7, body: RpcMsgBody::Call(call) }).unwrap();
    let change = encode_to_bytes(&StatChge { mon_name: "alpha".into(), state: 3 }).unwrap();
    let socket = UdpSocket::bind((a.addr, 0)).await.unwrap();
    socket.send_to(&[header, change].concat(), server.udp).await.unwrap();
    let mut reply = [0; 100];
    let len = timeout(LONG, socket.recv(&mut reply)).await.unwrap().unwrap();
    assert_eq!(reply[..len], [[0, 0, 0, 7], [0, 0, 0, 1], [0; 4], [0; 4], [0; 4], [0; 4]].concat());
    assert!(RpcMsg::decode(&mut Decoder::new(&reply[..len])).is_ok());
    assert_eq!(b.lock(&file, ALL).await, Granted);
}

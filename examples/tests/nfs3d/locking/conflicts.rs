//! Tests of conflicting locks, of the owners of locks, and of the limits on locks.

use rpcrdma_examples::nfs3d::locking::LockLimits;
use rpcrdma_specs::nlm4::{Nlm4Stats::*, *};

use super::{ALL, Client, Locked, address, config};

#[tokio::test]
async fn locks_of_two_clients_conflict() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    assert_eq!(a.lock(&file, (0, 10)).await, Granted);
    assert_eq!([b.lock(&file, (9, 1)).await, b.share(&file, ALL).await], [Denied; 2]);
    assert_eq!(b.lock(&file, (10, 10)).await, Granted);
    let Nlm4Testrply::Denied(holder) = a.test(&file, (5, 100)).await else { panic!("no conflict") };
    let expected =
        Nlm4Holder { exclusive: true, svid: 1, oh: Netobj(b"1@beta".as_slice().into()), l_offset: 10, l_len: 10 };
    assert_eq!(holder, expected);
    assert_eq!(a.test(&file, (20, 0)).await, Nlm4Testrply::Default(Granted));
    assert_eq!(a.unlock(&file, (0, 5)).await, Granted);
    assert_eq!([b.lock(&file, (0, 5)).await, b.lock(&file, (5, 1)).await], [Granted, Denied]);
    // A lock on another file has nothing to do with it.
    let other = server.file("other").await;
    assert_eq!([a.lock(&other, ALL).await, b.lock(&other, ALL).await], [Granted, Denied]);
}

#[tokio::test]
async fn shared_locks_are_shared_and_replaced() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    assert_eq!([a.share(&file, ALL).await, b.share(&file, ALL).await], [Granted; 2]);
    assert_eq!([a.lock(&file, (3, 1)).await, b.lock(&file, (3, 1)).await], [Denied; 2]);
    assert_eq!(b.unlock(&file, ALL).await, Granted);
    assert_eq!(a.lock(&file, (3, 1)).await, Granted);
    assert_eq!([b.share(&file, (3, 1)).await, b.share(&file, (4, 1)).await], [Denied, Granted]);
    assert_eq!(a.share(&file, (3, 1)).await, Granted);
    assert_eq!(b.share(&file, (3, 1)).await, Granted);
}

#[tokio::test]
async fn processes_of_a_client_and_clients_of_an_address_are_different_owners() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let addr = address();
    let a = Client::at(&server, "alpha", addr, true).await;
    assert_eq!(a.lock(&file, ALL).await, Granted);
    assert_eq!(a.call(&a.args(&file, 2, ALL, true)).await, Denied);
    let container = Client::at(&server, "container", addr, false).await;
    assert_eq!(container.lock(&file, ALL).await, Denied);
    // Nobody can act as a client at another address.
    let imitator = Client::at(&server, "alpha", address(), false).await;
    assert_eq!([imitator.unlock(&file, ALL).await, imitator.lock(&file, ALL).await], [Granted, Denied]);
    // The owner may lock again on another connection.
    let again = Client::at(&server, "alpha", addr, false).await;
    assert_eq!([again.lock(&file, ALL).await, again.unlock(&file, ALL).await], [Granted; 2]);
    assert_eq!(imitator.lock(&file, ALL).await, Granted);
}

#[tokio::test]
async fn only_files_of_the_export_that_the_caller_may_use_are_locked() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let mut forged = file.data.to_vec();
    forged[10] ^= 1;
    let forged = rpcrdma_specs::nfs3::NfsFh3 { data: forged.into() };
    assert_eq!([a.lock(&forged, ALL).await, a.unlock(&forged, ALL).await, a.cancel(&forged, ALL).await], [StaleFh; 3]);
    assert_eq!(a.test(&forged, ALL).await, Nlm4Testrply::Default(StaleFh));
    assert_eq!([a.lock(&file, (u64::MAX, 2)).await, a.unlock(&file, (2, u64::MAX)).await], [Fbig; 2]);
    assert_eq!(a.lock(&server.served.client().await.root, ALL).await, Failed);
    std::fs::remove_file(server.served.root.join("file")).unwrap();
    assert_eq!(a.lock(&file, ALL).await, StaleFh);
    // As root, the server checks permissions. As another user, it accepts its own calls only.
    let private = server.file("private").await;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(server.served.root.join("private"), mode).unwrap();
    let stranger = super::channel(&server.url, a.addr, 4711).await;
    let stranger = nlm4_vers::Nlm4VersClient::new(stranger);
    let args = a.args(&private, 1, ALL, true);
    assert_eq!(stranger.nlmproc4_lock(&args).await.unwrap().stat.stat, Failed);
    assert_eq!(a.call(&args).await, Granted);
}

#[tokio::test]
async fn a_greedy_client_gets_no_locks_and_others_do() {
    let mut config = config();
    config.limits.per_client = 20;
    config.limits.waiting_per_client = 2;
    let server = Locked::with(config).await;
    let file = server.file("file").await;
    let (a, b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    let mut outcomes = Vec::new();
    for n in 0..20 {
        outcomes.push(a.lock(&file, (n * 2, 1)).await);
    }
    assert_eq!(outcomes[..19], [Granted; 19]);
    assert_eq!(outcomes[19], DeniedNolocks);
    // Other names do not help.
    let other = Client::at(&server, "other", a.addr, false).await;
    assert_eq!(other.lock(&file, (1000, 1)).await, DeniedNolocks);
    assert_eq!(b.lock(&file, (1000, 1)).await, Granted);
    for (n, outcome) in [(0, Blocked), (2, Blocked), (4, DeniedNolocks)] {
        assert_eq!(b.block(&file, (n, 1)).await, outcome);
    }
    assert_eq!(a.unlock(&file, (0, 0)).await, Granted);
    assert_eq!(other.lock(&file, (2000, 1)).await, Granted);
    assert!(LockLimits::default().per_client < LockLimits::default().total);
}

#[tokio::test]
async fn locks_without_monitoring_do_not_wait() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let (a, b) = (Client::new(&server, "alpha").await, Client::new(&server, "beta").await);
    let args = |client: &Client| Nlm4Lockargs { block: true, ..client.args(&file, 1, ALL, true) };
    let lock = async |client: &Client| client.nlm.nlmproc4_nm_lock(&args(client)).await.unwrap().stat.stat;
    assert_eq!([lock(&a).await, lock(&b).await], [Granted, Denied]);
    // The host of such a lock is not notified, so there is no grace period.
    let server = server.restarted(super::config(), true).await;
    assert!(!server.manager.is_in_grace());
}

//! Tests of calls and datagrams that the lock services refuse or ignore, and of names and identifiers of the maximum
//! size.

use rpcrdma::{client::CallError, rpc::RpcError};
use rpcrdma_specs::{
    nlm4::{Nlm4Stats::*, *},
    nsm1::{Mon, MonId, MyId, Res, SmName},
};
use tokio::{net::UdpSocket, time::timeout};

use super::{Client, LONG, Locked};

#[tokio::test]
async fn procedures_that_are_not_implemented_are_refused() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let args = Nlm4Testargs { cookie: Netobj::default(), exclusive: true, alock: a.alock(&file, 1, (0, 0)) };
    let refusals = [
        a.nlm.nlmproc4_granted(&args).await.unwrap_err(),
        a.nlm.nlmproc4_test_msg(&args).await.unwrap_err(),
        a.nlm.nlmproc4_lock_msg(&a.args(&file, 1, (0, 0), true)).await.unwrap_err(),
        a.nsm.sm_simu_crash().await.unwrap_err(),
    ];
    for refusal in refusals {
        assert!(matches!(&refusal, CallError::Rpc { source: RpcError::ProcedureUnavailable, .. }), "{refusal:?}");
    }
    // LOCK_MSG has had no effect.
    assert_eq!(server.manager.totals(), (0, 0));
}

#[tokio::test]
async fn the_status_monitor_watches_no_hosts_for_others() {
    let server = Locked::new().await;
    let a = Client::new(&server, "alpha").await;
    let state = server.manager.state();
    let my_id = MyId { my_name: "alpha".into(), my_prog: 100_021, my_vers: 4, my_proc: 16 };
    let mon_id = MonId { mon_name: "beta".into(), my_id: my_id.clone() };
    let mon = a.nsm.sm_mon(&Mon { mon_id: mon_id.clone(), r#priv: [0; 16] }).await.unwrap();
    let stat = a.nsm.sm_stat(&SmName { mon_name: "beta".into() }).await.unwrap();
    assert_eq!([(mon.res_stat, mon.state), (stat.res_stat, stat.state)], [(Res::Fail, state); 2]);
    assert_eq!(a.nsm.sm_unmon(&mon_id).await.unwrap().state, state);
    assert_eq!(a.nsm.sm_unmon_all(&my_id).await.unwrap().state, state);
}

#[tokio::test]
async fn datagrams_that_are_no_calls_are_ignored_and_others_are_answered() {
    let server = Locked::new().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let call = |xid, prog, vers, procedure| words(&[xid, 0, 2, prog, vers, procedure, 0, 0, 0, 0]);
    let notify = call(1, 100_024, 1, 6);
    let mut ignored: Vec<Vec<u8>> = (0..40).map(|len| notify[..len].to_vec()).collect();
    ignored.push(words(&[1, 1, 0, 0, 0, 0]));
    ignored.push(vec![0xFF; 3000]);
    ignored.push([notify.clone(), vec![0; 5000]].concat());
    for datagram in ignored {
        socket.send_to(&datagram, server.udp).await.unwrap();
    }
    let accepted = |xid, rest: &[u32]| [words(&[xid, 1, 0, 0, 0]), words(rest)].concat();
    let state = server.manager.state() as u32;
    let answered = [
        (call(2, 100_024, 1, 0), accepted(2, &[0])),
        ([call(3, 100_024, 1, 1), words(&[1, 0x6100_0000])].concat(), accepted(3, &[0, 1, state])),
        // The name is missing, or longer than the datagram.
        (call(4, 100_024, 1, 6), accepted(4, &[4])),
        ([call(5, 100_024, 1, 6), words(&[1000, 0])].concat(), accepted(5, &[4])),
        ([call(6, 100_024, 1, 6), words(&[u32::MAX, 0])].concat(), accepted(6, &[4])),
        (call(7, 100_024, 1, 2), accepted(7, &[3])),
        (call(8, 100_024, 2, 0), accepted(8, &[2, 1, 1])),
        (call(9, 100_003, 3, 0), accepted(9, &[1])),
        (words(&[10, 0, 3, 100_024, 1, 0, 0, 0, 0, 0]), words(&[10, 1, 1, 0, 2, 2])),
    ];
    for (datagram, expected) in answered {
        socket.send_to(&datagram, server.udp).await.unwrap();
        let mut reply = [0; 100];
        // Replies come in order, so nothing that is ignored has a reply.
        let len = timeout(LONG, socket.recv(&mut reply)).await.unwrap().unwrap();
        assert_eq!(reply[..len], expected);
    }
}

#[tokio::test]
async fn names_and_identifiers_of_the_largest_size_are_accepted() {
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::new(&server, "alpha").await;
    let b = Client::new(&server, "beta").await;
    let args = a.args(&file, 1, (0, 0), true);
    let alock =
        Nlm4Lock { caller_name: "x".repeat(1024).into(), oh: Netobj(vec![7; 1024].into()), ..args.alock.clone() };
    assert_eq!(a.call(&Nlm4Lockargs { alock, ..args }).await, Granted);
    let Nlm4Testrply::Denied(holder) = b.test(&file, (0, 0)).await else { panic!("no conflict") };
    assert_eq!(holder.oh.0.len(), 1024);
    // The list of hosts holds the name.
    let server = server.restarted(super::config(), true).await;
    assert!(server.manager.is_in_grace());
}

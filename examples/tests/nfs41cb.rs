//! Test of `nfs41cb` with an NFS 4.1 server that recalls the delegation (RFC 8267 §6.5.2).
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rpcrdma::{
    client::CallError,
    config::ConnectionConfig,
    engine::Versions,
    error::CallFailure,
    server::{Context, HandlerError, Server},
};
use rpcrdma_specs::nfs4::{
    self as nfs, CbCompound4args, Compound4args, Compound4res, NfsArgop4 as Op, NfsCbArgop4 as CbOp, NfsFh4,
    NfsResop4 as Res, Nfsstat4, Sessionid4, Stateid4, Utf8string,
    nfs_cb::NfsCbClient,
    nfs_v4::{NfsV4, NfsV4Server},
};
use tokio::{process::Command, task::JoinHandle};

const SESSION: Sessionid4 = Sessionid4([9; 16]);

fn stateid(n: u8) -> Stateid4 {
    Stateid4 { seqid: 1, other: [n; 12] }
}

fn handle() -> NfsFh4 {
    NfsFh4(Bytes::from_static(b"file"))
}

/// The outcome of the callbacks of a server.
#[derive(Debug)]
struct RecallOutcome {
    /// Failure of a callback that does not fit inline.
    long: CallError,
    /// Status of the recall.
    status: Nfsstat4,
}

/// Events and values that the server has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Maximum size of a callback, in bytes, as reported by the client.
    callback_size: u32,
    /// The task that recalls the delegation.
    recall: Option<JoinHandle<RecallOutcome>>,
    /// `true` if the client has returned its delegation.
    is_returned: bool,
}

/// A server with one file. It starts to recall the delegation of the file when OPEN grants it.
#[derive(Clone, Default)]
struct Recalling(Arc<Mutex<Seen>>);

impl Recalling {
    fn result(&self, cx: &Context, operation: Op) -> Res {
        let status = Nfsstat4::Ok;
        let mut seen = self.0.lock().unwrap();
        match operation {
            Op::ExchangeId(_) => Res::ExchangeId(nfs::ExchangeId4res::Ok(nfs::ExchangeId4resok {
                eir_clientid: 5,
                eir_sequenceid: 1,
                eir_flags: nfs::EXCHGID4_FLAG_USE_NON_PNFS,
                eir_state_protect: nfs::StateProtect4R::None,
                eir_server_owner: nfs::ServerOwner4 { so_minor_id: 0, so_major_id: Bytes::from_static(b"server") },
                eir_server_scope: Bytes::from_static(b"server"),
                eir_server_impl_id: Vec::new(),
            })),
            Op::CreateSession(args) => {
                seen.callback_size = args.csa_back_chan_attrs.ca_maxrequestsize;
                Res::CreateSession(nfs::CreateSession4res::Ok(nfs::CreateSession4resok {
                    csr_sessionid: SESSION,
                    csr_sequence: args.csa_sequence,
                    csr_flags: args.csa_flags,
                    csr_fore_chan_attrs: args.csa_fore_chan_attrs,
                    csr_back_chan_attrs: args.csa_back_chan_attrs,
                }))
            }
            Op::Sequence(args) => Res::Sequence(nfs::Sequence4res::Ok(nfs::Sequence4resok {
                sr_sessionid: args.sa_sessionid,
                sr_sequenceid: args.sa_sequenceid,
                sr_slotid: args.sa_slotid,
                sr_highest_slotid: 0,
                sr_target_highest_slotid: 0,
                sr_status_flags: 0,
            })),
            Op::ReclaimComplete(_) => Res::ReclaimComplete(nfs::ReclaimComplete4res { rcr_status: status }),
            Op::Putrootfh => Res::Putrootfh(nfs::Putrootfh4res { status }),
            Op::Putfh(_) => Res::Putfh(nfs::Putfh4res { status }),
            Op::Getfh => Res::Getfh(nfs::Getfh4res::Ok(nfs::Getfh4resok { object: handle() })),
            Op::Open(_) => {
                seen.recall = Some(tokio::spawn(recall(cx.callback())));
                let permissions = nfs::Nfsace4 {
                    r#type: 0,
                    flag: 0,
                    access_mask: 0,
                    who: Utf8string(Bytes::from_static(b"EVERYONE@")),
                };
                let read = nfs::OpenReadDelegation4 { stateid: stateid(2), recall: false, permissions };
                Res::Open(nfs::Open4res::Ok(nfs::Open4resok {
                    stateid: stateid(1),
                    cinfo: nfs::ChangeInfo4 { atomic: true, before: 0, after: 0 },
                    rflags: 0,
                    attrset: nfs::Bitmap4(Vec::new()),
                    delegation: nfs::OpenDelegation4::Read(read),
                }))
            }
            Op::Delegreturn(args) => {
                seen.is_returned = args.deleg_stateid == stateid(2);
                Res::Delegreturn(nfs::Delegreturn4res { status })
            }
            Op::Close(args) => Res::Close(nfs::Close4res::Ok(args.open_stateid)),
            Op::DestroySession(_) => Res::DestroySession(nfs::DestroySession4res { dsr_status: status }),
            Op::DestroyClientid(_) => Res::DestroyClientid(nfs::DestroyClientid4res { dcr_status: status }),
            other => panic!("{other:?}"),
        }
    }
}

impl NfsV4 for Recalling {
    async fn nfsproc4_compound(&self, cx: &Context, args: Compound4args) -> Result<Compound4res, HandlerError> {
        let resarray = args.argarray.into_iter().map(|operation| self.result(cx, operation)).collect();
        Ok(Compound4res { status: Nfsstat4::Ok, tag: args.tag, resarray })
    }
}

/// Returns a CB_COMPOUND that recalls the delegation, with a tag of `tag` bytes.
fn callback(sequence: u32, tag: usize) -> CbCompound4args {
    let sequence = nfs::CbSequence4args {
        csa_sessionid: SESSION,
        csa_sequenceid: sequence,
        csa_slotid: 0,
        csa_highest_slotid: 0,
        csa_cachethis: false,
        csa_referring_call_lists: Vec::new(),
    };
    let recall = nfs::CbRecall4args { stateid: stateid(2), truncate: false, fh: handle() };
    let argarray = vec![CbOp::Sequence(sequence), CbOp::Recall(recall)];
    CbCompound4args { tag: Utf8string(vec![b'x'; tag].into()), minorversion: 1, callback_ident: 0, argarray }
}

/// Recalls the delegation over the connection of the client. The first attempt is a callback that does not fit inline.
async fn recall(client: NfsCbClient) -> RecallOutcome {
    let long = client.cb_compound(&callback(1, 5000)).await.unwrap_err();
    let mut sequence = 1;
    loop {
        let reply = client.cb_compound(&callback(sequence, 0)).await.unwrap();
        // The reply to OPEN may not have arrived yet.
        if reply.status != Nfsstat4::Delay {
            return RecallOutcome { long, status: reply.status };
        }
        sequence += 1;
    }
}

/// Callbacks arrive on the connection of the client. The client announces a maximum size that fits inline, and a longer
/// callback fails at the server.
#[tokio::test]
async fn a_delegation_is_recalled_on_the_clients_connection() {
    for inline in [1024, 4096] {
        let service = Recalling::default();
        let connection = ConnectionConfig::new().inline_size(inline).versions(Versions::V1);
        let server = Server::builder().service(NfsV4Server::new(service.clone())).connection(connection);
        let server = server.listen("iwarp://127.0.0.1:0").bind().await.unwrap();
        let url = server.urls()[0].clone();
        tokio::spawn(server.serve());
        let mut command = Command::new(env!("CARGO_BIN_EXE_nfs41cb"));
        let output = command.env_remove("RUST_LOG").args([&url, "file"]).kill_on_drop(true).output().await.unwrap();
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{printed}{errors}");
        assert!(printed.contains("CB_RECALL") && printed.contains("on one connection"), "{printed}");
        let seen = std::mem::take(&mut *service.0.lock().unwrap());
        assert!(seen.is_returned);
        // The size of a callback does not promise that the client receives more than fits inline.
        assert!((1..=inline).contains(&seen.callback_size), "{}", seen.callback_size);
        let RecallOutcome { long, status } = seen.recall.unwrap().await.unwrap();
        assert_eq!(status, Nfsstat4::Ok);
        let is_refused = matches!(long, CallError::Transport { failure: CallFailure::ReverseTooLong { .. }, .. });
        assert!(is_refused, "{long}");
    }
}

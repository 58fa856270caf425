//! Tests of locks, with clients on loopback addresses. Clients have rpcbind, NLM and NSM, as Linux's client has, unless
//! a test leaves out rpcbind.

mod callbacks;
mod command;
mod conflicts;
mod hostile;
mod restarts;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use rpcrdma::{
    client::Channel,
    rpc::Credential,
    server::{Context, HandlerError, Server, ServerHandle},
    xdr::{Decoder, XdrDecode as _, encode_to_bytes},
};
use rpcrdma_examples::nfs3d::locking::{CallbackTiming, LockConfig, LockManager, NlmService, NsmService};
use rpcrdma_specs::{
    nfs3::NfsFh3,
    nlm4::{
        nlm4_vers::{Nlm4Vers, Nlm4VersClient, Nlm4VersServer},
        *,
    },
    nsm1::{
        Mon, MonId, MyId, SmName, SmStat, SmStatRes, StatChge,
        sm_vers::{self, SmVers, SmVersClient, SmVersServer},
    },
    rpc::{AcceptedReply, AcceptedReplyData, OpaqueAuth, ReplyBody, RpcMsg, RpcMsgBody},
    rpcbind::{Rpcb, UniversalAddr},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::timeout,
};

use crate::support::{Served, own_gid, own_uid};

/// The port of rpcbind on all clients. At most one client at each address has rpcbind.
const RPCBIND_PORT: u16 = 20111;
/// Time limit of each wait and of each call. No wait and no call takes that long.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// An NFS server with the lock services NLM and NSM, on TCP and UDP.
pub(super) struct Locked {
    pub(super) served: Served,
    pub(super) manager: LockManager,
    pub(super) url: String,
    pub(super) udp: std::net::SocketAddr,
    handle: ServerHandle,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.handle.shutdown_within(Duration::ZERO);
    }
}

/// Returns settings whose time limits no test reaches.
pub(super) fn config() -> LockConfig {
    let mut config = LockConfig::default();
    config.rpcbind_port = RPCBIND_PORT;
    config.grace = Duration::from_secs(3600);
    config.timing = CallbackTiming::default();
    config.timing.attempt = LONG;
    config.timing.granting = LONG;
    config.timing.pause = Duration::from_millis(10);
    config
}

impl Locked {
    pub(super) async fn new() -> Self {
        Self::with(config()).await
    }

    pub(super) async fn with(config: LockConfig) -> Self {
        Self::of(Served::new().await, config).await
    }

    pub(super) async fn of(served: Served, config: LockConfig) -> Self {
        let manager =
            LockManager::start(Arc::clone(&served.export), &served.folder.path().join("state"), config).unwrap();
        let nsm = NsmService::new(manager.clone());
        let server = Server::builder()
            .service(Nlm4VersServer::new(NlmService::new(manager.clone())))
            .service(SmVersServer::new(nsm.clone()))
            .listen("tcp://127.0.0.1:0")
            .bind()
            .await
            .unwrap();
        let (udp, serve) = nsm.bind_udp("127.0.0.1:0".parse().unwrap()).await.unwrap();
        tokio::spawn(serve);
        let (url, handle) = (server.urls()[0].clone(), server.handle());
        tokio::spawn(server.serve());
        Self { served, manager, url, udp, handle }
    }

    /// Restarts the server. If `is_killed` is `false`, the server stops as on a signal.
    pub(super) async fn restarted(self, config: LockConfig, is_killed: bool) -> Self {
        if !is_killed {
            self.manager.stop().await;
        }
        let folder = Arc::clone(&self.served.folder);
        drop(self);
        Self::of(Served::of(folder, rpcrdma_examples::nfs3d::identity::Squash::None).await, config).await
    }

    /// Creates a file, and returns its handle.
    pub(super) async fn file(&self, name: &str) -> NfsFh3 {
        let nfs = self.served.client().await;
        nfs.file(&nfs.root, name).await
    }
}

/// The answer of a client to GRANTED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Status(Nlm4Stats),
    /// The client does not answer until the test sets another answer.
    Silence,
}

/// A call that a client's services received.
#[derive(Debug)]
pub(super) enum Received {
    Granted(IpAddr, Nlm4Testargs),
    Notified(IpAddr, StatChge),
}

#[derive(Clone)]
struct Services {
    answer: watch::Sender<Answer>,
    received: mpsc::UnboundedSender<Received>,
}

/// A client host: its services, and its connection to the server.
pub(super) struct Client {
    pub(super) addr: IpAddr,
    pub(super) name: &'static str,
    pub(super) nlm: Nlm4VersClient,
    pub(super) nsm: SmVersClient,
    pub(super) answer: watch::Sender<Answer>,
    received: mpsc::UnboundedReceiver<Received>,
    pub(super) state: i32,
    handle: ServerHandle,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.handle.shutdown_within(Duration::ZERO);
    }
}

/// Returns a loopback address that no other client has.
pub(super) fn address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [_, _, a, b] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    // A process of the tests has fewer than 250 clients.
    Ipv4Addr::new(127, 64 + (a & 63), b, 1 + (next % 250) as u8).into()
}

async fn channel(url: &str, local: IpAddr, uid: u32) -> Channel {
    let credential = Credential::sys("client", uid, own_gid(), []).to_opaque().unwrap();
    let builder = Channel::builder().credential(credential).call_timeout(LONG);
    builder.connect(&format!("{url}?local={local}")).await.unwrap()
}

impl Client {
    pub(super) async fn new(server: &Locked, name: &'static str) -> Self {
        Self::at(server, name, address(), true).await
    }

    /// Connects a client at an address. If `has_services` is `false`, the client has no rpcbind, so the server cannot
    /// find its services.
    pub(super) async fn at(server: &Locked, name: &'static str, addr: IpAddr, has_services: bool) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let answer = watch::Sender::new(Answer::Status(Nlm4Stats::Granted));
        let services = Services { answer: answer.clone(), received: sender };
        let own = Server::builder()
            .service(Nlm4VersServer::new(services.clone()))
            .service(SmVersServer::new(services))
            .listen(format!("tcp://{addr}:0"))
            .bind()
            .await
            .unwrap();
        let (handle, port) = (own.handle(), own.local_addrs()[0].port());
        tokio::spawn(own.serve());
        if has_services {
            let listener = TcpListener::bind((addr, RPCBIND_PORT)).await.unwrap();
            tokio::spawn(rpcbind(listener, UniversalAddr((addr, port).into())));
        }
        let channel = channel(&server.url, addr, own_uid()).await;
        let (nlm, nsm) = (Nlm4VersClient::new(channel.clone()), SmVersClient::new(channel));
        Self { addr, name, nlm, nsm, answer, received, state: 1, handle }
    }

    /// Connects to a server that was restarted.
    pub(super) async fn reconnect(&mut self, server: &Locked) {
        let channel = channel(&server.url, self.addr, own_uid()).await;
        (self.nlm, self.nsm) = (Nlm4VersClient::new(channel.clone()), SmVersClient::new(channel));
    }

    pub(super) fn alock(&self, file: &NfsFh3, svid: i32, (l_offset, l_len): (u64, u64)) -> Nlm4Lock {
        let oh = Netobj(format!("{svid}@{}", self.name).into_bytes().into());
        Nlm4Lock { caller_name: self.name.into(), fh: Netobj(file.data.clone()), oh, svid, l_offset, l_len }
    }

    pub(super) fn args(&self, file: &NfsFh3, svid: i32, range: (u64, u64), exclusive: bool) -> Nlm4Lockargs {
        Nlm4Lockargs {
            cookie: Netobj(Bytes::from_static(b"cookie")),
            block: false,
            exclusive,
            alock: self.alock(file, svid, range),
            reclaim: false,
            state: self.state,
        }
    }

    pub(super) async fn call(&self, args: &Nlm4Lockargs) -> Nlm4Stats {
        let reply = self.nlm.nlmproc4_lock(args).await.unwrap();
        assert_eq!(reply.cookie, args.cookie);
        reply.stat.stat
    }

    /// Requests an exclusive lock for process 1, without waiting.
    pub(super) async fn lock(&self, file: &NfsFh3, range: (u64, u64)) -> Nlm4Stats {
        self.call(&self.args(file, 1, range, true)).await
    }

    pub(super) async fn share(&self, file: &NfsFh3, range: (u64, u64)) -> Nlm4Stats {
        self.call(&self.args(file, 1, range, false)).await
    }

    /// Requests an exclusive lock for process 1. If another lock conflicts, the server blocks the request.
    pub(super) async fn block(&self, file: &NfsFh3, range: (u64, u64)) -> Nlm4Stats {
        self.call(&Nlm4Lockargs { block: true, ..self.args(file, 1, range, true) }).await
    }

    pub(super) async fn reclaim(&self, file: &NfsFh3, range: (u64, u64)) -> Nlm4Stats {
        self.call(&Nlm4Lockargs { reclaim: true, ..self.args(file, 1, range, true) }).await
    }

    pub(super) async fn unlock(&self, file: &NfsFh3, range: (u64, u64)) -> Nlm4Stats {
        let args = Nlm4Unlockargs { cookie: Netobj::default(), alock: self.alock(file, 1, range) };
        self.nlm.nlmproc4_unlock(&args).await.unwrap().stat.stat
    }

    pub(super) async fn cancel(&self, file: &NfsFh3, range: (u64, u64)) -> Nlm4Stats {
        let (cookie, alock) = (Netobj::default(), self.alock(file, 1, range));
        let args = Nlm4Cancargs { cookie, block: true, exclusive: true, alock };
        self.nlm.nlmproc4_cancel(&args).await.unwrap().stat.stat
    }

    pub(super) async fn test(&self, file: &NfsFh3, range: (u64, u64)) -> Nlm4Testrply {
        let args = Nlm4Testargs { cookie: Netobj::default(), exclusive: true, alock: self.alock(file, 1, range) };
        self.nlm.nlmproc4_test(&args).await.unwrap().stat
    }

    /// Waits for a call of GRANTED, and returns its arguments.
    pub(super) async fn granted(&mut self) -> Nlm4Testargs {
        match self.received().await {
            Received::Granted(_, args) => args,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn received(&mut self) -> Received {
        timeout(LONG, self.received.recv()).await.unwrap().unwrap()
    }

    /// Takes the next call that the client has received. Returns `true` if there is one.
    pub(super) fn was_called(&mut self) -> bool {
        self.received.try_recv().is_ok()
    }
}

/// The range of a whole file.
pub(super) const ALL: (u64, u64) = (0, 0);

/// Lets `holder` lock a file, and the clients in `waiting` block on the lock, one after the other.
pub(super) async fn queue<const N: usize>(file: &NfsFh3, holder: &Client, waiting: [&Client; N]) {
    assert_eq!(holder.lock(file, ALL).await, Nlm4Stats::Granted);
    for client in waiting {
        assert_eq!(client.block(file, ALL).await, Nlm4Stats::Blocked);
    }
}

/// Lets `from` lock a file, `to` block on the lock, and `from` unlock the file.
pub(super) async fn hand_over(file: &NfsFh3, from: &Client, to: &Client) {
    queue(file, from, [to]).await;
    assert_eq!(from.unlock(file, ALL).await, Nlm4Stats::Granted);
}

/// Answers lookups of NLM and NSM as rpcbind does, with the address of one server.
async fn rpcbind(listener: TcpListener, addr: UniversalAddr) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = answer_lookups(stream, addr).await;
        });
    }
}

async fn answer_lookups(mut stream: TcpStream, addr: UniversalAddr) -> std::io::Result<()> {
    loop {
        let mut call = vec![0; (stream.read_u32().await? & 0x7FFF_FFFF) as usize];
        stream.read_exact(&mut call).await?;
        let mut decoder = Decoder::new(&call);
        let RpcMsg { xid, body: RpcMsgBody::Call(_) } = RpcMsg::decode(&mut decoder).unwrap() else { panic!("a call") };
        let wanted = Rpcb::decode(&mut decoder).unwrap();
        assert!([(100_021, 4), (sm_vers::PROGRAM, 1)].contains(&(wanted.r_prog, wanted.r_vers)), "{wanted:?}");
        let verf = OpaqueAuth::default();
        let body = ReplyBody::Accepted(AcceptedReply { verf, reply_data: AcceptedReplyData::Success });
        let header = encode_to_bytes(&RpcMsg { xid, body: RpcMsgBody::Reply(body) }).unwrap();
        let result = encode_to_bytes(&rpcrdma::xdr::XdrString::from(addr.to_string())).unwrap();
        stream.write_u32(0x8000_0000 | (header.len() + result.len()) as u32).await?;
        stream.write_all(&[header, result].concat()).await?;
    }
}

type Reply<T> = Result<T, HandlerError>;

impl Nlm4Vers for Services {
    async fn nlmproc4_granted(&self, cx: &Context, args: Nlm4Testargs) -> Reply<Nlm4Res> {
        let cookie = args.cookie.clone();
        let _ = self.received.send(Received::Granted(cx.peer_addr().ip(), args));
        let mut answer = self.answer.subscribe();
        let answer = *answer.wait_for(|answer| *answer != Answer::Silence).await?;
        let Answer::Status(stat) = answer else { unreachable!() };
        Ok(Nlm4Res { cookie, stat: Nlm4Stat { stat } })
    }

    async fn nlmproc4_test(&self, _cx: &Context, _args: Nlm4Testargs) -> Reply<Nlm4Testres> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_lock(&self, _cx: &Context, _args: Nlm4Lockargs) -> Reply<Nlm4Res> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_cancel(&self, _cx: &Context, _args: Nlm4Cancargs) -> Reply<Nlm4Res> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_unlock(&self, _cx: &Context, _args: Nlm4Unlockargs) -> Reply<Nlm4Res> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_test_msg(&self, _cx: &Context, _args: Nlm4Testargs) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_lock_msg(&self, _cx: &Context, _args: Nlm4Lockargs) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_cancel_msg(&self, _cx: &Context, _args: Nlm4Cancargs) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_unlock_msg(&self, _cx: &Context, _args: Nlm4Unlockargs) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_granted_msg(&self, _cx: &Context, _args: Nlm4Testargs) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_test_res(&self, _cx: &Context, _args: Nlm4Testres) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_lock_res(&self, _cx: &Context, _args: Nlm4Res) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_cancel_res(&self, _cx: &Context, _args: Nlm4Res) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_unlock_res(&self, _cx: &Context, _args: Nlm4Res) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_granted_res(&self, _cx: &Context, _args: Nlm4Res) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_share(&self, _cx: &Context, _args: Nlm4Shareargs) -> Reply<Nlm4Shareres> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_unshare(&self, _cx: &Context, _args: Nlm4Shareargs) -> Reply<Nlm4Shareres> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_nm_lock(&self, _cx: &Context, _args: Nlm4Lockargs) -> Reply<Nlm4Res> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn nlmproc4_free_all(&self, _cx: &Context, _args: Nlm4Notify) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
}

impl SmVers for Services {
    async fn sm_notify(&self, cx: &Context, args: StatChge) -> Reply<()> {
        let _ = self.received.send(Received::Notified(cx.peer_addr().ip(), args));
        Ok(())
    }

    async fn sm_stat(&self, _cx: &Context, _args: SmName) -> Reply<SmStatRes> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn sm_mon(&self, _cx: &Context, _args: Mon) -> Reply<SmStatRes> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn sm_unmon(&self, _cx: &Context, _args: MonId) -> Reply<SmStat> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn sm_unmon_all(&self, _cx: &Context, _args: MyId) -> Reply<SmStat> {
        Err(HandlerError::ProcedureUnavailable)
    }
    async fn sm_simu_crash(&self, _cx: &Context) -> Reply<()> {
        Err(HandlerError::ProcedureUnavailable)
    }
}

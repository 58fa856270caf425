//! Tests of the rpcbind client, with servers that follow RFC 1833.
#![allow(clippy::unwrap_used)]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use rpcrdma::{
    server::{Context, HandlerError, Server, Service},
    xdr::XdrString,
};
use rpcrdma_specs::rpcbind::{
    CallArgs, CallResult, IPPROTO_TCP, Mapping, Netbuf, Netid, Pmaplist, RegisterError, Registration, RpList, Rpcb,
    RpcbEntryListPtr, RpcbRmtcallargs, RpcbRmtcallres, RpcbStatByvers, RpcbUaddr, Rpcbind, RpcblistPtr,
    pmap_vers::{PmapVers, PmapVersServer},
    rpcbvers4::{Rpcbvers4, Rpcbvers4Server},
};

const PROGRAM: u32 = 0x2000_0001;

/// A registration: program, version, netid and universal address.
type Entry = (u32, u32, String, String);

/// A server of rpcbind version 4 over TCP and IPv4.
#[derive(Clone, Default)]
struct Version4 {
    entries: Arc<Mutex<Vec<Entry>>>,
    /// The netid for which the server refuses SET.
    refuses: &'static str,
    /// The received calls of SET, UNSET, GETADDR and GETVERSADDR: the procedure, and its arguments.
    calls: Arc<Mutex<Vec<(&'static str, Entry)>>>,
}

fn entry(args: &Rpcb) -> Entry {
    (args.r_prog, args.r_vers, args.r_netid.to_string(), args.r_addr.to_string())
}

fn text(text: &str) -> XdrString {
    text.into()
}

fn of(program: u32, version: u32, netid: &str, addr: &str) -> Entry {
    (program, version, netid.to_owned(), addr.to_owned())
}

impl Version4 {
    fn list(&self, entries: &[Entry]) {
        *self.entries.lock().unwrap() = entries.to_vec();
    }

    fn took(&self, procedure: &'static str, args: &Rpcb) -> Entry {
        self.calls.lock().unwrap().push((procedure, entry(args)));
        entry(args)
    }

    fn calls(&self) -> Vec<(&'static str, Entry)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn addr(&self, is_wanted: impl Fn(&Entry) -> bool) -> Result<RpcbUaddr, HandlerError> {
        let entries = self.entries.lock().unwrap();
        let found = entries.iter().find(|entry| is_wanted(entry)).map_or("", |entry| &entry.3);
        Ok(RpcbUaddr(text(found)))
    }
}

impl Rpcbvers4 for Version4 {
    /// RFC 1833 §2.2.1: refuses to establish a mapping if one exists. Also refuses the netid in `refuses`.
    async fn rpcbproc_set(&self, _cx: &Context, args: Rpcb) -> Result<bool, HandlerError> {
        let new = self.took("SET", &args);
        let mut entries = self.entries.lock().unwrap();
        let is_new =
            new.2 != self.refuses && !entries.iter().any(|old| (old.0, old.1, &old.2) == (new.0, new.1, &new.2));
        if is_new {
            entries.push(new);
        }
        Ok(is_new)
    }

    /// RFC 1833 §2.2.1: without a netid, the mappings of all transports are deleted.
    async fn rpcbproc_unset(&self, _cx: &Context, args: Rpcb) -> Result<bool, HandlerError> {
        let (program, version, netid, _) = self.took("UNSET", &args);
        let mut entries = self.entries.lock().unwrap();
        let before = entries.len();
        entries.retain(|old| (old.0, old.1) != (program, version) || !(netid.is_empty() || old.2 == netid));
        Ok(entries.len() < before)
    }

    /// RFC 1833 §2.2.1, §2.2.2: ignores the netid, and may return the address of another version.
    async fn rpcbproc_getaddr(&self, _cx: &Context, args: Rpcb) -> Result<RpcbUaddr, HandlerError> {
        let (program, ..) = self.took("GETADDR", &args);
        self.addr(|entry| entry.0 == program && entry.2 == "tcp")
    }

    /// RFC 1833 §2.2.2: returns the address of the given version only.
    async fn rpcbproc_getversaddr(&self, _cx: &Context, args: Rpcb) -> Result<RpcbUaddr, HandlerError> {
        let (program, version, ..) = self.took("GETVERSADDR", &args);
        self.addr(|entry| (entry.0, entry.1, entry.2.as_str()) == (program, version, "tcp"))
    }

    async fn rpcbproc_dump(&self, _cx: &Context) -> Result<RpcblistPtr, HandlerError> {
        let node = |entry: &Entry| RpList {
            rpcb_map: Rpcb {
                r_prog: entry.0,
                r_vers: entry.1,
                r_netid: text(&entry.2),
                r_addr: text(&entry.3),
                r_owner: text("superuser"),
            },
        };
        Ok(RpcblistPtr(self.entries.lock().unwrap().iter().map(node).collect()))
    }

    async fn rpcbproc_bcast(&self, _cx: &Context, _args: RpcbRmtcallargs) -> Result<RpcbRmtcallres, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn rpcbproc_gettime(&self, _cx: &Context) -> Result<u32, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn rpcbproc_uaddr2taddr(&self, _cx: &Context, _args: RpcbUaddr) -> Result<Netbuf, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn rpcbproc_taddr2uaddr(&self, _cx: &Context, _args: Netbuf) -> Result<RpcbUaddr, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn rpcbproc_indirect(&self, _cx: &Context, _args: RpcbRmtcallargs) -> Result<RpcbRmtcallres, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn rpcbproc_getaddrlist(&self, _cx: &Context, _args: Rpcb) -> Result<RpcbEntryListPtr, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn rpcbproc_getstat(&self, _cx: &Context) -> Result<RpcbStatByvers, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }
}

/// A port mapper (rpcbind version 2) with one mapping.
#[derive(Clone)]
struct PortMapper(Mapping);

impl PmapVers for PortMapper {
    async fn pmapproc_set(&self, _cx: &Context, _args: Mapping) -> Result<bool, HandlerError> {
        Ok(false)
    }

    async fn pmapproc_unset(&self, _cx: &Context, _args: Mapping) -> Result<bool, HandlerError> {
        Ok(false)
    }

    /// RFC 1833 §3.2: ignores the port. A port of zero means that the program is not registered.
    async fn pmapproc_getport(&self, _cx: &Context, args: Mapping) -> Result<u32, HandlerError> {
        let known = &self.0;
        let is_known = (args.prog, args.vers, args.prot) == (known.prog, known.vers, known.prot);
        Ok(if is_known { known.port } else { 0 })
    }

    async fn pmapproc_dump(&self, _cx: &Context) -> Result<Pmaplist, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }

    async fn pmapproc_callit(&self, _cx: &Context, _args: CallArgs) -> Result<CallResult, HandlerError> {
        Err(HandlerError::ProcedureUnavailable)
    }
}

/// Serves `service` over TCP, and returns a client that is connected to it.
async fn client(service: impl Service) -> Rpcbind {
    let server = Server::builder().service(service).listen("tcp://127.0.0.1:0").bind().await.unwrap();
    let port = server.local_addrs()[0].port();
    tokio::spawn(server.serve());
    Rpcbind::connect_to_port("127.0.0.1", port).await.unwrap()
}

async fn version_4(refuses: &'static str) -> (Version4, Rpcbind) {
    let service = Version4 { refuses, ..Version4::default() };
    (service.clone(), client(Rpcbvers4Server::new(service)).await)
}

fn addr(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

/// RFC 1833 §2.2.2: GETVERSADDR returns the address of the requested version, and GETADDR may return the address of any
/// version.
#[tokio::test]
async fn a_lookup_finds_the_version() {
    let (service, rpcbind) = version_4("").await;
    service.list(&[of(PROGRAM, 2, "tcp", "192.0.2.1.78.81"), of(PROGRAM, 4, "tcp", "192.0.2.1.8.1")]);
    assert_eq!(rpcbind.lookup(PROGRAM, 4, Netid::Tcp).await.unwrap(), addr("192.0.2.1:2049"));
    assert_eq!(rpcbind.lookup(PROGRAM, 2, Netid::Tcp).await.unwrap(), addr("192.0.2.1:20049"));
    for (program, version) in [(PROGRAM, 3), (PROGRAM, 0), (PROGRAM + 1, 2)] {
        assert_eq!(rpcbind.lookup(program, version, Netid::Tcp).await.unwrap(), None, "{program} {version}");
    }
    assert!(service.calls().iter().all(|(procedure, _)| *procedure == "GETVERSADDR"));
}

/// RFC 1833 §2.2.1: because GETADDR ignores the netid, the client finds the addresses of other transports in the list
/// of DUMP.
#[tokio::test]
async fn a_lookup_finds_the_transport() {
    let (service, rpcbind) = version_4("").await;
    service.list(&[
        of(PROGRAM, 1, "tcp", "192.0.2.1.0.1"),
        of(PROGRAM, 2, "rdma", "192.0.2.1.0.2"),
        of(PROGRAM + 1, 1, "rdma", "192.0.2.1.0.3"),
        of(PROGRAM, 1, "rdma6", "2001:db8::7.0.4"),
        of(PROGRAM, 1, "tcp6", "::.0.5"),
        of(PROGRAM, 1, "rdma", "0.0.0.0.78.81"),
        of(PROGRAM, 3, "rdma", "192.0.2.1.0.0"),
        of(PROGRAM, 4, "rdma", "no address"),
    ]);
    for (netid, found) in [
        (Netid::Tcp, addr("192.0.2.1:1")),
        // A wildcard address stands for the host's.
        (Netid::Rdma, addr("127.0.0.1:20049")),
        (Netid::Rdma6, addr("[2001:db8::7]:4")),
        (Netid::Tcp6, addr("127.0.0.1:5")),
    ] {
        assert_eq!(rpcbind.lookup(PROGRAM, 1, netid).await.unwrap(), found, "{netid}");
    }
    for version in [3, 4, 5] {
        assert_eq!(rpcbind.lookup(PROGRAM, version, Netid::Rdma).await.unwrap(), None, "{version}");
    }
}

/// RFC 1833 §2.2.1: SET has a program, version, netid and address. SET and UNSET return `true` if they have changed the
/// list.
#[tokio::test]
async fn registrations() {
    let (service, rpcbind) = version_4("").await;
    let at = "192.0.2.1:20049".parse().unwrap();
    assert!(rpcbind.register(PROGRAM, 2, Netid::Rdma, at).await.unwrap());
    assert!(!rpcbind.register(PROGRAM, 2, Netid::Rdma, "192.0.2.2:1".parse().unwrap()).await.unwrap());
    assert!(rpcbind.register(PROGRAM, 2, Netid::Tcp, at).await.unwrap());
    assert_eq!(
        service.calls(),
        [
            ("SET", of(PROGRAM, 2, "rdma", "192.0.2.1.78.81")),
            ("SET", of(PROGRAM, 2, "rdma", "192.0.2.2.0.1")),
            ("SET", of(PROGRAM, 2, "tcp", "192.0.2.1.78.81")),
        ]
    );
    // Only this transport.
    assert!(rpcbind.unregister(PROGRAM, 2, Netid::Rdma).await.unwrap());
    assert!(!rpcbind.unregister(PROGRAM, 2, Netid::Rdma).await.unwrap());
    assert_eq!(*service.entries.lock().unwrap(), [of(PROGRAM, 2, "tcp", "192.0.2.1.78.81")]);
}

/// RFC 1833 §2.2.1: a server registers itself when it becomes available, replaces the registration of its predecessor,
/// and unregisters itself when it ends.
#[tokio::test]
async fn a_server_registers_and_unregisters_itself() {
    let (service, rpcbind) = version_4("").await;
    let others = [of(PROGRAM, 9, "tcp", "192.0.2.9.0.9"), of(PROGRAM, 1, "udp", "192.0.2.9.0.9")];
    service.list(&[&others[..], &[of(PROGRAM, 1, "tcp", "192.0.2.9.0.1")]].concat());
    let urls = ["tcp://192.0.2.1:20049", "iwarp://[::]:20100", "tcp://192.0.2.1:7"].map(str::to_owned);
    let registration = Registration::new(rpcbind.clone(), &[(PROGRAM, 1), (PROGRAM, 2)], &urls).await.unwrap();
    let own: Vec<_> = [1, 2]
        .into_iter()
        .flat_map(|version| {
            [
                of(PROGRAM, version, "tcp", "192.0.2.1.78.81"),
                of(PROGRAM, version, "rdma", "0.0.0.0.78.132"),
                of(PROGRAM, version, "rdma6", "::.78.132"),
            ]
        })
        .collect();
    assert_eq!(*service.entries.lock().unwrap(), [&others[..], &own].concat());
    // No call of these has an empty netid or address: that would mean all transports.
    assert!(service.calls().iter().all(|(what, entry)| !entry.2.is_empty() && (*what != "SET" || !entry.3.is_empty())));
    registration.unregister().await;
    assert_eq!(*service.entries.lock().unwrap(), others);
}

/// RFC 1833 §2.2.1: if SET returns FALSE for one address, none of the server's addresses stays registered.
#[tokio::test]
async fn a_refused_registration_leaves_nothing() {
    let (service, rpcbind) = version_4("rdma").await;
    let urls = ["iwarp://192.0.2.1:20100", "tcp://192.0.2.1:7"].map(str::to_owned);
    let refused = Registration::new(rpcbind, &[(PROGRAM, 1)], &urls).await.unwrap_err();
    assert!(matches!(refused, RegisterError::Refused { netid: Netid::Rdma, .. }), "{refused}");
    assert_eq!(*service.entries.lock().unwrap(), []);
}

/// RFC 1833 §3.2: the call to a port mapper contains the protocol number of TCP. A port of zero in the reply means that
/// the program is not registered.
#[tokio::test]
async fn port_mappers_know_tcp() {
    let mapping = Mapping { prog: PROGRAM, vers: 3, prot: IPPROTO_TCP, port: 20049 };
    let rpcbind = client(PmapVersServer::new(PortMapper(mapping.clone()))).await;
    assert_eq!(rpcbind.lookup(PROGRAM, 3, Netid::Tcp).await.unwrap(), addr("127.0.0.1:20049"));
    assert_eq!(rpcbind.lookup(PROGRAM, 2, Netid::Tcp).await.unwrap(), None);
    // A port mapper knows no other transport.
    assert!(rpcbind.lookup(PROGRAM, 3, Netid::Rdma).await.is_err());
    let udp = client(PmapVersServer::new(PortMapper(Mapping { prot: 17, ..mapping.clone() }))).await;
    assert_eq!(udp.lookup(PROGRAM, 3, Netid::Tcp).await.unwrap(), None);
    // More than a port.
    let wrong = client(PmapVersServer::new(PortMapper(Mapping { port: 65_536 + 7, ..mapping }))).await;
    assert_eq!(wrong.lookup(PROGRAM, 3, Netid::Tcp).await.unwrap(), None);
}

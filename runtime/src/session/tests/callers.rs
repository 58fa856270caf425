//! The caller of a call, as its authenticator and its handler see it.

use std::sync::Mutex;

use super::*;
#[cfg(feature = "tls")]
use crate::rpc::AuthStat;
use crate::{
    rpc::Credential,
    security::{AuthenticatedCaller, Authentication, Principal, ProtectionLevel, ReceivedCall},
};

/// A call as its authenticator sees it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    header: CallHeader,
    signed: Vec<u8>,
    arguments: Vec<u8>,
    is_reduced: bool,
    addrs: (SocketAddr, SocketAddr),
    /// The address of the credential's memory.
    credential_at: usize,
}

/// An authenticator that accepts all callers, with or without an identity, and records their calls.
#[derive(Debug, Clone, Default)]
struct AcceptsAll {
    seen: Arc<Mutex<Vec<Seen>>>,
    principal: Option<Arc<Principal>>,
}

impl AcceptsAll {
    fn take(&self) -> Seen {
        self.seen.lock().unwrap().pop().unwrap()
    }
}

impl Authenticator for AcceptsAll {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        self.seen.lock().unwrap().push(Seen {
            header: call.header.clone(),
            signed: call.signed.to_vec(),
            arguments: call.arguments.to_vec(),
            is_reduced: call.is_reduced,
            addrs: (call.peer_addr, call.local_addr),
            credential_at: call.header.credential.body.as_ptr() as usize,
        });
        let caller = AuthenticatedCaller::new(Credential::Other(call.header.credential.clone()));
        Authentication::Accepted(AuthenticatedCaller { principal: self.principal.clone(), ..caller })
    }
}

fn opaque(flavor: u32, body: &[u8]) -> OpaqueAuth {
    OpaqueAuth { flavor, body: Bytes::copy_from_slice(body) }
}

/// RFC 2203 §5.3.1: the verifier covers the header up to the end of the credential. RFC 8166 §8.2.2: an authenticator
/// learns whether an item of the arguments was reduced.
#[test]
fn authenticators_see_the_received_call() {
    let guard = AcceptsAll::default();
    let mut served = Served::guarded(Transport::Rdma, service(echo), guard.clone());
    for (credential, verifier) in [(&[][..], &[][..]), (b"four", b"seven.."), (&[7; 400], &[8; 399]), (b"", b"1")] {
        let mut header = header(Name::NUMBER);
        (header.credential, header.verifier) = (opaque(6, credential), opaque(6, verifier));
        let arguments = [0, 0, 0, 4, 1, 2, 3, 4];
        let message = message(&header, &arguments);
        let (signed, _) = CallHeader::split_verifier(&message).unwrap();
        for payload in [received(&message), MessagePayload::Long(message.clone().into())] {
            assert_eq!(served.reply(arrived(payload)).0, Ok(()));
            let seen = guard.take();
            assert_eq!(seen.signed, message[..signed]);
            assert_eq!((&seen.header, &seen.arguments[..], seen.is_reduced), (&header, &arguments[..], false));
            assert_eq!(seen.addrs, (peer_addr(), local_addr()));
        }
    }
    let call = RdmaPair::new().call(Store::NUMBER, &Item(3, vec![7; 3000].into()), &[3000]);
    served.call(call).unwrap();
    let seen = guard.take();
    assert_eq!((&seen.arguments[..], seen.is_reduced), (&[0, 0, 0, 3, 0, 0, 0x0b, 0xb8][..], true));
}

/// Calls with the same AUTH_SYS credential share its memory, even if calls with credentials of other flavors come in
/// between.
#[test]
fn equal_credentials_share_memory() {
    let guard = AcceptsAll::default();
    let mut served = Served::guarded(Transport::Tcp, service(echo), guard.clone());
    // Kept, so that their memory is not used again.
    let mut headers = Vec::new();
    let mut call = |credential: &OpaqueAuth| {
        let mut header = header(0);
        header.credential = credential.clone();
        assert_eq!(served.reply(arrived(received(&message(&header, &[])))).0, Ok(()));
        let seen = guard.take();
        assert_eq!(&seen.header.credential, credential);
        headers.push(seen.header);
        seen.credential_at
    };
    let sys = |uid| Credential::sys("client", uid, 0, []).to_opaque().unwrap();
    let (first, second, other) = (sys(1), sys(2), opaque(6, b"different for each call"));
    let at = call(&first);
    assert_eq!(call(&first), at);
    call(&OpaqueAuth::none());
    assert_eq!(call(&first), at);
    call(&other);
    assert_eq!(call(&first), at);
    let at = call(&second);
    assert_eq!(call(&second), at);
}

/// A handler sees the identity that the authenticator has established.
#[test]
fn handlers_see_their_caller() {
    let named = Arc::new(Principal::new("alice@TEST", ProtectionLevel::Integrity));
    for principal in [None, Some(named)] {
        let guard = AcceptsAll { principal: principal.clone(), ..AcceptsAll::default() };
        let credential = opaque(6, b"alice");
        let expected = (principal, Credential::Other(credential.clone()));
        let handler = move |call: InboundCall| -> ReplyFuture {
            let cx = call.context();
            assert_eq!((cx.principal(), cx.credential()), (expected.0.as_deref(), &expected.1));
            assert_eq!((cx.peer_addr(), cx.local_addr()), (peer_addr(), local_addr()));
            assert_eq!((cx.transport(), cx.xid(), cx.request_key()), (Transport::Tcp, XID, None));
            echo(call)
        };
        let mut served = Served::guarded(Transport::Tcp, service(handler), guard);
        let mut header = header(0);
        header.credential = credential;
        assert_eq!(served.reply(arrived(received(&message(&header, &[])))).0, Ok(()));
    }
}

/// An authenticator sees the TLS session of a connection, and may deny calls without a session.
#[cfg(feature = "tls")]
#[test]
fn authenticators_see_the_tls_session() {
    #[derive(Debug)]
    struct NeedsTls;
    impl Authenticator for NeedsTls {
        fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
            match call.tls {
                Some(_) => Authentication::Accepted(AuthenticatedCaller::new(Credential::None)),
                None => Authentication::Rejected(AuthStat::AuthTooweak.into()),
            }
        }
    }
    let denied = RpcError::Authentication(AuthStat::AuthTooweak.into());
    for (has_tls, outcome) in [(false, Err(denied)), (true, Ok(()))] {
        let handler = move |call: InboundCall| -> ReplyFuture {
            assert_eq!(call.context().tls().is_some(), has_tls);
            echo(call)
        };
        let registry = ServiceRegistry::new([HookedService::from(service(handler))], Arc::new(NeedsTls), None).unwrap();
        let mut info = ChannelInfo::unconnected(Transport::Tcp);
        info.tls = has_tls.then(|| {
            let (cipher_suite, channel_binding) = ("TLS13_AES_128_GCM_SHA256", [7; 32]);
            let certificates = Vec::new();
            Arc::new(crate::security::TlsSession { certificates, identity: None, cipher_suite, channel_binding })
        });
        let mut served = Served::on(info, registry, ConnectionConfig::new(), None);
        assert_eq!(served.reply(arrived(received(&message(&header(0), &[])))).0, outcome);
    }
}

/// RFC 9289 §4.1: the flavor AUTH_TLS is for the probe before TLS only. Authenticators do not see it.
#[cfg(feature = "tls")]
#[test]
fn late_probes_for_tls_are_refused() {
    let guard = AcceptsAll::default();
    let mut served = Served::guarded(Transport::Tcp, service(echo), guard.clone());
    for (flavor, outcome) in
        [(6, Ok(())), (7, Err(RpcError::Authentication(crate::rpc::AuthStat::AuthBadcred.into()))), (8, Ok(()))]
    {
        let mut header = header(0);
        header.credential = opaque(flavor, &[]);
        assert_eq!(served.reply(arrived(received(&message(&header, &[])))).0, outcome, "{flavor}");
    }
    assert_eq!(guard.seen.lock().unwrap().len(), 2);
}

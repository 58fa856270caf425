//! Contexts that a client replaces, without I/O (RFC 2203 §5.3.1, §5.4).

use std::sync::atomic::Ordering;

use super::*;
use crate::{
    gss::{GssSecurity, wire::MAXSEQ},
    security::{ControlPort, ProtectionLevel, Secured, Security, SecurityFuture, SecurityLink},
    service::ProcedureId,
};

/// A connection to a [`TestServer`].
struct TestLink<'a>(&'a TestServer);

impl ControlPort for TestLink<'_> {
    fn call(&self, call: ControlCall) -> SecurityFuture<'_, Result<ControlReply, SecurityError>> {
        let authentication = self.0.receive(&TestCall::control(&call, Instant::now()));
        Box::pin(async move {
            match authentication {
                Authentication::Answered(reply) => Ok(reply),
                other => Err(SecurityError(format!("{other:?}"))),
            }
        })
    }

    fn post(&self, call: ControlCall) -> SecurityFuture<'_, Result<(), SecurityError>> {
        Box::pin(async move { self.call(call).await.map(|_| ()) })
    }
}

/// RFC 2203 §5.3.1, §5.4: when the sequence numbers below MAXSEQ are used up, calls go on with a new context. The client
/// destroys the old one, once its calls have ended.
#[tokio::test]
async fn exhausted_contexts_are_replaced_and_destroyed() {
    let server = TestServer::new(GssServerConfig::default());
    let addr = server.peer;
    let port = TestLink(&server);
    let link = SecurityLink::new(addr, addr, None, &port);
    let mechanism = client();
    let security = GssSecurity::new(mechanism.clone(), ProtectionLevel::Integrity);
    let identity = ProcedureId::new(2, 3, 1);
    let secure = async || security.secure(identity, link).await.unwrap();
    let of = |secured: &Secured| {
        let credential = GssCredential::decode(&secured.credential.body).unwrap();
        (credential.handle, credential.sequence)
    };

    let first = secure().await;
    first.call.ended();
    security.current().unwrap().set_next(MAXSEQ - 2);
    let last = secure().await;
    assert_eq!(of(&last), (of(&first).0, MAXSEQ - 2));
    let next = secure().await;
    assert_eq!(of(&next).1, 1);
    assert_ne!(of(&next).0, of(&first).0);
    assert_eq!(mechanism.started.load(Ordering::Relaxed), 2);
    assert_eq!(server.server.contexts.counts(), (2, 0), "calls use the old context");

    [last, next].iter().for_each(|secured| secured.call.ended());
    security.current().unwrap().set_next(MAXSEQ - 2);
    secure().await.call.ended();
    secure().await.call.ended();
    assert_eq!(mechanism.started.load(Ordering::Relaxed), 3);
    assert_eq!(server.server.contexts.counts(), (1, 0), "contexts without calls are destroyed");
}

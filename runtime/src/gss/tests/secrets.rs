//! Debug output shows no keys and no tokens. Handles and checksums are not secrets: they are sent unencrypted.

use super::*;
use crate::{
    gss::{GssAuthenticator, GssSecurity, client::ClientContext, wire::RpcGssInitArg},
    security::{ProtectionLevel, Security},
};

/// The debug output of all parts of a call contains no key and no token.
#[test]
fn debug_output_has_no_secrets() {
    let now = Instant::now();
    let server = TestServer::new(GssServerConfig::default());
    let mut tokens = Vec::new();
    let mut printed = Vec::new();
    let created = create_with(&client(), |call| {
        printed.push(format!("{call:?} {:?}", ContextCreation::new(2, 3)));
        tokens.push(Decoder::new(&call.arguments).read::<RpcGssInitArg>().unwrap().gss_token);
        match server.receive(&TestCall::control(call, now)) {
            Authentication::Answered(reply) => {
                printed.push(format!("{reply:?} {:?}", Authentication::Answered(reply.clone())));
                tokens.push(init_result(&reply).gss_token);
                reply
            }
            other => panic!("{other:?}"),
        }
    });
    let created = created.unwrap();
    let context = Arc::new(ClientContext::new(created, 2, 3, now));
    for level in [ProtectionLevel::Authentication, ProtectionLevel::Privacy] {
        let secured = context.secure(level).unwrap().unwrap();
        let security: Arc<dyn Security> = Arc::new(GssSecurity::new(client(), level));
        printed.push(format!("{secured:#?} {security:#?} {:?}", secured.call.protection()));
        let mut call =
            TestCall::new(&GssCredential::decode(&secured.credential.body).unwrap(), OpaqueAuth::none(), now);
        call.header.verifier = secured.call.seal(&call.header_bytes()).unwrap();
        let accepted = server.receive(&call);
        assert!(matches!(accepted, Authentication::Accepted(_)));
        printed.push(format!("{accepted:?}"));
    }
    printed.push(format!("{:?} {:?}", GssAuthenticator::new(client()), server.mechanism));
    printed.push(format!("{:?}", ClientMechanism::begin(&client()).unwrap().step(None).unwrap()));

    let text = printed.concat();
    assert!(text.contains("ProtectionLevel") || text.contains("Privacy"), "{text}");
    for token in tokens {
        assert!(!token.is_empty());
        for form in [format!("{token:?}"), format!("{:?}", token.to_vec())] {
            assert!(!text.contains(form.trim_matches(['b', '"', '[', ']'])), "{form} in {text}");
        }
    }
    let session = KEY.to_string();
    assert!(!text.contains(&session) && !text.contains(&format!("{KEY:x}")), "{text}");
}

//! The standard authenticator, filters of decisions, the queues of security contexts, and admissions.

mod admission_threads;
mod admissions;

use super::{AuthenticatedCaller, Authentication, Authenticator, BlockingQueue, ReceivedCall, StandardAuthenticator};
use crate::rpc::{AuthStat, CallHeader, Credential, OpaqueAuth};

fn encode_words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(flavor: u32, body: &'static [u8]) -> OpaqueAuth {
    OpaqueAuth { flavor, body: body.into() }
}

#[test]
fn a_malformed_auth_sys_is_a_bad_credential() {
    let bodies: [Vec<u8>; 5] = [
        vec![],
        encode_words(&[0, 256]),              // name too long
        encode_words(&[0, 0, 1, 1, 17]),      // too many groups
        encode_words(&[0, 0, 1, 1, 3, 1, 2]), // fewer groups than the count
        encode_words(&[0, 0, 1, 1, 0, 0]),    // trailing bytes
    ];
    for body in bodies {
        let mut call = CallHeader::new(1, 1, 1, 1);
        call.credential = OpaqueAuth { flavor: 1, body: body.clone().into() };
        assert_eq!(standard(&call), Err(Some(AuthStat::AuthBadcred)), "{body:?}");
    }
}

/// Returns the decision of the standard authenticator.
fn standard(call: &CallHeader) -> Result<Credential, Option<AuthStat>> {
    match StandardAuthenticator.authenticate(&ReceivedCall::new(call, ([127, 0, 0, 1], 1).into())) {
        Authentication::Accepted(caller) => {
            assert!(caller.principal.is_none() && caller.security.is_none(), "{caller:?}");
            Ok(caller.credential)
        }
        Authentication::Rejected(failure) => Err(failure.stat()),
        other => panic!("{other:?}"),
    }
}

/// A filter sees each accepted caller, however late the decision is, and nothing else.
#[tokio::test]
async fn filters_cannot_be_bypassed() {
    fn later(decision: Authentication) -> Authentication {
        Authentication::Pending(Box::pin(async { decision }))
    }
    let decisions: [fn() -> Authentication; 3] =
        [accepted_caller, || later(accepted_caller()), || later(later(accepted_caller()))];
    for make in decisions {
        for result in [Ok(()), Err(AuthStat::AuthTooweak.into())] {
            let mut decision = make().filter(move |_| result);
            while let Authentication::Pending(later) = decision {
                decision = later.await;
            }
            match decision {
                Authentication::Accepted(_) => assert!(result.is_ok()),
                Authentication::Rejected(failure) => assert_eq!(Err(failure), result),
                other => panic!("{other:?}"),
            }
        }
    }
    let unseen = |_: &AuthenticatedCaller| panic!("no caller was accepted");
    assert!(matches!(Authentication::Discarded.filter(unseen), Authentication::Discarded));
    let rejected = Authentication::Rejected(AuthStat::AuthBadcred.into()).filter(unseen);
    assert!(matches!(rejected, Authentication::Rejected(failure) if failure.stat() == Some(AuthStat::AuthBadcred)));
}

fn accepted_caller() -> Authentication {
    Authentication::Accepted(AuthenticatedCaller::new(Credential::None))
}

#[test]
fn the_standard_authenticator_accepts_two_flavors() {
    let of = |credential: OpaqueAuth, verifier: OpaqueAuth| {
        let mut call = CallHeader::new(1, 1, 1, 1);
        (call.credential, call.verifier) = (credential, verifier);
        standard(&call)
    };
    let none = OpaqueAuth::none;
    let sys = Credential::sys("m", 1, 2, [3]);
    assert_eq!(of(none(), none()), Ok(Credential::None));
    // RFC 5531 §10.1: the body is undefined.
    assert_eq!(of(opaque(0, b"junk"), none()), Ok(Credential::None));
    assert_eq!(of(sys.to_opaque().unwrap(), none()), Ok(sys.clone()));
    assert_eq!(of(sys.to_opaque().unwrap(), opaque(6, b"x")), Err(Some(AuthStat::AuthBadverf)));
    assert_eq!(of(opaque(2, b"shorthand"), none()), Err(Some(AuthStat::AuthRejectedcred)));
    for unknown in [3, 6, 7, 390_004, u32::MAX] {
        assert_eq!(of(opaque(unknown, b""), none()), Err(Some(AuthStat::AuthBadcred)));
    }
}

/// While a large body is in progress, short work is refused, and does not wait. While short work is in progress, a
/// large body waits.
#[test]
fn short_work_does_not_wait_for_large_bodies() {
    let queue = BlockingQueue::new();
    assert!(queue.run_here(true, || queue.try_run(|| ()).is_err()), "the task would wait");
    assert!(queue.run_here(false, || queue.try_run(|| ()).is_ok()));
    let (begin, started) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let is_first = queue.try_run(|| {
            let large = scope.spawn(|| {
                begin.send(()).unwrap();
                queue.run_here(true, || end.send(()).unwrap());
            });
            started.recv().unwrap();
            (ended.try_recv().is_err() && !large.is_finished(), large)
        });
        let (is_first, large) = is_first.ok().unwrap();
        large.join().unwrap();
        assert!(is_first, "the body began before the task's work had ended");
    });
}

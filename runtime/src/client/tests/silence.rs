use std::time::Duration;

use tokio::time::{Instant, advance};

use crate::{
    client::{
        error::{CallError, Retries},
        reconnect::Reconnect,
        silence::{Silence, WatchedCall},
    },
    engine::{CallFailure, CloseReason},
};

fn late() -> Result<(), CallError> {
    failed(CallFailure::DeadlineExceeded { sent: true })
}

fn failed(failure: CallFailure) -> Result<(), CallError> {
    Err(CallError::Transport { procedure: "late", failure, retries: Retries::default() })
}

/// Every reply ends a pause, including the reply to a call that began before other calls got replies.
#[tokio::test(start_paused = true)]
async fn every_reply_ends_a_pause() {
    let silence = Silence::new(Reconnect::on_demand());
    let slow = WatchedCall::new(&silence);
    WatchedCall::new(&silence).end(&Ok(()));
    WatchedCall::new(&silence).end(&late());
    assert!(silence.until(Instant::now()).is_some());
    slow.end(&Ok(()));
    assert!(silence.until(Instant::now()).is_none());
}

/// A call that fails before it is sent does not count as a reply.
#[tokio::test(start_paused = true)]
async fn local_errors_do_not_end_a_pause() {
    let silence = Silence::new(Reconnect::on_demand());
    WatchedCall::new(&silence).end(&late());
    WatchedCall::new(&silence).end::<()>(&Err(CallError::Credential { procedure: "local", len: 401 }));
    assert!(silence.until(Instant::now()).is_some());
}

/// A call that reaches its deadline is not a sign of silence if another call got a reply meanwhile.
#[tokio::test(start_paused = true)]
async fn a_reply_shows_that_the_server_answers() {
    let silence = Silence::new(Reconnect::on_demand());
    let slow = WatchedCall::new(&silence);
    WatchedCall::new(&silence).end(&Ok(()));
    slow.end(&late());
    assert!(silence.until(Instant::now()).is_none());
}

/// Pauses double up to `max_backoff`, and start again at `min_backoff` after a reply. Calls that were in flight when a
/// pause began do not prolong it.
#[tokio::test(start_paused = true)]
async fn pauses_double() {
    let [min_backoff, max_backoff] = [100, 350].map(Duration::from_millis);
    let silence = Silence::new(Reconnect::OnDemand { min_backoff, max_backoff, retries: 0 });
    for _ in 0..2 {
        for pause in [100, 200, 350, 350].map(Duration::from_millis) {
            let now = Instant::now();
            assert_eq!(silence.until(now), None);
            let calls = [WatchedCall::new(&silence), WatchedCall::new(&silence), WatchedCall::new(&silence)];
            for call in calls {
                call.end(&late());
                assert_eq!(silence.until(now), Some(now + pause));
                advance(Duration::from_millis(1)).await;
            }
            advance(pause - Duration::from_millis(4)).await;
            assert_eq!(silence.until(Instant::now()), Some(now + pause));
            advance(Duration::from_millis(1)).await;
        }
        WatchedCall::new(&silence).end(&Ok(()));
    }
}

/// A call that is dropped after at least `min_backoff` is a sign of silence. Errors that do not indicate a missing
/// reply are not, however late they are.
#[tokio::test(start_paused = true)]
async fn silence_is_a_missing_reply() {
    let silence = Silence::new(Reconnect::on_demand());
    let begin = async |milliseconds| {
        let call = WatchedCall::new(&silence);
        advance(Duration::from_millis(milliseconds)).await;
        call
    };
    let closed = CallFailure::Closed { reason: CloseReason::Idle(Duration::ZERO), sent: true };
    for failure in [CallFailure::DeadlineExceeded { sent: false }, CallFailure::Cancelled { sent: true }, closed] {
        begin(5000).await.end(&failed(failure));
        assert_eq!(silence.until(Instant::now()), None);
    }
    drop(begin(99).await);
    assert_eq!(silence.until(Instant::now()), None);
    drop(begin(100).await);
    assert!(silence.until(Instant::now()).is_some());
}

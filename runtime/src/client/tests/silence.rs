use tokio::time::Instant;

use crate::{
    client::{
        error::{CallError, Retries},
        reconnect::Reconnect,
        silence::{Silence, WatchedCall},
    },
    engine::CallFailure,
};

fn late() -> Result<(), CallError> {
    let failure = CallFailure::DeadlineExceeded { sent: true };
    Err(CallError::Transport { procedure: "late", failure, retries: Retries::default() })
}

/// Every reply ends a pause, also that of a call that began before other calls got replies.
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

/// A call shows no silence if another one got a reply while it was in flight.
#[tokio::test(start_paused = true)]
async fn a_reply_shows_that_the_server_answers() {
    let silence = Silence::new(Reconnect::on_demand());
    let slow = WatchedCall::new(&silence);
    WatchedCall::new(&silence).end(&Ok(()));
    slow.end(&late());
    assert!(silence.until(Instant::now()).is_none());
}

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use crate::security::{Admissions, HostAddr};

fn host(last: u8) -> HostAddr {
    HostAddr::of(([127, 0, 0, last], 1).into())
}

async fn is_waiting(mut work: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await
}

/// The work of a host beyond its share waits, and does not take the place of other hosts. No state is left when all
/// work has ended.
#[tokio::test]
async fn hosts_have_shares() {
    let admissions = Admissions::new(3, 2);
    let of_first = [admissions.admit(host(1)).await, admissions.admit(host(1)).await];
    let mut third = std::pin::pin!(admissions.admit(host(1)));
    assert!(is_waiting(third.as_mut()).await);
    let of_second = admissions.admit(host(2)).await;
    assert!(is_waiting(third.as_mut()).await);
    drop(of_first);
    drop(third.await);
    drop(of_second);
    assert!(admissions.is_idle());
    // A caller that stops waiting leaves nothing either.
    let held = [admissions.admit(host(1)).await, admissions.admit(host(1)).await];
    drop(Box::pin(admissions.admit(host(1))));
    let mut waiting = Box::pin(admissions.admit(host(1)));
    assert!(is_waiting(waiting.as_mut()).await);
    drop((waiting, held));
    assert!(admissions.is_idle());
}

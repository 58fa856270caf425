//! Tests of [`Admissions`], in random interleavings chosen by `shuttle`.

// The limits are compiled twice, and parts of them are used only in one of the two places.
#![allow(clippy::duplicate_mod, clippy::unwrap_used, dead_code)]

#[path = "../admissions.rs"]
mod admissions;

use std::sync::Arc;

use shuttle::{
    future::block_on,
    thread::{self, JoinHandle},
};

use self::{
    admissions::Admissions,
    sync::{AtomicUsize, Ordering::SeqCst},
};
use crate::{
    security::HostAddr,
    sync::model::{self as sync, check, give_up},
};

fn host(last: u8) -> HostAddr {
    HostAddr::of(([127, 0, 0, last], 1).into())
}

/// Does work of the host with the last address byte `last` in a new thread. `running` counts the threads that work at
/// the same time. Checks that there are at most `most` of them.
fn works(admissions: &Admissions, last: u8, running: &Arc<AtomicUsize>, most: usize) -> JoinHandle<()> {
    let (admissions, running) = (admissions.clone(), Arc::clone(running));
    thread::spawn(move || {
        let admission = block_on(admissions.admit(host(last)));
        assert!(running.fetch_add(1, SeqCst) < most);
        thread::yield_now();
        running.fetch_sub(1, SeqCst);
        drop(admission);
    })
}

/// Begins work of a host in a new thread, and drops the work after up to `polls` polls.
fn gives_up(admissions: &Admissions, last: u8, polls: usize) -> JoinHandle<()> {
    let admissions = admissions.clone();
    thread::spawn(move || drop(block_on(give_up(admissions.admit(host(last)), polls))))
}

/// All work of a host begins, within the limit of the host, although other work is dropped while it waits. No state is
/// kept for a host without work.
#[test]
fn all_work_begins() {
    check(|| {
        let admissions = Admissions::new(4, 1);
        let running = Arc::default();
        let work = [(); 3].map(|()| works(&admissions, 1, &running, 1));
        let given_up = gives_up(&admissions, 1, 1);
        work.into_iter().chain([given_up]).for_each(|thread| thread.join().unwrap());
        assert!(admissions.is_idle());
    });
}

/// With a total limit of 1, the work of one host waits for the work of another host.
#[test]
fn hosts_share_a_limit() {
    check(|| {
        let admissions = Admissions::new(1, 2);
        let running = Arc::default();
        let threads =
            [works(&admissions, 1, &running, 1), works(&admissions, 2, &running, 1), gives_up(&admissions, 2, 2)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(admissions.is_idle());
    });
}

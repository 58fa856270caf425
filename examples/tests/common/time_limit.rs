//! A time limit for tests that wait for other programs.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    io::{Write as _, stderr},
    process::{Command, Output, exit},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// The time after which a test is considered hung. It is far longer than any test takes, even on a busy machine.
const MAX_DURATION: Duration = Duration::from_secs(900);

/// The time limit of a test, which ends when this value is dropped. If it expires, the whole process fails: a thread
/// that waits for another program cannot be interrupted.
pub(crate) struct TimeLimit(#[allow(dead_code, reason = "dropped at the end")] Sender<()>);

impl TimeLimit {
    pub(crate) fn start() -> Self {
        let (test, ended) = channel();
        let name = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            if ended.recv_timeout(MAX_DURATION) == Err(RecvTimeoutError::Timeout) {
                // The test harness captures `eprintln!`, but not this.
                let _ = writeln!(stderr(), "{name} timed out");
                exit(101);
            }
        });
        Self(test)
    }
}

/// Runs a program to its end, and returns its output.
pub(crate) fn output(command: &mut Command) -> Output {
    let _limit = TimeLimit::start();
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

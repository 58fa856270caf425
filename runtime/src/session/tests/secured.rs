//! The threads that protect bodies.

use std::{
    sync::Mutex,
    thread::{self, ThreadId},
};

use super::*;
use crate::{
    security::{BlockingQueue, MAX_BODY_IN_TASK, Protection, SecurityError, UnwrapError},
    session::{unwrap, wrap},
};

/// A protection that leaves bodies unchanged, and records the threads on which it was called.
#[derive(Debug, Default)]
struct Threads(Mutex<Vec<ThreadId>>, BlockingQueue);

impl Threads {
    fn note(&self) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

impl Protection for Threads {
    fn wrap(&self, body: Bytes) -> Result<Bytes, SecurityError> {
        self.note();
        Ok(body)
    }

    fn unwrap(&self, body: Bytes) -> Result<Bytes, UnwrapError> {
        self.note();
        Ok(body)
    }

    fn max_wrapped(&self, len: u64) -> u64 {
        len
    }

    fn queue(&self) -> BlockingQueue {
        self.1.clone()
    }
}

/// The task of a call protects and checks a short body itself. A long body is processed on another thread, because it
/// would keep other tasks of the thread waiting.
#[tokio::test]
async fn long_bodies_leave_the_task() {
    let own = thread::current().id();
    for (len, is_short) in [(0, true), (MAX_BODY_IN_TASK, true), (MAX_BODY_IN_TASK + 1, false)] {
        let threads = Arc::new(Threads::default());
        let (protection, body) = (Arc::clone(&threads) as Arc<dyn Protection>, Bytes::from(vec![7; len]));
        assert_eq!(wrap(Arc::clone(&protection), body.clone()).await, Ok(body.clone()));
        assert_eq!(unwrap(protection, body.clone()).await, Ok(body));
        let used = threads.0.lock().unwrap();
        assert_eq!(used.iter().map(|thread| *thread == own).collect::<Vec<_>>(), [is_short; 2], "{len}");
    }
}

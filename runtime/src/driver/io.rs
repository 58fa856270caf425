//! The I/O of a connection, between its engine and the network.

use std::task::{Context, Poll};

use crate::{
    engine::{Connection, Engine},
    provider::{Completion, QueuePair},
};

/// The I/O of one connection: a queue pair for RPC-over-RDMA ([`RdmaIo`]), or a byte stream for records
/// ([`TcpIo`](super::TcpIo)).
pub(crate) trait EngineIo: Send + 'static {
    /// The engine of the connection.
    type Engine: Engine + Send + 'static;

    /// Returns the port that the engine posts its work to.
    fn port(&mut self) -> &mut <Self::Engine as Engine>::Port;

    /// Does the I/O that can be done without waiting.
    ///
    /// Returns `Ready` if the engine may have new work. Otherwise the next event wakes `cx`. `others` is `true` if the
    /// current poll of the task has woken other tasks. Then this function must not keep the thread busy. `is_first` is
    /// `true` for the first call in the current poll of the task. Later calls need not look for input again if there
    /// was none.
    fn poll(&mut self, engine: &mut Self::Engine, cx: &mut Context<'_>, others: bool, is_first: bool) -> Poll<()>;

    /// Returns `false` if another [`poll`](Self::poll) with the same waker would find nothing to do.
    fn needs_poll(&self, _engine: &Self::Engine) -> bool {
        true
    }

    /// Returns `true` if [`poll`](Self::poll) should be called again without waiting, to receive input as soon as it
    /// arrives.
    fn is_busy_polling(&self) -> bool {
        false
    }

    /// Returns the number of bytes that were received from the peer and that the engine does not count.
    fn bytes_received(&self) -> u64 {
        0
    }

    /// Returns `true` if input has arrived that the engine has not handled.
    fn has_input(&self, engine: &Self::Engine) -> bool;

    /// Passes at most `most` pieces of input to the engine.
    fn handle_input(&mut self, engine: &mut Self::Engine, most: usize);
}

/// The I/O of RPC-over-RDMA on a queue pair.
pub(crate) struct RdmaIo {
    queue_pair: Box<dyn QueuePair>,
    /// Completions that the engine has not handled.
    completed: Vec<Completion>,
    /// Last setting of busy polling that was passed to the queue pair. `None` before the first poll.
    may_busy_poll: Option<bool>,
}

impl RdmaIo {
    pub(crate) fn new(queue_pair: Box<dyn QueuePair>) -> Self {
        Self { queue_pair, completed: Vec::new(), may_busy_poll: None }
    }
}

impl EngineIo for RdmaIo {
    type Engine = Connection;

    fn port(&mut self) -> &mut (dyn QueuePair + 'static) {
        &mut *self.queue_pair
    }

    fn poll(&mut self, _engine: &mut Connection, cx: &mut Context<'_>, others: bool, is_first: bool) -> Poll<()> {
        if self.may_busy_poll != Some(!others) {
            self.may_busy_poll = Some(!others);
            self.queue_pair.set_busy_poll(!others);
        }
        if is_first {
            self.queue_pair.poll(cx, &mut self.completed)
        } else {
            self.queue_pair.poll_requests(cx, &mut self.completed)
        }
    }

    fn needs_poll(&self, _engine: &Connection) -> bool {
        self.queue_pair.needs_poll()
    }

    fn is_busy_polling(&self) -> bool {
        self.queue_pair.is_busy_polling()
    }

    fn bytes_received(&self) -> u64 {
        self.queue_pair.bytes_received()
    }

    fn has_input(&self, _engine: &Connection) -> bool {
        !self.completed.is_empty()
    }

    #[inline(always)]
    fn handle_input(&mut self, engine: &mut Connection, most: usize) {
        // A drain costs more than a single completion is worth.
        if self.completed.len() > 1 {
            let batch = self.completed.len().min(most);
            self.completed.drain(..batch).for_each(|completion| engine.handle_completion(completion));
        } else if let Some(completion) = self.completed.pop() {
            engine.handle_completion(completion);
        }
    }
}

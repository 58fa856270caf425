//! What carries calls: an engine, and what it does its I/O on.

use std::{
    task::{Context, Poll},
    time::Instant,
};

use crate::{
    engine::{
        CallId, CloseReason, Connection, Counters, Event, OutgoingCall, OutgoingReply, ReplyToken, v2::Properties,
    },
    memory::Share,
    provider::{Completion, DisconnectReason, QueuePair},
};

/// What both ends of an RDMA connection have agreed on, as far as they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Agreement {
    /// The version of RPC-over-RDMA.
    pub(crate) version: Option<u32>,
    /// What the peer has said of itself, in version 2.
    pub(crate) properties: Option<Properties>,
}

impl Agreement {
    /// Whether there is nothing more to come.
    pub(crate) fn is_complete(&self) -> bool {
        match self.version {
            None => false,
            Some(1) => true,
            Some(_) => self.properties.is_some(),
        }
    }
}

/// An engine and what it does its I/O on, as the driver sees them: RPC-over-RDMA on a queue pair ([`Rdma`]), or
/// records on a byte stream ([`Tcp`](super::tcp::Tcp)). The methods are the engines', which say more about each.
pub(crate) trait Carrier: Send + 'static {
    fn start_call(&mut self, call: OutgoingCall) -> CallId;

    fn cancel_call(&mut self, id: CallId, now: Instant);

    fn reply(&mut self, token: ReplyToken, reply: OutgoingReply);

    /// Answers a call with the transport's own error, where it has one.
    fn refuse(&mut self, token: ReplyToken);

    fn close_with(&mut self, reason: CloseReason);

    fn close_reason(&self) -> Option<&CloseReason>;

    /// The connection is over, whatever the peer does.
    fn lost(&mut self, reason: DisconnectReason);

    fn poll_timeout(&mut self) -> Option<Instant>;

    fn handle_timeout(&mut self, now: Instant);

    fn poll_work(&mut self, now: Instant);

    fn poll_event(&mut self) -> Option<Event>;

    fn counters(&self) -> Counters;

    /// What the connection may hold of its server's memory: it may have to wait for some.
    fn memory(&self) -> &Share;

    /// What has been agreed on. A byte stream agrees on nothing.
    fn agreement(&mut self) -> Agreement {
        Agreement::default()
    }

    /// Does the I/O that can be done. Ready when the engine may have something to do in consequence; otherwise what
    /// happens next wakes `cx`. `others`: other tasks have been given something to do, so the thread is not to be kept.
    fn poll_io(&mut self, cx: &mut Context<'_>, others: bool) -> Poll<()>;

    /// Whether something has come in that has not been handled.
    fn has_input(&self) -> bool;

    /// Handles at most `most` of what has come in.
    fn handle_input(&mut self, most: usize);
}

/// RPC-over-RDMA on a queue pair.
pub(crate) struct Rdma<Q> {
    engine: Connection,
    queue_pair: Q,
    /// Not yet handled.
    completed: Vec<Completion>,
}

impl<Q: QueuePair> Rdma<Q> {
    pub(crate) fn new(engine: Connection, queue_pair: Q) -> Self {
        Self { engine, queue_pair, completed: Vec::new() }
    }
}

impl<Q: QueuePair> Carrier for Rdma<Q> {
    fn start_call(&mut self, call: OutgoingCall) -> CallId {
        self.engine.start_call(call)
    }

    fn cancel_call(&mut self, id: CallId, now: Instant) {
        self.engine.cancel_call(id, now);
    }

    fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.engine.reply(token, reply);
    }

    fn refuse(&mut self, token: ReplyToken) {
        self.engine.reply_error(token);
    }

    fn close_with(&mut self, reason: CloseReason) {
        self.engine.close_with(reason);
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        self.engine.close_reason()
    }

    fn lost(&mut self, reason: DisconnectReason) {
        self.engine.handle_completion(Completion::Disconnected { reason });
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
    }

    fn poll_work(&mut self, now: Instant) {
        self.engine.poll_work(&mut self.queue_pair, now);
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.engine.poll_event()
    }

    fn counters(&self) -> Counters {
        self.engine.counters()
    }

    fn memory(&self) -> &Share {
        self.engine.memory()
    }

    fn agreement(&mut self) -> Agreement {
        let version = self.engine.version();
        let properties = self.engine.as_v2().and_then(|engine| engine.peer_properties().copied());
        Agreement { version, properties: properties.filter(|_| version == Some(2)) }
    }

    fn poll_io(&mut self, cx: &mut Context<'_>, others: bool) -> Poll<()> {
        self.queue_pair.may_spin(!others);
        self.queue_pair.poll(cx, &mut self.completed)
    }

    fn has_input(&self) -> bool {
        !self.completed.is_empty()
    }

    fn handle_input(&mut self, most: usize) {
        let batch = self.completed.len().min(most);
        self.completed.drain(..batch).for_each(|completion| self.engine.handle_completion(completion));
    }
}

//! Records on a TCP connection.

use std::{
    io::ErrorKind,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use tokio::{io::AsyncWrite as _, net::TcpStream};

use super::Carrier;
use crate::{
    engine::{CallId, CloseReason, Counters, Event, OutgoingCall, OutgoingReply, ReplyToken, stream::StreamConnection},
    memory::Share,
    provider::DisconnectReason,
};

/// System calls in either direction before the engine sees what has come of them.
const MAX_CALLS: usize = 16;

/// RPC in records on a TCP connection.
pub(crate) struct Tcp {
    engine: StreamConnection,
    stream: TcpStream,
}

impl Tcp {
    pub(crate) fn new(engine: StreamConnection, stream: TcpStream) -> Self {
        Self { engine, stream }
    }

    fn failed(&mut self, error: std::io::Error) {
        self.engine.lost(CloseReason::Disconnected(DisconnectReason::Transport(error.into())));
    }

    /// Sends what can be sent.
    fn send(&mut self, cx: &mut Context<'_>) {
        for _ in 0..MAX_CALLS {
            let slices = self.engine.output();
            if slices.is_empty() {
                break;
            }
            let sent = match self.stream.poll_write_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(ready) => ready.and_then(|()| self.stream.try_write_vectored(&slices)),
            };
            drop(slices);
            match sent {
                Ok(len) => self.engine.sent(len),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return self.failed(error),
            }
        }
        if self.engine.wants_shutdown() {
            match Pin::new(&mut self.stream).poll_shutdown(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.engine.shut_down(),
                Poll::Ready(Err(error)) => self.failed(error),
            }
        }
    }

    /// Receives what there is, up to where the engine has to look at it.
    fn receive(&mut self, cx: &mut Context<'_>) {
        for _ in 0..MAX_CALLS {
            if !self.engine.wants_input() || (self.engine.has_input() && self.engine.missing() == 0) {
                return;
            }
            let received = match self.stream.poll_read_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(ready) => ready.and_then(|()| self.stream.try_read_buf(&mut self.engine.room())),
            };
            match received {
                Ok(0) => return self.engine.ended(),
                Ok(len) => self.engine.received(len),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return self.failed(error),
            }
        }
    }
}

impl Carrier for Tcp {
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
        self.engine.refuse(token);
    }

    fn close_with(&mut self, reason: CloseReason) {
        self.engine.close_with(reason);
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        self.engine.close_reason()
    }

    fn lost(&mut self, reason: DisconnectReason) {
        self.engine.lost(reason.into());
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
    }

    fn poll_work(&mut self, now: Instant) {
        self.engine.poll_work(now);
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

    fn poll_io(&mut self, cx: &mut Context<'_>, _others: bool) -> Poll<()> {
        let before = self.engine.counters();
        self.send(cx);
        self.receive(cx);
        let after = self.engine.counters();
        // Octets that went, too: what has been sent whole is told, and may make room for more.
        let moved = (before.sent, before.received) != (after.sent, after.received);
        if moved || self.engine.is_pending() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_input(&self) -> bool {
        self.engine.has_input()
    }

    fn handle_input(&mut self, most: usize) {
        self.engine.handle_records(most);
    }
}

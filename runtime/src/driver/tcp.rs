//! The I/O of a TCP connection with record marking.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{io::AsyncWrite as _, net::TcpStream};

use super::EngineIo;
use crate::{
    engine::{Engine, stream::StreamConnection},
    provider::DisconnectReason,
};

/// Maximum number of system calls in either direction before the engine processes their results.
const MAX_CALLS: usize = 16;

/// The I/O of a TCP connection with record marking (RFC 5531 §11).
pub(crate) struct TcpIo {
    stream: TcpStream,
    /// The engine of a byte stream posts no work.
    port: (),
}

impl TcpIo {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, port: () }
    }

    /// Sends as much as possible without waiting.
    fn send(&mut self, engine: &mut StreamConnection, cx: &mut Context<'_>) -> io::Result<()> {
        for _ in 0..MAX_CALLS {
            let slices = engine.output();
            if slices.is_empty() {
                break;
            }
            let sent = match self.stream.poll_write_ready(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(ready) => ready.and_then(|()| self.stream.try_write_vectored(&slices)),
            };
            drop(slices);
            match sent {
                Ok(len) => engine.sent(len),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        if engine.wants_shutdown()
            && let Poll::Ready(done) = Pin::new(&mut self.stream).poll_shutdown(cx)
        {
            done?;
            engine.shut_down();
        }
        Ok(())
    }

    /// Receives the available data, until the engine has to process it.
    fn receive(&mut self, engine: &mut StreamConnection, cx: &mut Context<'_>) -> io::Result<()> {
        for _ in 0..MAX_CALLS {
            if !engine.wants_input() || (engine.has_input() && engine.missing() == 0) {
                break;
            }
            let received = match self.stream.poll_read_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(ready) => ready.and_then(|()| self.stream.try_read_buf(&mut engine.room())),
            };
            match received {
                Ok(0) => {
                    engine.ended();
                    break;
                }
                Ok(len) => engine.received(len),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl EngineIo for TcpIo {
    type Engine = StreamConnection;

    fn port(&mut self) -> &mut () {
        &mut self.port
    }

    fn poll(&mut self, engine: &mut StreamConnection, cx: &mut Context<'_>, _others: bool) -> Poll<()> {
        let before = engine.counters();
        for done in [self.send(engine, cx), self.receive(engine, cx)] {
            if let Err(error) = done {
                engine.connection_lost(DisconnectReason::Transport(error.into()));
            }
        }
        let after = engine.counters();
        // A reply that was sent completely produces an engine event, and may make room for more work.
        let moved = (before.bytes_sent, before.bytes_received) != (after.bytes_sent, after.bytes_received);
        if moved || engine.is_pending() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_input(&self, engine: &StreamConnection) -> bool {
        engine.has_input()
    }

    fn handle_input(&mut self, engine: &mut StreamConnection, most: usize) {
        engine.handle_records(most);
    }
}

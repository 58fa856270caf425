//! The driver of a connection.
//!
//! One task per connection owns the connection's engine and its I/O ([`DriverCore`]). Users send commands to it through
//! one queue ([`DriverPort`]). A caller receives its result in a reusable slot. The task posts all work that is ready
//! before it waits. One wake-up covers all commands that are queued until the task runs, so that they share system
//! calls.

mod catch_up;
mod closing;
mod command;
mod core;
mod encoded_reply;
mod formats;
mod idle;
mod inbound_calls;
mod io;
mod keepalive;
mod pending;
mod port;
mod task;
mod tcp;
mod timer;

#[cfg(test)]
pub(crate) use self::command::{CommandQueue, ResultSlot};
pub use self::encoded_reply::EncodedReply;
pub use self::formats::{CallFormats, FormatCounts};
#[cfg(feature = "tls")]
pub(crate) use self::tcp::ByteStream;
pub(crate) use self::{
    command::{DriverCommand, ReplyCommand},
    core::{DriverConfig, DriverCore},
    encoded_reply::ReplyOutcome,
    inbound_calls::{InboundCalls, NoInboundCalls},
    io::{EngineIo, RdmaIo},
    keepalive::{KeepaliveConfig, ProbedProgram},
    pending::PendingCall,
    port::{DriverPort, SlotPermit},
    task::spawn,
    tcp::TcpIo,
};

use crate::sync;

#[cfg(test)]
mod tests;

//! The driver of a connection.
//!
//! One task per connection owns the connection's engine and its I/O ([`DriverCore`]). Users reach it through one queue ([`DriverPort`]), and
//! a caller's result arrives in a slot that is used again. The task posts everything that is ready before it waits for anything.
//! It is woken once for all commands that are queued until it runs, so that they share system calls.

mod catch_up;
mod closing;
mod command;
mod core;
mod formats;
mod inbound_calls;
mod io;
mod pending;
mod port;
mod sync;
mod task;
mod tcp;
mod timer;

pub use self::formats::{CallFormats, FormatCounts};
pub(crate) use self::{
    command::{DriverCommand, ReplyCommand},
    core::{DriverConfig, DriverCore},
    inbound_calls::{InboundCalls, NoInboundCalls},
    io::{EngineIo, RdmaIo},
    pending::PendingCall,
    port::DriverPort,
    task::spawn,
    tcp::TcpIo,
};

#[cfg(test)]
mod tests;

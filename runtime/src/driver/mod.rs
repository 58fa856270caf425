//! The driver of a connection.
//!
//! One task per connection owns the connection's engine and its I/O ([`Core`]). Users reach it through one queue ([`Port`]), and
//! a caller's result arrives in a slot that is used again. The task posts everything that is ready before it waits for anything.
//! It is woken once for all commands that are queued until it runs, so that they share system calls.

mod catch_up;
mod closing;
mod command;
mod core;
mod formats;
mod io;
mod pending;
mod port;
mod sync;
mod task;
mod tcp;
mod timer;
mod upcalls;

pub use self::formats::{FormatCounts, Formats};
pub(crate) use self::{
    command::{Answer, Command},
    core::{Core, DriverConfig},
    io::{EngineIo, RdmaIo},
    pending::PendingCall,
    port::Port,
    task::spawn,
    tcp::TcpIo,
    upcalls::{NoUpcalls, Upcalls},
};

#[cfg(test)]
mod tests;

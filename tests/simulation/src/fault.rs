//! Faults: their kinds, and when they happen.

use std::fmt;

use crate::network::{Direction, Host};

/// A kind of fault that the simulation injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// A connection is lost after a number of steps, which may be in the middle of a message.
    Cut,
    /// Nothing passes between a client and a server.
    Separate,
    /// One direction between a client and a server is stopped.
    OneWay,
    /// The messages of a host are delayed.
    Slow,
    /// The process of a server is killed. The host resets the connections and refuses new ones.
    Kill,
    /// The process of a client is killed, and starts again with its next call.
    KillClient,
    /// The host of a server stops. Nobody resets its connections.
    HostDown,
    /// A server is killed between an effect and its reply.
    CrashAfterEffect,
    /// A server is shut down in an orderly way, and started again.
    Restart,
    /// The disk of a server is full.
    DiskFull,
    /// The handlers of a server are delayed.
    SlowHandlers,
    /// A registration of memory fails.
    NoRegistration,
    /// An invalidation of memory fails.
    NoInvalidation,
    /// A server accepts no connections.
    Refuse,
    /// All clocks jump.
    ClockJump,
    /// A client's list of servers lacks the first server, and contains the URL of a server that does not exist.
    FalseList,
    /// A server crashes while it writes an effect and its reply: both are lost, or the reply is damaged.
    TornWrite,
    /// All security contexts at a server expire, as when tickets are withdrawn.
    ContextsExpire,
}

impl FaultKind {
    /// All kinds of faults.
    pub const ALL: [Self; 18] = [
        Self::Cut,
        Self::Separate,
        Self::OneWay,
        Self::Slow,
        Self::Kill,
        Self::KillClient,
        Self::HostDown,
        Self::CrashAfterEffect,
        Self::Restart,
        Self::DiskFull,
        Self::SlowHandlers,
        Self::NoRegistration,
        Self::NoInvalidation,
        Self::Refuse,
        Self::ClockJump,
        Self::FalseList,
        Self::TornWrite,
        Self::ContextsExpire,
    ];

    /// Returns the name of the kind in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cut => "connection lost",
            Self::Separate => "hosts separated",
            Self::OneWay => "one direction stopped",
            Self::Slow => "slow host",
            Self::Kill => "server killed",
            Self::KillClient => "client killed",
            Self::HostDown => "host down",
            Self::CrashAfterEffect => "crash between effect and reply",
            Self::Restart => "server restarted",
            Self::DiskFull => "disk full",
            Self::SlowHandlers => "slow handlers",
            Self::NoRegistration => "registration refused",
            Self::NoInvalidation => "invalidation failed",
            Self::Refuse => "connections refused",
            Self::ClockJump => "clock jump",
            Self::FalseList => "false list of servers",
            Self::TornWrite => "crash in the middle of a write",
            Self::ContextsExpire => "security contexts expired",
        }
    }

    /// Returns `true` if a fault of this kind can make calls to any server fail.
    #[must_use]
    pub const fn concerns_all(self) -> bool {
        matches!(self, Self::ClockJump)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fault that a scenario injects, with its time and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// Start of the fault, in milliseconds since the beginning of the run.
    pub at: u64,
    /// Duration of the fault, in milliseconds.
    pub len: u64,
    /// The affected client, for kinds that affect one.
    pub client: Host,
    /// The affected server, for kinds that affect one.
    pub server: Host,
    /// The affected direction. A fault of memory affects the end that sends in this direction.
    pub direction: Direction,
    /// A number whose meaning depends on the kind: steps, a factor, milliseconds, or 0 if a torn write loses the effect
    /// as well as the reply.
    pub number: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, len, client, server, direction, number, .. } = self;
        match kind {
            FaultKind::Cut => write!(f, "{kind} between {client} and {server} after {number} more steps"),
            FaultKind::Separate => write!(f, "{kind}: {client} and {server} for {len} ms"),
            FaultKind::OneWay => write!(f, "{kind}: {client} and {server}, {direction:?}, for {len} ms"),
            FaultKind::Slow => write!(f, "{kind}: {server}, {number} times, for {len} ms"),
            FaultKind::SlowHandlers => write!(f, "{kind}: {server}, up to {number} ms, for {len} ms"),
            FaultKind::NoRegistration | FaultKind::NoInvalidation => {
                write!(f, "{kind} between {client} and {server}, at the sender {direction:?}")
            }
            FaultKind::KillClient => write!(f, "{kind}: {client}"),
            FaultKind::ClockJump => write!(f, "{kind} by {number} ms"),
            FaultKind::FalseList => write!(f, "{kind} at {client} for {len} ms"),
            _ => write!(f, "{kind}: {server} for {len} ms"),
        }
    }
}

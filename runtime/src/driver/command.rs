//! The commands that a connection's users send to its driver.

use crate::engine::{CallFailure, IncomingReply, OutgoingCall, OutgoingReply, ReplyToken};

/// Number of commands, and of inputs, that are handled before the resulting work is posted. A larger batch would leave the
/// peer idle meanwhile, a smaller one would take more system calls.
pub(super) const BATCH: usize = 32;

/// The result of a call.
pub(crate) type CallResult = Result<IncomingReply, CallFailure>;

/// The number of a result slot. A caller holds a slot from the start of its call until it has taken the result. After the
/// caller has gone, the slot stays in use until the call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultSlot(pub(crate) u32);

/// A command to the driver. Commands are carried out in the order queued, so a cancellation never meets a later call that
/// uses the same slot.
// A call is moved into the queue by value: a box would cost an allocation per call.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum DriverCommand {
    /// Start the call whose result goes to `slot`.
    Start { slot: ResultSlot, call: OutgoingCall },
    /// The caller in `slot` has gone.
    Cancel { slot: ResultSlot },
    /// A handler has finished.
    Reply { token: ReplyToken, answer: ReplyCommand },
    /// The last channel that held the connection open has gone. The command counts as activity, and does nothing else.
    LetGo,
    /// Finish the calls in flight, begin no more calls of the peer, and disconnect.
    Drain,
    /// Disconnect now.
    Disconnect,
}

/// The answer to an inbound call.
#[derive(Debug)]
pub(crate) enum ReplyCommand {
    /// An RPC reply.
    Reply(OutgoingReply),
    /// RDMA_ERROR with ERR_CHUNK: the call breaks direct data placement (RFC 8166 §4.5.2, §6.1).
    ChunkError,
}

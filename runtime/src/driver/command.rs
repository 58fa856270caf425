//! The commands that a connection's users send to its driver.

use std::collections::VecDeque;

use crate::engine::{CallFailure, IncomingReply, OutgoingCall, OutgoingReply, ReplyToken};

/// Maximum number of commands, and of inputs, that are handled before the resulting work is posted. A larger batch
/// would leave the peer idle for longer, and a smaller batch would take more system calls.
pub(super) const BATCH: usize = 32;

pub(crate) type CallResult = Result<IncomingReply, CallFailure>;

/// The number of a result slot. A caller holds a slot from the start of its call until it has received the result. If
/// the caller is dropped, the slot stays in use until the call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultSlot(pub(crate) u32);

/// A command to the driver. Commands are executed in the order in which they were queued, so a cancellation never
/// affects a later call in the same slot.
#[derive(Debug)]
pub(crate) enum DriverCommand {
    /// Starts the [next call](CommandQueue::next_call) of the queue. Its result goes to `slot`.
    Start { slot: ResultSlot },
    /// Cancels the call in `slot`, because its caller was dropped.
    Cancel { slot: ResultSlot },
    /// Sends the [next reply](CommandQueue::next_reply) of the queue, which comes from a handler that has finished.
    Reply { token: ReplyToken },
    /// Reports that the last channel that held the connection open was dropped. The command counts as activity, and
    /// does nothing else.
    LetGo,
    /// Finishes the calls in flight, and then disconnects. Meanwhile, new calls of the peer are not executed, except
    /// for probes and for calls that a call in flight may depend on.
    Drain,
    /// Disconnects now.
    Disconnect,
}

/// Queued commands, in the order in which they were queued.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    commands: VecDeque<DriverCommand>,
    // Calls and replies are large. Apart from the commands, each is moved only once, and a command is small.
    /// The calls of the `Start` commands, in the order of these commands.
    calls: VecDeque<OutgoingCall>,
    /// The replies of the `Reply` commands, in the order of these commands.
    replies: VecDeque<ReplyCommand>,
}

impl CommandQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Queues the start of a call.
    #[inline]
    pub(super) fn push_start(&mut self, slot: ResultSlot, call: OutgoingCall) {
        self.calls.push_back(call);
        self.commands.push_back(DriverCommand::Start { slot });
    }

    /// Queues the reply to a call of the peer.
    pub(super) fn push_reply(&mut self, token: ReplyToken, reply: ReplyCommand) {
        self.replies.push_back(reply);
        self.commands.push_back(DriverCommand::Reply { token });
    }

    /// Queues a command without a call or reply.
    pub(super) fn push(&mut self, command: DriverCommand) {
        self.commands.push_back(command);
    }

    /// Removes and returns the first command.
    pub(crate) fn pop(&mut self) -> Option<DriverCommand> {
        self.commands.pop_front()
    }

    /// Removes and returns the call of the `Start` command that was popped last.
    #[inline]
    pub(crate) fn next_call(&mut self) -> Option<OutgoingCall> {
        self.calls.pop_front()
    }

    /// Removes and returns the reply of the `Reply` command that was popped last.
    pub(crate) fn next_reply(&mut self) -> Option<ReplyCommand> {
        self.replies.pop_front()
    }

    /// Moves all commands of `later`, with their calls and replies, to the end of this queue.
    pub(super) fn append(&mut self, later: &mut Self) {
        self.commands.append(&mut later.commands);
        self.calls.append(&mut later.calls);
        self.replies.append(&mut later.replies);
    }

    /// Returns the slots of the calls that have not been started.
    pub(super) fn unstarted(&self) -> impl Iterator<Item = ResultSlot> + '_ {
        self.commands.iter().filter_map(|command| match command {
            DriverCommand::Start { slot } => Some(*slot),
            _ => None,
        })
    }
}

/// The reply to an inbound call.
#[derive(Debug)]
pub(crate) enum ReplyCommand {
    /// An RPC reply.
    Reply(OutgoingReply),
    /// RDMA_ERROR with ERR_CHUNK: the call violates the rules of direct data placement (RFC 8166 §4.5.2, §6.1).
    ChunkError,
    /// No RPC reply (RFC 2203 §5.3.3.1, §5.3.3.4). Over RDMA, a transport error releases the call's resources
    /// (RFC 8166 §4.5.4; RPC-over-RDMA v2 §7.4.1).
    Discard,
}

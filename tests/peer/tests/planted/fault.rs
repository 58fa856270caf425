//! The faults that tests plant in implementations.

use bytes::Bytes;

use super::message::Seen;

/// The effect of a fault on the messages to which it applies, on RDMA Writes, or on the set-up of connections.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    /// A received message is lost.
    Ignore,
    /// A received message is handled as if it were another one. The function changes it into the other message.
    Accept(fn(&mut Vec<u8>)),
    /// Like [`Accept`](Self::Accept), but the function also gets what is known of the message, such as the message that
    /// the implementation sent with this XID before.
    AcceptFor(fn(&Seen, &mut Vec<u8>)),
    /// After a received message, all messages that the implementation sends are lost.
    Mute,
    /// A sent message is sent twice.
    Double,
    /// A received message is not handled. The function returns the answer to it.
    Answer(fn(&Seen) -> Vec<u8>),
    /// A received message ends the connection.
    Disconnect,
    /// The answer to a received message is changed. It is lost if nothing remains.
    Reply(fn(&Seen, &mut Vec<u8>)),
    /// A sent message is changed. It is lost if nothing remains.
    Send(fn(&mut Vec<u8>)),
    /// The answer to a received message invalidates a handle.
    Invalidate(fn(&Seen) -> u32),
    /// The data of RDMA Writes is changed.
    Write(fn(Bytes) -> Bytes),
    /// Connections are refused if the function returns `true` for their private data.
    Refuse(fn(&[u8]) -> bool),
    /// The implementation sends other private data.
    PrivateData(fn(&mut Vec<u8>)),
}

/// A fault of an implementation.
pub(crate) struct Fault {
    /// A description of the fault.
    pub(crate) what: &'static str,
    /// The names of the cases that find the fault.
    pub(crate) found_by: &'static [&'static str],
    /// The function that returns `true` for messages to which the fault applies.
    pub(crate) when: fn(&Seen) -> bool,
    pub(crate) effect: Effect,
    /// `true` if other cases may find consequences of the fault.
    pub(crate) is_broad: bool,
    /// The size in bytes of 1024 Receives, which replace the usual ones. `None` for the usual size and number.
    pub(crate) receive_size: Option<usize>,
}

/// Creates a fault that only the cases of `found_by` find.
pub(crate) const fn fault(
    what: &'static str,
    found_by: &'static [&'static str],
    when: fn(&Seen) -> bool,
    effect: Effect,
) -> Fault {
    Fault { what, found_by, when, effect, is_broad: false, receive_size: None }
}

/// Replaces the word `index` of a message.
pub(crate) fn set(message: &mut [u8], index: usize, word: u32) {
    message[index * 4..index * 4 + 4].copy_from_slice(&word.to_be_bytes());
}

/// Encodes words in big-endian order.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

impl Fault {
    /// Marks a fault whose consequences other cases may find.
    pub(crate) const fn broad(self) -> Self {
        Self { is_broad: true, ..self }
    }

    /// Makes the implementation post 1024 Receives of `size` bytes.
    pub(crate) const fn with_receives(self, size: usize) -> Self {
        Self { receive_size: Some(size), ..self }
    }
}

//! Counters of the message formats of calls and replies.

use std::ops::AddAssign;

use crate::engine::{FormatChoice, FormatReason, MessageFormat};

/// Numbers of messages by format (RFC 8166 §3.5, RPC-over-RDMA v2 §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FormatCounts {
    /// Messages sent whole in one Send. Version 2: Simple Format.
    pub short: u64,
    /// Messages sent in one Send, with eligible items in chunks. Version 2: Simple Format with chunks.
    pub chunked: u64,
    /// Messages continued in several Sends. Version 2 only.
    pub continued: u64,
    /// Messages whose payload stream was sent in a chunk. Version 2: Special Format.
    pub long: u64,
    /// Messages sent in a record of a byte stream (RFC 5531 §11).
    pub record: u64,
    /// Messages conveyed by an extension.
    pub extension: u64,
    /// Numbers of messages by reason, in the order of [`FormatReason::ALL`].
    reasons: [u64; FormatReason::ALL.len()],
}

impl FormatCounts {
    /// Returns the number of messages whose format was chosen for `reason`.
    #[must_use]
    pub fn because(&self, reason: FormatReason) -> u64 {
        self.reasons.get(reason as usize).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, FormatChoice { format, reason }: FormatChoice) {
        if let Some(count) = self.reasons.get_mut(reason as usize) {
            *count += 1;
        }
        let count = match format {
            MessageFormat::Short => &mut self.short,
            MessageFormat::Chunked => &mut self.chunked,
            MessageFormat::Continued => &mut self.continued,
            MessageFormat::Long => &mut self.long,
            MessageFormat::Record => &mut self.record,
            MessageFormat::Extension => &mut self.extension,
        };
        *count += 1;
    }
}

impl AddAssign for FormatCounts {
    /// Adds the counts of another connection. A sum saturates at the maximum of its type.
    fn add_assign(&mut self, other: Self) {
        let Self { short, chunked, continued, long, record, extension, reasons } = other;
        let sums = [
            (&mut self.short, short),
            (&mut self.chunked, chunked),
            (&mut self.continued, continued),
            (&mut self.long, long),
            (&mut self.record, record),
            (&mut self.extension, extension),
        ];
        for (sum, count) in sums.into_iter().chain(self.reasons.iter_mut().zip(reasons)) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// Counts, by message format, of the calls that have a reply and of these replies, on one or more connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CallFormats {
    /// Counts of the outbound calls that have a reply, by the format of the call.
    pub calls: FormatCounts,
    /// Counts of the replies to these calls, by the format of the reply.
    pub replies: FormatCounts,
}

impl AddAssign for CallFormats {
    /// Adds the counts of another connection.
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.replies += other.replies;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_place() {
        for (n, reason) in FormatReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, n);
            let mut counts = FormatCounts::default();
            counts.count(FormatChoice { format: MessageFormat::Long, reason });
            assert_eq!((counts.long, counts.because(reason)), (1, 1));
        }
    }
}

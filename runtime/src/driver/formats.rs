//! How calls and their replies were conveyed, counted.

use crate::engine::{FormatChoice, FormatReason, MessageFormat};

/// How many messages were conveyed in which way (RFC 8166 §3.5, RPC-over-RDMA v2 §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FormatCounts {
    /// Whole in one Send. Version 2: Simple.
    pub short: u64,
    /// In one Send, eligible items in chunks. Version 2: Simple, with chunks.
    pub chunked: u64,
    /// In several Sends. Version 2 only.
    pub continued: u64,
    /// The payload stream in a chunk. Version 2: Special.
    pub long: u64,
    /// In a record of a byte stream.
    pub record: u64,
    /// In messages of extensions'.
    pub extension: u64,
    /// In the order of [`FormatReason::ALL`].
    reasons: [u64; FormatReason::ALL.len()],
}

impl FormatCounts {
    /// How many were conveyed as they were for this reason.
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

/// How the calls of a connection that were answered, and their replies, were conveyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CallFormats {
    /// This end's calls.
    pub calls: FormatCounts,
    /// The replies to them.
    pub replies: FormatCounts,
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

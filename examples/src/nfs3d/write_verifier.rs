//! The write verifier (RFC 1813 §3.3.7, §4.11): by it clients learn that data which was not committed may be lost.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use rpcrdma_specs::nfs3::Writeverf3;

/// Differs from that of every other run of the server, and changes when data has been lost meanwhile.
#[derive(Debug)]
pub(super) struct WriteVerifier(AtomicU64);

impl WriteVerifier {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no random octets.
    pub(super) fn new() -> io::Result<Self> {
        let mut octets = [0; 8];
        getrandom::fill(&mut octets)?;
        Ok(Self(AtomicU64::new(u64::from_ne_bytes(octets))))
    }

    /// As it goes into a reply. To be taken before the data is written: what is lost later shows in a later reply.
    #[must_use]
    pub(super) fn get(&self) -> Writeverf3 {
        Writeverf3(self.0.load(Ordering::Acquire).to_be_bytes())
    }

    /// Data that clients believe written could not be synced. The system reports that once, and to one caller; all who
    /// have data uncommitted have to send it again.
    pub(super) fn data_lost(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn it_changes_with_runs_and_losses_only() {
        let verifier = WriteVerifier::new().unwrap();
        let first = verifier.get();
        assert_eq!(verifier.get(), first);
        assert_ne!(WriteVerifier::new().unwrap().get(), first);
        verifier.data_lost();
        assert_ne!(verifier.get(), first);
    }
}

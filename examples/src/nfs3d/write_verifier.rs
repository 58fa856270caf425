//! The write verifier (RFC 1813 §3.3.7, §4.12), by which clients detect that uncommitted data may be lost.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use rpcrdma_specs::nfs3::Writeverf3;

/// A number that differs in each run of the server, and changes when data is lost.
#[derive(Debug)]
pub(super) struct WriteVerifier(AtomicU64);

impl WriteVerifier {
    /// Creates a random verifier.
    ///
    /// # Errors
    /// Fails if the system provides no random bytes.
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        Ok(Self(AtomicU64::new(u64::from_ne_bytes(bytes))))
    }

    /// Returns the verifier for a reply. For WRITE, call this before writing the data, so that a later loss changes the
    /// verifier. For COMMIT, call this after syncing.
    #[must_use]
    pub(super) fn get(&self) -> Writeverf3 {
        Writeverf3(self.0.load(Ordering::Acquire).to_be_bytes())
    }

    /// Changes the verifier after a sync has failed. The system reports a lost write only once and to one caller, so
    /// all clients must send their uncommitted data again.
    pub(super) fn data_lost(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_verifier_changes_with_runs_and_losses_only() {
        let verifier = WriteVerifier::new().unwrap();
        let first = verifier.get();
        assert_eq!(verifier.get(), first);
        assert_ne!(WriteVerifier::new().unwrap().get(), first);
        verifier.data_lost();
        assert_ne!(verifier.get(), first);
    }
}

//! The record of a service: its calls, the verified effects, the errors by kind, and the faults.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rpcrdma::error::{CallError, CallFailure, RpcError};
use rpcrdma_examples::command::chain;
use rpcrdma_trials::without_numbers;

/// Maximum number of faults that are kept, one of each kind.
const MAX_FAULTS: usize = 20;
/// Maximum number of kinds of errors that are counted separately.
const MAX_KINDS: usize = 200;

/// Reason why a step of a worker did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A failed call. Disturbances can cause such failures.
    Failed(String),
    /// Wrong data, a lost effect, or a violation of the protocol. No disturbance explains it.
    Wrong(String),
}

impl From<&CallError> for Trouble {
    fn from(error: &CallError) -> Self {
        let text = chain(error);
        match error {
            // A reply of the server says that it cannot execute the call now.
            CallError::Rpc { source: RpcError::SystemError | RpcError::Unavailable, .. } => Self::Failed(text),
            CallError::Transport { failure: CallFailure::BadReply(_), .. } => Self::Wrong(text),
            CallError::Transport { .. } | CallError::Connect { .. } => Self::Failed(text),
            _ => Self::Wrong(text),
        }
    }
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        Self::from(&error)
    }
}

/// The counts and faults of a [`Ledger`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// Number of calls, or of runs of nfscp.
    pub(crate) calls: u64,
    /// Number of bytes that were read and compared.
    pub(crate) bytes: u64,
    /// Number of effects that a server has acknowledged.
    pub(crate) acknowledged: u64,
    /// Number of times that an effect was looked for and found.
    pub(crate) verified: u64,
    /// Number of errors by text. Each number in a text is replaced with `#`.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Descriptions of faults.
    pub(crate) faults: Vec<String>,
}

/// The record of a service, which its workers share.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Totals>);

impl Ledger {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn called(&self) {
        self.totals().calls += 1;
    }

    pub(crate) fn compared(&self, bytes: usize) {
        self.totals().bytes += bytes as u64;
    }

    pub(crate) fn acknowledged(&self) {
        self.totals().acknowledged += 1;
    }

    pub(crate) fn verified(&self) {
        self.totals().verified += 1;
    }

    /// Records why a step failed: counts an error by its kind, or records a fault.
    pub(crate) fn failed(&self, trouble: &Trouble) {
        match trouble {
            Trouble::Wrong(fault) => self.fault(fault.clone()),
            Trouble::Failed(error) => {
                let (kind, mut totals) = (without_numbers(error), self.totals());
                let is_counted = totals.errors.len() < MAX_KINDS || totals.errors.contains_key(&kind);
                let kind = if is_counted { kind } else { "other errors".to_owned() };
                *totals.errors.entry(kind).or_default() += 1;
            }
        }
    }

    /// Records a fault, unless a fault of its kind or [`MAX_FAULTS`] faults are recorded already.
    pub(crate) fn fault(&self, fault: String) {
        let mut totals = self.totals();
        let is_known = totals.faults.iter().any(|known| without_numbers(known) == without_numbers(&fault));
        if !is_known && totals.faults.len() < MAX_FAULTS {
            totals.faults.push(fault);
        }
    }

    /// Returns the counts and faults so far.
    pub(crate) fn read(&self) -> Totals {
        self.totals().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind_and_faults_kept_once() {
        let ledger = Ledger::default();
        for port in [1, 22] {
            ledger.failed(&Trouble::Failed(format!("port {port} is closed")));
            ledger.failed(&Trouble::Wrong(format!("byte {port} is wrong")));
        }
        let totals = ledger.read();
        assert_eq!(totals.errors, BTreeMap::from([("port # is closed".to_owned(), 2)]));
        assert_eq!(totals.faults, ["byte 1 is wrong"]);
    }
}

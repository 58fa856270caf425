//! The search for a smaller scenario that still fails.

use std::ops::Range;

use crate::{
    run::{RunReport, run},
    scenario::Scenario,
};

/// Maximum number of scenarios to try.
const MAX_TRIES: u32 = 2_000;

/// Removes clients, faults and calls from `scenario` as long as the rest still fails, in at most 2,000 tries. Returns
/// the remaining scenario with its report. Returns `None` if `scenario` does not fail.
///
/// # Errors
/// Returns an error if the simulation itself fails.
pub fn minimize(scenario: &Scenario) -> anyhow::Result<Option<(Scenario, RunReport)>> {
    let mut best = scenario.clone();
    let mut report = run(&best, true)?;
    if report.wrong.is_empty() {
        return Ok(None);
    }
    let mut tries = 0;
    let mut has_shrunk = true;
    while has_shrunk {
        has_shrunk = false;
        for part in parts(&best) {
            // Later parts are those of a scenario that has not shrunk yet. What is gone in the meantime is skipped.
            let Some(candidate) = part.remove_from(&best) else { continue };
            tries += 1;
            if tries > MAX_TRIES {
                return Ok(Some((best, report)));
            }
            let tried = run(&candidate, true)?;
            if !tried.wrong.is_empty() {
                (best, report, has_shrunk) = (candidate, tried, true);
                break;
            }
        }
    }
    Ok(Some((best, report)))
}

/// A part of a scenario that can be removed.
enum Part {
    Clients(Range<usize>),
    Faults(Range<usize>),
    /// Calls of the client with this index.
    Calls(usize, Range<usize>),
}

/// Returns the parts of a list of `len` items that may be removed: all, halves, quarters and so on, down to each item.
fn ranges(len: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut size = len;
    while size > 0 {
        ranges.extend((0..len).step_by(size).map(|start| start..len.min(start + size)));
        size /= 2;
    }
    ranges
}

/// Returns the parts that can be removed: of the clients, of the faults and of each client's calls, in this order. The
/// largest parts of each come first.
fn parts(scenario: &Scenario) -> Vec<Part> {
    let mut parts = Vec::new();
    parts.extend(ranges(scenario.clients.len()).into_iter().map(Part::Clients));
    parts.extend(ranges(scenario.faults.len()).into_iter().map(Part::Faults));
    for (index, client) in scenario.clients.iter().enumerate() {
        parts.extend(ranges(client.operations.len()).into_iter().map(|range| Part::Calls(index, range)));
    }
    parts
}

impl Part {
    fn remove_from(&self, scenario: &Scenario) -> Option<Scenario> {
        let mut smaller = scenario.clone();
        match self {
            Self::Clients(range) if range.len() < scenario.clients.len() => drop(smaller.clients.drain(range.clone())),
            Self::Clients(_) => return None,
            Self::Faults(range) => drop(smaller.faults.drain(range.clone())),
            Self::Calls(client, range) => drop(smaller.clients[*client].operations.drain(range.clone())),
        }
        Some(smaller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_each_item() {
        assert!(ranges(0).is_empty());
        assert_eq!(ranges(3), [0..3, 0..1, 1..2, 2..3]);
        assert_eq!(ranges(5), [0..5, 0..2, 2..4, 4..5, 0..1, 1..2, 2..3, 3..4, 4..5]);
    }

    /// Removing parts one after the other leaves one client, and neither faults nor calls.
    #[test]
    fn parts_leave_one_client() {
        let mut scenario = Scenario::of(3);
        while let Some(smaller) = parts(&scenario).iter().find_map(|part| part.remove_from(&scenario)) {
            assert_ne!(smaller, scenario);
            scenario = smaller;
        }
        assert_eq!((scenario.clients.len(), scenario.faults.len(), scenario.clients[0].operations.len()), (1, 0, 0));
    }
}

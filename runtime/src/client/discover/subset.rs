//! The choice of the endpoints to open.

use std::cmp::Reverse;

/// The facts about a listed server that decide the choice.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    pub(super) priority: u16,
    pub(super) is_open: bool,
    /// `true` if the last attempt to connect failed or takes long, or if the server is silent or not serving.
    pub(super) has_failed: bool,
    /// Sequence number of the last time that the endpoint was closed after a failure. 0 if it never was.
    pub(super) parked: u64,
}

/// The endpoints that should be open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subset {
    /// Indexes of servers.
    pub(super) chosen: Vec<usize>,
    /// The index of the failed endpoint that is closed at the end of its turn, to make room for another failed
    /// endpoint. `None` if no other failed endpoint is waiting.
    pub(super) rotated: Option<usize>,
}

/// Chooses up to `limit` of `servers`, which are sorted by priority and rank.
///
/// Healthy servers are chosen from the first priority that has any. Failed servers of this priority and of the
/// priorities before it are tried again, so that the client returns to them. They get a quarter of the places, but at
/// least one place, and more if the healthy servers need fewer. They take turns if there are more of them than places.
pub(super) fn choose(servers: &[Standing], limit: usize) -> Subset {
    let (mut healthy, mut failed) = (Vec::new(), Vec::new());
    let mut start = 0;
    for tier in servers.chunk_by(|a, b| a.priority == b.priority) {
        for (index, server) in (start..).zip(tier) {
            if server.has_failed { failed.push(index) } else { healthy.push(index) }
        }
        start += tier.len();
        if !healthy.is_empty() {
            break;
        }
    }
    let room = (limit / 4).max(1).max(limit.saturating_sub(healthy.len()));
    failed.sort_by_key(|&index| (Reverse(servers[index].is_open), servers[index].parked));
    let tried_again = failed.len().min(room);
    let is_waiting = failed.len() > tried_again;
    failed.truncate(tried_again);
    healthy.truncate(limit.saturating_sub(tried_again));
    let rotated = failed.iter().copied().filter(|_| is_waiting).min_by_key(|&index| servers[index].parked);
    healthy.extend(failed);
    Subset { chosen: healthy, rotated }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(priorities: &[u16]) -> Vec<Standing> {
        priorities.iter().map(|&priority| Standing { priority, ..Standing::default() }).collect()
    }

    fn fail(servers: &mut [Standing], indexes: impl IntoIterator<Item = usize>) {
        indexes.into_iter().for_each(|index| servers[index].has_failed = true);
    }

    #[test]
    fn only_the_first_priority_that_works() {
        let mut servers = servers(&[1, 1, 5, 5, 9]);
        assert_eq!(choose(&servers, 8).chosen, [0, 1]);
        fail(&mut servers, [0]);
        assert_eq!(choose(&servers, 8).chosen, [1, 0]);
        fail(&mut servers, [1]);
        // The failed ones are tried again.
        assert_eq!(choose(&servers, 8).chosen, [2, 3, 0, 1]);
        fail(&mut servers, [2, 3]);
        assert_eq!(choose(&servers, 8).chosen, [4, 0, 1, 2, 3]);
        fail(&mut servers, [4]);
        assert_eq!(choose(&servers, 8).chosen, [0, 1, 2, 3, 4]);
        servers[1].has_failed = false;
        assert_eq!(choose(&servers, 8).chosen, [1, 0]);
        assert_eq!(choose(&[], 8), Subset::default());
    }

    /// All places are used. A quarter of the places, and at least one place, is for failed servers. The other places
    /// are for healthy servers.
    #[test]
    fn the_limit_holds() {
        for limit in [2, 3, 8, 32] {
            let mut servers = servers(&[0; 100]);
            for failed in 0..=100_usize {
                fail(&mut servers, failed.checked_sub(1));
                let chosen = choose(&servers, limit).chosen;
                assert_eq!(chosen.len(), limit);
                let healthy = chosen.iter().filter(|&&index| !servers[index].has_failed).count();
                let tried = (limit / 4).max(1);
                assert!(healthy >= (100 - failed).min(limit - tried), "{limit}, {failed}: {healthy}");
                assert!(limit - healthy >= failed.min(tried), "{limit}, {failed}: {healthy}");
            }
        }
    }

    /// If more servers have failed than can be tried at a time, each of them gets a turn.
    #[test]
    fn failed_servers_take_turns() {
        let mut servers = servers(&[0; 40]);
        fail(&mut servers, 0..30);
        let mut tried = std::collections::BTreeSet::new();
        for turn in 1..=60 {
            let Subset { chosen, rotated } = choose(&servers, 12);
            assert_eq!(chosen.iter().filter(|&&index| servers[index].has_failed).count(), 3);
            for (index, server) in servers.iter_mut().enumerate() {
                server.is_open = chosen.contains(&index);
            }
            tried.extend(chosen);
            let parked = &mut servers[rotated.unwrap()];
            assert!(parked.has_failed && parked.is_open);
            (parked.parked, parked.is_open) = (turn, false);
        }
        assert_eq!(tried.range(..30).count(), 30);
        fail(&mut servers, 30..40);
        servers.truncate(12);
        assert_eq!(choose(&servers, 12).rotated, None, "none is waiting");
    }
}

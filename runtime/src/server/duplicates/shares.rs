//! The order of recorded replies, and the shares of clients in the room for them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tokio::time::Instant;

/// The divisor that gives the part of a bound to free at once when the bound is exceeded: one eighth. Clients are thus
/// rarely compared.
const SLACK: u64 = 8;

/// A client. The room is divided among groups, and the share of a group among its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientId {
    /// Keyed hash of the principal, or of the address of a client without a principal.
    pub(super) group: u64,
    /// Keyed hash of the client's identity within the group, as `RequestKey::client` returns it.
    pub(super) client: u64,
}

/// The recorded replies, by client. `K` is the key of a reply in the cache.
pub(super) struct ReplyShares<K> {
    /// All replies, the oldest first. An evicted reply stays here until it is the oldest reply, or until there are many
    /// evicted replies.
    order: VecDeque<OrderedReply>,
    groups: FxHashMap<u64, ClientGroup<K>>,
    total: Room,
    next_number: u64,
}

struct OrderedReply {
    /// The time at which the reply expires. `None` if the reply never expires, because the time is too far in the
    /// future for an [`Instant`].
    expires: Option<Instant>,
    client: ClientId,
    number: u64,
}

/// The room that replies take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Room {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// The dimension of a [`Room`] to which a bound applies: entries or bytes.
type Measure = fn(Room) -> u64;

impl Room {
    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: u64) {
        self.entries -= 1;
        self.bytes -= bytes;
    }
}

struct ClientGroup<K> {
    clients: FxHashMap<u64, ClientReplies<K>>,
    room: Room,
}

struct ClientReplies<K> {
    /// The replies in ascending order of their numbers.
    replies: VecDeque<ClientReply<K>>,
    room: Room,
}

struct ClientReply<K> {
    number: u64,
    bytes: u64,
    key: K,
}

impl<K> Default for ReplyShares<K> {
    fn default() -> Self {
        Self { order: VecDeque::new(), groups: FxHashMap::default(), total: Room::default(), next_number: 0 }
    }
}

impl<K> ReplyShares<K> {
    /// Returns the room that all replies take.
    pub(super) fn room(&self) -> Room {
        self.total
    }

    /// Adds the newest reply, which takes `bytes` of memory. `expires` is `None` if the reply never expires.
    pub(super) fn push(&mut self, client: ClientId, key: K, bytes: u64, expires: Option<Instant>) {
        let number = self.next_number;
        self.next_number += 1;
        let group = self
            .groups
            .entry(client.group)
            .or_insert_with(|| ClientGroup { clients: FxHashMap::default(), room: Room::default() });
        let of_client = group
            .clients
            .entry(client.client)
            .or_insert_with(|| ClientReplies { replies: VecDeque::new(), room: Room::default() });
        of_client.replies.push_back(ClientReply { number, bytes, key });
        for room in [&mut of_client.room, &mut group.room, &mut self.total] {
            room.add(bytes);
        }
        if self.order.len() as u64 > 2 * self.total.entries + 64 {
            let groups = &self.groups;
            self.order.retain(|reply| is_live(groups, reply));
        }
        self.order.push_back(OrderedReply { expires, client, number });
    }

    /// Removes the oldest reply if it expires at `now` or before. Returns its key.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<K> {
        loop {
            let oldest = self.order.front()?;
            let is_live = is_live(&self.groups, oldest);
            if is_live && oldest.expires.is_none_or(|expires| expires > now) {
                return None;
            }
            let client = oldest.client;
            self.order.pop_front();
            if is_live {
                return self.pop_oldest(client);
            }
        }
    }

    /// If a bound is exceeded, removes replies until an eighth of it is free. Returns their keys. In the groups with
    /// the most replies, or the most bytes of replies, the clients with the most lose their oldest replies.
    pub(super) fn evict(&mut self, max: Room) -> Vec<K> {
        let mut evicted = Vec::new();
        let measures: [(Measure, u64); 2] = [(|room| room.entries, max.entries), (|room| room.bytes, max.bytes)];
        for (measure, bound) in measures {
            if measure(self.total) > bound {
                self.shrink(measure, bound - bound / SLACK, &mut evicted);
            }
        }
        evicted
    }

    fn shrink(&mut self, measure: Measure, target: u64, evicted: &mut Vec<K>) {
        let share = fair_share(self.groups.values().map(|group| measure(group.room)).collect(), target);
        let mut over = Vec::new();
        for (&id, group) in self.groups.iter().filter(|(_, group)| measure(group.room) > share) {
            let client_share = fair_share(group.clients.values().map(|client| measure(client.room)).collect(), share);
            let mut of_group = group.room;
            for (&client, replies) in &group.clients {
                let mut of_client = replies.room;
                for reply in &replies.replies {
                    // Where shares are smaller than one reply, some clients keep theirs.
                    if measure(of_client) <= client_share || measure(of_group) <= share {
                        break;
                    }
                    of_client.remove(reply.bytes);
                    of_group.remove(reply.bytes);
                    over.push(ClientId { group: id, client });
                }
            }
        }
        evicted.extend(over.into_iter().filter_map(|client| self.pop_oldest(client)));
    }

    /// Removes the oldest reply of a client.
    fn pop_oldest(&mut self, client: ClientId) -> Option<K> {
        let group = self.groups.get_mut(&client.group)?;
        let of_client = group.clients.get_mut(&client.client)?;
        let ClientReply { bytes, key, .. } = of_client.replies.pop_front()?;
        for room in [&mut of_client.room, &mut group.room, &mut self.total] {
            room.remove(bytes);
        }
        if of_client.replies.is_empty() {
            group.clients.remove(&client.client);
        }
        if group.clients.is_empty() {
            self.groups.remove(&client.group);
        }
        Some(key)
    }
}

/// Returns `true` unless the reply was evicted. A client's oldest replies are evicted first.
fn is_live<K>(groups: &FxHashMap<u64, ClientGroup<K>>, reply: &OrderedReply) -> bool {
    let client = groups.get(&reply.client.group).and_then(|group| group.clients.get(&reply.client.client));
    client.and_then(|client| client.replies.front()).is_some_and(|oldest| oldest.number <= reply.number)
}

/// Returns the bound on each amount in `held` that reduces their sum to at most `target` (max-min fairness). Returns
/// [`u64::MAX`] if the sum is small enough.
fn fair_share(mut held: Vec<u64>, target: u64) -> u64 {
    held.sort_unstable();
    let mut rest = target;
    for (index, &amount) in held.iter().enumerate() {
        let share = rest / (held.len() - index) as u64;
        if amount > share {
            return share;
        }
        rest -= amount;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn client(group: u64, client: u64) -> ClientId {
        ClientId { group, client }
    }

    /// Returns the group, the client and the number of replies of each client.
    fn counts<K>(shares: &ReplyShares<K>) -> Vec<(u64, u64, u64)> {
        let clients = shares.groups.iter().flat_map(|(group, found)| {
            found.clients.iter().map(|(client, replies)| (*group, *client, replies.replies.len() as u64))
        });
        let mut counts: Vec<_> = clients.collect();
        counts.sort_unstable();
        counts
    }

    #[test]
    fn shares_are_max_min_fair() {
        for (held, target, share) in [
            (&[][..], 10, u64::MAX),
            (&[3, 3], 6, u64::MAX),
            (&[100], 10, 10),
            (&[100, 1], 10, 9),
            (&[100, 100, 1], 10, 4),
            (&[5, 5, 5, 5], 8, 2),
            (&[7, 7], 0, 0),
        ] {
            assert_eq!(fair_share(held.to_vec(), target), share, "{held:?}");
        }
    }

    /// A client that records many replies displaces only its own replies. The clients of one address displace only
    /// replies of that address.
    #[test]
    fn a_flood_displaces_its_own_replies() {
        let max = Room { entries: 80, bytes: u64::MAX };
        let mut shares = ReplyShares::default();
        let mut push = |client, key| {
            shares.push(client, key, 1, None);
            (shares.evict(max), shares.room().entries, counts(&shares))
        };
        for key in 0..10 {
            push(client(1, 1), key);
        }
        push(client(2, 1), 100);
        for key in 1000..2000 {
            let (evicted, entries, _) = push(client(2, 2), key);
            assert!(evicted.iter().all(|key| *key >= 1000) && entries <= 80);
        }
        // Many identities at one address share the room of that address.
        for identity in 3..1000 {
            let (evicted, entries, _) = push(client(2, identity), 3000);
            assert!(entries <= 80 && !evicted.iter().any(|key| *key < 10), "{evicted:?}");
        }
        let (.., counts) = push(client(1, 1), 10);
        assert_eq!(counts[0], (1, 1, 11));
    }

    /// Replies may reach a bound. If they exceed it, an eighth of the bound becomes free.
    #[test]
    fn an_eighth_is_made_free() {
        for (bytes, max) in [(1, Room { entries: 16, bytes: 1000 }), (5, Room { entries: 1000, bytes: 80 })] {
            let mut shares = ReplyShares::default();
            for key in 0..16 {
                shares.push(client(1, 1), key, bytes, None);
                assert_eq!(shares.evict(max), []);
            }
            shares.push(client(1, 1), 16, bytes, None);
            assert_eq!(shares.evict(max), [0, 1, 2]);
            assert_eq!(shares.room(), Room { entries: 14, bytes: 14 * bytes });
        }
    }

    /// Eviction takes from a client or group only the replies above its fair share, rounded down.
    #[test]
    fn as_few_replies_as_possible_are_evicted() {
        let evict = |held: &[(u64, u64, u64)], entries| {
            let mut shares = ReplyShares::default();
            for &(group, id, count) in held {
                (0..count).for_each(|key| shares.push(client(group, id), (group, id, key), 1, None));
            }
            let evicted = shares.evict(Room { entries, bytes: u64::MAX }).len() as u64;
            assert_eq!(evicted, held.iter().map(|(.., count)| count).sum::<u64>() - shares.room().entries);
            let mut left: Vec<_> = counts(&shares).into_iter().map(|(group, _, count)| (group, count)).collect();
            left.sort_unstable();
            left
        };
        // Shares of 4 for the clients would make 9. The last one loses only what exceeds 10.
        assert_eq!(evict(&[(1, 1, 10), (1, 2, 10), (1, 3, 1)], 11), [(1, 1), (1, 4), (1, 5)]);
        assert_eq!(evict(&[(1, 1, 10), (2, 1, 10), (3, 1, 1)], 11), [(1, 4), (2, 4), (3, 1)]);
        // A group within its share loses nothing, although its client has more than those of the other.
        assert_eq!(evict(&[(1, 1, 4), (2, 1, 4), (2, 2, 4), (2, 3, 4)], 11), [(1, 4), (2, 2), (2, 2), (2, 2)]);
        // A share of less than one reply for each of four clients: two of them keep theirs.
        assert_eq!(evict(&[(1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1)], 2), [(1, 1), (1, 1)]);
    }

    #[test]
    fn the_longest_replies_go_when_bytes_are_short() {
        let max = Room { entries: 1000, bytes: 8000 };
        let mut shares = ReplyShares::default();
        for key in 0..20 {
            shares.push(client(1, 1), key, 10, None);
        }
        for key in 100..200 {
            shares.push(client(2, 1), key, 1000, None);
            assert!(shares.evict(max).iter().all(|key| *key >= 100));
            assert!(shares.room().bytes <= 8000);
        }
        assert_eq!(counts(&shares)[0], (1, 1, 20));
    }

    /// Replies expire in the order in which they were recorded, whatever was evicted between them, and all room is
    /// returned.
    #[test]
    fn replies_expire_in_order() {
        let start = Instant::now();
        let at = |seconds| Some(start + Duration::from_secs(seconds));
        let mut shares = ReplyShares::default();
        for key in 0..1000_u64 {
            shares.push(client(key % 3, key % 7), key, key, at(key));
            shares.evict(Room { entries: 100, bytes: u64::MAX });
            assert!(shares.order.len() <= 2 * 101 + 65);
        }
        assert_eq!(shares.pop_expired(start), None, "the first replies were evicted");
        let mut expired: Vec<_> = std::iter::from_fn(|| shares.pop_expired(at(950).unwrap_or(start))).collect();
        assert!(expired.is_sorted() && expired.last() == Some(&950));
        expired.extend(std::iter::from_fn(|| shares.pop_expired(at(1000).unwrap_or(start))));
        assert!(expired.len() > 80 && expired.is_sorted());
        assert_eq!((shares.room(), shares.groups.len(), shares.order.len()), (Room::default(), 0, 0));
        shares.push(client(1, 1), 1, 1, None);
        assert_eq!(shares.pop_expired(start + Duration::from_secs(1 << 40)), None, "it never expires");
    }
}

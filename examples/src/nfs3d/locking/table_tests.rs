//! Tests of the lock table: a comparison with a model that tracks each byte, and tests of the limits, of refused
//! grants, and of clients that restart or stop waiting.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::{
    limits::LockLimits,
    owner::{Host, Owner},
    range::ByteRange,
    table::*,
};
use crate::nfs3d::handle::FileId;

const FILE: FileId = FileId { ino: 1, born: 2 };
/// Number of bytes in the model. The last one stands for all further bytes.
const BYTES: u64 = 8;

fn owner(number: u8) -> Arc<Owner> {
    let host = Host::new([192, 0, 2, number / 2].into(), b"host");
    Arc::new(Owner { host: Arc::new(host), svid: i32::from(number), oh: Box::default() })
}

fn request(number: u8, range: ByteRange, is_exclusive: bool) -> LockRequest {
    LockRequest { file: FILE, owner: owner(number), range, is_exclusive, state: 1 }
}

/// Locks by owner and byte: `true` if exclusive.
type Bytes = BTreeMap<(i32, u64), bool>;

#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    owner: u8,
    range: ByteRange,
    is_exclusive: bool,
}

impl Wanted {
    fn bytes(&self) -> impl Iterator<Item = u64> + use<> {
        self.range.first..=self.range.last.min(BYTES - 1)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.bytes().any(|byte| other.bytes().any(|other| byte == other))
    }
}

/// A model of the table that tracks the locks of each byte.
#[derive(Debug, Default)]
struct Model {
    bytes: Bytes,
    waiting: Vec<Wanted>,
    /// The unconfirmed grants, each with its number and the locks of the owner that it replaced.
    unconfirmed: Vec<(u64, Wanted, Bytes)>,
    grants: Vec<(u64, Wanted)>,
    next: u64,
}

impl Model {
    fn conflicts(&self, wanted: &Wanted) -> bool {
        wanted.bytes().any(|byte| {
            let others = self.bytes.iter().filter(|((owner, at), _)| *owner != i32::from(wanted.owner) && *at == byte);
            others.into_iter().any(|(_, is_exclusive)| *is_exclusive || wanted.is_exclusive)
        })
    }

    fn set(&mut self, wanted: &Wanted) {
        self.bytes.extend(wanted.bytes().map(|byte| ((i32::from(wanted.owner), byte), wanted.is_exclusive)));
    }

    fn clear(&mut self, wanted: &Wanted) {
        wanted.bytes().for_each(|byte| _ = self.bytes.remove(&(i32::from(wanted.owner), byte)));
    }

    fn known(&mut self, wanted: &Wanted) {
        self.unconfirmed.retain(|(_, other, _)| other.owner != wanted.owner || !other.overlaps(wanted));
    }

    fn lock(&mut self, wanted: &Wanted, wait: bool) -> LockOutcome {
        if !self.conflicts(wanted) {
            self.known(wanted);
            self.waiting.retain(|other| other != wanted);
            self.set(wanted);
            self.grant();
            return LockOutcome::Granted;
        }
        if !wait {
            return LockOutcome::Denied;
        }
        if !self.waiting.contains(wanted) {
            self.waiting.push(wanted.clone());
        }
        LockOutcome::Blocked
    }

    fn unlock(&mut self, wanted: &Wanted) {
        self.clear(wanted);
        self.known(wanted);
        self.waiting.retain(|other| other.owner != wanted.owner || other.range != wanted.range);
        self.grant();
    }

    fn cancel(&mut self, wanted: &Wanted) -> bool {
        if let Some(at) = self.waiting.iter().position(|other| other == wanted) {
            self.waiting.remove(at);
        } else if let Some(at) = self.unconfirmed.iter().position(|(_, other, _)| other == wanted) {
            self.take_back(at);
        } else {
            return false;
        }
        self.grant();
        true
    }

    fn take_back(&mut self, at: usize) {
        let (_, wanted, before) = self.unconfirmed.swap_remove(at);
        self.clear(&wanted);
        // A lock that conflicts with what others have since does not come back. Conflicts concern whole locks of the
        // table.
        for (is_exclusive, first, last) in runs(&before) {
            let range = ByteRange { first, last };
            let lock = Wanted { owner: wanted.owner, range, is_exclusive };
            if !self.conflicts(&lock) {
                self.set(&lock);
            }
        }
    }

    fn settle(&mut self, id: u64, is_confirmed: bool) {
        let Some(at) = self.unconfirmed.iter().position(|(other, ..)| *other == id) else { return };
        if is_confirmed {
            self.unconfirmed.swap_remove(at);
        } else {
            self.take_back(at);
        }
        self.grant();
    }

    fn release(&mut self, host: u8) {
        self.bytes.retain(|(owner, _), _| *owner / 2 != i32::from(host));
        self.waiting.retain(|other| other.owner / 2 != host);
        self.unconfirmed.retain(|(_, other, _)| other.owner / 2 != host);
        self.grant();
    }

    fn grant(&mut self) {
        while let Some(at) = self.waiting.iter().position(|wanted| !self.conflicts(wanted)) {
            let wanted = self.waiting.remove(at);
            let own = |byte: u64| (i32::from(wanted.owner), byte);
            let before = wanted.bytes().filter_map(|byte| Some((own(byte), *self.bytes.get(&own(byte))?))).collect();
            self.set(&wanted);
            self.unconfirmed.push((self.next, wanted.clone(), before));
            self.grants.push((self.next, wanted));
            self.next += 1;
        }
    }
}

/// Returns the runs of adjacent bytes with locks of one kind. Each run has the kind (`true` if exclusive), the first
/// byte and the last byte.
fn runs(bytes: &Bytes) -> Vec<(bool, u64, u64)> {
    let mut runs: Vec<(bool, u64, u64)> = Vec::new();
    for ((_, byte), is_exclusive) in bytes {
        match runs.last_mut() {
            Some((kind, _, last)) if kind == is_exclusive && *last + 1 == *byte => *last = *byte,
            _ => runs.push((*is_exclusive, *byte, *byte)),
        }
    }
    runs
}

#[derive(Debug, Clone)]
enum Step {
    Lock(Wanted, bool),
    Test(Wanted),
    Unlock(Wanted),
    Cancel(Wanted),
    Settle(usize, bool),
    Release(u8),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    // Few ranges, so that requests meet. Length 0 has no end.
    (0..6_u8, 0..BYTES, 0..4_u64, any::<bool>()).prop_map(|(owner, offset, len, is_exclusive)| Wanted {
        owner,
        range: ByteRange::new(offset, if offset + len >= BYTES { 0 } else { len }).unwrap(),
        is_exclusive,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (wanted(), any::<bool>()).prop_map(|(wanted, wait)| Step::Lock(wanted, wait)),
        1 => wanted().prop_map(Step::Test),
        4 => wanted().prop_map(Step::Unlock),
        2 => wanted().prop_map(Step::Cancel),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(grant, how)| Step::Settle(grant, how)),
        1 => (0..3_u8).prop_map(Step::Release),
    ]
}

/// Returns the locked bytes of the file, as the table lists them. No owner may hold two locks on a byte.
fn bytes(table: &LockTable) -> Bytes {
    let mut bytes = Bytes::new();
    for held in table.held(FILE) {
        for byte in held.range.first..=held.range.last.min(BYTES - 1) {
            assert_eq!(bytes.insert((held.owner.svid, byte), held.is_exclusive), None, "locked twice");
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_follows_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        let mut table = LockTable::new(LockLimits::default());
        let mut model = Model::default();
        let mut grants: Vec<Grant> = Vec::new();
        // Cancelling concerns a request that was made.
        let mut made: Vec<Wanted> = Vec::new();
        let of = |wanted: &Wanted| request(wanted.owner, wanted.range, wanted.is_exclusive);
        for step in steps {
            match step {
                Step::Lock(wanted, wait) => {
                    let data = wait.then(CallbackData::default);
                    prop_assert_eq!(table.lock(&of(&wanted), data), model.lock(&wanted, wait));
                    made.push(wanted);
                }
                Step::Test(wanted) => prop_assert_eq!(table.conflict(&of(&wanted)).is_some(), model.conflicts(&wanted)),
                Step::Unlock(wanted) => {
                    prop_assert!(table.unlock(FILE, &owner(wanted.owner), wanted.range));
                    model.unlock(&wanted);
                }
                Step::Cancel(wanted) => {
                    let wanted = made.iter().rev().find(|made| made.owner == wanted.owner).cloned().unwrap_or(wanted);
                    prop_assert_eq!(table.cancel(&of(&wanted)), model.cancel(&wanted));
                }
                Step::Settle(at, is_confirmed) if !grants.is_empty() => {
                    let grant = grants.swap_remove(at % grants.len());
                    if is_confirmed { table.confirm(&grant) } else { table.refuse(&grant) }
                    model.settle(grant.id, is_confirmed);
                }
                Step::Settle(..) => {}
                Step::Release(host) => {
                    table.release(&Host::new([192, 0, 2, host].into(), b"host"), None);
                    model.release(host);
                }
            }
            let granted = table.take_grants();
            let theirs: Vec<_> = granted.iter().map(|grant| (grant.id, grant.lock.owner.svid, grant.lock.range)).collect();
            let ours: Vec<_> =
                model.grants.drain(..).map(|(id, wanted)| (id, i32::from(wanted.owner), wanted.range)).collect();
            prop_assert_eq!(theirs, ours);
            grants.extend(granted);
            prop_assert_eq!(bytes(&table), model.bytes.clone());
            table.check();
        }
    }
}

fn range(offset: u64, len: u64) -> ByteRange {
    ByteRange::new(offset, len).unwrap()
}

fn limits() -> LockLimits {
    LockLimits { per_client: 80, waiting_per_client: 3, total: 100, clients: 3, names_per_client: 2 }
}

#[test]
fn a_greedy_client_reaches_its_limit_and_others_get_their_share() {
    let mut table = LockTable::new(limits());
    let mut take = |owner: u8, from: u64| {
        (from..)
            .take_while(|n| table.lock(&request(owner, range(n * 2, 1), true), None) == LockOutcome::Granted)
            .count()
    };
    // A request needs room for the two parts of a lock that it may divide.
    assert_eq!(take(0, 0), 79);
    assert_eq!(take(1, 1000), 0, "another process of the host");
    assert_eq!(take(2, 2000), LockLimits::SMALL - 1, "the total is exceeded by small clients only");
    assert_eq!(take(4, 3000), LockLimits::SMALL - 1);
    assert_eq!(take(6, 4000), 0, "the number of clients is limited");
    table.check();
    table.release(&owner(0).host, None);
    assert_eq!(table.lock(&request(6, range(9000, 1), true), None), LockOutcome::Granted);
    table.check();
}

#[test]
fn dividing_locks_is_limited() {
    let mut table = LockTable::new(limits());
    assert_eq!(table.lock(&request(0, range(0, 0), true), None), LockOutcome::Granted);
    let holes = (0..).take_while(|n| table.unlock(FILE, &owner(0), range(n * 2 + 1, 1))).count();
    assert_eq!(holes, 79);
    // An unlock that needs no room always succeeds.
    assert!(table.unlock(FILE, &owner(0), range(0, 0)));
    assert_eq!(table.totals(), (0, 0));
}

#[test]
fn blocked_requests_are_limited() {
    let mut table = LockTable::new(limits());
    assert_eq!(table.lock(&request(0, range(0, 0), true), None), LockOutcome::Granted);
    let wait =
        |table: &mut LockTable, n: u64| table.lock(&request(2, range(n, 1), true), Some(CallbackData::default()));
    for n in [0, 1, 2, 2] {
        assert_eq!(wait(&mut table, n), LockOutcome::Blocked);
    }
    assert_eq!(wait(&mut table, 3), LockOutcome::LimitReached);
    assert!(table.cancel(&request(2, range(1, 1), true)));
    assert_eq!(wait(&mut table, 3), LockOutcome::Blocked);
    table.check();
}

#[test]
fn a_client_stops_waiting_for_all_of_its_requests() {
    let mut table = LockTable::new(limits());
    let all = range(0, 0);
    assert_eq!(table.lock(&request(0, all, true), None), LockOutcome::Granted);
    for owner in [2, 3, 4] {
        assert_eq!(table.lock(&request(owner, all, true), Some(CallbackData::default())), LockOutcome::Blocked);
    }
    assert_eq!(table.stop_waiting(&owner(2).host), 2);
    table.check();
    table.unlock(FILE, &owner(0), all);
    assert_eq!(table.take_grants().iter().map(|grant| grant.lock.owner.svid).collect::<Vec<_>>(), [4]);
    table.check();
}

#[test]
fn long_identifiers_take_more_units() {
    let mut table = LockTable::new(limits());
    let owner = Arc::new(Owner { oh: vec![0; 1024].into(), ..(*owner(0)).clone() });
    let lock = |n: u64| LockRequest { owner: Arc::clone(&owner), ..request(0, range(n * 2, 1), true) };
    assert_eq!((0..).take_while(|n| table.lock(&lock(*n), None) == LockOutcome::Granted).count(), 7);
    table.check();
}

#[test]
fn a_refused_grant_restores_what_it_replaced() {
    let mut table = LockTable::new(LockLimits::default());
    let shared = |owner| request(owner, range(0, 4), false);
    assert_eq!([table.lock(&shared(0), None), table.lock(&shared(2), None)], [LockOutcome::Granted; 2]);
    let upgrade = request(0, range(0, 8), true);
    assert_eq!(table.lock(&upgrade, Some(CallbackData::default())), LockOutcome::Blocked);
    table.unlock(FILE, &owner(2), range(0, 4));
    let grants = table.take_grants();
    assert_eq!(grants.len(), 1);
    assert!(table.conflict(&shared(2)).is_some());
    table.refuse(&grants[0]);
    assert!(table.conflict(&shared(2)).is_none());
    assert!(table.conflict(&request(2, range(3, 1), true)).is_some(), "the shared lock is back");
    table.refuse(&grants[0]);
    assert_eq!(table.totals(), (1, 1));
    table.check();
}

#[test]
fn locks_of_the_present_state_survive_a_notification() {
    let mut table = LockTable::new(LockLimits::default());
    let at = |offset, state| LockRequest { state, ..request(0, range(offset, 1), true) };
    assert_eq!([table.lock(&at(0, 1), None), table.lock(&at(1, 3), None)], [LockOutcome::Granted; 2]);
    assert_eq!(table.release(&owner(0).host, Some(3)), 1);
    assert!(table.conflict(&request(2, range(0, 1), true)).is_none());
    assert!(table.conflict(&request(2, range(1, 1), true)).is_some());
    assert!(table.is_in_use(&owner(0).host) && !table.is_in_use(&owner(2).host));
    table.check();
}

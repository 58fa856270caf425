//! The values of one procedure on one thread, and the totals of all threads.
//!
//! The thread is the only writer, so it writes with plain loads and stores. Readers may see words that belong together
//! at different moments. Every counter only grows, so a reader that missed a value finds it the next time.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{
            AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// Number of bits of the mantissa that select a bucket. Each power of two has `1 << PRECISION` buckets.
const PRECISION: u32 = 5;

/// Number of low-order bits of a floating-point number that do not affect the choice of its bucket.
const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - PRECISION;

/// The bits of the floating-point number 1 above the lowest [`SHIFT`] bits.
const ONE: u64 = 1.0_f64.to_bits() >> SHIFT;

/// Number of buckets, for 64 powers of two.
const BUCKETS: usize = 64 << PRECISION;

/// Maximum number of pairs of sizes that have a counter of their own in a shard.
const PAIRS: usize = 16;

/// Maximum number of places that are searched for a pair of sizes.
const PROBES: usize = 4;

/// Adds to a counter that only this thread writes. This is one instruction without a lock.
macro_rules! add {
    ($counter:expr, $value:expr) => {{
        let counter = $counter;
        counter.store(counter.load(Relaxed).wrapping_add($value), Relaxed);
    }};
}

/// A histogram of natural numbers: one counter for each bucket, and the sum of the numbers.
///
/// The exponent and the first [`PRECISION`] bits of the mantissa of a number, converted to `f64`, select its bucket.
/// Each power of two is therefore divided into `1 << PRECISION` buckets of equal width.
struct Buckets {
    counts: [AtomicU32; BUCKETS],
    sum: AtomicU64,
}

impl Buckets {
    const fn new() -> Self {
        Self { counts: [const { AtomicU32::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }

    /// Adds a number. The number is converted as a signed integer, which takes one instruction. A negative number
    /// counts as its absolute value.
    #[inline(always)]
    fn add(&self, value: u64) {
        let bits = (value as i64 as f64).to_bits();
        // The mask keeps the exponent unique, and removes the sign.
        if let Some(count) = self.counts.get((bits >> SHIFT) as usize & (BUCKETS - 1)) {
            add!(count, 1);
        }
        add!(&self.sum, value);
    }
}

/// Returns the least and the greatest natural number of a bucket. The bucket with index 0 also has the number 0.
fn bounds(index: usize) -> (f64, f64) {
    let upper = ONE + ((index as u64).wrapping_sub(ONE) & (BUCKETS as u64 - 1));
    let bound = |upper: u64| f64::from_bits(upper << SHIFT).ceil();
    let (low, next) = (bound(upper), bound(upper + 1));
    (low, (next - 1.0).max(low))
}

/// The sum of the [`Buckets`] of all threads, at one moment.
struct Sums {
    counts: Box<[u32]>,
    sum: u64,
}

impl Sums {
    fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into(), sum: 0 }
    }

    fn add(&mut self, buckets: &Buckets) {
        for (sum, count) in self.counts.iter_mut().zip(&buckets.counts) {
            *sum = sum.wrapping_add(count.load(Relaxed));
        }
        self.sum = self.sum.wrapping_add(buckets.sum.load(Relaxed));
    }
}

/// The part of the [`Buckets`] of all threads that was already reported.
struct Reported {
    sums: Sums,
    /// The difference between the sum of the added numbers and the sum of the reported values.
    rest: f64,
}

impl Reported {
    fn new() -> Self {
        Self { sums: Sums::new(), rest: 0.0 }
    }

    /// Reports the numbers that were added since the last report, as a value and a count for each bucket. `now` has the
    /// current sums. Values are within their buckets, all at the same relative position. The position is chosen so that
    /// the values have the sum of the added numbers.
    fn take(&mut self, now: Sums, mut value: impl FnMut(f64, u32)) {
        let before = std::mem::replace(&mut self.sums, now);
        let now = &self.sums;
        // Differences are those of counters that wrap around.
        let mut rest = self.rest + now.sum.wrapping_sub(before.sum) as i64 as f64;
        let changed = now.counts.iter().zip(&before.counts).enumerate().filter(|(_, (now, before))| now != before);
        let changed: Vec<_> =
            changed.map(|(index, (now, before))| (bounds(index), now.wrapping_sub(*before))).collect();
        let total = |of: fn((f64, f64)) -> f64| {
            changed.iter().map(|&(bounds, count)| of(bounds) * f64::from(count)).sum::<f64>()
        };
        let (lowest, widths) = (total(|(low, _)| low), total(|(low, high)| high - low));
        // A number whose count or sum was read too early moves the position. The next values make up for that.
        let position = if widths > 0.0 { ((rest - lowest) / widths).clamp(0.0, 1.0) } else { 0.0 };
        for ((low, high), count) in changed {
            let at = low + position * (high - low);
            rest -= at * f64::from(count);
            value(at, count);
        }
        self.rest = rest;
    }
}

/// The identifier of a procedure in the process, for calls as a client or for calls as a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ProcedureId(pub(super) u32);

/// The sizes of a call and of its reply, in bytes. Size 0 stands for no message, because every message has a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sizes {
    pub(super) request: u64,
    pub(super) response: u64,
}

/// [`Sizes`] that other threads can read.
struct SharedSizes {
    request: AtomicU64,
    response: AtomicU64,
}

impl SharedSizes {
    const fn new() -> Self {
        Self { request: AtomicU64::new(0), response: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn is(&self, sizes: Sizes) -> bool {
        self.request.load(Relaxed) == sizes.request && self.response.load(Relaxed) == sizes.response
    }

    fn set(&self, sizes: Sizes) {
        self.response.store(sizes.response, Relaxed);
        // Who sees the request sees the response.
        self.request.store(sizes.request, Release);
    }

    /// Returns the sizes, or `None` if they have not been set.
    fn get(&self) -> Option<Sizes> {
        let request = self.request.load(Acquire);
        (request != 0).then(|| Sizes { request, response: self.response.load(Relaxed) })
    }
}

/// The values of one procedure on one thread.
pub(super) struct Shard {
    /// The identifier of the procedure.
    pub(super) id: ProcedureId,
    /// The name of the procedure. A thread finds the shard of a client procedure by the address and the length of this
    /// constant, not by its text. A name that is stored at two addresses therefore has two shards.
    pub(super) method: &'static str,
    /// The sizes of the last call that has a counter in `pairs`. `last_pair` is the index of the counter.
    last: SharedSizes,
    last_pair: AtomicUsize,
    durations: Buckets,
    /// Counters of calls, by the pair of sizes that `sizes` has at the same index.
    pairs: [AtomicU32; PAIRS],
    /// Pairs of the size of a call and the size of its reply. A pair never changes once it is set.
    sizes: [SharedSizes; PAIRS],
    /// Sizes of calls and replies that found no place in `pairs`.
    others: OnceLock<Box<[Buckets; 2]>>,
}

impl Shard {
    pub(super) const fn new(id: ProcedureId, method: &'static str) -> Self {
        Self {
            id,
            method,
            last: SharedSizes::new(),
            last_pair: AtomicUsize::new(0),
            durations: Buckets::new(),
            pairs: [const { AtomicU32::new(0) }; PAIRS],
            sizes: [const { SharedSizes::new() }; PAIRS],
            others: OnceLock::new(),
        }
    }

    /// Returns `true` if `sizes` are the sizes of the last call that has a counter, so that [`add`](Self::add) counts
    /// them.
    #[inline(always)]
    pub(super) fn is_last(&self, sizes: Sizes) -> bool {
        self.last.is(sizes)
    }

    /// Adds a call with the sizes of the last call that has a counter. `duration` is in ticks.
    #[inline(always)]
    pub(super) fn add(&self, duration: u64) {
        self.durations.add(duration);
        if let Some(count) = self.pairs.get(self.last_pair.load(Relaxed) % PAIRS) {
            add!(count, 1);
        }
    }

    /// Adds a call with any sizes.
    pub(super) fn add_any(&self, duration: u64, sizes: Sizes) {
        if self.is_last(sizes) || self.find(sizes) {
            return self.add(duration);
        }
        self.durations.add(duration);
        let [request, response] = &**self.others.get_or_init(|| Box::new([const { Buckets::new() }; 2]));
        request.add(sizes.request);
        response.add(sizes.response);
    }

    /// Records `sizes` as the sizes of the last call, and reserves a counter for them if they have none. Returns
    /// `false` if there is no counter for them.
    fn find(&self, sizes: Sizes) -> bool {
        if sizes.request == 0 {
            return false;
        }
        // Sizes are multiples of 4.
        let first = (sizes.request >> 2 ^ sizes.response).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for probe in 0..PROBES {
            let index = (first as usize + probe) % PAIRS;
            let Some(place) = self.sizes.get(index) else { continue };
            match place.get() {
                None => place.set(sizes),
                Some(found) if found == sizes => {}
                Some(_) => continue,
            }
            self.last_pair.store(index, Relaxed);
            self.last.set(sizes);
            return true;
        }
        false
    }
}

/// The values of a procedure that were already reported.
pub(super) struct ReportedValues {
    durations: Reported,
    pairs: BTreeMap<Sizes, u32>,
    others: Option<Box<[Reported; 2]>>,
}

/// New values of a procedure, each with its count.
#[derive(Default)]
pub(super) struct NewValues {
    /// Durations in ticks.
    pub(super) durations: Vec<(f64, u32)>,
    pub(super) requests: Vec<(f64, u32)>,
    pub(super) responses: Vec<(f64, u32)>,
}

impl ReportedValues {
    pub(super) fn new() -> Self {
        Self { durations: Reported::new(), pairs: BTreeMap::new(), others: None }
    }

    /// Returns the values that are new since the last call. `shards` are all shards of the procedure.
    pub(super) fn take(&mut self, shards: &[&Shard]) -> NewValues {
        let mut new = NewValues::default();
        let mut durations = Sums::new();
        let mut pairs = BTreeMap::<Sizes, u32>::new();
        for shard in shards {
            durations.add(&shard.durations);
            for (sizes, count) in shard.sizes.iter().zip(&shard.pairs) {
                if let Some(sizes) = sizes.get() {
                    let total = pairs.entry(sizes).or_default();
                    *total = total.wrapping_add(count.load(Relaxed));
                }
            }
        }
        self.durations.take(durations, |value, count| new.durations.push((value, count)));
        for (sizes, total) in pairs {
            let before = self.pairs.insert(sizes, total).unwrap_or(0);
            if total != before {
                let count = total.wrapping_sub(before);
                new.requests.push((sizes.request as f64, count));
                new.responses.push((sizes.response as f64, count));
            }
        }
        let others: Vec<_> = shards.iter().filter_map(|shard| shard.others.get()).collect();
        if !others.is_empty() {
            let [requests, responses] =
                &mut **self.others.get_or_insert_with(|| Box::new([Reported::new(), Reported::new()]));
            let mut sums = [Sums::new(), Sums::new()];
            for buckets in others {
                sums.iter_mut().zip(&**buckets).for_each(|(sum, buckets)| sum.add(buckets));
            }
            let [of_requests, of_responses] = sums;
            requests.take(of_requests, |value, count| new.requests.push((value, count)));
            responses.take(of_responses, |value, count| new.responses.push((value, count)));
        }
        new
    }
}

//! The choice of the endpoint of a call.

use crate::random;

/// The facts about a ready endpoint that decide the choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) priority: u16,
    pub(super) weight: u32,
    /// Number of calls in flight.
    pub(super) load: usize,
    /// `true` if the endpoint is ejected because its calls fail.
    pub(super) is_ejected: bool,
}

/// Random numbers by SplitMix64. They need not be secure.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Creates a generator with a random state.
    pub(super) fn new() -> Self {
        Self(random::number())
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    fn below(&mut self, bound: u64) -> u64 {
        let bits = random::split_mix(&mut self.0);
        // The product of two 64-bit numbers, of which the upper half is below the bound.
        ((u128::from(bits) * u128::from(bound)) >> 64) as u64
    }
}

/// Returns the index of the endpoint for a call, or `None` if there is no endpoint.
///
/// Draws two of the endpoints with the lowest priority number by weight, and returns the one with less load relative to
/// its weight (power of two choices). Ejected endpoints are left out, unless they are more than half of all. Then their
/// failures probably have a common cause. With `except`, draws a single one of these endpoints, and returns `except`
/// only if there is no other among them.
pub(super) fn pick(shares: &[Share], except: Option<usize>, random: &mut Random) -> Option<usize> {
    let ejected = shares.iter().filter(|share| share.is_ejected).count();
    let may_eject = 2 * ejected <= shares.len();
    let counts = |share: &Share| !(may_eject && share.is_ejected);
    let priority = shares.iter().filter(|share| counts(share)).map(|share| share.priority).min()?;
    let is_drawable = |share: &Share| share.priority == priority && counts(share);
    let Some(first) = draw(shares, is_drawable, except, random) else { return except };
    if except.is_some() {
        // Load matters less than another server.
        return Some(first);
    }
    match draw(shares, is_drawable, Some(first), random) {
        Some(second) if is_better(&shares[second], &shares[first]) => Some(second),
        _ => Some(first),
    }
}

/// Draws one of the drawable endpoints other than `except` by weight (RFC 2782).
fn draw(
    shares: &[Share],
    is_drawable: impl Fn(&Share) -> bool,
    except: Option<usize>,
    random: &mut Random,
) -> Option<usize> {
    let drawable = || {
        let shares = shares.iter().enumerate();
        shares.filter(|(index, share)| is_drawable(share) && Some(*index) != except)
    };
    let (mut sum, mut without_weight) = (0_u64, 0);
    for (_, share) in drawable() {
        sum += u64::from(share.weight);
        without_weight += u64::from(share.weight == 0);
    }
    // RFC 2782: a number from 0 to the sum of the weights, inclusive. Only 0 selects an endpoint without weight, which
    // should have a very small chance. Small weights are scaled for that: it is at most 1 %.
    let scale = if sum == 0 { 1 } else { 100_u64.div_ceil(sum) };
    let number = if without_weight == 0 { random.below(sum * scale) + 1 } else { random.below(sum * scale + 1) };
    if number == 0 {
        let nth = random.below(without_weight) as usize;
        return drawable().filter(|(_, share)| share.weight == 0).nth(nth).map(|(index, _)| index);
    }
    let mut running = 0;
    let mut reaches = |share: &Share| {
        running += u64::from(share.weight) * scale;
        running >= number
    };
    drawable().find(|(_, share)| reaches(share)).map(|(index, _)| index)
}

/// Returns `true` if a call should go to `second`, although `first` was drawn before it.
fn is_better(second: &Share, first: &Share) -> bool {
    let (weight_1, weight_2) = match (first.weight, second.weight) {
        (0, 0) => (1, 1),
        weights => weights,
    };
    // An endpoint with less weight would have more load for it with the call. Otherwise, a few calls at a time would be
    // divided evenly whatever the weights are.
    let added = u128::from(weight_2 < weight_1);
    first.load as u128 * u128::from(weight_2) > (second.load as u128 + added) * u128::from(weight_1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: usize = 20_000;

    fn shares(weights: &[(u16, u32)]) -> Vec<Share> {
        weights.iter().map(|&(priority, weight)| Share { priority, weight, load: 0, is_ejected: false }).collect()
    }

    #[test]
    fn random_numbers_differ() {
        let mut random = Random(7);
        let numbers: std::collections::BTreeSet<_> = (0..100).map(|_| random.below(1 << 40)).collect();
        assert!(numbers.len() == 100 && numbers.iter().all(|number| *number < 1 << 40));
        assert!((0..100).all(|_| random.below(1) == 0 && random.below(0) == 0));
    }

    /// Picks endpoints for calls, of which `in_flight` are in flight at a time. The oldest call ends first. Returns the
    /// number of calls of each endpoint.
    fn count(weights: &[(u16, u32)], in_flight: usize) -> Vec<usize> {
        let mut shares = shares(weights);
        let mut random = Random(7);
        let mut counts = vec![0; shares.len()];
        let mut calls = std::collections::VecDeque::new();
        for _ in 0..CALLS {
            let index = pick(&shares, None, &mut random).unwrap();
            counts[index] += 1;
            shares[index].load += 1;
            calls.push_back(index);
            if calls.len() > in_flight {
                let ended: usize = calls.pop_front().unwrap();
                shares[ended].load -= 1;
            }
        }
        counts
    }

    /// Checks that the calls are divided by weight within `percent` of all calls.
    fn check(weights: &[(u16, u32)], in_flight: usize, percent: f64) {
        let counts = count(weights, in_flight);
        let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
        for (count, (_, weight)) in counts.iter().zip(weights) {
            let off = *count as f64 / CALLS as f64 - f64::from(*weight) / sum;
            assert!(off.abs() * 100.0 < percent, "{counts:?} for {weights:?} with {in_flight} in flight");
        }
    }

    #[test]
    fn calls_are_divided_by_weight() {
        for in_flight in [0, 1, 2, 7, 50] {
            check(&[(0, 1); 4], in_flight, 2.0);
            check(&[(0, 3), (0, 1)], in_flight, 10.0);
            check(&[(0, 60), (0, 30), (0, 10)], in_flight, 13.0);
        }
        // Each call is alone, and the draw decides.
        check(&[(9, 60), (9, 30), (9, 10)], 0, 1.0);
        check(&[(0, u32::MAX), (0, u32::MAX)], 0, 1.0);
    }

    #[test]
    fn higher_numbers_of_priority_are_not_used() {
        let counts = count(&[(5, 1), (2, 1), (2, 0), (9, 100)], 20);
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert_eq!(pick(&[], None, &mut Random(1)), None);
    }

    /// RFC 2782: an endpoint of weight 0 among endpoints with larger weights has a very small chance. If all weights
    /// are 0, all endpoints have the same chance.
    #[test]
    fn without_weight() {
        for (weights, expected) in [([50, 0, 150], 100), ([1, 0, 1], 198)] {
            let counts = count(&weights.map(|weight| (0, weight)), 0);
            assert!(counts[1].abs_diff(expected) < 50, "{counts:?}");
        }
        for in_flight in [0, 10] {
            let counts = count(&[(0, 0); 4], in_flight);
            assert!(counts.iter().all(|count| count.abs_diff(CALLS / 4) < 300), "{counts:?}");
        }
        let busy = [
            Share { priority: 0, weight: 0, load: 1, is_ejected: false },
            Share { priority: 0, weight: 1, load: 1000, is_ejected: false },
        ];
        assert!((0..100).all(|seed| pick(&busy, None, &mut Random(seed)) == Some(1)));
        assert_eq!(pick(&busy[..1], None, &mut Random(1)), Some(0), "it is the only one");
    }

    /// The load relative to the weight decides between two endpoints.
    #[test]
    fn load_decides_between_equals() {
        let two = [
            Share { priority: 0, weight: 5, load: 3, is_ejected: false },
            Share { priority: 0, weight: 5, load: 2, is_ejected: false },
        ];
        assert!((0..100).all(|seed| pick(&two, None, &mut Random(seed)) == Some(1)));
        // A server that is slow gets fewer calls than its weight.
        let slow = [
            Share { priority: 0, weight: 10, load: 40, is_ejected: false },
            Share { priority: 0, weight: 1, load: 2, is_ejected: false },
        ];
        assert!((0..100).all(|seed| pick(&slow, None, &mut Random(seed)) == Some(1)));
    }

    /// An ejected endpoint gets no calls, unless more than half are ejected. The endpoints that are left may have
    /// another priority. The endpoint `except` is picked only if there is no other, whatever the loads are.
    #[test]
    fn ejected_endpoints_are_passed_over() {
        let pool = |ejected: &[bool]| -> Vec<_> {
            ejected.iter().map(|&is_ejected| Share { priority: 0, weight: 1, load: 9, is_ejected }).collect()
        };
        let drawn = |shares: &[Share]| -> std::collections::BTreeSet<_> {
            (0..200).map(|seed| pick(shares, None, &mut Random(seed)).unwrap()).collect()
        };
        assert_eq!(drawn(&pool(&[true, false, false, true])), [1, 2].into());
        assert_eq!(drawn(&pool(&[true, false, true])), [0, 1, 2].into());
        assert_eq!(drawn(&pool(&[true])), [0].into());
        let two = pool(&[false, false]);
        assert!((0..200).all(|seed| pick(&two, Some(0), &mut Random(seed)) == Some(1)));
        assert_eq!(pick(&two[..1], Some(0), &mut Random(1)), Some(0));
        // Load matters less than another server.
        let mut idle = pool(&[false, false, false]);
        idle[0].load = 0;
        assert!((0..200).all(|seed| pick(&idle, Some(0), &mut Random(seed)) != Some(0)));
        let mut standby = pool(&[true, false]);
        standby[1].priority = 7;
        assert_eq!(drawn(&standby), [1].into());
    }
}

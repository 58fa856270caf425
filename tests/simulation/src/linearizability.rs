//! A checker of linearizability. It searches for an order of all calls that explains their results.
//!
//! The order must keep the order in time: a call that ended before another one began comes first. A call without a
//! result may come at any place after its beginning, or not at all. The search is the algorithm of Wing and Gong with
//! Lowe's memoization ("Testing for linearizability", 2017): a set of placed calls is tried only once for each state
//! that it leads to.

use std::{collections::HashSet, fmt, hash::Hash, time::Duration};

/// Maximum number of pairs of a set of placed calls and a state that one search visits.
const MAX_STEPS: usize = 20_000;

/// The specification of a sequential object.
pub trait Model {
    /// The state of the object.
    type State: Clone + Eq + Hash;
    /// A call to the object.
    type Call: fmt::Debug;
    /// The result of a call.
    type Reply: fmt::Debug;

    /// Returns the state after a call. `reply` is `None` if the result is not known. Returns `None` if the call cannot
    /// have this result in this state.
    fn step(state: &Self::State, call: &Self::Call, reply: Option<&Self::Reply>) -> Option<Self::State>;

    /// Returns `true` if the call changes nothing, whatever the state is.
    fn only_reads(call: &Self::Call) -> bool;

    /// Returns `false` if the call can have this result neither in this state nor in any later one. The default
    /// implementation returns `true`.
    fn can_follow(state: &Self::State, call: &Self::Call, reply: &Self::Reply) -> bool {
        let _ = (state, call, reply);
        true
    }
}

/// A call in a history, with its result and the times at which it began and ended.
#[derive(Debug)]
pub struct Event<M: Model> {
    /// The call.
    pub call: M::Call,
    /// The result. `None` if the caller got none. Such a call may have been executed, or may be executed later.
    pub reply: Option<M::Reply>,
    /// Time at which the call began.
    pub start: Duration,
    /// Time at which the caller had the result.
    pub end: Duration,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains all results.
    Linearizable,
    /// No order explains all results. The text describes how far the best order got.
    Violation(String),
    /// The search reached its limit before it found an order or excluded all orders.
    Undecided,
}

/// A set of calls, by their indices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CallSet(Vec<u64>);

impl CallSet {
    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn with(&self, index: usize) -> Self {
        let mut set = self.clone();
        set.0[index / 64] |= 1 << (index % 64);
        set
    }
}

/// A step of the search: the calls that are placed, and the calls to try next with the states that they lead to.
struct Place<S> {
    placed: CallSet,
    /// Number of placed calls with results.
    replied: usize,
    next: Vec<(usize, S)>,
}

struct Search<'a, M: Model> {
    events: &'a [Event<M>],
}

impl<M: Model> Search<'_, M> {
    /// Returns the calls that may come next, the best one last, with the states that they lead to.
    fn next(&self, state: &M::State, placed: &CallSet) -> Vec<(usize, M::State)> {
        let open = || self.events.iter().enumerate().filter(|(index, _)| !placed.contains(*index));
        let replied = || open().filter_map(|(_, event)| Some((event, event.reply.as_ref()?)));
        if !replied().all(|(event, reply)| M::can_follow(state, &event.call, reply)) {
            return Vec::new();
        }
        // The first call that ends must not come after one that begins later.
        let Some(limit) = replied().map(|(event, _)| event.end).min() else { return Vec::new() };
        let candidates = open().filter(|(_, event)| event.start <= limit);
        let step = |(index, event): (usize, &Event<M>)| {
            let after = M::step(state, &event.call, event.reply.as_ref())?;
            // A call that nobody got a result of, and that changes nothing, need not be placed.
            (event.reply.is_some() || after != *state).then_some((index, after))
        };
        let (mut with_reply, without): (Vec<_>, Vec<_>) =
            candidates.filter_map(step).partition(|(index, _)| self.events[*index].reply.is_some());
        if let Some(read) = with_reply.iter().position(|(index, _)| M::only_reads(&self.events[*index].call)) {
            // If the rest has an order, it has one that begins with this call: it changes nothing, and nothing has to
            // precede it.
            return vec![with_reply.swap_remove(read)];
        }
        without.into_iter().chain(with_reply).collect()
    }
}

/// Searches for an order of the calls that explains their results, if the object begins with the state `initial`.
#[must_use]
pub fn check<M: Model>(initial: M::State, events: &[Event<M>]) -> Verdict {
    let search = Search { events };
    let total = events.iter().filter(|event| event.reply.is_some()).count();
    let placed = CallSet(vec![0; events.len().div_ceil(64)]);
    let mut path = vec![Place { next: search.next(&initial, &placed), placed, replied: 0 }];
    let (mut seen, mut best) = (HashSet::new(), (0, path[0].placed.clone()));
    while let Some(place) = path.last_mut() {
        if place.replied == total {
            return Verdict::Linearizable;
        }
        let Some((index, state)) = place.next.pop() else {
            path.pop();
            continue;
        };
        let placed = place.placed.with(index);
        let replied = place.replied + usize::from(events[index].reply.is_some());
        if !seen.insert((placed.clone(), state.clone())) {
            continue;
        }
        if seen.len() > MAX_STEPS {
            return Verdict::Undecided;
        }
        if replied > best.0 {
            best = (replied, placed.clone());
        }
        path.push(Place { next: search.next(&state, &placed), placed, replied });
    }
    let left = events.iter().enumerate().filter(|(index, event)| event.reply.is_some() && !best.1.contains(*index));
    let left: Vec<_> = left
        .take(3)
        .map(|(_, Event { call, reply, start, end })| format!("{call:?} = {reply:?} from {start:?} to {end:?}"))
        .collect();
    Verdict::Violation(format!("the best order has {} of {total} results, and not {}", best.0, left.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register. A call with `Some` writes a value, and a call with `None` reads it.
    struct Register;

    impl Model for Register {
        type State = u64;
        type Call = Option<u64>;
        type Reply = u64;

        fn step(state: &u64, call: &Option<u64>, reply: Option<&u64>) -> Option<u64> {
            match call {
                Some(value) => Some(*value),
                None => reply.is_none_or(|reply| reply == state).then_some(*state),
            }
        }

        fn only_reads(call: &Option<u64>) -> bool {
            call.is_none()
        }
    }

    /// Checks calls of `(call, result, start, end)`, with times in milliseconds.
    fn verdict(calls: &[(Option<u64>, Option<u64>, u64, u64)]) -> Verdict {
        let events: Vec<Event<Register>> = calls
            .iter()
            .map(|&(call, reply, start, end)| {
                let [start, end] = [start, end].map(Duration::from_millis);
                Event { call, reply, start, end }
            })
            .collect();
        check(0, &events)
    }

    #[test]
    fn an_order_is_found() {
        assert_eq!(verdict(&[]), Verdict::Linearizable);
        assert_eq!(verdict(&[(Some(1), Some(1), 0, 1), (None, Some(1), 2, 3)]), Verdict::Linearizable);
        // Calls at the same time may come in any order.
        assert_eq!(
            verdict(&[(Some(1), Some(1), 0, 9), (None, Some(0), 1, 2), (None, Some(1), 3, 4)]),
            Verdict::Linearizable
        );
        // The order of the writes follows from what was read.
        let writes = [(Some(1), Some(1), 0, 9), (Some(2), Some(2), 0, 9)];
        for value in [1, 2] {
            assert_eq!(verdict(&[writes[0], writes[1], (None, Some(value), 10, 11)]), Verdict::Linearizable);
        }
    }

    #[test]
    fn a_call_without_result_may_come_at_any_later_place_or_never() {
        let pending = (Some(1), None, 0, 1);
        for values in [[0, 0], [0, 1], [1, 1]] {
            assert_eq!(
                verdict(&[pending, (None, Some(values[0]), 2, 3), (None, Some(values[1]), 4, 5)]),
                Verdict::Linearizable
            );
        }
        assert!(matches!(verdict(&[pending, (None, Some(1), 2, 3), (None, Some(0), 4, 5)]), Verdict::Violation(_)));
        // It does not come before its beginning.
        assert!(matches!(verdict(&[(Some(1), None, 5, 6), (None, Some(1), 2, 3)]), Verdict::Violation(_)));
    }

    #[test]
    fn a_violation_is_found() {
        let stale = [(Some(1), Some(1), 0, 1), (None, Some(0), 2, 3)];
        let Verdict::Violation(text) = verdict(&stale) else { panic!("{:?}", verdict(&stale)) };
        assert_eq!(text, "the best order has 1 of 2 results, and not None = Some(0) from 2ms to 3ms");
        // Two readers see two writes in different orders.
        let writes = [(Some(1), Some(1), 0, 9), (Some(2), Some(2), 0, 9)];
        let reads = [(None, Some(1), 0, 1), (None, Some(2), 2, 3), (None, Some(1), 4, 5)];
        let calls: Vec<_> = writes.into_iter().chain(reads).collect();
        assert!(matches!(verdict(&calls), Verdict::Violation(_)));
    }

    #[test]
    fn the_work_is_limited() {
        // 40 writes at a time, and a value that nobody wrote.
        let writes = (1..=40).map(|value| (Some(value), Some(value), 0, 9));
        let calls: Vec<_> = writes.chain([(None, Some(99), 10, 11)]).collect();
        assert_eq!(verdict(&calls), Verdict::Undecided);
    }
}

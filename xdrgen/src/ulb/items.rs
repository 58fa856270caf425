//! The eligible items of a result: their possible numbers, and their maximum lengths in the order of the encoding.

use std::collections::BTreeSet;

use super::expr;
use crate::{
    ir::{ChunkRun, Expr},
    resolve::sizes::padded,
};

/// Limit on the size of an expression, in operands and operators. An expression of this size or more is too long,
/// because expressions are printed in the generated code.
pub(super) const MAX_EXPRESSION: usize = 200;

/// Placeholder for an expression of the size [`MAX_EXPRESSION`] or more.
pub(super) const TOO_LONG: Expr = Expr::Const(u64::MAX);

/// The eligible items of a type.
#[derive(Debug, Clone)]
pub(super) struct EligibleItems {
    /// The maximum length of the item at each position of the encoding.
    pub(super) runs: Vec<ChunkRun>,
    /// The numbers of items that a value can have. If the number depends on the call, only the minimum is known and
    /// stored.
    lens: BTreeSet<usize>,
    /// Maximum length of all items together, in bytes with padding. `None` if the formula is too long.
    total: Option<Expr>,
    /// `true` if an item can be at several positions, because items before it may be missing. The runs then count it
    /// several times.
    is_displaced: bool,
}

impl Default for EligibleItems {
    fn default() -> Self {
        let lens = BTreeSet::from([0]);
        Self { runs: Vec::new(), lens, total: Some(Expr::Const(0)), is_displaced: false }
    }
}

impl EligibleItems {
    /// Returns the items of a type that is itself an eligible item of at most `max` bytes.
    pub(super) fn one(path: &str, max: Expr) -> Self {
        let total = match &max {
            Expr::Const(n) => Expr::Const(padded(*n)),
            max => expr::add(max.clone(), Expr::Const(3)),
        };
        let run = ChunkRun { items: vec![(path.to_owned(), max)], count: None };
        Self { runs: vec![run], lens: BTreeSet::from([1]), total: Some(total), is_displaced: false }
    }

    /// Returns the maximum length of all items together, if it is less than the sum over the runs.
    pub(super) fn total(&self) -> Option<Expr> {
        self.total.clone().filter(|_| self.is_displaced)
    }

    /// Returns `true` if the number of items depends on the call.
    fn depends_on_call(&self) -> bool {
        self.runs.iter().any(|run| run.count.is_some())
    }

    fn min(&self) -> usize {
        self.lens.first().copied().unwrap_or_default()
    }

    fn items(&self) -> impl Iterator<Item = &(String, Expr)> {
        self.runs.iter().flat_map(|run| &run.items)
    }

    /// Returns the items of a value followed by a value of `other`. If items of the first value may be missing, later
    /// items take their positions. Each position then has room for the longest item that can take it (RFC 8166
    /// §4.3.2.2).
    pub(super) fn then(self, other: Self) -> Self {
        let (is_first_call, is_other_call) = (self.depends_on_call(), other.depends_on_call());
        let is_variable = is_first_call || self.lens.len() > 1;
        let is_displaced = self.is_displaced || other.is_displaced || (is_variable && !other.runs.is_empty());
        let total = sum(self.total.as_ref(), other.total.as_ref());
        let lens = if is_first_call || is_other_call {
            BTreeSet::from([self.min() + other.min()])
        } else {
            self.lens.iter().flat_map(|a| other.lens.iter().map(move |b| a + b)).collect()
        };
        let runs = if !is_variable {
            joined(self.runs, other.runs)
        } else if is_first_call || is_other_call {
            self.followed_loosely(other)
        } else {
            let max_items = self.items().count();
            let mut slots: Vec<Option<(String, Expr)>> = self.items().cloned().map(Some).collect();
            slots.resize(max_items + other.items().count(), None);
            for &first in &self.lens {
                for (slot, item) in slots.iter_mut().skip(first).zip(other.items()) {
                    merge(slot, item.clone());
                }
            }
            once(slots.into_iter().flatten().collect())
        };
        Self { runs, lens, total, is_displaced }
    }

    /// Returns the runs of a value followed by a value of `other`, where the position of each item of `other` is
    /// unknown. From the first variable position on, every position has room for any item that can follow.
    fn followed_loosely(mut self, mut other: Self) -> Vec<ChunkRun> {
        let mut longest: Option<(String, Expr)> = None;
        for run in other.runs.iter_mut().rev() {
            if run.count.is_some() {
                run.items.iter().for_each(|item| merge(&mut longest, item.clone()));
            }
            for item in run.items.iter_mut().rev() {
                longest = Some(merged(item.clone(), longest.take()));
                longest.iter().for_each(|longest| item.clone_from(longest));
            }
        }
        let mut kept = self.min();
        for run in &mut self.runs {
            kept = if run.count.is_some() { 0 } else { kept };
            let stable = kept.min(run.items.len());
            kept -= stable;
            for item in run.items.iter_mut().skip(stable) {
                *item = merged(item.clone(), longest.clone());
            }
        }
        joined(self.runs, other.runs)
    }

    /// Returns the items of a value that is one of two alternatives.
    pub(super) fn or(self, other: Self) -> Self {
        let is_displaced = self.is_displaced || other.is_displaced;
        let total = self.total.clone().zip(other.total.clone()).map(|(a, b)| expr::max(a, b)).filter(is_short);
        if self.depends_on_call() || other.depends_on_call() {
            let lens = BTreeSet::from([self.min().min(other.min())]);
            let runs = match (self.runs.is_empty(), other.runs.is_empty()) {
                (_, true) => self.runs,
                (true, _) => other.runs,
                _ => {
                    let count = expr::max(number(&self.runs), number(&other.runs));
                    let items = longest(self.items().chain(other.items()));
                    vec![ChunkRun { items, count: Some(count) }]
                }
            };
            return Self { runs, lens, total, is_displaced };
        }
        let mut slots: Vec<Option<(String, Expr)>> = self.items().cloned().map(Some).collect();
        slots.resize(slots.len().max(other.items().count()), None);
        for (slot, item) in slots.iter_mut().zip(other.items()) {
            merge(slot, item.clone());
        }
        let lens = self.lens.union(&other.lens).copied().collect();
        Self { runs: once(slots.into_iter().flatten().collect()), lens, total, is_displaced }
    }

    /// Returns the items of a value that may be missing.
    pub(super) fn or_none(self) -> Self {
        self.or(Self::default())
    }

    /// Returns the items of exactly `count` values.
    pub(super) fn times(&self, count: u32) -> Self {
        (0..count).fold(Self::default(), |all, _| all.then(self.clone()))
    }

    /// Returns the items of a sequence of at most `count` values.
    pub(super) fn up_to(&self, count: u32) -> Self {
        let (mut all, mut lens) = (Self::default(), BTreeSet::from([0]));
        for _ in 0..count {
            all = all.then(self.clone());
            lens.extend(&all.lens);
        }
        if all.depends_on_call() {
            lens = BTreeSet::from([0]);
        }
        Self { lens, ..all }
    }

    /// Returns the items of a sequence of at most `count` values, where `count` depends on the call.
    pub(super) fn repeated(self, count: &Expr) -> Self {
        if self.runs.is_empty() {
            return self;
        }
        let total = self.total.as_ref().map(|total| expr::multiply(count.clone(), total.clone())).filter(is_short);
        let is_variable = self.lens.len() > 1 || self.depends_on_call();
        let run = if is_variable {
            // Items of later values take the positions of missing ones.
            let count = expr::multiply(count.clone(), number(&self.runs));
            ChunkRun { items: longest(self.items()), count: Some(count) }
        } else {
            ChunkRun { items: self.items().cloned().collect(), count: Some(count.clone()) }
        };
        let is_displaced = self.is_displaced || (is_variable && self.items().count() > 1);
        Self { runs: vec![run], lens: BTreeSet::from([0]), total, is_displaced }
    }
}

fn is_short(expr: &Expr) -> bool {
    expr::size(expr, MAX_EXPRESSION) < MAX_EXPRESSION
}

fn sum(a: Option<&Expr>, b: Option<&Expr>) -> Option<Expr> {
    a.zip(b).map(|(a, b)| expr::add(a.clone(), b.clone())).filter(is_short)
}

fn once(items: Vec<(String, Expr)>) -> Vec<ChunkRun> {
    if items.is_empty() { Vec::new() } else { vec![ChunkRun { items, count: None }] }
}

/// Joins two lists of runs. Merges neighbouring runs that do not repeat.
fn joined(mut first: Vec<ChunkRun>, second: Vec<ChunkRun>) -> Vec<ChunkRun> {
    for run in second {
        match first.last_mut() {
            Some(last) if last.count.is_none() && run.count.is_none() => last.items.extend(run.items),
            _ => first.push(run),
        }
    }
    first
}

/// Returns the number of items in `runs`, as an expression.
fn number(runs: &[ChunkRun]) -> Expr {
    runs.iter().fold(Expr::Const(0), |sum, run| {
        let items = Expr::Const(run.items.len() as u64);
        expr::add(sum, run.count.iter().fold(items, |items, count| expr::multiply(count.clone(), items)))
    })
}

/// Returns one position with room for each of `items`. Returns no position if `items` is empty.
fn longest<'a>(items: impl Iterator<Item = &'a (String, Expr)>) -> Vec<(String, Expr)> {
    let mut longest = None;
    items.for_each(|item| merge(&mut longest, item.clone()));
    longest.into_iter().collect()
}

/// Extends the position `slot` with room for `item`.
fn merge(slot: &mut Option<(String, Expr)>, item: (String, Expr)) {
    *slot = Some(match slot.take() {
        None => item,
        Some(known) => merged(known, Some(item)),
    });
}

/// Returns a position with room for `known` and for `other`.
fn merged((known, max): (String, Expr), other: Option<(String, Expr)>) -> (String, Expr) {
    /// Length of a list of paths in messages, in bytes, above which no paths are added.
    const MAX_LISTED: usize = 200;
    let Some((path, other)) = other else { return (known, max) };
    let is_listed = |path: &str| known.split(" or ").any(|one| one == path);
    let new: Vec<&str> = path.split(" or ").filter(|path| !is_listed(path) && known.len() <= MAX_LISTED).collect();
    let paths = new.into_iter().fold(known.clone(), |paths, path| format!("{paths} or {path}"));
    let joined = expr::max(max, other);
    // Expressions are walked recursively, so this one must not grow further. `procedure` reports it.
    (paths, if is_short(&joined) { joined } else { TOO_LONG })
}

//! Runs the cases of a [`Choice`].

use std::{sync::Arc, time::Instant};

use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};

use crate::case::{Case, Early, Finding, Part, Verdict};

/// A case that has run, with its finding.
#[derive(Debug, Clone, Serialize)]
pub struct Ran {
    /// The name of the case.
    pub id: &'static str,
    /// The part that the case belongs to.
    pub part: Part,
    /// The rules that the case checks.
    pub rules: &'static [&'static str],
    /// A description of what the case sent.
    pub sent: &'static str,
    /// A description of the accepted answers.
    pub expected: String,
    /// The verdict, and a description of what the implementation did.
    #[serde(flatten)]
    pub finding: Finding,
    /// The duration in milliseconds.
    pub milliseconds: u64,
}

/// A filter of the cases to run.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Substrings of names. A case is chosen if its name contains one of them, or if the list is empty.
    pub names: Vec<String>,
    /// The parts whose cases are chosen. An empty list chooses all parts.
    pub parts: Vec<Part>,
    /// `true` to run cases that have crashed an implementation, too.
    pub dangerous: bool,
}

impl Choice {
    /// Returns `true` if the name and the part of the case are chosen. Ignores `dangerous`.
    pub fn has<S>(&self, case: &Case<S>) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|name| case.id.contains(name.as_str()));
        named && (self.parts.is_empty() || self.parts.contains(&case.part))
    }
}

/// Runs the chosen cases, `jobs` at a time, and returns their findings in the order of the cases. Does not run
/// dangerous cases unless the choice includes them, but reports them as [`Verdict::NotRun`]. Calls `progress` after
/// each case.
pub async fn run<S: Clone + Send + Sync + 'static>(
    cases: Vec<Case<S>>,
    subject: S,
    choice: &Choice,
    jobs: usize,
    mut progress: impl FnMut(&Ran),
) -> Vec<Ran> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(jobs.max(1)));
    for (index, case) in cases.into_iter().filter(|case| choice.has(case)).enumerate() {
        let (subject, permits, sender) = (subject.clone(), Arc::clone(&permits), sender.clone());
        let is_skipped = case.dangerous.filter(|_| !choice.dangerous);
        tokio::spawn(async move {
            let _permit = permits.acquire().await;
            let start = Instant::now();
            let finding = match is_skipped {
                Some(why) => Finding::new(Verdict::NotRun, format!("only with --dangerous: {why}")),
                None => (case.steps)(&subject).await.unwrap_or_else(|Early(finding)| finding),
            };
            let Case { id, part, rules, sent, expected, .. } = case;
            let milliseconds = start.elapsed().as_millis() as u64;
            let _ = sender.send((index, Ran { id, part, rules, sent, expected, finding, milliseconds }));
        });
    }
    drop(sender);
    let mut all = Vec::new();
    while let Some((index, ran)) = receiver.recv().await {
        progress(&ran);
        all.push((index, ran));
    }
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, ran)| ran).collect()
}

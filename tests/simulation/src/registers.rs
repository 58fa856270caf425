//! The model of counters and blobs, and the check of the histories of all objects of the service.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use crate::{
    files::{Directory, DirectoryState, FileCall},
    history::{CallOutcome, Record},
    linearizability::{Event, Model, Verdict, check},
    network::Host,
    scenario::CallKind,
};

/// A call of a register whose value only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterCall {
    /// Returns the value.
    Read,
    /// Adds to the value, and returns the sum.
    Add(u64),
    /// Raises the value to this number, unless the value is higher. The result is not checked against the value,
    /// because the call may be executed several times.
    Raise(u64),
}

/// The model of counters and of the versions of blobs.
#[derive(Debug)]
pub struct Register;

impl Model for Register {
    type State = u64;
    type Call = RegisterCall;
    type Reply = u64;

    fn step(state: &u64, call: &RegisterCall, reply: Option<&u64>) -> Option<u64> {
        let (after, is_right) = match call {
            RegisterCall::Read => (*state, reply.is_none_or(|value| value == state)),
            RegisterCall::Add(amount) => (state + amount, reply.is_none_or(|sum| *sum == state + amount)),
            RegisterCall::Raise(version) => (*version.max(state), true),
        };
        is_right.then_some(after)
    }

    fn only_reads(call: &RegisterCall) -> bool {
        matches!(call, RegisterCall::Read)
    }

    fn can_follow(state: &u64, call: &RegisterCall, reply: &u64) -> bool {
        match call {
            RegisterCall::Read => state <= reply,
            RegisterCall::Add(amount) => state + amount <= *reply,
            RegisterCall::Raise(_) => true,
        }
    }
}

/// Returns the calls of an object, in the order in which they began, with the results that their callers got. Leaves
/// out calls that were certainly not executed, and reads without a result.
fn events<M: Model>(
    records: &[&Record],
    call: impl Fn(&Record) -> M::Call,
    reply: impl Fn(&CallOutcome) -> Option<M::Reply>,
) -> Vec<Event<M>> {
    let is_unexecuted = |record: &Record| matches!(record.outcome, CallOutcome::Failed { is_retry_safe: true, .. });
    let records = records.iter().filter(|record| !is_unexecuted(record));
    let event = |record: &&Record| {
        let reply = reply(&record.outcome);
        let end = if reply.is_some() { record.end } else { Duration::MAX };
        Event { call: call(record), reply, start: record.start, end }
    };
    // A call without result that changes nothing says nothing.
    records.map(event).filter(|event| event.reply.is_some() || !M::only_reads(&event.call)).collect()
}

/// The results of the checks of a run's histories.
#[derive(Debug, Default)]
pub struct Histories {
    /// Number of histories whose check was given up.
    pub undecided: u64,
    /// Number of checked histories, including those whose check was given up.
    pub checked: u64,
    /// Violations: histories that no order explains.
    pub wrong: Vec<String>,
}

impl Histories {
    fn add<M: Model>(&mut self, what: impl Debug, initial: M::State, events: &[Event<M>]) {
        self.checked += 1;
        match check(initial, events) {
            Verdict::Linearizable => {}
            Verdict::Undecided => self.undecided += 1,
            Verdict::Violation(why) => self.wrong.push(format!("no order explains the calls of {what:?}: {why}")),
        }
    }
}

/// An object of the service: its number, and the server that has the object on its disk. The server is `None` if all
/// servers share one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Counter(u32, Option<Host>),
    Blob(u32, Option<Host>),
    Directory(u64, Option<Host>),
}

/// Checks that one order explains the results of the calls of each object (linearizability), whichever servers have
/// executed them.
#[must_use]
pub fn check_histories(records: &[Record], shares_disk: bool) -> Histories {
    let mut objects: BTreeMap<Object, Vec<&Record>> = BTreeMap::new();
    for record in records {
        // No client calls several servers if each has its own disk.
        let server = record.server.filter(|_| !shares_disk);
        let object = match record.operation.call {
            CallKind::Add { counter, .. } | CallKind::Value { counter } => Object::Counter(counter, server),
            CallKind::Put { key, .. } | CallKind::Get { key } => Object::Blob(key, server),
            CallKind::File { directory, .. } => Object::Directory(directory, server),
            _ => continue,
        };
        objects.entry(object).or_default().push(record);
    }
    let mut histories = Histories::default();
    for (object, records) in objects {
        let number = |outcome: &CallOutcome| match outcome {
            CallOutcome::Done(number) => Some(*number),
            _ => None,
        };
        match object {
            Object::Counter(..) | Object::Blob(..) => {
                let call = |record: &Record| match record.operation.call {
                    CallKind::Add { amount, .. } => RegisterCall::Add(amount),
                    CallKind::Put { .. } => RegisterCall::Raise(record.operation.number),
                    _ => RegisterCall::Read,
                };
                histories.add::<Register>(object, 0, &events(&records, call, number));
            }
            Object::Directory(..) => {
                let call = |record: &Record| match record.operation.call {
                    CallKind::File { call, .. } => call,
                    _ => FileCall::List,
                };
                let reply = |outcome: &CallOutcome| match outcome {
                    CallOutcome::FileDone(reply) => Some(reply.clone()),
                    _ => None,
                };
                histories.add::<Directory>(object, DirectoryState::default(), &events(&records, call, reply));
            }
        }
    }
    histories
}

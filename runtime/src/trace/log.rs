//! A subscriber with which tests check spans and events.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{Interest, NoSubscriber, with_default},
};

/// A subscriber that records the messages of events, and the span fields that are set after the span was created.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<LogEntries>);

#[derive(Default)]
struct LogEntries {
    spans: Mutex<BTreeMap<u64, BTreeMap<&'static str, String>>>,
    last: AtomicU64,
    messages: Mutex<Vec<String>>,
}

impl Log {
    /// Runs `work` with a new log, which receives the spans and events of the current thread during this time.
    pub(crate) fn of(work: impl FnOnce(&Self)) {
        // With one subscriber in the process, tracing asks only the thread that reaches an event first, which may be
        // another test's.
        let _second = Dispatch::new(NoSubscriber::new());
        let log = Self::default();
        with_default(log.clone(), || work(&log));
    }

    /// Removes and returns the messages of events. A message about a panic includes the message of the panic.
    pub(crate) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.0.messages.lock().unwrap())
    }

    /// Returns the values of the fields `names` of the last span, as text. A field without a value is `None`.
    pub(crate) fn last<const N: usize>(&self, names: [&str; N]) -> [Option<String>; N] {
        let spans = self.0.spans.lock().unwrap();
        let (_, fields) = spans.last_key_value().unwrap();
        names.map(|name| fields.get(name).cloned())
    }
}

/// A visitor that records fields as text.
struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Log {
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rpcrdma")
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let panic = fields.remove("panic").map(|panic| format!(": {panic}")).unwrap_or_default();
        let message = fields.remove("message").map(|message| message + &panic);
        self.0.messages.lock().unwrap().extend(message);
    }

    fn new_span(&self, _attributes: &span::Attributes<'_>) -> span::Id {
        let id = self.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.spans.lock().unwrap().insert(id, BTreeMap::new());
        span::Id::from_u64(id)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Fields(self.0.spans.lock().unwrap().get_mut(&span.into_u64()).unwrap()));
    }

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
}

//! An end of a connection by TCP (RFC 5531 §11), with a stream that does what a fuzzer says.
//!
//! The first octet chooses the end's role and limits; then octets are read one at a time, each for one thing that happens. The
//! stream is as good as its contract: it brings octets only when they are wanted. The peer may send anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IoSlice,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use smallvec::smallvec;

use super::engine::{Input, message};
use crate::{
    engine::{
        CallId, CallPolicy, CloseReason, Engine as _, EngineConfig, Event, OutgoingCall, OutgoingReply, ReplyResources,
        ReplyToken, Role,
        stream::{StreamConfig, StreamConnection},
    },
    memory::{Budget, Charge, Share},
    provider::DisconnectReason,
    xdr::Reduced,
};

/// The first XID, so that a fuzzer can find those of the calls under way.
const XID: u32 = 0x1000;
/// Octets that all connections may hold.
const MEMORY: u64 = 12_000;
/// Octets that the others hold now and then.
const OTHERS: u64 = 9000;

struct World {
    engine: StreamConnection,
    budget: Arc<Budget>,
    others: Option<Charge>,
    now: Instant,
    /// Calls of this end's that are not over.
    calls: BTreeSet<CallId>,
    /// Whether there has been one: what comes ahead of its reply is taken beyond the limit.
    called: bool,
    /// Calls of the peer's whose replies have not gone out, with the memory they hold until they are answered.
    arrived: BTreeMap<ReplyToken, Option<Charge>>,
    most_arrived: usize,
    closed: bool,
}

/// Runs an end as `octets` say, until it is over.
///
/// # Panics
/// When it breaks a promise: a call that is not over once and once only, more calls at a time or more memory than is
/// configured, memory that is not given back.
pub fn tcp_stream(octets: &[u8]) {
    let mut input = Input(octets);
    let Some(mode) = input.octet() else { return };
    let role = if mode & 1 == 0 { Role::Server } else { Role::Client };
    let budget = Budget::new(MEMORY);
    let config = EngineConfig {
        credits: 1 + u32::from(mode >> 5),
        reverse_credits: u32::from(mode >> 1 & 3),
        max_pulled: 15_000,
        budget: Some(Arc::clone(&budget)),
        ..EngineConfig::default()
    };
    let most_arrived = if role == Role::Server { config.credits } else { config.reverse_credits } as usize;
    let stream = StreamConfig {
        max_record: if mode & 8 == 0 { 10_000 } else { 100 },
        max_fragments: 5,
        fragment_size: if mode & 16 == 0 { 40 } else { 10_000 },
        ..StreamConfig::default()
    };
    let mut world = World {
        engine: StreamConnection::new(role, config, stream, XID),
        budget,
        others: None,
        now: Instant::now(),
        calls: BTreeSet::new(),
        called: false,
        arrived: BTreeMap::new(),
        most_arrived,
        closed: false,
    };
    while let Some(step) = input.octet() {
        world.step(step, &mut input);
        world.settle();
    }
    world.end();
}

impl World {
    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 13 {
            0..=2 => {
                let len = input.octet().unwrap_or_default().into();
                let octets = input.take(len);
                self.receive(octets);
            }
            // Much of the same, for long records.
            3 => self.receive(&vec![0; usize::from(input.octet().unwrap_or_default()) * 32]),
            4 => self.engine.handle_records(1 + usize::from(step >> 4)),
            5 => self.call(input),
            6 | 7 => self.reply(step, input),
            8 => {
                if let Some(id) = self.calls.first() {
                    self.engine.cancel_call(*id, self.now);
                }
            }
            9 => {
                self.now += Duration::from_millis(input.octet().unwrap_or_default().into()) * 100;
                self.engine.handle_timeout(self.now);
            }
            10 => {
                let ready: usize = self.engine.output().iter().map(|slice: &IoSlice<'_>| slice.len()).sum();
                self.engine.sent(ready.min(usize::from(input.octet().unwrap_or_default()) * 8));
            }
            11 => {
                let others = self.others.take();
                self.others =
                    others.is_none().then(|| Share::of(Some(Arc::clone(&self.budget))).take_now(OTHERS)).flatten();
            }
            // Once in a while: each ends everything.
            _ => match input.octet() {
                Some(0) => self.engine.close_with(CloseReason::Disconnected(DisconnectReason::Local)),
                Some(1) => self.engine.ended(),
                Some(2) if self.engine.wants_shutdown() => self.engine.shut_down(),
                _ => {}
            },
        }
    }

    fn receive(&mut self, octets: &[u8]) {
        if self.engine.wants_input() {
            self.engine.receive(octets);
            self.engine.handle_records(2);
        }
    }

    fn call(&mut self, input: &mut Input<'_>) {
        let [shape, inline, item] = [(); 3].map(|()| usize::from(input.octet().unwrap_or_default()));
        let data = Bytes::from(vec![7; item]);
        let call = OutgoingCall {
            message: message([0, 0], inline),
            reduced: if shape & 1 == 0 { smallvec![] } else { smallvec![Reduced { position: 8, chunk: 0, data }] },
            reply: ReplyResources::default(),
            deadline: (shape & 2 != 0).then(|| self.now + Duration::from_secs(1)),
            policy: CallPolicy::default(),
            seal: None,
        };
        self.called = true;
        assert!(self.calls.insert(self.engine.start_call(call)), "a call id that is in use");
    }

    /// Answers the oldest call that is not answered, one way or the other.
    fn reply(&mut self, step: u8, input: &mut Input<'_>) {
        let len = usize::from(input.octet().unwrap_or_default()) * 4;
        let Some((&token, charge)) = self.arrived.iter_mut().find(|(_, charge)| charge.is_some()) else { return };
        *charge = None;
        if step & 0x80 == 0 {
            self.engine.reply(token, OutgoingReply { message: message([XID, 1], len), reduced: smallvec![] });
        } else {
            self.engine.reply_error(token);
        }
    }

    /// Lets the end do what is due.
    fn settle(&mut self) {
        self.engine.poll_work(&mut (), self.now);
        while let Some(event) = self.engine.poll_event() {
            // A call that is made too late is over at once.
            assert!(!self.closed || matches!(event, Event::CallFinished { .. }), "{event:?} after the end");
            match event {
                Event::CallFinished { id, .. } => assert!(self.calls.remove(&id), "{id:?} is over already"),
                Event::CallArrived(call) => {
                    let before = self.arrived.insert(call.token, Some(call.charge));
                    assert!(before.is_none(), "{:?} is another's", call.token);
                }
                Event::ReplySent { token, .. } => {
                    assert!(self.arrived.remove(&token).is_some(), "{token:?} is no call's, or over already");
                }
                Event::Closed(_) => self.closed = true,
            }
            assert!(self.arrived.len() <= self.most_arrived, "more calls than there are credits for");
        }
        assert!(self.called || self.budget.held() <= MEMORY, "{} octets are held", self.budget.held());
    }

    /// The stream is over, and everything with it.
    fn end(mut self) {
        self.engine.lost(DisconnectReason::Remote);
        self.settle();
        assert!(self.closed, "the connection has no end: {:?}", self.engine.counters());
        assert!(self.calls.is_empty(), "{:?} are not over", self.calls);
        assert!(self.arrived.is_empty(), "{:?} have not been told of", self.arrived.keys());
        assert_eq!(self.budget.waiting(), 0);
        drop((self.engine, self.others));
        assert_eq!(self.budget.held(), 0, "memory is not given back");
    }
}

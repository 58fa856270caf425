//! Tests of calls that share a context, in random interleavings chosen by `shuttle`.

// The client is compiled twice, and parts of it are used only in one of the two places.
#![allow(clippy::duplicate_mod, dead_code)]

#[path = "../client.rs"]
mod client;

use shuttle::{
    future::block_on,
    thread::{self, JoinHandle},
};

use self::client::{ClientContext, NoNumber};
use super::*;
use crate::{
    gss::{body, creation, credential, mechanism, wire, wire::MAXSEQ},
    security::{ProtectionLevel, Secured},
    sync::model::{self as sync, check, give_up},
};

/// Maximum number of calls that may be outstanding.
const WINDOW: u32 = 2;

/// A created context, from which each interleaving creates a client's context with a small window.
struct Template(CreatedContext);

impl Template {
    fn new() -> Self {
        let server = TestServer::new(GssServerConfig::default());
        Self(create(&server, &super::client(), Instant::now()).unwrap())
    }

    fn context(&self) -> Arc<ClientContext> {
        let CreatedContext { context, handle, .. } = &self.0;
        let created = CreatedContext { context: Arc::clone(context), handle: handle.clone(), window: WINDOW };
        Arc::new(ClientContext::new(created, 2, 3, Instant::now()))
    }
}

/// Secures a call as soon as the window permits it. Returns `None` if the sequence numbers are used up.
async fn secure(context: &Arc<ClientContext>) -> Option<Secured> {
    loop {
        match context.secure_in_turn(ProtectionLevel::Authentication).await.unwrap() {
            Ok(secured) => return Some(secured),
            Err(NoNumber::WindowFull) => {}
            Err(NoNumber::Exhausted) => return None,
        }
    }
}

/// Makes `calls` calls one after the other in a new thread, which returns the number of calls that got a sequence
/// number.
fn calls(context: &Arc<ClientContext>, calls: usize) -> JoinHandle<usize> {
    let context = Arc::clone(context);
    thread::spawn(move || {
        let secured = std::iter::repeat_with(|| block_on(secure(&context))).take(calls).flatten();
        secured.inspect(|secured| secured.call.ended()).count()
    })
}

/// Begins a call in a new thread, and cancels it after up to `polls` polls. The thread returns 1 if the call got a
/// sequence number, and 0 otherwise.
fn gives_up(context: &Arc<ClientContext>, polls: usize) -> JoinHandle<usize> {
    let context = Arc::clone(context);
    thread::spawn(move || {
        let secured = block_on(give_up(secure(&context), polls)).flatten();
        secured.iter().for_each(|secured| secured.call.ended());
        usize::from(secured.is_some())
    })
}

/// Waits for the end of all calls in a new thread, as the close of a channel does.
fn closes(context: &Arc<ClientContext>) -> JoinHandle<()> {
    let context = Arc::clone(context);
    thread::spawn(move || block_on(context.idle()))
}

/// Each call gets a sequence number, although other calls give up while they wait. A close waits for the end of all
/// calls.
#[test]
fn every_call_gets_a_number() {
    let template = Template::new();
    check(move || {
        let context = template.context();
        // One call is slower than all others, and keeps the window full.
        let slow = block_on(secure(&context)).unwrap();
        let callers = [calls(&context, 2), calls(&context, 2), gives_up(&context, 2)];
        let closing = closes(&context);
        thread::yield_now();
        slow.call.ended();
        let [first, second, third] = callers.map(|caller| caller.join().unwrap());
        assert_eq!((first, second), (2, 2));
        assert!(third <= 1);
        closing.join().unwrap();
        assert!(context.is_idle());
    });
}

/// Calls that wait when the sequence numbers are used up end with [`NoNumber::Exhausted`].
#[test]
fn the_end_of_the_numbers_reaches_every_call() {
    let template = Template::new();
    check(move || {
        let context = template.context();
        context.set_next(MAXSEQ - 4);
        let callers = [calls(&context, 2), calls(&context, 2), gives_up(&context, 2)];
        let used: usize = callers.map(|caller| caller.join().unwrap()).iter().sum();
        assert_eq!(used, 3, "the last number is for the destruction");
        assert!(context.is_idle() && context.destruction().is_some());
    });
}

//! A whole client with a hostile server, over TCP records in memory. All calls of a healthy client of another server
//! must succeed meanwhile.
#![no_main]

use rpcrdma_hostile::{Plan, Role, Target, Wire, run};

libfuzzer_sys::fuzz_target!(|plan: Plan| {
    run(Target { role: Role::Client, wire: Wire::Tcp }, &plan);
});

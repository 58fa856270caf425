//! A whole server with a hostile client, over TCP records in memory. All calls of a healthy client of this server must
//! succeed meanwhile.
#![no_main]

use rpcrdma_hostile::{Plan, Role, Target, Wire, run};

libfuzzer_sys::fuzz_target!(|plan: Plan| {
    run(Target { role: Role::Server, wire: Wire::Tcp }, &plan);
});

//! A whole server with a hostile client, over the simulated RDMA provider, in version 2. All calls of a healthy client
//! of this server must succeed meanwhile.
#![no_main]

use rpcrdma_hostile::{Plan, Role, Target, Wire, run};

libfuzzer_sys::fuzz_target!(|plan: Plan| {
    run(Target { role: Role::Server, wire: Wire::V2 }, &plan);
});

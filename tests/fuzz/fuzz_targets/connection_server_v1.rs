//! A complete server with a hostile client, over the simulated RDMA provider, in version 1. The attack must not disturb
//! a healthy client.
#![no_main]

use rpcrdma_hostile::{Plan, Role, Target, Wire, run};

libfuzzer_sys::fuzz_target!(|plan: Plan| {
    run(Target { role: Role::Server, wire: Wire::V1 }, &plan);
});

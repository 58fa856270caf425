//! Landing memory that a caller lends to a call and gets back.

use std::{sync::Arc, time::Duration};

use crate::net_support::{
    Gate, Get, Range, Running, State, Transport, eventually, over, pattern, start, start_with, timed, unprobed,
};
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    config::ConnectionConfig,
    memory::{AlignedBuf, LandingLoan, LandingMemory},
    service::ReplyBounds,
};

const LEN: usize = 25 * 4096;
const HOUR: Duration = Duration::from_secs(3600);

/// Makes a call with memory on loan. Checks that the result is in the memory: placed directly if `is_placed` is `true`,
/// otherwise copied. Returns the memory.
async fn get_into<M: LandingMemory>(channel: &Channel, memory: M, seed: u32, count: usize, is_placed: bool) -> M {
    let at = memory.as_slice().as_ptr();
    let (landing, loan) = LandingLoan::new(memory);
    let options = CallOptions::new().landing(landing);
    let result = channel.call::<Get>(&Range(seed, count as u32), options).await.unwrap().0;
    assert!(!is_placed || count == 0 || result.as_ptr() == at, "{count} bytes were placed elsewhere");
    let landed = loan.returned_with(result).await;
    assert_eq!(landed.range, 0..count);
    assert_eq!(landed.is_copied, !is_placed && count > 0, "{count} bytes");
    assert_eq!(landed.memory.as_slice().as_ptr(), at);
    assert!(landed.memory.as_slice()[..count] == pattern(seed, count as u32), "{count} bytes");
    landed.memory
}

/// A vector and aligned memory are lent to one call after the other. Over TCP, where nothing is placed directly, the
/// results are copied into them.
async fn memory_comes_back_with_the_result(transport: Transport) {
    let is_placed = !matches!(transport, Transport::Tcp);
    let (running, _state, channel) = start(transport).await;
    let mut vector = Vec::with_capacity(2 * LEN);
    vector.resize(LEN, 0);
    let mut aligned = AlignedBuf::new(LEN, 4096);
    for (seed, count) in [(1, LEN), (2, LEN - 1), (3, 10), (4, 0), (5, LEN)] {
        vector = get_into(&channel, vector, seed, count, is_placed).await;
        assert_eq!((vector.len(), vector.capacity()), (LEN, 2 * LEN));
        aligned = get_into(&channel, aligned, seed, count, is_placed).await;
        assert_eq!((aligned.len(), aligned.as_ptr() as usize % 4096), (LEN, 0));
    }
    let counters = [channel.counters(), running.handle.connections()[0].counters];
    if is_placed {
        assert_eq!(counters.map(|end| end.copied_eligible_bytes), [0, 0]);
        assert_eq!(counters[0].written_by_peer_bytes, 2 * (3 * LEN + 9) as u64);
    }
}

/// A call with memory that is too short is not sent. The error names both lengths, and the caller gets the memory back.
async fn short_memory_comes_back_with_the_error(transport: Transport) {
    let (_running, _state, channel) = start(transport).await;
    let memory = vec![0; LEN];
    let at = memory.as_ptr();
    let (landing, loan) = LandingLoan::new(memory);
    let options = CallOptions::new().landing(landing);
    let error = channel.call::<Get>(&Range(1, LEN as u32 + 1), options).await.unwrap_err();
    let CallError::Landing { index: 0, len, needed, .. } = error else { panic!("{error}") };
    assert_eq!((len, needed), (LEN, LEN as u64 + 1));
    assert!(error.to_string().contains(&format!("{len} bytes")) && error.to_string().contains(&needed.to_string()));
    let memory = loan.try_take().unwrap();
    assert_eq!((memory.as_ptr(), memory.len()), (at, LEN));
    assert_eq!(channel.counters().calls_sent, 0);
}

/// Starts a call that the server answers when the gate opens, drops it, and returns the loan of its memory.
async fn abandoned(channel: &Channel, gate: &State) -> LandingLoan<Vec<u8>> {
    let (landing, loan) = LandingLoan::new(vec![0; LEN]);
    // The reply has no data, but may have some by these bounds.
    let options = CallOptions::new().landing(landing).reply_bounds(ReplyBounds::new(4, &[LEN as u64]));
    let call = tokio::spawn({
        let channel = channel.clone();
        async move { channel.call::<Gate>(&7, options).await }
    });
    gate.wait_started(1).await;
    eventually(|| channel.counters().exposed_regions == 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    loan
}

/// Starts a server, and a channel that invalidates the memory of dropped calls after `grace`.
async fn start_with_grace(transport: Transport, grace: Duration) -> (Running, Arc<State>, Channel) {
    let config = ConnectionConfig::new().abandoned_call_timeout(grace);
    start_with(transport, unprobed().connection(config)).await
}

/// The caller gets the memory of a dropped call back with the reply, because the server may write to it until then.
async fn memory_of_a_dropped_call_comes_back_with_the_reply(transport: Transport) {
    let (_running, state, channel) = start_with_grace(transport, HOUR).await;
    let loan = abandoned(&channel, &state).await;
    let loan = loan.try_take().expect_err("the memory came back while the server could write to it");
    assert_eq!(channel.counters().exposed_regions, 1);
    state.gate.add_permits(1);
    assert_eq!(loan.returned().await.len(), LEN);
    eventually(|| channel.counters().exposed_regions == 0).await;
}

/// The caller gets the memory of a dropped call back when the connection ends without a reply.
async fn memory_of_a_dropped_call_comes_back_with_the_connection(transport: Transport) {
    let (running, state, channel) = start_with_grace(transport, HOUR).await;
    let loan = abandoned(&channel, &state).await;
    let loan = loan.try_take().expect_err("the memory came back while the server could write to it");
    drop(channel);
    assert_eq!(loan.returned().await.len(), LEN);
    eventually(|| running.handle.connections().is_empty()).await;
}

/// The caller gets the memory of a dropped call back after the grace period, without a reply and while the connection
/// is open.
async fn memory_of_a_dropped_call_comes_back_in_time(transport: Transport) {
    let (running, state, channel) = start_with_grace(transport, Duration::ZERO).await;
    let loan = abandoned(&channel, &state).await;
    assert_eq!(loan.returned().await.len(), LEN);
    assert_eq!(running.handle.connections().len(), 1);
}

over! {
    rdma: memory_of_a_dropped_call_comes_back_with_the_reply memory_of_a_dropped_call_comes_back_with_the_connection
        memory_of_a_dropped_call_comes_back_in_time;
    all: memory_comes_back_with_the_result short_memory_comes_back_with_the_error;
}

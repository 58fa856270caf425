//! RPC messages of the program FILES, and their RPC-over-RDMA headers.

use crate::wire::{Iwarp, Rdma, Tcp};

pub(crate) const READ: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const PROGRAM: u32 = 0x2000_0001;

/// Length of the header of a call with an AUTH_SYS credential, in bytes.
const CALL_LEN: u32 = 68;

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns data in which each byte depends on its position.
pub(crate) fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 7) ^ (at >> 8)) as u8).collect()
}

fn string(text: &str) -> Vec<u8> {
    let mut out = words(&[text.len() as u32]);
    out.extend(text.as_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Returns the header of a call with an AUTH_SYS credential.
pub(crate) fn call(xid: u32, program: u32, procedure: u32) -> Vec<u8> {
    let mut out = words(&[xid, 0, 2, program, 1, procedure, 1, 28, 7]);
    out.extend(string("host"));
    out.extend(words(&[1000, 100, 1, 4, 0, 0]));
    assert_eq!(out.len(), CALL_LEN as usize);
    out
}

/// Returns the header of a successful reply.
pub(crate) fn reply(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0])
}

pub(crate) fn read_call(xid: u32, count: u32) -> Vec<u8> {
    [call(xid, PROGRAM, READ), string("a.txt"), words(&[0, 4096, count])].concat()
}

/// Returns the reply to READ up to its data.
pub(crate) fn read_reply(xid: u32, len: usize) -> Vec<u8> {
    [reply(xid), words(&[0, 1, len as u32])].concat()
}

/// Returns the call of WRITE up to its data, and the position of the data in the call.
pub(crate) fn write_call(xid: u32, len: usize) -> (Vec<u8>, u32) {
    let call = [call(xid, PROGRAM, WRITE), string("b.txt"), words(&[len as u32])].concat();
    let position = call.len() as u32;
    (call, position)
}

/// Sends messages of version 1: a call with reduced data, a call with a reduced result, a long call, and a long reply.
pub(crate) fn version_1(rdma: &mut dyn Rdma) {
    let none = [0, 0, 0];
    // The Read chunk does not include the padding.
    let (call, position) = write_call(1, 10);
    let chunk = [1, 1, 32, 0, 1, position, 0xaa, 10, 0, 0x1000, 0, 0, 0];
    rdma.send(true, &[words(&chunk), call].concat());
    rdma.read(0xaa, 0x1000, &data(10));
    rdma.send(false, &[words(&[1, 1, 32, 0]), words(&none), reply(1), words(&[0])].concat());

    // A Write chunk of two segments.
    let chunk = |first: u32, second: u32| [0, 1, 2, 0xbb, first, 0, 0x2000, 0xbc, second, 0, 0x9000, 0, 0];
    rdma.send(true, &[words(&[2, 1, 32, 0]), words(&chunk(2000, 2000)), read_call(2, 4000)].concat());
    let contents = data(2500);
    rdma.write(0xbb, 0x2000, &contents[..2000]);
    rdma.write(0xbc, 0x9000, &contents[2000..]);
    rdma.send(false, &[words(&[2, 1, 32, 0]), words(&chunk(2000, 500)), read_reply(2, 2500)].concat());

    // Long messages: the call is in a Read chunk at position 0, the reply in the Reply chunk.
    let call = read_call(3, 8);
    let chunks = |len: u32| [0, 0, 1, 1, 0xdd, len, 0, 0x5000];
    let len = call.len() as u32;
    let lists = [words(&[1, 0, 0xcc, len, 0, 0x4000]), words(&chunks(1000))].concat();
    rdma.send(true, &[words(&[3, 1, 32, 1]), lists].concat());
    rdma.read(0xcc, 0x4000, &call);
    let result = [read_reply(3, 5), b"hello\0\0\0".to_vec()].concat();
    rdma.write(0xdd, 0x5000, &result);
    rdma.send(false, &[words(&[3, 1, 32, 1]), words(&chunks(result.len() as u32))].concat());
}

/// Sends messages of version 2: properties, a call in two messages, a reply with reduced data, and an error.
pub(crate) fn version_2(rdma: &mut dyn Rdma) {
    rdma.send(true, &words(&[0x50, 2, 32, 5, 0, 2, 1, 4, 4096, 5, 4, 1]));
    let call = read_call(0x51, 4000);
    let (first, second) = call.split_at(40);
    let chunk = |len: u32| [0, 0, 1, 1, 0xbb, len, 0, 0x2000, 0, 0];
    rdma.send(true, &[words(&[0x51, 2, 32, 0, 2, 0, 0, 0, 0]), first.to_vec()].concat());
    rdma.send(true, &[words(&[0x51, 2, 32, 0, 0]), words(&chunk(4000)), second.to_vec()].concat());
    rdma.write(0xbb, 0x2000, &data(6));
    rdma.send(false, &[words(&[0x51, 2, 32, 0, 1]), words(&chunk(6)), read_reply(0x51, 6)].concat());
    rdma.send(false, &words(&[0x52, 2, 32, 4, 1, 8, 16]));
}

/// Returns a TCP connection with a call of each procedure and its reply, a call of an unknown program with an error
/// reply, and a denied call.
pub(crate) fn over_tcp() -> Tcp {
    let mut tcp = Tcp::connect();
    tcp.record(true, &read_call(1, 8));
    tcp.record(false, &[read_reply(1, 5), b"hello\0\0\0".to_vec()].concat());
    let (write, _) = write_call(2, 3);
    tcp.record(true, &[write, vec![7, 8, 9, 0]].concat());
    tcp.record(false, &[reply(2), words(&[2])].concat());
    tcp.record(true, &[call(3, 99, 5), words(&[1, 2])].concat());
    tcp.record(false, &words(&[3, 1, 0, 0, 0, 2, 2, 4]));
    tcp.record(true, &read_call(4, 8));
    tcp.record(false, &words(&[4, 1, 1, 1, 5]));
    tcp
}

pub(crate) fn over_iwarp(calls: fn(&mut dyn Rdma)) -> Iwarp {
    let mut iwarp = Iwarp::connect();
    calls(&mut iwarp);
    iwarp
}

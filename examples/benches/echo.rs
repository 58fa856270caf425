//! Echo of 64-byte messages over plain TCP between two threads. Prints the median round-trip time in microseconds.
//!
//! `echo sleeping` uses blocking sockets. `echo polling` polls nonblocking sockets in a loop. `tests/counts/latency`
//! runs both as the baseline for busy polling.
#![allow(clippy::unwrap_used)]

use std::{
    hint::spin_loop,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Instant,
};

const LEN: usize = 64;
const ROUNDS: usize = 20_000;

/// Reads a message. Returns `false` at the end of the stream.
fn receive(stream: &mut TcpStream, message: &mut [u8; LEN]) -> bool {
    let mut len = 0;
    while len < LEN {
        match stream.read(&mut message[len..]) {
            Ok(0) => return false,
            Ok(read) => len += read,
            // Only a polling socket reports that.
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
    true
}

fn main() {
    let polls = match std::env::args().nth(1).as_deref() {
        Some("sleeping") => false,
        Some("polling") => true,
        _ => return println!("usage: echo sleeping|polling"),
    };
    let prepare = move |stream: TcpStream| {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(polls).unwrap();
        stream
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut stream = prepare(listener.accept().unwrap().0);
        let mut message = [0; LEN];
        while receive(&mut stream, &mut message) {
            stream.write_all(&message).unwrap();
        }
    });
    let mut stream = prepare(TcpStream::connect(address).unwrap());
    let mut message = [7; LEN];
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            stream.write_all(&message).unwrap();
            assert!(receive(&mut stream, &mut message));
            started.elapsed()
        })
        .collect();
    drop(stream);
    server.join().unwrap();
    times.sort_unstable();
    println!("{:.1}", times[ROUNDS / 2].as_secs_f64() * 1e6);
}

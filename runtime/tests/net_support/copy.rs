//! A copy of many blocks in both directions, during which contexts expire or the server restarts. Used by the tests
//! with the test mechanism and by the tests with Kerberos.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    collections::BTreeMap,
    env,
    hash::{DefaultHasher, Hasher as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use rpcrdma::{
    client::Channel,
    server::{InboundCall, ReplyFuture, Service},
    service::{Procedure, ReplyBounds},
};
use tokio::sync::{Semaphore, watch};

use super::net_support::*;

/// Length of a block in bytes.
const BLOCK: usize = 1 << 20;

/// Number of concurrent calls.
const CALLS: u32 = 8;

const COPY_PROGRAM: u32 = 0x2000_0779;

/// Hashes of the blocks that were written, by the number of the block.
type Written = Mutex<BTreeMap<u32, u64>>;

/// A server's file. Its contents are computed, and only the hashes of written blocks are kept.
#[derive(Debug, Clone)]
pub struct CopyService {
    contents: Bytes,
    written: Arc<Written>,
}

impl Default for CopyService {
    fn default() -> Self {
        let mut at = 1_u64;
        let words = (0..(BLOCK + 4096) / 8).flat_map(|_| {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            at.to_be_bytes()
        });
        Self { contents: words.collect::<Vec<_>>().into(), written: Arc::default() }
    }
}

impl CopyService {
    /// Returns the contents of block `number`. The contents of successive blocks differ.
    fn block(&self, number: u32) -> Bytes {
        let mut block = self.contents.slice(number as usize % 4096..);
        block.truncate(BLOCK);
        block
    }

    /// Returns the hashes of the first `blocks` blocks.
    fn hashes(&self, blocks: u32) -> BTreeMap<u32, u64> {
        (0..blocks).map(|number| (number, hash(&self.block(number)))).collect()
    }
}

fn hash(block: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(block);
    hasher.finish()
}

/// A procedure that returns a block by its number.
#[derive(Debug)]
pub struct Read;

/// A procedure that writes a block. The arguments are its contents, its number and an empty item.
#[derive(Debug)]
pub struct Write;

impl Procedure for Read {
    const PROGRAM: u32 = COPY_PROGRAM;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "COPY.READ";
    const IDEMPOTENT: bool = true;
    type Args = u32;
    type Reply = Data;

    fn reply_bounds(_: &u32) -> ReplyBounds {
        ReplyBounds::new(4, &[BLOCK as u64])
    }
}

impl Procedure for Write {
    const PROGRAM: u32 = COPY_PROGRAM;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 2;
    const NAME: &'static str = "COPY.WRITE";
    const IDEMPOTENT: bool = true;
    type Args = Two;
    type Reply = u32;

    fn reply_bounds(_: &Two) -> ReplyBounds {
        ReplyBounds::new(4, &[])
    }
}

impl Service for CopyService {
    fn program(&self) -> u32 {
        COPY_PROGRAM
    }

    fn version(&self) -> u32 {
        1
    }

    fn name(&self) -> &'static str {
        "COPY"
    }

    fn dispatch(&self, mut call: InboundCall) -> ReplyFuture {
        let this = self.clone();
        Box::pin(async move {
            if call.procedure() == 1 {
                return match call.decode::<Read>() {
                    Ok(number) => call.finish::<Read>(Ok(Data(this.block(number)))),
                    Err(reply) => reply,
                };
            }
            match call.decode::<Write>() {
                Ok(Two(block, number, _)) => {
                    this.written.lock().unwrap().insert(number, hash(&block));
                    call.finish::<Write>(Ok(number))
                }
                Err(reply) => reply,
            }
        })
    }
}

/// Returns the number of blocks that a test copies: 16, or the value of the environment variable
/// `RPCRDMA_TEST_COPY_MIB`. Each block has 1 MiB.
pub fn blocks() -> u32 {
    env::var("RPCRDMA_TEST_COPY_MIB").ok().map_or(16, |mib| mib.parse().expect("RPCRDMA_TEST_COPY_MIB is a number"))
}

/// The pace of a copy: the test decides how many blocks are copied.
#[derive(Debug)]
pub struct Pace {
    /// One permit for each block that may be copied.
    allowed: Semaphore,
    /// Number of blocks copied so far, in both directions together.
    copied: watch::Sender<u32>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { allowed: Semaphore::new(0), copied: watch::Sender::new(0) }
    }
}

impl Pace {
    /// Allows `blocks` more blocks to be copied.
    pub fn allow(&self, blocks: u32) {
        self.allowed.add_permits(blocks as usize);
    }

    /// Waits until `blocks` blocks were copied, in both directions together.
    pub async fn copied(&self, blocks: u32) {
        self.copied.subscribe().wait_for(|&copied| copied >= blocks).await.unwrap();
    }
}

/// Copies all blocks from the server and back to it, at the given pace. Panics if a call fails or the copy is wrong.
pub async fn copy(channel: &Channel, service: &CopyService, pace: &Arc<Pace>) {
    let blocks = blocks();
    let expected = service.hashes(blocks);
    for is_read in [true, false] {
        let (next, read) = (Arc::new(AtomicU32::new(0)), Arc::new(Written::default()));
        let callers: Vec<_> = (0..CALLS)
            .map(|_| {
                let (channel, service, pace) = (channel.clone(), service.clone(), Arc::clone(pace));
                let (next, read) = (Arc::clone(&next), Arc::clone(&read));
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= blocks {
                            break;
                        }
                        pace.allowed.acquire().await.unwrap().forget();
                        if is_read {
                            let block = call::<Read>(&channel, &number).await.unwrap();
                            read.lock().unwrap().insert(number, hash(&block.0));
                        } else {
                            let block = Two(service.block(number), number, Bytes::new());
                            assert_eq!(call::<Write>(&channel, &block).await.unwrap(), number);
                        }
                        pace.copied.send_modify(|copied| *copied += 1);
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        let copied = if is_read { &read } else { &service.written };
        assert!(*copied.lock().unwrap() == expected, "the copy differs from the original, read: {is_read}");
    }
}

/// Copies as [`copy`] does, and executes `event` eight times during the copy.
pub async fn copy_with_events(channel: &Channel, service: &CopyService, mut event: impl AsyncFnMut()) {
    let (pace, step) = (Arc::new(Pace::default()), blocks() / 4);
    let events = async {
        for copied in (0..8).map(|number| number * step) {
            pace.allow(step);
            pace.copied(copied + step / 2).await;
            event().await;
            // So that each call sees one event.
            pace.copied(copied + step).await;
        }
        pace.allow(2 * blocks() - 8 * step);
    };
    tokio::join!(copy(channel, service, &pace), events);
}

//! The services of the servers and of the clients in a run.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::server::{Context, HandlerError};

use crate::protocol::{
    Loaded, Numbers, Stored, Wanted,
    fuzzed_back_v1::{FuzzedBackV1, FuzzedBackV1Client},
    fuzzed_v1::FuzzedV1,
};

/// Maximum time that a handler waits, in milliseconds.
const MAX_WAIT: u32 = 2000;
/// Maximum number of bytes of data in a reply.
const MAX_LEN: u32 = 16384;
/// Maximum length of the list of numbers in a reply.
const MAX_COUNT: u32 = 4096;

/// Returns `len` bytes of data that depend on `seed`.
pub(crate) fn data(seed: u32, len: u32) -> Bytes {
    (0..len).map(|index| (seed as u8).wrapping_mul(37).wrapping_add((index ^ (index >> 8)) as u8)).collect()
}

pub(crate) fn checksum(key: u32, data: &[u8]) -> u32 {
    data.iter().fold(key, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)))
}

/// The service of a server, which hostile and healthy clients call.
#[derive(Debug, Clone)]
pub(crate) struct FuzzedService;

impl FuzzedV1 for FuzzedService {
    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn put(&self, _cx: &Context, args: Stored) -> Result<u32, HandlerError> {
        Ok(checksum(args.key, &args.data))
    }

    async fn get(&self, cx: &Context, args: Wanted) -> Result<Loaded, HandlerError> {
        let len = args.len.min(MAX_LEN);
        cx.reserve_results(len.into()).await?;
        Ok(Loaded { seed: args.seed, data: data(args.seed, len) })
    }

    async fn sum(&self, _cx: &Context, numbers: Numbers) -> Result<u64, HandlerError> {
        Ok(numbers.iter().copied().map(u64::from).sum())
    }

    async fn count(&self, _cx: &Context, limit: u32) -> Result<Numbers, HandlerError> {
        Ok((1..=limit.min(MAX_COUNT)).collect::<Vec<_>>().into())
    }

    async fn ask_back(&self, cx: &Context, number: u32) -> Result<u64, HandlerError> {
        let back: FuzzedBackV1Client = FuzzedBackV1Client::new(cx.callback());
        Ok(back.double(number).await?)
    }

    async fn wait(&self, _cx: &Context, millis: u32) -> Result<(), HandlerError> {
        tokio::time::sleep(Duration::from_millis(millis.min(MAX_WAIT).into())).await;
        Ok(())
    }
}

/// The service that clients offer to their server.
#[derive(Debug, Clone)]
pub(crate) struct FuzzedBackService;

impl FuzzedBackV1 for FuzzedBackService {
    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn double(&self, _cx: &Context, number: u32) -> Result<u64, HandlerError> {
        Ok(u64::from(number) * 2)
    }
}

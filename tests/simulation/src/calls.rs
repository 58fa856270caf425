//! The calls that clients make with the generated client types.

use std::fmt::Debug;

use bytes::Bytes;
use rpcrdma::{CallError, CallOptions, client::Invoke, error::CallFailure, rpc::RpcError};
use rpcrdma_specs::nfs3::nfs_v3::NfsV3Client;

use crate::{
    files::{self, FileReply},
    generated,
    history::FailureCause,
    protocol::{Addition, BlobPut, simulated_v1::SimulatedV1Client},
    scenario::{CallKind, Operation},
};

/// Returns the data of a version of a blob: `len` bytes that follow from `version`.
#[must_use]
pub fn data(version: u64, len: u32) -> Bytes {
    (0..len).map(|index| (version as u8).wrapping_mul(37).wrapping_add((index ^ (index >> 8)) as u8)).collect()
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallReply {
    /// A number, for example a sum, the value of a counter, or the version of a blob whose data is correct.
    Number(u64),
    /// The result of a call to the NFS service.
    File(FileReply),
}

/// The generated clients of one caller, for example of a channel.
#[derive(Debug, Clone)]
pub(crate) struct Stubs<C> {
    simulated: SimulatedV1Client<C>,
    files: NfsV3Client<C>,
    caller: C,
}

impl<C: Invoke + Clone> Stubs<C> {
    pub(crate) fn new(caller: C) -> Self {
        Self { simulated: SimulatedV1Client::new(caller.clone()), files: NfsV3Client::new(caller.clone()), caller }
    }

    /// Makes a call. The inner error describes what is wrong with the reply.
    pub(crate) async fn call(
        &self,
        operation: &Operation,
        options: CallOptions,
    ) -> Result<Result<CallReply, String>, CallError> {
        let client = &self.simulated;
        let number = match operation.call {
            CallKind::File { directory, block_len, call } => {
                let called = Box::pin(files::call(&self.files, directory, call, block_len, options)).await?;
                return Ok(called.map(CallReply::File));
            }
            CallKind::Generated { protocol, procedure, seed } => {
                generated::call(self.caller.clone(), protocol, procedure, seed, options).await?
            }
            CallKind::Null => client.null_with(options).await.map(|()| Ok(0))?,
            CallKind::Add { counter, amount } => {
                Ok(client.add_with(&Addition { counter, operation: operation.number, amount }, options).await?)
            }
            CallKind::Value { counter } => Ok(client.value_with(counter, options).await?),
            CallKind::Put { key, len } => {
                let (version, data) = (operation.number, data(operation.number, len));
                let stored = client.put_with(&BlobPut { key, version, data }, options).await?;
                if stored >= version { Ok(version) } else { Err(format!("version {stored} is stored")) }
            }
            CallKind::Get { key } => {
                let blob = client.get_with(key, options).await?;
                let len = blob.data.len() as u32;
                if blob.version == 0 && len == 0 || blob.data == data(blob.version, len) {
                    Ok(blob.version)
                } else {
                    Err(format!("the {len} bytes are not those of version {}", blob.version))
                }
            }
            CallKind::Sum { limit } => {
                let numbers = (1..=limit).collect::<Vec<_>>().into();
                let expected = u64::from(limit) * (u64::from(limit) + 1) / 2;
                let sum = client.sum_with(&numbers, options).await?;
                if sum == expected { Ok(sum) } else { Err(format!("the sum {sum} is wrong")) }
            }
            CallKind::Count { limit } => {
                let numbers = client.count_with(limit, options).await?;
                if numbers.iter().copied().eq(1..=limit) {
                    Ok(u64::from(limit))
                } else {
                    Err(format!("{} numbers are wrong", numbers.len()))
                }
            }
            CallKind::AskBack { number } => {
                let doubled = client.ask_back_with(number, options).await?;
                if doubled == 2 * u64::from(number) { Ok(doubled) } else { Err(format!("{doubled} is wrong")) }
            }
        };
        Ok(number.map(CallReply::Number))
    }
}

/// Returns the category of a failed call's error.
pub(crate) fn cause(error: &CallError) -> FailureCause {
    match error {
        // A server without memory for a call replies with ERR_CHUNK (RFC 8166 §4.5.3) or RDMA2_ERR_SYSTEM.
        CallError::Transport {
            failure: CallFailure::Registration(_) | CallFailure::ChunkError | CallFailure::Refused(_),
            ..
        } => FailureCause::Registration,
        CallError::Transport {
            failure: CallFailure::Closed { .. } | CallFailure::DeadlineExceeded { .. } | CallFailure::Cancelled { .. },
            ..
        }
        | CallError::Connect { .. }
        | CallError::Middleware { .. }
        | CallError::Rpc { source: RpcError::HandlerTimedOut, .. } => FailureCause::Unreachable,
        CallError::Security { .. } => FailureCause::Security,
        CallError::Rpc { source: RpcError::Unavailable, .. } => FailureCause::Unavailable,
        CallError::Rpc { source: RpcError::SystemError, .. } => FailureCause::SystemError,
        _ => FailureCause::Other,
    }
}

/// Formats an error with its causes.
pub(crate) fn chain(error: &CallError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the name of the variant of the enum `value`.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Describes the failure of a call. The description contains the names of the error's variants, but no details.
pub(crate) fn symptom(error: &CallError) -> String {
    let cause = match error {
        CallError::Transport { failure: CallFailure::Closed { reason, .. }, .. } => {
            format!("Closed by {}", variant(reason))
        }
        CallError::Transport { failure, .. } => variant(failure),
        CallError::Connect { error, .. } => variant(error),
        CallError::Rpc { source, .. } => variant(source),
        CallError::Security { source, .. } => variant(source),
        _ => String::new(),
    };
    format!("call failed, {} {cause}", variant(error)).trim_end().to_owned()
}

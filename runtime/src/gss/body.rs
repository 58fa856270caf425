//! Protected arguments and results (RFC 2203 §5.3.2.2, §5.3.2.3, §5.3.3.2).

use std::sync::Arc;

use bytes::Bytes;

use super::{
    mechanism::{GssContext, GssError},
    wire::{RpcGssDataT, RpcGssIntegData, RpcGssPrivData},
};
use crate::{
    security::{BlockingQueue, Protection, ProtectionLevel, SecurityError, UnwrapError},
    xdr::{DecodeError, Decoder, XdrDecode, padded_len},
};

/// Length in bytes of the sequence number before a protected body.
const SEQUENCE_LEN: usize = 4;

/// The protection of the arguments and the results of one call. The sequence number of the call is part of the
/// protected bodies.
#[derive(Debug)]
pub(super) struct BodyProtection {
    context: Arc<dyn GssContext>,
    queue: BlockingQueue,
    sequence: u32,
    is_private: bool,
}

impl BodyProtection {
    /// Returns the protection of a call. `None` if only its header is protected.
    pub(super) fn of(
        context: &Arc<dyn GssContext>,
        queue: &BlockingQueue,
        sequence: u32,
        level: ProtectionLevel,
    ) -> Option<Arc<dyn Protection>> {
        let is_private = match level {
            ProtectionLevel::Authentication => return None,
            ProtectionLevel::Integrity => false,
            ProtectionLevel::Privacy => true,
        };
        Some(Arc::new(Self { context: Arc::clone(context), queue: queue.clone(), sequence, is_private }))
    }

    /// Removes the sequence number from a body that was unwrapped. Fails if the body is too short for a sequence
    /// number, or has the sequence number of another call.
    // RFC 2203 §5.3.3.1: the number is that of the credential.
    fn strip(&self, data: Bytes) -> Result<Bytes, SecurityError> {
        let mut decoder = Decoder::new(&data);
        let RpcGssDataT { seq_num } = decoder.read().map_err(malformed)?;
        if seq_num != self.sequence {
            let expected = self.sequence;
            return Err(SecurityError(format!(
                "the protected body has sequence number {seq_num}, expected {expected}"
            )));
        }
        Ok(data.slice(decoder.consumed()..))
    }
}

impl Protection for BodyProtection {
    fn wrap(&self, body: Bytes) -> Result<Bytes, SecurityError> {
        let data_len = body.len().saturating_add(SEQUENCE_LEN);
        if self.is_private {
            let mut data = Vec::with_capacity(data_len);
            data.extend_from_slice(&self.sequence.to_be_bytes());
            data.extend_from_slice(&body);
            let wrapped = self.context.wrap(&data).map_err(|error| failed("a body cannot be encrypted", &error))?;
            let mut out = Vec::with_capacity(wrapped.len() + 8);
            put_opaque(&mut out, &wrapped)?;
            return Ok(out.into());
        }
        let mut out = Vec::with_capacity(data_len + 16 + padded_len(self.context.max_mic()));
        out.extend_from_slice(&length(data_len)?);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&body);
        let data = out.get(4..).unwrap_or_default();
        let mic = self.context.get_mic(data).map_err(|error| failed("a body cannot be signed", &error))?;
        out.resize(padded_len(out.len()), 0);
        put_opaque(&mut out, &mic)?;
        Ok(out.into())
    }

    fn unwrap(&self, body: Bytes) -> Result<Bytes, UnwrapError> {
        if self.is_private {
            let RpcGssPrivData { databody_priv } = decode(&body).map_err(malformed)?;
            let data = self.context.unwrap(&databody_priv);
            let data = data.map_err(|error| refused("a body cannot be decrypted", &error))?;
            return Ok(self.strip(data.into())?);
        }
        let RpcGssIntegData { databody_integ, checksum } = decode(&body).map_err(malformed)?;
        let checked = self.context.verify_mic(&databody_integ, &checksum);
        checked.map_err(|error| refused("the checksum of a body is wrong", &error))?;
        Ok(self.strip(databody_integ)?)
    }

    fn max_wrapped(&self, len: u64) -> u64 {
        let data = len.saturating_add(4);
        if self.is_private {
            padded(self.context.max_wrapped(data)).saturating_add(4)
        } else {
            padded(data).saturating_add(8).saturating_add(padded(self.context.max_mic() as u64))
        }
    }

    fn queue(&self) -> BlockingQueue {
        self.queue.clone()
    }
}

fn decode<T: XdrDecode>(body: &Bytes) -> Result<T, DecodeError> {
    let mut decoder = Decoder::shared(body);
    let value = decoder.read()?;
    decoder.finish()?;
    Ok(value)
}

fn padded(len: u64) -> u64 {
    len.checked_next_multiple_of(4).unwrap_or(u64::MAX)
}

fn length(len: usize) -> Result<[u8; 4], SecurityError> {
    let len = u32::try_from(len).map_err(|_| SecurityError("a protected body is longer than 4 GiB".into()))?;
    Ok(len.to_be_bytes())
}

/// Appends variable-length opaque data (RFC 4506 §4.10).
fn put_opaque(out: &mut Vec<u8>, data: &[u8]) -> Result<(), SecurityError> {
    out.extend_from_slice(&length(data.len())?);
    out.extend_from_slice(data);
    out.resize(out.len() + (padded_len(data.len()) - data.len()), 0);
    Ok(())
}

fn malformed(error: DecodeError) -> SecurityError {
    SecurityError(format!("a protected body is malformed: {error}"))
}

fn refused(what: &str, error: &GssError) -> UnwrapError {
    if error.is_expired() { UnwrapError::Expired } else { failed(what, error).into() }
}

fn failed(what: &str, error: &GssError) -> SecurityError {
    SecurityError(format!("{what}: {error}"))
}

//! Recorded replies, and the identity of the calls that they belong to.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::{BufMut as _, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use smallvec::SmallVec;

use super::encoded_value::{EncodedItem, EncodedValue};
use crate::{
    rpc::Credential,
    security::Principal,
    service::Procedure,
    xdr::{DecodeError, DecodeErrorKind, Decoder, EncodeError, FlatSink, ReadChunk, XdrEncode, pad_len, padded_len},
};

/// Maximum number of bytes at the start of the arguments that the checksum of a call covers. Inline arguments of the
/// default size are covered completely.
const MAX_CHECKED_LEN: u64 = 4096;

/// Length in bytes up to which recorded items are copied. A longer item is kept by reference, together with the whole
/// buffer that it is a part of.
const MAX_COPIED_LEN: usize = 4096;

/// The version of the format of [`RequestKey::to_bytes`] and [`RecordedReply::to_bytes`].
const FORMAT: u32 = 1;

/// The identity of a call, by which a server recognizes a call that a client sends again.
///
/// The key consists of the client's identity, the XID, program, version and procedure, the length of the encoded
/// arguments, and a checksum (CRC-64/NVME) of their first 4 KiB. Arguments in Read chunks count as if they were inline,
/// so the key does not depend on the message format, which may differ when a call is sent again.
///
/// The client's identity is its IP address together with the [principal](super::Context::principal) that a security
/// flavor has authenticated. Without a principal, it is the address with the machine name, the stamp and the user ID of
/// AUTH_SYS (RFC 5531 appendix A), or the address alone. The port is not part of it, because it changes with each
/// connection.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    arguments_len: u64,
    checksum: u64,
    client: SmallVec<[u8; 48]>,
}

impl RequestKey {
    pub(crate) fn new(
        xid: u32,
        (program, version, procedure): (u32, u32, u32),
        arguments: ArgumentsDigest,
        client: SmallVec<[u8; 48]>,
    ) -> Self {
        let ArgumentsDigest { len: arguments_len, checksum } = arguments;
        Self { xid, program, version, procedure, arguments_len, checksum, client }
    }

    /// Returns the XID of the call.
    #[must_use]
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the program number.
    #[must_use]
    pub fn program(&self) -> u32 {
        self.program
    }

    /// Returns the program version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the procedure number.
    #[must_use]
    pub fn procedure(&self) -> u32 {
        self.procedure
    }

    /// Returns the key as bytes, for a store. Equal keys have equal bytes, and different keys have different bytes,
    /// also in later runs of the server. The key is at most 61 bytes longer than the machine name or the principal.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(36 + self.client.len());
        for word in [FORMAT, self.xid, self.program, self.version, self.procedure] {
            bytes.put_u32(word);
        }
        bytes.put_u64(self.arguments_len);
        bytes.put_u64(self.checksum);
        bytes.extend_from_slice(&self.client);
        bytes
    }

    /// Returns the client's group and its identity in the group, by which a cache shares its room among clients. The
    /// group is the principal or, without one, the address. Of an IPv6 address, only the first 64 bits count, because a
    /// host can choose the other bits freely.
    pub(crate) fn client(&self) -> (&[u8], &[u8]) {
        let identity = &*self.client;
        let (address, rest) = identity.split_at_checked(ADDRESS_LEN).unwrap_or((identity, &[]));
        match rest {
            [PRINCIPAL, name @ ..] => (name, name),
            _ if address.starts_with(&V4_MAPPED) => (address, identity),
            _ => (address.get(..ADDRESS_LEN / 2).unwrap_or(address), identity),
        }
    }

    /// Returns the memory that the key has allocated on the heap, in bytes.
    fn spilled(&self) -> u64 {
        if self.client.spilled() { self.client.capacity() as u64 } else { 0 }
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestKey")
            .field("xid", &self.xid)
            .field("program", &self.program)
            .field("version", &self.version)
            .field("procedure", &self.procedure)
            .finish_non_exhaustive()
    }
}

/// Length of an address in the identity of a client, in bytes.
const ADDRESS_LEN: usize = 16;
/// The first bytes of an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2).
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
/// The byte before the name of a principal in the identity of a client.
const PRINCIPAL: u8 = 2;

/// Returns the identity of a client as bytes. With `ignores_stamp`, the stamp of AUTH_SYS is not part of it.
pub(crate) fn client_identity(
    address: IpAddr,
    credential: &Credential,
    principal: Option<&Principal>,
    ignores_stamp: bool,
) -> SmallVec<[u8; 48]> {
    let mapped = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut identity = SmallVec::from_slice(&mapped.to_bits().to_be_bytes());
    match (principal, credential) {
        (Some(principal), _) => {
            identity.push(PRINCIPAL);
            identity.extend_from_slice(principal.name.as_bytes());
        }
        (None, Credential::Sys(parms)) => {
            identity.push(1);
            let stamp = if ignores_stamp { 0 } else { parms.stamp };
            identity.extend_from_slice(&stamp.to_be_bytes());
            identity.extend_from_slice(&parms.uid.to_be_bytes());
            identity.extend_from_slice(parms.machinename.as_bytes());
        }
        (None, _) => identity.push(0),
    }
    identity
}

/// The length of encoded arguments, and the checksum of their start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArgumentsDigest {
    len: u64,
    checksum: u64,
}

impl ArgumentsDigest {
    /// Computes the digest of the arguments that begin at `at` in the payload stream `message`. The contents of Read
    /// chunks count at their positions (RFC 8166 §3.4.5), with their padding.
    pub(crate) fn new(message: &[u8], at: usize, reads: &[ReadChunk]) -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut len = 0_u64;
        let mut add = |bytes: &[u8]| {
            let room = usize::try_from(MAX_CHECKED_LEN.saturating_sub(len)).unwrap_or(usize::MAX);
            digest.update(bytes.get(..room).unwrap_or(bytes));
            len += bytes.len() as u64;
            len
        };
        let mut rest = message.get(at..).unwrap_or_default();
        // The position in the unreduced stream.
        let mut position = at as u64;
        for chunk in reads {
            let gap = u64::from(chunk.position).saturating_sub(position);
            let (before, after) = rest.split_at(usize::try_from(gap).unwrap_or(usize::MAX).min(rest.len()));
            add(before);
            rest = after;
            add(&chunk.data);
            // RFC 8166 §3.4.4.4: requesters may leave the padding out.
            add(&[0; 3][..pad_len(chunk.data.len())]);
            position += gap + padded_len(chunk.data.len()) as u64;
        }
        let len = add(rest);
        Self { len, checksum: digest.finalize() }
    }
}

/// A successful or failed reply without its header, from which the reply to a repeated call is built.
///
/// Eligible results of more than 4 KiB are separate `Bytes`, so recording and sending them again does not copy them.
/// The reply to a repeated call is reduced into the chunks that this call provides, and gets a new verifier and new
/// protection.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordedReply(Outcome);

#[derive(Clone, PartialEq, Eq)]
enum Outcome {
    Results(EncodedValue),
    /// The reply is SYSTEM_ERR.
    SystemError,
}

impl RecordedReply {
    /// Records the successful reply of procedure `P` with this result.
    ///
    /// # Errors
    /// Returns an error if the result exceeds a bound of its XDR declaration, or is nested too deeply.
    pub fn of<P: Procedure>(result: &P::Reply) -> Result<Self, EncodeError> {
        Self::success(result)
    }

    pub(crate) fn system_error() -> Self {
        Self(Outcome::SystemError)
    }

    /// Records a successful reply with this result.
    ///
    /// # Errors
    /// Returns an error if the result exceeds a bound of its XDR declaration, or is nested too deeply.
    pub(crate) fn success(result: &(impl XdrEncode + ?Sized)) -> Result<Self, EncodeError> {
        encode_results(result).map(Self::of_results)
    }

    /// Creates a successful reply from the value that [`encode_results`] has returned.
    pub(super) fn of_results(results: EncodedValue) -> Self {
        Self(Outcome::Results(results))
    }

    /// Returns the results of a successful reply. `None` stands for SYSTEM_ERR.
    pub(crate) fn results(&self) -> Option<&EncodedValue> {
        match &self.0 {
            Outcome::Results(results) => Some(results),
            Outcome::SystemError => None,
        }
    }

    /// Returns `true` if the reply has results, and `false` if it is SYSTEM_ERR.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.results().is_some()
    }

    /// Decodes the result of a successful reply of procedure `P`. `None` if the reply is SYSTEM_ERR. Eligible results
    /// are copied.
    ///
    /// # Errors
    /// Returns an error if the results cannot be decoded, for example because the reply belongs to another procedure.
    pub fn decode<P: Procedure>(&self) -> Result<Option<P::Reply>, DecodeError> {
        let Some(results) = self.results() else { return Ok(None) };
        let mut flat = Vec::with_capacity(results.encoded_len());
        // The items come from an encoding within its bounds, so this cannot fail.
        let _ = results.encode(&mut FlatSink::new(&mut flat));
        let flat = Bytes::from(flat);
        let mut decoder = Decoder::shared(&flat);
        let result = decoder.read()?;
        decoder.finish()?;
        Ok(Some(result))
    }

    /// Returns the length of the encoded results in bytes, eligible items included. Returns 0 for SYSTEM_ERR.
    #[must_use]
    pub fn result_len(&self) -> u64 {
        self.results().map_or(0, |results| results.encoded_len() as u64)
    }

    /// Returns the reply as bytes, for a store. Eligible results are copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let Some(EncodedValue { stream, items }) = self.results() else {
            return [[0, 0, 0, 1_u8], [0, 0, 0, 1]].concat().into();
        };
        let mut bytes =
            BytesMut::with_capacity(64 + stream.len() + items.iter().map(|item| item.data.len()).sum::<usize>());
        bytes.put_u32(FORMAT);
        bytes.put_u32(0);
        bytes.put_u32(items.len() as u32);
        for item in items {
            bytes.put_u32(item.at as u32);
            bytes.put_u32(item.data.len() as u32);
        }
        for item in items {
            bytes.put_slice(&item.data);
            bytes.put_bytes(0, pad_len(item.data.len()));
        }
        bytes.put_slice(stream);
        bytes.freeze()
    }

    /// Decodes a reply from the output of [`to_bytes`](Self::to_bytes). Its results are views of `bytes`.
    ///
    /// # Errors
    /// Returns an error if `bytes` have another format, or end before the last eligible item is complete. A truncation
    /// after that item is not detected.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::shared(bytes);
        let (format, status): (u32, u32) = (decoder.read()?, decoder.read()?);
        match (format, status) {
            (FORMAT, 0) => {}
            (FORMAT, 1) => return Ok(Self::system_error()),
            (FORMAT, other) | (other, _) => {
                let value = i64::from(other);
                return Err(decoder.error(DecodeErrorKind::UnknownDiscriminant { name: "RecordedReply", value }));
            }
        }
        let count: u32 = decoder.read()?;
        let mut places = SmallVec::<[(u32, u32); 2]>::new();
        for _ in 0..count {
            places.push((decoder.read()?, decoder.read()?));
        }
        let mut items = SmallVec::new();
        for (at, len) in places {
            let from = decoder.consumed();
            decoder.take(padded_len(len as usize))?;
            items.push(EncodedItem { at: at as usize, data: bytes.slice(from..from + len as usize) });
        }
        let stream = bytes.slice(decoder.consumed()..);
        Ok(Self(Outcome::Results(EncodedValue { stream, items })))
    }

    /// Returns the memory that the reply uses, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let data = self.results().map_or(0, |EncodedValue { stream, items }| {
            let spilled = if items.spilled() { items.capacity() * size_of::<EncodedItem>() } else { 0 };
            spilled + stream.len() + items.iter().map(|item| item.data.len()).sum::<usize>()
        });
        (size_of::<Self>() + data) as u64
    }
}

impl fmt::Debug for RecordedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedReply")
            .field("is_success", &self.is_success())
            .field("result_len", &self.result_len())
            .finish_non_exhaustive()
    }
}

/// Encodes results for a recorded reply.
pub(super) fn encode_results(result: &(impl XdrEncode + ?Sized)) -> Result<EncodedValue, EncodeError> {
    EncodedValue::new(result, MAX_COPIED_LEN)
}

/// A call whose reply is recorded.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    pub(crate) key: RequestKey,
    reply: Mutex<Option<RecordedReply>>,
    had_no_effect: AtomicBool,
}

impl RecordedCall {
    pub(crate) fn new(key: RequestKey) -> Self {
        Self { key, reply: Mutex::new(None), had_no_effect: AtomicBool::new(false) }
    }

    /// Returns the memory used by this record, in bytes. The recorded reply is not included.
    pub(crate) fn size(&self) -> u64 {
        size_of::<Self>() as u64 + self.key.spilled()
    }

    /// Records that the call failed before it had an effect.
    pub(crate) fn had_no_effect(&self) {
        self.had_no_effect.store(true, Ordering::Relaxed);
    }

    /// Records the reply to the call, unless the call had no effect.
    pub(crate) fn record(&self, reply: RecordedReply) {
        if self.had_no_effect.load(Ordering::Relaxed) {
            return;
        }
        *self.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
    }

    /// Takes the recorded reply. `None` if no reply was recorded, for example because the call was not executed to its
    /// end.
    pub(crate) fn take(&self) -> Option<RecordedReply> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns the key of a call without arguments.
#[cfg(test)]
pub(crate) fn recorded_key(
    xid: u32,
    address: &str,
    credential: &Credential,
    principal: Option<&Principal>,
    ignores_stamp: bool,
) -> RequestKey {
    #![allow(clippy::unwrap_used)]
    let client = client_identity(address.parse().unwrap(), credential, principal, ignores_stamp);
    RequestKey::new(xid, (7, 1, 1), ArgumentsDigest::new(&[], 0, &[]), client)
}

#[cfg(test)]
mod tests;

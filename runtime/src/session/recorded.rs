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

/// Number of bytes at the start of the arguments that the checksum of a call covers. Inline arguments of the default size are
/// covered completely.
const MAX_CHECKED_LEN: u64 = 4096;

/// Length in bytes up to which recorded items are copied. A longer item is kept by reference, together with the whole buffer that it
/// is a part of.
const MAX_COPIED_LEN: usize = 4096;

/// The version of [`RequestKey::to_bytes`] and [`RecordedReply::to_bytes`].
const FORMAT: u32 = 1;

/// The identity of a call, by which a server recognizes a call that a client sends again.
///
/// The key consists of the client's identity, the XID, program, version and procedure, the length of the encoded arguments, and a
/// checksum (CRC-64/NVME) of their first 4 KiB. Arguments in Read chunks count as if they were inline, so the key does not depend
/// on the message format, which may differ when a call is sent again.
///
/// The client's identity is its IP address together with the [principal](super::Context::principal) that a security flavor has
/// authenticated. Without one it is the address with the machine name, the stamp and the user ID of AUTH_SYS (RFC 5531 appendix
/// A), or the address alone. The port is not part of it, because it changes with each connection.
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

    /// Returns the key as bytes, for a store. Equal keys have equal bytes, and different keys have different bytes, also in later
    /// runs of the server. The length is at most 60 bytes more than that of the machine name or the principal.
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

    /// Returns what identifies the client for its share in the room for replies: the group to which it belongs, which is its
    /// principal or its address, and its identity in the group. A host chooses an IPv6 address freely within a prefix of 64 bits.
    pub(crate) fn client(&self) -> (&[u8], &[u8]) {
        let identity = &*self.client;
        let (address, rest) = identity.split_at_checked(ADDRESS_LEN).unwrap_or((identity, &[]));
        match rest {
            [PRINCIPAL, name @ ..] => (name, name),
            _ if address.starts_with(&V4_MAPPED) => (address, identity),
            _ => (address.get(..ADDRESS_LEN / 2).unwrap_or(address), identity),
        }
    }

    /// Returns the memory that the key has allocated, in bytes.
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
    /// Computes the digest of the arguments that begin at `at` in the payload stream `message`. The contents of Read chunks
    /// count at their positions (RFC 8166 §3.4.5), with their padding.
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

/// A successful or failed reply without its header, from which the reply to a repeated call is made.
///
/// Eligible results of more than 4 KiB are separate `Bytes`, so recording and sending them again does not copy them. The reply to a repeated call is
/// reduced into the chunks that this call provides, and gets a new verifier and new protection.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordedReply(Outcome);

#[derive(Clone, PartialEq, Eq)]
enum Outcome {
    Results(EncodedValue),
    /// SYSTEM_ERR.
    SystemError,
}

impl RecordedReply {
    /// Records the successful reply of procedure `P` with this result.
    ///
    /// # Errors
    /// Returns an error if the result exceeds a bound of its XDR declaration.
    pub fn of<P: Procedure>(result: &P::Reply) -> Result<Self, EncodeError> {
        Self::success(result)
    }

    pub(crate) fn system_error() -> Self {
        Self(Outcome::SystemError)
    }

    /// Records a successful reply with this result.
    ///
    /// # Errors
    /// Returns an error if the result exceeds a bound of its XDR declaration.
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

    /// Returns `false` if the reply is SYSTEM_ERR.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.results().is_some()
    }

    /// Decodes the result of a successful reply of procedure `P`. `None` if the reply is SYSTEM_ERR. Eligible results are copied.
    ///
    /// # Errors
    /// Returns an error if the reply belongs to another procedure.
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

    /// Returns the length of the encoded results in bytes, eligible items included.
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

    /// Returns the reply that [`to_bytes`](Self::to_bytes) has returned. Its results are views of `bytes`.
    ///
    /// # Errors
    /// Returns an error if `bytes` are incomplete, or not such a reply.
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

    /// Returns the memory that the call uses without a reply, in bytes.
    pub(crate) fn size(&self) -> u64 {
        size_of::<Self>() as u64 + self.key.spilled()
    }

    /// Sets that the call has failed before it had an effect.
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

    /// Takes the recorded reply. `None` if the call was not executed to its end.
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        security::ProtectionLevel,
        xdr::{ReducingSink, Sink, UNBOUNDED, XdrType, put_ddp_opaque},
    };

    /// `struct { unsigned int n; @ddp opaque a<>; @ddp opaque b<>; unsigned int last; }`
    struct TwoItems(Bytes, Bytes);

    impl XdrType for TwoItems {
        const MIN_LEN: usize = 16;
        const MAX_LEN: Option<u64> = None;
        const MAX_INLINE: Option<u64> = Some(16);
        const MAX_DDP_ITEMS: Option<u32> = Some(2);
    }

    impl XdrEncode for TwoItems {
        fn encoded_len(&self) -> usize {
            16 + padded_len(self.0.len()) + padded_len(self.1.len())
        }

        fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
            sink.put_u32(1);
            put_ddp_opaque(sink, &self.0, UNBOUNDED)?;
            put_ddp_opaque(sink, &self.1, UNBOUNDED)?;
            sink.put_u32(2);
            Ok(())
        }
    }

    /// Encodes a value for these Write chunks. Returns the stream and the reduced items.
    fn reduced(value: &impl XdrEncode, chunks: &[bool]) -> (Vec<u8>, Vec<(u64, usize, Bytes)>) {
        let mut stream = Vec::new();
        let mut sink = ReducingSink::for_reply(&mut stream, chunks.iter().copied());
        value.encode(&mut sink).unwrap();
        let (items, _) = sink.finish();
        (stream, items.into_iter().map(|item| (item.position, item.chunk, item.data)).collect())
    }

    /// A recorded result is encoded as the original for any chunks, also after it was stored.
    #[test]
    fn recorded_results_are_reduced_again() {
        let contents: [&[u8]; 3] = [b"", b"abcde", b"12345678"];
        for (a, b) in contents.into_iter().flat_map(|a| contents.map(|b| (a, b))) {
            let original = TwoItems(Bytes::from_static(a), Bytes::from_static(b));
            let recorded = RecordedReply::success(&original).unwrap();
            let stored = RecordedReply::from_bytes(&recorded.to_bytes()).unwrap();
            assert_eq!(stored, recorded);
            assert_eq!(stored.result_len(), original.encoded_len() as u64);
            for chunks in [&[][..], &[true], &[false, true], &[true, true], &[true, false, true]] {
                for reply in [&recorded, &stored] {
                    assert_eq!(reduced(reply.results().unwrap(), chunks), reduced(&original, chunks), "{chunks:?}");
                }
            }
        }
    }

    #[test]
    fn results_are_decoded() {
        struct Name;
        impl Procedure for Name {
            const PROGRAM: u32 = 7;
            const VERSION: u32 = 1;
            const NUMBER: u32 = 1;
            const NAME: &'static str = "TEST.NAME";
            type Args = ();
            type Reply = Bytes;
            fn reply_bounds(_: &()) -> crate::service::ReplyBounds {
                crate::service::ReplyBounds::default()
            }
        }
        let text = Bytes::from_static(b"hello");
        assert_eq!(RecordedReply::of::<Name>(&text).unwrap().decode::<Name>(), Ok(Some(text)));
        assert_eq!(RecordedReply::system_error().decode::<Name>(), Ok(None));
        let other = RecordedReply::success(&7_u64).unwrap();
        assert!(other.decode::<Name>().is_err());
    }

    #[test]
    fn long_eligible_results_are_not_copied() {
        let data = Bytes::from(vec![7; 4097]);
        let recorded = RecordedReply::success(&TwoItems(data.clone(), Bytes::new())).unwrap();
        let (_, items) = reduced(recorded.results().unwrap(), &[true, true]);
        assert_eq!(items[0].2.as_ptr(), data.as_ptr());
    }

    /// A short part of a long buffer does not keep the buffer, and the memory of every item is counted.
    #[test]
    fn short_eligible_results_do_not_keep_their_buffers() {
        let buffer = Bytes::from(vec![7; 1 << 20]);
        let recorded = RecordedReply::success(&TwoItems(buffer.slice(..100), buffer.slice(100..4196))).unwrap();
        assert!(buffer.is_unique());
        let size = recorded.size();
        let items = 2 * size_of::<EncodedItem>();
        assert!(size >= (size_of::<RecordedReply>() + items + 100 + 4096) as u64, "{size}");
    }

    #[test]
    fn stored_replies_are_checked() {
        let error = RecordedReply::system_error();
        assert_eq!(RecordedReply::from_bytes(&error.to_bytes()).unwrap(), error);
        let results = TwoItems(Bytes::from_static(b"abc"), Bytes::from_static(b"12"));
        let whole = RecordedReply::success(&results).unwrap().to_bytes();
        // The stream at the end has no length of its own, and is 16 bytes long.
        for len in 0..whole.len() - 16 {
            assert!(RecordedReply::from_bytes(&whole.slice(..len)).is_err(), "{len}");
        }
        for (at, value) in [(3, 2), (7, 2), (11, 0xff)] {
            let mut changed = whole.to_vec();
            changed[at] = value;
            assert!(RecordedReply::from_bytes(&changed.into()).is_err(), "byte {at}");
        }
    }

    /// Different keys have different bytes, also if a peer chooses its names so that they resemble those of others.
    #[test]
    fn every_part_of_a_key_is_in_its_bytes() {
        let address = "10.0.0.1".parse().unwrap();
        let sys = |stamp: u32, uid, name: &str| {
            let mut credential = Credential::sys(name, uid, 0, []);
            if let Credential::Sys(parms) = &mut credential {
                parms.stamp = stamp;
            }
            client_identity(address, &credential, None, false)
        };
        let principal = |name: &str| {
            client_identity(address, &Credential::None, Some(&Principal::new(name, ProtectionLevel::Integrity)), false)
        };
        let nobody = client_identity(address, &Credential::None, None, false);
        let clients = [
            nobody.clone(),
            client_identity("10.0.0.2".parse().unwrap(), &Credential::None, None, false),
            principal(""),
            principal("\0"),
            principal("\u{1}\0\0\0\0\0\0\0\0"),
            sys(0, 0, ""),
            sys(0, 0, "a"),
            sys(0, 1, ""),
            sys(1, 0, ""),
            principal("\0\0\0\0\0\0\0"),
            sys(u32::from(PRINCIPAL) << 24, 0, ""),
        ];
        let key = |xid, ids, len, checksum, client: &SmallVec<[u8; 48]>| {
            RequestKey::new(xid, ids, ArgumentsDigest { len, checksum }, client.clone())
        };
        let mut keys: Vec<_> = clients.iter().map(|client| key(1, (2, 3, 4), 5, 6, client)).collect();
        keys.extend([
            key(9, (2, 3, 4), 5, 6, &nobody),
            key(1, (9, 3, 4), 5, 6, &nobody),
            key(1, (2, 9, 4), 5, 6, &nobody),
            key(1, (2, 3, 9), 5, 6, &nobody),
            key(1, (2, 3, 4), 9, 6, &nobody),
            key(1, (2, 3, 4), 5, 9, &nobody),
        ]);
        for (n, one) in keys.iter().enumerate() {
            assert_eq!(one.to_bytes(), one.clone().to_bytes());
            for other in &keys[n + 1..] {
                assert_ne!(one.to_bytes(), other.to_bytes());
            }
        }
    }

    /// The key is the same whether arguments are inline or in Read chunks, with or without their padding.
    #[test]
    fn arguments_count_independent_of_their_format() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let whole = [b"headabcd", &data[..], &[0; 3][..pad_len(len)], b"last"].concat();
            let inline = ArgumentsDigest::new(&whole, 4, &[]);
            let reduced = b"headabcdlast";
            for data in [data.clone(), [&data[..], &[0; 3][..pad_len(len)]].concat()] {
                let reads = [ReadChunk { position: 8, data: data.into() }];
                assert_eq!(ArgumentsDigest::new(reduced, 4, &reads), inline, "{len}");
            }
            // The header, which changes from call to call, does not count.
            assert_eq!(ArgumentsDigest::new(&whole[2..], 2, &[]), inline);
            let shorter = &whole[..whole.len() - 4];
            assert_ne!(ArgumentsDigest::new(shorter, 4, &[]), inline, "{len}");
        }
        let mut changed = vec![0; 8192];
        let original = ArgumentsDigest::new(&changed, 0, &[]);
        changed[5000] = 1;
        assert_eq!(ArgumentsDigest::new(&changed, 0, &[]), original, "beyond the checked bytes");
        changed[4095] = 1;
        assert_ne!(ArgumentsDigest::new(&changed, 0, &[]), original);
    }
}

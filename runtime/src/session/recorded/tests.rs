//! Tests of request keys and recorded replies.

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

/// Encodes a value for a reply. `chunks` has an element for each Write chunk, which is `true` if the chunk has
/// segments. Returns the stream and the reduced items.
fn reduced(value: &impl XdrEncode, chunks: &[bool]) -> (Vec<u8>, Vec<(u64, usize, Bytes)>) {
    let mut stream = Vec::new();
    let mut sink = ReducingSink::for_reply(&mut stream, chunks.iter().copied());
    value.encode(&mut sink).unwrap();
    let (items, _) = sink.finish();
    (stream, items.into_iter().map(|item| (item.position, item.chunk, item.data)).collect())
}

/// A recorded result is encoded like the original, whatever Write chunks the call provides, even after the reply was
/// stored.
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

/// Different keys have different bytes, even if a peer chooses names that resemble other keys.
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

/// The bytes of keys and replies stay the same, so that a store survives a new version of the server.
#[test]
fn stored_bytes_are_stable() {
    let mut credential = Credential::sys("ab", 3, 0, []);
    if let Credential::Sys(parms) = &mut credential {
        parms.stamp = 4;
    }
    let principal = Principal::new("alice@TEST", ProtectionLevel::Integrity);
    let v4 = [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 1]].concat();
    let v6 = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[9]].concat();
    for (address, credential, principal, ignores_stamp, client) in [
        ("10.0.0.1", &credential, None, false, [&v4[..], &[1, 0, 0, 0, 4, 0, 0, 0, 3], b"ab"].concat()),
        ("10.0.0.1", &credential, None, true, [&v4[..], &[1, 0, 0, 0, 0, 0, 0, 0, 3], b"ab"].concat()),
        ("10.0.0.1", &credential, Some(&principal), true, [&v4[..], &[2], b"alice@TEST"].concat()),
        ("2001:db8::9", &Credential::None, None, false, [&v6[..], &[0]].concat()),
    ] {
        let client = (client_identity(address.parse().unwrap(), credential, principal, ignores_stamp), client);
        let digest = ArgumentsDigest { len: 8, checksum: 9 };
        let key = RequestKey::new(0x0102_0304, (5, 6, 7), digest, client.0);
        let words = [1, 0x0102_0304, 5, 6, 7, 0, 8, 0, 9].map(u32::to_be_bytes);
        assert_eq!(key.to_bytes(), [words.as_flattened(), &client.1].concat());
    }
    let reply = RecordedReply::success(&TwoItems(Bytes::from_static(b"abcde"), Bytes::from_static(b"12"))).unwrap();
    let (head, stream) = ([1, 0, 2, 8, 5, 12, 2].map(u32::to_be_bytes), [1, 5, 2, 2].map(u32::to_be_bytes));
    let bytes = [head.as_flattened(), &b"abcde\0\0\0"[..], &b"12\0\0"[..], stream.as_flattened()].concat();
    assert_eq!(reply.to_bytes(), bytes);
    assert_eq!(RecordedReply::system_error().to_bytes(), [1, 1].map(u32::to_be_bytes).as_flattened());
}

/// A client without a principal belongs to the group of its IPv4 address, or of the first 64 bits of its IPv6 address.
/// A principal is a group of its own, at every host.
#[test]
fn clients_belong_to_groups() {
    let key = |address: &str, principal: Option<&Principal>| {
        recorded_key(1, address, &Credential::sys("ab", 3, 0, []), principal, true)
    };
    let v4 = key("10.0.0.1", None);
    let (group, identity) = v4.client();
    assert_eq!((group, identity), (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1][..], &*v4.client));
    let v6 = key("2001:db8:0:1::9", None);
    assert_eq!(v6.client(), (&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 1][..], &*v6.client));
    let principal = Principal::new("alice@TEST", ProtectionLevel::Integrity);
    for address in ["10.0.0.1", "2001:db8:0:1::9"] {
        assert_eq!(key(address, Some(&principal)).client(), (&b"alice@TEST"[..], &b"alice@TEST"[..]));
    }
}

/// Long names, long items and long streams are stored completely.
#[test]
fn stored_bytes_may_be_long() {
    let name = "n".repeat(100);
    let principal = Principal::new(name.as_str(), ProtectionLevel::Integrity);
    let key = recorded_key(1, "10.0.0.1", &Credential::None, Some(&principal), false);
    assert!(key.to_bytes().ends_with(name.as_bytes()));
    for (items, stream) in [(5000, 100), (100, 5000)] {
        let reply = RecordedReply::of_results(EncodedValue {
            stream: vec![7; stream].into(),
            items: SmallVec::from_iter([EncodedItem { at: 0, data: vec![8; items].into() }]),
        });
        assert_eq!(RecordedReply::from_bytes(&reply.to_bytes()), Ok(reply));
    }
}

/// The memory of calls and replies is counted exactly, because a cache has a limit.
#[test]
fn sizes_are_exact() {
    let call = |name: &str| {
        let principal = Principal::new(name, ProtectionLevel::Integrity);
        RecordedCall::new(recorded_key(1, "10.0.0.1", &Credential::None, Some(&principal), false))
    };
    let fixed = size_of::<RecordedCall>() as u64;
    let long = call(&"n".repeat(100));
    assert_eq!((call("alice").size(), long.size()), (fixed, fixed + long.key.client.capacity() as u64));
    assert!(long.key.client.capacity() >= 117);

    let fixed = size_of::<RecordedReply>() as u64;
    let error = RecordedReply::system_error();
    assert_eq!((error.size(), error.result_len(), error.is_success()), (fixed, 0, false));
    for (count, list) in [(0, 0), (1, 0), (2, 2 * size_of::<EncodedItem>() as u64)] {
        let items = SmallVec::from_iter((0..count).map(|at| EncodedItem { at, data: vec![8; 30].into() }));
        let reply = RecordedReply::of_results(EncodedValue { stream: vec![7; 20].into(), items });
        assert_eq!((reply.size(), reply.is_success()), (fixed + list + 20 + 30 * count as u64, true), "{count}");
    }
}

/// The key is the same whether arguments are inline or in Read chunks, with or without their padding. It depends on the
/// length of the arguments and on their first 4096 bytes.
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

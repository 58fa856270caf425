use super::*;

fn frame(kind: FrameKind, enhanced: Option<EnhancedData>) -> MpaFrame {
    MpaFrame { kind, markers: false, crc: true, reject: false, revision: 2, enhanced }
}

fn decode(kind: FrameKind, bytes: &[u8]) -> Result<(MpaFrame, Bytes), FrameError> {
    let head = FrameHeader::decode(kind, bytes[..HEADER].try_into().unwrap())?;
    assert_eq!(head.private_data_len(), bytes.len() - HEADER);
    Ok(head.with_private_data(&bytes[HEADER..]))
}

#[test]
fn request_encoding() {
    // The key of RFC 5044 §7.1.1; C and S; revision 2; 7 bytes of private data: A B IRD, C D ORD (RFC 6581 §9), and 3
    // bytes of the upper layer.
    let wire = [
        0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52, 0x65, 0x71, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x65, 0x50, 0x02,
        0x00, 0x07, 0xd2, 0x34, 0x61, 0x23, b'a', b'b', b'c',
    ];
    let enhanced =
        EnhancedData { ird: 0x1234, ord: 0x2123, peer_to_peer: true, rtr_send: true, rtr_write: false, rtr_read: true };
    let request = frame(FrameKind::Request, Some(enhanced));
    assert_eq!(request.encode(b"abc").as_deref(), Some(&wire[..]));
    assert_eq!(decode(FrameKind::Request, &wire), Ok((request, Bytes::from_static(b"abc"))));
}

#[test]
fn reply_encoding() {
    let wire = [
        0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52, 0x65, 0x70, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x65, 0xa0, 0x01,
        0x00, 0x00,
    ];
    let reply = MpaFrame { markers: true, crc: false, reject: true, revision: 1, ..frame(FrameKind::Reply, None) };
    assert_eq!(reply.encode(b"").as_deref(), Some(&wire[..]));
    assert_eq!(decode(FrameKind::Reply, &wire), Ok((reply, Bytes::new())));
}

#[test]
fn reject_is_not_checked_in_requests() {
    let mut wire = frame(FrameKind::Request, None).encode(b"").unwrap();
    wire[16] |= REJECT;
    assert!(!decode(FrameKind::Request, &wire).unwrap().0.reject);
}

#[test]
fn flags_without_peer_to_peer() {
    // The flags are not sent (RFC 6581 §9.2) ...
    let enhanced = EnhancedData { rtr_send: true, rtr_write: true, rtr_read: true, ..EnhancedData::default() };
    assert_eq!(enhanced.encode(), [0; 4]);
    // ... and ignored on reception.
    assert_eq!(EnhancedData::decode([0x40, 0, 0xc0, 0]), EnhancedData::default());
}

#[test]
fn depths_are_cut_to_14_bits() {
    let enhanced = EnhancedData { ird: u16::MAX, ord: 0x4000, ..EnhancedData::default() };
    assert_eq!(enhanced.encode(), [0x3f, 0xff, 0x3f, 0xff]);
}

#[test]
fn private_data_has_its_limit() {
    assert!(frame(FrameKind::Request, None).encode(&[0; 512]).is_some());
    assert!(frame(FrameKind::Request, None).encode(&[0; 513]).is_none());
    assert!(frame(FrameKind::Request, Some(EnhancedData::default())).encode(&[0; 508]).is_some());
    assert!(frame(FrameKind::Request, Some(EnhancedData::default())).encode(&[0; 509]).is_none());
}

#[test]
fn wrong_keys_are_rejected_early() {
    for len in 0..=16 {
        assert_eq!(FrameHeader::check_key(FrameKind::Reply, &FrameKind::Reply.key()[..len]), Ok(()));
        let other = FrameHeader::check_key(FrameKind::Reply, &FrameKind::Request.key()[..len]);
        assert_eq!(other, if len == 16 { Err(FrameError::BothInitiate) } else { Ok(()) });
        let wrong_role = FrameHeader::check_key(FrameKind::Request, &FrameKind::Reply.key()[..len]);
        assert_eq!(wrong_role.is_err(), len >= 10, "the keys differ from the tenth byte on");
    }
    assert!(FrameHeader::check_key(FrameKind::Reply, b"S").is_err());
    for kind in [FrameKind::Request, FrameKind::Reply] {
        for at in 0..16 {
            let mut key = *kind.key();
            key[at] ^= 0x20;
            assert!(matches!(FrameHeader::check_key(kind, &key), Err(FrameError::Key { .. })), "{kind:?} at {at}");
        }
    }
}

#[test]
fn every_header_decodes_or_errs() {
    let mut wire = *b"MPA ID Rep Frame\0\0\0\0";
    for flags in 0..=255 {
        for revision in 0..=4 {
            for len in [0, 1, 3, 4, 5, 512, 513, 65535_u16] {
                wire[16..18].copy_from_slice(&[flags, revision]);
                wire[18..].copy_from_slice(&len.to_be_bytes());
                let valid = FrameHeader::decode(FrameKind::Reply, &wire);
                let has_room = flags & ENHANCED_DATA == 0 || revision == 1 || len >= 4;
                assert_eq!(valid.is_ok(), matches!(revision, 1 | 2) && len <= 512 && has_room);
            }
        }
    }
}

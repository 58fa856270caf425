use super::*;

fn offender(bytes: &[u8], ulpdu_len: u16) -> FaultySegment {
    let mut offender = FaultySegment { ulpdu_len, ..FaultySegment::default() };
    offender.keep(bytes);
    offender
}

#[test]
fn mpa_errors_carry_no_headers() {
    let offender = offender(&[0x41; 46], 46);
    assert_eq!(encode(TerminateCode::MPA_CRC, Some(&offender)), [0x20, 0x02, 0, 0]);
    assert_eq!(encode(TerminateCode::LOCAL_CATASTROPHIC, Some(&offender)), [0, 0, 0, 0]);
}

#[test]
fn ddp_errors_carry_the_ddp_header() {
    let tagged: Vec<u8> = [0xc1, 0x40].into_iter().chain(1..=12).collect();
    let mut expected = vec![0x11, 0x01, 0xc0, 0, 0x12, 0x34];
    expected.extend_from_slice(&tagged);
    assert_eq!(encode(TerminateCode::TAGGED_BOUNDS, Some(&offender(&tagged, 0x1234))), expected);
    let untagged: Vec<u8> = [0x41, 0x43].into_iter().chain(1..=16).collect();
    let mut expected = vec![0x12, 0x02, 0xc0, 0, 0, 18];
    expected.extend_from_slice(&untagged);
    assert_eq!(encode(TerminateCode::NO_BUFFER, Some(&offender(&untagged, 18))), expected);
}

#[test]
fn protection_errors_of_reads_carry_both() {
    let bytes: Vec<u8> = [0x41, 0x41].into_iter().chain(1..=44).collect();
    let mut expected = vec![0x01, 0x02, 0xe0, 0, 0, 46];
    expected.extend_from_slice(&bytes);
    assert_eq!(encode(TerminateCode::READ_ACCESS, Some(&offender(&bytes, 46))), expected);
    // RFC 5040 figure 10: remote operation errors do not carry the RDMAP header.
    expected[..3].copy_from_slice(&[0x02, 0xff, 0xc0]);
    assert_eq!(encode(TerminateCode::UNSPECIFIED, Some(&offender(&bytes, 46))), expected[..24]);
}

#[test]
fn received_is_what_was_sent() {
    let bytes: Vec<u8> =
        [0x41, 0x41].into_iter().chain([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0]).chain([0; 28]).collect();
    let wire = encode(TerminateCode::READ_ACCESS, Some(&offender(&bytes, 46)));
    let received = ReceivedTerminate::decode(&wire).unwrap();
    assert_eq!(
        received,
        ReceivedTerminate { code: TerminateCode::READ_ACCESS, about: TerminateSubject::Read { msn: 9 } }
    );
    assert!(received.is_remote_access());
    // RFC 5040 §4.8: reserved bits are ignored.
    let mut reserved = wire.clone();
    (reserved[2], reserved[3]) = (reserved[2] | 0x1f, 0xff);
    assert_eq!(ReceivedTerminate::decode(&reserved), Some(received));
    for len in 0..wire.len() {
        assert_eq!(ReceivedTerminate::decode(&wire[..len]).is_some(), len >= 4);
    }
}

#[test]
fn each_code_has_a_name() {
    for layer in 0..3 {
        for etype in 0..16 {
            for code in 0..=255 {
                let received =
                    ReceivedTerminate { code: TerminateCode { layer, etype, code }, about: TerminateSubject::Unknown };
                assert!(received.describe().starts_with("Terminate, "));
            }
        }
    }
    for code in [
        TerminateCode::READ_INVALID_STAG,
        TerminateCode::READ_BOUNDS,
        TerminateCode::READ_TO_WRAP,
        TerminateCode::CANNOT_INVALIDATE,
        TerminateCode::RDMAP_VERSION,
        TerminateCode::UNEXPECTED_OPCODE,
        TerminateCode::STREAM_CATASTROPHIC,
        TerminateCode::TAGGED_INVALID_STAG,
        TerminateCode::TAGGED_TO_WRAP,
        TerminateCode::TAGGED_DDP_VERSION,
        TerminateCode::INVALID_QN,
        TerminateCode::INVALID_MSN,
        TerminateCode::INVALID_MO,
        TerminateCode::TOO_LONG,
        TerminateCode::UNTAGGED_DDP_VERSION,
        TerminateCode::INSUFFICIENT_IRD,
    ] {
        assert!(code.name().is_some(), "{code:?}");
    }
}

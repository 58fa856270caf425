//! Faults of iWARP implementations.

use crc_fast::crc32_iscsi;

use super::proxy::IwarpFault;

/// The STag that cases use for memory that does not exist.
const NO_STAG: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

const fn lost(what: &'static str, found_by: &'static str, change: fn(&mut Vec<u8>)) -> IwarpFault {
    IwarpFault { what, found_by, change, of_sent: false }
}

const fn sent(what: &'static str, found_by: &'static str, change: fn(&mut Vec<u8>)) -> IwarpFault {
    IwarpFault { what, found_by, change, of_sent: true }
}

/// Drops an FPDU whose segment begins with `control`.
fn lose(frame: &mut Vec<u8>, control: &[u8]) {
    if frame.get(2..).is_some_and(|segment| segment.starts_with(control)) {
        frame.clear();
    }
}

/// Updates the CRC of a changed FPDU.
fn seal(frame: &mut [u8]) {
    let end = frame.len() - 4;
    let crc = crc32_iscsi(&frame[..end]).to_le_bytes();
    frame[end..].copy_from_slice(&crc);
}

fn is_setup(frame: &[u8]) -> bool {
    frame.starts_with(b"MPA ID")
}

fn is_sealed(frame: &[u8]) -> bool {
    frame.len() > 6 && frame[frame.len() - 4..] == crc32_iscsi(&frame[..frame.len() - 4]).to_le_bytes()
}

/// Returns the queue, the message number and the offset of an untagged segment, or `None` for other frames.
fn untagged(frame: &[u8]) -> Option<[u32; 3]> {
    let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    (!is_setup(frame) && frame.get(2)? & 0x80 == 0).then_some([word(8)?, word(12)?, word(16)?])
}

/// Creates the faults of one role. Both roles have the same faults, apart from the names of the cases that find them.
/// `$role` is `listener` or `connector`, as in these names.
macro_rules! faults {
    ($role:literal) => {
        &[
            lost("wrong CRCs are accepted", concat!("iwarp/", $role, "/crc"), |f| {
                if !is_setup(f) && !is_sealed(f) {
                    f.clear();
                }
            }),
            lost("the DDP version of Sends is not checked", concat!("iwarp/", $role, "/ddp-version-untagged"), |f| {
                lose(f, &[0x42, 0x43])
            }),
            lost("unknown queues are ignored", concat!("iwarp/", $role, "/queue"), |f| {
                if untagged(f).is_some_and(|[queue, ..]| queue == 5) {
                    f.clear();
                }
            }),
            lost("the message number zero is ignored", concat!("iwarp/", $role, "/msn-zero"), |f| {
                if untagged(f).is_some_and(|[queue, msn, _]| queue == 0 && msn == 0) {
                    f.clear();
                }
            }),
            lost("message numbers are not compared", concat!("iwarp/", $role, "/msn-skipped"), |f| {
                if untagged(f).is_some_and(|[queue, msn, _]| queue == 0 && msn == 3) {
                    f.clear();
                }
            }),
            lost("the offset of first segments is not checked", concat!("iwarp/", $role, "/offset"), |f| {
                if untagged(f).is_some_and(|[queue, _, offset]| queue == 0 && offset == 4) {
                    f.clear();
                }
            }),
            lost("long messages are ignored", concat!("iwarp/", $role, "/message-too-long"), |f| {
                if f.len() > 50_000 {
                    f.clear();
                }
            }),
            lost(
                "the DDP version of RDMA Writes is not checked",
                concat!("iwarp/", $role, "/ddp-version-tagged"),
                |f| lose(f, &[0xc2, 0x40]),
            ),
            lost("RDMA Writes to nowhere are ignored", concat!("iwarp/", $role, "/write-stag"), |f| {
                if f.len() > 20 {
                    lose(f, &[&[0xc1, 0x40], &NO_STAG[..]].concat());
                }
            }),
            lost("RDMA Writes to the STag zero are ignored", concat!("iwarp/", $role, "/write-stag-zero"), |f| {
                lose(f, &[0xc1, 0x40, 0, 0, 0, 0])
            }),
            lost("unrequested responses are ignored", concat!("iwarp/", $role, "/read-response"), |f| {
                lose(f, &[0xc1, 0x42])
            }),
            lost("the RDMAP version is not checked", concat!("iwarp/", $role, "/rdmap-version"), |f| {
                lose(f, &[0x41, 0x83])
            }),
            lost("unknown untagged operations are ignored", concat!("iwarp/", $role, "/opcode-untagged"), |f| {
                lose(f, &[0x41, 0x4c])
            }),
            lost("unknown tagged operations are ignored", concat!("iwarp/", $role, "/opcode-tagged"), |f| {
                lose(f, &[0xc1, 0x43])
            }),
            lost("RDMA Reads of no memory are ignored", concat!("iwarp/", $role, "/read-stag"), |f| {
                // The length of the read is the fourth word behind the header.
                if untagged(f).is_some_and(|[queue, msn, _]| queue == 1 && msn == 1) && f.get(35) == Some(&8) {
                    f.clear();
                }
            }),
            lost("numbers of RDMA Reads are not checked", concat!("iwarp/", $role, "/read-msn"), |f| {
                if untagged(f).is_some_and(|[queue, msn, _]| queue == 1 && msn == 2) {
                    f.clear();
                }
            }),
            lost("the STag to invalidate is not checked", concat!("iwarp/", $role, "/invalidate-stag"), |f| {
                lose(f, &[&[0x41, 0x44], &NO_STAG[..]].concat())
            }),
            lost("segments are lost", concat!("iwarp/", $role, "/segmented"), |f| {
                if f.len() == 36 {
                    lose(f, &[0x01, 0x43]);
                }
            }),
            lost("reserved bits are refused", concat!("iwarp/", $role, "/reserved-bits"), |f| lose(f, &[0x7d, 0x73])),
            lost("the field for an STag is used in any Send", concat!("iwarp/", $role, "/invalidate-ignored"), |f| {
                lose(f, &[&[0x41, 0x43], &NO_STAG[..]].concat())
            }),
            lost("RDMA Writes of no bytes are checked", concat!("iwarp/", $role, "/write-empty"), |f| {
                if f.len() == 20 && f.get(2..8) == Some(&[&[0xc1, 0x40], &NO_STAG[..]].concat()) {
                    f[2] = 0xc2;
                    seal(f);
                }
            }),
            lost("Sends with Solicited Event are lost", concat!("iwarp/", $role, "/solicited"), |f| {
                lose(f, &[0x41, 0x45])
            }),
            lost("padding must be zero", concat!("iwarp/", $role, "/padding"), |f| {
                if f.len() > 5 && f[f.len() - 5] == 0xa5 {
                    f.clear();
                }
            }),
            lost("a Terminate is ignored", concat!("iwarp/", $role, "/terminate"), |f| lose(f, &[0x41, 0x47])),
        ]
    };
}

pub(crate) const LISTENER: &[IwarpFault] = faults!("listener");
pub(crate) const CONNECTOR: &[IwarpFault] = faults!("connector");

/// Faults of listeners: at connection set-up, with RDMA Reads of no bytes, and with empty segments.
pub(crate) const LISTENER_SETUP: &[IwarpFault] = &[
    sent("the ORD of a reply exceeds the request", "iwarp/listener/enhanced", |f| {
        if is_setup(f) && f[17] == 2 && f[20] & 0x80 == 0 {
            f[22] = 0x01;
        }
    }),
    sent("replies have revision 3", "iwarp/listener/revision-1", |f| {
        if is_setup(f) && f[17] == 1 {
            f[17] = 3;
        }
    }),
    lost("the key is not checked", "iwarp/listener/request-key", |f| {
        if f.starts_with(b"MPA ID Xeq") {
            f[..16].copy_from_slice(b"MPA ID Req Frame");
        }
    }),
    lost("a reply counts as a request", "iwarp/listener/reply-key", |f| {
        if f.starts_with(b"MPA ID Rep") {
            f[..16].copy_from_slice(b"MPA ID Req Frame");
        }
    }),
    lost("revision 0 counts as 1", "iwarp/listener/revision-0", |f| {
        if is_setup(f) && f[17] == 0 {
            f[17] = 2;
        }
    }),
    lost("unknown revisions count as 2", "iwarp/listener/revision-255", |f| {
        if is_setup(f) && f[17] == 255 {
            f[17] = 2;
        }
    }),
    lost("long private data is cut", "iwarp/listener/private-data-too-long", |f| {
        if is_setup(f) && f.len() > 532 {
            f.truncate(20);
            f[18..20].copy_from_slice(&[0, 0]);
        }
    }),
    lost("short enhanced data is completed", "iwarp/listener/enhanced-too-short", |f| {
        if is_setup(f) && f.len() == 22 {
            f.extend([0, 1]);
            f[19] = 4;
        }
    }),
    lost("reserved flags are refused", "iwarp/listener/reserved-flags", |f| {
        if is_setup(f) && f[16] & 0x0f != 0 {
            f.clear();
        }
    }),
    lost("CRCs are required in requests", "iwarp/listener/no-crc", |f| {
        if is_setup(f) && f[16] & 0x40 == 0 {
            f.clear();
        }
    }),
    lost("the flag M is ignored", "iwarp/listener/markers", |f| {
        if is_setup(f) {
            f[16] &= 0x7f;
        }
    }),
    lost("the flag A is ignored", "iwarp/listener/peer-to-peer", |f| {
        if is_setup(f) && f.len() > 24 && f[20] & 0x80 != 0 {
            f[20] &= 0x3f;
            f[22] &= 0x3f;
        }
    }),
    lost("RDMA Reads of no bytes get no response", "iwarp/listener/read-empty", |f| {
        if untagged(f).is_some_and(|[queue, msn, _]| queue == 1 && msn == 1) && f.get(35) == Some(&0) {
            f.clear();
        }
    }),
    lost("empty segments are ignored", "iwarp/listener/length-zero", |f| {
        if f.len() == 8 {
            f.clear();
        }
    }),
];

/// Faults of connectors at connection set-up, and in the first segment.
pub(crate) const CONNECTOR_SETUP: &[IwarpFault] = &[
    sent("requests have reserved flags", "iwarp/connector/request", |f| {
        if is_setup(f) {
            f[16] |= 1;
        }
    }),
    sent("message numbers begin with 2", "iwarp/connector/first-segment", |f| {
        if untagged(f).is_some_and(|[queue, msn, _]| queue == 0 && msn == 1) {
            f[15] = 2;
            seal(f);
        }
    }),
    lost("the key is not checked", "iwarp/connector/reply-key", |f| {
        if f.starts_with(b"MPA ID Xep") {
            f[..16].copy_from_slice(b"MPA ID Rep Frame");
        }
    }),
    lost("a request counts as a reply", "iwarp/connector/request-key", |f| {
        if f.starts_with(b"MPA ID Req") {
            f[..16].copy_from_slice(b"MPA ID Rep Frame");
        }
    }),
    lost("unknown revisions count as 2", "iwarp/connector/revision-255", |f| {
        if is_setup(f) && f[17] == 255 {
            f[17] = 2;
        }
    }),
    lost("long private data is cut", "iwarp/connector/private-data-too-long", |f| {
        if is_setup(f) && f.len() > 532 {
            f.truncate(24);
            f[18..20].copy_from_slice(&[0, 4]);
        }
    }),
    lost("rejections are ignored", "iwarp/connector/rejection", |f| {
        if is_setup(f) {
            f[16] &= !0x20;
        }
    }),
    lost("reserved flags are refused", "iwarp/connector/reserved-flags", |f| {
        if is_setup(f) && f[16] & 0x0f != 0 {
            f.clear();
        }
    }),
];

/// Faults of a client's provider that cases of RPC-over-RDMA find.
pub(crate) const CLIENT_MEMORY: &[IwarpFault] = &[
    lost("the STag to invalidate is ignored", "v1/client/reply-invalidation", |f| {
        if !is_setup(f) && f.get(3) == Some(&0x44) {
            f[3] = 0x43;
            seal(f);
        }
    }),
    lost("memory stays accessible", "v1/client/memory-after-reply", |f| {
        if f.len() == 28 && f[16..24] == [0x55; 8] {
            f.clear();
        }
    }),
];

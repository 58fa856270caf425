//! Invalid segments, which both roles answer with a Terminate, and unusual segments, which both accept.

use super::frames::{
    ErrorCode, READ_RESPONSE, SEND, SEND_INVALIDATE, SEND_PART, TERMINATE, WRITE, fpdu, fpdu_padded_with, fpdus,
    invalidating, read_request, tagged, untagged,
};

/// The names of a case, one for each role.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) listener: &'static str,
    pub(super) connector: &'static str,
}

macro_rules! names {
    ($name:literal) => {
        Names { listener: concat!("iwarp/listener/", $name), connector: concat!("iwarp/connector/", $name) }
    };
}

/// A case that sends invalid segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Invalid {
    pub(super) names: Names,
    pub(super) rules: &'static [&'static str],
    pub(super) sent: &'static str,
    /// The errors that a Terminate may report.
    pub(super) codes: &'static [ErrorCode],
    /// The function that encodes the bytes to send. Its argument is the message number of the next Send.
    pub(super) build: fn(u32) -> Vec<u8>,
}

/// An STag that no implementation has given out on the connection.
const NO_STAG: u32 = 0x1234_5678;

pub(super) fn invalid() -> Vec<Invalid> {
    [framing(), untagged_buffers(), tagged_buffers(), operations()].concat()
}

fn framing() -> Vec<Invalid> {
    vec![Invalid {
        names: names!("crc"),
        rules: &["RFC 5044 4.4#12", "RFC 5044 8#7", "RFC 5040 7.1#2"],
        sent: "an FPDU with a wrong CRC",
        codes: &[(0x20, 0x02)],
        build: |msn| {
            let mut frame = fpdu(&untagged(SEND, (0, msn, 0), &[0; 28]));
            if let Some(last) = frame.last_mut() {
                *last ^= 1;
            }
            frame
        },
    }]
}

fn untagged_buffers() -> Vec<Invalid> {
    vec![
        Invalid {
            names: names!("ddp-version-untagged"),
            rules: &["RFC 5041 4.1#9", "RFC 5041 7.2#1"],
            sent: "a Send whose segment has the DDP version 2",
            codes: &[(0x12, 0x06)],
            build: |msn| fpdu(&untagged([0x42, 0x43], (0, msn, 0), &[0; 28])),
        },
        Invalid {
            names: names!("queue"),
            rules: &["RFC 5041 7.1#1", "RFC 5041 7.2#1"],
            sent: "a Send for the queue 5",
            codes: &[(0x12, 0x01), (0x02, 0x06)],
            build: |_| fpdu(&untagged(SEND, (5, 1, 0), &[0; 28])),
        },
        Invalid {
            names: names!("msn-skipped"),
            rules: &["RFC 5041 4.3#9", "RFC 5041 7.1#1"],
            sent: "a Send whose message number is one too high",
            codes: &[(0x12, 0x03)],
            build: |msn| fpdu(&untagged(SEND, (0, msn + 1, 0), &[0; 28])),
        },
        Invalid {
            names: names!("msn-zero"),
            rules: &["RFC 5041 4.3#10", "RFC 5041 7.1#1"],
            sent: "a Send with the message number zero",
            codes: &[(0x12, 0x03)],
            build: |_| fpdu(&untagged(SEND, (0, 0, 0), &[0; 28])),
        },
        Invalid {
            names: names!("offset"),
            rules: &["RFC 5041 4.3#14", "RFC 5041 7.1#1"],
            sent: "a Send whose first segment has the message offset 4",
            codes: &[(0x12, 0x04)],
            build: |msn| fpdu(&untagged(SEND, (0, msn, 4), &[0; 28])),
        },
        Invalid {
            names: names!("message-too-long"),
            rules: &["RFC 5041 7.1#1", "RFC 5041 7.2#1"],
            sent: "a Send of 60000 bytes",
            codes: &[(0x12, 0x05)],
            build: |msn| fpdu(&untagged(SEND, (0, msn, 0), &[0; 60_000])),
        },
    ]
}

fn tagged_buffers() -> Vec<Invalid> {
    vec![
        Invalid {
            names: names!("ddp-version-tagged"),
            rules: &["RFC 5041 4.1#9", "RFC 5041 7.2#1"],
            sent: "an RDMA Write whose segment has the DDP version 2",
            codes: &[(0x11, 0x04)],
            build: |_| fpdu(&tagged([0xc2, 0x40], NO_STAG, 0, &[0; 8])),
        },
        Invalid {
            names: names!("write-stag"),
            rules: &["RFC 5041 7.1#4", "RFC 5041 8.3#4"],
            sent: "an RDMA Write to memory of no STag",
            codes: &[(0x11, 0x00)],
            build: |_| fpdu(&tagged(WRITE, NO_STAG, 0, &[0; 8])),
        },
        Invalid {
            names: names!("write-stag-zero"),
            rules: &["RFC 5041 7.1#4", "RFC 5041 8.3#4"],
            sent: "an RDMA Write to the STag zero",
            codes: &[(0x11, 0x00)],
            build: |_| fpdu(&tagged(WRITE, 0, 0, &[0; 8])),
        },
        Invalid {
            names: names!("read-response"),
            rules: &["RFC 5041 7.1#4", "RFC 5040 7.2#2"],
            sent: "an RDMA Read Response that was not requested",
            codes: &[(0x11, 0x00), (0x02, 0x06)],
            build: |_| fpdu(&tagged(READ_RESPONSE, NO_STAG, 0, &[0; 8])),
        },
    ]
}

fn operations() -> Vec<Invalid> {
    vec![
        Invalid {
            names: names!("rdmap-version"),
            rules: &["RFC 5040 4.1#8", "RFC 5040 7.2#3"],
            sent: "a Send with the RDMAP version 2",
            codes: &[(0x02, 0x05)],
            build: |msn| fpdu(&untagged([0x41, 0x83], (0, msn, 0), &[0; 28])),
        },
        Invalid {
            names: names!("opcode-untagged"),
            rules: &["RFC 5040 7.2#2"],
            sent: "an untagged message with the opcode 12, which RDMAP does not have",
            codes: &[(0x02, 0x06)],
            build: |msn| fpdu(&untagged([0x41, 0x4c], (0, msn, 0), &[0; 28])),
        },
        Invalid {
            names: names!("opcode-tagged"),
            rules: &["RFC 5040 4.1#4", "RFC 5040 7.2#2"],
            sent: "a tagged message with the opcode of a Send",
            codes: &[(0x02, 0x06), (0x11, 0x00)],
            build: |_| fpdu(&tagged([0xc1, 0x43], NO_STAG, 0, &[0; 8])),
        },
        Invalid {
            names: names!("read-stag"),
            rules: &["RFC 5040 7.2#9"],
            sent: "an RDMA Read of memory of no STag",
            codes: &[(0x01, 0x00)],
            build: |_| fpdu(&read_request(1, (1, 0), 8, (NO_STAG, 0))),
        },
        Invalid {
            names: names!("read-msn"),
            rules: &["RFC 5041 4.3#10", "RFC 5041 7.1#1"],
            sent: "a first RDMA Read Request with the message number 2",
            codes: &[(0x12, 0x03)],
            build: |_| fpdu(&read_request(2, (1, 0), 8, (NO_STAG, 0))),
        },
        Invalid {
            names: names!("invalidate-stag"),
            rules: &["RFC 5040 7.2#4", "RFC 5040 5.3#10"],
            sent: "a Send with Invalidate that names no STag of the connection",
            codes: &[(0x01, 0x00), (0x01, 0x09), (0x02, 0x09)],
            build: |msn| fpdu(&invalidating(SEND_INVALIDATE, NO_STAG, (0, msn, 0), &[0; 28])),
        },
    ]
}

/// An unusual but valid way to convey a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Valid {
    pub(super) names: Names,
    pub(super) rules: &'static [&'static str],
    pub(super) sent: &'static str,
    /// `true` to write the bytes one at a time.
    pub(super) is_bytewise: bool,
    /// The function that encodes the bytes to send. Its arguments are the message number of the next Send, and the
    /// message.
    pub(super) build: fn(u32, &[u8]) -> Vec<u8>,
}

pub(super) fn valid() -> Vec<Valid> {
    vec![
        Valid {
            names: names!("bytewise"),
            rules: &["RFC 5044 5.1#4", "RFC 5044 5.2#1"],
            sent: "a message whose FPDU arrives byte by byte",
            is_bytewise: true,
            build: |msn, message| fpdu(&untagged(SEND, (0, msn, 0), message)),
        },
        Valid {
            names: names!("segmented"),
            rules: &["RFC 5041 4.1#7", "RFC 5041 5.2#6"],
            sent: "a message in segments of 12 bytes",
            is_bytewise: false,
            build: |msn, message| {
                let count = message.len().div_ceil(12);
                let parts = message.chunks(12).enumerate().map(|(nth, part)| {
                    let control = if nth + 1 == count { SEND } else { SEND_PART };
                    untagged(control, (0, msn, nth as u32 * 12), part)
                });
                fpdus(&parts.collect::<Vec<_>>())
            },
        },
        Valid {
            names: names!("reserved-bits"),
            rules: &["RFC 5041 4.1#8", "RFC 5040 4.1#9"],
            sent: "a message whose reserved bits of DDP and RDMAP are set",
            is_bytewise: false,
            build: |msn, message| fpdu(&untagged([SEND[0] | 0x3c, SEND[1] | 0x30], (0, msn, 0), message)),
        },
        Valid {
            names: names!("invalidate-ignored"),
            rules: &["RFC 5040 4.1#10"],
            sent: "a plain Send whose field for an STag to invalidate is not zero",
            is_bytewise: false,
            build: |msn, message| fpdu(&invalidating(SEND, NO_STAG, (0, msn, 0), message)),
        },
        Valid {
            names: names!("write-empty"),
            rules: &["RFC 5041 5.2#10"],
            sent: "an RDMA Write of no bytes to memory of no STag, then a message",
            is_bytewise: false,
            build: |msn, message| fpdus(&[tagged(WRITE, NO_STAG, 0, &[]), untagged(SEND, (0, msn, 0), message)]),
        },
        Valid {
            names: names!("solicited"),
            rules: &["RFC 5040 5.3#1"],
            sent: "a message by Send with Solicited Event",
            is_bytewise: false,
            build: |msn, message| fpdu(&untagged([0x41, 0x45], (0, msn, 0), message)),
        },
        Valid {
            names: names!("padding"),
            rules: &["RFC 5044 4.1#2"],
            sent: "an FPDU with padding that is not zero, and a message",
            is_bytewise: false,
            // Parts of odd lengths need padding.
            build: |msn, message| {
                let first = message.len() / 2 + 1;
                let (first, second) = message.split_at(first.min(message.len()));
                let parts =
                    [untagged(SEND_PART, (0, msn, 0), first), untagged(SEND, (0, msn, first.len() as u32), second)];
                parts.iter().flat_map(|part| fpdu_padded_with(part, 0xa5)).collect()
            },
        },
    ]
}

/// Returns a Terminate that reports a local catastrophic error (RFC 5040 section 4.8).
pub(super) fn terminate() -> Vec<u8> {
    fpdu(&untagged(TERMINATE, (2, 1, 0), &[0x00, 0x00, 0, 0]))
}

//! MPA: marker PDU aligned framing for TCP (RFC 5044), with enhanced connection set-up (RFC 6581).
//!
//! | topic | RFC | module |
//! | --- | --- | --- |
//! | request and reply frames | 5044 §7.1.1, 6581 §6 and §9 | [`frames`] |
//! | FPDU arithmetic: lengths, pad, largest ULPDU | 5044 §4.1, §4.5 | [`fpdu`] |
//! | markers | 5044 §4.2, §4.3 | [`markers`] |
//! | CRC32c | 5044 §4.4 | [`crc`] |

pub(crate) mod crc;
pub(crate) mod fpdu;
pub(crate) mod frames;
pub(crate) mod markers;

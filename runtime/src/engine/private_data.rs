//! Private data exchanged while a connection is set up (RFC 8797).

use bytes::Bytes;

use super::EngineConfig;

/// Format identifier (RFC 8797 §4).
const MAGIC: u32 = 0xf6ab_0e18;
/// Format version (RFC 8797 §4).
const VERSION: u8 = 1;
/// The R bit; the other bits of its octet are reserved.
const REMOTE_INVALIDATION: u8 = 1;
/// Unit of the size fields in octets, and the inline threshold that every implementation supports (RFC 8166 §3.3.3).
const KIB: u32 = 1024;

/// What one end tells the other when a connection is set up (RFC 8797 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    /// Whether every handle this end offers may be invalidated by Send with Invalidate, and its provider can send
    /// and receive such Sends: the R flag.
    pub remote_invalidation: bool,
    /// Most octets this end sends in one Send: a multiple of 1024, from 1024 to 262144.
    pub send_size: u32,
    /// Most octets this end takes in one Receive: a multiple of 1024, from 1024 to 262144.
    pub receive_size: u32,
}

impl Default for PrivateData {
    /// What is to be assumed of a peer that sent none.
    // RFC 8797 §5.1, RFC 8166 §3.3.3: inline thresholds of 1024 octets, no remote invalidation.
    fn default() -> Self {
        Self { remote_invalidation: false, send_size: KIB, receive_size: KIB }
    }
}

impl PrivateData {
    /// Length of the message in octets.
    pub const LEN: usize = 8;

    /// What an end with this configuration says. `remote_invalidation`: whether its provider honours Send with
    /// Invalidate.
    #[must_use]
    pub fn new(config: &EngineConfig, remote_invalidation: bool) -> Self {
        Self {
            remote_invalidation,
            send_size: representable(config.send_size),
            receive_size: representable(config.receive_size),
        }
    }

    /// The message of RFC 8797 §4.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let [a, b, c, d] = MAGIC.to_be_bytes();
        // RFC 8797 §4: senders set the reserved bits to zero.
        let flags = if self.remote_invalidation { REMOTE_INVALIDATION } else { 0 };
        Bytes::copy_from_slice(&[
            a,
            b,
            c,
            d,
            VERSION,
            flags,
            encode_size(self.send_size),
            encode_size(self.receive_size),
        ])
    }

    /// Finds the message in what the peer sent; `None` when it is not there, and the default is to be assumed.
    // RFC 8797 §5.2: searched for at any offset, other layers may have put data in front; version and length are
    // checked as further assurance that it is what it seems.
    #[must_use]
    pub fn find(private_data: &[u8]) -> Option<Self> {
        private_data.windows(Self::LEN).find_map(|window| match *window {
            [a, b, c, d, VERSION, flags, send, receive] if [a, b, c, d] == MAGIC.to_be_bytes() => Some(Self {
                // RFC 8797 §4: receivers ignore the reserved bits.
                remote_invalidation: flags & REMOTE_INVALIDATION != 0,
                send_size: decode_size(send),
                receive_size: decode_size(receive),
            }),
            _ => None,
        })
    }

    /// [`find`](Self::find), or the default.
    #[must_use]
    pub fn find_or_default(private_data: &[u8]) -> Self {
        Self::find(private_data).unwrap_or_default()
    }
}

/// The private data that both ends sent when the connection was set up, and the first XID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionSetup {
    /// Private data that was sent.
    pub local: PrivateData,
    /// Private data that the peer sent: [`PrivateData::find_or_default`].
    pub peer: PrivateData,
    /// The first XID. It should be random, so that a peer's memory of an earlier connection is not mistaken for this one.
    pub xid_seed: u32,
}

/// The largest size that the format can say and that is not more than `size`, at least 1024.
fn representable(size: u32) -> u32 {
    decode_size(encode_size(size))
}

// RFC 8797 §4.2: kibioctets, less one.
fn encode_size(size: u32) -> u8 {
    u8::try_from((size / KIB).saturating_sub(1)).unwrap_or(u8::MAX)
}

fn decode_size(encoded: u8) -> u32 {
    (u32::from(encoded) + 1) * KIB
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8797 §4, figure 1, field by field.
    #[test]
    fn vector() {
        let data = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 262_144 };
        let octets = data.encode();
        assert_eq!(&octets[..], &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 255]);
        assert_eq!(PrivateData::find(&octets), Some(data));
    }

    /// RFC 8797 §5.1: nothing, or nothing that conforms, means the defaults.
    #[test]
    fn absent() {
        for received in [&[][..], &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3], &[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3], &[0; 64]] {
            assert_eq!(PrivateData::find(received), None);
        }
        let assumed = PrivateData::find_or_default(&[]);
        assert_eq!((assumed.send_size, assumed.receive_size, assumed.remote_invalidation), (1024, 1024, false));
    }

    /// RFC 8797 §5.2: found at any offset. RFC 8797 §4: reserved bits are ignored.
    #[test]
    fn behind_other_data() {
        let octets = [9, 0xf6, 0xab, 0xf6, 0xab, 0x0e, 0x18, 1, 0xfe, 0, 0, 7];
        let found = PrivateData::find(&octets).unwrap();
        assert_eq!(found, PrivateData { remote_invalidation: false, send_size: 1024, receive_size: 1024 });
    }

    /// RFC 8797 §4.2: sizes are whole kibioctets from 1024 to 262144.
    #[test]
    fn sizes() {
        let says = |size| {
            let config = EngineConfig { send_size: size, receive_size: size, ..EngineConfig::default() };
            PrivateData::new(&config, false).send_size
        };
        assert_eq!([says(0), says(1000), says(1024), says(2047), says(2048)], [1024, 1024, 1024, 1024, 2048]);
        assert_eq!([says(262_144), says(u32::MAX)], [262_144, 262_144]);
    }
}

//! Private data that peers exchange while they set up a connection (RFC 8797).

use bytes::Bytes;

use super::config::EngineConfig;

/// Format identifier (RFC 8797 §4).
const MAGIC: u32 = 0xf6ab_0e18;
/// Format version (RFC 8797 §4).
const VERSION: u8 = 1;
/// The R flag. The other bits of its byte are reserved (RFC 8797 §4).
const REMOTE_INVALIDATION: u8 = 1;
/// Unit of the size fields in bytes, and the inline threshold that every implementation supports (RFC 8166 §3.3.3).
const KIB: u32 = 1024;

/// Private data of one peer (RFC 8797 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    /// `true` if the R flag is set. The peer may then invalidate every handle that the sender of this message offers,
    /// and the sender's provider can send and receive Send with Invalidate.
    pub remote_invalidation: bool,
    /// Maximum length in bytes of the sender's Sends: a multiple of 1024, from 1024 to 262144.
    pub send_size: u32,
    /// Size in bytes of the sender's Receives: a multiple of 1024, from 1024 to 262144.
    pub receive_size: u32,
}

impl Default for PrivateData {
    /// Returns the assumptions about a peer that sends no private data.
    // RFC 8797 §5.1, RFC 8166 §3.3.3: inline thresholds of 1024 bytes, no remote invalidation.
    fn default() -> Self {
        Self { remote_invalidation: false, send_size: KIB, receive_size: KIB }
    }
}

impl PrivateData {
    /// Length of the encoded message in bytes.
    pub const LEN: usize = 8;

    /// Creates the private data of a peer with this configuration. `remote_invalidation` is `true` if its provider
    /// supports Send with Invalidate. Sizes are rounded down to multiples of 1024, and limited to 1024 to 262144 bytes.
    #[must_use]
    pub fn new(config: &EngineConfig, remote_invalidation: bool) -> Self {
        Self {
            remote_invalidation,
            send_size: representable(config.send_size),
            receive_size: representable(config.receive_size),
        }
    }

    /// Encodes the message of RFC 8797 §4.
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

    /// Finds the message in the private data of the peer. Returns `None` if it is missing or malformed. The defaults
    /// then apply.
    // RFC 8797 §5.2: the message may be at any offset, behind data of other layers. Version and length guard against a
    // random match of the magic number.
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

    /// Finds the message in the private data of the peer, or returns the defaults.
    #[must_use]
    pub fn find_or_default(private_data: &[u8]) -> Self {
        Self::find(private_data).unwrap_or_default()
    }
}

/// Private data that both peers sent while they set up the connection, and the first XID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionSetup {
    /// Local private data.
    pub local: PrivateData,
    /// Private data of the peer, from [`PrivateData::find_or_default`].
    pub peer: PrivateData,
    /// First XID that the engine assigns: that of the first call, or, in version 2, of the exchange of properties. Use
    /// a random value, so that a peer does not mistake a call for one of an earlier connection.
    pub xid_seed: u32,
}

/// Returns the largest size not above `size` that the format can represent, at least 1024.
fn representable(size: u32) -> u32 {
    decode_size(encode_size(size))
}

// RFC 8797 §4.2: the size in units of 1024 bytes, minus one.
fn encode_size(size: u32) -> u8 {
    u8::try_from((size / KIB).saturating_sub(1)).unwrap_or(u8::MAX)
}

fn decode_size(encoded: u8) -> u32 {
    (u32::from(encoded) + 1) * KIB
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The encoding matches RFC 8797 §4, figure 1, field by field.
    #[test]
    fn encodes_figure_1() {
        let data = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 262_144 };
        let bytes = data.encode();
        assert_eq!(&bytes[..], &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 255]);
        assert_eq!(PrivateData::find(&bytes), Some(data));
        // Without R, all bits of the byte are zero.
        assert_eq!(PrivateData { remote_invalidation: false, ..data }.encode()[4..6], [1, 0]);
    }

    /// RFC 8797 §5.1: without private data, or with malformed private data, the defaults apply.
    #[test]
    fn defaults_without_private_data() {
        for received in [&[][..], &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3], &[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3], &[0; 64]] {
            assert_eq!(PrivateData::find(received), None);
        }
        // RFC 8797 §5.2: each byte of the identifier counts, and so does the version.
        for at in 0..5 {
            let mut received = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
            received[at] ^= 1;
            assert_eq!(PrivateData::find(&received), None, "byte {at}");
        }
        let assumed = PrivateData::find_or_default(&[]);
        assert_eq!((assumed.send_size, assumed.receive_size, assumed.remote_invalidation), (1024, 1024, false));
    }

    /// RFC 8797 §5.2: the message may be at any offset. RFC 8797 §4: reserved bits are ignored.
    #[test]
    fn finds_message_at_any_offset() {
        let bytes = [9, 0xf6, 0xab, 0xf6, 0xab, 0x0e, 0x18, 1, 0xfe, 0, 0, 7];
        let found = PrivateData::find(&bytes).unwrap();
        assert_eq!(found, PrivateData { remote_invalidation: false, send_size: 1024, receive_size: 1024 });
        for offset in 0..9 {
            let bytes = [&vec![0xf6; offset][..], &[0xf6, 0xab, 0x0e, 0x18, 1, 0xff, 1, 2], &[0xab; 5]].concat();
            let found = PrivateData::find(&bytes);
            let expected = PrivateData { remote_invalidation: true, send_size: 2048, receive_size: 3072 };
            assert_eq!(found, Some(expected), "offset {offset}");
        }
    }

    /// RFC 8797 §4.2: sizes are rounded down to multiples of 1024 bytes, from 1024 to 262144.
    #[test]
    fn rounds_sizes_to_kib() {
        let encoded_size = |size| {
            let config = EngineConfig { send_size: size, receive_size: size, ..EngineConfig::default() };
            let data = PrivateData::new(&config, false);
            assert_eq!(data.send_size, data.receive_size);
            data.send_size
        };
        assert_eq!(
            [encoded_size(0), encoded_size(1000), encoded_size(1024), encoded_size(2047), encoded_size(2048)],
            [1024, 1024, 1024, 1024, 2048]
        );
        assert_eq!([encoded_size(262_144), encoded_size(u32::MAX)], [262_144, 262_144]);
        // The units count from 1024 bytes.
        assert_eq!([encode_size(1024), encode_size(2048), encode_size(262_144)], [0, 1, 255]);
        assert_eq!([decode_size(0), decode_size(1), decode_size(255)], [1024, 2048, 262_144]);
    }
}

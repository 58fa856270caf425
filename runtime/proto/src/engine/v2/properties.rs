//! Transport properties: local values, encoding and decoding (RPC-over-RDMA v2 §5.1, §5.2).

use bytes::Bytes;

use super::{
    format::{DEFAULT_PROPERTIES, MIN_SIZE},
    header::{
        RDMA2_PROPID_BRS, RDMA2_PROPID_HOSTAUTH, RDMA2_PROPID_RBSIZ, RDMA2_PROPID_RCSIZ, RDMA2_PROPID_RSSIZ,
        RDMA2_PROPID_SBSIZ, RDMA2_RVRSDIR_CONT, RDMA2_RVRSDIR_GENL, RDMA2_RVRSDIR_NONE, RDMA2_RVRSDIR_SIMPLE,
        Rpcrdma2PropHostauth, Rpcrdma2Propset, Rpcrdma2Propval,
    },
};
use crate::{
    engine::{EngineConfig, Properties, ReverseDirection, Role},
    xdr::{Decoder, FlatSink, XdrDecode, XdrEncode},
};

impl ReverseDirection {
    // RPC-over-RDMA v2 §5.2.5, §8.3: the two give different numbers for one level.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::None => RDMA2_RVRSDIR_NONE,
            Self::Simple => RDMA2_RVRSDIR_SIMPLE,
            Self::Continued => RDMA2_RVRSDIR_CONT,
            Self::General => RDMA2_RVRSDIR_GENL,
        }
    }

    /// Returns the level for a code. An unknown code counts as the lowest level.
    fn of(code: u32) -> Self {
        match code {
            RDMA2_RVRSDIR_SIMPLE => Self::Simple,
            RDMA2_RVRSDIR_CONT => Self::Continued,
            RDMA2_RVRSDIR_GENL => Self::General,
            _ => Self::None,
        }
    }
}

/// A malformed propset, or a property with an invalid value (RPC-over-RDMA v2 §7.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadProperty;

/// The contents of a received propset.
#[derive(Debug, Default)]
pub(super) struct ReceivedProperties {
    pub(super) properties: Properties,
    /// Host authentication material. A propset may contain several pieces, and each is processed.
    pub(super) host_auth: Vec<Bytes>,
    /// Identifiers and values of properties outside the base protocol.
    pub(super) others: Vec<(u32, Bytes)>,
}

impl Default for Properties {
    fn default() -> Self {
        DEFAULT_PROPERTIES
    }
}

impl Properties {
    /// Returns the properties to announce to the peer.
    // RPC-over-RDMA v2 §5.2.1, §5.2.2, §5.2.4: limits that the local configuration keeps.
    pub(super) fn local(role: Role, config: &EngineConfig) -> Self {
        // RPC-over-RDMA v2 §5.2.5: a client announces its support for calls in the reverse direction. A server
        // announces none.
        let reverse = match role {
            Role::Client if config.reverse_credits > 0 => config.reverse_direction,
            _ => ReverseDirection::None,
        };
        Self {
            send_size: config.send_size.max(MIN_SIZE),
            receive_size: config.receive_size.max(MIN_SIZE),
            segment_len: u32::MAX,
            segments: config.max_segments,
            reverse,
        }
    }

    /// Returns the encoded properties whose values differ from the defaults.
    pub(super) fn values(&self) -> Vec<Rpcrdma2Propval> {
        let default = Self::default();
        let values = [
            (RDMA2_PROPID_SBSIZ, self.send_size, default.send_size),
            (RDMA2_PROPID_RBSIZ, self.receive_size, default.receive_size),
            (RDMA2_PROPID_RSSIZ, self.segment_len, default.segment_len),
            (RDMA2_PROPID_RCSIZ, self.segments, default.segments),
            (RDMA2_PROPID_BRS, self.reverse.code(), default.reverse.code()),
        ];
        let differ = values.into_iter().filter(|(_, value, default)| value != default);
        differ.map(|(which, value, _)| propval(which, &value)).collect()
    }

    /// Decodes a propset. A property that the propset does not contain keeps its value in `self`.
    ///
    /// # Errors
    /// Fails if the propset is malformed, or if any property has an invalid value. In this case, no property is
    /// applied.
    // RPC-over-RDMA v2 §5.1, §7.2.2.
    pub(super) fn read(&self, body: &[u8]) -> Result<ReceivedProperties, BadProperty> {
        let mut decoder = Decoder::new(body);
        let set = Rpcrdma2Propset::decode(&mut decoder).map_err(|_| BadProperty)?;
        if decoder.consumed() != body.len() {
            return Err(BadProperty);
        }
        let mut received = ReceivedProperties { properties: *self, ..ReceivedProperties::default() };
        let (known, default) = (&mut received.properties, Self::default());
        for Rpcrdma2Propval { rdma_which, rdma_data } in set.0 {
            // RPC-over-RDMA v2 §5.1: a property without data has its default value.
            let number = |default: u32| if rdma_data.is_empty() { Ok(default) } else { whole::<u32>(&rdma_data) };
            match rdma_which {
                RDMA2_PROPID_SBSIZ => known.send_size = size(number(default.send_size)?)?,
                RDMA2_PROPID_RBSIZ => known.receive_size = size(number(default.receive_size)?)?,
                RDMA2_PROPID_RSSIZ => known.segment_len = number(default.segment_len)?,
                RDMA2_PROPID_RCSIZ => known.segments = number(default.segments)?,
                RDMA2_PROPID_BRS => known.reverse = ReverseDirection::of(number(default.reverse.code())?),
                RDMA2_PROPID_HOSTAUTH if rdma_data.is_empty() => {}
                RDMA2_PROPID_HOSTAUTH => received.host_auth.push(whole::<Rpcrdma2PropHostauth>(&rdma_data)?.0),
                // RPC-over-RDMA v2 §5.1, §6.3.4: unknown properties are ignored, unless an extension knows them.
                which => received.others.push((which, rdma_data)),
            }
        }
        Ok(received)
    }
}

/// Returns `value` if it is a valid buffer size: at least `MIN_SIZE` bytes, which every implementation supports (RFC
/// 8166 §3.3.3).
fn size(value: u32) -> Result<u32, BadProperty> {
    if value < MIN_SIZE { Err(BadProperty) } else { Ok(value) }
}

/// Returns a property with host authentication material (RPC-over-RDMA v2 §5.2.6).
pub(super) fn host_auth(material: Bytes) -> Rpcrdma2Propval {
    propval(RDMA2_PROPID_HOSTAUTH, &Rpcrdma2PropHostauth(material))
}

fn propval(which: u32, value: &impl XdrEncode) -> Rpcrdma2Propval {
    let mut bytes = Vec::new();
    // Encoding fails only for a value longer than 4 GiB.
    if value.encode(&mut FlatSink::new(&mut bytes)).is_err() {
        bytes.clear();
    }
    Rpcrdma2Propval { rdma_which: which, rdma_data: bytes.into() }
}

/// Decodes a value. Fails if the value is malformed or does not occupy all of `data`.
// RPC-over-RDMA v2 §5.1: data of the wrong length or type is BAD_PROPVAL.
fn whole<T: XdrDecode>(data: &[u8]) -> Result<T, BadProperty> {
    let mut decoder = Decoder::new(data);
    let value = T::decode(&mut decoder).map_err(|_| BadProperty)?;
    if decoder.consumed() == data.len() { Ok(value) } else { Err(BadProperty) }
}

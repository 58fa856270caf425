//! A decoder of the headers of RPC-over-RDMA messages, based on their XDR: version 1 (RFC 8166 §4) and version 2
//! (draft-ietf-nfsv4-rpcrdma-version-two-01 §6).

use super::{
    big_endian::u32_at, interpret::Interpreter, memory::Segment, payload_source::PayloadSource, value::DecodedValue,
};
use crate::{
    compiler::Compiler,
    ir::{ConstValue, ItemKind, Spec},
};

/// The kind of an RPC-over-RDMA message, which determines what follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderKind {
    /// RDMA_MSG, RDMA_MSGP and RDMA2_MSG: the payload stream follows the header.
    Message,
    /// RDMA_NOMSG and RDMA2_NOMSG: the payload stream is in a chunk.
    NoMessage,
    /// RDMA2_CONNPROP: transport properties follow.
    Properties,
    /// Errors, RDMA_DONE, and unknown message types.
    Other,
}

/// A decoded header of RPC-over-RDMA version 1 or 2.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) version: u64,
    pub(super) xid: u32,
    pub(super) kind: HeaderKind,
    /// The name of the message type.
    pub(super) name: String,
    pub(super) value: DecodedValue,
    /// `true` if the message is a response. `None` in version 1, whose headers do not tell calls and responses apart.
    pub(super) response: Option<bool>,
    /// `true` if another message continues this one.
    pub(super) more: bool,
    /// Read chunks with their positions.
    pub(super) reads: Vec<(u32, Vec<Segment>)>,
    pub(super) writes: Vec<Vec<Segment>>,
    pub(super) reply: Option<Vec<Segment>>,
    /// The length of the header, in bytes.
    pub(super) len: usize,
}

/// The XDR specifications of RPC messages and of the headers of RPC-over-RDMA versions 1 and 2.
#[derive(Debug)]
pub(super) struct HeaderSpecs {
    pub(super) rpc: Spec,
    v1: Spec,
    v2: Spec,
}

/// Fields that are printed in hexadecimal, with their number of digits.
const HEX: &[(&str, usize)] = &[
    ("xid", 8),
    ("rdma_xid", 8),
    ("handle", 8),
    ("rdma_handle", 8),
    ("rdma_inv_handle", 8),
    ("offset", 16),
    ("rdma_offset", 16),
];

const HEADER_TYPES: &[&str] = &["RDMA2_MSG", "RDMA2_NOMSG", "RDMA2_ERROR", "RDMA2_CONNPROP"];
const FLAGS: &[&str] = &["RDMA2_F_RESPONSE", "RDMA2_F_MORE", "RDMA2_F_TPMORE"];

impl HeaderSpecs {
    pub(super) fn new() -> Self {
        let compile = |name: &str, text: &'static str| {
            let compiled = Compiler::new().source(name, text).no_client().compile();
            compiled.map(|compiled| compiled.spec).expect("the specification is part of this crate")
        };
        Self {
            rpc: compile("rpc.x", include_str!("../../xdr/rpc.x")),
            v1: compile("rpcrdma1.x", include_str!("../../xdr/rpcrdma1.x")),
            v2: compile("rpcrdma2.x", include_str!("../../xdr/rpcrdma2.x")),
        }
    }

    /// Decodes the header of `message`. Returns `None` if `message` is not an RPC-over-RDMA message.
    pub(super) fn parse(&self, message: &[u8]) -> Option<Header> {
        // The first four words are the same in all versions.
        match (u32_at(message, 4)?, u32_at(message, 12)?) {
            (1, 0..=4) => Some(self.parse_v1(message)),
            (2, 0..=255) => Some(self.parse_v2(message)),
            _ => None,
        }
    }

    fn parse_v1(&self, message: &[u8]) -> Header {
        let mut interpreter = Interpreter::new(&self.v1, PayloadSource::new(message));
        let mut value = interpreter.named("rdma_msg");
        let name = match value.at(&["rdma_body", "proc"]) {
            Some(DecodedValue::Enum(Some(name), _)) => name.clone(),
            _ => String::new(),
        };
        let (kind, body) = match name.as_str() {
            "RDMA_MSG" => (HeaderKind::Message, "rdma_msg"),
            "RDMA_MSGP" => (HeaderKind::Message, "rdma_msgp"),
            "RDMA_NOMSG" => (HeaderKind::NoMessage, "rdma_nomsg"),
            _ => (HeaderKind::Other, "rdma_error"),
        };
        let lists = value.at(&["rdma_body", body]).cloned().unwrap_or(DecodedValue::None);
        value.show_hex(HEX);
        let len = message.len() - interpreter.into_source().left();
        Header { version: 1, kind, name, response: None, more: false, ..Header::new(value, &lists, len) }
    }

    fn parse_v2(&self, message: &[u8]) -> Header {
        let spec = &self.v2;
        let mut interpreter = Interpreter::new(spec, PayloadSource::new(message));
        let prefix = interpreter.named("rpcrdma2_hdr_prefix");
        let htype = prefix.number(&["rdma_start", "rdma_htype"]).unwrap_or_default();
        let flags = prefix.number(&["rdma_flags"]).unwrap_or_default();
        let name = name_of(spec, HEADER_TYPES, htype);
        let more = has_flag(spec, flags, "RDMA2_F_MORE");
        let (kind, body) = match name.as_deref() {
            Some("RDMA2_MSG") => (HeaderKind::Message, Some("rpcrdma2_chunk_lists")),
            Some("RDMA2_NOMSG") => (HeaderKind::NoMessage, Some("rpcrdma2_chunk_lists")),
            Some("RDMA2_ERROR") => (HeaderKind::Other, Some("rpcrdma2_error")),
            Some("RDMA2_CONNPROP") => (HeaderKind::Properties, None),
            _ => (HeaderKind::Other, None),
        };
        let body = match (body, prefix.error()) {
            (Some(body), None) => interpreter.named(body),
            _ => DecodedValue::Struct(Vec::new()),
        };
        let lists = body.clone();
        let mut fields = Vec::new();
        for part in [prefix, body] {
            let DecodedValue::Struct(part) = part else { continue };
            for (field, value) in part {
                match (field.as_str(), value) {
                    ("rdma_start", DecodedValue::Struct(start)) => fields.extend(start),
                    ("rdma_flags", DecodedValue::UInt(flags)) => fields.push((field, flag_names(spec, flags))),
                    ("rdma_err", DecodedValue::UInt(code)) => {
                        fields
                            .push((field, DecodedValue::Enum(prefixed(spec, "RDMA2_ERR_", code), code.cast_signed())));
                    }
                    (_, value) => fields.push((field, value)),
                }
            }
        }
        for (field, value) in &mut fields {
            if field == "rdma_htype" {
                *value = DecodedValue::Enum(name.clone(), htype.cast_signed());
            }
        }
        let mut value = DecodedValue::Struct(fields);
        value.show_hex(HEX);
        let len = message.len() - interpreter.into_source().left();
        let response = Some(has_flag(spec, flags, "RDMA2_F_RESPONSE"));
        let name = name.unwrap_or_else(|| format!("header type {htype}"));
        Header { version: 2, kind, name, response, more, ..Header::new(value, &lists, len) }
    }

    /// Decodes the transport properties of an RDMA2_CONNPROP message (draft-ietf-nfsv4-rpcrdma-version-two-01 §5).
    pub(super) fn properties(&self, bytes: &[u8]) -> DecodedValue {
        let spec = &self.v2;
        let mut value = Interpreter::new(spec, PayloadSource::new(bytes)).named("rpcrdma2_propset");
        if let DecodedValue::Array(properties) = &mut value {
            for property in properties {
                let DecodedValue::Struct(fields) = property else { continue };
                for (_, value) in fields {
                    let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
                    let shown = match &*value {
                        DecodedValue::UInt(id) => {
                            Some(DecodedValue::Enum(prefixed(spec, "RDMA2_PROPID_", *id), id.cast_signed()))
                        }
                        DecodedValue::Opaque(bytes) => word(bytes).map(|word| DecodedValue::UInt(word.into())),
                        _ => None,
                    };
                    *value = shown.unwrap_or_else(|| value.clone());
                }
            }
        }
        value
    }
}

impl Header {
    /// Creates a header from its decoded `value`. Reads the chunk lists, whose fields have different names in the two
    /// versions.
    fn new(value: DecodedValue, lists: &DecodedValue, len: usize) -> Self {
        let either = |value: &DecodedValue, names: [&str; 2]| names.iter().find_map(|name| value.at(&[name]).cloned());
        let entry = |value: &DecodedValue| either(value, ["entry", "rdma_entry"]).unwrap_or(DecodedValue::None);
        let target = |value: &DecodedValue| either(value, ["target", "rdma_target"]).unwrap_or(DecodedValue::None);
        let chunk = |value: &DecodedValue| target(value).elements().iter().filter_map(segment).collect::<Vec<_>>();
        let mut reads: Vec<(u32, Vec<Segment>)> = Vec::new();
        for read in lists.at(&["rdma_reads"]).map(DecodedValue::elements).unwrap_or_default() {
            let read = entry(read);
            let position = either(&read, ["position", "rdma_position"]).and_then(|position| position.number(&[]));
            let (Some(position), Some(segment)) = (position, segment(&target(&read))) else { continue };
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            // Segments with the same position form a chunk (RFC 8166 §3.4.5).
            match reads.last_mut() {
                Some((last, segments)) if *last == position => segments.push(segment),
                _ => reads.push((position, vec![segment])),
            }
        }
        let writes = lists.at(&["rdma_writes"]).map(DecodedValue::elements).unwrap_or_default();
        let writes = writes.iter().map(|write| chunk(&entry(write))).collect();
        let reply = lists.at(&["rdma_reply"]).filter(|reply| matches!(reply, DecodedValue::Struct(_))).map(chunk);
        let xid = value.number(&["rdma_xid"]).and_then(|xid| u32::try_from(xid).ok()).unwrap_or_default();
        let (name, kind) = (String::new(), HeaderKind::Other);
        Self { version: 0, xid, kind, name, value, response: None, more: false, reads, writes, reply, len }
    }
}

fn segment(value: &DecodedValue) -> Option<Segment> {
    let number = |names: [&str; 2]| names.iter().find_map(|name| value.number(&[name]));
    Some(Segment {
        handle: u32::try_from(number(["handle", "rdma_handle"])?).ok()?,
        length: u32::try_from(number(["length", "rdma_length"])?).ok()?,
        offset: number(["offset", "rdma_offset"])?,
    })
}

fn constant(spec: &Spec, name: &str) -> Option<u64> {
    let item = spec.items.iter().find(|item| item.name.text == name)?;
    match &item.kind {
        ItemKind::Const(ConstValue::Int(value) | ConstValue::Typed(value, _)) => u64::try_from(*value).ok(),
        _ => None,
    }
}

fn name_of(spec: &Spec, names: &[&str], value: u64) -> Option<String> {
    names.iter().find(|name| constant(spec, name) == Some(value)).map(|name| (*name).to_owned())
}

/// Returns the name of the constant with this prefix and value, or `None` if there is none.
fn prefixed(spec: &Spec, prefix: &str, value: u64) -> Option<String> {
    let names: Vec<&str> = spec.items.iter().map(|item| item.name.text.as_str()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
    name_of(spec, &names, value)
}

fn has_flag(spec: &Spec, flags: u64, name: &str) -> bool {
    constant(spec, name).is_some_and(|flag| flags & flag != 0)
}

fn flag_names(spec: &Spec, flags: u64) -> DecodedValue {
    let names: Vec<&str> = FLAGS.iter().copied().filter(|name| has_flag(spec, flags, name)).collect();
    if names.is_empty() {
        DecodedValue::UInt(flags)
    } else {
        DecodedValue::Enum(Some(names.join("|")), flags.cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn version_1_chunk_lists() {
        // Two segments of one Read chunk and one of another, a Write chunk of two segments, and a Reply chunk of one.
        let read = |position, handle| [1, position, handle, 100, 0, 4096];
        let lists = [&read(44, 7)[..], &read(44, 8), &read(60, 9), &[0]].concat();
        let writes = [1, 2, 11, 10, 0, 0, 11, 20, 0, 10, 0, 1, 1, 12, 30, 1, 0];
        let bytes = words(&[&[5, 1, 32, 0][..], &lists, &writes, &[0xabcd]].concat());
        let header = HeaderSpecs::new().parse(&bytes).unwrap();
        assert_eq!((header.version, header.xid, header.kind), (1, 5, HeaderKind::Message));
        assert_eq!(header.name, "RDMA_MSG");
        assert_eq!(header.reads.iter().map(|(at, it)| (*at, it.len())).collect::<Vec<_>>(), [(44, 2), (60, 1)]);
        assert_eq!(header.reads[0].1[1], Segment { handle: 8, length: 100, offset: 4096 });
        assert_eq!(
            header.writes,
            [[Segment { handle: 11, length: 10, offset: 0 }, Segment { handle: 11, length: 20, offset: 10 }]]
        );
        assert_eq!(header.reply, Some(vec![Segment { handle: 12, length: 30, offset: 1 << 32 }]));
        assert_eq!(header.len, bytes.len() - 4);
        assert_eq!(header.value.at(&["rdma_xid"]), Some(&DecodedValue::Hex(5, 8)));
    }

    #[test]
    fn version_2_names_types_flags_and_properties() {
        let specs = HeaderSpecs::new();
        let header = specs.parse(&words(&[5, 2, 32, 0, 3, 9, 0, 0, 0, 77])).unwrap();
        assert_eq!(
            (header.name.as_str(), header.response, header.more, header.len),
            ("RDMA2_MSG", Some(true), true, 36)
        );
        let flags = Some("RDMA2_F_RESPONSE|RDMA2_F_MORE".to_owned());
        assert_eq!(header.value.at(&["rdma_flags"]), Some(&DecodedValue::Enum(flags, 3)));
        let header = specs.parse(&words(&[5, 2, 32, 4, 1, 8, 16])).unwrap();
        let code = DecodedValue::Enum(Some("RDMA2_ERR_SEGMENTS".to_owned()), 8);
        assert_eq!(header.value.at(&["rdma_err"]), Some(&code));
        assert_eq!(header.value.number(&["rdma_max_segments"]), Some(16));
        let properties = specs.properties(&words(&[1, 2, 4, 4096]));
        let which = DecodedValue::Enum(Some("RDMA2_PROPID_RBSIZ".to_owned()), 2);
        assert_eq!(properties.elements()[0].at(&["rdma_which"]), Some(&which));
        assert_eq!(properties.elements()[0].number(&["rdma_data"]), Some(4096));
    }

    #[test]
    fn other_messages_are_not_rpc_over_rdma() {
        let specs = HeaderSpecs::new();
        assert!(specs.parse(b"an iwping message that is long").is_none());
        assert!(specs.parse(&words(&[5, 1, 32])).is_none());
        let cut = specs.parse(&words(&[5, 1, 32, 0, 1, 44])).unwrap();
        assert!(cut.value.error().is_some() && cut.reads.is_empty());
    }
}

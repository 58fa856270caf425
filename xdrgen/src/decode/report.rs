//! Output of decoded messages as text and as JSON.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value, json};

use super::{hex::hex, json::to_json, session::Place, value::DecodedValue};

/// The default maximum number of bytes to print of each opaque item.
pub const DEFAULT_BYTES: usize = 32;
/// The maximum length in characters of a line for a value that has parts, including its name and indentation.
const MAX_LINE: usize = 100;

/// A decoded message, or a remark about the capture, for example about bytes that could not be decoded.
///
/// [`to_text`](Self::to_text) and [`to_json`](Self::to_json) format it.
#[derive(Debug, Clone)]
pub struct Message {
    pub(super) place: Place,
    /// The version of RPC-over-RDMA, the name of the message type, and the header.
    pub(super) header: Option<(u64, String, DecodedValue)>,
    pub(super) properties: Option<DecodedValue>,
    pub(super) rpc: Option<RpcPart>,
    /// The contents of a message that is not an RPC message.
    pub(super) opaque: Option<Vec<u8>>,
    pub(super) notes: Vec<String>,
    pub(super) remark: bool,
}

/// A number with its name in the specification.
#[derive(Debug, Clone)]
pub(super) struct NamedNumber {
    pub(super) number: u32,
    pub(super) name: Option<String>,
}

/// The RPC message that a transport message carries.
#[derive(Debug, Clone, Default)]
pub(super) struct RpcPart {
    pub(super) xid: u32,
    pub(super) is_call: bool,
    /// Program, version and procedure. `None` if a reply belongs to no captured call.
    pub(super) procedure: Option<[NamedNumber; 3]>,
    /// The flavor and the body of the credential.
    pub(super) credential: Option<(DecodedValue, DecodedValue)>,
    pub(super) verifier: Option<(DecodedValue, DecodedValue)>,
    /// The status of a reply.
    pub(super) status: Option<DecodedValue>,
    /// The arguments or the result.
    pub(super) body: Option<DecodedValue>,
    /// Chunks that belong to no item that could be decoded.
    pub(super) chunks: Vec<DecodedValue>,
}

impl Message {
    pub(super) fn new(place: Place, notes: Vec<String>) -> Self {
        Self { place, header: None, properties: None, rpc: None, opaque: None, notes, remark: false }
    }

    /// Returns the number and the name of the program, if the message is a call or a reply to a captured call. Returns
    /// `None` for other messages. The name is `None` if the specification does not declare the program.
    #[must_use]
    pub fn program(&self) -> Option<(u32, Option<&str>)> {
        let [program, _, _] = self.rpc.as_ref()?.procedure.as_ref()?;
        Some((program.number, program.name.as_deref()))
    }

    /// Formats the message as text, with up to `bytes` bytes of each opaque item.
    ///
    /// `start` is the time of the first packet, in nanoseconds since 1970. If it is given, the text has the time since
    /// that packet.
    #[must_use]
    pub fn to_text(&self, start: Option<u128>, bytes: usize) -> String {
        let mut out = Printer { out: String::new(), bytes };
        out.message(self, start);
        out.out
    }

    /// Returns the time of the packet that completed the message, in nanoseconds since 1970. Returns `None` if the
    /// packet has no time, or if the input is hexadecimal.
    #[must_use]
    pub fn time(&self) -> Option<u128> {
        self.place.time
    }

    /// Formats the message as a JSON object on one line. Opaque data is hexadecimal and complete.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut object = Map::new();
        let place = &self.place;
        object.insert("frame".into(), json!(place.frame));
        if let Some(time) = place.time {
            object.insert("time".into(), json!(seconds(time)));
        }
        if let Some((from, to)) = place.peers {
            object.insert("from".into(), json!(from.to_string()));
            object.insert("to".into(), json!(to.to_string()));
        }
        if !place.transport.name().is_empty() {
            object.insert("transport".into(), json!(place.transport.name()));
        }
        if let Some((version, name, header)) = &self.header {
            object.insert("rdma".into(), json!({ "version": version, "type": name, "header": to_json(header) }));
        }
        if let Some(properties) = &self.properties {
            object.insert("properties".into(), to_json(properties));
        }
        if let Some(rpc) = &self.rpc {
            object.insert("rpc".into(), rpc.to_json());
        }
        if let Some(opaque) = &self.opaque {
            object.insert("data".into(), json!(hex(opaque, usize::MAX, "")));
        }
        if !self.notes.is_empty() {
            object.insert("notes".into(), json!(self.notes));
        }
        Value::Object(object).to_string()
    }
}

impl RpcPart {
    fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("xid".into(), json!(self.xid));
        object.insert("type".into(), json!(if self.is_call { "call" } else { "reply" }));
        for (key, part) in ["program", "version", "procedure"].iter().zip(self.procedure.iter().flatten()) {
            object.insert((*key).into(), json!({ "number": part.number, "name": part.name }));
        }
        for (key, auth) in [("credential", &self.credential), ("verifier", &self.verifier)] {
            if let Some((flavor, body)) = auth {
                object.insert(key.into(), json!({ "flavor": to_json(flavor), "body": to_json(body) }));
            }
        }
        if let Some(status) = &self.status {
            object.insert("status".into(), to_json(status));
        }
        if let Some(body) = &self.body {
            object.insert(if self.is_call { "arguments" } else { "result" }.into(), to_json(body));
        }
        if !self.chunks.is_empty() {
            object.insert("chunks".into(), self.chunks.iter().map(to_json).collect());
        }
        Value::Object(object)
    }
}

/// A writer of text with indentation.
struct Printer {
    out: String,
    bytes: usize,
}

impl Printer {
    fn message(&mut self, message: &Message, start: Option<u128>) {
        let place = &message.place;
        let _ = write!(self.out, "#{}", place.frame);
        if let (Some(time), Some(start)) = (place.time, start) {
            let _ = write!(self.out, " {} s", seconds(time.saturating_sub(start)));
        }
        if let Some((from, to)) = place.peers {
            let _ = write!(self.out, " {from} -> {to}");
        }
        let transport = place.transport.name();
        let comma = if transport.is_empty() { "" } else { " " };
        let _ = writeln!(self.out, "{comma}{transport}");
        if let Some((version, name, header)) = &message.header {
            let _ = writeln!(self.out, "  RPC-over-RDMA version {version}: {name}");
            self.fields_of(header, 2);
        }
        if let Some(properties) = &message.properties {
            self.field("properties", properties, 1);
        }
        if let Some(rpc) = &message.rpc {
            self.rpc(rpc);
        }
        if let Some(opaque) = &message.opaque {
            let shown = self.opaque(opaque, "");
            let _ = writeln!(self.out, "  data: {shown}");
        }
        for note in &message.notes {
            let _ = writeln!(self.out, "  {}{note}", if message.remark { "" } else { "note: " });
        }
    }

    fn rpc(&mut self, rpc: &RpcPart) {
        let _ = write!(self.out, "  {} {:#010x}", if rpc.is_call { "call" } else { "reply" }, rpc.xid);
        if let Some([program, version, procedure]) = &rpc.procedure {
            let number = program.number;
            match &program.name {
                Some(name) => drop(write!(self.out, " {name} ({number:#x})")),
                None => drop(write!(self.out, " program {number:#x}")),
            }
            for (part, what) in [(version, "version"), (procedure, "procedure")] {
                match &part.name {
                    Some(name) => drop(write!(self.out, " {name} ({})", part.number)),
                    None => drop(write!(self.out, " {what} {}", part.number)),
                }
            }
        }
        self.out.push('\n');
        for (name, auth) in [("credential", &rpc.credential), ("verifier", &rpc.verifier)] {
            // Most messages have no verifier.
            let Some((flavor, body)) = auth.as_ref().filter(|it| name == "credential" || it.1 != DecodedValue::None)
            else {
                continue;
            };
            let flavor = self.line(flavor).unwrap_or_default();
            let body = if *body == DecodedValue::None {
                String::new()
            } else {
                format!(" {}", self.line(body).unwrap_or_default())
            };
            let _ = writeln!(self.out, "    {name}: {flavor}{body}");
        }
        match &rpc.status {
            Some(DecodedValue::Struct(fields)) if fields.len() == 1 => {
                if let Some((_, status)) = fields.first() {
                    self.field("status", status, 2);
                }
            }
            Some(status) => self.field("status", status, 2),
            None => {}
        }
        if let Some(body) = &rpc.body {
            self.field(if rpc.is_call { "arguments" } else { "result" }, body, 2);
        }
        for chunk in &rpc.chunks {
            self.field("chunk of no decoded item", chunk, 2);
        }
    }

    /// Writes the fields of a struct. Writes any other value as a field with the name `value`.
    fn fields_of(&mut self, value: &DecodedValue, depth: usize) {
        match value {
            DecodedValue::Struct(fields) => fields.iter().for_each(|(name, value)| self.field(name, value, depth)),
            other => self.field("value", other, depth),
        }
    }

    fn field(&mut self, name: &str, value: &DecodedValue, depth: usize) {
        self.out.extend(std::iter::repeat_n("  ", depth));
        let _ = write!(self.out, "{name}:");
        if let Some(line) =
            self.line(value).filter(|line| line.chars().count() + 2 * depth + name.len() <= MAX_LINE || is_leaf(value))
        {
            let _ = writeln!(self.out, " {line}");
            return;
        }
        self.out.push('\n');
        match value {
            DecodedValue::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.field(&format!("[{index}]"), element, depth + 1);
                }
            }
            other => self.fields_of(other, depth + 1),
        }
    }

    /// Formats a value on one line. Returns `None` if the value is certainly too long for a line.
    fn line(&self, value: &DecodedValue) -> Option<String> {
        Some(match value {
            DecodedValue::None => "none".to_owned(),
            DecodedValue::Bool(value) => value.to_string(),
            DecodedValue::Int(value) => value.to_string(),
            DecodedValue::UInt(value) => value.to_string(),
            DecodedValue::Hex(value, digits) => format!("{value:#0width$x}", width = digits + 2),
            DecodedValue::Double(value) => value.to_string(),
            DecodedValue::Quadruple(bytes) => format!("quadruple {}", hex(bytes, usize::MAX, "")),
            DecodedValue::Enum(Some(name), _) => name.clone(),
            DecodedValue::Enum(None, value) => format!("{value} (unknown)"),
            DecodedValue::Opaque(bytes) => self.opaque(bytes, ""),
            DecodedValue::Text(bytes) => {
                format!("\"{}\"", bytes.utf8_chunks().map(Escaped).map(|it| it.to_string()).collect::<String>())
            }
            DecodedValue::Chunk(chunk) => {
                let segments: Vec<String> =
                    chunk.segments.iter().map(|it| format!("{:#010x}:{:#018x}", it.handle, it.offset)).collect();
                let place = segments.join(", ");
                match (chunk.bytes.is_empty(), chunk.missing()) {
                    (true, _) => format!("reduced, {} bytes, chunk at {place}", chunk.len),
                    (_, 0) => self.opaque(&chunk.bytes, &format!(" from the chunk at {place}")),
                    (_, missing) => {
                        let place = format!(" of {}, {missing} not captured, from the chunk at {place}", chunk.len);
                        self.opaque(&chunk.bytes, &place)
                    }
                }
            }
            DecodedValue::Struct(fields) if fields.len() <= MAX_LINE / 4 => {
                let parts: Option<Vec<String>> =
                    fields.iter().map(|(name, value)| Some(format!("{name}: {}", self.line(value)?))).collect();
                let line = parts?.join(", ");
                if line.len() > 4 * MAX_LINE {
                    return None;
                }
                format!("{{ {line} }}")
            }
            DecodedValue::Array(elements) if elements.len() <= MAX_LINE / 3 => {
                let parts: Option<Vec<String>> = elements.iter().map(|element| self.line(element)).collect();
                let line = parts?.join(", ");
                if line.len() > 4 * MAX_LINE {
                    return None;
                }
                format!("[{line}]")
            }
            DecodedValue::Struct(_) | DecodedValue::Array(_) => return None,
            DecodedValue::Error(why) => format!("<{why}>"),
        })
    }

    fn opaque(&self, bytes: &[u8], note: &str) -> String {
        let more = if bytes.len() > self.bytes { " .." } else { "" };
        let colon = if bytes.is_empty() || self.bytes == 0 { "" } else { ": " };
        format!(
            "{} bytes{note}{colon}{}{}",
            bytes.len(),
            hex(bytes, self.bytes, " "),
            if colon.is_empty() { "" } else { more }
        )
    }
}

/// Returns `true` if a value has no parts.
fn is_leaf(value: &DecodedValue) -> bool {
    !matches!(value, DecodedValue::Struct(_) | DecodedValue::Array(_))
}

/// A part of a string. Control characters, quotation marks, backslashes and bytes that are not UTF-8 are escaped.
struct Escaped<'a>(std::str::Utf8Chunk<'a>);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.valid().escape_debug())?;
        self.0.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
    }
}

/// Formats nanoseconds as seconds with six decimal places, or nine where necessary.
fn seconds(nanoseconds: u128) -> String {
    let (whole, part) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    if part % 1000 == 0 { format!("{whole}.{:06}", part / 1000) } else { format!("{whole}.{part:09}") }
}

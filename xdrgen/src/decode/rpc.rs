//! A decoder of RPC messages (RFC 5531), with their arguments and results according to the user's specification.

use std::collections::HashMap;

use super::{
    headers::HeaderKind,
    interpret::Interpreter,
    memory::{Memory, Owner},
    payload_source::PayloadSource,
    report::{Message, NamedNumber, RpcPart},
    session::{Content, RawMessage, RdmaContent, Session},
    value::DecodedValue,
};
use crate::ir::{Field, Procedure, Spec};

const AUTH_SYS: u64 = 1;
const RPCSEC_GSS: u64 = 6;

/// The numbers of a called procedure, and the protection of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Called {
    program: u32,
    version: u32,
    procedure: u32,
    /// `true` if the specification does not describe the bytes of the arguments and results: RPCSEC_GSS protects them
    /// (RFC 2203 §5.3.2), or the call is a control message (§5.2, §5.4).
    protected: bool,
}

/// A decoder of the messages of a session. It must decode them in order, because a reply needs its call.
#[derive(Debug)]
pub(super) struct RpcDecoder<'s> {
    spec: &'s Spec,
    rpc: &'s Spec,
    memory: &'s Memory,
    /// Procedures of the calls so far, by caller, server and XID.
    calls: HashMap<(Owner, Owner, u32), Called>,
}

impl<'s> RpcDecoder<'s> {
    pub(super) fn new(spec: &'s Spec, session: &'s Session) -> Self {
        Self { spec, rpc: &session.specs.rpc, memory: &session.memory, calls: HashMap::new() }
    }

    pub(super) fn decode(&mut self, raw: &RawMessage) -> Message {
        let mut message = Message::new(raw.place, raw.notes.clone());
        match &raw.content {
            Content::Remark => message.remark = true,
            Content::Other => message.opaque = Some(raw.inline.clone()),
            Content::Rpc => self.payload(raw, PayloadSource::new(&raw.inline), &mut message),
            Content::Rdma(rdma) => self.rdma(raw, rdma, &mut message),
        }
        message
    }

    fn rdma(&mut self, raw: &RawMessage, rdma: &RdmaContent, message: &mut Message) {
        message.header = Some((rdma.header.version, rdma.header.name.clone(), rdma.header.value.clone()));
        message.properties.clone_from(&rdma.properties);
        if !matches!(rdma.header.kind, HeaderKind::Message | HeaderKind::NoMessage)
            || rdma.header.value.error().is_some()
        {
            return;
        }
        let reads = rdma.reads.iter().filter(|(position, _)| *position > 0);
        let reads: Vec<_> = reads.map(|(position, chunk)| (u64::from(*position), self.memory.read(chunk))).collect();
        let writes: Vec<_> = rdma.writes.iter().map(|chunk| self.memory.read(chunk)).collect();
        let stream = match rdma.header.kind {
            HeaderKind::NoMessage => {
                let call = rdma.reads.iter().find(|(position, _)| *position == 0).map(|(_, chunk)| chunk);
                let Some(chunk) = call.or(rdma.reply.as_ref()) else {
                    message.notes.push(
                        "the message has no payload: neither a Read chunk at position 0 nor a Reply chunk".into(),
                    );
                    return;
                };
                Some(self.memory.read(chunk))
            }
            _ => None,
        };
        if let Some(stream) = stream.as_ref().filter(|stream| !stream.is_complete()) {
            message.notes.push(format!(
                "the payload of {} bytes is in a chunk, of which {} bytes were captured",
                stream.len,
                stream.bytes.len()
            ));
            if stream.bytes.is_empty() {
                return;
            }
        }
        let inline = stream.as_ref().map_or(raw.inline.as_slice(), |stream| &stream.bytes);
        self.payload(raw, PayloadSource::new(inline).with_reads(reads).with_writes(writes), message);
    }

    fn payload(&mut self, raw: &RawMessage, source: PayloadSource<'_>, message: &mut Message) {
        let mut interpreter = Interpreter::new(self.rpc, source);
        let header = interpreter.named("rpc_msg");
        if let Some(why) = header.error() {
            if let Some(call) = header.at(&["body", "cbody"]).filter(|call| call.number(&["proc"]).is_some()) {
                message.notes.push(format!("the header of the call is cut: {why}"));
                let (part, _) = self.call_header(raw, word(&header, &["xid"]), call);
                message.rpc = Some(part);
            } else {
                message.notes.push(format!("not an RPC message: {why}"));
                message.opaque = Some(raw.inline.clone());
            }
            return;
        }
        let source = interpreter.into_source();
        let xid = word(&header, &["xid"]);
        if let Some(call) = header.at(&["body", "cbody"]) {
            self.call(raw, xid, call, source, message);
        } else if let Some(reply) = header.at(&["body", "rbody"]) {
            self.reply(raw, xid, reply, source, message);
        }
    }

    fn call(
        &mut self,
        raw: &RawMessage,
        xid: u32,
        call: &DecodedValue,
        source: PayloadSource<'_>,
        message: &mut Message,
    ) {
        let (mut part, called) = self.call_header(raw, xid, call);
        let procedure = self.find(called);
        let body = procedure.map(|procedure| procedure.args.iter().collect::<Vec<_>>());
        self.body(body, called.protected, source, &mut part, message);
        message.rpc = Some(part);
    }

    /// Decodes and remembers the header of a call. The capture may lack the end of the call.
    fn call_header(&mut self, raw: &RawMessage, xid: u32, call: &DecodedValue) -> (RpcPart, Called) {
        let is_gss = call.number(&["cred", "flavor"]) == Some(RPCSEC_GSS);
        let called = Called {
            program: word(call, &["prog"]),
            version: word(call, &["vers"]),
            procedure: word(call, &["proc"]),
            protected: is_gss && !is_plain_gss(call.bytes(&["cred", "body"]).unwrap_or_default()),
        };
        self.calls.insert((raw.place.from, raw.place.to, xid), called);
        let mut part = self.part(xid, true, Some(called));
        let auth = |field| call.bytes(&[field, "body"]).is_some().then(|| self.auth(call, field));
        part.credential = auth("cred");
        part.verifier = auth("verf");
        (part, called)
    }

    fn reply(
        &mut self,
        raw: &RawMessage,
        xid: u32,
        reply: &DecodedValue,
        source: PayloadSource<'_>,
        message: &mut Message,
    ) {
        let called = self.calls.get(&(raw.place.to, raw.place.from, xid)).copied();
        let mut part = self.part(xid, false, called);
        if called.is_none() {
            message.notes.push("the call of this reply is not in the capture, so its procedure is unknown".into());
        }
        if let Some(accepted) = reply.at(&["areply"]) {
            part.verifier = Some(self.auth(accepted, "verf"));
            part.status = Some(accepted.at(&["reply_data"]).cloned().unwrap_or(DecodedValue::None));
            if accepted.number(&["reply_data", "stat"]) == Some(0) {
                let procedure = called.and_then(|called| self.find(called));
                let body = procedure.map(|procedure| procedure.result.iter().collect::<Vec<_>>());
                let protected = called.is_some_and(|called| called.protected);
                self.body(body, protected, source, &mut part, message);
            }
        } else {
            let mut status = reply.at(&["rreply"]).cloned().unwrap_or(DecodedValue::None);
            if let DecodedValue::Struct(fields) = &mut status {
                for (_, value) in fields.iter_mut().filter(|(name, _)| name == "auth") {
                    *value = self.enumerator("auth_stat", value.number(&[]).unwrap_or_default());
                }
            }
            part.status = Some(status);
        }
        message.rpc = Some(part);
    }

    /// Decodes arguments or a result from `source` into `part`, and adds notes to `message`. `fields` is `None` if the
    /// specification does not declare the procedure, or if the capture lacks the call of a reply. If `protected` is
    /// `true`, the bytes are not decoded.
    fn body(
        &self,
        fields: Option<Vec<&Field>>,
        protected: bool,
        source: PayloadSource<'_>,
        part: &mut RpcPart,
        message: &mut Message,
    ) {
        let mut source = match fields {
            Some(fields) if !protected => {
                let mut interpreter = Interpreter::new(self.spec, source);
                part.body = Some(match fields.as_slice() {
                    [] => DecodedValue::None,
                    // The name of a single argument or of a result is derived from its type and says nothing new.
                    [field] => interpreter.field(field, false),
                    fields => interpreter.fields(fields.iter().copied()),
                });
                interpreter.into_source()
            }
            _ => {
                if protected {
                    message.notes.push("RPCSEC_GSS protects the data, which is therefore not decoded".into());
                }
                let mut source = source;
                let rest = source.rest();
                part.body = (!rest.is_empty()).then(|| DecodedValue::Opaque(rest.to_vec()));
                source
            }
        };
        let failed = part.body.as_ref().is_some_and(|body| body.error().is_some());
        if source.left() > 0 && !failed {
            let left = source.left();
            message
                .notes
                .push(format!("{left} bytes follow the {}", if part.is_call { "arguments" } else { "result" }));
        }
        part.chunks = source.unused().into_iter().map(DecodedValue::Chunk).collect();
    }

    fn part(&self, xid: u32, is_call: bool, called: Option<Called>) -> RpcPart {
        let program = called.and_then(|called| self.spec.programs.iter().find(|it| it.number == called.program));
        let version =
            called.and_then(|called| program?.versions.iter().find(|version| version.number == called.version));
        let procedure = called.and_then(|called| self.find(called));
        let named =
            |number: u32, name: Option<&crate::ir::Name>| NamedNumber { number, name: name.map(|it| it.text.clone()) };
        RpcPart {
            xid,
            is_call,
            procedure: called.map(|called| {
                [
                    named(called.program, program.map(|program| &program.name)),
                    named(called.version, version.map(|version| &version.name)),
                    named(called.procedure, procedure.map(|procedure| &procedure.name)),
                ]
            }),
            ..RpcPart::default()
        }
    }

    fn find(&self, called: Called) -> Option<&'s Procedure> {
        let programs = self.spec.programs.iter().filter(|program| program.number == called.program);
        let versions = programs.flat_map(|program| &program.versions);
        let mut procedures =
            versions.filter(|version| version.number == called.version).flat_map(|version| &version.procedures);
        procedures.find(|procedure| procedure.number == called.procedure)
    }

    /// Returns the enumerator with a number. In the XDR of messages, authentication flavors and statuses are numbers,
    /// because other specifications extend these enumerations.
    fn enumerator(&self, enumeration: &str, number: u64) -> DecodedValue {
        Interpreter::new(self.rpc, PayloadSource::new(&word_of(number).to_be_bytes())).named(enumeration)
    }

    /// Returns the name of the authentication flavor and the body of a credential or verifier. Only the body of an
    /// AUTH_SYS credential is decoded.
    fn auth(&self, within: &DecodedValue, field: &str) -> (DecodedValue, DecodedValue) {
        let number = within.number(&[field, "flavor"]).unwrap_or_default();
        let body = within.bytes(&[field, "body"]).unwrap_or_default();
        let name = self.enumerator("auth_flavor", number);
        let body = match number {
            AUTH_SYS if field == "cred" => {
                let mut interpreter = Interpreter::new(self.rpc, PayloadSource::new(body));
                interpreter.named("authsys_parms")
            }
            _ if body.is_empty() => DecodedValue::None,
            _ => DecodedValue::Opaque(body.to_vec()),
        };
        (name, body)
    }
}

/// Returns `true` if an RPCSEC_GSS credential belongs to a call whose data is not protected: a data exchange with
/// `rpc_gss_svc_none` (RFC 2203 §5).
fn is_plain_gss(body: &[u8]) -> bool {
    let word = |index: usize| body.get(index * 4..index * 4 + 4);
    // Version 1, RPCSEC_GSS_DATA; the sequence number; rpc_gss_svc_none.
    word(0) == Some(&[0, 0, 0, 1]) && word(1) == Some(&[0; 4]) && word(3) == Some(&[0, 0, 0, 1])
}

fn word(value: &DecodedValue, path: &[&str]) -> u32 {
    word_of(value.number(path).unwrap_or_default())
}

fn word_of(number: u64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

//! Error chains: each message appears once, and a chain has at most two levels.

use std::{collections::BTreeSet, error::Error, fs, io, path::Path, time::Duration};

use rpcrdma::{
    Server,
    client::{CallError, ConnectError, Retries},
    error::{
        BindError, CallFailure, CallLimit, CloseReason, ConfigError, HostAuthError, MalformedCall, MessageFault,
        NegotiationFailure, ProtocolViolation, StreamError, TransportError,
    },
    provider::{DisconnectReason, IoError, MemoryHandle, RegisterError, RegisterableMemory, SetupError},
    rpc::{AuthFailure, CallHeaderError, ReplyHeaderError, RpcError},
    security::{SecurityError, UnwrapError},
    transport::{Url, UrlError},
    xdr::{DecodeError, DecodeErrorKind, EncodeError, PathSegment},
};

/// Maximum number of levels in a chain: what failed, and the cause.
const LEVELS: usize = 2;

fn url() -> UrlError {
    "nonsense".parse::<Url>().unwrap_err()
}

fn encode() -> EncodeError {
    EncodeError::TooLong { item: "Blob.data", len: 9, max: 8 }
}

fn decode() -> DecodeError {
    DecodeError::new(DecodeErrorKind::BadBool { value: 7 }, 12).at(PathSegment::Field("Blob", "last"))
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(111)
}

fn config() -> ConfigError {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bound = runtime.block_on(Server::builder().credits(0).listen("iwarp://127.0.0.1:0").bind());
    let Err(BindError::Config(error)) = bound.map(|_| ()) else { panic!("zero credits are allowed") };
    error
}

/// Returns an I/O error that contains another error, which has a source.
fn nested() -> io::Error {
    io::Error::other(BindError::Listen { url: "tcp://[::]:1".into(), source: refused() })
}

fn disconnect_reasons() -> Vec<(&'static str, DisconnectReason)> {
    vec![
        ("DisconnectReason::Local", DisconnectReason::Local),
        ("DisconnectReason::Remote", DisconnectReason::Remote),
        ("DisconnectReason::Transport", DisconnectReason::Transport(refused().into())),
        ("DisconnectReason::PeerViolation", DisconnectReason::PeerViolation("a wrong CRC".into())),
        ("DisconnectReason::ReportedByPeer", DisconnectReason::ReportedByPeer("an invalid STag".into())),
    ]
}

fn close_reasons() -> Vec<(&'static str, CloseReason)> {
    let mut all: Vec<_> = disconnect_reasons()
        .into_iter()
        .map(|(_, reason)| ("CloseReason::Disconnected", CloseReason::Disconnected(reason)))
        .collect();
    let second = Duration::from_secs(1);
    all.extend([
        ("CloseReason::PeerViolation", CloseReason::PeerViolation(ProtocolViolation::TooManyErrors)),
        (
            "CloseReason::NegotiationFailed",
            CloseReason::NegotiationFailed { why: NegotiationFailure::NoCommonVersion, versions: Some((1, 1)) },
        ),
        ("CloseReason::HostAuthentication", HostAuthError("an unknown host".into()).into()),
        ("CloseReason::Unresponsive", CloseReason::Unresponsive(second)),
        ("CloseReason::ReadStalled", CloseReason::ReadStalled(second)),
        ("CloseReason::ReplyStalled", CloseReason::ReplyStalled(second)),
        ("CloseReason::Stream", StreamError::TooManyFragments { max: 5 }.into()),
        ("CloseReason::Idle", CloseReason::Idle(second)),
        ("CloseReason::NoCall", CloseReason::NoCall(second)),
        ("CloseReason::Silent", CloseReason::Silent(second)),
    ]);
    all
}

fn call_failures() -> Vec<(&'static str, CallFailure)> {
    let mut all: Vec<_> = close_reasons()
        .into_iter()
        .map(|(_, reason)| ("CallFailure::Closed", CallFailure::Closed { reason, sent: true }))
        .collect();
    all.extend([
        ("CallFailure::Refused", TransportError::BadXdr.into()),
        ("CallFailure::BadReply", CallFailure::BadReply(MessageFault::ReadList)),
        ("CallFailure::TooLarge", CallFailure::TooLarge(CallLimit::Segments)),
        ("CallFailure::Malformed", CallFailure::Malformed(MalformedCall::ShortMessage { len: 7 })),
        ("CallFailure::Registration", CallFailure::Registration(refused().into())),
    ]);
    all
}

fn setup_errors() -> Vec<(&'static str, SetupError)> {
    vec![
        ("SetupError::Io", refused().into()),
        ("SetupError::Rejected", SetupError::Rejected { private_data: bytes::Bytes::new() }),
        ("SetupError::NotOurProtocol", SetupError::NotOurProtocol { expected: "MPA", detail: "peer sent HTTP".into() }),
        ("SetupError::TimedOut", SetupError::TimedOut(Duration::from_secs(1))),
    ]
}

fn connect_errors() -> Vec<(&'static str, ConnectError)> {
    let peer = "192.0.2.1:20049".parse().unwrap();
    let mut all: Vec<_> = setup_errors()
        .into_iter()
        .map(|(_, source)| ("ConnectError::Setup", ConnectError::Setup { peer, source }))
        .collect();
    all.push(("ConnectError::Url", url().into()));
    all.push(("ConnectError::Resolve", ConnectError::Resolve { host: "host".into(), source: refused().into() }));
    #[cfg(unix)]
    all.push((
        "ConnectError::Local",
        ConnectError::Local { path: "/run/s".into(), source: SetupError::Io(refused().into()) },
    ));
    let retry_in = Duration::from_secs(1);
    all.extend(
        close_reasons()
            .into_iter()
            .map(|(_, reason)| ("ConnectError::Closed", ConnectError::Closed { peer, reason, sent: true })),
    );
    let late = all.clone().into_iter().map(|(_, last)| ConnectError::Late { last: Some(Box::new(last)) });
    let late: Vec<_> = late.map(|error| ("ConnectError::Late", error)).collect();
    all.extend(late);
    let waiting = all.clone().into_iter().map(|(_, last)| ConnectError::BackOff { retry_in, last: Box::new(last) });
    let waiting: Vec<_> = waiting.map(|error| ("ConnectError::BackOff", error)).collect();
    all.extend(waiting);
    all
}

fn call_errors() -> Vec<(&'static str, CallError)> {
    let procedure = "BLOB.GET";
    let mut all: Vec<_> = call_failures()
        .into_iter()
        .map(|(_, failure)| {
            ("CallError::Transport", CallError::Transport { procedure, failure, retries: Retries::default() })
        })
        .collect();
    let unconnected = connect_errors().into_iter();
    all.extend(unconnected.map(|(_, error)| {
        ("CallError::Connect", CallError::Connect { procedure, error, retries: Retries::default() })
    }));
    let insecure = |sent| CallError::Security { procedure, sent, source: SecurityError("no context".into()) };
    let denied = RpcError::Authentication(AuthFailure(1));
    all.extend([
        ("CallError::Credential", CallError::Credential { procedure, len: 401 }),
        ("CallError::Encode", CallError::Encode { procedure, source: encode() }),
        ("CallError::Security", insecure(false)),
        ("CallError::Security", insecure(true)),
        ("CallError::Rpc", CallError::Rpc { procedure, source: RpcError::SystemError }),
        ("CallError::Rpc", CallError::Rpc { procedure, source: denied }),
        (
            "CallError::Middleware",
            CallError::Middleware { procedure, sent: true, source: std::sync::Arc::new(refused()) },
        ),
        ("CallError::Decode", CallError::Decode { procedure, source: decode() }),
        ("CallError::DirectPlacement", CallError::DirectPlacement { procedure, source: decode() }),
    ]);
    all
}

/// Returns errors of each kind with the names of their variants, including every variant that has a source, except
/// those that a feature defines.
fn samples() -> Vec<(&'static str, Box<dyn Error>)> {
    fn boxed<E: Error + 'static>(
        errors: Vec<(&'static str, E)>,
    ) -> impl Iterator<Item = (&'static str, Box<dyn Error>)> {
        errors.into_iter().map(|(name, error)| (name, Box::new(error) as Box<dyn Error>))
    }
    let mut all: Vec<_> = boxed(call_errors())
        .chain(boxed(connect_errors()))
        .chain(boxed(setup_errors()))
        .chain(boxed(call_failures()))
        .chain(boxed(close_reasons()))
        .chain(boxed(disconnect_reasons()))
        .collect();
    let listen = |source| BindError::Listen { url: "tcp://[::]:1".into(), source };
    let auth = AuthFailure(2);
    all.extend(boxed(vec![
        ("BindError::Url", BindError::Url(url())),
        ("BindError::Config", BindError::Config(config())),
        ("BindError::Listen", listen(refused())),
    ]));
    all.extend(boxed(vec![
        ("CallHeaderError::NotACall", CallHeaderError::NotACall(decode())),
        ("CallHeaderError::BadAuth", CallHeaderError::BadAuth { xid: 1, failure: auth, error: decode() }),
        ("CallHeaderError::Malformed", CallHeaderError::Malformed { xid: 1, error: decode() }),
    ]));
    all.extend(boxed(vec![("ReplyHeaderError::Malformed", ReplyHeaderError::Malformed(decode()))]));
    let refused = SecurityError("wrong checksum".into());
    all.extend(boxed(vec![("UnwrapError::Refused", UnwrapError::Refused(refused))]));
    let memory = RegisterableMemory::Source(bytes::Bytes::new());
    all.extend(boxed(vec![("RegisterError", RegisterError { source: "no handle".into(), memory })]));
    all
}

/// Returns the messages of an error and its causes.
fn chain(error: &dyn Error) -> Vec<String> {
    let mut messages = vec![error.to_string()];
    messages.extend(error.source().map(chain).unwrap_or_default());
    messages
}

#[test]
fn error_chains_are_short_without_repetition() {
    for (name, error) in samples() {
        let levels = chain(&*error);
        assert!(levels.len() <= LEVELS, "{name} has more than {LEVELS} levels: {levels:#?}");
        for (at, message) in levels.iter().enumerate() {
            assert!(!message.is_empty() && !message.ends_with('.'), "{name}: {message:?}");
            for cause in &levels[at + 1..] {
                assert!(!message.contains(cause.as_str()), "{name} repeats its cause: {levels:#?}");
            }
        }
    }
}

/// The error of a call displays the message of the failure, and its source is the cause of the failure.
#[test]
fn causes_of_calls_have_types() {
    let reason = CloseReason::Disconnected(DisconnectReason::Remote);
    let failure = CallFailure::Closed { reason: reason.clone(), sent: false };
    let error = CallError::Transport { procedure: "BLOB.GET", failure, retries: Retries::default() };
    assert_eq!(
        chain(&error),
        ["BLOB.GET: connection closed, the call was not sent, a retry is safe", "closed by the peer"]
    );
    assert_eq!(error.source().and_then(|cause| cause.downcast_ref()), Some(&reason));

    let failed = ConnectError::Setup { peer: "192.0.2.1:20049".parse().unwrap(), source: refused().into() };
    let error = ConnectError::BackOff { retry_in: Duration::from_secs(1), last: Box::new(failed) };
    let error = CallError::Connect { procedure: "BLOB.GET", error, retries: Retries::default() };
    let messages = chain(&error);
    assert_eq!(
        messages[0],
        "BLOB.GET: cannot connect to 192.0.2.1:20049: start the server, or check the port, next attempt in 1s"
    );
    assert!(messages[1].starts_with("Connection refused"), "{messages:?}");
    assert!(matches!(error.source().and_then(|cause| cause.downcast_ref()), Some(SetupError::Io(_))));

    let error = CallError::Rpc { procedure: "BLOB.GET", source: RpcError::ProgramUnavailable };
    assert_eq!(error.source().and_then(|cause| cause.downcast_ref()), Some(&RpcError::ProgramUnavailable));
}

/// The causes of failures are values with fields, which the message of the failure displays.
#[test]
fn causes_of_failures_are_values() {
    for (failure, text) in [
        (
            CallFailure::BadReply(MessageFault::SegmentTooLong { len: 9, max: 8 }),
            "bad reply: a segment is longer than in the call",
        ),
        (
            CallFailure::BadReply(MessageFault::RecordTooLong { len: 9, max: 8, is_complete: false }),
            "bad reply: its record is at least 9 bytes long, more than max_record (8)",
        ),
        (
            CallFailure::TooLarge(CallLimit::ReplyMemory { needed: 9, max: 8 }),
            "the call cannot be sent: its reply may need 9 bytes, more than the 8 allowed (EngineConfig::max_call_len; \
             memory that the caller provides for results is not counted)",
        ),
        (
            CallFailure::Malformed(MalformedCall::ShortLanding { len: 8, needed: 9 }),
            "the call cannot be sent: a landing buffer of 8 bytes is too short for 9 bytes",
        ),
    ] {
        assert_eq!(failure.to_string(), text);
        assert!(failure.source().is_none());
    }
    let violation = ProtocolViolation::UnofferedHandle { handle: MemoryHandle(7) };
    for (reason, text) in [
        (
            CloseReason::PeerViolation(violation),
            "the peer violated RPC-over-RDMA: it invalidated 0x00000007, which no call offered for invalidation",
        ),
        (
            CloseReason::NegotiationFailed {
                why: NegotiationFailure::PropertiesRefused(TransportError::BadProperty),
                versions: None,
            },
            "version negotiation failed (the peer refused the exchange of properties: malformed transport property \
             (RDMA2_ERR_BAD_PROPVAL))",
        ),
        (
            CloseReason::NegotiationFailed {
                why: NegotiationFailure::Disconnected(DisconnectReason::Remote),
                versions: Some((1, 1)),
            },
            "version negotiation failed (closed by the peer); the peer supports versions 1 to 1",
        ),
    ] {
        assert_eq!(reason.to_string(), text);
        assert!(reason.source().is_none());
    }
}

/// An [`IoError`] represents the error inside it and adds no level of its own.
#[test]
fn io_errors_add_no_level() {
    let error = IoError::from(nested());
    assert_eq!(chain(&error), chain(&nested()));
    assert_eq!(error, IoError::from(nested()));
    assert_eq!(error, error.clone());
    assert_ne!(error, IoError::from(refused()));
    assert_eq!(IoError::from(refused()).kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(IoError::from("out of handles").to_string(), "out of handles");
}

/// A variant of an error enum in the source text: its name, attributes and fields.
struct Variant {
    name: String,
    text: String,
}

impl Variant {
    fn has_source(&self) -> bool {
        let is_field = |line: &str| line.trim_start().starts_with("source:");
        ["#[source]", "#[from]"].iter().any(|attribute| self.text.contains(attribute))
            || self.text.lines().any(is_field)
    }

    /// Returns `true` if the message contains the source, so that `source()` must not return it.
    fn displays_source(&self) -> bool {
        let attribute = self.text.split_once("#[error(").map_or("", |(_, rest)| rest);
        let message = attribute.split_once(")]").map_or(attribute, |(message, _)| message);
        ["{source", "{0", "{error", "{reason", ".source", ".0"].iter().any(|field| message.contains(field))
    }
}

/// Returns the variants of all public error enums in a file.
fn variants(file: &str) -> Vec<Variant> {
    let mut all = Vec::new();
    for rest in file.split("\npub enum ").skip(1) {
        let (name, body) = rest.split_once(" {\n").unwrap();
        if !["Error", "Failure", "Reason", "Fault"].iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let body = body.split_once("\n}").map_or(body, |(body, _)| body);
        let mut text = String::new();
        let mut variant = None;
        for line in body.lines() {
            let code =
                line.strip_prefix("    ").filter(|code| code.starts_with(|first: char| first.is_ascii_uppercase()));
            if let Some(code) = code {
                let end = code.find(|c: char| !c.is_alphanumeric()).unwrap_or(code.len());
                variant = Some(format!("{name}::{}", &code[..end]));
            }
            text += line;
            text.push('\n');
            if variant.is_some()
                && (line.ends_with("),") || line.ends_with("},") || (code.is_some() && line.ends_with(',')))
            {
                all.push(Variant { name: variant.take().unwrap(), text: std::mem::take(&mut text) });
            }
        }
    }
    all
}

fn sources(folder: &Path, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Searches the source of five of the runtime's crates for variants with a source that [`samples`] lacks, and for
/// messages that repeat their source.
#[test]
fn samples_include_every_variant_with_a_source() {
    let mut files = Vec::new();
    for folder in ["src", "xdr/src", "proto/src", "iwarp/src", "verbs/src"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    let sampled: BTreeSet<_> = samples().into_iter().map(|(name, _)| name).collect();
    let (mut found, mut missing) = (BTreeSet::new(), Vec::new());
    for (path, text) in &files {
        for variant in variants(text).into_iter().filter(Variant::has_source) {
            assert!(!variant.displays_source(), "{} in {path} has its source in its message", variant.name);
            // The feature that defines these may be off.
            let optional = [
                "VerbsError::",
                "TlsError::",
                "TlsConfigError::",
                "ConnectError::TlsConfig",
                "SetupError::Layer",
                "DnsError::",
            ];
            let is_optional = optional.iter().any(|start| variant.name.starts_with(start));
            if !is_optional && !sampled.contains(variant.name.as_str()) {
                missing.push(format!("{} in {path}", variant.name));
            }
            found.insert(variant.name);
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "not in `samples`");
    for name in
        ["CallError::Rpc", "ConnectError::Setup", "CallFailure::Refused", "VerbsError::Os", "CallHeaderError::NotACall"]
    {
        assert!(found.contains(name), "{name} was not found: {found:?}");
    }
}

/// The messages about landing buffers, overlong credentials, cancelled calls and chunks that are too small have the
/// expected text. Numbers that are unknown are left out.
#[test]
fn messages_fit_the_situation() {
    let procedure = "P.Q";
    let landing = |needed| CallError::Landing { procedure, index: 1, len: 10, needed };
    let failed = |failure| CallError::Transport { procedure, failure, retries: Retries::default() };
    for (error, text) in [
        (landing(11), "P.Q: landing buffer 1 has 10 bytes, but its eligible result may have 11"),
        (landing(0), "P.Q: landing buffer 1 of 10 bytes is for no result: the call has fewer eligible results"),
        (
            CallError::Credential { procedure, len: 401 },
            "P.Q: the credential has 401 bytes, and may have 400 (RFC 5531 section 8.2): send a longer token as an argument",
        ),
        (failed(CallFailure::Cancelled { sent: false }), "P.Q: cancelled, the call was not sent, a retry is safe"),
        (
            failed(CallFailure::Cancelled { sent: true }),
            "P.Q: cancelled, the call was sent and may have been executed, retry only an idempotent procedure",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
    for (error, text) in [
        (
            TransportError::WriteResource { chunk: 0, needed: 0 },
            "a Write chunk is too small for its result (RDMA2_ERR_WRITE_RESOURCE)",
        ),
        (
            TransportError::WriteResource { chunk: 2, needed: 7 },
            "Write chunk 2 is too small for its result, which needs 7 bytes (RDMA2_ERR_WRITE_RESOURCE)",
        ),
        (
            TransportError::ReplyResource { needed: 0 },
            "the Reply chunk is missing or too small for the reply (RDMA2_ERR_REPLY_RESOURCE)",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

//! Procedures with arguments and results in JSON, for callers that load the specification at run time.

use serde_json::Value;

use super::{
    encode::{EncodedPart, JsonEncoder, JsonError, ReadFile},
    interpret::Interpreter,
    json::to_json,
    memory::ChunkData,
    payload_source::PayloadSource,
    value::DecodedValue,
};
use crate::{
    DEFAULT_REPLY_MAX, did_you_mean,
    ir::{ArgPath, ChunkRun, Expr, Field, Procedure, Program, Spec, Version},
};

/// Maximum number of array elements whose eligible items are counted in the room for a reply.
const MAX_REPEATED: u64 = 1 << 16;

/// A procedure of a specification, whose arguments are encoded from JSON, and whose results are decoded to JSON.
///
/// Values have the same form as in [`Message::to_json`](super::Message::to_json): names of enumerators, hexadecimal
/// digits for opaque data, `null` for an absent optional item, an object with the discriminant and the arm for a union.
/// A string that is not UTF-8 is `{"hex": DIGITS}`. A single argument is the value itself. Several arguments are an
/// object. `null` stands for no arguments.
///
/// ```
/// use rpcrdma_xdrgen::{Compiler, decode::{EncodedPart, JsonProcedure}};
///
/// let text = "struct entry { string name<>; @ddp opaque data<>; };
///     program STORE { version V { int PUT(entry) = 1; } = 1; } = 7;";
/// let compiled = Compiler::new().source("store.x", text).compile()?;
/// let put = JsonProcedure::find(&compiled.spec, "STORE.PUT", None)?;
/// let call = put.encode(r#"{"name": "a", "data": "0102"}"#, &mut |_| Err("no files".to_owned()))?;
/// let inline = vec![0, 0, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 2];
/// assert_eq!(call.parts, [EncodedPart::Inline(inline), EncodedPart::Eligible(vec![1, 2])]);
/// assert_eq!(put.decode(&[255; 4], &[])?, "-1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct JsonProcedure<'s> {
    spec: &'s Spec,
    program: &'s Program,
    version: &'s Version,
    procedure: &'s Procedure,
}

/// The encoded arguments of a call, and the room for its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonCall {
    /// The arguments, in wire order.
    pub parts: Vec<EncodedPart>,
    /// Maximum length of the result in the payload stream when every eligible item is reduced, in bytes.
    pub max_inline: u64,
    /// Maximum length of each eligible item of the result, in bytes and in the order of the encoding.
    pub max_items: Vec<u64>,
    /// Maximum length of all eligible items together, in bytes with padding. `None` if it is the sum of `max_items`.
    pub max_total: Option<u64>,
    /// `true` if the specification leaves the computation of these lengths to Rust code. `max_inline` is then
    /// [`DEFAULT_REPLY_MAX`](crate::DEFAULT_REPLY_MAX), and `max_items` is empty.
    pub is_estimate: bool,
}

/// The error for a name that matches no procedure of the specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownProcedure(String);

/// The error for result bytes that do not match the result type of the procedure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadResult(String);

impl<'s> JsonProcedure<'s> {
    /// Finds a procedure by its name, `PROGRAM.PROCEDURE` or `PROGRAM.VERSION.PROCEDURE`. `version` is the number of
    /// the version. It must match the version in the name, if there is one. If neither is given, the highest version
    /// with the procedure is used.
    ///
    /// # Errors
    /// Returns an error if `name` has another form, or if there is no such program, version or procedure.
    pub fn find(spec: &'s Spec, name: &str, version: Option<u32>) -> Result<Self, UnknownProcedure> {
        let parts: Vec<&str> = name.split('.').collect();
        let (program, version_name, procedure) = match parts[..] {
            [program, procedure] => (program, None, procedure),
            [program, version, procedure] => (program, Some(version), procedure),
            _ => {
                let why = format!("`{name}` is not PROGRAM.PROCEDURE or PROGRAM.VERSION.PROCEDURE");
                return Err(UnknownProcedure(why));
            }
        };
        let programs = spec.programs.iter().map(|program| &*program.name.text);
        let Some(found) = spec.programs.iter().find(|it| it.name.text == program) else {
            return Err(unknown("program", program, programs));
        };
        let mut versions: Vec<_> = found.versions.iter().collect();
        if let Some(wanted) = version_name {
            versions.retain(|version| version.name.text == wanted);
            if versions.is_empty() {
                let known = found.versions.iter().map(|version| &*version.name.text);
                return Err(unknown(&format!("version of `{program}`"), wanted, known));
            }
        }
        if let Some(number) = version {
            versions.retain(|version| version.number == number);
            if versions.is_empty() {
                return Err(UnknownProcedure(format!("`{program}` has no such version with the number {number}")));
            }
        }
        versions.sort_by_key(|version| std::cmp::Reverse(version.number));
        let matching = versions.iter().find_map(|&version| {
            let procedure = version.procedures.iter().find(|it| it.name.text == procedure)?;
            Some(Self { spec, program: found, version, procedure })
        });
        matching.ok_or_else(|| {
            let known = versions.iter().flat_map(|version| &version.procedures).map(|it| &*it.name.text);
            unknown(&format!("procedure of `{program}`"), procedure, known)
        })
    }

    /// Returns the number of the program.
    #[must_use]
    pub fn program(&self) -> u32 {
        self.program.number
    }

    /// Returns the number of the version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version.number
    }

    /// Returns the number of the procedure.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.procedure.number
    }

    /// Returns the name of the procedure in the specification, without the name of the program.
    #[must_use]
    pub fn name(&self) -> &'s str {
        &self.procedure.name.text
    }

    /// Returns `true` if, according to the specification, executing the procedure twice has the same effect as
    /// executing it once.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.procedure.idempotent
    }

    /// Encodes arguments from JSON, and computes the room for the reply from them. `read_file` returns the contents of
    /// an opaque item that is written as `"@NAME"`, or an error message.
    ///
    /// # Errors
    /// Returns an error if the text is not JSON, if a value does not match its XDR type or is nested too deeply, if the
    /// encoding of a type is unknown, or if `read_file` fails. The error has the path of the value.
    pub fn encode(&self, arguments: &str, read_file: &mut ReadFile<'_>) -> Result<JsonCall, JsonError> {
        let value = serde_json::from_str::<Value>(arguments)
            .map_err(|error| JsonError::whole(format!("the arguments are not JSON: {error}")))?;
        let mut read = |name: &str| read_file(name);
        let mut encoder = JsonEncoder::new(self.spec, &mut read);
        match &*self.procedure.args {
            [] if value.is_null() => {}
            [] => return Err(JsonError::whole("the procedure has no arguments, expected null")),
            [only] => encoder.field(only, &value, false)?,
            fields => encoder.fields(fields, &value)?,
        }
        let parts = encoder.into_parts();
        let bounds = &self.procedure.bounds;
        if bounds.computed {
            // The number of eligible items is unknown as well. Those without a chunk stay in the payload stream.
            return Ok(JsonCall {
                parts,
                max_inline: DEFAULT_REPLY_MAX,
                max_items: Vec::new(),
                max_total: None,
                is_estimate: true,
            });
        }
        let arguments = self.decoded(&parts);
        let compute = |expr: &Expr| compute(expr, &arguments);
        let lens = |run: &ChunkRun| {
            let lens: Vec<u64> = run.items.iter().map(|(_, max)| compute(max)).collect();
            let count = run.count.as_ref().map_or(1, compute).min(MAX_REPEATED);
            (0..count).flat_map(move |_| lens.clone())
        };
        Ok(JsonCall {
            max_inline: compute(&bounds.inline),
            max_items: bounds.chunks.iter().flat_map(lens).collect(),
            max_total: bounds.total.as_ref().map(compute),
            is_estimate: false,
            parts,
        })
    }

    /// Decodes encoded arguments again, to compute the bounds of the reply from their values.
    fn decoded(&self, parts: &[EncodedPart]) -> DecodedValue {
        let mut flat = Vec::new();
        for part in parts {
            let (EncodedPart::Inline(bytes) | EncodedPart::Eligible(bytes)) = part;
            flat.extend_from_slice(bytes);
            flat.resize(flat.len().next_multiple_of(4), 0);
        }
        Interpreter::new(self.spec, PayloadSource::new(&flat)).fields(&self.procedure.args)
    }

    /// Decodes a result to JSON. `inline` is the part of the result in the payload stream. `chunks` are the contents of
    /// the Write chunks, in the order of the Write list. A chunk that the responder did not use is empty.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a result of the procedure.
    pub fn decode(&self, inline: &[u8], chunks: &[&[u8]]) -> Result<String, BadResult> {
        let chunk = |bytes: &&[u8]| ChunkData { segments: Vec::new(), len: bytes.len() as u64, bytes: bytes.to_vec() };
        let source = PayloadSource::new(inline).with_writes(chunks.iter().map(chunk).collect());
        let mut interpreter = Interpreter::new(self.spec, source).without_chunks();
        let result: Option<&Field> = self.procedure.result.as_ref();
        let value = result.map_or(DecodedValue::None, |field| interpreter.field(field, false));
        if let Some(why) = value.error() {
            return Err(BadResult(why.to_owned()));
        }
        let mut source = interpreter.into_source();
        match (source.left(), source.unused().len()) {
            (0, 0) => Ok(to_json(&value).to_string()),
            (0, _) => Err(BadResult("a chunk belongs to no item of the result".into())),
            (left, _) => Err(BadResult(format!("{left} bytes follow the result"))),
        }
    }
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> UnknownProcedure {
    let hint = did_you_mean::of(name, known.clone());
    let mut names: Vec<_> = known.collect();
    names.dedup();
    let rest = match hint {
        Some(hint) => format!("did you mean `{hint}`?"),
        None if names.is_empty() => "there is none".into(),
        None => format!("known are {}", names.join(", ")),
    };
    UnknownProcedure(format!("no {what} is named `{name}`, {rest}"))
}

/// Computes an expression over arguments, with saturating arithmetic like generated code.
fn compute(expr: &Expr, arguments: &DecodedValue) -> u64 {
    let value = |expr: &Expr| compute(expr, arguments);
    match expr {
        Expr::Const(value) => *value,
        Expr::Arg(path) => match argument(path, arguments) {
            Some(DecodedValue::Bool(flag)) => u64::from(*flag),
            // Negative values become zero.
            value => value.and_then(|value| value.number(&[])).unwrap_or(0),
        },
        Expr::Len(path) => match argument(path, arguments) {
            Some(DecodedValue::Array(elements)) => elements.len() as u64,
            value => value.and_then(|value| value.bytes(&[])).map_or(0, |bytes| bytes.len() as u64),
        },
        Expr::Add(a, b) => value(a).saturating_add(value(b)),
        Expr::Sub(a, b) => value(a).saturating_sub(value(b)),
        Expr::Mul(a, b) => value(a).saturating_mul(value(b)),
        Expr::Div(a, b) => value(a).checked_div(value(b)).unwrap_or(u64::MAX),
        Expr::Min(a, b) => value(a).min(value(b)),
        Expr::Max(a, b) => value(a).max(value(b)),
    }
}

/// Returns the value at a path in the arguments, or `None` if there is no such value.
fn argument<'v>(path: &ArgPath, arguments: &'v DecodedValue) -> Option<&'v DecodedValue> {
    let steps = std::iter::once(path.arg).chain(path.fields.iter().copied());
    steps.into_iter().try_fold(arguments, |value, index| value.fields().get(index).map(|(_, field)| field))
}

#[cfg(test)]
mod tests;

//! An encoder from JSON to XDR (RFC 4506) that interprets the types of a specification, without generated code.

use std::fmt;

use serde_json::{Map, Value};

use super::{
    hex::parse_digits,
    interpret::MAX_DEPTH,
    json::{HEX_KEY, arm_key},
};
use crate::{
    did_you_mean,
    ir::{Base, Enumerator, Field, Item, ItemId, ItemKind, Spec, Type, Union},
    resolve::sizes,
};

/// A part of encoded arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodedPart {
    /// Bytes of the payload stream.
    Inline(Vec<u8>),
    /// The contents of an item that is eligible for direct data placement, without its length and its padding.
    Eligible(Vec<u8>),
}

/// The error for arguments that cannot be encoded: the text is not JSON, a value does not match its XDR type or is
/// nested too deeply, the encoding of a type is unknown, or the contents of an opaque item cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct JsonError {
    path: String,
    message: String,
}

impl JsonError {
    /// Creates an error that concerns the whole text.
    pub(super) fn whole(message: impl Into<String>) -> Self {
        Self { path: ".".into(), message: message.into() }
    }

    /// Returns the path of the value, such as `.entries[3].name`, or `.` for the whole text.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// A function that returns the contents of an opaque item that is written as `@NAME`. Its argument is the name, and its
/// error is a message for the user.
pub type ReadFile<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// A step from a value to one of its parts.
#[derive(Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// An encoder from JSON values to XDR.
pub(super) struct JsonEncoder<'s, 'f> {
    spec: &'s Spec,
    read_file: &'f mut ReadFile<'f>,
    parts: Vec<EncodedPart>,
    path: Vec<Step>,
    depth: usize,
}

type Encoded = Result<(), JsonError>;

impl<'s, 'f> JsonEncoder<'s, 'f> {
    pub(super) fn new(spec: &'s Spec, read_file: &'f mut ReadFile<'f>) -> Self {
        Self { spec, read_file, parts: Vec::new(), path: Vec::new(), depth: 0 }
    }

    /// Returns the encoded parts, in wire order.
    pub(super) fn into_parts(self) -> Vec<EncodedPart> {
        self.parts
    }

    /// Encodes the fields of a struct, or several arguments of a procedure, from an object.
    pub(super) fn fields(&mut self, fields: &[Field], value: &Value) -> Encoded {
        let Value::Object(object) = value else { return self.unexpected("an object", value) };
        self.check_keys(object, &fields.iter().map(|field| &*field.name.text).collect::<Vec<_>>())?;
        for field in fields {
            self.member(object, &field.name.text, field)?;
        }
        Ok(())
    }

    /// Encodes the member `key` of an object as the value of `field`. A missing member means that an optional item is
    /// absent.
    fn member(&mut self, object: &Map<String, Value>, key: &str, field: &Field) -> Encoded {
        let value = match object.get(key) {
            Some(value) => value,
            None if matches!(sizes::through_typedefs(self.spec, &field.ty), Type::Optional(_)) => &Value::Null,
            None => return Err(self.error(format!("`{key}` is missing, which is {}", self.describe(&field.ty)))),
        };
        self.within(Step::Key(key.to_owned()), |this| this.field(field, value, false))
    }

    /// Encodes the value of a field. `eligible` is `true` if `field` is the target of a typedef, and the item with that
    /// typedef as its type is marked as eligible.
    pub(super) fn field(&mut self, field: &Field, value: &Value, eligible: bool) -> Encoded {
        self.nested(|this| this.ty(&field.ty, value, eligible || field.ddp.is_some()))
    }

    fn ty(&mut self, ty: &Type, value: &Value, eligible: bool) -> Encoded {
        match *ty {
            Type::Base(base) => self.base(base, value, eligible),
            Type::OpaqueFixed(len) => {
                let bytes = self.opaque(value, &self.describe(ty))?;
                if bytes.len() != len as usize {
                    return Err(self.error(format!("expected {len} bytes, found {}", bytes.len())));
                }
                self.contents(bytes, eligible);
                Ok(())
            }
            Type::Opaque(max) => {
                let bytes = self.opaque(value, &self.describe(ty))?;
                self.counted(bytes, max, eligible)
            }
            Type::String(max) => {
                let bytes = self.text(value, &self.describe(ty))?;
                self.counted(bytes, max, eligible)
            }
            Type::ArrayFixed(base, len) => {
                let elements = self.elements(value, &self.describe(ty))?;
                if elements.len() != len as usize {
                    return Err(self.error(format!("expected {len} elements, found {}", elements.len())));
                }
                self.array(base, elements, eligible)
            }
            Type::Array(base, max) => {
                let elements = self.elements(value, &self.describe(ty))?;
                let len = self.length(elements.len(), max, "elements")?;
                self.word(len);
                self.array(base, elements, eligible)
            }
            Type::Optional(_) if value.is_null() => {
                self.word(0);
                Ok(())
            }
            Type::Optional(base) => {
                self.word(1);
                self.base(base, value, false)
            }
            Type::List(node) => self.list(node, value, false),
            Type::NonEmptyList(node) => self.list(node, value, true),
        }
    }

    fn base(&mut self, base: Base, value: &Value, eligible: bool) -> Encoded {
        let is_typedef = matches!(base, Base::Item(id)
            if self.spec.items.get(id.0).is_some_and(|item| matches!(item.kind, ItemKind::Typedef(_))));
        // All of an eligible item of fixed size moves to the chunk.
        if eligible && !is_typedef {
            return self.separately(|this| this.base(base, value, false));
        }
        match base {
            Base::Bool => match value {
                Value::Bool(flag) => self.word(u32::from(*flag)),
                _ => return self.unexpected("`true` or `false`", value),
            },
            Base::Int => {
                let number = self.integer(value, i32::MIN.into(), i32::MAX.into(), "int")?;
                self.word(number as u32);
            }
            Base::UInt => {
                let number = self.integer(value, 0, u32::MAX.into(), "unsigned int")?;
                self.word(number as u32);
            }
            Base::Short(short) => {
                let number = self.integer(value, i32::MIN.into(), u32::MAX.into(), short.text())?;
                if !short.holds(number) {
                    return self.unexpected(&format!("a number of `{}`", short.text()), value);
                }
                self.word(number as u32);
            }
            Base::Hyper => {
                let number = self.integer(value, i64::MIN.into(), i64::MAX.into(), "hyper")?;
                self.put(&(number as u64).to_be_bytes());
            }
            Base::UHyper => {
                let number = self.integer(value, 0, u64::MAX.into(), "unsigned hyper")?;
                self.put(&(number as u64).to_be_bytes());
            }
            Base::Float => {
                let number = self.float(value, "float")?;
                let short = number as f32;
                if short.is_infinite() && number.is_finite() {
                    return Err(self.error(format!("{number} is too large for `float`")));
                }
                self.put(&short.to_be_bytes());
            }
            Base::Double => {
                let number = self.float(value, "double")?;
                self.put(&number.to_be_bytes());
            }
            Base::Quadruple => {
                let expected = "32 hexadecimal digits of a `quadruple`";
                let digits = value.as_str().and_then(parse_digits).filter(|digits| digits.len() == 16);
                let Some(digits) = digits else { return self.unexpected(expected, value) };
                self.put(&digits);
            }
            Base::Item(id) => return self.item(id, value, eligible),
        }
        Ok(())
    }

    fn item(&mut self, id: ItemId, value: &Value, eligible: bool) -> Encoded {
        let spec = self.spec;
        let Some(item) = spec.items.get(id.0) else { return Err(self.error("unknown type")) };
        self.nested(|this| match &item.kind {
            ItemKind::Enum(enumerators) => {
                let number = this.enumerator(item, enumerators, value)?;
                this.word(number.cast_unsigned());
                Ok(())
            }
            ItemKind::Struct { fields, .. } => this.fields(fields, value),
            ItemKind::Union(union) => this.union(item, union, value),
            ItemKind::Typedef(field) => this.field(field, value, eligible),
            ItemKind::Extern(path) => {
                let name = &item.name.text;
                Err(this.error(format!("`{name}` has the Rust type `{path}`, whose encoding is unknown")))
            }
            ItemKind::Const(_) => Err(this.error(format!("`{}` is a constant", item.name.text))),
        })
    }

    /// Returns the number of an enumerator. `value` is its name or its number.
    fn enumerator(&self, item: &Item, enumerators: &[Enumerator], value: &Value) -> Result<i32, JsonError> {
        let found = match value {
            Value::String(name) => enumerators.iter().find(|enumerator| enumerator.name.text == *name),
            _ => enumerators.iter().find(|enumerator| value.as_i64() == Some(enumerator.value.into())),
        };
        if let Some(enumerator) = found {
            return Ok(enumerator.value);
        }
        const SHOWN: usize = 8;
        let names: Vec<_> = enumerators.iter().map(|enumerator| &*enumerator.name.text).collect();
        let more = if names.len() > SHOWN { ", .." } else { "" };
        let hint = value.as_str().and_then(|name| did_you_mean::of(name, names.iter().copied()));
        let hint = hint.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
        let shown = names[..names.len().min(SHOWN)].join(", ");
        let expected = format!("an enumerator of `{}` ({shown}{more})", item.name.text);
        Err(self.error(format!("expected {expected}, found {}{hint}", found_text(value))))
    }

    fn union(&mut self, item: &Item, union: &Union, value: &Value) -> Encoded {
        let Value::Object(object) = value else {
            return self.unexpected(&format!("an object for the union `{}`", item.name.text), value);
        };
        let key = &union.discriminant.name.text;
        let Some(selector) = object.get(key) else {
            return Err(self.error(format!("the discriminant `{key}` of the union `{}` is missing", item.name.text)));
        };
        let number = self.within(Step::Key(key.clone()), |this| {
            this.field(&union.discriminant, selector, false)?;
            this.discriminant(&union.discriminant.ty, selector)
        })?;
        let arm = union.arms.iter().find(|arm| arm.cases.iter().any(|case| case.value == number));
        let field = match (arm, &union.default) {
            (Some(arm), _) => arm.field.as_ref(),
            (None, Some(default)) => default.as_ref(),
            (None, None) => {
                return Err(self.error(format!("the union `{}` has no arm for {selector}", item.name.text)));
            }
        };
        let mut keys = vec![&**key];
        keys.extend(field.map(|field| arm_key(union, field)));
        self.check_keys(object, &keys)?;
        let has_length = union.opaque && !field.is_some_and(|field| sizes::has_own_length(self.spec, &field.ty));
        match field {
            Some(field) if has_length => {
                let start = self.parts.len();
                self.parts.push(EncodedPart::Inline(Vec::new()));
                self.member(object, arm_key(union, field), field)?;
                // Nothing in such an arm is eligible.
                let arm: Vec<u8> = self.parts.drain(start..).flat_map(EncodedPart::into_bytes).collect();
                let len = self.length(arm.len(), u32::MAX, "bytes")?;
                self.word(len);
                self.put(&arm);
                Ok(())
            }
            Some(field) => self.member(object, arm_key(union, field), field),
            None => {
                if has_length {
                    self.word(0);
                }
                Ok(())
            }
        }
    }

    /// Returns the number of the discriminant `value`, to select an arm.
    fn discriminant(&self, ty: &Type, value: &Value) -> Result<i64, JsonError> {
        if let Type::Base(Base::Item(id)) = sizes::through_typedefs(self.spec, ty)
            && let Some(item) = self.spec.items.get(id.0)
            && let ItemKind::Enum(enumerators) = &item.kind
        {
            return self.enumerator(item, enumerators, value).map(i64::from);
        }
        let number = match value {
            Value::Bool(flag) => Some(i64::from(*flag)),
            _ => value.as_i64().or_else(|| value.as_u64().map(u64::cast_signed)),
        };
        number.ok_or_else(|| self.error("not a discriminant"))
    }

    /// Encodes a list whose nodes are linked by optional pointers (RFC 4506 §4.19). `is_first_implied` is `true` if the
    /// type requires at least one node. In that case, no flag precedes the first node.
    fn list(&mut self, node: ItemId, value: &Value, is_first_implied: bool) -> Encoded {
        let name = self.spec.items.get(node.0).map_or("", |item| &item.name.text);
        let nodes = self.elements(value, &format!("an array of `{name}`"))?;
        if is_first_implied && nodes.is_empty() {
            return Err(self.error(format!("expected at least one `{name}`")));
        }
        for (index, value) in nodes.iter().enumerate() {
            if index > 0 || !is_first_implied {
                self.word(1);
            }
            self.within(Step::Index(index), |this| this.item(node, value, false))?;
        }
        self.word(0);
        Ok(())
    }

    fn array(&mut self, base: Base, elements: &[Value], eligible: bool) -> Encoded {
        if eligible {
            return self.separately(|this| this.array(base, elements, false));
        }
        for (index, value) in elements.iter().enumerate() {
            self.within(Step::Index(index), |this| this.base(base, value, false))?;
        }
        Ok(())
    }

    /// Encodes an eligible item into a separate part.
    fn separately(&mut self, encode: impl FnOnce(&mut Self) -> Encoded) -> Encoded {
        let start = self.parts.len();
        self.parts.push(EncodedPart::Inline(Vec::new()));
        encode(self)?;
        let item: Vec<u8> = self.parts.drain(start..).flat_map(EncodedPart::into_bytes).collect();
        self.parts.push(EncodedPart::Eligible(item));
        Ok(())
    }

    fn counted(&mut self, bytes: Vec<u8>, max: u32, eligible: bool) -> Encoded {
        let len = self.length(bytes.len(), max, "bytes")?;
        self.word(len);
        self.contents(bytes, eligible);
        Ok(())
    }

    /// Encodes opaque data with its padding. Eligible data becomes a separate part without padding.
    fn contents(&mut self, bytes: Vec<u8>, eligible: bool) {
        if eligible {
            self.parts.push(EncodedPart::Eligible(bytes));
            return;
        }
        self.put(&bytes);
        self.put(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    /// Returns the bytes of an opaque item, which is written in hexadecimal or as `@NAME`.
    fn opaque(&mut self, value: &Value, expected: &str) -> Result<Vec<u8>, JsonError> {
        let Value::String(text) = value else { return self.unexpected(expected, value) };
        if let Some(name) = text.strip_prefix('@') {
            return (self.read_file)(name).map_err(|why| self.error(why));
        }
        parse_digits(text).map_or_else(|| self.unexpected(expected, value), Ok)
    }

    /// Returns the bytes of a string, which is written as text or as `{"hex": DIGITS}`.
    fn text(&self, value: &Value, expected: &str) -> Result<Vec<u8>, JsonError> {
        match value {
            Value::String(text) => Ok(text.clone().into_bytes()),
            Value::Object(object) if object.len() == 1 => {
                let digits = object.get(HEX_KEY).and_then(Value::as_str).and_then(parse_digits);
                digits.map_or_else(|| self.unexpected(expected, value), Ok)
            }
            _ => self.unexpected(expected, value),
        }
    }

    fn elements<'v>(&self, value: &'v Value, expected: &str) -> Result<&'v [Value], JsonError> {
        value.as_array().map_or_else(|| self.unexpected(expected, value), |elements| Ok(&elements[..]))
    }

    fn integer(&self, value: &Value, min: i128, max: i128, ty: &str) -> Result<i128, JsonError> {
        let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
        match number {
            Some(number) if (min..=max).contains(&number) => Ok(number),
            _ => self.unexpected(&format!("a number of `{ty}`"), value),
        }
    }

    fn float(&self, value: &Value, ty: &str) -> Result<f64, JsonError> {
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        number.map_or_else(|| self.unexpected(&format!("a number of `{ty}`, \"NaN\", \"inf\" or \"-inf\""), value), Ok)
    }

    fn length(&self, len: usize, max: u32, unit: &str) -> Result<u32, JsonError> {
        let within = u32::try_from(len).ok().filter(|len| *len <= max);
        within.ok_or_else(|| self.error(format!("{len} {unit} exceed the maximum of {max}")))
    }

    fn check_keys(&self, object: &Map<String, Value>, known: &[&str]) -> Encoded {
        let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let known_text = if known.is_empty() { "no field".into() } else { known.join(", ") };
        let hint = did_you_mean::of(unknown, known.iter().copied());
        let hint = hint.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
        Err(self.error(format!("`{unknown}` is not a field here, expected {known_text}{hint}")))
    }

    /// Describes the JSON values that a type accepts, for error messages.
    fn describe(&self, ty: &Type) -> String {
        let limit = |max: u32, unit: &str| {
            if max == u32::MAX { String::new() } else { format!(" of at most {max} {unit}") }
        };
        match ty {
            Type::Base(base) => format!("`{}`", base.text(self.spec)),
            Type::OpaqueFixed(len) => format!("hexadecimal digits of {len} bytes, or \"@FILE\""),
            Type::Opaque(max) => format!("hexadecimal digits{}, or \"@FILE\"", limit(*max, "bytes")),
            Type::String(max) => format!("a string{}", limit(*max, "bytes")),
            Type::ArrayFixed(base, len) => format!("an array of {len} `{}`", base.text(self.spec)),
            Type::Array(base, max) => {
                let limit = if *max == u32::MAX { String::new() } else { format!(", at most {max}") };
                format!("an array of `{}`{limit}", base.text(self.spec))
            }
            Type::Optional(base) => format!("`{}` or null", base.text(self.spec)),
            Type::List(id) | Type::NonEmptyList(id) => format!("an array of `{}`", Base::Item(*id).text(self.spec)),
        }
    }

    fn word(&mut self, word: u32) {
        self.put(&word.to_be_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            Some(EncodedPart::Inline(part)) => part.extend_from_slice(bytes),
            _ => self.parts.push(EncodedPart::Inline(bytes.to_vec())),
        }
    }

    fn nested<T>(&mut self, encode: impl FnOnce(&mut Self) -> Result<T, JsonError>) -> Result<T, JsonError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.depth += 1;
        let encoded = encode(self);
        self.depth -= 1;
        encoded
    }

    fn within<T>(
        &mut self,
        step: Step,
        encode: impl FnOnce(&mut Self) -> Result<T, JsonError>,
    ) -> Result<T, JsonError> {
        self.path.push(step);
        let encoded = encode(self);
        self.path.pop();
        encoded
    }

    fn unexpected<T>(&self, expected: &str, value: &Value) -> Result<T, JsonError> {
        Err(self.error(format!("expected {expected}, found {}", found_text(value))))
    }

    fn error(&self, message: impl Into<String>) -> JsonError {
        let path: String = self.path.iter().map(Step::to_string).collect();
        JsonError { path: if path.is_empty() { ".".into() } else { path }, message: message.into() }
    }
}

impl EncodedPart {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Inline(bytes) | Self::Eligible(bytes) => bytes,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, ".{key}"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Describes a value of the input for error messages. Long values are cut.
fn found_text(value: &Value) -> String {
    const MAX: usize = 40;
    match value {
        Value::Null => "null".into(),
        Value::Array(elements) => format!("an array of {} elements", elements.len()),
        Value::Object(_) => "an object".into(),
        _ => {
            let text = value.to_string();
            if text.chars().count() <= MAX { text } else { text.chars().take(MAX).chain("..".chars()).collect() }
        }
    }
}

#[cfg(test)]
mod tests;

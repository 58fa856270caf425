//! The JSON form of values, for printing decoded values and for writing the arguments of calls.
//!
//! | XDR | JSON |
//! | --- | --- |
//! | `bool`, integers | `true`, `false`, numbers |
//! | `float`, `double` | numbers, and the strings `NaN`, `inf`, `-inf` |
//! | `quadruple` | hexadecimal digits |
//! | `opaque` | hexadecimal digits; in arguments also `@NAME`, for the contents of a file |
//! | `string` | a string, or `{"hex": DIGITS}` if it is not UTF-8 |
//! | `enum` | the name of an enumerator, a decoded number that has no name, or in arguments an enumerator's number |
//! | `struct` | an object |
//! | `union` | an object with the discriminant, and the arm if it is not void |
//! | arrays, lists | an array |
//! | `*` | `null`, or the value |
//!
//! Decoded values can also contain two kinds of other objects. An opaque item or a string in a chunk, and any other
//! item in a chunk that was not captured completely, is an object with the captured data and the segments. A value that
//! cannot be decoded is `{"error": REASON}`.

use serde_json::{Map, Value, json};

use super::{hex::hex, memory::Segment, value::DecodedValue};
use crate::ir::{Field, Union};

/// The key of the object that represents a string that is not UTF-8. The value of the key contains the bytes of the
/// string as hexadecimal digits.
pub(super) const HEX_KEY: &str = "hex";

/// Returns the JSON key of an arm. It is `arm` if the arm has the same name as the discriminant, as some dialects
/// allow.
pub(super) fn arm_key<'a>(union: &Union, arm: &'a Field) -> &'a str {
    if arm.name.text == union.discriminant.name.text { "arm" } else { &arm.name.text }
}

/// Converts a decoded value to its JSON form.
pub(super) fn to_json(value: &DecodedValue) -> Value {
    match value {
        DecodedValue::None => Value::Null,
        DecodedValue::Bool(value) => json!(value),
        DecodedValue::Int(value) | DecodedValue::Enum(None, value) => json!(value),
        DecodedValue::UInt(value) | DecodedValue::Hex(value, _) => json!(value),
        // NaN and infinity are not JSON.
        DecodedValue::Double(value) if !value.is_finite() => json!(value.to_string()),
        DecodedValue::Double(value) => json!(value),
        DecodedValue::Quadruple(bytes) => json!(hex(bytes, usize::MAX, "")),
        DecodedValue::Enum(Some(name), _) => json!(name),
        DecodedValue::Opaque(bytes) => json!(hex(bytes, usize::MAX, "")),
        DecodedValue::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => Value::Object(Map::from_iter([(HEX_KEY.to_owned(), json!(hex(bytes, usize::MAX, "")))])),
        },
        DecodedValue::Chunk(chunk) => {
            let segment = |segment: &Segment| json!({ "handle": segment.handle, "length": segment.length, "offset": segment.offset });
            json!({
                "length": chunk.len,
                "captured": chunk.bytes.len(),
                "data": hex(&chunk.bytes, usize::MAX, ""),
                "chunk": chunk.segments.iter().map(segment).collect::<Vec<_>>(),
            })
        }
        DecodedValue::Struct(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), to_json(value))).collect())
        }
        DecodedValue::Array(elements) => elements.iter().map(to_json).collect(),
        DecodedValue::Error(why) => json!({ "error": why }),
    }
}

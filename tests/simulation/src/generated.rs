//! Services generated from random XDR.
//!
//! The build script writes protocols with random types and random eligible items, from fixed seeds, and the code that
//! serves and calls them. A call has random arguments. Its result is random as well, and follows from a checksum of the
//! arguments as they arrived. The client computes the expected result from the arguments that it sent, and compares the
//! results.

use std::hash::{DefaultHasher, Hasher as _};

use bytes::{BufMut as _, BytesMut};
use rpcrdma::{
    CallError, CallOptions,
    client::Invoke,
    server::{Context, HandlerError, ServerBuilder},
    xdr::{XdrDecode, XdrEncode},
};

use crate::{random::Choices, service::SimulatedServer};

/// The shape of an XDR type, to make random values of it.
#[derive(Debug)]
pub(crate) enum Shape {
    /// `int`, `unsigned int`, or `float`.
    Word,
    /// `hyper`, `unsigned hyper`, or `double`.
    Hyper,
    Bool,
    /// An enumeration with these values.
    Enum(&'static [u32]),
    FixedOpaque(usize),
    /// `opaque<>`, with a maximum length.
    Opaque(usize),
    /// `string<>`, with a maximum length.
    Text(usize),
    Array(&'static Shape, usize),
    List(&'static Shape, usize),
    Optional(&'static Shape),
    Struct(&'static [Shape]),
    /// A union: its arms, each with the value that selects it. If the union has a default arm, it is the last arm, with
    /// a value that selects no other arm.
    Union(&'static [(u32, Shape)]),
    Void,
}

/// Returns a random length of at most `max`. Short lengths, and the maximum itself, are frequent.
fn len(choices: &Choices, max: usize) -> usize {
    match choices.within(0..=3) {
        0 => max,
        1 => choices.within(0..=max as u64) as usize,
        _ => choices.within(0..=max.min(40) as u64) as usize,
    }
}

fn put_bytes(choices: &Choices, out: &mut BytesMut, len: usize, is_text: bool) {
    let (start, step) = (choices.number() as u8, choices.number() as u8 | 1);
    let byte = |index: usize| start.wrapping_add(step.wrapping_mul((index ^ (index >> 8)) as u8));
    out.extend((0..len).map(|index| if is_text { b'a' + byte(index) % 26 } else { byte(index) }));
    out.put_bytes(0, len.next_multiple_of(4) - len);
}

impl Shape {
    fn put(&self, choices: &Choices, out: &mut BytesMut) {
        match self {
            // The exponent of a float is not that of a NaN, whose bits need not be kept.
            Self::Word => out.put_u32(choices.number() as u32 & 0xbfff_ffff),
            Self::Hyper => out.put_u64(choices.number() & 0xbfff_ffff_ffff_ffff),
            Self::Bool => out.put_u32(choices.within(0..=1) as u32),
            Self::Enum(values) => out.put_u32(choices.one_of(values)),
            Self::FixedOpaque(len) => put_bytes(choices, out, *len, false),
            Self::Opaque(max) | Self::Text(max) => {
                let len = len(choices, *max);
                out.put_u32(len as u32);
                put_bytes(choices, out, len, matches!(self, Self::Text(_)));
            }
            Self::Array(shape, len) => (0..*len).for_each(|_| shape.put(choices, out)),
            Self::List(shape, max) => {
                let len = len(choices, *max);
                out.put_u32(len as u32);
                (0..len).for_each(|_| shape.put(choices, out));
            }
            Self::Optional(shape) => {
                let is_there = choices.chance(50);
                out.put_u32(is_there.into());
                if is_there {
                    shape.put(choices, out);
                }
            }
            Self::Struct(fields) => fields.iter().for_each(|field| field.put(choices, out)),
            Self::Union(arms) => {
                let (value, shape) = &arms[choices.index(arms.len())];
                out.put_u32(*value);
                shape.put(choices, out);
            }
            Self::Void => {}
        }
    }

    /// Returns a random value of a type with this shape.
    fn value<T: XdrDecode + XdrEncode>(&self, seed: u64) -> Result<T, String> {
        let mut bytes = BytesMut::new();
        self.put(&Choices::new(seed), &mut bytes);
        let value = T::from_bytes(&bytes).map_err(|error| format!("a value cannot be decoded: {error}"))?;
        let encoded = value.to_bytes().map_err(|error| format!("a value cannot be encoded: {error}"))?;
        if encoded == bytes { Ok(value) } else { Err("a value has another encoding than it was decoded from".into()) }
    }
}

/// Returns a checksum of the encoding of a value.
fn checksum(value: &impl XdrEncode) -> Result<u64, String> {
    let mut hash = DefaultHasher::new();
    hash.write(&value.to_bytes().map_err(|error| format!("a value cannot be encoded: {error}"))?);
    Ok(hash.finish())
}

/// Returns the result of a call with these arguments.
fn reply<R: XdrDecode + XdrEncode>(args: &impl XdrEncode, shape: &Shape) -> Result<R, String> {
    shape.value(checksum(args)?)
}

/// Compares the result of a call with the result that follows from its arguments. Returns a checksum of the result, or
/// an error if the results differ.
fn compared<R: XdrDecode + XdrEncode + PartialEq>(
    args: &impl XdrEncode,
    got: &R,
    shape: &Shape,
) -> Result<u64, String> {
    if reply::<R>(args, shape)? == *got {
        checksum(got)
    } else {
        Err("the result does not follow from the arguments".into())
    }
}

/// The services that answer calls of the random protocols.
#[derive(Clone)]
pub(crate) struct RandomServices(pub(crate) SimulatedServer);

impl RandomServices {
    async fn answer<R: XdrDecode + XdrEncode>(&self, args: &impl XdrEncode, shape: &Shape) -> Result<R, HandlerError> {
        drop(self.0.disk().await?);
        reply(args, shape).map_err(HandlerError::system)
    }
}

include!(concat!(env!("OUT_DIR"), "/random_protocols.rs"));

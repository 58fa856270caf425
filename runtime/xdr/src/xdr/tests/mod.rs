//! Tests of the codec with handwritten types in the shape of generated ones.

mod hostile;
mod lengths;
mod limits;
mod placed;
mod primitives;
mod reduce;
mod splice;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Implements the codec traits for a type: the bounds of its encoding, and the bodies of `encoded_len` (`len`),
/// `encode` (`put`) and `decode` (`take`).
macro_rules! sample {
    ($name:ident: $min:expr, $max:expr, $inline:expr, $items:expr;
     len($l:ident) $len:expr; put($p:ident, $sink:ident) $put:expr; take($decoder:ident) $take:expr) => {
        impl XdrType for $name {
            const MIN_LEN: usize = $min;
            const MAX_LEN: Option<u64> = $max;
            const MAX_INLINE: Option<u64> = $inline;
            const MAX_DDP_ITEMS: Option<u32> = $items;
        }
        impl XdrEncode for $name {
            fn encoded_len(&self) -> usize {
                let $l = self;
                $len
            }
            fn encode<S: Sink + ?Sized>(&self, $sink: &mut S) -> Result<(), EncodeError> {
                let $p = self;
                $put
            }
        }
        impl XdrDecode for $name {
            fn decode($decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                $take
            }
        }
    };
}
use sample;

/// `struct READ4resok { bool eof; @ddp opaque data<>; };`
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadOk {
    eof: bool,
    data: Bytes,
}

sample! { ReadOk: 8, None, Some(8), Some(1);
    len(v) 4 + opaque_len(v.data.len());
    put(v, sink) {
        v.eof.encode(sink)?;
        put_ddp_opaque(sink, &v.data, UNBOUNDED).map_err(|e| e.at("READ4resok.data"))
    };
    take(decoder) Ok(Self {
        eof: decoder.read().map_err(|e: DecodeError| e.in_field("READ4resok", "eof"))?,
        data: take_ddp_opaque(decoder, UNBOUNDED).map_err(|e| e.in_field("READ4resok", "data"))?,
    })
}

/// `union READ4res switch (unsigned int status) { case 0: READ4resok resok4; default: void; };`
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadRes {
    Ok(ReadOk),
    Default(u32),
}

sample! { ReadRes: 4, None, Some(12), Some(1);
    len(v) 4 + match v { Self::Ok(ok) => ok.encoded_len(), Self::Default(_) => 0 };
    put(v, sink) match v {
        Self::Ok(ok) => {
            sink.put_u32(0);
            ok.encode(sink)
        }
        Self::Default(status) => status.encode(sink),
    };
    take(decoder) match decoder.take_u32()? {
        0 => decoder.read().map(Self::Ok).map_err(|e| e.in_field("READ4res", "resok4")),
        status => Ok(Self::Default(status)),
    }
}

/// `struct fixed { @ddp opaque first[6]; @ddp opaque second[4]; };`
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fixed {
    first: Bytes,
    second: Bytes,
}

sample! { Fixed: 0, Some(12), Some(0), Some(2);
    len(_v) 12;
    put(v, sink) {
        put_ddp_opaque_fixed(sink, &v.first, 6).map_err(|e| e.at("fixed.first"))?;
        put_ddp_opaque_fixed(sink, &v.second, 4)
    };
    take(decoder) Ok(Self {
        first: take_ddp_opaque_fixed(decoder, 6)?,
        second: take_ddp_opaque_fixed(decoder, 4)?,
    })
}

/// `struct quads { unsigned int tag; @ddp unsigned int quad[4]; };`
#[derive(Debug, Clone, PartialEq, Eq)]
struct Quads {
    tag: u32,
    quad: [u32; 4],
}

sample! { Quads: 4, Some(20), Some(4), Some(1);
    len(_v) 20;
    put(v, sink) {
        v.tag.encode(sink)?;
        put_ddp_elements(sink, &v.quad)
    };
    take(decoder) Ok(Self {
        tag: decoder.read()?,
        quad: take_ddp_array_fixed::<u32, 4>(decoder)?,
    })
}

/// `struct tree { unsigned int value; tree *left; tree *right; };`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Tree {
    value: u32,
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

sample! { Tree: 12, None, None, Some(0);
    len(v) 4 + v.left.encoded_len() + v.right.encoded_len();
    put(v, sink) {
        v.value.encode(sink)?;
        v.left.encode(sink)?;
        v.right.encode(sink)
    };
    take(decoder) {
        decoder.enter(size_of::<Self>())?;
        let tree = Self {
            value: decoder.read()?,
            left: decoder.read().map_err(|e: DecodeError| e.in_field("tree", "left"))?,
            right: decoder.read().map_err(|e: DecodeError| e.in_field("tree", "right"))?,
        };
        decoder.leave(size_of::<Self>());
        Ok(tree)
    }
}

fn encode_words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn flat<T: XdrEncode>(value: &T) -> Vec<u8> {
    let bytes = encode_to_bytes(value).unwrap();
    assert_eq!(bytes.len(), value.encoded_len());
    bytes.to_vec()
}

fn decode<T: XdrDecode>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.read()?;
    decoder.finish()?;
    Ok(value)
}

fn bytes(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn any_read() -> impl Strategy<Value = ReadOk> {
    (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(eof, data)| ReadOk { eof, data: data.into() })
}

/// Generates up to five results. `ReadOk` has an eligible item, and the default arm has none.
fn any_results() -> impl Strategy<Value = Vec<ReadRes>> {
    let one = prop_oneof![3 => any_read().prop_map(ReadRes::Ok), 1 => (1..u32::MAX).prop_map(ReadRes::Default)];
    proptest::collection::vec(one, 0..6)
}

//! The messages with the codec of onc-xdr. The codec is derived where the derive macro of onc-xdr supports it.

use std::io::{Read as In, Write as Out};

use onc_xdr::{Error, List, Opaque, Pack, Unpack, XdrCodec};

use crate::messages::messages;

pub(crate) type Name = Opaque<'static>;
pub(crate) type Handle = Opaque<'static>;
pub(crate) type Data = Opaque<'static>;
pub(crate) type Verifier = [u8; 8];
pub(crate) type Entries = List<Entry>;

#[derive(Clone, Copy, XdrCodec)]
#[repr(u32)]
pub(crate) enum Kind {
    #[xdr(1)]
    Regular,
    #[xdr(2)]
    Directory,
    #[xdr(3)]
    Block,
    #[xdr(4)]
    Character,
    #[xdr(5)]
    Link,
    #[xdr(6)]
    Socket,
    #[xdr(7)]
    Fifo,
}

/// An optional value, in place of `Option`, which the derive does not support.
#[derive(XdrCodec)]
pub(crate) enum Maybe<T: Pack + Unpack> {
    #[xdr(1)]
    Some(T),
    #[xdr(0)]
    None,
}

macro_rules! codec {
    (struct $name:ident { $($field:ident: $ty:ty,)* }) => {
        #[derive(XdrCodec)]
        pub(crate) struct $name {
            $(pub(crate) $field: $ty,)*
        }
    };
}
messages!(codec);

/// A reply. Its codec is handwritten, because the derive does not support default arms.
pub(crate) enum Reply<T> {
    Ok(T),
    Failed(u32),
}

impl<T: Pack> Pack for Reply<T> {
    fn packed_size(&self) -> usize {
        match self {
            Self::Ok(value) => 4 + value.packed_size(),
            Self::Failed(_) => 4,
        }
    }

    fn pack(&self, out: &mut impl Out) -> Result<usize, Error> {
        Ok(match self {
            Self::Ok(value) => 0_u32.pack(out)? + value.pack(out)?,
            Self::Failed(status) => status.pack(out)?,
        })
    }
}

impl<T: Unpack> Unpack for Reply<T> {
    fn unpack(input: &mut impl In) -> Result<(Self, usize), Error> {
        let (status, read) = u32::unpack(input)?;
        if status != 0 {
            return Ok((Self::Failed(status), read));
        }
        let (value, more) = T::unpack(input)?;
        Ok((Self::Ok(value), read + more))
    }
}

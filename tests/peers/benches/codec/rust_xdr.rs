//! The messages for the crate xdr-codec: a `Pack` and an `Unpack` implementation for each type, field by field, in the
//! style of that crate's own compiler.

use std::io::{Read as In, Write as Out};

use xdr_codec::{Pack, Result, Unpack, pack_opaque_array, pack_opaque_flex, unpack_opaque_array, unpack_opaque_flex};

use crate::messages::messages;

macro_rules! bytes {
    ($name:ident, $max:expr) => {
        pub(crate) struct $name(Vec<u8>);

        impl<O: Out> Pack<O> for $name {
            fn pack(&self, out: &mut O) -> Result<usize> {
                pack_opaque_flex(&self.0, $max, out)
            }
        }

        impl<I: In> Unpack<I> for $name {
            fn unpack(input: &mut I) -> Result<(Self, usize)> {
                unpack_opaque_flex(input, $max).map(|(bytes, read)| (Self(bytes), read))
            }
        }
    };
}
bytes!(Name, None);
bytes!(Handle, Some(64));
bytes!(Data, None);

pub(crate) struct Verifier([u8; 8]);

impl<O: Out> Pack<O> for Verifier {
    fn pack(&self, out: &mut O) -> Result<usize> {
        pack_opaque_array(&self.0, 8, out)
    }
}

impl<I: In> Unpack<I> for Verifier {
    fn unpack(input: &mut I) -> Result<(Self, usize)> {
        let mut bytes = [0; 8];
        let read = unpack_opaque_array(input, &mut bytes, 8)?;
        Ok((Self(bytes), read))
    }
}

macro_rules! codec {
    (struct $name:ident { $($field:ident: $ty:ty,)* }) => {
        pub(crate) struct $name {
            $(pub(crate) $field: $ty,)*
        }

        impl<O: Out> Pack<O> for $name {
            fn pack(&self, out: &mut O) -> Result<usize> {
                Ok(0 $(+ self.$field.pack(out)?)*)
            }
        }

        impl<I: In> Unpack<I> for $name {
            fn unpack(input: &mut I) -> Result<(Self, usize)> {
                let mut read = 0;
                $(
                    let ($field, more) = <$ty>::unpack(input)?;
                    read += more;
                )*
                Ok((Self { $($field),* }, read))
            }
        }
    };
}
messages!(codec);

#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum Kind {
    Regular = 1,
    Directory = 2,
    Block = 3,
    Character = 4,
    Link = 5,
    Socket = 6,
    Fifo = 7,
}

impl<O: Out> Pack<O> for Kind {
    fn pack(&self, out: &mut O) -> Result<usize> {
        (*self as i32).pack(out)
    }
}

impl<I: In> Unpack<I> for Kind {
    fn unpack(input: &mut I) -> Result<(Self, usize)> {
        let (value, read) = i32::unpack(input)?;
        let kind = match value {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Block,
            4 => Self::Character,
            5 => Self::Link,
            6 => Self::Socket,
            7 => Self::Fifo,
            other => return Err(xdr_codec::ErrorKind::InvalidEnum(other).into()),
        };
        Ok((kind, read))
    }
}

pub(crate) enum Maybe<T> {
    Some(T),
    None,
}

impl<O: Out, T: Pack<O>> Pack<O> for Maybe<T> {
    fn pack(&self, out: &mut O) -> Result<usize> {
        Ok(match self {
            Self::Some(value) => true.pack(out)? + value.pack(out)?,
            Self::None => false.pack(out)?,
        })
    }
}

impl<I: In, T: Unpack<I>> Unpack<I> for Maybe<T> {
    fn unpack(input: &mut I) -> Result<(Self, usize)> {
        let (present, read) = bool::unpack(input)?;
        if !present {
            return Ok((Self::None, read));
        }
        let (value, more) = T::unpack(input)?;
        Ok((Self::Some(value), read + more))
    }
}

/// The entries of a directory: a vector in place of the chain of boxes that xdr-codec's compiler would generate.
pub(crate) struct Entries(Vec<Entry>);

impl<O: Out> Pack<O> for Entries {
    fn pack(&self, out: &mut O) -> Result<usize> {
        let mut written = 0;
        for entry in &self.0 {
            written += true.pack(out)? + entry.pack(out)?;
        }
        Ok(written + false.pack(out)?)
    }
}

impl<I: In> Unpack<I> for Entries {
    fn unpack(input: &mut I) -> Result<(Self, usize)> {
        let (mut entries, mut read) = (Vec::new(), 0);
        loop {
            let (present, more) = bool::unpack(input)?;
            read += more;
            if !present {
                return Ok((Self(entries), read));
            }
            let (entry, more) = Entry::unpack(input)?;
            read += more;
            entries.push(entry);
        }
    }
}

pub(crate) enum Reply<T> {
    Ok(T),
    Failed(u32),
}

impl<O: Out, T: Pack<O>> Pack<O> for Reply<T> {
    fn pack(&self, out: &mut O) -> Result<usize> {
        Ok(match self {
            Self::Ok(value) => 0_u32.pack(out)? + value.pack(out)?,
            Self::Failed(status) => status.pack(out)?,
        })
    }
}

impl<I: In, T: Unpack<I>> Unpack<I> for Reply<T> {
    fn unpack(input: &mut I) -> Result<(Self, usize)> {
        let (status, read) = u32::unpack(input)?;
        if status != 0 {
            return Ok((Self::Failed(status), read));
        }
        let (value, more) = T::unpack(input)?;
        Ok((Self::Ok(value), read + more))
    }
}

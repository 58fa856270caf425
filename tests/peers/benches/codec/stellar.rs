//! The messages with the traits and containers of stellar-xdr, as code from its compiler uses them. The code is
//! handwritten, because that compiler supports only Stellar's XDR.

use std::io::{Read as In, Write as Out};

use stellar_xdr::{BytesM, Error, Limited, ReadXdr, WriteXdr};

use crate::messages::messages;

pub(crate) type Name = BytesM;
pub(crate) type Handle = BytesM<64>;
pub(crate) type Data = BytesM;
pub(crate) type Verifier = [u8; 8];
pub(crate) type Maybe<T> = Option<T>;

macro_rules! codec {
    (struct $name:ident { $($field:ident: $ty:ty,)* }) => {
        pub(crate) struct $name {
            $(pub(crate) $field: $ty,)*
        }

        impl ReadXdr for $name {
            fn read_xdr<R: In>(r: &mut Limited<R>) -> Result<Self, Error> {
                Ok(Self { $($field: <$ty>::read_xdr(r)?),* })
            }
        }

        impl WriteXdr for $name {
            fn write_xdr<W: Out>(&self, w: &mut Limited<W>) -> Result<(), Error> {
                $(self.$field.write_xdr(w)?;)*
                Ok(())
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

impl ReadXdr for Kind {
    fn read_xdr<R: In>(r: &mut Limited<R>) -> Result<Self, Error> {
        Ok(match i32::read_xdr(r)? {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Block,
            4 => Self::Character,
            5 => Self::Link,
            6 => Self::Socket,
            7 => Self::Fifo,
            _ => return Err(Error::Invalid),
        })
    }
}

impl WriteXdr for Kind {
    fn write_xdr<W: Out>(&self, w: &mut Limited<W>) -> Result<(), Error> {
        (*self as i32).write_xdr(w)
    }
}

/// The entries of a directory: a vector in place of the chain of boxes that stellar-xdr's compiler would generate.
pub(crate) struct Entries(Vec<Entry>);

impl ReadXdr for Entries {
    fn read_xdr<R: In>(r: &mut Limited<R>) -> Result<Self, Error> {
        let mut entries = Vec::new();
        while bool::read_xdr(r)? {
            entries.push(Entry::read_xdr(r)?);
        }
        Ok(Self(entries))
    }
}

impl WriteXdr for Entries {
    fn write_xdr<W: Out>(&self, w: &mut Limited<W>) -> Result<(), Error> {
        for entry in &self.0 {
            true.write_xdr(w)?;
            entry.write_xdr(w)?;
        }
        false.write_xdr(w)
    }
}

pub(crate) enum Reply<T> {
    Ok(T),
    Failed(u32),
}

impl<T: ReadXdr> ReadXdr for Reply<T> {
    fn read_xdr<R: In>(r: &mut Limited<R>) -> Result<Self, Error> {
        Ok(match u32::read_xdr(r)? {
            0 => Self::Ok(T::read_xdr(r)?),
            status => Self::Failed(status),
        })
    }
}

impl<T: WriteXdr> WriteXdr for Reply<T> {
    fn write_xdr<W: Out>(&self, w: &mut Limited<W>) -> Result<(), Error> {
        match self {
            Self::Ok(value) => {
                0_u32.write_xdr(w)?;
                value.write_xdr(w)
            }
            Self::Failed(status) => status.write_xdr(w),
        }
    }
}

//! The version 1 header of RFC 8166 §4.1.2, in the shape that the compiler generates from its XDR.

use crate::xdr::{
    DecodeError, DecodeErrorKind, Decoder, EncodeError, Sink, UNBOUNDED, XdrDecode, XdrEncode, XdrType, elements_len,
    list_len, put_array, put_list, take_array, take_list,
};

macro_rules! xdr_type {
    ($name:ident, $min:literal) => {
        impl XdrType for $name {
            const MIN_LEN: usize = $min;
            const MAX_LEN: Option<u64> = None;
            const MAX_INLINE: Option<u64> = None;
            const MAX_DDP_ITEMS: Option<u32> = Some(0);
        }
    };
}

macro_rules! xdr_struct {
    ($(#[$doc:meta])* $name:ident, $min:literal { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        xdr_type!($name, $min);
        impl XdrEncode for $name {
            fn encoded_len(&self) -> usize { 0 $(+ self.$field.encoded_len())* }
            fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
                $(self.$field.encode(sink).map_err(|e| e.at(concat!(stringify!($name), ".", stringify!($field))))?;)*
                Ok(())
            }
        }
        impl XdrDecode for $name {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: XdrDecode::decode(decoder)
                    .map_err(|e: DecodeError| e.in_field(stringify!($name), stringify!($field)))?,)* })
            }
        }
    };
}

macro_rules! chunk_lists {
    ($(#[$doc:meta])* $name:ident, $min:literal { $($(#[$fdoc:meta])* $field:ident: u32,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: u32,)*
            /// `struct xdr_read_list *rdma_reads`
            pub rdma_reads: Vec<XdrReadList>,
            /// `struct xdr_write_list *rdma_writes`
            pub rdma_writes: Vec<XdrWriteList>,
            /// `struct xdr_write_chunk *rdma_reply`
            pub rdma_reply: Option<XdrWriteChunk>,
        }
        xdr_type!($name, $min);
        impl XdrEncode for $name {
            fn encoded_len(&self) -> usize {
                $min - 12 + list_len(&self.rdma_reads) + list_len(&self.rdma_writes) + self.rdma_reply.encoded_len()
            }
            fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
                $(sink.put_u32(self.$field);)*
                put_list(sink, &self.rdma_reads)?;
                put_list(sink, &self.rdma_writes)?;
                self.rdma_reply.encode(sink)
            }
        }
        impl XdrDecode for $name {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                const NAME: &str = stringify!($name);
                Ok(Self {
                    $($field: decoder.take_u32().map_err(|e| e.in_field(NAME, stringify!($field)))?,)*
                    rdma_reads: take_list(decoder).map_err(|e| e.in_field(NAME, "rdma_reads"))?,
                    rdma_writes: take_list(decoder).map_err(|e| e.in_field(NAME, "rdma_writes"))?,
                    rdma_reply: XdrDecode::decode(decoder).map_err(|e: DecodeError| e.in_field(NAME, "rdma_reply"))?,
                })
            }
        }
    };
}

xdr_struct! {
    /// Plain RDMA segment (RFC 8166 §3.4.3).
    XdrRdmaSegment, 16 {
        /// Registered memory handle.
        handle: u32,
        /// Length of the segment in octets.
        length: u32,
        /// Offset of the segment.
        offset: u64,
    }
}
xdr_struct! {
    /// RDMA read segment (RFC 8166 §3.4.5).
    XdrReadChunk, 20 {
        /// Position in the XDR stream.
        position: u32,
        /// The segment.
        target: XdrRdmaSegment,
    }
}
xdr_struct! {
    /// Node of the Read list (RFC 8166 §4.3.1).
    XdrReadList, 20 {
        /// The read segment.
        entry: XdrReadChunk,
    }
}
xdr_struct! {
    /// Node of the Write list (RFC 8166 §4.3.2).
    XdrWriteList, 4 {
        /// The Write chunk.
        entry: XdrWriteChunk,
    }
}

/// Write chunk (RFC 8166 §3.4.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdrWriteChunk {
    /// `struct xdr_rdma_segment target<>`
    pub target: Vec<XdrRdmaSegment>,
}
xdr_type!(XdrWriteChunk, 4);
impl XdrEncode for XdrWriteChunk {
    fn encoded_len(&self) -> usize {
        4 + elements_len(&self.target)
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        put_array(sink, &self.target, UNBOUNDED).map_err(|e| e.at("XdrWriteChunk.target"))
    }
}
impl XdrDecode for XdrWriteChunk {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self { target: take_array(decoder, UNBOUNDED).map_err(|e| e.in_field("XdrWriteChunk", "target"))? })
    }
}

chunk_lists! {
    /// Chunk lists (RFC 8166 §4.3); the RPC message follows.
    RpcRdmaHeader, 12 {}
}
chunk_lists! {
    /// Chunk lists (RFC 8166 §4.3); no RPC message follows.
    RpcRdmaHeaderNomsg, 12 {}
}
chunk_lists! {
    /// Not to be used (RFC 8166 §4.6.1).
    RpcRdmaHeaderPadded, 20 {
        /// Padding alignment.
        rdma_align: u32,
        /// Padding threshold.
        rdma_thresh: u32,
    }
}
xdr_struct! {
    /// Range of versions supported; fixed for all versions (RFC 8166 §4.5.1).
    RpcRdmaErrvers, 8 {
        /// Lowest.
        rdma_vers_low: u32,
        /// Highest.
        rdma_vers_high: u32,
    }
}

macro_rules! xdr_enum {
    ($(#[$doc:meta])* $name:ident, $xdr:literal { $($(#[$vdoc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }
        impl From<$name> for i32 {
            fn from(value: $name) -> Self { value as Self }
        }
        impl TryFrom<i32> for $name {
            type Error = i32;
            fn try_from(value: i32) -> Result<Self, i32> {
                match value { $($value => Ok(Self::$variant),)* other => Err(other) }
            }
        }
        impl XdrType for $name {
            const MIN_LEN: usize = 4;
            const MAX_LEN: Option<u64> = Some(4);
            const MAX_INLINE: Option<u64> = Some(4);
            const MAX_DDP_ITEMS: Option<u32> = Some(0);
        }
        impl XdrEncode for $name {
            fn encoded_len(&self) -> usize { 4 }
            fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
                i32::from(*self).encode(sink)
            }
        }
        impl XdrDecode for $name {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let value = i32::decode(decoder)?;
                Self::try_from(value)
                    .map_err(|value| decoder.error(DecodeErrorKind::UnknownEnumValue { name: $xdr, value }))
            }
        }
    };
}

xdr_enum! {
    /// Error codes (RFC 8166 §4.5).
    RpcRdmaErrcode, "rpc_rdma_errcode" {
        /// Value fixed for all versions.
        ErrVers = 1,
        /// The header or its chunks cannot be used.
        ErrChunk = 2,
    }
}
xdr_enum! {
    /// Procedures (RFC 8166 §4.2.4).
    RdmaProc, "rdma_proc" {
        /// Value fixed for all versions.
        RdmaMsg = 0,
        /// Value fixed for all versions.
        RdmaNomsg = 1,
        /// Not to be used.
        RdmaMsgp = 2,
        /// Not to be used.
        RdmaDone = 3,
        /// Value fixed for all versions.
        RdmaError = 4,
    }
}

/// Error (RFC 8166 §4.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpcRdmaError {
    /// Version mismatch.
    ErrVers(RpcRdmaErrvers),
    /// Bad header or chunks.
    ErrChunk,
}
xdr_type!(RpcRdmaError, 4);
impl XdrEncode for RpcRdmaError {
    fn encoded_len(&self) -> usize {
        4 + match self {
            Self::ErrVers(range) => range.encoded_len(),
            Self::ErrChunk => 0,
        }
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        match self {
            Self::ErrVers(range) => {
                RpcRdmaErrcode::ErrVers.encode(sink)?;
                range.encode(sink)
            }
            Self::ErrChunk => RpcRdmaErrcode::ErrChunk.encode(sink),
        }
    }
}
impl XdrDecode for RpcRdmaError {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match RpcRdmaErrcode::decode(decoder)? {
            RpcRdmaErrcode::ErrVers => RpcRdmaErrvers::decode(decoder).map(Self::ErrVers),
            RpcRdmaErrcode::ErrChunk => Ok(Self::ErrChunk),
        }
    }
}

/// The part of the header that depends on the procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RdmaBody {
    /// Chunk lists; the RPC message follows.
    RdmaMsg(RpcRdmaHeader),
    /// Chunk lists; no RPC message follows.
    RdmaNomsg(RpcRdmaHeaderNomsg),
    /// Not to be used.
    RdmaMsgp(RpcRdmaHeaderPadded),
    /// Not to be used.
    RdmaDone,
    /// An error.
    RdmaError(RpcRdmaError),
}
xdr_type!(RdmaBody, 4);
impl XdrEncode for RdmaBody {
    fn encoded_len(&self) -> usize {
        4 + match self {
            Self::RdmaMsg(body) => body.encoded_len(),
            Self::RdmaNomsg(body) => body.encoded_len(),
            Self::RdmaMsgp(body) => body.encoded_len(),
            Self::RdmaDone => 0,
            Self::RdmaError(error) => error.encoded_len(),
        }
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        match self {
            Self::RdmaMsg(body) => {
                RdmaProc::RdmaMsg.encode(sink)?;
                body.encode(sink)
            }
            Self::RdmaNomsg(body) => {
                RdmaProc::RdmaNomsg.encode(sink)?;
                body.encode(sink)
            }
            Self::RdmaMsgp(body) => {
                RdmaProc::RdmaMsgp.encode(sink)?;
                body.encode(sink)
            }
            Self::RdmaDone => RdmaProc::RdmaDone.encode(sink),
            Self::RdmaError(error) => {
                RdmaProc::RdmaError.encode(sink)?;
                error.encode(sink)
            }
        }
    }
}
impl XdrDecode for RdmaBody {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match RdmaProc::decode(decoder)? {
            RdmaProc::RdmaMsg => Self::RdmaMsg(XdrDecode::decode(decoder)?),
            RdmaProc::RdmaNomsg => Self::RdmaNomsg(XdrDecode::decode(decoder)?),
            RdmaProc::RdmaMsgp => Self::RdmaMsgp(XdrDecode::decode(decoder)?),
            RdmaProc::RdmaDone => Self::RdmaDone,
            RdmaProc::RdmaError => Self::RdmaError(XdrDecode::decode(decoder)?),
        })
    }
}

xdr_struct! {
    /// Fixed header fields (RFC 8166 §4.2).
    RdmaMsg, 16 {
        /// Position fixed for all versions.
        rdma_xid: u32,
        /// Position fixed for all versions.
        rdma_vers: u32,
        /// Position fixed for all versions.
        rdma_credit: u32,
        /// Position of its discriminator fixed for all versions.
        rdma_body: RdmaBody,
    }
}

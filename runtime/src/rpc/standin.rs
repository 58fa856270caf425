//! What `include_xdr!("xdr/rpc.x")` generates, written by hand until the macro is there.
#![allow(missing_docs)]

use crate::{
    __private::Bytes,
    xdr::{
        DecodeError, DecodeErrorKind, Decoder, EncodeError, Sink, XdrDecode, XdrEncode, XdrString, XdrType, opaque_len,
        put_array, put_opaque, take_array, take_opaque,
    },
};

pub const RPC_VERS: u32 = 2;
pub const MAX_AUTH_BODY: u32 = 400;
pub const MAX_MACHINE_NAME: u32 = 255;
pub const MAX_GIDS: u32 = 16;

macro_rules! xdr_enum {
    ($name:ident, $xdr:literal, { $($variant:ident = $value:literal),* $(,)? }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum $name { $($variant = $value),* }
        impl TryFrom<i32> for $name {
            type Error = DecodeErrorKind;
            fn try_from(value: i32) -> Result<Self, DecodeErrorKind> {
                match value {
                    $($value => Ok(Self::$variant),)*
                    _ => Err(DecodeErrorKind::UnknownEnumValue { name: $xdr, value }),
                }
            }
        }
        impl From<$name> for i32 {
            fn from(value: $name) -> i32 { value as i32 }
        }
        impl XdrEncode for $name {
            fn encoded_len(&self) -> usize { 4 }
            fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
                (*self as i32).encode(sink)
            }
        }
        impl XdrDecode for $name {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Self::try_from(i32::decode(decoder)?).map_err(|kind| decoder.error(kind))
            }
        }
    };
}

macro_rules! xdr_bounds {
    ($($name:ident: $min:literal, $max:literal;)*) => {$(
        impl XdrType for $name {
            const MIN_LEN: usize = $min;
            const MAX_LEN: Option<u64> = Some($max);
            const MAX_INLINE: Option<u64> = Some($max);
            const MAX_DDP_ITEMS: Option<u32> = Some(0);
        }
    )*};
}

macro_rules! xdr_struct {
    ($name:ident, $xdr:literal, { $($field:ident: $ty:ty),* $(,)? }) => {
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub struct $name { $(pub $field: $ty),* }
        impl XdrEncode for $name {
            fn encoded_len(&self) -> usize { 0 $(+ self.$field.encoded_len())* }
            fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
                $(self.$field.encode(sink)?;)*
                Ok(())
            }
        }
        impl XdrDecode for $name {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                $(let $field = XdrDecode::decode(decoder)
                    .map_err(|e: DecodeError| e.in_field($xdr, stringify!($field)))?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}

macro_rules! xdr_union {
    ($name:ident, $xdr:literal, $disc:ident $tag:literal, { $($variant:ident $(($ty:ident, $field:literal))?),* $(,)? }) => {
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name { $($variant $(($ty))?),* }
        impl XdrEncode for $name {
            fn encoded_len(&self) -> usize {
                match self { $(xdr_union!(@pat value $variant $($ty)?) => 4 $(+ xdr_union!(@len value $ty))?),* }
            }
            fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
                match self {
                    $(xdr_union!(@pat value $variant $($ty)?) => {
                        $disc::$variant.encode(sink)?;
                        $(xdr_union!(@enc value sink $ty);)?
                    })*
                }
                Ok(())
            }
        }
        impl XdrDecode for $name {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(match $disc::decode(decoder).map_err(|e| e.in_field($xdr, $tag))? {
                    $($disc::$variant => Self::$variant $((
                        $ty::decode(decoder).map_err(|e| e.in_field($xdr, $field))?
                    ))?,)*
                })
            }
        }
    };
    (@pat $value:ident $variant:ident) => { Self::$variant };
    (@pat $value:ident $variant:ident $ty:ident) => { Self::$variant($value) };
    (@len $value:ident $ty:ident) => { $value.encoded_len() };
    (@enc $value:ident $sink:ident $ty:ident) => { $value.encode($sink)? };
}

xdr_enum!(AuthFlavor, "auth_flavor", { AuthNone = 0, AuthSys = 1, AuthShort = 2, AuthDh = 3, RpcsecGss = 6 });
xdr_enum!(MsgType, "msg_type", { Call = 0, Reply = 1 });
xdr_enum!(ReplyStat, "reply_stat", { MsgAccepted = 0, MsgDenied = 1 });
xdr_enum!(AcceptStat, "accept_stat", {
    Success = 0, ProgUnavail = 1, ProgMismatch = 2, ProcUnavail = 3, GarbageArgs = 4, SystemErr = 5
});
xdr_enum!(RejectStat, "reject_stat", { RpcMismatch = 0, AuthError = 1 });
xdr_enum!(AuthStat, "auth_stat", {
    AuthOk = 0, AuthBadcred = 1, AuthRejectedcred = 2, AuthBadverf = 3, AuthRejectedverf = 4, AuthTooweak = 5,
    AuthInvalidresp = 6, AuthFailed = 7, AuthKerbGeneric = 8, AuthTimeexpire = 9, AuthTktFile = 10, AuthDecode = 11,
    AuthNetAddr = 12, RpcsecGssCredproblem = 13, RpcsecGssCtxproblem = 14
});
xdr_struct!(CallBody, "call_body", {
    rpcvers: u32, prog: u32, vers: u32, proc: u32, cred: OpaqueAuth, verf: OpaqueAuth
});
xdr_struct!(MismatchInfo, "mismatch_info", { low: u32, high: u32 });
xdr_union!(AcceptedReplyData, "accepted_reply_data", AcceptStat "stat", {
    Success, ProgUnavail, ProgMismatch(MismatchInfo, "info"), ProcUnavail, GarbageArgs, SystemErr
});
xdr_struct!(AcceptedReply, "accepted_reply", { verf: OpaqueAuth, reply_data: AcceptedReplyData });
xdr_union!(RejectedReply, "rejected_reply", RejectStat "stat", { RpcMismatch(MismatchInfo, "info"), AuthError(u32, "auth") });
xdr_union!(ReplyBody, "reply_body", ReplyStat "stat", { MsgAccepted(AcceptedReply, "areply"), MsgDenied(RejectedReply, "rreply") });
xdr_union!(RpcMsgBody, "rpc_msg_body", MsgType "mtype", { Call(CallBody, "cbody"), Reply(ReplyBody, "rbody") });
xdr_struct!(RpcMsg, "rpc_msg", { xid: u32, body: RpcMsgBody });
xdr_bounds! {
    AuthFlavor: 4, 4; MsgType: 4, 4; ReplyStat: 4, 4; AcceptStat: 4, 4; RejectStat: 4, 4; AuthStat: 4, 4;
    OpaqueAuth: 8, 408; CallBody: 32, 832; MismatchInfo: 8, 8; AcceptedReplyData: 4, 12; AcceptedReply: 12, 420;
    RejectedReply: 8, 12; ReplyBody: 12, 424; RpcMsgBody: 16, 836; RpcMsg: 20, 840; AuthsysParms: 20, 340;
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OpaqueAuth {
    pub flavor: u32,
    pub body: Bytes,
}

impl XdrEncode for OpaqueAuth {
    fn encoded_len(&self) -> usize {
        4 + opaque_len(self.body.len())
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.flavor.encode(sink)?;
        put_opaque(sink, &self.body, MAX_AUTH_BODY).map_err(|e| e.at("opaque_auth.body"))
    }
}

impl XdrDecode for OpaqueAuth {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            flavor: u32::decode(decoder).map_err(|e| e.in_field("opaque_auth", "flavor"))?,
            body: take_opaque(decoder, MAX_AUTH_BODY).map_err(|e| e.in_field("opaque_auth", "body"))?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AuthsysParms {
    pub stamp: u32,
    pub machinename: XdrString,
    pub uid: u32,
    pub gid: u32,
    pub gids: Vec<u32>,
}

impl XdrEncode for AuthsysParms {
    fn encoded_len(&self) -> usize {
        16 + opaque_len(self.machinename.len()) + 4 * self.gids.len()
    }
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.stamp.encode(sink)?;
        put_opaque(sink, &self.machinename, MAX_MACHINE_NAME).map_err(|e| e.at("authsys_parms.machinename"))?;
        self.uid.encode(sink)?;
        self.gid.encode(sink)?;
        put_array(sink, &self.gids, MAX_GIDS).map_err(|e| e.at("authsys_parms.gids"))
    }
}

impl XdrDecode for AuthsysParms {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let field = |name| move |e: DecodeError| e.in_field("authsys_parms", name);
        Ok(Self {
            stamp: u32::decode(decoder).map_err(field("stamp"))?,
            machinename: take_opaque(decoder, MAX_MACHINE_NAME).map(XdrString).map_err(field("machinename"))?,
            uid: u32::decode(decoder).map_err(field("uid"))?,
            gid: u32::decode(decoder).map_err(field("gid"))?,
            gids: take_array(decoder, MAX_GIDS).map_err(field("gids"))?,
        })
    }
}

//! Maximum sizes of the replies to COMPOUND and CB_COMPOUND (RFC 8267 §3, §6.2, §6.5). Each is the size of the reply's
//! head plus the maximum sizes of the operations' results.
//!
//! Most results are bounded by their types, and some by the arguments. The protocol does not bound a few of them, such
//! as some attributes and access control lists. The client provides [`UNKNOWN_RESULT_LEN`] bytes for each of these.
//!
//! In a session, replies never exceed `ca_maxresponsesize` (RFC 8267 §6.2.2), so a client with a session needs no more
//! room than that. Without a session, the caller can repeat a call whose reply did not fit, with more room (RFC 8267
//! §3.1, §6.2.1).

use rpcrdma::{
    service::{BoundsReply, ReplyBounds},
    xdr::XdrType,
};

use super::*;

/// Number of bytes that a client provides for a result that has no maximum size, or whose type has a larger one.
///
/// In practice, such results, for example attributes with access control lists, are smaller (RFC 8267 §6.2.2).
pub const UNKNOWN_RESULT_LEN: u64 = 16 * 1024;

/// Size of the chunk for the text of a symbolic link, in bytes.
///
/// Neither the arguments of READLINK nor the type `linktext4` limit the length of the link. The value is the `PATH_MAX`
/// of current systems.
pub const MAX_LINK_LEN: u64 = 4096;

/// Number of bytes that a client provides for the segment headers of a READ_PLUS reply. The protocol does not limit the
/// number of segments.
const SEGMENTS: u64 = 4096;

/// Size of a discriminant or a count, in bytes.
const WORD: u64 = 4;

impl BoundsReply for Compound4args {
    /// Returns bounds with a chunk for each READ and READLINK, in call order. The server uses the chunks in this order
    /// (RFC 8267 §6.4.1, §6.4.3).
    fn reply_bounds(&self) -> ReplyBounds {
        let mut bounds = head(self.tag.len());
        for operation in &self.argarray {
            bounds.inline = bounds.inline.saturating_add(WORD).saturating_add(inline(operation));
            match operation {
                NfsArgop4::Read(args) => bounds.chunks.push(u64::from(args.count)),
                NfsArgop4::Readlink => bounds.chunks.push(MAX_LINK_LEN),
                _ => {}
            }
        }
        bounds
    }
}

impl BoundsReply for CbCompound4args {
    /// Returns bounds without chunks, because callbacks have no eligible items (RFC 8267 §6.5.1, §6.5.2).
    fn reply_bounds(&self) -> ReplyBounds {
        let mut bounds = head(self.tag.len());
        for operation in &self.argarray {
            bounds.inline = bounds.inline.saturating_add(WORD).saturating_add(callback(operation));
        }
        bounds
    }
}

/// Returns the bounds of the head of a reply: the status, the number of results, and the tag, which has `tag` bytes
/// like the tag of the call. The bounds are marked as an estimate, because the protocol does not bound all results.
fn head(tag: usize) -> ReplyBounds {
    ReplyBounds::new((tag as u64).next_multiple_of(4).saturating_add(3 * WORD), &[]).estimated()
}

/// Returns the maximum inline size of a result type, in bytes. Returns [`UNKNOWN_RESULT_LEN`] if the type has no
/// maximum or a larger one.
fn typed<T: XdrType>() -> u64 {
    T::MAX_INLINE.filter(|most| *most <= UNKNOWN_RESULT_LEN).unwrap_or(UNKNOWN_RESULT_LEN)
}

/// Returns the maximum size, in bytes, of a result whose variable part the arguments limit to `count` bytes. `rest` is
/// the size of the other parts.
fn asked(count: u32, rest: u64) -> u64 {
    u64::from(count).saturating_add(rest)
}

/// Returns the maximum size of a result with the requested attributes, in bytes. Returns [`UNKNOWN_RESULT_LEN`] if one
/// of the attributes is unknown, has no maximum size, or has a larger one.
fn attributes(request: &Bitmap4) -> u64 {
    super::attributes::most(request).map_or(UNKNOWN_RESULT_LEN, |most| most.saturating_add(WORD))
}

/// Returns the maximum inline size of an operation's result, in bytes, without the operation number. The size is
/// [`UNKNOWN_RESULT_LEN`] if the arguments do not limit the result, and its type has no maximum size or a larger one.
fn inline(operation: &NfsArgop4) -> u64 {
    use NfsArgop4 as Op;
    match operation {
        // The data goes into a chunk.
        Op::Read(_) => typed::<Read4res>(),
        Op::Readlink => typed::<Readlink4res>(),
        // RFC 7530 §16.24.2: `maxcount` bounds READDIR4resok with its XDR overhead.
        Op::Readdir(args) => asked(args.maxcount, WORD),
        // RFC 8881 §18.40.3: `gdia_maxcount` bounds device_addr4; a bitmap of notifications follows.
        Op::Getdeviceinfo(args) => asked(args.gdia_maxcount, 16 * WORD),
        // RFC 8881 §18.43.3: `loga_maxcount` bounds the layouts; a stateid and counts are added.
        Op::Layoutget(args) => asked(args.loga_maxcount, 16 * WORD),
        // RFC 8267 §6.1 names no item of READ_PLUS, so its data stays inline.
        Op::ReadPlus(args) => asked(args.rpa_count, SEGMENTS),
        Op::Access(_) => typed::<Access4res>(),
        Op::Close(_) => typed::<Close4res>(),
        Op::Commit(_) => typed::<Commit4res>(),
        Op::Create(_) => typed::<Create4res>(),
        Op::Delegpurge(_) => typed::<Delegpurge4res>(),
        Op::Delegreturn(_) => typed::<Delegreturn4res>(),
        // The server returns only the requested attributes.
        Op::Getattr(args) => attributes(&args.attr_request),
        Op::Getfh => typed::<Getfh4res>(),
        Op::Link(_) => typed::<Link4res>(),
        Op::Lock(_) => typed::<Lock4res>(),
        Op::Lockt(_) => typed::<Lockt4res>(),
        Op::Locku(_) => typed::<Locku4res>(),
        Op::Lookup(_) => typed::<Lookup4res>(),
        Op::Lookupp => typed::<Lookupp4res>(),
        Op::Nverify(_) => typed::<Nverify4res>(),
        Op::Open(_) => typed::<Open4res>(),
        Op::Openattr(_) => typed::<Openattr4res>(),
        Op::OpenConfirm(_) => typed::<OpenConfirm4res>(),
        Op::OpenDowngrade(_) => typed::<OpenDowngrade4res>(),
        Op::Putfh(_) => typed::<Putfh4res>(),
        Op::Putpubfh => typed::<Putpubfh4res>(),
        Op::Putrootfh => typed::<Putrootfh4res>(),
        Op::Remove(_) => typed::<Remove4res>(),
        Op::Rename(_) => typed::<Rename4res>(),
        Op::Renew(_) => typed::<Renew4res>(),
        Op::Restorefh => typed::<Restorefh4res>(),
        Op::Savefh => typed::<Savefh4res>(),
        Op::Secinfo(_) => typed::<Secinfo4res>(),
        Op::Setattr(_) => typed::<Setattr4res>(),
        Op::Setclientid(_) => typed::<Setclientid4res>(),
        Op::SetclientidConfirm(_) => typed::<SetclientidConfirm4res>(),
        Op::Verify(_) => typed::<Verify4res>(),
        Op::Write(_) => typed::<Write4res>(),
        Op::ReleaseLockowner(_) => typed::<ReleaseLockowner4res>(),
        Op::BackchannelCtl(_) => typed::<BackchannelCtl4res>(),
        Op::BindConnToSession(_) => typed::<BindConnToSession4res>(),
        Op::ExchangeId(_) => typed::<ExchangeId4res>(),
        Op::CreateSession(_) => typed::<CreateSession4res>(),
        Op::DestroySession(_) => typed::<DestroySession4res>(),
        Op::FreeStateid(_) => typed::<FreeStateid4res>(),
        Op::GetDirDelegation(_) => typed::<GetDirDelegation4res>(),
        // RFC 5661 §18.41: at most `gdla_maxdevices` device IDs, plus a cookie, a verifier, their count and the
        // end-of-list flag.
        Op::Getdevicelist(args) => u64::from(args.gdla_maxdevices).saturating_mul(16).saturating_add(7 * WORD),
        Op::Layoutcommit(_) => typed::<Layoutcommit4res>(),
        Op::Layoutreturn(_) => typed::<Layoutreturn4res>(),
        Op::SecinfoNoName(_) => typed::<SecinfoNoName4res>(),
        Op::Sequence(_) => typed::<Sequence4res>(),
        Op::SetSsv(_) => typed::<SetSsv4res>(),
        // RFC 8881 §18.48: one status per stateid.
        Op::TestStateid(args) => 2 * WORD + WORD * args.ts_stateids.len() as u64,
        Op::WantDelegation(_) => typed::<WantDelegation4res>(),
        Op::DestroyClientid(_) => typed::<DestroyClientid4res>(),
        Op::ReclaimComplete(_) => typed::<ReclaimComplete4res>(),
        Op::Allocate(_) => typed::<Allocate4res>(),
        Op::Copy(_) => typed::<Copy4res>(),
        Op::CopyNotify(_) => typed::<CopyNotify4res>(),
        Op::Deallocate(_) => typed::<Deallocate4res>(),
        Op::IoAdvise(_) => typed::<IoAdvise4res>(),
        Op::Layouterror(_) => typed::<Layouterror4res>(),
        Op::Layoutstats(_) => typed::<Layoutstats4res>(),
        Op::OffloadCancel(_) => typed::<OffloadCancel4res>(),
        Op::OffloadStatus(_) => typed::<OffloadStatus4res>(),
        Op::Seek(_) => typed::<Seek4res>(),
        Op::WriteSame(_) => typed::<WriteSame4res>(),
        Op::Clone(_) => typed::<Clone4res>(),
        Op::Illegal | Op::Unknown(_) => typed::<Illegal4res>(),
    }
}

/// Returns the maximum size of a callback operation's result, in bytes, without the operation number. The size is
/// [`UNKNOWN_RESULT_LEN`] if the result has no maximum size or a larger one.
fn callback(operation: &NfsCbArgop4) -> u64 {
    use NfsCbArgop4 as Op;
    match operation {
        Op::Getattr(args) => attributes(&args.attr_request),
        Op::Recall(_) => typed::<CbRecall4res>(),
        Op::Layoutrecall(_) => typed::<CbLayoutrecall4res>(),
        Op::Notify(_) => typed::<CbNotify4res>(),
        Op::PushDeleg(_) => typed::<CbPushDeleg4res>(),
        Op::RecallAny(_) => typed::<CbRecallAny4res>(),
        Op::RecallableObjAvail(_) => typed::<CbRecallableObjAvail4res>(),
        Op::RecallSlot(_) => typed::<CbRecallSlot4res>(),
        Op::Sequence(_) => typed::<CbSequence4res>(),
        Op::WantsCancelled(_) => typed::<CbWantsCancelled4res>(),
        Op::NotifyLock(_) => typed::<CbNotifyLock4res>(),
        Op::NotifyDeviceid(_) => typed::<CbNotifyDeviceid4res>(),
        Op::Offload(_) => typed::<CbOffload4res>(),
        Op::Illegal | Op::Unknown(_) => typed::<CbIllegal4res>(),
    }
}

//! Maximum size of the reply to a COMPOUND (RFC 8267 section 6.2): the sum over its operations.
//!
//! Most results are bounded by their types, and some by the arguments. The protocol does not bound a few of them, such as
//! attributes and layouts; for those, [`UNKNOWN`] bytes are provided. In a session, replies never exceed `ca_maxresponsesize`
//! (section 6.2.2), so a client with a session can ask for no more than that. Without a session, a client repeats a call whose
//! reply did not fit, with more room (section 3.1).

use rpcrdma::{
    service::{BoundsReply, ReplyBounds},
    xdr::XdrType,
};

use super::*;

/// Size that is provided for a result without a maximum, in bytes.
///
/// Attributes with access control lists, for example, are smaller in practice (RFC 8267 section 6.2.2).
pub const UNKNOWN: u64 = 16 * 1024;

/// Size of the chunk for the text of a symbolic link, in bytes.
///
/// The arguments of READLINK do not say how long the link is, and `linktext4` has no maximum. The value is the `PATH_MAX` of
/// current systems.
pub const LINK: u64 = 4096;

/// Size that is provided for the segment headers of a READ_PLUS reply, in bytes. The protocol does not limit their number.
const SEGMENTS: u64 = 4096;

/// Size of a discriminant or a count, in bytes.
const WORD: u64 = 4;

impl BoundsReply for Compound4args {
    /// Asks for a chunk for each READ and READLINK, in call order. The server pairs them in that order (RFC 8267 section
    /// 6.4.1).
    fn reply_bounds(&self) -> ReplyBounds {
        let mut bounds = head(self.tag.len());
        for operation in &self.argarray {
            bounds.inline = bounds.inline.saturating_add(WORD).saturating_add(inline(operation));
            match operation {
                NfsArgop4::OpRead(args) => bounds.chunks.push(u64::from(args.count)),
                NfsArgop4::OpReadlink => bounds.chunks.push(LINK),
                _ => {}
            }
        }
        bounds
    }
}

impl BoundsReply for CbCompound4args {
    /// Asks for no chunks: callbacks have no eligible items (RFC 8267 section 6.5).
    fn reply_bounds(&self) -> ReplyBounds {
        let mut bounds = head(self.tag.len());
        for operation in &self.argarray {
            bounds.inline = bounds.inline.saturating_add(WORD).saturating_add(callback(operation));
        }
        bounds
    }
}

/// Returns the size of the status, the tag (which the server returns) and the number of results.
fn head(tag: usize) -> ReplyBounds {
    ReplyBounds::new((tag as u64).next_multiple_of(4).saturating_add(3 * WORD), &[])
}

/// Returns the maximum inline size of a result type, or [`UNKNOWN`] if it has none or a larger one.
fn typed<T: XdrType>() -> u64 {
    T::MAX_INLINE.filter(|most| *most <= UNKNOWN).unwrap_or(UNKNOWN)
}

/// Returns the size of a result that the arguments limit to `count` bytes, plus `rest`.
fn asked(count: u32, rest: u64) -> u64 {
    u64::from(count).saturating_add(rest)
}

/// Returns the size of a result with the requested attributes.
fn attributes(request: &Bitmap4) -> u64 {
    super::attributes::most(request).map_or(UNKNOWN, |most| most.saturating_add(WORD))
}

/// Returns the maximum inline size of an operation's result, in bytes.
fn inline(operation: &NfsArgop4) -> u64 {
    use NfsArgop4 as Op;
    match operation {
        // The data goes into a chunk.
        Op::OpRead(_) => typed::<Read4res>(),
        Op::OpReadlink => typed::<Readlink4res>(),
        // RFC 7530 §16.24.2: `maxcount` bounds READDIR4resok with its XDR overhead.
        Op::OpReaddir(args) => asked(args.maxcount, WORD),
        // RFC 8881 §18.40.3: `gdia_maxcount` bounds device_addr4; a bitmap of notifications follows.
        Op::OpGetdeviceinfo(args) => asked(args.gdia_maxcount, 16 * WORD),
        // RFC 8881 §18.43.3: `loga_maxcount` bounds the layouts; a stateid and counts are added.
        Op::OpLayoutget(args) => asked(args.loga_maxcount, 16 * WORD),
        // RFC 8267 names no item of READ_PLUS, so its data stays inline.
        Op::OpReadPlus(args) => asked(args.rpa_count, SEGMENTS),
        Op::OpAccess(_) => typed::<Access4res>(),
        Op::OpClose(_) => typed::<Close4res>(),
        Op::OpCommit(_) => typed::<Commit4res>(),
        Op::OpCreate(_) => typed::<Create4res>(),
        Op::OpDelegpurge(_) => typed::<Delegpurge4res>(),
        Op::OpDelegreturn(_) => typed::<Delegreturn4res>(),
        // The server returns only the requested attributes.
        Op::OpGetattr(args) => attributes(&args.attr_request),
        Op::OpGetfh => typed::<Getfh4res>(),
        Op::OpLink(_) => typed::<Link4res>(),
        Op::OpLock(_) => typed::<Lock4res>(),
        Op::OpLockt(_) => typed::<Lockt4res>(),
        Op::OpLocku(_) => typed::<Locku4res>(),
        Op::OpLookup(_) => typed::<Lookup4res>(),
        Op::OpLookupp => typed::<Lookupp4res>(),
        Op::OpNverify(_) => typed::<Nverify4res>(),
        Op::OpOpen(_) => typed::<Open4res>(),
        Op::OpOpenattr(_) => typed::<Openattr4res>(),
        Op::OpOpenConfirm(_) => typed::<OpenConfirm4res>(),
        Op::OpOpenDowngrade(_) => typed::<OpenDowngrade4res>(),
        Op::OpPutfh(_) => typed::<Putfh4res>(),
        Op::OpPutpubfh => typed::<Putpubfh4res>(),
        Op::OpPutrootfh => typed::<Putrootfh4res>(),
        Op::OpRemove(_) => typed::<Remove4res>(),
        Op::OpRename(_) => typed::<Rename4res>(),
        Op::OpRenew(_) => typed::<Renew4res>(),
        Op::OpRestorefh => typed::<Restorefh4res>(),
        Op::OpSavefh => typed::<Savefh4res>(),
        Op::OpSecinfo(_) => typed::<Secinfo4res>(),
        Op::OpSetattr(_) => typed::<Setattr4res>(),
        Op::OpSetclientid(_) => typed::<Setclientid4res>(),
        Op::OpSetclientidConfirm(_) => typed::<SetclientidConfirm4res>(),
        Op::OpVerify(_) => typed::<Verify4res>(),
        Op::OpWrite(_) => typed::<Write4res>(),
        Op::OpReleaseLockowner(_) => typed::<ReleaseLockowner4res>(),
        Op::OpBackchannelCtl(_) => typed::<BackchannelCtl4res>(),
        Op::OpBindConnToSession(_) => typed::<BindConnToSession4res>(),
        Op::OpExchangeId(_) => typed::<ExchangeId4res>(),
        Op::OpCreateSession(_) => typed::<CreateSession4res>(),
        Op::OpDestroySession(_) => typed::<DestroySession4res>(),
        Op::OpFreeStateid(_) => typed::<FreeStateid4res>(),
        Op::OpGetDirDelegation(_) => typed::<GetDirDelegation4res>(),
        // RFC 5661 §18.41: at most `gdla_maxdevices` device IDs, plus a cookie, a verifier, their count and the end-of-list
        // flag.
        Op::OpGetdevicelist(args) => u64::from(args.gdla_maxdevices).saturating_mul(16).saturating_add(7 * WORD),
        Op::OpLayoutcommit(_) => typed::<Layoutcommit4res>(),
        Op::OpLayoutreturn(_) => typed::<Layoutreturn4res>(),
        Op::OpSecinfoNoName(_) => typed::<SecinfoNoName4res>(),
        Op::OpSequence(_) => typed::<Sequence4res>(),
        Op::OpSetSsv(_) => typed::<SetSsv4res>(),
        // RFC 8881 §18.48: one status per stateid.
        Op::OpTestStateid(args) => 2 * WORD + WORD * args.ts_stateids.len() as u64,
        Op::OpWantDelegation(_) => typed::<WantDelegation4res>(),
        Op::OpDestroyClientid(_) => typed::<DestroyClientid4res>(),
        Op::OpReclaimComplete(_) => typed::<ReclaimComplete4res>(),
        Op::OpAllocate(_) => typed::<Allocate4res>(),
        Op::OpCopy(_) => typed::<Copy4res>(),
        Op::OpCopyNotify(_) => typed::<CopyNotify4res>(),
        Op::OpDeallocate(_) => typed::<Deallocate4res>(),
        Op::OpIoAdvise(_) => typed::<IoAdvise4res>(),
        Op::OpLayouterror(_) => typed::<Layouterror4res>(),
        Op::OpLayoutstats(_) => typed::<Layoutstats4res>(),
        Op::OpOffloadCancel(_) => typed::<OffloadCancel4res>(),
        Op::OpOffloadStatus(_) => typed::<OffloadStatus4res>(),
        Op::OpSeek(_) => typed::<Seek4res>(),
        Op::OpWriteSame(_) => typed::<WriteSame4res>(),
        Op::OpClone(_) => typed::<Clone4res>(),
        Op::OpIllegal | Op::Unknown(_) => typed::<Illegal4res>(),
    }
}

/// Returns the maximum size of a callback operation's result, in bytes.
fn callback(operation: &NfsCbArgop4) -> u64 {
    use NfsCbArgop4 as Op;
    match operation {
        Op::OpCbGetattr(args) => attributes(&args.attr_request),
        Op::OpCbRecall(_) => typed::<CbRecall4res>(),
        Op::OpCbLayoutrecall(_) => typed::<CbLayoutrecall4res>(),
        Op::OpCbNotify(_) => typed::<CbNotify4res>(),
        Op::OpCbPushDeleg(_) => typed::<CbPushDeleg4res>(),
        Op::OpCbRecallAny(_) => typed::<CbRecallAny4res>(),
        Op::OpCbRecallableObjAvail(_) => typed::<CbRecallableObjAvail4res>(),
        Op::OpCbRecallSlot(_) => typed::<CbRecallSlot4res>(),
        Op::OpCbSequence(_) => typed::<CbSequence4res>(),
        Op::OpCbWantsCancelled(_) => typed::<CbWantsCancelled4res>(),
        Op::OpCbNotifyLock(_) => typed::<CbNotifyLock4res>(),
        Op::OpCbNotifyDeviceid(_) => typed::<CbNotifyDeviceid4res>(),
        Op::OpCbOffload(_) => typed::<CbOffload4res>(),
        Op::OpCbIllegal | Op::Unknown(_) => typed::<CbIllegal4res>(),
    }
}

//! What the reply to a COMPOUND takes at most (RFC 8267 §6.2): each operation adds its result.
//!
//! Most results are bounded by their types, some by their arguments. A few have no bound in the protocol, those with
//! attributes, layouts and the like; for them [`UNKNOWN`] is provided. With a session a server's replies never exceed
//! `ca_maxresponsesize` (§6.2.2), so whoever has one may ask for no more; without one, a reply that did not fit is
//! asked for again with more room (§3.1).

use rpcrdma::{
    service::{BoundsReply, ReplyBounds},
    xdr::XdrType,
};

use super::*;

/// Octets that are provided for a result without a bound: attributes with access control lists and the like are
/// smaller in practice (RFC 8267 §6.2.2).
pub const UNKNOWN: u64 = 16 * 1024;

/// Octets of a symbolic link's text at most, for which READLINK gets a chunk: its arguments tell nothing, and `linktext4`
/// has no bound. It is the `PATH_MAX` of the systems in use.
pub const LINK: u64 = 4096;

/// Octets of the heads of a READ_PLUS reply's segments, of which the protocol does not bound the number.
const SEGMENTS: u64 = 4096;

/// Octets of a discriminant or a count.
const WORD: u64 = 4;

impl BoundsReply for Compound4args {
    /// A chunk for each READ and READLINK, in their order, as the server pairs them (RFC 8267 §6.4.1).
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
    /// Nothing is eligible in callbacks (RFC 8267 §6.5).
    fn reply_bounds(&self) -> ReplyBounds {
        let mut bounds = head(self.tag.len());
        for operation in &self.argarray {
            bounds.inline = bounds.inline.saturating_add(WORD).saturating_add(callback(operation));
        }
        bounds
    }
}

/// The status, the tag, which the server returns, and the number of results.
fn head(tag: usize) -> ReplyBounds {
    ReplyBounds::new((tag as u64).next_multiple_of(4).saturating_add(3 * WORD), &[])
}

/// What a result's type allows inline, if that is a bound to speak of.
fn typed<T: XdrType>() -> u64 {
    T::MAX_INLINE.filter(|most| *most <= UNKNOWN).unwrap_or(UNKNOWN)
}

/// A result of which the arguments bound the part that matters, and `rest` beside it.
fn asked(count: u32, rest: u64) -> u64 {
    u64::from(count).saturating_add(rest)
}

/// A result with the attributes asked for.
fn attributes(request: &Bitmap4) -> u64 {
    super::attributes::most(request).map_or(UNKNOWN, |most| most.saturating_add(WORD))
}

/// Octets that an operation's result keeps inline.
fn inline(operation: &NfsArgop4) -> u64 {
    use NfsArgop4 as Op;
    match operation {
        // The rest is placed.
        Op::OpRead(_) => typed::<Read4res>(),
        Op::OpReadlink => typed::<Readlink4res>(),
        // RFC 7530 §16.24.2: `maxcount` bounds READDIR4resok with its XDR overhead.
        Op::OpReaddir(args) => asked(args.maxcount, WORD),
        // RFC 8881 §18.40.3: `gdia_maxcount` bounds device_addr4; beside it a bitmap of notifications.
        Op::OpGetdeviceinfo(args) => asked(args.gdia_maxcount, 16 * WORD),
        // RFC 8881 §18.43.3: `loga_maxcount` bounds the layouts; beside them a stateid and counts.
        Op::OpLayoutget(args) => asked(args.loga_maxcount, 16 * WORD),
        // RFC 8267 names no item of READ_PLUS, so its data stay inline.
        Op::OpReadPlus(args) => asked(args.rpa_count, SEGMENTS),
        Op::OpAccess(_) => typed::<Access4res>(),
        Op::OpClose(_) => typed::<Close4res>(),
        Op::OpCommit(_) => typed::<Commit4res>(),
        Op::OpCreate(_) => typed::<Create4res>(),
        Op::OpDelegpurge(_) => typed::<Delegpurge4res>(),
        Op::OpDelegreturn(_) => typed::<Delegreturn4res>(),
        // Only what is asked for comes back.
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
        // RFC 5661 §18.41: so many device IDs at most; a cookie and a verifier, their count, and whether these are all.
        Op::OpGetdevicelist(args) => u64::from(args.gdla_maxdevices).saturating_mul(16).saturating_add(7 * WORD),
        Op::OpLayoutcommit(_) => typed::<Layoutcommit4res>(),
        Op::OpLayoutreturn(_) => typed::<Layoutreturn4res>(),
        Op::OpSecinfoNoName(_) => typed::<SecinfoNoName4res>(),
        Op::OpSequence(_) => typed::<Sequence4res>(),
        Op::OpSetSsv(_) => typed::<SetSsv4res>(),
        // RFC 8881 §18.48: a status for each stateid.
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

/// Octets of a callback operation's result.
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

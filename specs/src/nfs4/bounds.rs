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
                NfsArgop4::Read(args) => bounds.chunks.push(u64::from(args.count)),
                NfsArgop4::Readlink => bounds.chunks.push(LINK),
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
        Op::Read(_) => typed::<Read4res>(),
        Op::Readlink => typed::<Readlink4res>(),
        // RFC 7530 §16.24.2: `maxcount` bounds READDIR4resok with its XDR overhead.
        Op::Readdir(args) => asked(args.maxcount, WORD),
        // RFC 8881 §18.40.3: `gdia_maxcount` bounds device_addr4; beside it a bitmap of notifications.
        Op::Getdeviceinfo(args) => asked(args.gdia_maxcount, 16 * WORD),
        // RFC 8881 §18.43.3: `loga_maxcount` bounds the layouts; beside them a stateid and counts.
        Op::Layoutget(args) => asked(args.loga_maxcount, 16 * WORD),
        // RFC 8267 names no item of READ_PLUS, so its data stay inline.
        Op::ReadPlus(args) => asked(args.rpa_count, SEGMENTS),
        Op::Access(_) => typed::<Access4res>(),
        Op::Close(_) => typed::<Close4res>(),
        Op::Commit(_) => typed::<Commit4res>(),
        Op::Create(_) => typed::<Create4res>(),
        Op::Delegpurge(_) => typed::<Delegpurge4res>(),
        Op::Delegreturn(_) => typed::<Delegreturn4res>(),
        // Only what is asked for comes back.
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
        // RFC 5661 §18.41: so many device IDs at most; a cookie and a verifier, their count, and whether these are all.
        Op::Getdevicelist(args) => u64::from(args.gdla_maxdevices).saturating_mul(16).saturating_add(7 * WORD),
        Op::Layoutcommit(_) => typed::<Layoutcommit4res>(),
        Op::Layoutreturn(_) => typed::<Layoutreturn4res>(),
        Op::SecinfoNoName(_) => typed::<SecinfoNoName4res>(),
        Op::Sequence(_) => typed::<Sequence4res>(),
        Op::SetSsv(_) => typed::<SetSsv4res>(),
        // RFC 8881 §18.48: a status for each stateid.
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

/// Octets of a callback operation's result.
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

//! The NFS version 4.1 callback program (RFC 8881 §20), which the server calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma::server::{Context, HandlerError};
use rpcrdma_examples::say;
use rpcrdma_specs::nfs4::{
    self as nfs, CbCompound4args, CbCompound4res, CbSequence4args, CbSequence4res, CbSequence4resok,
    NfsCbArgop4 as CbOp, NfsCbResop4 as CbRes, NfsFh4, Nfsstat4, Sessionid4, Stateid4, nfs_cb::NfsCb,
};
use tokio::{sync::mpsc, time::Instant};

/// Number of slots of the backchannel.
pub(crate) const SLOTS: u32 = 4;

/// A callback that the service reports to the rest of the program.
#[derive(Debug)]
pub(crate) enum CallbackEvent {
    /// A CB_NULL call.
    Null,
    /// A CB_RECALL of the client's delegation, and its arrival time.
    Recall(Instant),
}

/// A delegation that the server may recall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delegation {
    pub(crate) stateid: Stateid4,
    pub(crate) handle: NfsFh4,
}

/// A slot of the backchannel, with its last sequence number and the cached reply (RFC 8881 §2.10.6.1).
#[derive(Debug, Clone, Default)]
struct Slot {
    sequence: u32,
    reply: Option<CbCompound4res>,
}

#[derive(Debug, Default)]
struct State {
    session: Option<Sessionid4>,
    delegation: Option<Delegation>,
    slots: [Slot; SLOTS as usize],
}

/// The callback service: its session, delegation and slots, and the channel for [`CallbackEvent`]s.
#[derive(Debug)]
pub(crate) struct Callbacks {
    state: Mutex<State>,
    called: mpsc::UnboundedSender<CallbackEvent>,
}

impl Callbacks {
    /// Returns the service, and a receiver for CB_NULL calls and accepted recalls.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<CallbackEvent>) {
        let (called, calls) = mpsc::unbounded_channel();
        (Self { state: Mutex::default(), called }, calls)
    }

    /// Sets the session that owns the backchannel.
    pub(crate) fn set_session(&self, session: Sessionid4) {
        self.state().session = Some(session);
    }

    /// Sets the delegation that the server may recall.
    pub(crate) fn set_delegation(&self, delegation: Delegation) {
        self.state().delegation = Some(delegation);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reply_to(&self, args: CbCompound4args) -> CbCompound4res {
        let failed = |status, resarray| CbCompound4res { status, tag: args.tag.clone(), resarray };
        if args.minorversion != 1 {
            return failed(Nfsstat4::MinorVersMismatch, Vec::new());
        }
        let mut operations = args.argarray.into_iter();
        // CB_SEQUENCE must be the first operation, and only the first (RFC 8881 §20.9.3).
        let Some(CbOp::Sequence(sequence)) = operations.next() else {
            let status = Nfsstat4::OpNotInSession;
            return failed(status, vec![CbRes::Illegal(nfs::CbIllegal4res { status })]);
        };
        let mut state = self.state();
        let admitted = match admit(&mut state, &sequence) {
            Ok(SequenceCheck::New(resok)) => resok,
            Ok(SequenceCheck::Retransmission(answer)) => return answer,
            Err(status) => return failed(status, vec![CbRes::Sequence(CbSequence4res::Default(status))]),
        };
        let mut resarray = vec![CbRes::Sequence(CbSequence4res::Ok(admitted))];
        let mut status = Nfsstat4::Ok;
        for operation in operations {
            let result = self.operation(&state, operation);
            status = result.0;
            resarray.push(result.1);
            if status != Nfsstat4::Ok {
                break;
            }
        }
        let answer = CbCompound4res { status, tag: args.tag.clone(), resarray };
        if let Some(slot) = state.slots.get_mut(sequence.csa_slotid as usize) {
            slot.reply = Some(answer.clone());
        }
        answer
    }

    fn operation(&self, state: &State, operation: CbOp) -> (Nfsstat4, CbRes) {
        let status = match &operation {
            CbOp::Recall(recall) => match &state.delegation {
                Some(ours) if ours.handle != recall.fh => Nfsstat4::Badhandle,
                // The seqid of a stateid grows while it is in use, so only the rest is compared.
                Some(ours) if ours.stateid.other != recall.stateid.other => Nfsstat4::BadStateid,
                Some(_) => {
                    // The receiver may have been dropped.
                    let _ = self.called.send(CallbackEvent::Recall(Instant::now()));
                    Nfsstat4::Ok
                }
                // The reply that grants the delegation has not arrived yet (RFC 8881 §2.10.6.3).
                None => Nfsstat4::Delay,
            },
            // The client holds nothing else that it could return.
            CbOp::RecallAny(_) | CbOp::RecallSlot(_) => Nfsstat4::Ok,
            CbOp::Sequence(_) => Nfsstat4::SequencePos,
            CbOp::Illegal | CbOp::Unknown(_) => Nfsstat4::OpIllegal,
            _ => Nfsstat4::Notsupp,
        };
        (status, result(&operation, status))
    }
}

/// The result of checking a valid request against its slot and sequence number.
enum SequenceCheck {
    New(CbSequence4resok),
    /// A retransmission, with the cached reply (RFC 8881 §2.10.6.2).
    Retransmission(CbCompound4res),
}

fn admit(state: &mut State, args: &CbSequence4args) -> Result<SequenceCheck, Nfsstat4> {
    if state.session.as_ref() != Some(&args.csa_sessionid) {
        return Err(Nfsstat4::Badsession);
    }
    let slot = state.slots.get_mut(args.csa_slotid as usize).ok_or(Nfsstat4::Badslot)?;
    if args.csa_sequenceid == slot.sequence
        && let Some(answer) = &slot.reply
    {
        return Ok(SequenceCheck::Retransmission(answer.clone()));
    }
    if args.csa_sequenceid != slot.sequence.wrapping_add(1) {
        return Err(Nfsstat4::SeqMisordered);
    }
    slot.sequence = args.csa_sequenceid;
    say!("CB_SEQUENCE slot {} sequence {}", args.csa_slotid, args.csa_sequenceid);
    Ok(SequenceCheck::New(CbSequence4resok {
        csr_sessionid: args.csa_sessionid.clone(),
        csr_sequenceid: args.csa_sequenceid,
        csr_slotid: args.csa_slotid,
        csr_highest_slotid: SLOTS - 1,
        csr_target_highest_slotid: SLOTS - 1,
    }))
}

/// Returns the result of `operation` that reports `status`.
fn result(operation: &CbOp, status: Nfsstat4) -> CbRes {
    match operation {
        CbOp::Getattr(_) => CbRes::Getattr(nfs::CbGetattr4res::Default(status)),
        CbOp::Recall(_) => CbRes::Recall(nfs::CbRecall4res { status }),
        CbOp::Layoutrecall(_) => CbRes::Layoutrecall(nfs::CbLayoutrecall4res { clorr_status: status }),
        CbOp::Notify(_) => CbRes::Notify(nfs::CbNotify4res { cnr_status: status }),
        CbOp::PushDeleg(_) => CbRes::PushDeleg(nfs::CbPushDeleg4res { cpdr_status: status }),
        CbOp::RecallAny(_) => CbRes::RecallAny(nfs::CbRecallAny4res { crar_status: status }),
        CbOp::RecallableObjAvail(_) => CbRes::RecallableObjAvail(nfs::CbRecallableObjAvail4res { croa_status: status }),
        CbOp::RecallSlot(_) => CbRes::RecallSlot(nfs::CbRecallSlot4res { rsr_status: status }),
        CbOp::Sequence(_) => CbRes::Sequence(CbSequence4res::Default(status)),
        CbOp::WantsCancelled(_) => CbRes::WantsCancelled(nfs::CbWantsCancelled4res { cwcr_status: status }),
        CbOp::NotifyLock(_) => CbRes::NotifyLock(nfs::CbNotifyLock4res { cnlr_status: status }),
        CbOp::NotifyDeviceid(_) => CbRes::NotifyDeviceid(nfs::CbNotifyDeviceid4res { cndr_status: status }),
        CbOp::Offload(_) => CbRes::Offload(nfs::CbOffload4res { cor_status: status }),
        CbOp::Illegal | CbOp::Unknown(_) => CbRes::Illegal(nfs::CbIllegal4res { status }),
    }
}

/// The handler of the callback program, which the generated dispatcher calls. The rest of `nfs41cb` shares the inner
/// [`Callbacks`].
#[derive(Debug, Clone)]
pub(crate) struct Serving(pub(crate) std::sync::Arc<Callbacks>);

impl NfsCb for Serving {
    async fn cb_null(&self, _cx: &Context) -> Result<(), HandlerError> {
        let _ = self.0.called.send(CallbackEvent::Null);
        Ok(())
    }

    async fn cb_compound(&self, _cx: &Context, args: CbCompound4args) -> Result<CbCompound4res, HandlerError> {
        Ok(self.0.reply_to(args))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Sessionid4 = Sessionid4([7; 16]);

    fn stateid(seqid: u32) -> Stateid4 {
        Stateid4 { seqid, other: [3; 12] }
    }

    fn sequence(slot: u32, sequence: u32) -> CbOp {
        CbOp::Sequence(CbSequence4args {
            csa_sessionid: SESSION,
            csa_sequenceid: sequence,
            csa_slotid: slot,
            csa_highest_slotid: slot,
            csa_cachethis: false,
            csa_referring_call_lists: Vec::new(),
        })
    }

    fn recall(handle: &'static [u8]) -> CbOp {
        let fh = NfsFh4(bytes::Bytes::from_static(handle));
        CbOp::Recall(nfs::CbRecall4args { stateid: stateid(2), truncate: false, fh })
    }

    fn ask(callbacks: &Callbacks, operations: &[CbOp]) -> (Nfsstat4, usize) {
        let args = CbCompound4args {
            tag: nfs::Utf8string(bytes::Bytes::new()),
            minorversion: 1,
            callback_ident: 0,
            argarray: operations.to_vec(),
        };
        let answer = callbacks.reply_to(args);
        (answer.status, answer.resarray.len())
    }

    #[test]
    fn sequences_and_recalls() {
        let (callbacks, mut called) = Callbacks::new();
        assert_eq!(ask(&callbacks, &[sequence(0, 1)]), (Nfsstat4::Badsession, 1));
        callbacks.set_session(SESSION);
        assert_eq!(ask(&callbacks, &[recall(b"h")]), (Nfsstat4::OpNotInSession, 1));
        assert_eq!(ask(&callbacks, &[sequence(SLOTS, 1)]), (Nfsstat4::Badslot, 1));
        assert_eq!(ask(&callbacks, &[sequence(0, 2)]), (Nfsstat4::SeqMisordered, 1));
        assert_eq!(ask(&callbacks, &[sequence(0, 1), recall(b"h")]), (Nfsstat4::Delay, 2));
        let handle = NfsFh4(bytes::Bytes::from_static(b"h"));
        callbacks.set_delegation(Delegation { stateid: stateid(1), handle });
        assert_eq!(ask(&callbacks, &[sequence(0, 2), recall(b"other")]), (Nfsstat4::Badhandle, 2));
        assert!(called.try_recv().is_err());
        assert_eq!(ask(&callbacks, &[sequence(0, 3), recall(b"h")]), (Nfsstat4::Ok, 2));
        assert!(matches!(called.try_recv(), Ok(CallbackEvent::Recall(_))));
        // A retransmission gets the cached reply and is not performed again.
        assert_eq!(ask(&callbacks, &[sequence(0, 3), recall(b"h")]), (Nfsstat4::Ok, 2));
        assert!(called.try_recv().is_err());
        assert_eq!(ask(&callbacks, &[sequence(1, 1), sequence(1, 2)]), (Nfsstat4::SequencePos, 2));
        assert_eq!(ask(&callbacks, &[sequence(0, 4), CbOp::Illegal]), (Nfsstat4::OpIllegal, 2));
    }
}

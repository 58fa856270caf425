//! NSM over UDP. Linux's `sm-notify` uses no other transport.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use rpcrdma::{
    service::Procedure as _,
    xdr::{Decoder, XdrDecode as _, XdrEncode, encode_to_bytes},
};
use rpcrdma_specs::{
    nsm1::{SmName, StatChge, sm_vers},
    rpc::{
        AcceptedReply, AcceptedReplyData, CallBody, MismatchInfo, OpaqueAuth, RPC_VERS, RejectedReply, ReplyBody,
        RpcMsg, RpcMsgBody,
    },
};
use tokio::net::UdpSocket;

use super::nsm::NsmService;

/// Maximum number of bytes of a call: a header with the largest credential and verifier, and a name.
const MAX_CALL: usize = 2048;

/// Pause after an error of the socket. It bounds the processor time if the error persists.
const PAUSE: Duration = Duration::from_millis(100);

const SM_NULL: u32 = 0;
const SM_STAT: u32 = sm_vers::SmStat::NUMBER;
const SM_NOTIFY: u32 = sm_vers::SmNotify::NUMBER;

impl NsmService {
    /// Binds a UDP socket. Returns its address, and a future that serves NSM until it is dropped. Calls are executed
    /// one by one.
    ///
    /// # Errors
    /// Fails if the socket cannot be bound, for example because the address is in use.
    pub async fn bind_udp(self, addr: SocketAddr) -> io::Result<(SocketAddr, impl Future<Output = ()> + Send)> {
        let socket = UdpSocket::bind(addr).await?;
        let local = socket.local_addr()?;
        let serve = async move {
            let mut datagram = vec![0; MAX_CALL + 1];
            loop {
                // An error usually concerns one datagram, for example a reply that could not be delivered.
                let Ok((len, peer)) = socket.recv_from(&mut datagram).await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                if len <= MAX_CALL
                    && let Some(reply) = self.answer(peer, &datagram[..len])
                {
                    let _ = socket.send_to(&reply, peer).await;
                }
            }
        };
        Ok((local, serve))
    }

    /// Executes a call, and returns the reply. Datagrams that are not calls have no reply.
    fn answer(&self, peer: SocketAddr, datagram: &[u8]) -> Option<Bytes> {
        let shared = Bytes::copy_from_slice(datagram);
        let mut decoder = Decoder::shared(&shared);
        let RpcMsg { xid, body: RpcMsgBody::Call(call) } = RpcMsg::decode(&mut decoder).ok()? else { return None };
        let accepted = |data| ReplyBody::Accepted(AcceptedReply { verf: OpaqueAuth::default(), reply_data: data });
        let done = || accepted(AcceptedReplyData::Success);
        let CallBody { rpcvers, prog, vers, r#proc: procedure, .. } = call;
        let (body, result) = match (prog, vers, procedure) {
            _ if rpcvers != RPC_VERS => {
                let range = MismatchInfo { low: RPC_VERS, high: RPC_VERS };
                (ReplyBody::Denied(RejectedReply::RpcMismatch(range)), Bytes::new())
            }
            (sm_vers::PROGRAM, sm_vers::VERSION, SM_NULL) => (done(), Bytes::new()),
            (sm_vers::PROGRAM, sm_vers::VERSION, SM_STAT) => match SmName::decode(&mut decoder) {
                Ok(_) => (done(), encoded(&self.refusal())?),
                Err(_) => (accepted(AcceptedReplyData::GarbageArgs), Bytes::new()),
            },
            (sm_vers::PROGRAM, sm_vers::VERSION, SM_NOTIFY) => match StatChge::decode(&mut decoder) {
                Ok(change) => {
                    self.0.restarted(peer.ip(), change.mon_name.as_bytes(), change.state);
                    (done(), Bytes::new())
                }
                Err(_) => (accepted(AcceptedReplyData::GarbageArgs), Bytes::new()),
            },
            (sm_vers::PROGRAM, sm_vers::VERSION, _) => (accepted(AcceptedReplyData::ProcUnavail), Bytes::new()),
            (sm_vers::PROGRAM, ..) => {
                let range = MismatchInfo { low: sm_vers::VERSION, high: sm_vers::VERSION };
                (accepted(AcceptedReplyData::ProgMismatch(range)), Bytes::new())
            }
            _ => (accepted(AcceptedReplyData::ProgUnavail), Bytes::new()),
        };
        let header = encoded(&RpcMsg { xid, body: RpcMsgBody::Reply(body) })?;
        Some([header, result].concat().into())
    }
}

fn encoded(value: &impl XdrEncode) -> Option<Bytes> {
    encode_to_bytes(value).ok()
}

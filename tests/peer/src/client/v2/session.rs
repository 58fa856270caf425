//! A connection of version 2 from a client under test.

use bytes::Bytes;
use rpcrdma_xdr::{rpc::CallHeader, xdr::Decoder};
use tokio::time::Instant;

use super::super::{
    ClientUnderTest, nfs,
    running::{End, RunningClient, ServedSession, finish},
};
use crate::{
    case::{Early, Finding, Limits, Steps},
    link::{Link, Next},
    rpc,
    v1::Lists,
    v2::{
        Body, Message, Prefix, RDMA2_CONNPROP, RDMA2_F_RESPONSE, RDMA2_MSG, RDMA2_PROPID_RBSIZ, RDMA2_PROPID_RCSIZ,
        RDMA2_PROPID_SBSIZ, VERSION, connprop, message,
    },
};

/// The program number of NFS.
const NFS: u32 = 100_003;

/// A connection of version 2, and the client that opened it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: Link,
    pub(super) limits: Limits,
    running: RunningClient,
}

/// A call of the client.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) xid: u32,
    pub(super) prefix: Prefix,
    pub(super) lists: Lists,
    pub(super) header: CallHeader,
    args: Bytes,
}

/// Returns the prefix of a reply, which grants one credit.
pub(super) fn reply_prefix(xid: u32) -> Prefix {
    Prefix::new(xid, RDMA2_MSG, RDMA2_F_RESPONSE)
}

/// Returns the properties that the peer announces: both sizes, and the number of segments.
pub(super) fn own_properties() -> Vec<(u32, Vec<u8>)> {
    let number = |value: u32| value.to_be_bytes().to_vec();
    vec![(RDMA2_PROPID_SBSIZ, number(4096)), (RDMA2_PROPID_RBSIZ, number(4096)), (RDMA2_PROPID_RCSIZ, number(64))]
}

impl Session {
    /// Starts the client, accepts its connection, and waits for its first message. A client of version 1 ends the case.
    pub(super) async fn accept(client: &ClientUnderTest) -> Steps<(Self, Prefix, Bytes)> {
        let (link, running) = RunningClient::accept(client, Vec::new()).await?;
        let mut session = Self { link, limits: client.limits, running };
        let first = match session.link.next(session.deadline()).await {
            Next::Message(arrived) => arrived.bytes,
            other => return Err(Early::not_run(format!("no message: {other:?}"))),
        };
        let prefix = Prefix::decode(&first).filter(|prefix| prefix.vers == VERSION);
        let prefix = prefix.ok_or_else(|| Finding::not_supported("the client does not begin with version 2"))?;
        Ok((session, prefix, first))
    }

    /// Accepts a connection, and exchanges properties. `grant` is the number of credits that the peer grants.
    pub(super) async fn negotiated(client: &ClientUnderTest, grant: u32) -> Steps<Self> {
        let (mut session, first, _) = Self::accept(client).await?;
        session.send_properties(first.xid, grant, &own_properties());
        Ok(session)
    }

    /// Sends the peer's properties in response to the first message.
    pub(super) fn send_properties(&mut self, xid: u32, grant: u32, properties: &[(u32, Vec<u8>)]) {
        let prefix = Prefix { credit: 64 << 16 | grant, ..Prefix::new(xid, RDMA2_CONNPROP, RDMA2_F_RESPONSE) };
        self.link.send(&connprop(prefix, properties));
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.patience
    }

    pub(super) fn soon(&self) -> Instant {
        Instant::now() + self.limits.settle
    }

    /// Returns the call in an RDMA2_MSG. Returns `None` for any other message.
    pub(super) fn parse(bytes: &Bytes) -> Option<Call> {
        let Message { prefix, body: Body::Msg(_, lists, payload) } = Message::decode(bytes).ok()? else { return None };
        let mut decoder = Decoder::shared(&payload);
        let header = CallHeader::decode(&mut decoder).ok()?;
        let args = payload.slice(decoder.consumed()..);
        Some(Call { xid: prefix.xid, prefix, lists, header, args })
    }

    /// Waits for the first call. Ends the case as not run if none arrives.
    pub(super) async fn first(&mut self) -> Steps<Call> {
        let deadline = self.deadline();
        self.call(deadline).await.map_err(|why| Early::not_run(format!("no call: {why}")))
    }

    /// Transfers the data of a call, and returns the correct reply.
    async fn correct_reply(&mut self, call: &Call) -> Vec<u8> {
        let is_nfs = call.header.program == NFS;
        let mut written = 0;
        let results = match call.header.procedure {
            nfs::READ if is_nfs && !call.lists.writes.is_empty() => {
                let (results, data) = nfs::read(&call.args).unwrap_or_default();
                written = data.len() as u32;
                self.link.write_to(&call.lists.writes[0], &data);
                results
            }
            nfs::READ if is_nfs => nfs::read_inline(&call.args).unwrap_or_default(),
            nfs::WRITE if is_nfs => {
                let deadline = self.deadline();
                let mut read = 0;
                for (_, segment) in &call.lists.reads {
                    read += self.link.read(*segment, deadline).await.map_or(0, |data| data.len() as u32);
                }
                let is_inline = call.lists.reads.is_empty();
                nfs::written(if is_inline { nfs::write_count(&call.args).unwrap_or_default() } else { read })
            }
            procedure => nfs::results(procedure, &call.args).unwrap_or_default(),
        };
        let lists = call.lists.returned(written);
        message(reply_prefix(call.xid), &lists, 0, &rpc::reply(call.xid, &results))
    }

    /// Serves the remaining calls until the client has finished. If `failing` is given, calls with this XID get
    /// SYSTEM_ERR.
    pub(super) async fn finish(&mut self, failing: Option<u32>) -> End {
        finish(self, failing).await
    }

    /// Waits until the client finishes, at most until the deadline of the session. Returns `true` if the client has
    /// succeeded by then.
    pub(super) async fn has_succeeded(&mut self) -> bool {
        let deadline = self.deadline();
        self.running.result(deadline).await == Some(true)
    }
}

impl ServedSession for Session {
    type Call = Call;

    fn limits(&self) -> Limits {
        self.limits
    }

    fn running(&mut self) -> &mut RunningClient {
        &mut self.running
    }

    /// Waits for the next call. Other messages are skipped.
    async fn call(&mut self, deadline: Instant) -> Result<Call, String> {
        loop {
            if let Some(call) = Self::parse(&self.link.next_call(deadline).await?) {
                return Ok(call);
            }
        }
    }

    async fn serve(&mut self, call: &Call) {
        let reply = self.correct_reply(call).await;
        self.link.send(&reply);
    }

    fn fail(&mut self, call: &Call) {
        let lists = Lists { reply: None, ..call.lists.returned(0) };
        self.link.send(&message(reply_prefix(call.xid), &lists, 0, &rpc::system_err(call.xid)));
    }

    fn xid(call: &Call) -> u32 {
        call.xid
    }
}

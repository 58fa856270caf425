//! A connection of version 1 from a client under test.

use bytes::Bytes;
use rpcrdma_xdr::{rpc::CallHeader, xdr::Decoder};
use tokio::time::Instant;

use super::super::{
    ClientUnderTest, nfs,
    running::{End, RunningClient, ServedSession, finish},
};
use crate::{
    case::{Early, Finding, Limits, Steps},
    link::{Link, Segment},
    rpc,
    v1::{Body, Lists, Message, VERSION, err_vers, message, private_data},
};

/// Number of credits that the peer grants.
pub(super) const GRANT: u32 = 32;
/// The program number of NFS.
const NFS: u32 = 100_003;

/// A connection of version 1, and the client that opened it.
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
    pub(super) credit: u32,
    pub(super) lists: Lists,
    pub(super) header: CallHeader,
    /// The arguments, without the data in Read chunks.
    pub(super) args: Bytes,
    /// The offset of the arguments in the call, in bytes.
    pub(super) args_at: u32,
}

impl Call {
    /// Returns `true` if the call is of this procedure of NFS.
    pub(super) fn is(&self, procedure: u32) -> bool {
        self.header.program == NFS && self.header.procedure == procedure
    }

    /// Returns the Write list of a reply that writes `len` bytes to the first chunk.
    pub(super) fn filled(&self, len: u32) -> Vec<Vec<Segment>> {
        self.lists.returned(len).writes
    }
}

impl Session {
    /// Starts the client, and accepts its connection.
    pub(super) async fn accept(client: &ClientUnderTest) -> Steps<Self> {
        Self::accept_with(client, private_data(false, 4096, 4096)).await
    }

    pub(super) async fn accept_with(client: &ClientUnderTest, private_data: Vec<u8>) -> Steps<Self> {
        let (link, running) = RunningClient::accept(client, private_data).await?;
        Ok(Self { link, limits: client.limits, running })
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.patience
    }

    /// Returns the time until which the peer waits for messages that should not come.
    pub(super) fn soon(&self) -> Instant {
        Instant::now() + self.limits.settle
    }

    /// Fetches the data of the Read chunk at `position`.
    pub(super) async fn fetch(&mut self, lists: &Lists, position: u32, deadline: Instant) -> Result<Bytes, String> {
        let mut data = Vec::new();
        for (at, segment) in &lists.reads {
            if *at == position && segment.len > 0 {
                data.extend_from_slice(&self.link.read(*segment, deadline).await?);
            }
        }
        Ok(data.into())
    }

    /// Waits for a call that `is_wanted` accepts, and serves all others. Without such a call, the finding is "not
    /// supported".
    pub(super) async fn until(&mut self, what: &str, is_wanted: impl Fn(&Call) -> bool) -> Steps<Call> {
        let deadline = self.deadline();
        loop {
            match self.call(deadline).await {
                Ok(call) if is_wanted(&call) => return Ok(call),
                Ok(call) => self.serve(&call).await,
                Err(why) => return Err(Finding::not_supported(format!("no {what} came: {why}")).into()),
            }
        }
    }

    /// Waits for the first call, of any procedure.
    pub(super) async fn first(&mut self) -> Steps<Call> {
        let deadline = self.deadline();
        self.call(deadline).await.map_err(|why| Early::not_run(format!("no call: {why}")))
    }

    /// Writes data to the first Write chunk of a call.
    pub(super) fn place(&mut self, call: &Call, data: &[u8]) {
        self.link.write_to(call.lists.writes.first().map_or(&[], Vec::as_slice), data);
    }

    /// Transfers the data of a call, and returns the correct reply with its chunks.
    pub(super) async fn correct_reply(&mut self, call: &Call) -> Vec<u8> {
        let (xid, deadline) = (call.xid, self.deadline());
        let has_chunk = call.lists.writes.first().is_some_and(|chunk| !chunk.is_empty());
        let (results, writes) = match call.header.procedure {
            nfs::READ if call.is(nfs::READ) => {
                if has_chunk {
                    let (results, data) = nfs::read(&call.args).unwrap_or_default();
                    self.place(call, &data);
                    (results, call.filled(data.len() as u32))
                } else {
                    (nfs::read_inline(&call.args).unwrap_or_default(), call.filled(0))
                }
            }
            nfs::WRITE if call.is(nfs::WRITE) => {
                let positions = call.lists.reads.iter().map(|(position, _)| *position).filter(|position| *position > 0);
                let mut len = nfs::write_count(&call.args).unwrap_or_default();
                if let Some(position) = positions.min() {
                    len = self.fetch(&call.lists, position, deadline).await.map_or(0, |data| data.len() as u32);
                }
                (nfs::written(len), call.filled(0))
            }
            procedure => (nfs::results(procedure, &call.args).unwrap_or_default(), call.filled(0)),
        };
        let lists = Lists { writes, ..call.lists.returned(0) };
        message(xid, GRANT, &lists, Some(&rpc::reply(xid, &results)))
    }

    /// Serves the remaining calls until the client has finished.
    pub(super) async fn finish(&mut self) -> End {
        finish(self, None).await
    }

    /// Serves the remaining calls until the client has finished. Calls with this XID get SYSTEM_ERR.
    pub(super) async fn finish_failing(&mut self, xid: u32) -> End {
        finish(self, Some(xid)).await
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

    /// Waits for the next call. A client that begins with version 2 gets ERR_VERS, so that it uses version 1. Replies
    /// of the client are skipped.
    async fn call(&mut self, deadline: Instant) -> Result<Call, String> {
        loop {
            let bytes = self.link.next_call(deadline).await?;
            if let [xid, vers, ..] = rpc::to_words(&bytes)[..]
                && vers != VERSION
            {
                self.link.send(&err_vers(xid, vers, GRANT, (VERSION, VERSION)));
                continue;
            }
            let decoded = Message::decode(&bytes)?;
            let (lists, payload) = match decoded.body {
                Body::Msg(lists, payload) => (lists, payload),
                Body::Nomsg(lists) => {
                    let payload = self.fetch(&lists, 0, deadline).await?;
                    (lists, payload)
                }
                _ => continue,
            };
            let mut decoder = Decoder::shared(&payload);
            let Ok(header) = CallHeader::decode(&mut decoder) else { continue };
            let args_at = decoder.consumed() as u32;
            let args = payload.slice(args_at as usize..);
            return Ok(Call { xid: decoded.xid, credit: decoded.credit, lists, header, args, args_at });
        }
    }

    async fn serve(&mut self, call: &Call) {
        let reply = self.correct_reply(call).await;
        self.link.send(&reply);
    }

    fn fail(&mut self, call: &Call) {
        let lists = Lists { reply: None, ..call.lists.returned(0) };
        self.link.send(&message(call.xid, GRANT, &lists, Some(&rpc::system_err(call.xid))));
    }

    fn xid(call: &Call) -> u32 {
        call.xid
    }
}

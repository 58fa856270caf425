//! A connection of version 1 from a client under test.

use bytes::Bytes;
use rpcrdma_xdr::{rpc::CallHeader, xdr::Decoder};
use tokio::time::Instant;

use super::super::{
    ClientUnderTest, nfs,
    running::{End, RunningClient},
};
use crate::{
    case::{Early, Finding, Limits, Steps},
    link::{Link, Next, Segment},
    rpc,
    transport::{Listening, Target},
    v1::{Body, Lists, Message, VERSION, err_vers, message, private_data},
};

/// Credits that the peer grants.
pub(super) const GRANT: u32 = 32;
/// The program of NFS, whose file the small server has.
const NFS: u32 = 100_003;

/// A connection from a client.
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
    /// The length of the call in front of its arguments.
    pub(super) args_at: u32,
}

impl Call {
    /// Returns `true` for a call of this procedure of NFS.
    pub(super) fn is(&self, procedure: u32) -> bool {
        self.header.program == NFS && self.header.procedure == procedure
    }

    /// Returns the Write list of a reply that writes `len` bytes to the first chunk.
    pub(super) fn filled(&self, len: u32) -> Vec<Vec<Segment>> {
        let mut left = len;
        let fill = |segment: &Segment| {
            let used = left.min(segment.len);
            left -= used;
            segment.part(0, used)
        };
        let first = self.lists.writes.first().map(|chunk| chunk.iter().map(fill).collect());
        let rest =
            self.lists.writes.iter().skip(1).map(|chunk| chunk.iter().map(|segment| segment.part(0, 0)).collect());
        first.into_iter().chain(rest).collect()
    }
}

impl Session {
    /// Starts the client, and accepts its connection.
    pub(super) async fn accept(client: &ClientUnderTest) -> Steps<Self> {
        Self::accept_with(client, private_data(false, 4096, 4096)).await
    }

    pub(super) async fn accept_with(client: &ClientUnderTest, private_data: Vec<u8>) -> Steps<Self> {
        let listening = Listening::bind(client.listen).await;
        let listening = listening.map_err(|error| Early::not_run(format!("cannot listen: {error}")))?;
        let addr = Target { addr: listening.local_addr(), ..client.listen }.addr;
        let mut running = RunningClient::start(client, addr);
        let patience = client.limits.patience;
        let link = running.connects(patience, listening.accept(private_data.into(), patience)).await?;
        let link = link.map_err(|error| Early::not_run(format!("cannot accept a connection: {error:#}")))?;
        running.keep(listening);
        Ok(Self { link, limits: client.limits, running })
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.patience
    }

    /// Returns the time until which the peer waits for messages that should not come.
    pub(super) fn soon(&self) -> Instant {
        Instant::now() + self.limits.settle
    }

    /// Waits for the next call. A client that begins with version 2 is told to use version 1. Replies of the client are skipped.
    pub(super) async fn call(&mut self, deadline: Instant) -> Result<Call, String> {
        loop {
            let bytes = match self.link.next(deadline).await {
                Next::Message(arrived) => arrived.bytes,
                Next::Ended(reason) => return Err(format!("the connection ended: {reason}")),
                Next::TimedOut => return Err("no call came".into()),
            };
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

    /// Reads the Read chunk at a position.
    pub(super) async fn fetch(&mut self, lists: &Lists, position: u32, deadline: Instant) -> Result<Bytes, String> {
        let mut data = Vec::new();
        for (at, segment) in &lists.reads {
            if *at == position && segment.len > 0 {
                data.extend_from_slice(&self.link.read(*segment, deadline).await?);
            }
        }
        Ok(data.into())
    }

    /// Waits for a call that has a property, and serves all others. Without such a call, the client does not permit the case.
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

    /// Waits for the first call, whatever it is.
    pub(super) async fn first(&mut self) -> Steps<Call> {
        let deadline = self.deadline();
        self.call(deadline).await.map_err(|why| Early::not_run(format!("no call: {why}")))
    }

    /// Writes data to the first Write chunk of a call.
    pub(super) fn place(&mut self, call: &Call, data: &[u8]) {
        let mut left = data;
        for segment in call.lists.writes.first().into_iter().flatten() {
            let (part, rest) = left.split_at(left.len().min(segment.len as usize));
            if !part.is_empty() {
                self.link.write(*segment, part.to_vec());
            }
            left = rest;
        }
    }

    /// Returns the correct reply to a call, with its chunks. Transfers data.
    pub(super) async fn correct_reply(&mut self, call: &Call) -> Vec<u8> {
        let (xid, deadline) = (call.xid, self.deadline());
        let has_chunk = call.lists.writes.first().is_some_and(|chunk| !chunk.is_empty());
        let (results, writes) = match call.header.procedure {
            nfs::READ if call.is(nfs::READ) => {
                let (results, data) = nfs::read(&call.args).unwrap_or_default();
                if has_chunk {
                    self.place(call, &data);
                    (results, call.filled(data.len() as u32))
                } else {
                    let mut inline = [results, data].concat();
                    inline.resize(inline.len().next_multiple_of(4), 0);
                    (inline, call.filled(0))
                }
            }
            nfs::WRITE if call.is(nfs::WRITE) => {
                let positions = call.lists.reads.iter().map(|(position, _)| *position).filter(|position| *position > 0);
                let mut len = rpc::to_words(&call.args).last().copied().unwrap_or_default();
                if let Some(position) = positions.min() {
                    len = self.fetch(&call.lists, position, deadline).await.map_or(0, |data| data.len() as u32);
                }
                (nfs::written(len), call.filled(0))
            }
            procedure => (nfs::results(procedure, &call.args).unwrap_or_default(), call.filled(0)),
        };
        let unused = call.lists.reply.as_ref().map(|chunk| chunk.iter().map(|segment| segment.part(0, 0)).collect());
        let lists = Lists { reads: Vec::new(), writes, reply: unused };
        message(xid, GRANT, &lists, Some(&rpc::reply(xid, &results)))
    }

    /// Replies to a call correctly.
    pub(super) async fn serve(&mut self, call: &Call) {
        let reply = self.correct_reply(call).await;
        self.link.send(&reply);
    }

    /// Serves the remaining calls until the client has finished.
    pub(super) async fn finish(&mut self) -> End {
        self.finish_with(None).await
    }

    /// Serves the remaining calls until the client has finished. A call with this XID that is sent again gets SYSTEM_ERR.
    pub(super) async fn finish_failing(&mut self, xid: u32) -> End {
        self.finish_with(Some(xid)).await
    }

    async fn finish_with(&mut self, failing: Option<u32>) -> End {
        let deadline = self.deadline();
        loop {
            // The client's result counts more than the end of its connection.
            if let Some(result) = self.running.result(Instant::now()).await {
                return if result { End::Succeeded } else { End::Failed };
            }
            let soon = (Instant::now() + self.limits.settle).min(deadline);
            match self.call(soon).await {
                Ok(call) if failing == Some(call.xid) => self.fail(&call),
                Ok(call) => {
                    self.serve(&call).await;
                    // Somebody else has started the client, whose next call shows that it accepted the reply.
                    if !self.running.is_started() {
                        return End::Succeeded;
                    }
                }
                Err(why) if why.starts_with("the connection ended") => {
                    return match self.running.result(deadline).await {
                        Some(true) => End::Succeeded,
                        Some(false) => End::Failed,
                        None => End::Ended(why),
                    };
                }
                Err(_) if Instant::now() >= deadline => return End::Waits,
                Err(_) => {}
            }
        }
    }

    /// Replies to a call with SYSTEM_ERR.
    pub(super) fn fail(&mut self, call: &Call) {
        let payload = rpc::words(&[call.xid, 1, 0, 0, 0, 5]);
        let lists = Lists { writes: call.filled(0), ..Lists::default() };
        self.link.send(&message(call.xid, GRANT, &lists, Some(&payload)));
    }
}

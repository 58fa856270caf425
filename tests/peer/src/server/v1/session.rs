//! A connection of version 1 to a server under test.

use bytes::Bytes;
use rpcrdma_xdr::rpc::Credential;
use tokio::time::Instant;

use super::super::{
    ServerUnderTest,
    exchange::{self, Exchange},
};
use crate::{
    came::Came,
    case::{Early, Limits, Steps},
    link::{Arrived, Link, Next, Segment},
    rpc::{self, Procedure, Reply},
    transport,
    v1::{Body, CREDITS, Lists, Message, VERSION, message, private_data},
};

/// Maximum size in bytes of messages, as the peer announces it.
pub(super) const INLINE: u32 = 4096;

/// A connection of version 1.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: Link,
    limits: Limits,
    null: Procedure,
    /// Credits that the latest reply to [`hello`](Self::hello) granted, but at least 1. 1 before the first reply.
    pub(super) granted: u32,
    /// The status of replies to NULL calls: SUCCESS if the server has the program.
    usual: &'static str,
}

/// The messages of a case, in version 1.
pub(super) type Sent = exchange::Sent<VERSION>;

impl Session {
    /// Connects with this private data, and sends nothing.
    pub(super) async fn connect(server: &ServerUnderTest, private_data: Vec<u8>) -> Steps<Self> {
        let link = transport::connect(server.target, private_data.into(), server.connect_timeout()).await;
        let link = link.map_err(|error| Early::not_run(format!("cannot connect: {error}")))?;
        let null = (server.program.0, server.program.1, 0);
        Ok(Self { link, limits: server.limits, null, granted: 1, usual: "SUCCESS" })
    }

    /// Connects, and makes a first NULL call, which must get a reply.
    pub(super) async fn open(server: &ServerUnderTest) -> Steps<Self> {
        let mut session = Self::connect(server, private_data(false, INLINE, INLINE)).await?;
        session.hello().await?;
        Ok(session)
    }

    /// Makes a plain NULL call, and returns the reply. Stores the status of the reply and the credits that it grants.
    pub(super) async fn hello(&mut self) -> Steps<Message> {
        let (xid, call) = self.null();
        self.link.send(&call);
        let deadline = self.deadline();
        let arrived = match self.link.next(deadline).await {
            Next::Message(arrived) => arrived,
            Next::Ended(reason) => {
                return Err(Early::not_run(format!("a plain NULL call ended the connection: {reason}")));
            }
            Next::TimedOut => return Err(Early::not_run("a plain NULL call got no reply")),
        };
        let reply = Message::decode(&arrived.bytes).ok().filter(|reply| reply.xid == xid);
        let reply = reply.ok_or_else(|| Early::not_run("a plain NULL call got an invalid reply"))?;
        match &reply.body {
            Body::Msg(_, payload) => {
                let status = Reply::decode(payload).map(|reply| reply.status).map_err(Early::not_run)?;
                (self.granted, self.usual) = (reply.credit.max(1), status);
                Ok(reply)
            }
            other => Err(Early::not_run(format!("a plain NULL call got {other:?}"))),
        }
    }

    /// Makes another NULL call, and returns `true` if it gets a reply. Other messages are ignored.
    pub(super) async fn hello_again(&mut self) -> bool {
        let (xid, call) = self.null();
        self.link.send(&call);
        let deadline = self.deadline();
        while let Next::Message(arrived) = self.link.next(deadline).await {
            if arrived.bytes.starts_with(&xid.to_be_bytes()) {
                return true;
            }
        }
        false
    }

    /// Returns `true` if the server has the program.
    pub(super) fn has_program(&self) -> bool {
        self.usual == "SUCCESS"
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.patience
    }

    /// Returns the XID and the RPC message of a NULL call.
    pub(super) fn null_call(&self) -> (u32, Vec<u8>) {
        let xid = rpc::next_xid();
        (xid, rpc::call(xid, self.null, &Credential::None, &[]))
    }

    /// Returns the XID of a NULL call, and an RPC-over-RDMA message with the call.
    pub(super) fn null(&self) -> (u32, Vec<u8>) {
        self.null_with(&Lists::default())
    }

    /// Returns the XID of a NULL call, and an RPC-over-RDMA message with the call and the chunks in `lists`.
    pub(super) fn null_with(&self, lists: &Lists) -> (u32, Vec<u8>) {
        let (xid, call) = self.null_call();
        (xid, message(xid, CREDITS, lists, Some(&call)))
    }

    /// Returns the XID, and a message whose Read chunk at position zero consists of these segments. The segments
    /// contain the call.
    pub(super) fn long(&self, xid: u32, segments: &[Segment]) -> (u32, Vec<u8>) {
        (xid, message(xid, CREDITS, &Lists::reads(0, segments), None))
    }

    /// Sends messages, then a NULL call, and returns what came in response to the messages.
    ///
    /// `waits` is `true` if the case expects an answer. Otherwise, a short wait after the reply to the NULL call is
    /// enough.
    pub(super) async fn observe(&mut self, sent: &Sent, waits: bool) -> Came {
        self.exchange(sent, waits).await.0
    }

    /// Like [`observe`](Self::observe), but also returns the message that came, if there was one.
    pub(super) async fn exchange(&mut self, sent: &Sent, waits: bool) -> (Came, Option<Arrived>) {
        let has_credits = self.granted as usize > sent.messages.len();
        let exchange = Exchange { messages: &sent.messages, xid: sent.xid, probe: self.null(), has_credits, waits };
        match exchange.run(&mut self.link, self.limits, |_| false).await {
            Ok(arrived) => (self.classify(&arrived.bytes, sent).await, Some(arrived)),
            Err(came) => (came, None),
        }
    }

    async fn classify(&mut self, bytes: &Bytes, sent: &Sent) -> Came {
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(error) => return Came::Other(error),
        };
        match &message.body {
            Body::ErrVers(..) | Body::ErrChunk if message.vers != sent.vers => {
                Came::Other(format!("RDMA_ERROR with the version {} for one of {}", message.vers, sent.vers))
            }
            Body::ErrVers(low, high) if low > high || (*low..=*high).contains(&sent.vers) => {
                Came::Other(format!("ERR_VERS with the range {low} to {high}"))
            }
            Body::ErrVers(..) => Came::Error("ERR_VERS"),
            Body::ErrChunk => Came::Error("ERR_CHUNK"),
            Body::Obsolete(name) => Came::Other((*name).into()),
            Body::Msg(_, payload) => self.status(payload, message.xid),
            Body::Nomsg(lists) => match self.long_reply(lists, &sent.lists).await {
                Ok(payload) => self.status(&payload, message.xid),
                Err(why) => Came::Other(why),
            },
        }
    }

    fn status(&self, payload: &Bytes, xid: u32) -> Came {
        match Reply::decode(payload) {
            Ok(reply) if reply.xid != xid => {
                Came::Other(format!("a reply with the XID {:#x} in one of {xid:#x}", reply.xid))
            }
            Ok(reply) if reply.status == self.usual => Came::Reply("SUCCESS"),
            Ok(reply) => Came::Reply(reply.status),
            Err(error) => Came::Other(error),
        }
    }

    /// Takes back the memory of the Reply chunk of a call, and returns the RPC message that the server has written to
    /// it.
    async fn long_reply(&mut self, lists: &Lists, sent: &Lists) -> Result<Bytes, String> {
        let (Some(returned), Some(provided)) = (&lists.reply, &sent.reply) else {
            return Err("RDMA_NOMSG without the Reply chunk of the call".into());
        };
        let len: u64 = returned.iter().map(|segment| u64::from(segment.len)).sum();
        let Some(first) = provided.first() else { return Err("RDMA_NOMSG with an empty Reply chunk".into()) };
        let deadline = self.deadline();
        let data = self.link.take(*first, deadline).await.ok_or("the memory of the Reply chunk did not return")?;
        let len = usize::try_from(len).ok().filter(|len| *len <= data.len());
        Ok(data.slice(..len.ok_or("a Reply chunk that is longer than the one of the call")?))
    }
}

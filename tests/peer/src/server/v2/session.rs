//! A connection of version 2 to a server under test.

use bytes::Bytes;
use rpcrdma_xdr::rpc::Credential;
use tokio::time::Instant;

use super::super::{
    ServerUnderTest,
    exchange::{self, Exchange},
};
use crate::{
    came::Came,
    case::{Early, Finding, Limits, Steps},
    link::{Arrived, Link, Next},
    rpc::{self, Procedure, Reply},
    transport,
    v1::Lists,
    v2::{
        Body, FIRST_GRANT, Message, Prefix, RDMA2_CONNPROP, RDMA2_F_RESPONSE, RDMA2_MSG, RDMA2_NOMSG,
        RDMA2_PROPID_RBSIZ, RDMA2_PROPID_RCSIZ, RDMA2_PROPID_SBSIZ, VERSION, connprop, message,
    },
};

/// Maximum size in bytes of messages, as the peer announces it.
const INLINE: u32 = 4096;
/// Maximum number of segments in a header, as the peer announces it.
const SEGMENTS: u32 = 64;

/// A connection of version 2.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: Link,
    pub(super) limits: Limits,
    null: Procedure,
    /// Number of credits that the server has granted and [`hello`](Self::hello) has not used. The messages of a case
    /// are not subtracted.
    pub(super) credits: u32,
    usual: &'static str,
    /// The server's RDMA2_CONNPROP.
    pub(super) properties: Option<Message>,
}

/// The messages of a case, in version 2.
pub(super) type Sent = exchange::Sent<VERSION>;

/// Encodes the value of a property that is a number.
pub(super) fn number(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// Returns the properties that the peer announces: both sizes, and the number of segments.
pub(super) fn own_properties() -> Vec<(u32, Vec<u8>)> {
    vec![
        (RDMA2_PROPID_SBSIZ, number(INLINE)),
        (RDMA2_PROPID_RBSIZ, number(INLINE)),
        (RDMA2_PROPID_RCSIZ, number(SEGMENTS)),
    ]
}

/// Returns the first message of a connection, with these properties and flags, and its XID.
pub(super) fn first_message(properties: &[(u32, Vec<u8>)], flags: u32) -> (u32, Vec<u8>) {
    let xid = rpc::next_xid();
    let prefix = Prefix { credit: FIRST_GRANT << 16 | FIRST_GRANT, ..Prefix::new(xid, RDMA2_CONNPROP, flags) };
    (xid, connprop(prefix, properties))
}

/// Returns `true` if the message only grants credits.
fn is_grant(bytes: &[u8]) -> bool {
    Prefix::decode(bytes).is_some_and(|prefix| prefix.htype == RDMA2_NOMSG && prefix.xid == 0)
}

impl Session {
    /// Connects, and sends nothing.
    pub(super) async fn connect(server: &ServerUnderTest) -> Steps<Self> {
        let link = transport::connect(server.target, Bytes::new(), server.connect_timeout()).await;
        let link = link.map_err(|error| Early::not_run(format!("cannot connect: {error}")))?;
        let null = (server.program.0, server.program.1, 0);
        Ok(Self { link, limits: server.limits, null, credits: 1, usual: "SUCCESS", properties: None })
    }

    /// Connects, exchanges properties, and makes a first NULL call, which must get a reply.
    pub(super) async fn open(server: &ServerUnderTest) -> Steps<Self> {
        let mut session = Self::negotiated(server).await?;
        session.hello().await.map_err(|came| Early::not_run(format!("a plain NULL call got {came}")))?;
        Ok(session)
    }

    /// Connects and exchanges properties.
    pub(super) async fn negotiated(server: &ServerUnderTest) -> Steps<Self> {
        let mut session = Self::connect(server).await?;
        let (_, first) = first_message(&own_properties(), 0);
        session.link.send(&first);
        session.receive_properties().await?;
        Ok(session)
    }

    /// Waits for the server's properties. A server of version 1 ends the case.
    pub(super) async fn receive_properties(&mut self) -> Steps<()> {
        let not_supported = |came: &str| Early(Finding::not_supported(format!("no version 2: {came}")));
        let arrived = match self.link.next(self.deadline()).await {
            Next::Message(arrived) => arrived,
            Next::Ended(reason) => return Err(not_supported(&format!("the connection ended: {reason}"))),
            Next::TimedOut => return Err(not_supported("nothing came")),
        };
        let words = rpc::to_words(&arrived.bytes);
        // ERR_VERS in the layout of version 1, in which a word of flags is missing.
        if let [_, _, _, 4, 1, low, high] = words[..] {
            return Err(not_supported(&format!("ERR_VERS with the range {low} to {high}")));
        }
        let message = Message::decode(&arrived.bytes).map_err(Early::not_run)?;
        match &message.body {
            Body::Error("ERR_VERS", [low, high]) => {
                Err(not_supported(&format!("ERR_VERS with the range {low} to {high}")))
            }
            Body::Properties(_) => {
                self.credits = message.prefix.credit & 0xffff;
                self.properties = Some(message);
                Ok(())
            }
            other => Err(Finding::wrong(format!("in place of properties {other:?}")).into()),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.patience
    }

    /// Makes a NULL call, and remembers the status of its reply.
    pub(super) async fn hello(&mut self) -> Result<Message, Came> {
        let (xid, call) = self.null();
        self.link.send(&call);
        self.credits = self.credits.saturating_sub(1);
        let deadline = self.deadline();
        loop {
            match self.link.next(deadline).await {
                Next::Message(arrived) if is_grant(&arrived.bytes) => self.count(&arrived.bytes),
                Next::Message(arrived) => {
                    self.count(&arrived.bytes);
                    let message = Message::decode(&arrived.bytes).map_err(Came::Other)?;
                    let Body::Msg(_, _, payload) = &message.body else {
                        return Err(Came::Other(format!("{:?}", message.body)));
                    };
                    self.usual = Reply::decode(payload).map_err(Came::Other)?.status;
                    let is_answer = message.prefix.xid == xid;
                    return if is_answer { Ok(message) } else { Err(Came::Other("another XID".into())) };
                }
                Next::Ended(reason) => return Err(Came::Ended(reason)),
                Next::TimedOut => return Err(Came::Hung),
            }
        }
    }

    /// Adds the credits that a message grants.
    fn count(&mut self, bytes: &[u8]) {
        let new = Prefix::decode(bytes).map_or(0, |prefix| prefix.credit & 0xffff);
        self.credits = self.credits.saturating_add(new);
    }

    pub(super) fn null_call(&self) -> (u32, Vec<u8>) {
        let xid = rpc::next_xid();
        (xid, rpc::call(xid, self.null, &Credential::None, &[]))
    }

    /// Returns a message with a NULL call, and its XID.
    pub(super) fn null(&self) -> (u32, Vec<u8>) {
        self.null_with(&Lists::default())
    }

    /// Returns a message with a NULL call and these chunks, and its XID.
    pub(super) fn null_with(&self, lists: &Lists) -> (u32, Vec<u8>) {
        let (xid, call) = self.null_call();
        (xid, message(Prefix::new(xid, RDMA2_MSG, 0), lists, 0, &call))
    }

    /// Sends messages, then a NULL call, and returns what came in response to the messages. `waits` is `true` if the
    /// case expects an answer. Otherwise, a short wait after the reply to the NULL call is enough.
    pub(super) async fn observe(&mut self, sent: &Sent, waits: bool) -> Came {
        self.exchange(sent, waits).await.0
    }

    /// Does the same as [`observe`](Self::observe), and also returns the message that came.
    pub(super) async fn exchange(&mut self, sent: &Sent, waits: bool) -> (Came, Option<Arrived>) {
        let has_credits = self.credits as usize > sent.messages.len();
        let exchange = Exchange { messages: &sent.messages, xid: sent.xid, probe: self.null(), has_credits, waits };
        match exchange.run(&mut self.link, self.limits, is_grant).await {
            Ok(arrived) => (self.classify(&arrived.bytes, sent).await, Some(arrived)),
            Err(came) => (came, None),
        }
    }

    async fn classify(&mut self, bytes: &Bytes, sent: &Sent) -> Came {
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(error) => return Came::Other(error),
        };
        let Prefix { xid, vers, flags, .. } = message.prefix;
        match &message.body {
            Body::Error(name, _) if vers != sent.vers => {
                Came::Other(format!("{name} with the version {vers} for one of {}", sent.vers))
            }
            Body::Error(name, _) if flags & RDMA2_F_RESPONSE == 0 => {
                Came::Other(format!("{name} without RDMA2_F_RESPONSE"))
            }
            Body::Error("ERR_VERS", [low, high]) if low > high || (*low..=*high).contains(&sent.vers) => {
                Came::Other(format!("ERR_VERS with the range {low} to {high}"))
            }
            Body::Error(name, _) => Came::Error(name),
            Body::Msg(_, _, payload) => self.status(payload, xid),
            Body::Nomsg(lists) => {
                let len: u32 = lists.reply.iter().flatten().map(|segment| segment.len).sum();
                let Some(first) = sent.lists.reply.as_ref().and_then(|chunk| chunk.first()) else {
                    return Came::Other("RDMA2_NOMSG without the Reply chunk of the call".into());
                };
                let deadline = self.deadline();
                let data = self.link.take(*first, deadline).await.unwrap_or_default();
                let reply = data.get(..len as usize).map(Bytes::copy_from_slice);
                reply.map_or_else(
                    || Came::Other("a Reply chunk that is too long".into()),
                    |reply| self.status(&reply, xid),
                )
            }
            Body::Properties(_) => Came::Other("RDMA2_CONNPROP".into()),
            Body::Unknown => Came::Other(format!("a message with the header type {}", message.prefix.htype)),
        }
    }

    fn status(&self, payload: &Bytes, xid: u32) -> Came {
        match Reply::decode(payload) {
            Ok(reply) if reply.xid != xid => Came::Other("a reply with another XID than its header".into()),
            Ok(reply) if reply.status == self.usual => Came::Reply("SUCCESS"),
            Ok(reply) => Came::Reply(reply.status),
            Err(error) => Came::Other(error),
        }
    }
}

//! The exchange of a call and its reply.

use std::{
    future::Future as _,
    mem,
    pin::Pin,
    sync::atomic::Ordering,
    task::{Context, Poll},
};

use super::Channel;
use crate::{
    client::{
        call::{self, OutboundCall},
        error::CallError,
        link::ChannelLink,
    },
    driver::{PendingCall, SlotPermit},
    engine::{CallFailure, IncomingReply},
    xdr::{DecodeError, Decoder, XdrEncode},
};

/// One attempt of a call without security, on one connection. Dropping it cancels the call.
///
/// It is not an `async fn`, because every call passes through it: the state that it keeps between its two polls is small.
pub(super) struct Exchange<'a, 'c, A, F> {
    channel: &'a Channel,
    link: &'a ChannelLink,
    call: &'a mut OutboundCall<'c, A, F>,
    state: ExchangeState<'a>,
}

enum ExchangeState<'a> {
    Reserved(SlotPermit<'a>),
    InFlight(PendingCall<'a>),
    Over,
}

impl<'a, 'c, A, F> Exchange<'a, 'c, A, F> {
    /// Creates the exchange of a call in the slot that `permit` reserves.
    pub(super) fn new(
        channel: &'a Channel,
        link: &'a ChannelLink,
        permit: SlotPermit<'a>,
        call: &'a mut OutboundCall<'c, A, F>,
    ) -> Self {
        Self { channel, link, call, state: ExchangeState::Reserved(permit) }
    }
}

impl<A: XdrEncode, F> Exchange<'_, '_, A, F> {
    /// Sends the call at the first poll, and then polls for its reply. The outer error is the failure of the connection. An inner
    /// error is final.
    #[inline(always)]
    pub(super) fn poll<R>(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<R, CallError>, CallFailure>>
    where
        F: Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
    {
        match mem::replace(&mut self.state, ExchangeState::Over) {
            ExchangeState::Reserved(permit) => {
                let outgoing = match call::encode(self.link, &self.channel.0.config, self.call, None) {
                    Ok(outgoing) => outgoing,
                    Err(error) => return Poll::Ready(Ok(Err(error))),
                };
                self.call.observed.sent(&outgoing, self.link.info.peer_addr);
                let pending = PendingCall::start(&self.link.port, permit, outgoing, cx)?;
                self.state = ExchangeState::InFlight(pending);
                Poll::Pending
            }
            ExchangeState::InFlight(mut pending) => match Pin::new(&mut pending).poll(cx) {
                Poll::Ready(reply) => Poll::Ready(reply.map(|reply| self.decode(&reply))),
                Poll::Pending => {
                    self.state = ExchangeState::InFlight(pending);
                    Poll::Pending
                }
            },
            ExchangeState::Over => Poll::Pending,
        }
    }

    #[inline]
    fn decode<R>(&self, reply: &IncomingReply) -> Result<R, CallError>
    where
        F: Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
    {
        self.call.observed.replied(reply);
        if self.link.negotiates.load(Ordering::Relaxed) {
            self.channel.note_version(self.link);
        }
        let limits = self.channel.0.config.connection.decode_limits;
        call::decode(self.call.target.name, reply, limits, self.call.read)
    }
}

//! The exchange of a call and its reply.

use std::{
    future::Future as _,
    mem,
    pin::Pin,
    sync::atomic::Ordering,
    task::{Context, Poll, ready},
};

use super::Channel;
use crate::{
    client::{
        call::{self, CallParameters, OutboundCall},
        error::CallError,
        link::ChannelLink,
        retry::ExchangeError,
    },
    driver::{PendingCall, SlotPermit},
    engine::IncomingReply,
    xdr::{DecodeError, Decoder, XdrEncode},
};

/// One attempt of a call without security, on one connection. Dropping it cancels the call.
///
/// Written by hand, because most calls pass through it: the state between its polls is smaller than that of an
/// `async fn`.
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
    /// Sends the call at the first poll, and then polls for its reply.
    #[inline(always)]
    pub(super) fn poll<R>(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, ExchangeError>>
    where
        F: Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
    {
        if let ExchangeState::InFlight(pending) = &mut self.state {
            return match ready!(Pin::new(pending).poll(cx)) {
                Ok(ref reply) => Poll::Ready(self.decode(reply).map_err(ExchangeError::Final)),
                Err(failure) => Poll::Ready(Err(ExchangeError::Failed(failure))),
            };
        }
        self.send(cx)?;
        Poll::Pending
    }

    fn send(&mut self, cx: &Context<'_>) -> Result<(), ExchangeError> {
        if let ExchangeState::Reserved(permit) = mem::replace(&mut self.state, ExchangeState::Over) {
            let config = &self.channel.0.config;
            let mut outgoing = call::unencoded(config, self.call);
            call::encode(&mut outgoing, self.link, config, self.call, None)?;
            self.call.observed.sent(&outgoing, self.link.info.peer_addr);
            self.state = ExchangeState::InFlight(PendingCall::start(&self.link.port, permit, outgoing, cx)?);
        }
        Ok(())
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
        let CallParameters { target, read, .. } = self.call.parameters;
        call::decode(target.name, reply, limits, read)
    }
}

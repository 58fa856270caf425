//! The hooks of the module `metrics` without the feature `metrics`. They do nothing.
#![allow(clippy::unused_self)]

use std::{marker::PhantomData, sync::Arc};

use crate::{
    driver::{DriverPort, ReplyCommand},
    engine::{EngineConfig, IncomingCall, IncomingReply, OutgoingCall},
    transport::Transport,
};

#[derive(Debug, Clone, Copy)]
pub(crate) enum ConnectionRole {
    Client,
    Server,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct CallMetrics {}

impl CallMetrics {
    #[inline]
    pub(crate) fn client(&self, _name: &'static str) -> ClientCall<'_> {
        ClientCall(PhantomData)
    }

    #[inline]
    pub(crate) fn server<'a>(
        &'a self,
        _service: &'a ServiceMetrics,
        _procedure: u32,
        _name: impl FnOnce() -> Option<&'static str>,
    ) -> ServerCall<'a> {
        ServerCall(PhantomData)
    }

    #[inline]
    pub(crate) fn refused(&self, _status: &'static str) {}
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceMetrics {}

#[derive(Debug)]
pub(crate) struct ClientCall<'a>(PhantomData<&'a CallMetrics>);

impl ClientCall<'_> {
    #[inline]
    pub(crate) fn sent(&self, _call: &OutgoingCall) {}

    #[inline]
    pub(crate) fn replied(&self, _reply: &IncomingReply) {}

    #[inline]
    pub(crate) fn retried(&self) {}

    #[inline]
    pub(crate) fn succeed(self) {}

    #[inline]
    pub(crate) fn fail(self, _error_type: &'static str, _has_reply: bool) {}
}

#[derive(Debug)]
pub(crate) struct ServerCall<'a>(PhantomData<&'a CallMetrics>);

impl ServerCall<'_> {
    #[inline]
    pub(crate) fn arrived(&self, _call: &IncomingCall) {}

    #[inline]
    pub(crate) fn detach(self) -> DetachedServerCall {
        DetachedServerCall
    }

    #[inline]
    pub(crate) fn finish(self, _reply: &ReplyCommand, _unprotected: usize) {}
}

#[derive(Debug)]
pub(crate) struct DetachedServerCall;

impl DetachedServerCall {
    #[inline]
    pub(crate) fn finish(self, _reply: &ReplyCommand, _unprotected: usize) {}
}

#[inline]
pub(crate) fn connection(
    _role: ConnectionRole,
    _transport: Transport,
    _port: &Arc<DriverPort>,
    _config: &EngineConfig,
) -> impl Send + 'static {
}

#[inline]
pub(crate) fn connection_failed(_role: ConnectionRole) {}

#[inline]
pub(crate) fn reconnected() {}

#[inline]
pub(crate) fn retried(_method: &'static str) {}

//! Replacement of the module `metrics` in builds without the feature `metrics`. The functions do nothing.
#![allow(clippy::unused_self)]

use std::{marker::PhantomData, sync::Arc};

use crate::{
    driver::{DriverPort, EncodedReply},
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
    pub(crate) fn client(&self, _name: &'static str) -> ClientCall {
        ClientCall
    }

    #[inline]
    pub(crate) fn server(
        &self,
        _service: &ServiceMetrics,
        _procedure: u32,
        _call: &IncomingCall,
        _name: impl FnOnce() -> Option<&'static str>,
    ) -> ServerCall {
        ServerCall
    }

    #[inline]
    pub(crate) fn refused(&self, _status: &'static str) {}
}

#[derive(Debug, Clone)]
pub(crate) struct ServiceMetrics;

impl ServiceMetrics {
    #[inline]
    pub(crate) fn new(_name: impl Fn(u32) -> Option<&'static str>) -> Self {
        Self
    }
}

#[derive(Debug)]
pub(crate) struct ClientCall;

impl ClientCall {
    #[inline]
    pub(crate) fn guard(&self) -> CancelGuard<'_> {
        CancelGuard(PhantomData)
    }

    #[inline]
    pub(crate) fn sent(&self, _call: &OutgoingCall) {}

    #[inline]
    pub(crate) fn replied(&self, _reply: &IncomingReply) {}

    #[inline]
    pub(crate) fn attempt_failed(&self) {}

    #[inline]
    pub(crate) fn retried(&self) {}

    #[inline]
    pub(crate) fn succeed(&self, _metrics: &CallMetrics) {}

    #[inline]
    pub(crate) fn fail(&self, _error_type: &'static str, _has_reply: bool) {}
}

#[derive(Debug)]
pub(crate) struct CancelGuard<'a>(PhantomData<&'a ClientCall>);

impl CancelGuard<'_> {
    #[inline]
    pub(crate) fn disarm(self) {}
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerCall;

impl ServerCall {
    #[inline]
    pub(crate) fn wait(self) -> WaitingServerCall {
        WaitingServerCall
    }

    #[inline]
    pub(crate) fn finish(&self, _metrics: &CallMetrics, _reply: &EncodedReply) {}
}

#[derive(Debug)]
pub(crate) struct WaitingServerCall;

impl WaitingServerCall {
    #[inline]
    pub(crate) fn finish(self, _reply: &EncodedReply) {}
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
pub(crate) fn path_failed(_scheme: &'static str) {}

#[inline]
pub(crate) fn retried(_method: &'static str) {}

//! Context creation at a client, without I/O and clock (RFC 2203 §5.2).

use std::sync::Arc;

use bytes::Bytes;

use super::{
    credential::{GssCredential, flavor},
    mechanism::{GssContext, SetupStep, major},
    wire::{RpcGssInitArg, RpcGssInitRes, RpcGssProcT},
};
use crate::{
    rpc::{AuthStat, OpaqueAuth, RpcError},
    security::{ControlCall, ControlReply, SecurityError},
    xdr::{DecodeError, Decoder, EncodeError, encode_to_bytes},
};

/// Maximum number of rounds in the creation of a context. Mechanisms need up to three.
const MAX_ROUNDS: u32 = 8;

/// Maximum length of the results of a creation request, in bytes. Most of it is for the server's token.
const MAX_RESULTS: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct ContextCreation {
    program: u32,
    version: u32,
    rounds: u32,
    /// The handle that the server has assigned. Empty before its first reply.
    handle: Bytes,
    /// The context. `None` until the mechanism has completed it.
    context: Option<Arc<dyn GssContext>>,
    /// The window of sequence numbers, and the verifier. `None` until the server has completed the context.
    completed: Option<(u32, OpaqueAuth)>,
    /// The major and the minor status with which the server has refused the context.
    refusal: Option<(u32, u32)>,
}

/// A context that both sides have completed.
#[derive(Debug)]
pub(super) struct CreatedContext {
    pub(super) context: Arc<dyn GssContext>,
    pub(super) handle: Bytes,
    /// Maximum number of calls that may be outstanding.
    pub(super) window: u32,
}

/// The next action in the creation of a context.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Make this call, and pass its reply to [`ContextCreation::received`].
    Call(ControlCall),
    /// Pass this token to the mechanism, and the result to [`ContextCreation::stepped`].
    Token(Bytes),
    Done(CreatedContext),
}

impl ContextCreation {
    /// Starts the creation of a context for calls of a program. The first action is a step of the mechanism without a
    /// token.
    // RFC 2203 §5.2.2: program and version are those of the service that is accessed.
    pub(super) fn new(program: u32, version: u32) -> Self {
        Self { program, version, rounds: 0, handle: Bytes::new(), context: None, completed: None, refusal: None }
    }

    /// Handles the result of a step of the mechanism, and returns the next action. Fails if the context cannot be
    /// created.
    pub(super) fn stepped(&mut self, step: SetupStep) -> Result<NextStep, SecurityError> {
        self.context = step.context.or_else(|| self.context.take());
        if let Some(token) = step.token.filter(|token| !token.is_empty()) {
            if self.completed.is_some() {
                return Err(failed("the mechanism has another token, but the server has completed the context"));
            }
            return self.request(token.into());
        }
        match &self.context {
            // RFC 2203 §5.2.2: if there is no token, the context must have been created.
            None => Err(failed("the mechanism has neither a token nor a context")),
            Some(context) => self.finish(Arc::clone(context)).map(NextStep::Done),
        }
    }

    /// Returns the request that carries a token (RFC 2203 §5.2.2).
    fn request(&mut self, token: Bytes) -> Result<NextStep, SecurityError> {
        if self.rounds == MAX_ROUNDS {
            return Err(failed("the mechanism needs too many rounds"));
        }
        self.rounds += 1;
        let is_first = self.handle.is_empty();
        let procedure = if is_first { RpcGssProcT::RpcsecGssInit } else { RpcGssProcT::RpcsecGssContinueInit };
        // The server ignores sequence number and service.
        let credential = GssCredential { procedure, sequence: 0, service: 1, handle: self.handle.clone() };
        let encode = |error: EncodeError| failed(&error.to_string());
        Ok(NextStep::Call(ControlCall {
            program: self.program,
            version: self.version,
            credential: credential.encode().map_err(encode)?,
            // RFC 2203 §5.2.2: all creation requests have the NULL verifier.
            seal: None,
            arguments: encode_to_bytes(&RpcGssInitArg { gss_token: token }).map_err(encode)?,
            max_results: MAX_RESULTS,
        }))
    }

    /// Returns the major and the minor status if the server has refused the context.
    pub(super) fn refusal(&self) -> Option<(u32, u32)> {
        self.refusal
    }

    /// Handles the reply to a request (RFC 2203 §5.2.3), and returns the next action. Fails if the server refuses the
    /// context, or violates the protocol.
    pub(super) fn received(&mut self, reply: ControlReply) -> Result<NextStep, SecurityError> {
        reply.outcome.map_err(refused)?;
        let decode = |error: DecodeError| failed(&format!("the server's reply is malformed: {error}"));
        let mut decoder = Decoder::shared(&reply.results);
        let RpcGssInitRes { handle, gss_major, gss_minor, seq_window, gss_token } = decoder.read().map_err(decode)?;
        decoder.finish().map_err(decode)?;
        let is_complete = match gss_major {
            major::COMPLETE => true,
            major::CONTINUE_NEEDED => false,
            // RFC 2203 §5.2.3.1: any other value is a failure.
            _ => {
                self.refusal = Some((gss_major, gss_minor));
                let status = format!("GSS-API major status {gss_major:#010x}, minor status {gss_minor}");
                return Err(failed(&format!("the server refused it ({}, {status})", describe(gss_major))));
            }
        };
        // RFC 2203 §5.2.2, §5.2.3.1: the handle is not NULL, and does not change.
        if handle.is_empty() || (!self.handle.is_empty() && handle != self.handle) {
            return Err(failed("the server returned a wrong context handle"));
        }
        self.handle = handle;
        if is_complete {
            self.completed = Some((seq_window, reply.verifier));
        }
        // RFC 2203 §5.2.3.1.1: the mechanism gets the server's token, unless it has completed the context.
        match (&self.context, gss_token.is_empty()) {
            (None, false) => Ok(NextStep::Token(gss_token)),
            (None, true) => Err(failed("the server sent no token, but the mechanism needs one")),
            (Some(context), true) => self.finish(Arc::clone(context)).map(NextStep::Done),
            (Some(_), false) => Err(failed("the server sent a token, but the mechanism has completed the context")),
        }
    }

    fn finish(&self, context: Arc<dyn GssContext>) -> Result<CreatedContext, SecurityError> {
        let Some((window, verifier)) = &self.completed else {
            return Err(failed("the mechanism has completed the context, but the server expects another token"));
        };
        if *window == 0 {
            return Err(failed("the server allows no call to be outstanding"));
        }
        // RFC 2203 §5.2.3.1: the verifier is the checksum of the window. It proves that the window is the server's.
        if verifier.flavor != flavor() {
            return Err(failed("the server's reply has no RPCSEC_GSS verifier"));
        }
        let checked = context.verify_mic(&window.to_be_bytes(), &verifier.body);
        checked.map_err(|error| failed(&format!("the verifier of the server's reply is wrong: {error}")))?;
        Ok(CreatedContext { context, handle: self.handle.clone(), window: *window })
    }
}

/// Returns the error for a reply that is not a success (RFC 2203 §5.2.3.2).
fn refused(error: RpcError) -> SecurityError {
    match error {
        RpcError::Authentication(failure)
            if matches!(
                failure.stat(),
                Some(AuthStat::AuthRejectedcred | AuthStat::AuthBadcred | AuthStat::AuthTooweak)
            ) =>
        {
            failed(&format!("the server does not accept RPCSEC_GSS version 1: {failure}"))
        }
        error => failed(&error.to_string()),
    }
}

fn describe(status: u32) -> &'static str {
    match status & major::ROUTINE_ERROR {
        major::BAD_MECH => "mechanism not supported",
        major::BAD_BINDINGS => "different channel bindings",
        major::BAD_MIC => "wrong checksum",
        major::NO_CRED => "the server has no credentials for the service",
        major::NO_CONTEXT => "the server has dropped the context",
        major::DEFECTIVE_TOKEN => "defective token",
        major::CREDENTIALS_EXPIRED => "expired credentials",
        major::CONTEXT_EXPIRED => "expired context",
        _ => "failure",
    }
}

/// Returns the error for a failed creation of a context.
pub(super) fn failed(why: &str) -> SecurityError {
    SecurityError(format!("cannot create a security context: {why}"))
}

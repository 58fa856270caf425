//! RPCSEC_GSS for the calls of a hostile peer. The peer establishes a valid context as an honest client does, and uses
//! it for the credentials, verifiers and protected arguments of its calls.

use std::sync::Arc;

use rpcrdma::gss::{ClientMechanism as _, ContextSetup, GssContext};

use crate::{
    header::{Words, put, put_opaque},
    insecure_test_mechanism::InsecureTestMechanism,
};

/// The key that clients and servers share.
pub(crate) const KEY: u64 = 0x7e57_0000_5ec2_e7aa;
/// The authentication flavor RPCSEC_GSS.
pub(crate) const FLAVOR: u32 = 6;
/// The control procedure RPCSEC_GSS_DATA (RFC 2203 section 5).
pub(crate) const DATA: u32 = 0;
/// The control procedure RPCSEC_GSS_INIT (RFC 2203 section 5).
pub(crate) const INIT: u32 = 1;

/// The RPCSEC_GSS state of a hostile peer.
#[derive(Default)]
pub(crate) struct GssPeer {
    /// The context that is being established, and the XID of the RPCSEC_GSS_INIT call.
    setup: Option<(u32, Box<dyn ContextSetup>)>,
    handle: Vec<u8>,
    context: Option<Arc<dyn GssContext>>,
    sequence: u32,
}

impl GssPeer {
    /// Begins to establish a context. Returns the arguments of the RPCSEC_GSS_INIT call with this XID.
    pub(crate) fn begin(&mut self, xid: u32) -> Vec<u8> {
        let mut arguments = Vec::new();
        let setup = InsecureTestMechanism::new(KEY, "hostile").begin();
        if let Ok(mut setup) = setup
            && let Ok(step) = setup.step(None)
        {
            put_opaque(&mut arguments, &step.token.unwrap_or_default());
            self.setup = Some((xid, setup));
        }
        arguments
    }

    pub(crate) fn has_context(&self) -> bool {
        self.context.is_some()
    }

    /// Handles a message of the product. The reply to the call of [`begin`](Self::begin) completes the context.
    pub(crate) fn received(&mut self, xid: u32, reply: &[u8]) {
        if self.setup.as_ref().is_some_and(|(expected, _)| *expected == xid)
            && let Some((_, setup)) = self.setup.take()
        {
            // A server that refuses leaves the peer without a context.
            let _ = self.complete(setup, reply);
        }
    }

    fn complete(&mut self, mut setup: Box<dyn ContextSetup>, reply: &[u8]) -> Option<()> {
        let mut words = Words(reply.get(12..)?);
        let (_flavor, _verifier, status) = (words.word()?, words.opaque()?, words.word()?);
        if status != 0 {
            return None;
        }
        let (handle, _major, _minor, _window) = (words.opaque()?, words.word()?, words.word()?, words.word()?);
        let step = setup.step(Some(words.opaque()?)).ok()?;
        self.context = step.context;
        self.handle = handle.to_vec();
        self.sequence = 0;
        Some(())
    }

    /// Appends a credential, and returns its sequence number. If `is_replay` is `true`, the latest sequence number is
    /// used again.
    pub(crate) fn credential(&mut self, out: &mut Vec<u8>, procedure: u32, service: u32, is_replay: bool) -> u32 {
        self.sequence = self.sequence.wrapping_add(u32::from(!is_replay));
        let handle = if procedure == INIT { &[] } else { &self.handle[..] };
        let mut body = Vec::new();
        put(&mut body, &[1, procedure, self.sequence, service]);
        put_opaque(&mut body, handle);
        put(out, &[FLAVOR]);
        put_opaque(out, &body);
        self.sequence
    }

    /// Appends a verifier with the checksum of the header in `out`. Without a context, appends an AUTH_NONE verifier.
    pub(crate) fn verifier(&self, out: &mut Vec<u8>) {
        let mic = self.context.as_ref().and_then(|context| context.get_mic(out).ok());
        match mic {
            Some(mic) => {
                put(out, &[FLAVOR]);
                put_opaque(out, &mic);
            }
            None => put(out, &[0, 0]),
        }
    }

    /// Returns the arguments with the protection of `service`: 2 for integrity, 3 for privacy. For other services, and
    /// without a context, returns them unchanged.
    pub(crate) fn protect(&self, sequence: u32, service: u32, arguments: Vec<u8>) -> Vec<u8> {
        let Some(context) = &self.context else { return arguments };
        let body = [&sequence.to_be_bytes()[..], &arguments].concat();
        let mut out = Vec::new();
        match service {
            2 => {
                put_opaque(&mut out, &body);
                put_opaque(&mut out, &context.get_mic(&body).unwrap_or_default());
            }
            3 => put_opaque(&mut out, &context.wrap(&body).unwrap_or_default()),
            _ => return arguments,
        }
        out
    }
}

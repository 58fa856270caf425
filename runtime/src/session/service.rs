//! The trait that services implement.

use std::{future::Future, pin::Pin, sync::Arc};

use super::call::InboundCall;
use crate::{driver::EncodedReply, service::ProcedureInfo};

/// The future that [`Service::dispatch`] returns. Its output is the encoded reply.
pub type ReplyFuture = Pin<Box<dyn Future<Output = EncodedReply> + Send>>;

/// One version of one program. Generated code implements this trait.
pub trait Service: Send + Sync + 'static {
    /// Returns the program number.
    fn program(&self) -> u32;

    /// Returns the program version.
    fn version(&self) -> u32;

    /// Returns the XDR name of the program version, for messages and traces.
    fn name(&self) -> &'static str;

    /// Returns the maximum number of chunks of eligible items that one call needs in either direction. A server accepts
    /// calls with that many chunks, even if
    /// [`ConnectionConfig::max_chunks`](crate::config::ConnectionConfig::max_chunks) is less. Default 0.
    fn max_chunks(&self) -> u32 {
        0
    }

    /// Returns the name and the properties of a procedure, or `None` if the program version has no such procedure.
    /// Spans and metrics contain the name. Default: `None`.
    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        let _ = number;
        None
    }

    /// Returns a copy of the service for the calls of one connection. Generated services count the references of their
    /// calls in it, so that connections on different cores do not share a counter. Default: `None`, all connections
    /// share the service.
    fn for_connection(&self) -> Option<Arc<dyn Service>> {
        None
    }

    /// Executes one call and returns its reply.
    fn dispatch(&self, call: InboundCall) -> ReplyFuture;
}

//! Cases for clients: the peer plays the server.

mod nfs;
mod running;
mod v1;
mod v2;

pub(crate) use self::running::RunningClient;
use std::{fmt, future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use crate::{
    case::{Case, Limits},
    transport::Target,
};

/// A function that runs a client, which connects to the given address. Its future returns `true` if the client
/// succeeded.
pub type Start = Arc<dyn Fn(SocketAddr) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// A client under test: where it connects, how it is started, and the time limits of its cases.
#[derive(Clone)]
pub struct ClientUnderTest {
    /// The address at which the peer waits for the client. Each case listens anew.
    pub listen: Target,
    /// The function that runs the client for a case. `None` if clients are started by other means: each case then waits
    /// for the next one.
    pub start: Option<Start>,
    /// Time limits of the cases.
    pub limits: Limits,
}

impl fmt::Debug for ClientUnderTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientUnderTest").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Returns all cases for clients of RPC-over-RDMA.
pub(crate) fn cases() -> Vec<Case<ClientUnderTest>> {
    [v1::cases(), v2::cases()].into_iter().flatten().collect()
}

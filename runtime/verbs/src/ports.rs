//! Attempts with several local ports.

use std::io;

/// Maximum number of local ports that a connector or a listener tries.
const MAX_PORTS: usize = 8;

/// The remaining attempts of a connector or a listener to use a local port.
///
/// RDMA connections and TCP connections have separate ports, and the connection manager chooses a free RDMA port. `siw`
/// then takes the TCP port of the same number, which may be in use.
#[derive(Debug)]
pub(super) struct PortAttempts {
    left: usize,
}

impl PortAttempts {
    /// Creates a counter for ports that the system chooses. It permits [`MAX_PORTS`] attempts, including the first.
    pub(super) fn new() -> Self {
        Self { left: MAX_PORTS - 1 }
    }

    /// Creates a counter that permits only the first attempt, because the caller has chosen the port.
    pub(super) fn only_one() -> Self {
        Self { left: 0 }
    }

    /// Returns `true` if the caller should try another port: the port was in use, and an attempt is left.
    pub(super) fn permit_another(&mut self, error: io::ErrorKind) -> bool {
        let permitted = error == io::ErrorKind::AddrInUse && self.left > 0;
        if permitted {
            self.left -= 1;
            tracing::debug!(target: "rpcrdma", "local port is in use, trying another");
        }
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_in_use_are_replaced() {
        let permitted = |mut attempts: PortAttempts, error| {
            std::iter::repeat_with(|| attempts.permit_another(error)).take_while(|permitted| *permitted).count()
        };
        assert_eq!(permitted(PortAttempts::new(), io::ErrorKind::AddrInUse), MAX_PORTS - 1);
        // The caller's port, and other errors, are final.
        assert_eq!(permitted(PortAttempts::only_one(), io::ErrorKind::AddrInUse), 0);
        assert_eq!(permitted(PortAttempts::new(), io::ErrorKind::PermissionDenied), 0);
    }
}

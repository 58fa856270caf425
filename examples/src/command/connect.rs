//! Explanation of connection failures for the user.

use std::io::ErrorKind;

use rpcrdma::{client::ConnectError, provider::SetupError};

use super::chain;

/// Returns a message about a failure to connect. It explains common failures to the user. For all others, it is the
/// chain of errors.
#[must_use]
pub fn explain_connect_error(error: &ConnectError) -> String {
    match error {
        ConnectError::Setup { peer, source: SetupError::Io(source) } => match source.kind() {
            ErrorKind::ConnectionRefused => format!("no server is listening on {peer}"),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                format!(
                    "{peer} closed the connection during setup ({source}); check that the port matches the URL's transport"
                )
            }
            _ => chain(error),
        },
        ConnectError::Setup { peer, source: SetupError::NotOurProtocol { expected, detail } } => {
            format!("the service on {peer} does not speak {expected}: {detail}")
        }
        _ => chain(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn common_connection_failures_are_explained() {
        let setup = |source| ConnectError::Setup { peer: "192.0.2.1:5".parse().unwrap(), source };
        let io = |kind: ErrorKind| explain_connect_error(&setup(SetupError::Io(kind.into())));
        assert_eq!(io(ErrorKind::ConnectionRefused), "no server is listening on 192.0.2.1:5");
        assert!(io(ErrorKind::ConnectionReset).contains("port matches the URL's transport"));
        assert!(io(ErrorKind::NetworkUnreachable).contains("cannot connect to 192.0.2.1:5: "));
    }
}

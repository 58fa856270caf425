//! Why there is no connection.

use std::io::ErrorKind;

use rpcrdma::{client::ConnectError, provider::SetupError};

use super::chain;

/// Why there is no connection, in words for who typed the URL.
#[must_use]
pub fn no_connection(error: &ConnectError) -> String {
    match error {
        ConnectError::Setup { peer, source: SetupError::Io(source) } => match source.kind() {
            ErrorKind::ConnectionRefused => format!("nothing listens on {peer}"),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                format!("{peer} closes the connection during set-up: is it another transport's port? ({source})")
            }
            _ => chain(error),
        },
        ConnectError::Setup { peer, source: SetupError::NotOurProtocol { expected, detail } } => {
            format!("something else answers on {peer}: it does not speak {expected}: {detail}")
        }
        _ => chain(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_commonest_mistakes_have_words() {
        let setup = |source| ConnectError::Setup { peer: "192.0.2.1:5".parse().unwrap(), source };
        let io = |kind: ErrorKind| no_connection(&setup(SetupError::Io(kind.into())));
        assert_eq!(io(ErrorKind::ConnectionRefused), "nothing listens on 192.0.2.1:5");
        assert!(io(ErrorKind::ConnectionReset).contains("another transport's port"));
        assert!(io(ErrorKind::NetworkUnreachable).contains("cannot connect to 192.0.2.1:5: "));
    }
}

//! The cases of all protocols, by the role of the implementation under test.

use crate::{
    case::Case,
    client::{self, ClientUnderTest},
    iwarp,
    server::{self, ServerUnderTest},
};

/// Returns the cases for servers, and for listeners of iWARP.
#[must_use]
pub fn of_servers() -> Vec<Case<ServerUnderTest>> {
    [server::cases(), iwarp::listener_cases()].into_iter().flatten().collect()
}

/// Returns the cases for clients, and for connectors of iWARP.
#[must_use]
pub fn of_clients() -> Vec<Case<ClientUnderTest>> {
    [client::cases(), iwarp::connector_cases()].into_iter().flatten().collect()
}

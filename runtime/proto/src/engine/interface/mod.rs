//! The interface of an engine: the trait, and the public types of its inputs, outputs and settings.
//!
//! | file | content |
//! | --- | --- |
//! | `engine` | the [`Engine`](engine::Engine) trait, and the limits of the peer |
//! | `types` | calls and replies as the upper layer passes and receives them; message formats |
//! | `incoming` | calls of the peer as the upper layer receives them; the resources and the format of their replies |
//! | `event` | events |
//! | `config` | configuration |
//! | `counters` | counters of a connection |
//! | `versions` | the versions to offer or accept |
//! | `properties` | properties of version 2 |
//! | `private_data` | private data that peers exchange at set-up (RFC 8797) |
//! | `host_auth` | authentication of the hosts |
//! | `extension` | extensions of version 2 |
//! | `failure` | failures of calls and of connections |
//! | `transport_error` | errors that a responder reports in place of a reply |
//! | `failed_calls` | calls that ended earlier connections of a peer |
//! | `stream_error` | errors of record marking |
//! | `close_cause` | causes of closed connections, for statistics |
//! | `chunk_items`, `reused` | lists of items that travel in chunks, in memory that later messages reuse |

pub(super) mod chunk_items;
pub(super) mod close_cause;
pub(super) mod config;
pub(super) mod counters;
pub(super) mod engine;
pub(super) mod event;
pub(super) mod extension;
pub(super) mod failed_calls;
pub(super) mod failure;
pub(super) mod host_auth;
pub(super) mod incoming;
pub(super) mod private_data;
pub(super) mod properties;
pub(super) mod reused;
pub(super) mod stream_error;
pub(super) mod transport_error;
pub(super) mod types;
pub(super) mod versions;

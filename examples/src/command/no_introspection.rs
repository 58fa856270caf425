//! The replacement of the module `introspection` if the feature `introspection` is off.

use rpcrdma::server::ServerBuilder;

/// Options for introspection: none without the feature `introspection`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct IntrospectionArgs {}

impl IntrospectionArgs {
    /// Returns `builder` unchanged.
    pub fn apply(self, builder: ServerBuilder) -> ServerBuilder {
        builder
    }
}

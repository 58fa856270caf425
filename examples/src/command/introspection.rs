//! The option `--introspection`.

use rpcrdma::server::{Context, ServerBuilder};

/// The callers that may inspect the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Inspectors {
    /// Callers that connect from a loopback address of this host.
    Local,
    /// All callers that the server accepts.
    All,
}

/// The option `--introspection` of a server.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct IntrospectionArgs {
    /// Let rpctop and `rpcping --list` look into the server: from this host (local), or from everywhere (all). Reveals
    /// the addresses of clients
    #[arg(long, value_name = "WHO")]
    introspection: Option<Inspectors>,
}

impl IntrospectionArgs {
    /// Adds the program INTROSPECTION to a server if the option is set.
    pub fn apply(self, builder: ServerBuilder) -> ServerBuilder {
        match self.introspection {
            None => builder,
            Some(Inspectors::Local) => builder.introspection(is_local),
            Some(Inspectors::All) => builder.introspection(|_| true),
        }
    }
}

fn is_local(cx: &Context) -> bool {
    cx.peer_addr().ip().to_canonical().is_loopback()
}

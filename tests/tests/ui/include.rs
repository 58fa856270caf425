//! Files that are not there, or wrong.

mod missing {
    rpcrdma::include_xdr!("no/such/file.x");
}

mod twice {
    rpcrdma::include_xdr!("file.x", client = true, client = false);
}

mod wrong {
    // `ui.rs` puts it beside the manifest that this is built with.
    rpcrdma::include_xdr!("wrong.x");
}

fn main() {}

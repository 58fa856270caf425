//! Files that do not exist or do not compile, and an option that is given twice.

mod missing {
    rpcrdma::include_xdr!("no/such/file.x");
}

mod twice {
    rpcrdma::include_xdr!("file.x", client = true, client = false);
}

mod wrong {
    // `ui.rs` creates the file next to the manifest of this build.
    rpcrdma::include_xdr!("wrong.x");
}

fn main() {}

//! The protocol from a file.

rpcrdma::include_xdr!("../xdrgen/tests/constructs/blobstore.x");

//! The blobstore protocol, included from an XDR file.

rpcrdma::include_xdr!("../xdrgen/tests/constructs/blobstore.x");

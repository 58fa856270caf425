//! By a file.

rpcrdma::include_xdr!("../xdrgen/tests/golden/blobstore.x");

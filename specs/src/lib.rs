//! rpcrdma: specs.

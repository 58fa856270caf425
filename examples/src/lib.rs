//! rpcrdma: examples.

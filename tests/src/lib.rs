//! rpcrdma: tests.

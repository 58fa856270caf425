//! A server for tests of `rpcping`, and a function that runs the command.

use std::process::{Command, Output, Stdio};

use rpcrdma::server::{ServerBuilder, ServerHandle};

use super::time_limit;

/// Starts a server on iWARP and TCP. Returns its URLs, in this order, and its handle.
pub(crate) fn serve_both(builder: ServerBuilder) -> ([String; 2], ServerHandle) {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let server = builder.listen("iwarp://127.0.0.1:0").listen("tcp://127.0.0.1:0").bind().await.unwrap();
            tell.send((server.urls().to_vec(), server.handle())).unwrap();
            server.serve().await;
        });
    });
    let (urls, handle) = told.recv().unwrap();
    (urls.try_into().unwrap(), handle)
}

/// Runs `rpcping` without input.
pub(crate) fn rpcping(args: &[&str]) -> Output {
    time_limit::output(Command::new(env!("CARGO_BIN_EXE_rpcping")).args(args).stdin(Stdio::null()))
}

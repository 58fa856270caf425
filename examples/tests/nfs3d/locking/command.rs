//! Tests of `nfs3d --locks`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::IpAddr,
    process::{Child, ChildStdout, Command, Stdio},
};

use rpcrdma::client::Channel;
use rpcrdma_specs::nlm4::{Nlm4Lockargs, Nlm4Stats, nlm4_vers::Nlm4VersClient};

use super::{Client, Locked};
use crate::{support::own_uid, time_limit::TimeLimit};

/// A running server, killed when dropped.
struct Running(Child, BufReader<ChildStdout>, #[allow(dead_code, reason = "ends with the server")] TimeLimit);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &std::path::Path, locks: &str) -> Running {
    let (root, state) = (folder.join("root"), folder.join("state"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfs3d"));
    command.arg("--root").arg(root).arg("--state").arg(state).arg("--no-root-squash");
    command.args(["--listen", "tcp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0", "--locks", locks]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    Running(child, out, TimeLimit::start())
}

impl Running {
    /// Returns the URL on the next line that begins with `prefix`.
    fn url(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.1.read_line(&mut line).unwrap(), 0, "no {prefix}");
            if let Some(url) = line.strip_prefix(prefix) {
                return url.trim_end().to_owned();
            }
        }
    }
}

async fn connect(url: &str) -> Nlm4VersClient {
    let credential = rpcrdma::rpc::Credential::sys("test", own_uid(), crate::support::own_gid(), []);
    let builder = Channel::builder().credential(credential.to_opaque().unwrap()).call_timeout(super::LONG);
    Nlm4VersClient::new(builder.connect(url).await.unwrap())
}

#[tokio::test]
async fn nfs3d_serves_locks_and_remembers_who_had_them() {
    // A server in this process makes the handle, with the key that nfs3d uses.
    let server = Locked::new().await;
    let file = server.file("file").await;
    let a = Client::at(&server, "alpha", IpAddr::from([127, 0, 0, 1]), false).await;
    let args = a.args(&file, 1, (0, 0), true);
    let folder = std::sync::Arc::clone(&server.served.folder);

    let mut running = start(folder.path(), "tcp://127.0.0.1:0");
    let url = running.url("NLM and NSM on ");
    assert!(running.url("NSM on ").starts_with("udp://127.0.0.1:"));
    let reply = connect(&url).await.nlmproc4_lock(&args).await.unwrap();
    assert_eq!(reply.stat.stat, Nlm4Stats::Granted);
    drop(running);

    // After a kill, only reclaims are granted.
    let mut running = start(folder.path(), "tcp://127.0.0.1:0");
    let nlm = connect(&running.url("NLM and NSM on ")).await;
    assert_eq!(nlm.nlmproc4_lock(&args).await.unwrap().stat.stat, Nlm4Stats::DeniedGracePeriod);
    let args = Nlm4Lockargs { reclaim: true, ..args };
    assert_eq!(nlm.nlmproc4_lock(&args).await.unwrap().stat.stat, Nlm4Stats::Granted);
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut rest = String::new();
    running.1.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("locks: 1 still held on 1 files"), "{rest}");
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn errors_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    let complaint = |locks: &str| {
        let mut running = start(folder.path(), locks);
        // A server that starts all the same prints its URLs, and would not exit.
        let mut line = String::new();
        running.1.read_line(&mut line).unwrap();
        assert_eq!(line, "", "{locks}");
        let mut said = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(running.0.wait().unwrap().code(), Some(1), "{said}");
        said
    };
    let said = complaint("iwarp://127.0.0.1:0");
    assert!(said.contains("--locks") && said.contains("tcp://ADDRESS:PORT"), "{said}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let said = complaint(&format!("tcp://{}", listener.local_addr().unwrap()));
    assert!(said.contains("in use"), "{said}");
}

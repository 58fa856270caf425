//! Tests of the `nfs3d` command: its output, error messages and shutdown.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rpcrdma::{client::Channel, rpc::Credential};
use rpcrdma_specs::{
    mount3::{Dirpath, Mountres3, mount_v3::MountV3Client},
    nfs3::{nfs_v3::*, *},
};

use crate::{
    support::{own_gid, own_uid},
    time_limit::TimeLimit,
};

fn nfs3d(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfs3d"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running `nfs3d`, killed when dropped.
struct Running(Child, #[allow(dead_code, reason = "ends with the server")] TimeLimit);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn channel(url: &str) -> Channel {
    let credential = Credential::sys("test", own_uid(), own_gid(), []).to_opaque().unwrap();
    Channel::builder().credential(credential).call_timeout(Duration::from_secs(60)).connect(url).await.unwrap()
}

#[tokio::test]
async fn nfs3d_prints_its_urls_serves_and_shuts_down() {
    for threads in [&[][..], &["--threads", "1"], &["--threads", "2", "--runtime-per-thread"]] {
        serves(threads).await;
    }
}

async fn serves(threads: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let state = folder.path().join("state");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), "content").unwrap();
    let (root, state) = (root.canonicalize().unwrap(), state.to_str().unwrap());
    let root = root.to_str().unwrap();
    let args = ["--root", root, "--state", state, "--no-root-squash", "--mount", "tcp://127.0.0.1:0"];
    let listen = ["--listen", "iwarp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0"];
    let mut running =
        Running(nfs3d(&[args.as_slice(), &listen, threads].concat()).spawn().unwrap(), TimeLimit::start());
    let mut out = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!(line(), format!("exporting {root} as {root}"));
    let [iwarp, tcp] = [line(), line()].map(|line| line.strip_prefix("NFS on ").unwrap().to_owned());
    let mount = line().strip_prefix("MOUNT on ").unwrap().to_owned();
    // RFC 8267 §5.1
    assert!(mount.starts_with("tcp://"), "{mount}");

    let mount = MountV3Client::new(channel(&mount).await);
    let Mountres3::Ok(ok) = mount.mountproc3_mnt(&Dirpath(root.into())).await.unwrap() else { panic!() };
    let dir = NfsFh3 { data: ok.fhandle.0 };
    for url in [&iwarp, &tcp] {
        let nfs = NfsV3Client::new(channel(url).await);
        let what = Diropargs3 { dir: dir.clone(), name: Filename3("file".into()) };
        let found = nfs.nfsproc3_lookup(&Lookup3args { what }).await.unwrap();
        let Lookup3res::Ok(ok) = found else { panic!("{url}: {found:?}") };
        let read = nfs.nfsproc3_read(&Read3args { file: ok.object, offset: 0, count: 65_536 }).await.unwrap();
        let Read3res::Ok(ok) = read else { panic!("{url}: {read:?}") };
        assert_eq!(ok.data, "content");
    }

    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(running.0.wait().unwrap().success());
    assert!(rest.contains("served: 14 bytes read, 0 bytes written; LOOKUP 2 READ 2"), "{rest}");
    assert!(rest.contains("memory: 0 buffers still held, 0 regions still exposed, 0 bytes still registered"), "{rest}");
    assert!(rest.contains("connections: 2 accepted, 0 open, 0 not set up; ended "), "{rest}");
}

/// Runs a command that must fail, and returns its standard error.
fn complaint(args: &[&str]) -> String {
    let mut running = Running(nfs3d(args).spawn().unwrap(), TimeLimit::start());
    // A server that starts all the same prints its URLs, and would not exit.
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "", "{args:?}");
    let mut said = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = running.0.wait().unwrap();
    assert!(matches!(status.code(), Some(1 | 2)), "{status}");
    said
}

#[test]
fn errors_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (root, state, none) = (path("root"), path("state"), path("none"));
    fs::create_dir(&root).unwrap();
    fs::write(path("file"), "").unwrap();
    let run = |root: &str, state: &str, listen: &str, mount: &str| {
        complaint(&["--root", root, "--state", state, "--listen", listen, "--mount", mount])
    };
    let (listen, mount) = ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0");
    let said = run(&none, &state, listen, mount);
    assert!(said.contains(&format!("cannot export {none}")) && said.contains("No such file"), "{said}");
    let said = run(&path("file"), &state, listen, mount);
    assert!(said.contains("Not a directory"), "{said}");
    let said = run(&root, &format!("{root}/state"), listen, mount);
    assert!(said.contains("is in the export") && said.contains("--state"), "{said}");
    let said = run(&root, &path("file"), listen, mount);
    assert!(said.contains("--state"), "{said}");
    let said = run(&root, &state, listen, "iwarp://127.0.0.1:0");
    assert!(said.contains("--mount") && said.contains("TCP"), "{said}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iwarp://{}", listener.local_addr().unwrap());
    let said = run(&root, &state, &url, mount);
    assert!(said.contains(&url) && said.contains("in use"), "{said}");
    let said = complaint(&["--root", &root]);
    assert!(said.contains("--listen") && said.contains("--mount"), "{said}");
}

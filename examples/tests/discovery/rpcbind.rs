//! Tests of a blobstore and `nfs3d` that register themselves with a real rpcbind.

use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use rpcrdma_examples::blobstore::protocol::blobstore_v1;
use rpcrdma_specs::{mount3::mount_v3, nfs3::nfs_v3, nfsacl3::nfs_acl_v3, nlm4::nlm4_vers, nsm1::sm_vers};
use rustix::process::Signal;

use super::{Blobstore, PATIENCE, Process, eventually, installed, isolated, run, start_nfs3d};

/// The rpcbind program of this host. It needs port 111 and `/run/rpcbind.sock`, so it runs in its own namespaces, as
/// root.
struct RealRpcbind {
    program: PathBuf,
    rpcinfo: PathBuf,
    process: Option<Process>,
}

impl RealRpcbind {
    /// Starts rpcbind, if this process is in namespaces of its own. Otherwise, runs the test named `test` again in a
    /// process with new namespaces, and returns `None`. If a program is missing or the user is not root, returns `None`
    /// without running the test again.
    fn start(test: &str) -> Option<Self> {
        let mut rpcbind = Self::prepare(test)?;
        rpcbind.run();
        Some(rpcbind)
    }

    /// Prepares the namespaces in which rpcbind can run, without starting it. Returns `None` outside of them.
    fn prepare(test: &str) -> Option<Self> {
        let programs = ["rpcbind", "rpcinfo", "unshare", "ip"].map(installed);
        let [Some(program), Some(rpcinfo), Some(unshare), Some(ip)] = programs else { return None };
        if !isolated(test, unshare) {
            return None;
        }
        run(&ip, "link set lo up");
        run("mount".as_ref(), "-t tmpfs tmpfs /run");
        fs::create_dir("/run/rpcbind").unwrap();
        Some(Self { program, rpcinfo, process: None })
    }

    /// Starts the process, and waits until it listens.
    fn run(&mut self) {
        self.process = Some(Process::start(Command::new(&self.program).arg("-f")));
        let deadline = Instant::now() + PATIENCE;
        while !PathBuf::from("/run/rpcbind.sock").exists() || std::net::TcpStream::connect("127.0.0.1:111").is_err() {
            assert!(Instant::now() < deadline, "rpcbind does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the process with SIGKILL.
    fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Returns the version, the netid and the address of each registration of a program.
    fn listed(&self, program: u32) -> Vec<String> {
        let output = Command::new(&self.rpcinfo).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let program = program.to_string();
        let lines = text.lines().filter(|line| line.split_whitespace().next() == Some(&program));
        lines.map(|line| line.split_whitespace().skip(1).take(3).collect::<Vec<_>>().join(" ")).collect()
    }
}

/// `nfs3d` registers NFS and MOUNT. `nfscp` finds both, over each transport and address family.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nfs_behind_rpcbind() {
    let Some(rpcbind) = RealRpcbind::start("rpcbind::nfs_behind_rpcbind") else { return };
    let listed = |program| rpcbind.listed(program).into_iter().collect::<BTreeSet<_>>();
    let expect = async |program, expected: &[&str]| {
        let expected = expected.iter().map(|&line| line.to_owned()).collect::<BTreeSet<_>>();
        let deadline = Instant::now() + PATIENCE;
        while listed(program) != expected {
            assert!(Instant::now() < deadline, "{:?}", listed(program));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let here = tempfile::tempdir().unwrap();
    let mut hosts = vec![("127.0.0.1", [20200, 20201])];
    let mut arguments = vec!["--rpcbind", "--listen", "iwarp://127.0.0.1:20200", "--listen", "tcp://127.0.0.1:20201"];
    let mut nfs = vec!["3 rdma 127.0.0.1.78.232", "3 tcp 127.0.0.1.78.233"];
    let mut mount = vec!["3 tcp 0.0.0.0.78.236"];
    if TcpListener::bind("[::1]:0").is_ok() {
        hosts.push(("[::1]", [20202, 20203]));
        arguments.extend(["--listen", "iwarp://[::1]:20202", "--listen", "tcp://[::1]:20203"]);
        arguments.extend(["--mount", "tcp://[::]:20204"]);
        nfs.extend(["3 rdma6 ::1.78.234", "3 tcp6 ::1.78.235"]);
        mount.push("3 tcp6 ::.78.236");
    } else {
        arguments.extend(["--mount", "tcp://0.0.0.0:20204"]);
    }
    let mut server = start_nfs3d(&here, &arguments);
    expect(nfs_v3::PROGRAM, &nfs).await;
    expect(mount_v3::PROGRAM, &mount).await;

    fs::write(here.path().join("export/file"), "found").unwrap();
    for (host, ports) in hosts {
        for (scheme, port) in ["iwarp", "tcp"].into_iter().zip(ports) {
            let target = here.path().join(format!("copy{port}"));
            let url = format!("nfs3+{scheme}://{host}/files/file");
            let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
            let output = command.args(["--json", &url]).arg(&target).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success() && text.contains(&format!("{scheme}://{host}:{port}")), "{text}");
            assert_eq!(fs::read(&target).unwrap(), b"found");
        }
    }
    server.signal(Signal::TERM);
    assert!(server.0.wait().unwrap().success());
    expect(nfs_v3::PROGRAM, &[]).await;
    expect(mount_v3::PROGRAM, &[]).await;
    // The default port is used if rpcbind does not know the server.
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
    let output = command.args(["--retry", "0", "nfs3+tcp://127.0.0.1/files/file"]).arg(here.path()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("tcp://127.0.0.1:2049"), "{errors}");
}

/// `nfs3d` registers its lock services and NFSACL. It does not start if other lock services answer on this host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_behind_rpcbind() {
    let Some(rpcbind) = RealRpcbind::start("rpcbind::locks_behind_rpcbind") else { return };
    let arguments = |port: u16| {
        let listen = ["--listen", "tcp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0", "--acl", "--rpcbind", "--locks"];
        let listen = listen.into_iter().map(str::to_owned);
        listen.chain([format!("tcp://0.0.0.0:{port}")]).collect::<Vec<_>>()
    };
    let start = |here: &tempfile::TempDir, port| {
        let arguments = arguments(port);
        start_nfs3d(here, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let here = tempfile::tempdir().unwrap();
    let mut server = start(&here, 20205);
    let nlm = || rpcbind.listed(nlm4_vers::PROGRAM);
    let nsm = || rpcbind.listed(sm_vers::PROGRAM).into_iter().collect::<BTreeSet<_>>();
    let at = |port: &str| BTreeSet::from([format!("1 tcp 0.0.0.0.{port}"), format!("1 udp 0.0.0.0.{port}")]);
    eventually("registered", || nlm() == ["4 tcp 0.0.0.0.78.237"] && nsm() == at("78.237")).await;
    eventually("registered", || rpcbind.listed(nfs_acl_v3::PROGRAM).len() == 1).await;
    // NSM answers at the UDP address.
    let output = Command::new(&rpcbind.rpcinfo).args(["-u", "127.0.0.1", "100024", "1"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let there = tempfile::tempdir().unwrap();
    fs::create_dir(there.path().join("export")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfs3d"));
    command.arg("--root").arg(there.path().join("export")).arg("--state").arg(there.path().join("state"));
    let output = command.args(["--export", "/files"]).args(arguments(20206)).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && errors.contains("port 20205 of this host has another lock manager"),
        "{errors}"
    );
    assert_eq!(output.stdout, b"");

    // A server that has crashed is replaced.
    server.kill();
    assert_eq!(nlm().len(), 1);
    let mut server = start(&here, 20206);
    eventually("registered", || nlm() == ["4 tcp 0.0.0.0.78.238"] && nsm() == at("78.238")).await;
    server.signal(Signal::TERM);
    assert!(server.0.wait().unwrap().success());
    assert_eq!((nlm().len(), nsm().len(), rpcbind.listed(nfs_acl_v3::PROGRAM).len()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blobstore_behind_rpcbind() {
    let Some(rpcbind) = RealRpcbind::start("rpcbind::a_blobstore_behind_rpcbind") else { return };
    let listed = || rpcbind.listed(blobstore_v1::PROGRAM);
    let addr: SocketAddr = "127.0.0.1:20100".parse().unwrap();
    let options = ["--listen", "tcp://0.0.0.0:20101", "--rpcbind"].map(str::to_owned);
    let mut server = Blobstore::start(0, addr, options.to_vec()).await;
    assert_eq!(listed(), ["1 tcp 0.0.0.0.78.133", "1 rdma 127.0.0.1.78.132"]);

    // A client finds the server, over both transports.
    let program = blobstore_v1::PROGRAM.to_string();
    for (url, found) in [("iwarp://127.0.0.1", "iwarp://127.0.0.1:20100"), ("tcp://127.0.0.1", "tcp://127.0.0.1:20101")]
    {
        let arguments = [url, "--program", &program, "--version", "1", "--count", "1"];
        let output = Command::new(env!("CARGO_BIN_EXE_rpcping")).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && text.contains(found), "{text}");
    }
    let service = rpcrdma_specs::rpcbind::RpcbindService::new(
        ["127.0.0.1"],
        blobstore_v1::PROGRAM,
        1,
        rpcrdma::transport::Scheme::IWARP,
    );
    let mut servers = service.interval(Duration::from_millis(200)).servers();
    assert_eq!(servers.next().await.unwrap(), BTreeSet::from(["iwarp://127.0.0.1:20100".to_owned()]));
    // A server that crashed is still registered. Its successor replaces the registration.
    server.process().kill();
    assert_eq!(listed().len(), 2);
    server.run();
    assert_eq!(listed().len(), 2);
    // A server that ends removes its registration.
    server.shut_down().await;
    assert_eq!(listed(), Vec::<String>::new());
    let last = async { while !servers.next().await.unwrap().is_empty() {} };
    tokio::time::timeout(PATIENCE, last).await.unwrap();
    let arguments = ["tcp://127.0.0.1", "--program", &program, "--version", "1", "--count", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_rpcping")).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// A server that starts while rpcbind is down registers itself when rpcbind has started, and again when rpcbind has
/// restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registrations_return_with_rpcbind() {
    let Some(mut rpcbind) = RealRpcbind::prepare("rpcbind::registrations_return_with_rpcbind") else { return };
    let registered = ["1 tcp 0.0.0.0.78.133", "1 rdma 127.0.0.1.78.132"];
    let here = tempfile::tempdir().unwrap();
    let log = here.path().join("log");
    let options = ["--listen", "tcp://0.0.0.0:20101", "--rpcbind"].map(str::to_owned);
    let addr = "127.0.0.1:20100".parse().unwrap();
    // This uploads a blob.
    let mut server = Blobstore::start_with(0, addr, options.to_vec(), Some(log.clone())).await;
    let warnings = || fs::read_to_string(&log).unwrap().matches("cannot register with rpcbind").count();
    eventually("a warning", || warnings() == 1).await;
    // Several attempts fail.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(warnings(), 1);
    for restart in 0..3 {
        rpcbind.run();
        eventually("registered", || rpcbind.listed(blobstore_v1::PROGRAM) == registered).await;
        if restart == 2 {
            break;
        }
        rpcbind.kill();
        if restart == 1 {
            // The second warning.
            eventually("a warning", || warnings() == 2).await;
        }
    }
    server.shut_down().await;
    assert_eq!(rpcbind.listed(blobstore_v1::PROGRAM), Vec::<String>::new());
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.matches("WARN").count() == warnings() && warnings() <= 3, "{log}");
    // A server that ends while rpcbind is down does not hang.
    server.run();
    eventually("registered", || rpcbind.listed(blobstore_v1::PROGRAM) == registered).await;
    rpcbind.kill();
    server.shut_down().await;
}

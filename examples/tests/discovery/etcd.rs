//! Tests of servers that register themselves in a real etcd.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write as _,
    net::TcpListener,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use rpcrdma_discover::EtcdService;
use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    Blobstore, Load, PATIENCE, Process, addresses, check_evenness, client, connections_to, crash, eventually,
    installed, start_nfs3d, wait_until_even,
};

/// An etcd server on free ports.
struct Etcd {
    program: PathBuf,
    url: String,
    peers: String,
    process: Option<Process>,
    folder: TempDir,
}

impl Etcd {
    fn start() -> Option<Self> {
        let mut etcd = Self::reserve()?;
        etcd.run();
        Some(etcd)
    }

    /// Finds free ports, without starting the server. Returns `None` if etcd is not installed.
    fn reserve() -> Option<Self> {
        let program = installed("etcd")?;
        let folder = tempfile::tempdir().unwrap();
        let [client, peer] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [url, peers] = [client, peer].map(|socket| format!("http://{}", socket.local_addr().unwrap()));
        Some(Self { program, url, peers, process: None, folder })
    }

    /// Starts the process, and waits until it accepts requests.
    fn run(&mut self) {
        let (url, peers) = (self.url.as_str(), self.peers.as_str());
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.folder.path().join("data"));
        command.args(["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers]);
        command.args(["--initial-advertise-peer-urls", peers, "--initial-cluster", &format!("default={peers}")]);
        // etcd runs on some processors only if it is told to.
        command.env("ETCD_UNSUPPORTED_ARCH", env::consts::ARCH.replace("aarch64", "arm64"));
        let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        // It listens before it accepts requests, and resets connections meanwhile.
        let is_healthy = || -> std::io::Result<bool> {
            let mut stream = std::net::TcpStream::connect(url.trim_start_matches("http://"))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"GET /health HTTP/1.0\r\nHost: etcd\r\n\r\n")?;
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut stream, &mut answer)?;
            Ok(answer.contains(r#""health":"true""#))
        };
        let deadline = Instant::now() + PATIENCE;
        while !is_healthy().unwrap_or(false) {
            assert!(Instant::now() < deadline, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.process = Some(process);
    }

    /// Ends the process with SIGKILL.
    fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Returns the URLs of the servers that are currently registered in etcd under `prefix`.
    async fn listed(&self, prefix: &str) -> BTreeSet<String> {
        EtcdService::new([&self.url], prefix).servers().await.unwrap().next().await.unwrap()
    }

    /// Waits until exactly `urls` are registered in etcd under `prefix`.
    async fn expect(&self, prefix: &str, urls: &[&str]) {
        let expected = urls.iter().map(|&url| url.to_owned()).collect::<BTreeSet<_>>();
        let deadline = Instant::now() + PATIENCE;
        while self.listed(prefix).await != expected {
            assert!(Instant::now() < deadline, "{:?}", self.listed(prefix).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Three servers register themselves in etcd. The load of a client is spread over them, also after crashes and after
/// each restart, and no call fails. The server that crashes for good leaves the list when its lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_blobstores_behind_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let mut servers = Vec::new();
    for (number, addr) in (0..).zip(addresses()) {
        let key = format!("/test/blobs/{number}");
        let options = ["--etcd", &etcd.url, "--etcd-key", &key, "--drain-delay", "1"].map(str::to_owned);
        servers.push(Blobstore::start(number, addr, options.to_vec()).await);
    }
    let service = EtcdService::new([&etcd.url], "/test/blobs/");
    let client = client(service.clone().servers().await.unwrap());

    let load = Load::start(&client);
    wait_until_even(&load).await;
    crash(&mut servers).await;
    check_evenness(&load, "after crashes behind etcd").await;
    load.finish("crashes behind etcd").await;

    let load = Load::start(&client);
    for server in &mut servers {
        server.shut_down().await;
        assert_eq!(connections_to(server.addr), 0);
        server.run();
        wait_until_even(&load).await;
    }
    load.finish("rolling restart behind etcd").await;

    // A server that crashed for good disappears when its lease ends.
    let mut listed = service.servers().await.unwrap();
    assert_eq!(listed.next().await.unwrap().len(), 3);
    servers[1].process().kill();
    let list = tokio::time::timeout(PATIENCE, listed.next()).await.unwrap().unwrap();
    assert!(list.len() == 2 && !list.iter().any(|url| url.contains(&servers[1].addr.to_string())), "{list:?}");
}

/// A server registers itself again after etcd has lost all data or the server's lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registrations_return_with_etcd() {
    const KEYS: &str = "/test/return/";
    let Some(mut etcd) = Etcd::start() else { return };
    let addr = addresses()[0];
    let options = ["--etcd", &etcd.url, "--etcd-key", &format!("{KEYS}one")].map(str::to_owned);
    let mut server = Blobstore::start(0, addr, options.to_vec()).await;
    let url = format!("iwarp://{addr}");
    etcd.expect(KEYS, &[&url]).await;
    // A client whose list follows all of that.
    let mut watched = EtcdService::new([&etcd.url], KEYS).servers().await.unwrap();
    assert_eq!(watched.next().await.unwrap().len(), 1);
    for data_is_lost in [true, false] {
        etcd.kill();
        if data_is_lost {
            fs::remove_dir_all(etcd.folder.path().join("data")).unwrap();
        } else {
            // Longer than the lease.
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
        etcd.run();
        etcd.expect(KEYS, &[&url]).await;
    }
    // The registration is removed at once, although it was made after a restart. The lease would last for 5 s.
    server.shut_down().await;
    assert_eq!(etcd.listed(KEYS).await, BTreeSet::new());
    let last = async { while !watched.next().await.unwrap().is_empty() {} };
    tokio::time::timeout(PATIENCE, last).await.unwrap();
}

/// A server that starts while etcd is down still serves, logs one warning, and registers itself when etcd has started.
/// With an https URL that it cannot use, it does not start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_before_etcd() {
    const KEYS: &str = "/test/before/";
    let Some(mut etcd) = Etcd::reserve() else { return };
    let addr = addresses()[0];
    let log = etcd.folder.path().join("log");
    let options = ["--etcd", &etcd.url, "--etcd-key", &format!("{KEYS}one")].map(str::to_owned);
    // This uploads a blob.
    let mut server = Blobstore::start_with(0, addr, options.to_vec(), Some(log.clone())).await;
    let warnings = || fs::read_to_string(&log).unwrap().matches("cannot register in etcd").count();
    eventually("a warning", || warnings() == 1).await;
    // Several attempts fail.
    tokio::time::sleep(Duration::from_secs(3)).await;
    etcd.run();
    etcd.expect(KEYS, &[&format!("iwarp://{addr}")]).await;
    server.shut_down().await;
    assert_eq!(etcd.listed(KEYS).await, BTreeSet::new());
    assert_eq!(warnings(), 1);
    let log = fs::read_to_string(&log).unwrap();
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
    // Settings that cannot work are an error at once.
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_blobstore"));
    command.args(["serve", "--listen", "iwarp://127.0.0.1:0", "--etcd", "https://127.0.0.1:1", "--etcd-key", "/key"]);
    let output = command.arg("--root").arg(root.path()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("an https URL needs"), "{errors}");
}

/// `nfs3d` registers the URL of NFS in etcd, but not the URL of MOUNT, and removes the registration at shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nfs_behind_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let here = tempfile::tempdir().unwrap();
    let service = EtcdService::new([&etcd.url], "/test/nfs/");
    let mut listed = service.servers().await.unwrap();
    assert_eq!(listed.next().await.unwrap(), BTreeSet::new());
    let options = ["--etcd", &etcd.url, "--etcd-key", "/test/nfs/one", "--all-squash"];
    let urls = ["--listen", "iwarp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0"];
    let mut server = start_nfs3d(&here, &[options.as_slice(), &urls].concat());
    let mut next = async || tokio::time::timeout(PATIENCE, listed.next()).await.unwrap().unwrap();
    let list = next().await;
    assert!(list.len() == 1 && list.iter().all(|url| url.starts_with("iwarp://127.0.0.1:")), "{list:?}");
    server.signal(Signal::TERM);
    assert!(server.0.wait().unwrap().success());
    // No other value was there in between.
    assert_eq!(next().await, BTreeSet::new());
}

//! Tests of the programs with RPC-with-TLS (RFC 9289) on `tcp://`. Each test makes its own certificates.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

#[path = "tls/probed.rs"]
mod probed;
#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use time_limit::TimeLimit;

/// Length of the files that are copied, in bytes.
const SIZE: usize = 3 << 20;

const BLOBSTORE: &str = env!("CARGO_BIN_EXE_blobstore");
const NFS3D: &str = env!("CARGO_BIN_EXE_nfs3d");
const NFSCP: &str = env!("CARGO_BIN_EXE_nfscp");

/// A certification authority. Its certificate is in `NAME-ca.pem`.
struct Authority {
    ca: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let ca = folder.join(format!("{name}-ca.pem"));
        fs::write(&ca, issuer.pem()).unwrap();
        Self { ca, issuer }
    }

    /// Issues a certificate for a name, and writes the certificate and its key to two files.
    fn issue(&self, name: &str, [certificate, key]: &[PathBuf; 2]) {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let pair = KeyPair::generate().unwrap();
        fs::write(certificate, params.signed_by(&pair, &self.issuer).unwrap().pem()).unwrap();
        fs::write(key, pair.serialize_pem()).unwrap();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn noise(seed: u64) -> Vec<u8> {
    let mut noise = vec![0; SIZE];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut noise);
    noise
}

/// The directory, certification authorities and certificates of one test.
struct Scene {
    here: TempDir,
    servers: Authority,
    clients: Authority,
    /// Certificate and key of the server.
    server: [PathBuf; 2],
    /// Certificate and key of the client.
    client: [PathBuf; 2],
}

impl Scene {
    fn new() -> Self {
        let here = TempDir::new().unwrap();
        let (servers, clients) = (Authority::new(here.path(), "servers"), Authority::new(here.path(), "clients"));
        let pair = |name| [".pem", ".key"].map(|end| here.path().join(format!("{name}{end}")));
        let (server, client) = (pair("server"), pair("client"));
        servers.issue("127.0.0.1", &server);
        clients.issue("client.example", &client);
        Self { here, servers, clients, server, client }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    /// Returns the options of a server that requires certificates of clients.
    fn server_options(&self) -> Vec<&str> {
        let [certificate, key] = &self.server;
        let options = ["--tls-cert", text(certificate), "--tls-key", text(key), "--tls-client-ca"];
        [&options[..], &[text(&self.clients.ca)]].concat()
    }

    /// Returns the options of a client without a certificate.
    fn anonymous(&self) -> [&str; 2] {
        ["--tls-ca", text(&self.servers.ca)]
    }

    /// Returns the options of a client that trusts `ca` and has a certificate.
    fn client_of<'a>(&'a self, ca: &'a Path) -> Vec<&'a str> {
        let [certificate, key] = &self.client;
        vec!["--tls-ca", text(ca), "--tls-cert", text(certificate), "--tls-key", text(key)]
    }

    fn client_options(&self) -> Vec<&str> {
        self.client_of(&self.servers.ca)
    }
}

fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn output(program: &str, args: &[&str]) -> Output {
    time_limit::output(&mut command(program, args))
}

/// Runs a command that must succeed, and returns its standard output.
fn printed(program: &str, args: &[&str]) -> String {
    let output = output(program, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail, and returns its standard error.
fn complaint(program: &str, args: &[&str]) -> String {
    let output = output(program, args);
    assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// A server, killed when dropped.
struct Running {
    child: Child,
    /// The lines of standard output until the last URL.
    lines: Vec<String>,
    /// The receiver of the lines that the server logs.
    log: Receiver<String>,
    _limit: TimeLimit,
}

impl Running {
    /// Starts a server, and reads its URLs until a line begins with `last`.
    fn start(program: &str, args: &[&str], last: &str) -> Self {
        let limit = TimeLimit::start();
        let mut command = command(program, &[args, &["-v"]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut running = Self { child, lines: Vec::new(), log: lines(errors), _limit: limit };
        let mut out = BufReader::new(out);
        while !running.lines.last().is_some_and(|line| line.starts_with(last)) {
            let mut line = String::new();
            if out.read_line(&mut line).unwrap() == 0 {
                panic!("{program} ended: {:?}", running.log.iter().collect::<Vec<_>>());
            }
            running.lines.push(line.trim_end().to_owned());
        }
        running
    }

    /// Returns the rest of the first line that begins with `prefix`.
    fn url(&self, prefix: &str) -> &str {
        self.lines.iter().find_map(|line| line.strip_prefix(prefix)).unwrap()
    }

    /// Sends SIGHUP, and waits until the log contains `text`.
    fn hang_up(&self, text: &str) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
        while !self.log.recv_timeout(Duration::from_secs(120)).expect(text).contains(text) {}
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a channel that receives the lines of a stream as they arrive.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

#[test]
fn files_are_copied_with_tls() {
    let scene = Scene::new();
    let (export, state) = (scene.path("export"), scene.path("state"));
    fs::create_dir(&export).unwrap();
    // If the tests run as root, the server maps their user to nobody.
    fs::set_permissions(&export, fs::Permissions::from_mode(0o1777)).unwrap();
    let mut args = vec!["--root", text(&export), "--state", text(&state), "--export", "/e"];
    args.extend(["--listen", "tcp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0"]);
    args.extend(scene.server_options());
    let server = Running::start(NFS3D, &args, "MOUNT on ");
    let port = server.url("MOUNT on ").trim_end_matches('/').rsplit(':').next().unwrap();
    let there = format!("nfs3+{}/e/file", server.url("NFS on ").trim_end_matches('/'));
    let (source, back) = (scene.path("source"), scene.path("back"));
    let contents = noise(1);
    fs::write(&source, &contents).unwrap();
    let copy = |options: Vec<&'_ str>, from: &str, to: &str| -> Vec<String> {
        let args = [&["--verify", "--mount-port", port, "--retry", "1"], &options[..], &[from, to]].concat();
        args.into_iter().map(str::to_owned).collect()
    };
    let digest = blake3::hash(&contents).to_hex();
    for (from, to) in [(text(&source), there.as_str()), (there.as_str(), text(&back))] {
        let args = copy(scene.client_options(), from, to);
        let output = output(NFSCP, &args.iter().map(String::as_str).collect::<Vec<_>>());
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stderr}");
        assert!(stdout.contains(digest.as_str()) || stderr.contains(digest.as_str()), "{stdout}{stderr}");
    }
    assert!(fs::read(&back).unwrap() == contents);
    assert!(fs::read(export.join("file")).unwrap() == contents);

    let refused = |options: Vec<&'_ str>| {
        let args = copy(options, text(&source), &there);
        complaint(NFSCP, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let error = refused(Vec::new());
    assert!(error.contains("AUTH_TOOWEAK"), "plaintext: {error}");
    let error = refused(scene.client_of(&scene.clients.ca));
    assert!(error.contains("TLS handshake failed") && error.contains("UnknownIssuer"), "wrong CA: {error}");
    let error = refused(scene.anonymous().to_vec());
    assert!(error.contains("CertificateRequired"), "no certificate: {error}");
    assert!(fs::read(export.join("file")).unwrap() == contents);
}

/// Starts a blob server with the scene's certificates and further options. Returns it with its URL.
fn blobstore(scene: &Scene, options: &[&str]) -> (Running, String) {
    let root = scene.path("blobs");
    let args = ["serve", "--root", text(&root), "--listen", "tcp://127.0.0.1:0"];
    let args = [&args[..], &scene.server_options(), options].concat();
    let server = Running::start(BLOBSTORE, &args, "listening on tcp");
    let url = server.url("listening on ").to_owned();
    (server, url)
}

#[test]
fn blobs_are_stored_with_tls() {
    let scene = Scene::new();
    let (_server, url) = blobstore(&scene, &[]);
    let (file, back) = (scene.path("file"), scene.path("back"));
    let contents = noise(2);
    fs::write(&file, &contents).unwrap();
    for (command, file) in [("put", &file), ("get", &back)] {
        let printed =
            printed(BLOBSTORE, &[&[command], &scene.client_options()[..], &[&url, "blob", text(file)]].concat());
        assert!(printed.contains(blake3::hash(&contents).to_hex().as_str()), "{printed}");
    }
    assert!(fs::read(&back).unwrap() == contents);

    let refused = |options: &[&str]| complaint(BLOBSTORE, &[&["ls"], options, &[&url]].concat());
    let error = refused(&[]);
    assert!(error.contains("AUTH_TOOWEAK"), "plaintext: {error}");
    let error = refused(&scene.client_of(&scene.clients.ca));
    assert!(error.contains("TLS handshake failed") && error.contains("UnknownIssuer"), "wrong CA: {error}");
    let error = refused(&scene.anonymous());
    assert!(error.contains("CertificateRequired"), "no certificate: {error}");
    let error = refused(&[&scene.client_options()[..], &["--tls-server-name", "other.example"]].concat());
    assert!(error.contains("not valid for name"), "wrong name: {error}");

    // A client that requires TLS refuses a server without it.
    let root = scene.path("plain");
    let args = ["serve", "--root", text(&root), "--listen", "tcp://127.0.0.1:0"];
    let plain = Running::start(BLOBSTORE, &args, "listening on tcp");
    let error = complaint(BLOBSTORE, &[&["ls"], &scene.client_options()[..], &[plain.url("listening on ")]].concat());
    assert!(error.contains("TLS is required, but the server does not offer it"), "{error}");
}

/// After SIGHUP, the next connection gets the new certificate. A broken file changes nothing.
#[test]
fn certificates_are_replaced_without_a_restart() {
    let scene = Scene::new();
    let (server, url) = blobstore(&scene, &[]);
    let others = Authority::new(scene.here.path(), "others");
    let list = |ca: &Path| output(BLOBSTORE, &[&["ls"], &scene.client_of(ca)[..], &[&url]].concat());
    let is_trusted_by_others_only = |is_replaced: bool| {
        for (authority, is_trusted) in [(&scene.servers, !is_replaced), (&others, is_replaced)] {
            let output = list(&authority.ca);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), is_trusted, "{error}");
            assert!(is_trusted || error.contains("UnknownIssuer"), "{error}");
        }
    };
    is_trusted_by_others_only(false);
    others.issue("127.0.0.1", &scene.server);
    is_trusted_by_others_only(false);
    server.hang_up("TLS certificates read again");
    is_trusted_by_others_only(true);
    fs::write(&scene.server[0], "nothing").unwrap();
    server.hang_up("the TLS certificates stay as they were");
    is_trusted_by_others_only(true);
}

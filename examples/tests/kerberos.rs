//! Tests of the programs with Kerberos. Each test has its own realm and KDC (`tests/krb5/realm`).
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use time_limit::TimeLimit;

/// Length of the data that [`noise`] returns, in bytes. Longer files repeat the data.
const SIZE: usize = 3 << 20;
/// User ID of alice at the server, if the tests run as root.
const ALICE: u32 = 4242;

/// A realm with a running KDC.
struct Realm {
    folder: TempDir,
    variables: Vec<(String, String)>,
    _limit: TimeLimit,
}

impl Realm {
    /// Makes a realm. Returns `None` if Kerberos is not installed.
    fn new() -> Option<Self> {
        Self::with_variables(Vec::new())
    }

    /// Makes a realm with its own clock. Returns `None` if Kerberos or faketime is not installed.
    fn with_clock() -> Option<(Self, RealmClock)> {
        let Some(clock) = RealmClock::stopped() else {
            println!("NOT RUN: faketime is not installed");
            return None;
        };
        Some((Self::with_variables(clock.variables.clone())?, clock))
    }

    /// Makes a realm whose KDC and programs have these environment variables. Returns `None` if Kerberos is not
    /// installed.
    fn with_variables(mut variables: Vec<(String, String)>) -> Option<Self> {
        let limit = TimeLimit::start();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = TempDir::new().unwrap();
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/krb5/realm");
        let mut script = Command::new(script);
        script.arg(folder.path()).arg(port.to_string()).envs(variables.iter().cloned());
        let status = script.status().unwrap();
        match status.code() {
            Some(0) => {}
            Some(3) => {
                println!("NOT RUN: Kerberos is not installed (krb5-kdc, krb5-admin-server, krb5-user)");
                return None;
            }
            _ => panic!("no realm: {status}"),
        }
        let text = fs::read_to_string(folder.path().join("env")).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        variables.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Some(Self { folder, variables, _limit: limit })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(self.variables.iter().cloned()).env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    /// Obtains a ticket for the user alice.
    fn kinit(&self, lifetime: &str) {
        let mut kinit = self.command("kinit");
        kinit.args(["-l", lifetime, "alice"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut kinit = kinit.spawn().unwrap();
        kinit.stdin.take().unwrap().write_all(b"alice\n").unwrap();
        assert!(kinit.wait().unwrap().success());
    }

    fn output(&self, program: &str, args: &[&str]) -> Output {
        self.command(program).args(args).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its standard output.
    fn printed(&self, program: &str, args: &[&str]) -> String {
        let output = self.output(program, args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail, and returns its standard error.
    fn complaint(&self, program: &str, args: &[&str]) -> String {
        let output = self.output(program, args);
        assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts a server, and reads its URLs until a line begins with `last`.
    fn serve(&self, program: &str, args: &[&str], last: &str) -> Running {
        let child = self.command(program).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut running = Running { child, lines: Vec::new() };
        let mut out = BufReader::new(running.child.stdout.take().unwrap());
        while !running.lines.last().is_some_and(|line: &String| line.starts_with(last)) {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "{program} ended: {:?}", running.lines);
            running.lines.push(line.trim_end().to_owned());
        }
        running
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.folder.path().join("kdc.pid")) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

/// The time of day of a realm and of the programs in it, set by the library of faketime. It changes only when the test
/// changes it. Monotonic clocks are not affected.
struct RealmClock {
    folder: TempDir,
    /// Seconds since the epoch.
    now: u64,
    /// The environment variables of programs that use this clock.
    variables: Vec<(String, String)>,
}

impl RealmClock {
    /// Returns a stopped clock that shows the current time. Returns `None` if faketime is not installed.
    fn stopped() -> Option<Self> {
        let found = Command::new("faketime").args(["-f", "+0", "printenv", "LD_PRELOAD"]).output().ok()?;
        let library = String::from_utf8(found.stdout).unwrap();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("now");
        let variables = [
            ("LD_PRELOAD", library.trim()),
            ("FAKETIME_TIMESTAMP_FILE", text(&file)),
            ("FAKETIME_FMT", "%s"),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let mut clock = Self { folder, now: UNIX_EPOCH.elapsed().unwrap().as_secs(), variables };
        clock.advance(0);
        Some(clock)
    }

    fn advance(&mut self, seconds: u64) {
        self.now += seconds;
        // Renamed, so that the file is always complete.
        let [new, file] = ["new", "now"].map(|name| self.folder.path().join(name));
        fs::write(&new, format!("{}\n", self.now)).unwrap();
        fs::rename(new, file).unwrap();
    }
}

/// A server, killed when dropped.
struct Running {
    child: Child,
    lines: Vec<String>,
}

impl Running {
    /// Returns the rest of each line that begins with `prefix`.
    fn urls(&self, prefix: &str) -> Vec<String> {
        self.lines.iter().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut noise = vec![0; SIZE];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut noise);
    noise
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const BLOBSTORE: &str = env!("CARGO_BIN_EXE_blobstore");
const NFS3D: &str = env!("CARGO_BIN_EXE_nfs3d");
const NFSCP: &str = env!("CARGO_BIN_EXE_nfscp");
const RPCPING: &str = env!("CARGO_BIN_EXE_rpcping");

/// A running `nfs3d`, with its export.
struct Nfs3d {
    here: TempDir,
    server: Running,
    mount_port: String,
}

impl Nfs3d {
    fn start(realm: &Realm, flavors: &str) -> Self {
        let here = TempDir::new().unwrap();
        let export = here.path().join("export");
        fs::create_dir(&export).unwrap();
        fs::set_permissions(&export, fs::Permissions::from_mode(0o1777)).unwrap();
        // The directories above have to be accessible for users other than root.
        let principals = here.path().join("principals");
        fs::write(&principals, format!("alice@TEST.RPCRDMA {0} {0}\n", Self::alice())).unwrap();
        let listen = ["iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"];
        let server = Self::serve(realm, here.path(), flavors, listen, "tcp://127.0.0.1:0");
        let [mount] = server.urls("MOUNT on ").try_into().unwrap();
        let mount_port = mount.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
        Self { here, server, mount_port }
    }

    fn serve(realm: &Realm, here: &Path, flavors: &str, [iwarp, tcp]: [&str; 2], mount: &str) -> Running {
        let [export, state, principals] = ["export", "state", "principals"].map(|name| here.join(name));
        let args = ["--root", text(&export), "--state", text(&state), "--export", "/e", "--sec", flavors];
        let listen = ["--listen", iwarp, "--listen", tcp, "--mount", mount];
        let others = ["--principals", text(&principals), "--service", "nfs@localhost"];
        realm.serve(NFS3D, &[args.as_slice(), &listen, &others].concat(), "MOUNT on ")
    }

    fn kill(&mut self) {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
    }

    /// Starts the server again after it was killed, with the same state and ports.
    fn restart(&mut self, realm: &Realm, flavors: &str) {
        let [iwarp, tcp] = self.server.urls("NFS on ").try_into().unwrap();
        let [mount] = self.server.urls("MOUNT on ").try_into().unwrap();
        self.server = Self::serve(realm, self.here.path(), flavors, [&iwarp, &tcp], &mount);
    }

    /// Returns the user ID of alice at the server.
    fn alice() -> u32 {
        let own = rustix::process::geteuid();
        if own.is_root() { ALICE } else { own.as_raw() }
    }

    /// Returns the URLs of the export over iWARP and TCP.
    fn urls(&self) -> [String; 2] {
        let urls = self.server.urls("NFS on ").into_iter().map(|url| format!("nfs3+{}/e", url.trim_end_matches('/')));
        urls.collect::<Vec<_>>().try_into().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }
}

/// Returns the command line of `nfscp` with the options that every run needs, followed by `args`.
fn nfscp<'a>(server: &'a Nfs3d, args: &[&'a str]) -> Vec<&'a str> {
    let options = ["--json", "--service", "nfs@localhost", "--mount-port", &server.mount_port];
    [&options, args].concat()
}

#[test]
fn files_are_copied_with_every_flavor() {
    let Some(realm) = Realm::new() else { return };
    realm.kinit("1h");
    let server = Nfs3d::start(&realm, "krb5:krb5i:krb5p");
    let [iwarp, tcp] = server.urls();
    let places = [(&iwarp, "?version=1"), (&iwarp, "?version=2"), (&tcp, "")];
    for (number, (url, query)) in places.into_iter().enumerate() {
        for sec in ["krb5", "krb5i", "krb5p"] {
            let (source, back) = (server.path("source"), server.path("back"));
            let contents = noise(number as u64);
            fs::write(&source, &contents).unwrap();
            let there = format!("{url}/{sec}-{number}{query}");
            let ways =
                [(text(&source), there.as_str(), "chunked_calls"), (there.as_str(), text(&back), "chunked_replies")];
            for (from, to, placed) in ways {
                let report = realm.printed(NFSCP, &nfscp(&server, &["--sec", sec, "--verify", from, to]));
                let report: Value = serde_json::from_str(&report).unwrap();
                let placed = report["connection"][placed].as_u64().unwrap();
                // Nothing is reduced with krb5i and krb5p (RFC 8166 §8.2.2.3), and there are no chunks over TCP.
                let is_placed = sec == "krb5" && url == &iwarp;
                assert!(if is_placed { placed >= 1 } else { placed == 0 }, "{there}: {report:#}");
            }
            assert!(fs::read(&back).unwrap() == contents, "{there}");
            let stored = server.path("export").join(format!("{sec}-{number}"));
            assert!(fs::read(&stored).unwrap() == contents, "{there}");
            assert_eq!(fs::metadata(&stored).unwrap().uid(), Nfs3d::alice(), "{there}");
            let _ = fs::remove_file(&back);
        }
    }
    // Without --sec, the first flavor of the export.
    let to = format!("{iwarp}/default");
    realm.printed(NFSCP, &nfscp(&server, &[text(&server.path("source")), &to]));
    assert_eq!(fs::metadata(server.path("export/default")).unwrap().uid(), Nfs3d::alice());
}

/// A copy in progress completes although the restarted server no longer knows the client's security contexts.
#[test]
fn copies_survive_a_restart_of_the_server() {
    const FLAVORS: &str = "krb5i:krb5p";
    let Some(realm) = Realm::new() else { return };
    realm.kinit("1h");
    let mut server = Nfs3d::start(&realm, FLAVORS);
    let source = server.path("source");
    let contents = noise(5).repeat(10);
    fs::write(&source, &contents).unwrap();
    let [iwarp, tcp] = server.urls();
    for (url, sec) in [(iwarp, "krb5p"), (tcp, "krb5i")] {
        let there = format!("{url}/{sec}");
        let args = ["--sec", sec, "--verify", "--chunk-size", "16KiB", "--jobs", "4", text(&source), &there];
        let mut command = realm.command(NFSCP);
        command.args(nfscp(&server, &args)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut copying = command.spawn().unwrap();
        let stored = server.path("export").join(sec);
        while fs::metadata(&stored).map_or(0, |file| file.len()) < 1 << 20 {
            assert_eq!(copying.try_wait().unwrap(), None, "nfscp has exited");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
        assert_eq!(copying.try_wait().unwrap(), None, "nfscp was done before the restart");
        server.restart(&realm, FLAVORS);
        let output = copying.wait_with_output().unwrap();
        assert!(output.status.success(), "{there}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(&stored).unwrap() == contents, "{there}");
    }
}

/// Returns the length of a file that is copied while tickets expire, in MiB. The environment variable
/// `RPCRDMA_TEST_COPY_MIB` sets it. The default is 32.
fn long_copy() -> usize {
    std::env::var("RPCRDMA_TEST_COPY_MIB").map_or(32, |mib| mib.parse().unwrap())
}

/// Returns the maximum number of bytes in a call, as the value of an option. A short copy uses small and therefore many
/// calls, so that it can be stopped in the middle.
fn call_size() -> &'static str {
    if long_copy() > 256 { "256KiB" } else { "16KiB" }
}

/// Lifetime of the tickets, in seconds. A security context is used for half of this time, as measured by a monotonic
/// clock.
const LIFETIME: u64 = 4;
/// The time for which a copy is stopped in the middle.
const STOP: Duration = Duration::from_secs(3);

/// Returns the number of bytes on disk that all files in a directory occupy. It includes incomplete files, which may
/// have temporary names.
fn occupied(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let sizes = entries.filter_map(|path| {
        let found = fs::symlink_metadata(&path).ok()?;
        Some(if found.is_dir() { occupied(&path) } else { found.blocks() * 512 })
    });
    sizes.sum()
}

/// Runs a program that copies to `directory`, and stops it in the middle. Meanwhile, its ticket expires, and the user
/// obtains a new one. Checks that the program succeeds and has used more than one security context.
fn copy_with_a_stop(realm: &Realm, clock: &mut RealmClock, mut command: Command, directory: &Path) {
    let lifetime = format!("{LIFETIME}s");
    realm.kinit(&lifetime);
    let before = occupied(directory);
    command.env("RUST_LOG", "rpcrdma::gss=debug").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut copying = command.spawn().unwrap();
    while occupied(directory) < before + (1 << 20) {
        assert_eq!(copying.try_wait().unwrap(), None, "the program has exited");
        thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&copying), Signal::STOP).unwrap();
    thread::sleep(STOP);
    clock.advance(2 * LIFETIME);
    realm.kinit(&lifetime);
    assert_eq!(copying.try_wait().unwrap(), None, "the copy was complete before the stop");
    let started = Instant::now();
    kill_process(Pid::from_child(&copying), Signal::CONT).unwrap();
    let output = copying.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {log}");
    let contexts = log.lines().filter(|line| line.contains("security context created")).count();
    let what = command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
    println!("{what}: {contexts} security contexts, {:?} after the stop", started.elapsed());
    assert!(contexts >= 2, "{what}: {log}");
}

/// `nfscp` completes a copy although tickets expire in the middle, if the user obtains new ones.
#[test]
fn files_are_copied_with_tickets_that_expire() {
    let Some((realm, mut clock)) = Realm::with_clock() else { return };
    let server = Nfs3d::start(&realm, "krb5p");
    fs::create_dir(server.path("here")).unwrap();
    let [source, back] = ["source", "here/back"].map(|name| server.path(name));
    fs::write(&source, noise(6).repeat(long_copy().div_ceil(SIZE >> 20))).unwrap();
    for url in server.urls() {
        let (there, stored) = (format!("{url}/there"), server.path("export/there"));
        for (from, to, copy) in [(text(&source), &*there, &stored), (&there, text(&back), &back)] {
            let args = ["--sec", "krb5p", "--chunk-size", call_size(), "--jobs", "4", from, to];
            let mut command = realm.command(NFSCP);
            command.args(nfscp(&server, &args));
            copy_with_a_stop(&realm, &mut clock, command, copy.parent().unwrap());
            assert!(fs::read(&source).unwrap() == fs::read(copy).unwrap(), "{from} {to}");
        }
        fs::remove_file(&stored).unwrap();
        fs::remove_file(&back).unwrap();
    }
}

/// `blobstore` completes a copy although tickets expire in the middle, if the user obtains new ones.
#[test]
fn blobs_are_stored_with_tickets_that_expire() {
    let Some((realm, mut clock)) = Realm::with_clock() else { return };
    let here = TempDir::new().unwrap();
    let [root, source, back] = ["blobs", "source", "here/back"].map(|name| here.path().join(name));
    fs::create_dir(&root).unwrap();
    fs::create_dir(back.parent().unwrap()).unwrap();
    fs::write(&source, noise(7).repeat(long_copy().div_ceil(SIZE >> 20))).unwrap();
    let listen = ["--listen", "iwarp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0"];
    let args = ["serve", "--root", text(&root), "--sec", "krb5p", "--service", "host@localhost"];
    let server = realm.serve(BLOBSTORE, &[args.as_slice(), &listen].concat(), "listening on tcp");
    for url in server.urls("listening on ") {
        for (command, file, directory) in [("put", &source, &*root), ("get", &back, back.parent().unwrap())] {
            let options = ["--sec", "krb5p", "--service", "host@localhost", "--range", call_size(), "--depth", "4"];
            let mut blobstore = realm.command(BLOBSTORE);
            blobstore.arg(command).args(options).args([
                &*url,
                if url.starts_with("tcp") { "tcp" } else { "iwarp" },
                text(file),
            ]);
            copy_with_a_stop(&realm, &mut clock, blobstore, directory);
        }
        assert!(fs::read(&source).unwrap() == fs::read(&back).unwrap(), "{url}");
        fs::remove_file(&back).unwrap();
    }
}

#[test]
fn blobs_are_stored_with_every_flavor() {
    let Some(realm) = Realm::new() else { return };
    realm.kinit("1h");
    let here = TempDir::new().unwrap();
    let (root, file, back) = (here.path().join("blobs"), here.path().join("file"), here.path().join("back"));
    let contents = noise(9);
    fs::write(&file, &contents).unwrap();
    let listen = ["--listen", "iwarp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0"];
    let args = ["serve", "--root", text(&root), "--sec", "krb5:krb5i:krb5p", "--service", "host@localhost"];
    let server = realm.serve(BLOBSTORE, &[args.as_slice(), &listen].concat(), "listening on tcp");
    let [iwarp, tcp] = server.urls("listening on ").try_into().unwrap();
    for (url, version) in [(&iwarp, "1"), (&iwarp, "2"), (&tcp, "1")] {
        for sec in ["krb5", "krb5i", "krb5p"] {
            let options = ["--sec", sec, "--service", "host@localhost", "--rpcrdma-version", version];
            let run = |command: &str, file: &Path| {
                let args = [&[command], options.as_slice(), &[url, "blob", text(file)]].concat();
                let printed = realm.printed(BLOBSTORE, &args);
                assert!(printed.contains(blake3::hash(&contents).to_hex().as_str()), "{printed}");
            };
            run("put", &file);
            run("get", &back);
            assert!(fs::read(&back).unwrap() == contents, "{url} {sec}");
            fs::remove_file(&back).unwrap();
            let bench = ["bench", "--json", "--seconds", "0.1", "--depth", "2"];
            let report = realm.printed(BLOBSTORE, &[&bench, options.as_slice(), &[url]].concat());
            let report: Value = serde_json::from_str(&report).unwrap();
            for messages in ["calls", "replies"] {
                let reasons = report[messages].as_object().unwrap().iter();
                let reduced = reasons.filter(|(reason, _)| reason.contains("eligible items in chunks"));
                let reduced: u64 = reduced.filter_map(|(_, count)| count.as_u64()).sum();
                // Nothing is reduced with krb5i and krb5p (RFC 8166 §8.2.2.3), and there are no chunks over TCP.
                assert_eq!(reduced > 0, sec == "krb5" && url == &iwarp, "{url} {sec}: {report:#}");
            }
        }
        for options in [&[][..], &["--sec", "sys"]] {
            let error = realm.complaint(BLOBSTORE, &[&["ls"], options, &[url]].concat());
            assert!(error.contains("AUTH_TOOWEAK"), "{error}");
        }
    }
}

#[test]
fn errors_say_what_to_do() {
    let Some(realm) = Realm::new() else { return };
    let server = Nfs3d::start(&realm, "krb5i:krb5p");
    let [iwarp, tcp] = server.urls();
    let source = server.path("source");
    fs::write(&source, "data").unwrap();
    let to = format!("{iwarp}/file");
    let copy = |options: &[&str]| {
        let args = [&["--mount-port", &server.mount_port], options, &[text(&source), &to]].concat();
        realm.complaint(NFSCP, &args)
    };
    let ping = |options: &[&str]| {
        let url = tcp.strip_prefix("nfs3+").unwrap().strip_suffix("/e").unwrap();
        let nfs = ["--program", "nfs", "--version", "3", "--count", "1", url];
        realm.output(RPCPING, &[&nfs, options].concat())
    };
    let service = ["--sec", "krb5p", "--service", "nfs@localhost"];

    let error = copy(&service);
    assert!(error.contains("run kinit"), "no ticket: {error}");
    let output = ping(&service);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("run kinit"), "no ticket: {error}");

    realm.kinit("1h");
    assert!(ping(&service).status.success());
    let error = copy(&["--sec", "krb5p", "--service", "nfs@unknown.example"]);
    assert!(error.contains("service principal is unknown"), "{error}");
    // The server accepts another service only.
    let error = copy(&["--sec", "krb5p", "--service", "host@localhost"]);
    assert!(error.contains("the server refused it"), "{error}");
    let error = copy(&["--sec", "sys"]);
    assert!(error.contains("krb5i:krb5p, not sys"), "{error}");
    let error = copy(&["--sec", "krb5", "--service", "nfs@localhost"]);
    assert!(error.contains("krb5i:krb5p, not krb5"), "{error}");

    realm.kinit("1s");
    std::thread::sleep(Duration::from_millis(2100));
    let error = copy(&service);
    assert!(error.contains("expired") && error.contains("run kinit"), "{error}");

    // A server without a key does not start.
    let keytab = server.path("no-keytab");
    let mut blobs = realm.command(BLOBSTORE);
    let args = ["serve", "--root", text(server.here.path()), "--listen", "tcp://127.0.0.1:0", "--sec", "krb5"];
    let output = blobs.args(args).env("KRB5_KTNAME", &keytab).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("check the keytab"), "{error}");
}

#[test]
fn clock_skew_is_explained() {
    if Command::new("faketime").arg("--version").output().is_err() {
        println!("NOT RUN: faketime is not installed");
        return;
    }
    let Some(realm) = Realm::new() else { return };
    let server = Nfs3d::start(&realm, "krb5");
    let source = server.path("source");
    fs::write(&source, "data").unwrap();
    realm.kinit("1h");
    // The client is ahead by more than the permitted 5 minutes.
    let to = format!("{}/file", server.urls()[1]);
    let args = [&["-f", "+10m", NFSCP, "--sec", "krb5"], nfscp(&server, &[text(&source), &to]).as_slice()].concat();
    let error = realm.complaint("faketime", &args);
    assert!(error.contains("the clocks of client, server and KDC differ too much"), "{error}");
}

//! Tests of the servers as services of systemd: their units, and the notifications that they send to the service
//! manager.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use time_limit::TimeLimit;

/// Time limit for each event that a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A service manager, which receives notifications on a socket.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
    _limit: TimeLimit,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { folder, socket, _limit: TimeLimit::start() }
    }

    /// Starts a service with the `ExecStart` of its unit. Replaces the path by `program`, the ports by free ports, and
    /// other parts of the arguments according to `replacements`.
    fn start(&self, name: &str, program: &str, replacements: &[(&str, &str)]) -> Service {
        let [binary, arguments @ ..] = &exec_start(name)[..] else { panic!("{name} has no ExecStart") };
        assert_eq!(binary, &format!("/usr/local/bin/{name}"));
        let state = self.folder.path().join("state");
        let arguments = arguments.iter().map(|argument| {
            let mut argument = argument.replace("${STATE_DIRECTORY}", state.to_str().unwrap());
            for (old, new) in replacements {
                argument = argument.replace(old, new);
            }
            match argument.rsplit_once(':') {
                Some((head, _)) if argument.contains("://") => format!("{head}:0"),
                _ => argument,
            }
        });
        let mut command = Command::new(program);
        command.args(arguments).env("STATE_DIRECTORY", &state);
        self.run(&mut command)
    }

    fn run(&self, command: &mut Command) -> Service {
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Service(command.spawn().unwrap())
    }

    /// Returns the lines of the next notification.
    fn notification(&self) -> Vec<String> {
        let mut message = [0; 1024];
        let len = self.socket.recv(&mut message).unwrap();
        String::from_utf8(message[..len].to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    fn assert_quiet(&self) {
        self.socket.set_nonblocking(true).unwrap();
        assert!(self.socket.recv(&mut [0; 1024]).is_err(), "there is another notification");
        self.socket.set_nonblocking(false).unwrap();
    }
}

/// A running program. Dropping this value kills the program.
struct Service(Child);

impl Service {
    /// Returns the URLs in the next `lines` lines of the output.
    fn urls(&mut self, lines: usize) -> Vec<String> {
        let output = BufReader::new(self.0.stdout.as_mut().unwrap());
        let words = output.lines().take(lines).map(|line| line.unwrap().split_whitespace().last().unwrap().to_owned());
        words.filter(|word| word.contains("://")).collect()
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
    }

    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn unit(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("systemd/{name}.service"))).unwrap()
}

/// Returns the words of a unit's `ExecStart`, with the values of the variables that the unit defines.
fn exec_start(name: &str) -> Vec<String> {
    let unit = unit(name);
    let setting = |key: &'static str| unit.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='));
    let mut command = setting("ExecStart").next().unwrap().to_owned();
    for assignment in setting("Environment") {
        let (variable, value) = assignment.trim_matches('"').split_once('=').unwrap();
        for reference in [format!("${{{variable}}}"), format!("${variable}")] {
            command = command.replace(&reference, value);
        }
    }
    command.split_whitespace().map(str::to_owned).collect()
}

/// Calls procedure 0 of a program at a URL.
fn ping(url: &str, [program, version]: [&str; 2]) {
    let arguments = [url, "--program", program, "--version", version, "--count", "1", "--quiet"];
    let output = Command::new(env!("CARGO_BIN_EXE_rpcping")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Checks the notifications of a service from its start to its end. Once it is ready, each of the programs must be
/// served at the URL in the same position of the output.
fn starts_and_stops(manager: &Manager, mut service: Service, lines: usize, programs: &[[&str; 2]]) {
    assert_eq!(manager.notification(), ["READY=1"]);
    let urls = service.urls(lines);
    assert_eq!(urls.len(), programs.len(), "{urls:?}");
    for (url, program) in urls.iter().zip(programs) {
        ping(url, *program);
    }
    manager.assert_quiet();
    service.terminate();
    assert_eq!(manager.notification()[0], "STOPPING=1");
    assert!(service.0.wait().unwrap().success(), "{}", service.errors());
    manager.assert_quiet();
}

#[test]
fn blobstore_notifies_the_service_manager() {
    let manager = Manager::new();
    let service = manager.start("blobstore", env!("CARGO_BIN_EXE_blobstore"), &[]);
    starts_and_stops(&manager, service, 1, &[["0x20100b10", "1"]]);
    assert!(manager.folder.path().join("state").is_dir());
}

#[test]
fn nfs3d_notifies_the_service_manager() {
    let manager = Manager::new();
    let root = manager.folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let replacements = [("/srv/nfs", root.to_str().unwrap())];
    let service = manager.start("nfs3d", env!("CARGO_BIN_EXE_nfs3d"), &replacements);
    let (nfs, mount) = (["nfs", "3"], ["mount", "3"]);
    starts_and_stops(&manager, service, 4, &[nfs, nfs, mount]);
    assert!(manager.folder.path().join("state/key").is_file());
}

/// A service whose last listener cannot be bound is not ready.
#[test]
fn a_service_that_cannot_listen_is_not_ready() {
    let manager = Manager::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("tcp://{}", taken.local_addr().unwrap());
    let folder = manager.folder.path();
    fs::create_dir(folder.join("root")).unwrap();
    let mut blobstore = Command::new(env!("CARGO_BIN_EXE_blobstore"));
    blobstore
        .args(["serve", "--listen", "iwarp://127.0.0.1:0", "--listen", &taken, "--root"])
        .arg(folder.join("blobs"));
    let mut nfs3d = Command::new(env!("CARGO_BIN_EXE_nfs3d"));
    nfs3d.args(["--listen", "iwarp://127.0.0.1:0", "--mount", &taken, "--root"]).arg(folder.join("root"));
    nfs3d.arg("--state").arg(folder.join("state"));
    for command in [&mut blobstore, &mut nfs3d] {
        let mut service = manager.run(command);
        assert_eq!(service.0.wait().unwrap().code(), Some(1));
        let errors = service.errors();
        assert!(errors.contains("127.0.0.1"), "{errors}");
        manager.assert_quiet();
    }
}

/// A service reports that the notification socket does not exist, and still runs.
#[test]
fn a_missing_socket_is_not_fatal() {
    let manager = Manager::new();
    fs::remove_file(manager.folder.path().join("notify")).unwrap();
    let mut service = manager.start("blobstore", env!("CARGO_BIN_EXE_blobstore"), &[]);
    ping(&service.urls(1)[0], ["0x20100b10", "1"]);
    service.terminate();
    assert!(service.0.wait().unwrap().success());
    let errors = service.errors();
    assert!(errors.contains("cannot notify the service manager"), "{errors}");
}

/// The units have the type `notify`. They let systemd wait for a stop longer than the server's drain timeout of 30 s.
#[test]
fn units_wait_for_the_drain() {
    for name in ["blobstore", "nfs3d"] {
        let unit = unit(name);
        let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix('s')).unwrap();
        assert!(seconds.parse::<u32>().unwrap() > 30, "{name}");
        assert!(unit.lines().any(|line| line == "Type=notify"), "{name}");
    }
}

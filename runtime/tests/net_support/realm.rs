//! A Kerberos realm in a temporary directory, with a KDC of its own (`tests/krb5/realm`).
//!
//! The Kerberos library reads the environment of its process, so code that uses the realm runs in a child process with
//! the environment of the realm.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    env,
    ffi::OsString,
    fs,
    io::Write as _,
    net::TcpListener,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::UNIX_EPOCH,
};

/// The environment variable that is set in the child process.
const IN_REALM: &str = "RPCRDMA_TEST_REALM";

/// A realm in a temporary directory, with a running KDC.
struct Realm(PathBuf);

impl Realm {
    /// Makes a realm, and starts its KDC with the environment `variables`. Returns `None` if Kerberos is not installed.
    fn new(variables: &[(&str, OsString)]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let realm = Self(env::temp_dir().join(format!("rpcrdma-realm-{}", std::process::id())));
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/krb5/realm");
        let variables = variables.iter().cloned();
        let status = Command::new(script).arg(&realm.0).arg(port.to_string()).envs(variables).status().unwrap();
        match status.code() {
            Some(0) => Some(realm),
            Some(3) => None,
            _ => panic!("no realm: {status}"),
        }
    }

    fn variables(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.0.join("env")).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.0.join("kdc.pid")) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The time of day in the realm and in its processes, which the faketime library controls. Monotonic clocks are not
/// changed.
#[derive(Debug)]
pub struct RealmClock {
    file: PathBuf,
    /// The time of the stopped clock, in seconds since the epoch.
    now: u64,
}

impl RealmClock {
    /// The environment variable with the path of the file that sets the clock. The file contains an offset from the
    /// time of the system, or the time in seconds since the epoch.
    const FILE: &str = "FAKETIME_TIMESTAMP_FILE";

    /// Returns the environment variables of processes that use this clock. Returns `None` if faketime is not installed.
    fn variables() -> Option<[(&'static str, OsString); 5]> {
        let found = Command::new("faketime").args(["-f", "+0", "printenv", "LD_PRELOAD"]).output().ok()?;
        let library = String::from_utf8(found.stdout).unwrap();
        let file = env::temp_dir().join(format!("rpcrdma-realm-clock-{}", std::process::id()));
        fs::write(&file, "+0\n").unwrap();
        Some([
            ("LD_PRELOAD", library.trim().into()),
            (Self::FILE, file.into()),
            ("FAKETIME_FMT", "%s".into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ])
    }

    /// Stops the clock of this process. Returns `None` if the process has no clock of its own.
    pub fn stop() -> Option<Self> {
        let file = env::var_os(Self::FILE)?.into();
        let mut clock = Self { file, now: UNIX_EPOCH.elapsed().unwrap().as_secs() };
        clock.advance(0);
        Some(clock)
    }

    pub fn advance(&mut self, seconds: u64) {
        self.now += seconds;
        // A new file replaces the old one, so that readers always find a complete file.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{}\n", self.now)).unwrap();
        fs::rename(new, &self.file).unwrap();
    }
}

/// Runs `body` in a child process of this program that is in a realm. The realm has a clock of its own if faketime is
/// installed. Prints a note if Kerberos is not installed.
pub fn run_in_realm_with_clock(body: impl FnOnce()) -> ExitCode {
    if env::var_os(IN_REALM).is_some() {
        body();
        return ExitCode::SUCCESS;
    }
    let variables = RealmClock::variables();
    let code = run_in(variables.as_ref().map_or(&[], |variables| variables));
    if let Some([_, (_, file), ..]) = variables {
        let _ = fs::remove_file(file);
    }
    code
}

/// Runs `body` in a child process of this program that is in a realm. Prints a note if Kerberos is not installed.
pub fn run_in_realm(body: impl FnOnce()) -> ExitCode {
    if env::var_os(IN_REALM).is_some() {
        body();
        return ExitCode::SUCCESS;
    }
    run_in(&[])
}

/// Runs this program in a realm, with the environment `variables`.
fn run_in(variables: &[(&str, OsString)]) -> ExitCode {
    let Some(realm) = Realm::new(variables) else {
        println!("NOT RUN: Kerberos is not installed (krb5-kdc, krb5-admin-server, krb5-user)");
        return ExitCode::SUCCESS;
    };
    let program: OsString = env::current_exe().unwrap().into();
    let arguments = env::args_os().skip(1);
    let mut child = Command::new(program);
    child.args(arguments).envs(realm.variables()).envs(variables.iter().cloned()).env(IN_REALM, "1");
    let status = child.status().unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Obtains a ticket for the user alice. `lifetime` has a unit, such as `8s` or `1h`.
pub fn kinit(lifetime: &str) {
    let cache = env::var("KRB5CCNAME").unwrap();
    let path = cache.strip_prefix("FILE:").unwrap();
    // A new cache replaces the old one, so that the cache always has a ticket.
    let mut kinit = Command::new("kinit")
        .args(["-l", lifetime, "alice"])
        .env("KRB5CCNAME", format!("FILE:{path}.new"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    kinit.stdin.take().unwrap().write_all(b"alice\n").unwrap();
    assert!(kinit.wait().unwrap().success());
    fs::rename(format!("{path}.new"), path).unwrap();
}

//! A Kerberos realm in a temporary directory, with a KDC of its own (`tests/krb5/realm`).
//!
//! The library reads the environment of its process, so what uses the realm runs in a child process with the environment of the
//! realm.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    env,
    ffi::OsString,
    fs,
    io::Write as _,
    net::TcpListener,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

/// Set in the child process.
const IN_REALM: &str = "RPCRDMA_TEST_REALM";

/// A realm in a temporary directory, with a running KDC.
struct Realm(PathBuf);

impl Realm {
    /// Makes a realm. Returns `None` if Kerberos is not installed.
    fn new() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let realm = Self(env::temp_dir().join(format!("rpcrdma-realm-{}", std::process::id())));
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/krb5/realm");
        let status = Command::new(script).arg(&realm.0).arg(port.to_string()).status().unwrap();
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

/// Runs `body` in a child process of this program that is in a realm. Says so if Kerberos is not installed.
pub fn run_in_realm(body: impl FnOnce()) -> ExitCode {
    if env::var_os(IN_REALM).is_some() {
        body();
        return ExitCode::SUCCESS;
    }
    let Some(realm) = Realm::new() else {
        println!("NOT RUN: Kerberos is not installed (krb5-kdc, krb5-admin-server, krb5-user)");
        return ExitCode::SUCCESS;
    };
    let program: OsString = env::current_exe().unwrap().into();
    let arguments = env::args_os().skip(1);
    let status = Command::new(program).args(arguments).envs(realm.variables()).env(IN_REALM, "1").status().unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Obtains a ticket for the user alice.
pub fn kinit(lifetime: &str) {
    let cache = env::var("KRB5CCNAME").unwrap();
    let path = cache.strip_prefix("FILE:").unwrap();
    // Renamed afterwards, so that the cache always has a ticket.
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

//! The network of all scenarios: a namespace of its own with nothing but a loopback interface, where packets are dropped and connects
//! are counted. The kernel removes it with its last process.

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

/// Runs a tool, and returns its error message if it fails.
fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let command = || format!("{program} {}", arguments.join(" "));
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{}`, install it", command()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` failed: {}", command(), said.lines().next().unwrap_or_default().trim());
    Ok(())
}

/// The network of the scenarios.
#[derive(Debug)]
pub(crate) enum Network {
    /// A namespace that only this program and its children use.
    Own,
    /// The namespace of the caller. The text says why.
    Shared(String),
}

/// Starts this program again in a network namespace of its own. Returns the reason if that is not possible.
pub(crate) fn isolate() -> String {
    let forms: &[&[&str]] = &[&["--net"], &["--user", "--map-root-user", "--net"]];
    let mut reason = String::new();
    for form in forms {
        match run("unshare", &[form, &["true"][..]].concat()) {
            Ok(()) => {
                let Ok(program) = env::current_exe() else { return "this program has no path".to_owned() };
                let mut command = Command::new("unshare");
                command.args(*form).arg("--").arg(program).args(env::args_os().skip(1)).arg("--isolated");
                return format!("cannot run unshare: {}", command.exec());
            }
            Err(error) => reason = format!("{error:#}"),
        }
    }
    reason
}

impl Network {
    /// Returns the network of this process, which [`isolate`] has started, or has not been able to.
    pub(crate) fn new(is_isolated: bool, reason: String) -> anyhow::Result<Self> {
        if !is_isolated {
            return Ok(Self::Shared(reason));
        }
        run("ip", &["link", "set", "lo", "up"])?;
        Ok(Self::Own)
    }

    /// Returns the number of TCP connections that processes of the network have tried to make.
    pub(crate) fn connects(&self) -> Option<u64> {
        match self {
            Self::Own => active_opens(&fs::read_to_string("/proc/self/net/snmp").ok()?),
            Self::Shared(_) => None,
        }
    }

    /// Returns a packet filter without rules.
    pub(crate) fn filter(&self) -> anyhow::Result<Filter> {
        if let Self::Shared(reason) = self {
            bail!("no network namespace: {reason}");
        }
        // Removes what an earlier scenario has left.
        run("nft", &["add", "table", "inet", "outages"])?;
        run("nft", &["delete", "table", "inet", "outages"])?;
        run("nft", &["add", "table", "inet", "outages"])?;
        run("nft", &["add", "chain", "inet", "outages", "input", "{ type filter hook input priority 0; }"])?;
        Ok(Filter(()))
    }

    /// Delays all packets.
    pub(crate) fn delay(&self, delay: &str) -> anyhow::Result<Delay> {
        if let Self::Shared(reason) = self {
            bail!("no network namespace: {reason}");
        }
        run("tc", &["qdisc", "add", "dev", "lo", "root", "netem", "delay", delay])?;
        Ok(Delay(()))
    }
}

/// A packet filter. Its rules are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Filter(());

impl Filter {
    /// Applies a verdict to packets that a port receives: `drop`, or `reject with tcp reset`.
    pub(crate) fn received_by(&self, port: u16, verdict: &str) -> anyhow::Result<()> {
        self.add(&format!("tcp dport {port} {verdict}"))
    }

    /// Applies a verdict to packets that a port sends.
    pub(crate) fn sent_by(&self, port: u16, verdict: &str) -> anyhow::Result<()> {
        self.add(&format!("tcp sport {port} {verdict}"))
    }

    fn add(&self, rule: &str) -> anyhow::Result<()> {
        run("nft", &["add", "rule", "inet", "outages", "input", rule])
    }

    /// Lets all packets through again.
    pub(crate) fn heal(&self) -> anyhow::Result<()> {
        run("nft", &["flush", "chain", "inet", "outages", "input"])
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        let _ = run("nft", &["delete", "table", "inet", "outages"]);
    }
}

/// A delay of all packets, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Delay(());

impl Drop for Delay {
    fn drop(&mut self) {
        let _ = run("tc", &["qdisc", "del", "dev", "lo", "root"]);
    }
}

/// Reads the number of active opens from `/proc/net/snmp`.
fn active_opens(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split(' ').position(|name| name == "ActiveOpens")?;
    values.split(' ').nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_opens_are_read() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin MaxConn ActiveOpens PassiveOpens\nTcp: 200 -1 42 7\n";
        assert_eq!(active_opens(text), Some(42));
        assert_eq!(active_opens("Tcp: RtoMin\n"), None);
    }

    #[test]
    fn errors_of_tools_say_what_failed() {
        let said = format!("{:#}", run("ls", &["/nonexistent"]).unwrap_err());
        assert!(said.starts_with("`ls /nonexistent` failed: "), "{said}");
        let said = format!("{:#}", run("no-such-tool", &[]).unwrap_err());
        assert!(said.starts_with("cannot run `no-such-tool"), "{said}");
    }
}

//! The network of all scenarios: if possible, a namespace of its own with nothing but a loopback interface, where
//! packets are dropped or delayed, and connects are counted. The kernel removes the namespace when its last process
//! ends.

use std::fs;

use anyhow::bail;
use rpcrdma_trials::namespace::run_tool;

/// The network namespace of the scenarios.
#[derive(Debug)]
pub(crate) enum Network {
    /// A namespace that only this program and its children use.
    Own,
    /// The namespace of the caller, with the reason why there is no other.
    Shared(String),
}

impl Network {
    /// Returns the network of this process. `is_isolated` is `true` if [`isolate`](rpcrdma_trials::namespace::isolate)
    /// has started the process. Otherwise, `reason` is the reason why it could not.
    pub(crate) fn new(is_isolated: bool, reason: String) -> anyhow::Result<Self> {
        if !is_isolated {
            return Ok(Self::Shared(reason));
        }
        run_tool("ip", &["link", "set", "lo", "up"])?;
        Ok(Self::Own)
    }

    /// Returns the number of TCP connections that processes of the network have tried to make. Returns `None` in a
    /// shared namespace, or if the kernel does not report the number.
    pub(crate) fn connects(&self) -> Option<u64> {
        match self {
            Self::Own => active_opens(&fs::read_to_string("/proc/self/net/snmp").ok()?),
            Self::Shared(_) => None,
        }
    }

    /// Returns a packet filter without rules. Fails in a shared namespace, or if `nft` fails.
    pub(crate) fn filter(&self) -> anyhow::Result<Filter> {
        if let Self::Shared(reason) = self {
            bail!("no network namespace: {reason}");
        }
        // Removes what an earlier scenario has left.
        run_tool("nft", &["add", "table", "inet", "outages"])?;
        run_tool("nft", &["delete", "table", "inet", "outages"])?;
        run_tool("nft", &["add", "table", "inet", "outages"])?;
        run_tool("nft", &["add", "chain", "inet", "outages", "input", "{ type filter hook input priority 0; }"])?;
        Ok(Filter(()))
    }

    /// Delays all packets by a duration in the notation of `tc`, until the result is dropped. Fails in a shared
    /// namespace, or if `tc` fails.
    pub(crate) fn delay(&self, delay: &str) -> anyhow::Result<Delay> {
        if let Self::Shared(reason) = self {
            bail!("no network namespace: {reason}");
        }
        run_tool("tc", &["qdisc", "add", "dev", "lo", "root", "netem", "delay", delay])?;
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
        run_tool("nft", &["add", "rule", "inet", "outages", "input", rule])
    }

    /// Lets all packets through again.
    pub(crate) fn heal(&self) -> anyhow::Result<()> {
        run_tool("nft", &["flush", "chain", "inet", "outages", "input"])
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        let _ = run_tool("nft", &["delete", "table", "inet", "outages"]);
    }
}

/// A delay of all packets, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Delay(());

impl Drop for Delay {
    fn drop(&mut self) {
        let _ = run_tool("tc", &["qdisc", "del", "dev", "lo", "root"]);
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
}

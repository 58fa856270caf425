//! The keep-alive timers of the sockets of a connection.
#![allow(missing_docs, unreachable_pub)]

/// Returns `true` if both sockets of a local connection to this port have the keep-alive timer running.
// Linux, Documentation/networking/proc_net_tcp.rst: `tr` is 2 for the keep-alive timer.
pub fn both_ask(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    let asking = table.lines().filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, _, timer, ..] = fields[..] else { return false };
        (local.ends_with(&port) || remote.ends_with(&port)) && state == "01" && timer.starts_with("02:")
    });
    asking.count() == 2
}

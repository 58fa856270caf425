//! The report of a run, as text and as JSON.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use rpcrdma::{
    client::{CallFormats, Channel, ChannelInfo, FormatCounts},
    engine::{ConnectionCounters, ReverseDirection},
    transport::Transport,
};
use serde_json::{Value, json};

use crate::{
    cli::{Cli, program_name},
    failure::Failure,
};

/// The results of a run of `rpcping`: the connection, its calls, and the last failure.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Time it took to connect, and the connection's properties.
    connected: Option<(Duration, ChannelInfo)>,
    counters: ConnectionCounters,
    formats: CallFormats,
    /// Number of calls made.
    pub(crate) calls: u32,
    /// Latencies of the successful calls.
    pub(crate) latencies: Vec<Duration>,
    /// The last failure, if a call failed or no connection was established.
    pub(crate) failure: Option<Failure>,
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn reverse(level: ReverseDirection) -> &'static str {
    match level {
        ReverseDirection::None => "none",
        ReverseDirection::Simple => "in one Send",
        ReverseDirection::Continued => "in several Sends",
        _ => "in any format",
    }
}

/// Returns the counts of the message formats with their names. Omits messages that an extension conveyed.
fn named(counts: &FormatCounts) -> [(&'static str, u64); 5] {
    let FormatCounts { short, chunked, continued, long, record, .. } = *counts;
    [("short", short), ("chunked", chunked), ("continued", continued), ("long", long), ("record", record)]
}

fn formats(counts: &FormatCounts) -> String {
    let used = named(counts).into_iter().filter(|(_, count)| *count > 0);
    used.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(" ")
}

fn counts(counts: &FormatCounts) -> Value {
    named(counts).into_iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect()
}

/// Prints the outcome of one call.
pub(crate) fn print_call(sequence: u32, result: Result<Duration, &Failure>) -> io::Result<()> {
    match result {
        Ok(took) => writeln!(io::stdout(), "reply {sequence}: {:.3} ms", milliseconds(took)),
        Err(_) => writeln!(io::stdout(), "call {sequence}: failed"),
    }
}

impl Report {
    pub(crate) fn connected(&mut self, took: Duration, channel: &Channel) {
        self.connected = Some((took, channel.info()));
    }

    pub(crate) fn counted(&mut self, channel: &Channel) {
        self.counters = channel.counters();
        self.formats = channel.formats();
        // The version and the peer's properties are known once the first reply has arrived.
        if let Some((_, info)) = &mut self.connected {
            *info = channel.info();
        }
    }

    /// Returns the minimum, median and maximum latency, or `None` if no call has succeeded.
    fn latency(&self) -> Option<[Duration; 3]> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        Some([*sorted.first()?, *sorted.get(sorted.len() / 2)?, *sorted.last()?])
    }

    /// Prints the connection's parameters. Use it after the first call, because the reply to that call carries the
    /// credits.
    pub(crate) fn print_negotiated(&self, cli: &Cli) -> io::Result<()> {
        let Some((took, info)) = &self.connected else { return Ok(()) };
        let mut out = io::stdout().lock();
        let name = program_name(cli.program).map(|name| format!(" ({name})")).unwrap_or_default();
        writeln!(out, "RPCPING {}: program {}{name} version {}", cli.url, cli.program, cli.version)?;
        writeln!(
            out,
            "  peer          {}, connected from {} in {:.3} ms",
            info.peer_addr,
            info.local_addr,
            milliseconds(*took)
        )?;
        match info.version {
            Some(version) => writeln!(out, "  transport     {} version {version}", info.transport)?,
            None => writeln!(out, "  transport     {}", info.transport)?,
        }
        if info.transport == Transport::Rdma {
            let invalidation = if info.remote_invalidation { "remote, by Send with Invalidate" } else { "local" };
            let private_data = if info.private_data.is_empty() { "none".to_owned() } else { hex(&info.private_data) };
            writeln!(out, "  credits       {} granted", self.counters.credits_granted)?;
            writeln!(
                out,
                "  inline        {} bytes to send, {} to receive",
                info.send_threshold, info.receive_threshold
            )?;
            writeln!(out, "  invalidation  {invalidation}")?;
            writeln!(out, "  private data  {private_data}")?;
        }
        if let Some(peer) = &info.properties {
            writeln!(out, "  peer inline   {} bytes to send, {} to receive", peer.send_size, peer.receive_size)?;
            writeln!(out, "  peer chunks   up to {} segments of {} bytes", peer.segments, peer.segment_len)?;
            writeln!(out, "  peer reverse  calls accepted: {}", reverse(peer.reverse))?;
        }
        out.flush()
    }

    pub(crate) fn print_summary(&self, cli: &Cli) -> io::Result<()> {
        if self.calls == 0 {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "--- {}: {} calls, {} replies", cli.url, self.calls, self.latencies.len())?;
        if let Some([min, median, max]) = self.latency().map(|latency| latency.map(milliseconds)) {
            writeln!(out, "latency min/median/max = {min:.3}/{median:.3}/{max:.3} ms")?;
            writeln!(
                out,
                "message formats: calls {}, replies {}",
                formats(&self.formats.calls),
                formats(&self.formats.replies)
            )?;
        }
        out.flush()
    }

    pub(crate) fn print_json(&self, cli: &Cli) -> io::Result<()> {
        let negotiated = self.connected.as_ref().map(|(took, info)| {
            let rdma = info.transport == Transport::Rdma;
            let if_rdma = |value: Value| if rdma { value } else { Value::Null };
            json!({
                "peer": info.peer_addr.to_string(),
                "local": info.local_addr.to_string(),
                "connect_ms": milliseconds(*took),
                "transport": if rdma { "rdma" } else { "tcp" },
                "credits": if_rdma(self.counters.credits_granted.into()),
                "inline_send": if_rdma(info.send_threshold.into()),
                "inline_receive": if_rdma(info.receive_threshold.into()),
                "remote_invalidation": if_rdma(info.remote_invalidation.into()),
                "private_data": if_rdma(hex(&info.private_data).into()),
                "rpcrdma_version": info.version,
                "properties": info.properties.map(|peer| json!({
                    "send_size": peer.send_size,
                    "receive_size": peer.receive_size,
                    "segment_len": peer.segment_len,
                    "segments": peer.segments,
                    "reverse_direction": reverse(peer.reverse),
                })),
            })
        });
        let latency = self.latency().map(|latency| latency.map(milliseconds));
        let report = json!({
            "url": cli.url,
            "program": cli.program,
            "version": cli.version,
            "calls": self.calls,
            "answered": self.latencies.len(),
            "connection": negotiated,
            "latency_ms": latency.map(|[min, median, max]| json!({ "min": min, "median": median, "max": max })),
            "formats": json!({ "calls": counts(&self.formats.calls), "replies": counts(&self.formats.replies) }),
            "error": self.failure.as_ref().map(|Failure { kind, message }| {
                json!({ "kind": kind.as_str(), "message": message })
            }),
        });
        writeln!(io::stdout(), "{report:#}")
    }
}

//! The screen of `rpctop`: tables of the procedures, the connections and the slowest calls of a server.

use std::{collections::HashMap, time::Duration};

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Borders, Cell, Paragraph, Row, Table},
};
use rpcrdma::introspection::protocol::{InspectConnection, InspectCounters, InspectProcedure, InspectTransport};
use rpcrdma_examples::{
    command::{Printable, human_bytes},
    inspect::{Snapshot, seconds},
};

/// The latest snapshot of a server, which is shown, and an earlier one. Rates cover the time between the two snapshots.
/// Without an earlier snapshot, they cover the server's uptime.
pub(crate) struct View<'a> {
    pub(crate) url: &'a str,
    pub(crate) before: Option<&'a Snapshot>,
    pub(crate) now: &'a Snapshot,
    /// The error of the latest update, if it failed.
    pub(crate) error: Option<&'a str>,
}

/// The row of a procedure: its rate and its average duration between two snapshots.
struct ProcedureRow<'a> {
    procedure: &'a InspectProcedure,
    rate: f64,
    /// Average duration in seconds of the calls between the snapshots, or of all calls if there were none between them.
    average: f64,
}

impl View<'_> {
    /// Returns the time that the rates cover, in seconds.
    fn elapsed(&self) -> f64 {
        let before = self.before.map_or(0, |before| before.server.uptime);
        seconds(self.now.server.uptime.saturating_sub(before)).max(1e-9)
    }

    fn rate(&self, now: u64, before: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.elapsed()
    }

    /// Draws the state of the server on the whole screen.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let procedures = self.procedures();
        let tables = [procedures.len(), self.now.connections.len(), self.now.slowest.len()];
        let heights = heights(frame.area().height.saturating_sub(5), tables);
        let [header, top, middle, bottom, footer] = Layout::vertical([
            Constraint::Length(4),
            Constraint::Length(heights[0]),
            Constraint::Length(heights[1]),
            Constraint::Length(heights[2]),
            Constraint::Min(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.header()), header);
        self.draw_procedures(frame, top, procedures);
        self.draw_connections(frame, middle);
        self.draw_slowest(frame, bottom);
        let footer_text = self.error.map_or_else(|| "q: quit".to_owned(), |error| format!("not updated: {error}"));
        frame.render_widget(Paragraph::new(footer_text), footer);
    }

    fn header(&self) -> Vec<Line<'_>> {
        let server = &self.now.server;
        let implementation = server.implementation.to_string();
        let state = if server.draining { "shutting down" } else { "serving" };
        let before = self.before.map(|before| &before.server.counters);
        let counters = &server.counters;
        let per_second = |field: fn(&InspectCounters) -> u64| {
            let rate = self.rate(field(counters), before.map_or(0, field));
            format!("{}/s", human_bytes(rate as u64))
        };
        vec![
            Line::styled(
                format!("{}  {}  up {}  {state}", self.url, Printable(&implementation), span(server.uptime)),
                Style::new().add_modifier(Modifier::BOLD),
            ),
            Line::raw(format!(
                "connections  {} open, {} accepted, {} closed, {} not set up; {} credits each",
                server.open, server.accepted, server.closed, server.setup_failed, server.credits
            )),
            Line::raw(format!(
                "memory       {} of {} held by calls, {} waiting; pool {} in use, {} kept; {} exposed",
                human_bytes(server.memory_held),
                human_bytes(server.memory_limit),
                server.memory_waiting,
                server.pool_buffers,
                human_bytes(server.pool_kept),
                counters.exposed_regions
            )),
            Line::raw(format!(
                "data         sent {}, received {}, RDMA Read {}, RDMA Write {}",
                per_second(|it| it.bytes_sent),
                per_second(|it| it.bytes_received),
                per_second(|it| it.rdma_read_bytes),
                per_second(|it| it.rdma_write_bytes)
            )),
        ]
    }

    /// Returns the procedures that have been called, in descending order of their rates.
    fn procedures(&self) -> Vec<ProcedureRow<'_>> {
        let key = |program, version, number| (program, version, number);
        let before: HashMap<_, _> = self
            .before
            .into_iter()
            .flat_map(|before| &before.services)
            .flat_map(|(service, procedures)| {
                procedures.iter().map(move |it| (key(service.program, service.version, it.number), it))
            })
            .collect();
        let mut rows = Vec::new();
        for (service, procedures) in &self.now.services {
            for procedure in procedures.iter().filter(|it| it.calls > 0 || it.active > 0) {
                let before = before.get(&key(service.program, service.version, procedure.number));
                let (calls, time) = before.map_or((0, 0), |before| (before.calls, before.total_time));
                let mut average = (procedure.calls.saturating_sub(calls), procedure.total_time.saturating_sub(time));
                if average.0 == 0 {
                    average = (procedure.calls, procedure.total_time);
                }
                rows.push(ProcedureRow {
                    procedure,
                    rate: self.rate(procedure.calls, calls),
                    average: seconds(average.1) / average.0.max(1) as f64,
                });
            }
        }
        rows.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.procedure.calls.cmp(&a.procedure.calls)));
        rows
    }

    fn draw_procedures(&self, frame: &mut Frame<'_>, area: Rect, procedures: Vec<ProcedureRow<'_>>) {
        let rows = procedures.iter().map(|row| {
            let it = row.procedure;
            [
                Printable(&it.name.to_string()).to_string(),
                format!("{:.1}", row.rate),
                it.active.to_string(),
                time(row.average),
                time(seconds(it.max_time)),
                it.calls.to_string(),
                it.failed.to_string(),
            ]
        });
        let header = ["PROCEDURE", "CALLS/S", "ACTIVE", "AVERAGE", "MAX", "CALLS", "FAILED"];
        frame.render_widget(table("Procedures", header, rows.collect(), area.width), area);
    }

    fn draw_connections(&self, frame: &mut Frame<'_>, area: Rect) {
        let before: HashMap<_, _> = self
            .before
            .into_iter()
            .flat_map(|before| &before.connections)
            .map(|connection| (connection.id, &connection.counters))
            .collect();
        let rate = |connection: &InspectConnection, field: fn(&InspectCounters) -> u64| {
            self.rate(field(&connection.counters), before.get(&connection.id).map_or(0, |before| field(before)))
        };
        let mut connections: Vec<_> =
            self.now.connections.iter().map(|it| (rate(it, |it| it.calls_received), it)).collect();
        connections.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let rows = connections.iter().map(|(calls, it)| {
            let transport = match (it.transport, it.version) {
                (InspectTransport::InspectTcp, _) => "tcp".to_owned(),
                (_, 0) => "rdma".to_owned(),
                (_, version) => format!("rdma v{version}"),
            };
            let data = |a: fn(&InspectCounters) -> u64, b: fn(&InspectCounters) -> u64| {
                format!("{}/s", human_bytes((rate(it, a) + rate(it, b)) as u64))
            };
            let in_progress = it.counters.calls_received.saturating_sub(it.counters.replies_sent);
            [
                Printable(&it.peer.to_string()).to_string(),
                transport,
                span(it.age),
                format!("{calls:.1}"),
                in_progress.to_string(),
                data(|it| it.bytes_received, |it| it.rdma_read_bytes),
                data(|it| it.bytes_sent, |it| it.rdma_write_bytes),
            ]
        });
        let header = ["PEER", "WIRE", "AGE", "CALLS/S", "ACTIVE", "FROM PEER", "TO PEER"];
        frame.render_widget(table("Connections", header, rows.collect(), area.width), area);
    }

    fn draw_slowest(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.now.slowest.iter().map(|it| {
            [
                Printable(&it.name.to_string()).to_string(),
                time(seconds(it.duration)),
                format!("{} ago", span(it.ago)),
                if it.failed { "failed" } else { "ok" }.to_owned(),
                Printable(&it.peer.to_string()).to_string(),
            ]
        });
        let header = ["PROCEDURE", "DURATION", "ENDED", "RESULT", "PEER"];
        frame.render_widget(table("Slowest calls of the last minutes", header, rows.collect(), area.width), area);
    }
}

/// Returns a table that fits into `width` columns of text. If necessary, the first column is shortened, and an ellipsis
/// marks its texts. If that does not suffice, the last columns are omitted, and the title says so. Numbers are never
/// cut.
fn table<'a, const N: usize>(title: &str, header: [&'a str; N], rows: Vec<[String; N]>, width: u16) -> Table<'a> {
    let widths = fit(&header, &rows, usize::from(width));
    let title = match N - widths.len() {
        0 => title.to_owned(),
        hidden => format!("{title} (make the terminal wider for {hidden} more columns)"),
    };
    let shown = widths.len();
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| Row::new(row.into_iter().zip(&widths).map(|(text, width)| Cell::from(shorten(text, *width)))))
        .collect();
    let constraints = widths.into_iter().map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    Table::new(rows, constraints)
        .header(Row::new(header.into_iter().take(shown)).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::new().borders(Borders::TOP).title(title))
}

/// Returns the widths of the columns that fit into `width`. There is always at least the first column.
fn fit<const N: usize>(header: &[&str; N], rows: &[[String; N]], width: usize) -> Vec<usize> {
    /// Minimum width of the first column. Other columns are omitted if it would become narrower.
    const MIN_FIRST: usize = 16;
    let longest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
        cells.chain(header.get(column).map(|text| text.chars().count())).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..N).map(longest).collect();
    // A space separates columns.
    let others = |widths: &[usize]| widths.iter().skip(1).map(|width| width + 1).sum::<usize>();
    let Some(&first) = widths.first() else { return widths };
    while widths.len() > 1 && others(&widths) + first.min(MIN_FIRST) > width {
        widths.pop();
    }
    let room = width.saturating_sub(others(&widths));
    if let Some(first) = widths.first_mut() {
        *first = room.min(*first);
    }
    widths
}

/// Shortens `text` to `width` characters. If text is removed, the last character is an ellipsis.
fn shorten(text: String, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text,
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Divides `lines` among three tables. `rows` contains the number of rows of each table. A table needs three lines more
/// than it has rows. Tables that are too long share the lines that shorter tables leave.
fn heights(lines: u16, rows: [usize; 3]) -> [u16; 3] {
    let wanted = rows.map(|rows| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(3));
    let mut heights = [0; 3];
    let (mut left, mut open) = (lines, vec![0_usize, 1, 2]);
    while !open.is_empty() {
        let share = left / open.len() as u16;
        let (short, long): (Vec<usize>, Vec<usize>) = open.iter().partition(|&&index| wanted[index] <= share);
        let given = if short.is_empty() { &long } else { &short };
        for &index in given {
            heights[index] = wanted[index].min(share);
            left -= heights[index];
        }
        open = if short.is_empty() { Vec::new() } else { long };
    }
    heights
}

/// Formats a duration, given in seconds, with a suitable unit.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Formats a long duration, given in nanoseconds, in whole seconds, minutes, hours or days.
fn span(nanos: u64) -> String {
    match Duration::from_nanos(nanos).as_secs() {
        s if s < 120 => format!("{s}s"),
        s if s < 7200 => format!("{}m", s / 60),
        s if s < 172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tables_share_the_screen() {
        assert_eq!(heights(30, [2, 2, 2]), [5, 5, 5]);
        assert_eq!(heights(30, [100, 2, 2]), [20, 5, 5]);
        assert_eq!(heights(30, [100, 2, 100]), [12, 5, 12]);
        assert_eq!(heights(3, [100, 100, 100]), [1, 1, 1]);
        assert_eq!(heights(0, [usize::MAX, 0, 1]), [0, 0, 0]);
    }

    /// At terminal widths from 0 to 120 columns, numbers are complete or their column is omitted.
    #[test]
    fn numbers_are_not_cut() {
        let header = ["PROCEDURE", "CALLS/S", "AVERAGE", "CALLS"];
        let cells = ["BLOBSTORE_V1.BLOBSTORE_GET_RANGE", "123456789.0", "123.4 ms", "18446744073709551615"];
        for width in 0..=120 {
            let widths = fit(&header, &[cells.map(str::to_owned)], width);
            let used: usize = widths.iter().map(|width| width + 1).sum::<usize>() - 1;
            assert!(used <= width || widths.len() == 1, "{widths:?} in {width}");
            for (text, width) in cells.iter().zip(&widths).skip(1) {
                assert!(text.len() <= *width);
                assert_eq!(shorten((*text).to_owned(), *width), *text);
            }
        }
        assert_eq!(fit(&header, &[cells.map(str::to_owned)], 80), [32, 11, 8, 20]);
        assert_eq!(fit(&header, &[cells.map(str::to_owned)], 60), [18, 11, 8, 20]);
        assert_eq!(fit(&header, &[cells.map(str::to_owned)], 50), [29, 11, 8]);
        assert_eq!(shorten("BLOBSTORE_V1.GET".to_owned(), 10), "BLOBSTORE…");
        assert_eq!(shorten("µµµ".to_owned(), 3), "µµµ");
    }

    #[test]
    fn units() {
        let times = [0.0, 0.000_000_4, 0.000_25, 0.0125, 1.5].map(time);
        assert_eq!(times, ["0 ns", "400 ns", "250 µs", "12.5 ms", "1.50 s"]);
        let seconds = [0, 119, 120, 7200, 200_000].map(|seconds: u64| span(seconds * 1_000_000_000));
        assert_eq!(seconds, ["0s", "119s", "2m", "2h", "2d"]);
    }
}

//! The program `rpctop`, which shows what a running RPC server does. See `rpctop --help`.
#![forbid(unsafe_code)]

mod cli;
mod view;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};
use rpcrdma::client::{CallError, Channel};
use rpcrdma_examples::{
    command::{self, Stop, explain_connect_error, unless_stopped},
    inspect::{Inspector, Snapshot, explain},
};
use tokio::sync::mpsc;

use crate::{cli::Cli, view::View};

const NAME: &str = "rpctop";

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    command::run(NAME, run(cli))
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    if !cli.json && !cli.plain && !io::stdout().is_terminal() {
        bail!("standard output is not a terminal: use --json or --plain");
    }
    let builder = Channel::builder().versions(cli.rpcrdma.allowed()).connect_timeout(cli.timeout);
    let builder = cli.sec.secure(builder, "host", &cli.url)?;
    let channel = builder.connect(&cli.url).await.map_err(|error| anyhow!(explain_connect_error(&error)))?;
    let inspector = Inspector::new(channel, cli.timeout);
    if cli.json {
        let state = unless_stopped(inspect(&cli, &inspector)).await?;
        // Ignore write errors: the reader of standard output may have exited.
        let _ = writeln!(io::stdout(), "{:#}", state.to_json());
        return Ok(());
    }
    if cli.plain {
        return unless_stopped(print_screen(&cli, &inspector)).await;
    }
    let first = inspect(&cli, &inspector).await?;
    let stop = Stop::new().context("cannot catch signals")?;
    let terminal = ratatui::try_init().context("cannot use the terminal")?;
    let shown = show(&cli, &inspector, first, terminal, stop).await;
    ratatui::restore();
    shown
}

async fn inspect(cli: &Cli, inspector: &Inspector) -> anyhow::Result<Snapshot> {
    inspector.snapshot().await.map_err(|error| anyhow!(explain(&cli.url, &error)))
}

/// Prints one screen as text.
async fn print_screen(cli: &Cli, inspector: &Inspector) -> anyhow::Result<()> {
    let before = inspect(cli, inspector).await?;
    tokio::time::sleep(cli.interval).await;
    let now = inspect(cli, inspector).await?;
    let mut terminal = Terminal::new(TestBackend::new(cli.width, cli.height)).context("cannot make a screen")?;
    let view = View { url: &cli.url, before: Some(&before), now: &now, error: None };
    terminal.draw(|frame| view.draw(frame)).context("cannot draw the screen")?;
    let buffer = terminal.backend().buffer();
    let mut out = io::stdout().lock();
    for cells in buffer.content().chunks(usize::from(cli.width)) {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        let _ = writeln!(out, "{}", line.trim_end());
    }
    Ok(())
}

/// Shows the state of the server in the terminal until the user quits.
async fn show(
    cli: &Cli,
    inspector: &Inspector,
    first: Snapshot,
    mut terminal: ratatui::DefaultTerminal,
    mut stop: Stop,
) -> anyhow::Result<()> {
    let mut events = events();
    let (mut before, mut now, mut error) = (None, first, None);
    let mut snapshots = snapshots(inspector.clone(), cli.interval.max(Duration::from_millis(100)));
    loop {
        let view = View { url: &cli.url, before: before.as_ref(), now: &now, error: error.as_deref() };
        terminal.draw(|frame| view.draw(frame)).context("cannot draw the screen")?;
        tokio::select! {
            () = stop.next() => return Ok(()),
            event = events.recv() => match event {
                Some(UserEvent::Quit) | None => return Ok(()),
                Some(UserEvent::Redraw) => {}
            },
            Some(state) = snapshots.recv() => match state {
                Ok(state) => {
                    before = Some(std::mem::replace(&mut now, state));
                    error = None;
                }
                // A server that restarts is shown again once it is back.
                Err(failed) => error = Some(explain(&cli.url, &failed)),
            },
        }
    }
}

/// Reads the state of the server at intervals, in a task that ends when the receiver is dropped. The user can therefore
/// quit while the server does not answer.
fn snapshots(inspector: Inspector, interval: Duration) -> mpsc::Receiver<Result<Snapshot, CallError>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let reading = async {
            loop {
                tokio::time::sleep(interval).await;
                if sender.send(inspector.snapshot().await).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = reading => {}
            () = sender.closed() => {}
        }
    });
    receiver
}

/// An event of the terminal that the program reacts to.
enum UserEvent {
    Quit,
    Redraw,
}

/// Reads the events of the terminal in a thread, which ends when the receiver is dropped.
fn events() -> mpsc::Receiver<UserEvent> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(Duration::from_millis(200)) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let event = match event {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => UserEvent::Quit,
                    // The terminal is in raw mode, where this is not a signal.
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => UserEvent::Quit,
                    _ => continue,
                },
                Ok(Event::Resize(..)) => UserEvent::Redraw,
                Ok(_) => continue,
                Err(_) => UserEvent::Quit,
            };
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

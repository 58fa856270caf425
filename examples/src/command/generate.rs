//! The option `--generate`: shell completions and the man page.
//!
//! `xdrgen` and the example programs have the same copy of this file.

use std::{
    env,
    ffi::OsString,
    io::{self, ErrorKind, Write},
    process,
};

use clap::{Arg, Command, Parser, ValueEnum, builder::EnumValueParser, error::ErrorKind as UsageError};
use clap_complete::Shell;
use clap_mangen::{Man, roff::Roff};

const OPTION: &str = "generate";

/// Document that describes the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Document {
    CompletionsBash,
    CompletionsElvish,
    CompletionsFish,
    CompletionsPowershell,
    CompletionsZsh,
    Man,
}

/// Parses the command line of the process. With `--generate`, prints the document and exits instead. Exits on wrong
/// usage, like [`Parser::parse`].
///
/// # Errors
/// Fails if the document cannot be written to standard output.
pub(crate) fn parse<C: Parser>() -> io::Result<C> {
    let mut command = C::command().arg(option());
    let arguments: Vec<OsString> = env::args_os().collect();
    if let Some(document) = requested(&arguments) {
        return match print(command, document) {
            // The reader has seen enough, for example `head`.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => process::exit(0),
        };
    }
    let matches = command.try_get_matches_from_mut(arguments).unwrap_or_else(|error| error.exit());
    if matches.contains_id(OPTION) {
        command.error(UsageError::ArgumentConflict, "`--generate` must be the only argument").exit();
    }
    Ok(C::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit()))
}

fn option() -> Arg {
    Arg::new(OPTION)
        .long(OPTION)
        .value_name("DOCUMENT")
        .value_parser(EnumValueParser::<Document>::new())
        .exclusive(true)
        .help("Print a shell completion script or the man page")
}

/// Returns the document to print if `--generate` is the only argument. A command line without required arguments would
/// not pass the program's own parser.
fn requested(arguments: &[OsString]) -> Option<Document> {
    let is_option = |argument: &OsString| argument.to_str().is_some_and(|text| text.starts_with("--generate"));
    if !arguments.get(1).is_some_and(is_option) {
        return None;
    }
    // The program's own parser reports errors.
    let matches = Command::new(OPTION).arg(option()).try_get_matches_from(arguments).ok()?;
    matches.get_one(OPTION).copied()
}

fn print(mut command: Command, document: Document) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let shell = match document {
        Document::CompletionsBash => Shell::Bash,
        Document::CompletionsElvish => Shell::Elvish,
        Document::CompletionsFish => Shell::Fish,
        Document::CompletionsPowershell => Shell::PowerShell,
        Document::CompletionsZsh => Shell::Zsh,
        Document::Man => return write(&man_page(command)?),
    };
    // `clap_complete` panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    write(&script)
}

fn write(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// Returns the man page. It describes the subcommands too, in one subsection each.
fn man_page(command: Command) -> io::Result<Vec<u8>> {
    let mut command = command.disable_help_subcommand(true).subcommand_value_name("command");
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    // `Man::render_title` omits an empty date, so that the next argument takes its place.
    let source = format!("{} {}", command.get_name(), command.get_version().unwrap_or_default());
    Roff::new().control("TH", [command.get_name(), "1", "\"\"", source.trim_end()]).to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        heading(&mut page, "SH", "SUBCOMMANDS")?;
        subcommands(&mut page, &command)?;
    }
    if has_notes(&command) {
        heading(&mut page, "SH", "NOTES")?;
        page.extend(without_headings(|out| man.render_extra_section(out))?);
    }
    // Each part begins with the same two lines, which define the apostrophe. One copy is enough.
    let is_repeated =
        |(index, line): &(usize, &[u8])| *index > 1 && (line.starts_with(b".ie ") || line.starts_with(b".el "));
    let lines = page.split_inclusive(|byte| *byte == b'\n').enumerate().filter(|line| !is_repeated(line));
    Ok(lines.flat_map(|(_, line)| line).copied().collect())
}

/// Writes a subsection for each visible subcommand.
fn subcommands(page: &mut Vec<u8>, command: &Command) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        // The options of the program itself are described once.
        let is_common = |arg: &Arg| arg.is_global_set() || matches!(arg.get_id().as_str(), "help" | "version");
        let man = Man::new(subcommand.clone().mut_args(|arg| if is_common(&arg) { arg.hide(true) } else { arg }));
        heading(page, "SS", subcommand.get_bin_name().unwrap_or_else(|| subcommand.get_name()))?;
        page.extend(without_headings(|out| man.render_synopsis_section(out))?);
        Roff::new().control("PP", []).to_writer(page)?;
        page.extend(without_headings(|out| man.render_description_section(out))?);
        page.extend(without_headings(|out| man.render_options_section(out))?);
        if has_notes(subcommand) {
            Roff::new().control("PP", []).to_writer(page)?;
            page.extend(without_headings(|out| man.render_extra_section(out))?);
        }
        subcommands(page, subcommand)?;
    }
    Ok(())
}

fn has_notes(command: &Command) -> bool {
    command.get_after_help().or_else(|| command.get_after_long_help()).is_some()
}

fn heading(page: &mut Vec<u8>, level: &str, text: &str) -> io::Result<()> {
    Roff::new().control(level, [text]).to_writer(page)
}

/// Renders sections of a page without their headings, which only suit a separate page.
fn without_headings(render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    render(&mut text)?;
    // Text cannot begin with a dot: `roff` escapes it.
    Ok(text
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b".SH "))
        .flatten()
        .copied()
        .collect())
}

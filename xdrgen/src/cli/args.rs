//! What can be asked for.

use std::{
    io::{IsTerminal as _, stderr},
    path::PathBuf,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  xdrgen check blobstore.x                      is it right?
  xdrgen gen blobstore.x -o src/blobstore.rs    types, codecs, client and server in Rust
  xdrgen ulb blobstore.x                        what travels by RDMA, and how large messages get
  xdrgen explain blobstore.x -o blobstore.html  a page for people: types, procedures, what travels how
  xdrgen fmt blobstore.x                        one layout, comments kept
  xdrgen strip blobstore.x > plain.x            for tools that know RFC 4506 only
  xdrgen gen nfs3.x --ulb nfs3.ulb              the binding in a file of its own
  xdrgen extract rfc8166.txt -o rpcrdma1.x      the XDR of a specification's text

Exit codes:
  0  done; there may be warnings
  1  the input is wrong: diagnostics say how
  2  wrong usage
  3  a file cannot be read or written";

/// Compiler for XDR (RFC 4506) with RPC programs (RFC 5531) and upper-layer bindings for RPC-over-RDMA (RFC 8166).
#[derive(Debug, Parser)]
#[command(name = "xdrgen", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Colours in diagnostics.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,

    /// How diagnostics are written.
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// With the lines they are about.
    Human,
    /// One JSON object a line, for editors.
    Json,
}

impl Color {
    pub(crate) fn on_stderr(self) -> bool {
        match self {
            // https://no-color.org
            Self::Auto => stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Checks specifications; prints nothing but what is wrong.
    Check(Check),
    /// Generates Rust.
    Gen(Gen),
    /// Extracts XDR from the text of an RFC or draft.
    Extract(Extract),
    /// Prints a specification without annotations: plain RFC 4506 and RFC 5531, comments kept.
    Strip(Strip),
    /// Writes a page that explains a specification: types on the wire, procedures, and which items travel how.
    Explain(Explain),
    /// Formats specifications in place, comments and lines for a preprocessor kept.
    Fmt(Fmt),
    /// Prints the binding: per procedure, what is eligible for direct data placement, and sizes.
    Ulb(Ulb),
}

/// What is compiled.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// XDR files.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// A binding for them: `.ulb`. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) ulb: Vec<PathBuf>,

    /// Where to look for files that others include. May be given several times.
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    pub(crate) include: Vec<PathBuf>,

    /// Define a name for `#if` and `#ifdef`; with a value, it is a constant where no file declares it.
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    pub(crate) define: Vec<String>,

    /// Take type NAME to be PATH in Rust, which implements the codec traits. May be given several times.
    #[arg(long = "extern", value_name = "NAME=PATH", value_parser = foreign)]
    pub(crate) foreign: Vec<(String, String)>,

    /// Refuse what RFC 4506 and RFC 5531 do not define, though other compilers take it.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Take BYTES as the maximum of each reply that has none, instead of reporting it.
    #[arg(long, value_name = "BYTES")]
    pub(crate) default_reply_max: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  xdrgen check *.x")]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// The files make one specification: names of one may be used in another. Otherwise each is checked by itself.
    #[arg(long)]
    pub(crate) together: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Several files make one specification.\n\n\
    Example:\n  xdrgen gen blobstore.x -o src/blobstore.rs")]
pub(crate) struct Gen {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Where to write to; default, and `-`, standard output.
    #[arg(short, long, value_name = "OUT.rs")]
    pub(crate) output: Option<PathBuf>,

    /// Types and codecs only, and what is known of each procedure: neither clients nor servers. For crates without the
    /// standard library among others.
    #[arg(long)]
    pub(crate) types_only: bool,

    /// No clients. A reply without a maximum is no error then.
    #[arg(long)]
    pub(crate) no_client: bool,

    /// No server traits and dispatchers.
    #[arg(long)]
    pub(crate) no_server: bool,

    /// Strip from the variants of ENUM, or of every enumeration, the prefix that its enumerators share. May be given several
    /// times.
    #[arg(long, value_name = "ENUM", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub(crate) strip_enum_prefix: Vec<String>,

    /// A trait that every type is to derive, as `serde::Serialize`, or the type named alone. May be given several times.
    #[arg(long, value_name = "[TYPE=]PATH")]
    pub(crate) derive: Vec<String>,

    /// Give types a borrowed form as well, whose opaque items and strings are views of the message: all that hold some, or
    /// TYPE and what it is made of. May be given several times.
    #[arg(long, value_name = "TYPE", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub(crate) borrowed: Vec<String>,

    /// Let UNION hold a number that selects none of its arms, instead of refusing the message. May be given several times.
    #[arg(long, value_name = "UNION")]
    pub(crate) open: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Lines marked `///` are taken, or <CODE BEGINS> blocks where there are none.\n\n\
    Example:\n  xdrgen extract rfc8166.txt --amend rpcrdma1.amend -o rpcrdma1.x")]
pub(crate) struct Extract {
    /// The specification's text.
    #[arg(value_name = "SPEC.txt")]
    pub(crate) text: PathBuf,

    /// Changes to make, with the reason of each. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) amend: Vec<PathBuf>,

    /// The text went through a scanner: repair marks that it damaged.
    #[arg(long)]
    pub(crate) scanned: bool,

    /// Where to write to; default, and `-`, standard output.
    #[arg(short, long, value_name = "OUT.x", conflicts_with = "split")]
    pub(crate) output: Option<PathBuf>,

    /// Write the files that the text divides it into (`FILE ENDS`) to this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) split: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  xdrgen strip blobstore.x | rpcgen -h /dev/stdin")]
pub(crate) struct Strip {
    /// The XDR file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Where to write to; default, and `-`, standard output.
    #[arg(short, long, value_name = "OUT.x")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "The page is one HTML file that needs nothing else. Several files make one specification.\n\n\
    Example:\n  xdrgen explain nfs3.x --ulb nfs3.ulb -o nfs3.html")]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Where to write to; default, and `-`, standard output.
    #[arg(short, long, value_name = "OUT.html")]
    pub(crate) output: Option<PathBuf>,

    /// Title of the page; default the names of the files.
    #[arg(long)]
    pub(crate) title: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Without files, or with `-`, standard input is formatted to standard output.\n\n\
    Examples:\n  xdrgen fmt *.x\n  xdrgen fmt --check *.x")]
pub(crate) struct Fmt {
    /// XDR files, or `-`.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Write nothing: show what would change, and exit with 1 if anything would.
    #[arg(long)]
    pub(crate) check: bool,

    /// Longest line, where there is a way to break it.
    #[arg(long, value_name = "COLUMNS", default_value_t = rpcrdma_xdrgen::fmt::DEFAULT_WIDTH)]
    pub(crate) width: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Several files make one specification.\n\n\
    Example:\n  xdrgen ulb nfs3.x --ulb nfs3.ulb")]
pub(crate) struct Ulb {
    #[command(flatten)]
    pub(crate) input: InputArgs,
}

/// `NAME=PATH`
fn foreign(text: &str) -> Result<(String, String), String> {
    let (name, path) = text.split_once('=').ok_or("there is no `=`")?;
    syn::parse_str::<syn::Path>(path).map_err(|_| format!("`{path}` is no path of a type, as `crate::nfs::Fh` is"))?;
    Ok((name.trim().to_owned(), path.to_owned()))
}

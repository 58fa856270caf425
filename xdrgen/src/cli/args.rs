//! Command-line arguments.

use std::{
    io::{IsTerminal as _, stderr},
    path::PathBuf,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  xdrgen new inventory                          write a package with a protocol, a server and a client
  xdrgen check blobstore.x                      check for errors
  xdrgen gen blobstore.x -o src/blobstore.rs    generate types, codecs, client and server in Rust
  xdrgen ulb blobstore.x                        show what RDMA transfers, and message sizes
  xdrgen explain blobstore.x -o blobstore.html  document types and procedures in an HTML page
  xdrgen explain E0208                          explain a diagnostic
  xdrgen fmt blobstore.x                        format in place
  xdrgen strip blobstore.x > plain.x            write plain XDR, for other tools
  xdrgen gen nfs3.x --ulb nfs3.ulb              use a binding in a separate file
  xdrgen decode blobstore.x traffic.pcapng      print the messages in a capture
  xdrgen wireshark blobstore.x -o blobstore.lua generate a dissector for Wireshark
  xdrgen extract rfc8166.txt -o rpcrdma1.x      extract XDR from the text of an RFC

Exit codes:
  0  success, possibly with warnings
  1  the input has errors
  2  wrong usage
  3  a file cannot be read or written";

/// Compiler for XDR (RFC 4506) with RPC programs (RFC 5531) and upper-layer bindings for RPC-over-RDMA (RFC 8166).
#[derive(Debug, Parser)]
#[command(name = "xdrgen", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// When to use colours in diagnostics.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,

    /// Output format of diagnostics.
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Color {
    /// If standard error is a terminal and `NO_COLOR` is not set.
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// Text with the source lines.
    Human,
    /// One JSON object per line, for editors.
    Json,
}

impl Color {
    pub(crate) fn on_stderr(self) -> bool {
        match self {
            // See https://no-color.org.
            Self::Auto => stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Checks specifications and prints diagnostics only.
    Check(Check),
    /// Decodes the messages in a capture (pcap, pcapng) of iWARP, RoCE v2 or TCP, or messages in hexadecimal.
    Decode(Decode),
    /// Generates Rust code.
    Gen(Gen),
    /// Writes a package with a small service: protocol, build script, server, client, tests and Dockerfile.
    New(New),
    /// Extracts XDR from the text of an RFC or Internet-Draft.
    Extract(Extract),
    /// Prints a specification without annotations, as plain XDR (RFC 4506 and RFC 5531). Keeps comments.
    Strip(Strip),
    /// Writes an HTML page that explains a specification: wire format of the types, procedures, and how each item is
    /// transferred. With the code of a diagnostic in place of a file, prints the page of the diagnostic.
    Explain(Explain),
    /// Formats specifications in place. Keeps comments and preprocessor lines.
    Fmt(Fmt),
    /// Prints the upper-layer binding: for each procedure, the items eligible for direct data placement, and message
    /// sizes.
    Ulb(Ulb),
    /// Generates a dissector for Wireshark and tshark, in Lua. It dissects the programs over RPC-over-RDMA versions 1
    /// and 2 and over TCP, and the headers of version 2.
    Wireshark(Wireshark),
}

/// Input of the compiler.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// XDR files.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Upper-layer binding (`.ulb` file) for the XDR files. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) ulb: Vec<PathBuf>,

    /// Directory to search for included files. May be given several times.
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    pub(crate) include: Vec<PathBuf>,

    /// Define NAME for `#if` and `#ifdef`. If VALUE is a constant or a type, NAME is also that constant or type, unless
    /// a file declares NAME. May be given several times.
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    pub(crate) define: Vec<String>,

    /// Use the Rust type PATH for the XDR type NAME. It must implement the codec traits. May be given several times.
    #[arg(long = "extern", value_name = "NAME=PATH", value_parser = extern_type)]
    pub(crate) extern_types: Vec<(String, String)>,

    /// Reject constructs that other compilers accept, but RFC 4506 and RFC 5531 do not define.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Maximum size of each reply that has no maximum. Without this option, such a reply is an error if there is a
    /// binding, and otherwise gets 65536 bytes, with a warning.
    #[arg(long, value_name = "BYTES")]
    pub(crate) default_reply_max: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  xdrgen check *.x")]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Compile the files as one specification, in which each file can use names from the others. By default, each file
    /// is checked separately.
    #[arg(long)]
    pub(crate) together: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Several files form one specification.\n\n\
    Example:\n  xdrgen gen blobstore.x -o src/blobstore.rs")]
pub(crate) struct Gen {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Output file. Default, and `-`: standard output.
    #[arg(short, long, value_name = "OUT.rs", conflicts_with = "split")]
    pub(crate) output: Option<PathBuf>,

    /// Write a file for each type and each version of a program to this folder, with a `mod.rs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) split: Option<PathBuf>,

    /// Generate types, codecs and procedure metadata only, without clients and servers, for example for `no_std`
    /// crates.
    #[arg(long)]
    pub(crate) types_only: bool,

    /// Generate no clients. Replies then need no maximum size.
    #[arg(long)]
    pub(crate) no_client: bool,

    /// Generate no server traits and no dispatchers.
    #[arg(long)]
    pub(crate) no_server: bool,

    /// Strip the common prefix of the enumerators of ENUM, or of every enumeration, from the names of the Rust
    /// variants. May be given several times.
    #[arg(long, value_name = "ENUM", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub(crate) strip_enum_prefix: Vec<String>,

    /// Trait to derive for every type, such as `serde::Serialize`, or for TYPE only. May be given several times.
    #[arg(long, value_name = "[TYPE=]PATH")]
    pub(crate) derive: Vec<String>,

    /// Generate a second, borrowed form of TYPE and of the types it contains. Opaque items and strings are then views
    /// of the message. Without TYPE, applies to all types that contain such items. May be given several times.
    #[arg(long, value_name = "TYPE", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub(crate) borrowed: Vec<String>,

    /// Accept discriminants that select no arm of UNION, instead of rejecting the message. May be given several times.
    #[arg(long, value_name = "UNION")]
    pub(crate) open: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  xdrgen new inventory\n  xdrgen new inventory --path ../rpcrdma")]
pub(crate) struct New {
    /// Name of the package, and of the folder that is created for it.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Checkout of rpcrdma whose crates the package uses. By default, the package uses the crates of this version from
    /// a registry.
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Extracts lines marked `///`. If there are none, extracts <CODE BEGINS> blocks.\n\n\
    Example:\n  xdrgen extract rfc8166.txt --amend rpcrdma1.amend -o rpcrdma1.x")]
pub(crate) struct Extract {
    /// Text of the RFC or Internet-Draft.
    #[arg(value_name = "SPEC.txt")]
    pub(crate) text: PathBuf,

    /// File of changes to make to the extracted XDR, each with its reason. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) amend: Vec<PathBuf>,

    /// Repair `///` marks that optical character recognition damaged.
    #[arg(long)]
    pub(crate) scanned: bool,

    /// Output file. Default, and `-`: standard output.
    #[arg(short, long, value_name = "OUT.x", conflicts_with = "split")]
    pub(crate) output: Option<PathBuf>,

    /// Directory for the separate files into which the document divides its XDR (`FILE ENDS`).
    #[arg(long, value_name = "DIR")]
    pub(crate) split: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  xdrgen strip blobstore.x | rpcgen -h /dev/stdin")]
pub(crate) struct Strip {
    /// XDR file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Output file. Default, and `-`: standard output.
    #[arg(short, long, value_name = "OUT.x")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The page is a single self-contained HTML file. Several input files form one specification.\n\n\
    Examples:\n  xdrgen explain nfs3.x --ulb nfs3.ulb -o nfs3.html\n  xdrgen explain E0208"
)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Output file. Default, and `-`: standard output.
    #[arg(short, long, value_name = "OUT.html")]
    pub(crate) output: Option<PathBuf>,

    /// Title of the page. Default: the names of the files.
    #[arg(long)]
    pub(crate) title: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Without files, or with `-`, reads standard input and writes standard output.\n\n\
    Examples:\n  xdrgen fmt *.x\n  xdrgen fmt --check *.x")]
pub(crate) struct Fmt {
    /// XDR files. `-` reads standard input and writes standard output.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Write no files. Show the changes that formatting would make, and exit with code 1 if there are any.
    #[arg(long)]
    pub(crate) check: bool,

    /// Maximum line length, in characters. Lines that cannot be broken may be longer.
    #[arg(long, value_name = "COLUMNS", default_value_t = rpcrdma_xdrgen::fmt::DEFAULT_WIDTH)]
    pub(crate) width: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Several files form one specification.\n\n\
    Example:\n  xdrgen ulb nfs3.x --ulb nfs3.ulb")]
pub(crate) struct Ulb {
    #[command(flatten)]
    pub(crate) input: InputArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Load the file with `-X lua_script:OUT.lua`, or put it into Wireshark's folder of personal Lua plugins. The \
    names of fields consist of the protocol, the type and the field: `blobstore.get_args.name`. Several files form one \
    specification.\n\n\
    Examples:\n  xdrgen wireshark blobstore.x -o blobstore.lua\n  \
    tshark -X lua_script:blobstore.lua -r traffic.pcapng -Y 'blobstore.procedure_name == \"PUT\"' -V"
)]
pub(crate) struct Wireshark {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Output file. Default, and `-`: standard output.
    #[arg(short, long, value_name = "OUT.lua")]
    pub(crate) output: Option<PathBuf>,

    /// Name of the protocol in Wireshark. The names of all fields begin with it. Default: the name of the first
    /// program, in lower case.
    #[arg(long, value_name = "NAME", value_parser = protocol_name)]
    pub(crate) protocol: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "RPC-over-RDMA headers of versions 1 and 2 and RPC headers are decoded. Arguments and results are decoded \
    if the specification declares the program. Data in chunks is included if the capture contains its RDMA Writes and \
    Reads. Captures of encrypted connections cannot be decoded.\n\n\
    Examples:\n  xdrgen decode blobstore.x traffic.pcapng\n  \
    tshark -i lo -w - tcp port 20049 | xdrgen decode nfs3.x mount3.x --json -\n  \
    echo '00000001 ...' | xdrgen decode blobstore.x --transport rdma -"
)]
pub(crate) struct Decode {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Capture file, or file with messages in hexadecimal, separated by blank lines. `-` reads standard input.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) captured: PathBuf,

    /// Print each message as a JSON object on one line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print only calls of this program and their replies. A name in the specification or a number.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) program: Option<String>,

    /// Protocol of messages in hexadecimal.
    #[arg(long, value_enum, default_value_t = Transport::Detect)]
    pub(crate) transport: Transport,

    /// Maximum number of bytes of each opaque item to print. JSON has all bytes.
    #[arg(long, value_name = "BYTES", default_value_t = rpcrdma_xdrgen::decode::DEFAULT_BYTES)]
    pub(crate) bytes: usize,
}

/// The protocol of messages in hexadecimal.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Transport {
    /// The protocol that each message appears to have. RoCE is not detected.
    Detect,
    /// RPC messages.
    Rpc,
    /// RPC messages with record marks, as in a TCP stream.
    Tcp,
    /// RPC-over-RDMA messages of version 1 or 2. The version is read from the header.
    #[value(aliases = ["rdma-v1", "rdma-v2"])]
    Rdma,
    /// iWARP FPDUs without markers.
    Iwarp,
    /// RoCE v2 packets, from the BTH to the ICRC.
    Roce,
}

/// Parses the value of `--extern`, which has the form `NAME=PATH`.
fn extern_type(text: &str) -> Result<(String, String), String> {
    let (name, path) = text.split_once('=').ok_or("missing `=`; write NAME=PATH")?;
    syn::parse_str::<syn::Path>(path)
        .map_err(|_| format!("`{path}` is not the path of a type, such as `crate::nfs::Fh`"))?;
    Ok((name.trim().to_owned(), path.to_owned()))
}

/// Parses the name of a protocol. Rejects names that Wireshark does not accept.
fn protocol_name(text: &str) -> Result<String, String> {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte);
    if text.bytes().all(is_valid) && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        Ok(text.to_owned())
    } else {
        Err("a protocol name starts with a lower-case letter and has only those, digits, `_`, `-` and `.`".to_owned())
    }
}

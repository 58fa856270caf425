//! The `xdrgen decode` command.

use std::{
    fs,
    io::{BufWriter, ErrorKind, Read as _, Write as _, stdin, stdout},
    path::Path,
};

use rpcrdma_xdrgen::decode::{Decoder, Message, MessageFormat, is_capture, parse_hex};

use crate::{
    args::{Decode, Transport},
    compile::{compile, compiler},
    diagnostics::DiagnosticFormat,
    error::{CliError, NO_FILE, WRONG_INPUT, WRONG_USAGE},
};

pub(crate) fn run(decode: &Decode, format: DiagnosticFormat) -> Result<(), CliError> {
    // The maximum sizes of replies matter to clients only.
    let compiled = compile(&compiler(&decode.input.files, &decode.input).no_client(), format)?;
    let filter = match decode.program.as_deref().map(ProgramFilter::parse) {
        Some(ProgramFilter::Name(name)) if !compiled.spec.programs.iter().any(|program| program.name.text == name) => {
            let message =
                format!("error: no program is named `{name}`; write a name in the specification, or a number\n");
            return Err(CliError { message, code: WRONG_USAGE });
        }
        filter => filter,
    };
    let name =
        if decode.captured == Path::new("-") { "standard input".into() } else { decode.captured.display().to_string() };
    let input = read(&decode.captured)
        .map_err(|error| CliError { message: format!("error: cannot read {name}: {error}\n"), code: NO_FILE })?;
    let decoder = Decoder::new(compiled.spec);
    let decoded = if is_capture(&input) {
        decoder.capture(&input)
    } else {
        let wrong = |why: &dyn std::fmt::Display| CliError {
            message: format!("error: {name} is neither a pcap or pcapng file nor messages in hexadecimal: {why}\n"),
            code: WRONG_INPUT,
        };
        let text = std::str::from_utf8(&input).map_err(|error| wrong(&error))?;
        decoder.messages(parse_hex(text).map_err(|error| wrong(&error))?, message_format(decode.transport))
    };
    let mut out = BufWriter::new(stdout().lock());
    let mut count = 0;
    for message in decoded.iter().filter(|message| filter.as_ref().is_none_or(|filter| filter.accepts(message))) {
        count += 1;
        let written = match decode.json {
            true => writeln!(out, "{}", message.to_json()),
            false => write!(out, "{}", message.to_text(decoded.start(), decode.bytes)),
        };
        match written {
            // The reader closed the pipe early, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(|error| write_error(&error))?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
        flushed => flushed.map_err(|error| write_error(&error))?,
    }
    if count == 0 {
        eprintln!("note: no message was found in {} packets of {name}", decoded.packets());
    }
    match decoded.error() {
        Some(error) => Err(CliError { message: format!("error: {name}: {error}\n"), code: WRONG_INPUT }),
        None => Ok(()),
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut input = Vec::new();
        stdin().lock().read_to_end(&mut input)?;
        Ok(input)
    } else {
        fs::read(path)
    }
}

fn write_error(error: &std::io::Error) -> CliError {
    CliError { message: format!("error: cannot write to standard output: {error}\n"), code: NO_FILE }
}

fn message_format(transport: Transport) -> MessageFormat {
    match transport {
        Transport::Detect => MessageFormat::Detect,
        Transport::Rpc => MessageFormat::Rpc,
        Transport::Tcp => MessageFormat::Tcp,
        Transport::Rdma => MessageFormat::Rdma,
        Transport::Iwarp => MessageFormat::Iwarp,
        Transport::Roce => MessageFormat::Roce,
    }
}

/// The program whose messages are printed.
enum ProgramFilter<'a> {
    Name(&'a str),
    Number(u32),
}

impl<'a> ProgramFilter<'a> {
    fn parse(text: &'a str) -> Self {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_or(Self::Name(text), Self::Number)
    }

    fn accepts(&self, message: &Message) -> bool {
        let Some((number, name)) = message.program() else { return false };
        match self {
            Self::Name(wanted) => name == Some(wanted),
            Self::Number(wanted) => number == *wanted,
        }
    }
}

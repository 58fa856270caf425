//! The `xdrgen fmt` command.

use std::{
    io::stdin,
    path::{Path, PathBuf},
};

use rpcrdma_xdrgen::{
    fmt::{FormatError, FormatOptions, format_bytes},
    source,
};

use crate::{
    args::Fmt,
    compile::compile_error,
    diagnostics::DiagnosticFormat,
    difference,
    error::{CliError, NO_FILE, WRONG_INPUT},
    output,
};

pub(crate) fn run(fmt: &Fmt, format: DiagnosticFormat) -> Result<(), CliError> {
    let stdin = vec![PathBuf::from("-")];
    let files = if fmt.files.is_empty() { &stdin } else { &fmt.files };
    // Formats all files, even if some fail. The exit code is that of the most severe failure.
    let failures: Vec<CliError> = files.iter().filter_map(|file| format_file(file, fmt, format).err()).collect();
    let code = failures.iter().map(|failure| failure.code).max();
    let message = failures.into_iter().map(|failure| failure.message).collect();
    code.map_or(Ok(()), |code| Err(CliError { message, code }))
}

fn format_file(file: &Path, fmt: &Fmt, format: DiagnosticFormat) -> Result<(), CliError> {
    let is_piped = file == Path::new("-");
    let name = if is_piped { "standard input".to_owned() } else { file.display().to_string() };
    let read = if is_piped { source::read_from(stdin().lock()) } else { source::read(file) };
    let old =
        read.map_err(|error| CliError { message: format!("error: cannot read {name}: {error}\n"), code: NO_FILE })?;
    let mut options = FormatOptions::default();
    options.width = fmt.width;
    let new = format_bytes(&name, &old, &options).map_err(|error| match error {
        FormatError::Syntax(diagnostics) => compile_error(&diagnostics, format),
        other => CliError { message: format!("error: {name}: {other}\n"), code: WRONG_INPUT },
    })?;
    if fmt.check {
        if new == old {
            return Ok(());
        }
        output::write(None, &differences(&name, &old, &new))?;
        return Err(CliError { message: String::new(), code: WRONG_INPUT });
    }
    if is_piped {
        return output::write_bytes(None, &new);
    }
    // Do not change the modification time of a file that is already formatted.
    if new == old { Ok(()) } else { output::write_bytes(Some(file), &new) }
}

/// Returns the changes that formatting would make, as a unified diff. If only line terminators differ, returns a
/// message that says so.
fn differences(name: &str, old: &[u8], new: &[u8]) -> String {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    if old.lines().eq(new.lines()) {
        return format!("{name}: line terminators differ\n");
    }
    difference::unified(name, &old, &new)
}

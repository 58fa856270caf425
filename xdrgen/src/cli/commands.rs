//! The subcommands `check`, `gen`, `extract`, `strip`, `explain`, `ulb` and `wireshark`. The library does most of the
//! work.

use std::{error::Error as _, path::Path};

use rpcrdma_xdrgen::{
    diag::Code,
    emit::{Borrow, EmitError, EmitOptions, emit, emit_split},
    extract::{Amendments, ExtractOptions, extract_with},
    table,
};

use crate::{
    args::{Check, Explain, Extract, Gen, Strip, Ulb, Wireshark},
    compile::{compile, compile_error, compiler},
    diagnostics::DiagnosticFormat,
    error::{CliError, NO_FILE, WRONG_INPUT, WRONG_USAGE},
    output,
};

/// Width of tables if standard output is not a terminal, in columns.
const DEFAULT_WIDTH: u16 = 120;
/// Minimum width of tables, in columns. Narrower tables are unreadable.
const MIN_WIDTH: u16 = 60;

pub(crate) fn check(check: &Check, format: DiagnosticFormat) -> Result<(), CliError> {
    let files = &check.input.files;
    if check.together {
        return compile(&compiler(files, &check.input), format).map(drop);
    }
    if files.len() > 1 && !check.input.ulb.is_empty() {
        let message = "error: --ulb with several files is ambiguous; use --together, or check one file\n".to_owned();
        return Err(CliError { message, code: WRONG_USAGE });
    }
    // Reports the errors of every file. The exit code is that of the most severe failure.
    let outcomes = files.iter().map(|file| compile(&compiler(std::slice::from_ref(file), &check.input), format));
    let failures: Vec<CliError> = outcomes.filter_map(Result::err).collect();
    let code = failures.iter().map(|failure| failure.code).max();
    let message = failures.into_iter().map(|failure| failure.message).collect::<Vec<_>>();
    let message = message.join(if matches!(format, DiagnosticFormat::Json) { "" } else { "\n" });
    code.map_or(Ok(()), |code| Err(CliError { message, code }))
}

pub(crate) fn generate(generate: &Gen, format: DiagnosticFormat) -> Result<(), CliError> {
    let mut options = EmitOptions::default();
    if generate.types_only {
        options = options.types_only();
    }
    if generate.no_client {
        options = options.no_client();
    }
    if generate.no_server {
        options = options.no_server();
    }
    let mut compiler = compiler(&generate.input.files, &generate.input);
    for name in &generate.strip_enum_prefix {
        // `*` stands for every enumeration.
        compiler = if name == "*" { compiler.strip_enum_prefix() } else { compiler.strip_enum_prefix_of(name) };
    }
    let compiled = compile(&if options.client { compiler } else { compiler.no_client() }, format)?;
    for derive in &generate.derive {
        // `*` stands for every type.
        let (name, path) = match derive.split_once('=') {
            Some(("*", path)) => (None, path),
            Some((name, path)) => (Some(name), path),
            None => (None, derive.as_str()),
        };
        let path = syn::parse_str(path).map_err(|_| CliError {
            message: format!("error: `{path}` is not the path of a trait, such as `serde::Serialize`\n"),
            code: WRONG_USAGE,
        })?;
        options = match name {
            Some(name) => options.derive_for(name, path),
            None => options.derive(path),
        };
    }
    options.open.clone_from(&generate.open);
    options.borrowed = match generate.borrowed.as_slice() {
        [] => Borrow::Nothing,
        names if names.iter().any(|name| name == "*") => Borrow::All,
        names => Borrow::Types(names.to_vec()),
    };
    let first = generate.input.files.first().and_then(|path| path.file_name());
    options.source = first.map(|name| name.to_string_lossy().into_owned());
    let failed = |error: EmitError| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        CliError { message: format!("error: {error}{cause}\n"), code: WRONG_INPUT }
    };
    let Some(directory) = &generate.split else {
        return output::write(generate.output.as_deref(), &emit(&compiled.spec, &options).map_err(failed)?);
    };
    create_directory(directory)?;
    for file in emit_split(&compiled.spec, &options).map_err(failed)? {
        output::write(Some(&directory.join(file.name)), &file.text)?;
    }
    Ok(())
}

fn create_directory(directory: &Path) -> Result<(), CliError> {
    std::fs::create_dir_all(directory).map_err(|error| CliError {
        message: format!("error: cannot create {}: {error}\n", directory.display()),
        code: NO_FILE,
    })
}

pub(crate) fn extract(extract: &Extract) -> Result<(), CliError> {
    let wrong =
        |error| CliError { message: format!("error: {}: {error}\n", extract.text.display()), code: WRONG_INPUT };
    let document = output::read(&extract.text)?;
    let mut sets = Vec::new();
    for path in &extract.amend {
        let text = output::read(path)?;
        sets.push(Amendments::parse(&text).map_err(|error| CliError {
            message: format!("error: {}: {error}\n", path.display()),
            code: WRONG_INPUT,
        })?);
    }
    let options = if extract.scanned { ExtractOptions::default().scanned() } else { ExtractOptions::default() };
    let extraction = extract_with(&document, &sets, options).map_err(wrong)?;
    for repair in &extraction.repairs {
        eprintln!("note: {}:{}: repaired ({:?})", extract.text.display(), repair.line, repair.kind);
    }
    let Some(directory) = &extract.split else {
        return output::write(extract.output.as_deref(), &extraction.text);
    };
    create_directory(directory)?;
    let stem = extract.text.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (index, file) in extraction.files.iter().enumerate() {
        // The text after the last `FILE ENDS` has no name.
        let name = file.name.clone().unwrap_or_else(|| format!("{stem}-{}.x", index + 1));
        output::write(Some(&directory.join(name)), &file.text)?;
    }
    if extraction.files.is_empty() {
        output::write(Some(&directory.join(format!("{stem}.x"))), &extraction.text)?;
    }
    Ok(())
}

pub(crate) fn strip(strip: &Strip, format: DiagnosticFormat) -> Result<(), CliError> {
    let text = output::read(&strip.file)?;
    let plain = rpcrdma_xdrgen::strip(strip.file.display().to_string(), text)
        .map_err(|diagnostics| compile_error(&diagnostics, format))?;
    output::write(strip.output.as_deref(), &plain)
}

pub(crate) fn explain(explain: &Explain, format: DiagnosticFormat) -> Result<(), CliError> {
    if let [word] = explain.input.files.as_slice()
        && let Some(code) = word.to_str().filter(|word| is_code(word))
        && !word.exists()
    {
        let found = Code::find(code).ok_or_else(|| CliError {
            message: format!("error: there is no diagnostic {code}; ERRORS.md lists all\n"),
            code: WRONG_USAGE,
        })?;
        return output::write(explain.output.as_deref(), &format!("{}\n", found.explanation()));
    }
    let compiled = compile(&compiler(&explain.input.files, &explain.input), format)?;
    let names = explain.input.files.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
    let title = explain.title.clone().unwrap_or_else(|| names.collect::<Vec<_>>().join(", "));
    output::write(explain.output.as_deref(), &rpcrdma_xdrgen::explain(&compiled.spec, &title))
}

/// Returns `true` if `word` is a diagnostic code, such as `E0101` or `w0101`.
fn is_code(word: &str) -> bool {
    let digits = word.strip_prefix(['E', 'W', 'e', 'w']).unwrap_or_default();
    digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn ulb(ulb: &Ulb, format: DiagnosticFormat) -> Result<(), CliError> {
    let compiled = compile(&compiler(&ulb.input.files, &ulb.input), format)?;
    let width = terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| width.0.max(MIN_WIDTH));
    output::write(None, &table(&compiled.spec, Some(width)))
}

pub(crate) fn wireshark(wireshark: &Wireshark, format: DiagnosticFormat) -> Result<(), CliError> {
    // The maximum sizes of replies matter to clients only.
    let compiled = compile(&compiler(&wireshark.input.files, &wireshark.input).no_client(), format)?;
    let Some(program) = compiled.spec.programs.first() else {
        let message = "error: the specification declares no program, so there is nothing to dissect\n".to_owned();
        return Err(CliError { message, code: WRONG_INPUT });
    };
    let protocol = wireshark.protocol.clone().unwrap_or_else(|| program.name.text.to_lowercase());
    output::write(wireshark.output.as_deref(), &rpcrdma_xdrgen::wireshark(&compiled.spec, &protocol))
}

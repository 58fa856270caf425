//! The subcommands. The library does most of the work.

use std::{error::Error as _, path::PathBuf};

use rpcrdma_xdrgen::{
    Compiled, Compiler,
    diag::{Code, Diagnostics},
    emit::{Borrow, EmitOptions, emit},
    extract::{Amendments, ExtractOptions, extract_with},
    table,
};

use super::{
    CliError, DiagnosticFormat, NO_FILE, WRONG_INPUT,
    args::{Check, Explain, Extract, Gen, InputArgs, Strip, Ulb},
    output,
};

/// Width of tables if standard output is not a terminal, in columns.
const WIDTH: u16 = 120;
/// Minimum width of tables. Narrower tables are unreadable.
const NARROWEST: u16 = 60;

pub(super) fn compiler(files: &[PathBuf], input: &InputArgs) -> Compiler {
    let compiler = files.iter().fold(Compiler::new(), Compiler::file);
    let compiler = input.ulb.iter().fold(compiler, Compiler::ulb);
    let mut compiler = input.include.iter().fold(compiler, Compiler::include_dir);
    for define in &input.define {
        let (name, value) = define.split_once('=').map_or((define.as_str(), None), |(name, value)| (name, Some(value)));
        compiler = compiler.define(name, value);
    }
    for (name, path) in &input.foreign {
        // `foreign` has already checked the path, so parsing cannot fail here.
        if let Ok(path) = syn::parse_str(path) {
            compiler = compiler.extern_type(name, &path);
        }
    }
    if input.strict {
        compiler = compiler.strict();
    }
    match input.default_reply_max {
        Some(bytes) => compiler.default_reply_max(bytes),
        None => compiler,
    }
}

pub(super) fn failed(diagnostics: &Diagnostics, form: DiagnosticFormat) -> CliError {
    let unreadable = diagnostics.iter().any(|diagnostic| diagnostic.code == Code::Unreadable);
    CliError { message: form.render(diagnostics), code: if unreadable { NO_FILE } else { WRONG_INPUT } }
}

fn compile(files: &[PathBuf], input: &InputArgs, form: DiagnosticFormat) -> Result<Compiled, CliError> {
    run(&compiler(files, input), form)
}

pub(super) fn run(compiler: &Compiler, form: DiagnosticFormat) -> Result<Compiled, CliError> {
    let compiled = compiler.compile().map_err(|diagnostics| failed(&diagnostics, form))?;
    eprint!("{}", form.render(&compiled.warnings));
    Ok(compiled)
}

pub(super) fn check(check: &Check, form: DiagnosticFormat) -> Result<(), CliError> {
    let files = &check.input.files;
    if check.together {
        return compile(files, &check.input, form).map(drop);
    }
    if files.len() > 1 && !check.input.ulb.is_empty() {
        let message = "error: --ulb with several files is ambiguous; use --together, or check one file\n".to_owned();
        return Err(CliError { message, code: 2 });
    }
    // Reports the errors of every file. The exit code is that of the most severe failure.
    let outcomes = files.iter().map(|file| compile(std::slice::from_ref(file), &check.input, form));
    let failures: Vec<CliError> = outcomes.filter_map(Result::err).collect();
    let code = failures.iter().map(|failure| failure.code).max();
    let message = failures.into_iter().map(|failure| failure.message).collect::<Vec<_>>();
    let message = message.join(if matches!(form, DiagnosticFormat::Json) { "" } else { "\n" });
    code.map_or(Ok(()), |code| Err(CliError { message, code }))
}

pub(super) fn generate(generate: &Gen, form: DiagnosticFormat) -> Result<(), CliError> {
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
    let compiled = run(&if options.client { compiler } else { compiler.no_client() }, form)?;
    for derive in &generate.derive {
        // `*` stands for every type.
        let (name, path) = match derive.split_once('=') {
            Some(("*", path)) => (None, path),
            Some((name, path)) => (Some(name), path),
            None => (None, derive.as_str()),
        };
        let path = syn::parse_str(path).map_err(|_| CliError {
            message: format!("error: `{path}` is not the path of a trait, such as `serde::Serialize`\n"),
            code: 2,
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
    let text = emit(&compiled.spec, &options).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        CliError { message: format!("error: {error}{cause}\n"), code: WRONG_INPUT }
    })?;
    output::write(generate.output.as_deref(), &text)
}

pub(super) fn extract(extract: &Extract) -> Result<(), CliError> {
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
    std::fs::create_dir_all(directory).map_err(|error| CliError {
        message: format!("error: cannot create {}: {error}\n", directory.display()),
        code: NO_FILE,
    })?;
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

pub(super) fn strip(strip: &Strip, form: DiagnosticFormat) -> Result<(), CliError> {
    let text = output::read(&strip.file)?;
    let plain = rpcrdma_xdrgen::strip(strip.file.display().to_string(), text)
        .map_err(|diagnostics| failed(&diagnostics, form))?;
    output::write(strip.output.as_deref(), &plain)
}

pub(super) fn explain(explain: &Explain, form: DiagnosticFormat) -> Result<(), CliError> {
    let compiled = compile(&explain.input.files, &explain.input, form)?;
    let names = explain.input.files.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
    let title = explain.title.clone().unwrap_or_else(|| names.collect::<Vec<_>>().join(", "));
    output::write(explain.output.as_deref(), &rpcrdma_xdrgen::explain(&compiled.spec, &title))
}

pub(super) fn ulb(ulb: &Ulb, form: DiagnosticFormat) -> Result<(), CliError> {
    let compiled = compile(&ulb.input.files, &ulb.input, form)?;
    let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.max(NARROWEST));
    output::write(None, &table(&compiled.spec, Some(width)))
}

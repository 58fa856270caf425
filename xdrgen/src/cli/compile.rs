//! Creation and use of the compiler with the options of a command.

use std::path::PathBuf;

use rpcrdma_xdrgen::{
    Compiled, Compiler,
    diag::{Code, Diagnostics},
};

use crate::{
    args::InputArgs,
    diagnostics::DiagnosticFormat,
    error::{CliError, NO_FILE, WRONG_INPUT},
};

/// Returns a compiler with the input and the options of a command.
pub(crate) fn compiler(files: &[PathBuf], input: &InputArgs) -> Compiler {
    let compiler = files.iter().fold(Compiler::new(), Compiler::file);
    let compiler = input.ulb.iter().fold(compiler, Compiler::ulb);
    let mut compiler = input.include.iter().fold(compiler, Compiler::include_dir);
    for define in &input.define {
        let (name, value) = define.split_once('=').map_or((define.as_str(), None), |(name, value)| (name, Some(value)));
        compiler = compiler.define(name, value);
    }
    for (name, path) in &input.extern_types {
        // `clap` has already checked the path, so parsing cannot fail here.
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

/// Converts diagnostics to the error of a command. The exit code distinguishes unreadable files from other errors.
pub(crate) fn compile_error(diagnostics: &Diagnostics, format: DiagnosticFormat) -> CliError {
    let unreadable = diagnostics.iter().any(|diagnostic| diagnostic.code == Code::Unreadable);
    CliError { message: format.render(diagnostics), code: if unreadable { NO_FILE } else { WRONG_INPUT } }
}

/// Compiles a specification, and prints its warnings.
pub(crate) fn compile(compiler: &Compiler, format: DiagnosticFormat) -> Result<Compiled, CliError> {
    let compiled = compiler.compile().map_err(|diagnostics| compile_error(&diagnostics, format))?;
    eprint!("{}", format.render(&compiled.warnings));
    Ok(compiled)
}

//! For build scripts: `.x` files to Rust in `OUT_DIR`.

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    Compiler,
    diag::{Diagnostics, Severity},
    emit::{EmitError, EmitOptions, emit},
};

/// Generates Rust from XDR in a build script.
///
/// ```no_run
/// // build.rs
/// fn main() -> Result<(), rpcrdma_xdrgen::BuildError> {
///     rpcrdma_xdrgen::Build::new().file("proto/blobstore.x").run()?;
///     Ok(())
/// }
/// ```
///
/// and in the crate: `include!(concat!(env!("OUT_DIR"), "/blobstore.rs"));`
#[derive(Debug, Clone, Default)]
pub struct Build {
    compiler: Compiler,
    inputs: Vec<PathBuf>,
    out_dir: Option<PathBuf>,
    output: Option<String>,
    options: EmitOptions,
}

/// Why nothing was generated. `Debug` shows what `Display` does, so that a build script may return it from `main`.
#[non_exhaustive]
pub enum BuildError {
    /// The specification is wrong.
    Specification(Diagnostics),
    /// No file was named, so neither was the output.
    NoInput,
    /// The environment variable `OUT_DIR` is not set, and no other directory was named.
    NoOutDir,
    /// The generated code could not be printed.
    Emit(EmitError),
    /// The output cannot be written.
    Output {
        /// Where to.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Specification(diagnostics) => write!(f, "the specification is wrong\n\n{diagnostics}"),
            Self::NoInput => f.write_str("no .x file was named"),
            Self::NoOutDir => f.write_str("OUT_DIR is not set: is this a build script?"),
            Self::Emit(error) => error.fmt(f),
            Self::Output { path, error } => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Specification(diagnostics) => Some(diagnostics),
            Self::Emit(error) => Some(error),
            Self::Output { error, .. } => Some(error),
            Self::NoInput | Self::NoOutDir => None,
        }
    }
}

impl Build {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an XDR file. Several make one specification.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.inputs.push(path.as_ref().to_owned());
        self.compiler = self.compiler.file(path);
        self
    }

    /// Adds a binding.
    #[must_use]
    pub fn ulb(mut self, path: impl AsRef<Path>) -> Self {
        self.inputs.push(path.as_ref().to_owned());
        self.compiler = self.compiler.ulb(path);
        self
    }

    /// Adds the text of a binding, for one that is not in a file of its own.
    #[must_use]
    pub fn ulb_source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.compiler = self.compiler.ulb_source(name, text);
        self
    }

    /// See [`Compiler::include_dir`].
    #[must_use]
    pub fn include_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.compiler = self.compiler.include_dir(path);
        self
    }

    /// See [`Compiler::define`].
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: Option<&str>) -> Self {
        self.compiler = self.compiler.define(name, value);
        self
    }

    /// See [`Compiler::extern_type`].
    #[must_use]
    pub fn extern_type(mut self, name: impl Into<String>, path: &syn::Path) -> Self {
        self.compiler = self.compiler.extern_type(name, path);
        self
    }

    /// See [`Compiler::strict`].
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.compiler = self.compiler.strict();
        self
    }

    /// See [`Compiler::default_reply_max`].
    #[must_use]
    pub fn default_reply_max(mut self, octets: u64) -> Self {
        self.compiler = self.compiler.default_reply_max(octets);
        self
    }

    /// How the code is generated.
    #[must_use]
    pub fn options(mut self, options: EmitOptions) -> Self {
        self.options = options;
        self
    }

    /// Directory of the output; default `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.out_dir = Some(path.as_ref().to_owned());
        self
    }

    /// File name of the output; default that of the first XDR file, with `.rs`.
    #[must_use]
    pub fn output(mut self, name: impl Into<String>) -> Self {
        self.output = Some(name.into());
        self
    }

    /// Generates; gives the path of the output. Tells cargo which files to watch, and passes warnings on. An output
    /// that is already as it should be is not written again.
    ///
    /// # Errors
    /// When the specification is wrong or the output cannot be written.
    pub fn run(&self) -> Result<PathBuf, BuildError> {
        // Also when it fails: what has been repaired is to be compiled again.
        for path in &self.inputs {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        let first = self.inputs.first().ok_or(BuildError::NoInput)?;
        let directory = match &self.out_dir {
            Some(directory) => directory.clone(),
            None => PathBuf::from(env::var_os("OUT_DIR").ok_or(BuildError::NoOutDir)?),
        };
        let name = match &self.output {
            Some(name) => PathBuf::from(name),
            None => PathBuf::from(first.with_extension("rs").file_name().ok_or(BuildError::NoInput)?),
        };
        let compiled = self.compiler.compile().map_err(BuildError::Specification)?;
        for path in compiled.files.iter().filter(|path| !self.inputs.contains(path)) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        for warning in compiled.warnings.iter().filter(|d| d.severity() == Severity::Warning) {
            let place = warning.primary.as_ref().and_then(|label| {
                let source = compiled.sources.get(label.span.file)?;
                let (line, column) = source.line_column(label.span.range.start);
                Some(format!("{}:{line}:{column}: ", source.name()))
            });
            println!("cargo:warning={}{} [{}]", place.unwrap_or_default(), warning.message, warning.code);
        }
        let mut options = self.options.clone();
        if options.source.is_none() {
            options.source = first.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        let text = emit(&compiled.spec, &options).map_err(BuildError::Emit)?;
        let path = directory.join(name);
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(path);
        }
        match fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(error) => Err(BuildError::Output { path, error }),
        }
    }
}

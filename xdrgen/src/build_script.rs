//! For build scripts: `.x` files to Rust in `OUT_DIR`.

mod run_record;

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use self::run_record::RunRecord;
use crate::{
    compiler::Compiler,
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
    include_dirs: Vec<PathBuf>,
    note_dir: Option<PathBuf>,
    options: EmitOptions,
}

/// Why nothing was generated. `Debug` shows the message and its causes, so that a build script may return it from `main`.
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
            Self::Specification(diagnostics) => diagnostics.fmt(f),
            Self::NoInput => f.write_str("no .x file was named"),
            Self::NoOutDir => f.write_str("OUT_DIR is not set: is this a build script?"),
            Self::Emit(error) => error.fmt(f),
            Self::Output { path, .. } => write!(f, "cannot write {}", path.display()),
        }
    }
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // These two are displayed as they are.
            Self::Specification(diagnostics) => diagnostics.source(),
            Self::Emit(error) => error.source(),
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
        self.include_dirs.push(path.as_ref().to_owned());
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

    /// See [`Compiler::strip_enum_prefix`].
    #[must_use]
    pub fn strip_enum_prefix(mut self) -> Self {
        self.compiler = self.compiler.strip_enum_prefix();
        self
    }

    /// See [`Compiler::strip_enum_prefix_of`].
    #[must_use]
    pub fn strip_enum_prefix_of(mut self, name: impl Into<String>) -> Self {
        self.compiler = self.compiler.strip_enum_prefix_of(name);
        self
    }

    /// Has every type derive a trait. See [`EmitOptions::derive`].
    #[must_use]
    pub fn derive(mut self, path: syn::Path) -> Self {
        self.options = self.options.derive(path);
        self
    }

    /// Has the type of that name in XDR derive a trait.
    #[must_use]
    pub fn derive_for(mut self, name: impl Into<String>, path: syn::Path) -> Self {
        self.options = self.options.derive_for(name, path);
        self
    }

    /// Types and codecs only. See [`EmitOptions::types_only`].
    #[must_use]
    pub fn types_only(mut self) -> Self {
        self.options = self.options.types_only();
        self
    }

    /// Generates no clients. See [`EmitOptions::no_client`].
    #[must_use]
    pub fn no_client(mut self) -> Self {
        self.options = self.options.no_client();
        self
    }

    /// Generates no servers. See [`EmitOptions::no_server`].
    #[must_use]
    pub fn no_server(mut self) -> Self {
        self.options = self.options.no_server();
        self
    }

    /// How the code is generated: all that there is to say about it.
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

    /// Where to keep a note of what the output was made from; default `OUT_DIR`. Without either none is kept, and each run
    /// generates.
    #[must_use]
    pub fn note_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.note_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Whether the output is there and was made, as a note of an earlier run has it, by this compiler with these options
    /// from files that are as they were. [`Self::run`] does nothing then but repeat the warnings.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.place().is_ok_and(|place| self.note(&place).is_some())
    }

    /// Generates; gives the path of the output. Tells cargo which files to watch, those that are included among them, and
    /// passes warnings on. Nothing is generated when nothing has changed, and an output that is already as it should be
    /// is not written again.
    ///
    /// # Errors
    /// When the specification is wrong or the output cannot be written.
    pub fn run(&self) -> Result<PathBuf, BuildError> {
        // Also when it fails: what has been repaired is to be compiled again.
        for path in &self.inputs {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        // A file that comes to be there may be read in place of another.
        for path in self.include_dirs.iter().filter(|path| path.is_dir()) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        let place = self.place()?;
        if let Some(note) = self.note(&place) {
            self.tell(&note);
            return Ok(place.output);
        }
        let start = SystemTime::now();
        let compiler = self.compiler.clone();
        let compiler = if self.options.client { compiler } else { compiler.no_client() };
        let compiled = compiler.compile().map_err(BuildError::Specification)?;
        let warnings = compiled.warnings.iter().filter(|d| d.severity() == Severity::Warning);
        let warnings = warnings.map(|warning| {
            let place = warning.primary.as_ref().and_then(|label| {
                let source = compiled.sources.get(label.span.file)?;
                let (line, column) = source.line_column(label.span.range.start);
                Some(format!("{}:{line}:{column}: ", source.name()))
            });
            format!("{}{} [{}]", place.unwrap_or_default(), warning.message, warning.code)
        });
        let mut note = RunRecord { warnings: warnings.collect(), ..RunRecord::default() };
        note.files.clone_from(&compiled.files);
        note.absent.clone_from(&compiled.absent);
        self.tell(&note);
        let mut options = self.options.clone();
        if options.source.is_none() {
            let first = self.inputs.first().and_then(|path| path.file_name());
            options.source = first.map(|name| name.to_string_lossy().into_owned());
        }
        let text = emit(&compiled.spec, &options).map_err(BuildError::Emit)?;
        let path = place.output;
        if !fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            fs::write(&path, text).map_err(|error| BuildError::Output { path: path.clone(), error })?;
        }
        if let Some(place) = &place.note {
            // Without a note the next run generates again, no more.
            let _ = note.save(place, &self.asked(), &path, start);
        }
        Ok(path)
    }

    fn place(&self) -> Result<OutputPlace, BuildError> {
        let first = self.inputs.first().ok_or(BuildError::NoInput)?;
        let given = env::var_os("OUT_DIR").map(PathBuf::from);
        let directory = self.out_dir.clone().or_else(|| given.clone()).ok_or(BuildError::NoOutDir)?;
        let name = match &self.output {
            Some(name) => PathBuf::from(name),
            None => PathBuf::from(first.with_extension("rs").file_name().ok_or(BuildError::NoInput)?),
        };
        let note = self.note_dir.clone().or(given).map(|directory| {
            let mut note = name.file_name().unwrap_or_default().to_owned();
            note.push(".note");
            directory.join(note)
        });
        Ok(OutputPlace { output: directory.join(name), note })
    }

    /// The note of an earlier run, if all is as it was.
    fn note(&self, place: &OutputPlace) -> Option<RunRecord> {
        RunRecord::load(place.note.as_deref()?, &self.asked(), &place.output)
    }

    /// What was asked for, texts that are in no file included.
    fn asked(&self) -> String {
        format!("{:?} {:?} {:?}", self.compiler, self.options, self.inputs)
    }

    /// Passes on to cargo what a run has found out.
    fn tell(&self, note: &RunRecord) {
        for path in note.files.iter().filter(|path| !self.inputs.contains(path)) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        for warning in &note.warnings {
            println!("cargo:warning={warning}");
        }
    }
}

/// Where a run writes to.
struct OutputPlace {
    output: PathBuf,
    note: Option<PathBuf>,
}

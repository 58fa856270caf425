//! The API for build scripts, which compiles `.x` files to Rust in `OUT_DIR`.

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

/// A compiler from XDR to Rust for build scripts.
///
/// ```no_run
/// // build.rs
/// fn main() -> Result<(), rpcrdma_xdrgen::BuildError> {
///     rpcrdma_xdrgen::Build::new().file("proto/blobstore.x").run()?;
///     Ok(())
/// }
/// ```
///
/// The crate then includes the output: `include!(concat!(env!("OUT_DIR"), "/blobstore.rs"));`
#[derive(Debug, Clone, Default)]
pub struct Build {
    compiler: Compiler,
    inputs: Vec<PathBuf>,
    /// The first XDR file, after which the output is named.
    first_file: Option<PathBuf>,
    out_dir: Option<PathBuf>,
    output: Option<String>,
    include_dirs: Vec<PathBuf>,
    note_dir: Option<PathBuf>,
    options: EmitOptions,
}

/// The error type of [`Build`]. `Debug` shows the message and its causes, so that a build script can return it from
/// `main`.
#[non_exhaustive]
pub enum BuildError {
    /// The specification has errors.
    Specification(Diagnostics),
    /// [`Build`] has no XDR file, or the path of the first one has no file name.
    NoInput,
    /// The environment variable `OUT_DIR` is not set, and [`Build::out_dir`] was not called.
    NoOutDir,
    /// The code could not be generated.
    Emit(EmitError),
    /// The output file could not be written.
    Output {
        /// The path of the output file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Specification(diagnostics) => diagnostics.fmt(f),
            Self::NoInput => f.write_str("no input file: add an .x file with Build::file"),
            Self::NoOutDir => f.write_str("OUT_DIR is not set: run this in a build script, or call Build::out_dir"),
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
            // `Display` shows these two errors themselves, so that only their causes remain.
            Self::Specification(diagnostics) => diagnostics.source(),
            Self::Emit(error) => error.source(),
            Self::Output { error, .. } => Some(error),
            Self::NoInput | Self::NoOutDir => None,
        }
    }
}

impl Build {
    /// Creates a build without input files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an XDR file. All files together form one specification.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.inputs.push(path.as_ref().to_owned());
        self.first_file.get_or_insert_with(|| path.as_ref().to_owned());
        self.compiler = self.compiler.file(path);
        self
    }

    /// Adds a binding (`.ulb` file). See [`Compiler::ulb`].
    #[must_use]
    pub fn ulb(mut self, path: impl AsRef<Path>) -> Self {
        self.inputs.push(path.as_ref().to_owned());
        self.compiler = self.compiler.ulb(path);
        self
    }

    /// Adds the text of a binding that is not in a separate file. Diagnostics show `name` in place of a path.
    #[must_use]
    pub fn ulb_source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.compiler = self.compiler.ulb_source(name, text);
        self
    }

    /// Adds a directory to search for included files. See [`Compiler::include_dir`].
    #[must_use]
    pub fn include_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.include_dirs.push(path.as_ref().to_owned());
        self.compiler = self.compiler.include_dir(path);
        self
    }

    /// Defines a name for `#if` and `#ifdef`. See [`Compiler::define`].
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: Option<&str>) -> Self {
        self.compiler = self.compiler.define(name, value);
        self
    }

    /// Maps an XDR type to an existing Rust type. See [`Compiler::extern_type`].
    #[must_use]
    pub fn extern_type(mut self, name: impl Into<String>, path: &syn::Path) -> Self {
        self.compiler = self.compiler.extern_type(name, path);
        self
    }

    /// Rejects the dialects of other compilers. See [`Compiler::strict`].
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.compiler = self.compiler.strict();
        self
    }

    /// Sets the maximum size, in bytes, of each reply whose maximum is not stated and does not follow from its type.
    /// See [`Compiler::default_reply_max`].
    #[must_use]
    pub fn default_reply_max(mut self, bytes: u64) -> Self {
        self.compiler = self.compiler.default_reply_max(bytes);
        self
    }

    /// Strips the common prefix of the enumerators from the variants of each enumeration. See
    /// [`Compiler::strip_enum_prefix`].
    #[must_use]
    pub fn strip_enum_prefix(mut self) -> Self {
        self.compiler = self.compiler.strip_enum_prefix();
        self
    }

    /// Strips the common prefix from the enumeration with the XDR name `name`. See [`Compiler::strip_enum_prefix_of`].
    #[must_use]
    pub fn strip_enum_prefix_of(mut self, name: impl Into<String>) -> Self {
        self.compiler = self.compiler.strip_enum_prefix_of(name);
        self
    }

    /// Derives a trait for every type. See [`EmitOptions::derive`].
    #[must_use]
    pub fn derive(mut self, path: syn::Path) -> Self {
        self.options = self.options.derive(path);
        self
    }

    /// Derives a trait for the type with the XDR name `name`. See [`EmitOptions::derive_for`].
    #[must_use]
    pub fn derive_for(mut self, name: impl Into<String>, path: syn::Path) -> Self {
        self.options = self.options.derive_for(name, path);
        self
    }

    /// Generates types and codecs only. See [`EmitOptions::types_only`].
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

    /// Replaces all options of the generated code, including those that earlier calls have set.
    #[must_use]
    pub fn options(mut self, options: EmitOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the directory of the output. The default is `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.out_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Sets the file name of the output. The default is the name of the XDR file that was added first, with its
    /// extension replaced by `.rs`.
    #[must_use]
    pub fn output(mut self, name: impl Into<String>) -> Self {
        self.output = Some(name.into());
        self
    }

    /// Sets the directory for the run record, which lists the inputs of the output. The default is `OUT_DIR`. If
    /// neither is set, no record is written, and each run generates the output.
    #[must_use]
    pub fn note_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.note_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Returns `true` if the output is up to date.
    ///
    /// This is the case if the output exists and, according to the record of an earlier run, this compiler generated it
    /// with the same options from files that have not changed. [`Self::run`] then only repeats the instructions for
    /// Cargo.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.place().is_ok_and(|place| self.note(&place).is_some())
    }

    /// Generates the output and returns its path.
    ///
    /// Prints the instructions for Cargo: the warnings, and the paths to watch. These are the input files, the files
    /// that they include, and the include directories. Paths in `OUT_DIR` are not watched. Does nothing else if the
    /// output is up to date. The file is not written if its contents would not change.
    ///
    /// # Errors
    /// Returns an error if there is no input file or output directory, if the specification has errors, if the code
    /// cannot be generated, or if the output cannot be written.
    pub fn run(&self) -> Result<PathBuf, BuildError> {
        // Print these even if the run fails, so that cargo runs the script again once the file is fixed.
        for path in &self.inputs {
            print_watched(path);
        }
        // A new file in one of these directories may take precedence over a file that was read.
        for path in self.include_dirs.iter().filter(|path| path.is_dir()) {
            print_watched(path);
        }
        let place = self.place()?;
        if let Some(note) = self.note(&place) {
            self.print_directives(&note);
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
        self.print_directives(&note);
        let mut options = self.options.clone();
        if options.source.is_none() {
            let first = self.first_file.as_ref().and_then(|path| path.file_name());
            options.source = first.map(|name| name.to_string_lossy().into_owned());
        }
        let text = emit(&compiled.spec, &options).map_err(BuildError::Emit)?;
        let path = place.output;
        if !fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            fs::write(&path, text).map_err(|error| BuildError::Output { path: path.clone(), error })?;
        }
        if let Some(place) = &place.note {
            // An error here only means that the next run generates the output again.
            let _ = note.save(place, &self.settings(), &path, start);
        }
        Ok(path)
    }

    fn place(&self) -> Result<OutputPlace, BuildError> {
        let first = self.first_file.as_ref().ok_or(BuildError::NoInput)?;
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

    /// Returns the record of an earlier run if nothing has changed since.
    fn note(&self, place: &OutputPlace) -> Option<RunRecord> {
        RunRecord::load(place.note.as_deref()?, &self.settings(), &place.output)
    }

    /// Returns the settings as text. They include input texts that are not in a file.
    fn settings(&self) -> String {
        format!("{:?} {:?} {:?}", self.compiler, self.options, self.inputs)
    }

    /// Prints the instructions for Cargo from the record of a run: the warnings, and the files to watch in addition to
    /// the inputs.
    fn print_directives(&self, note: &RunRecord) {
        for path in note.files.iter().filter(|path| !self.inputs.contains(path)) {
            print_watched(path);
        }
        for warning in &note.warnings {
            println!("cargo:warning={warning}");
        }
    }
}

/// Tells Cargo to run the script again if the file or directory changes.
fn print_watched(path: &Path) {
    let out_dir = env::var_os("OUT_DIR");
    if is_watched(path, out_dir.as_deref().map(Path::new)) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

/// Returns `true` unless the path is in the build script's own output directory. The script has written such a file in
/// this run, so Cargo would always find it newer than the run, and build the package each time.
fn is_watched(path: &Path, out_dir: Option<&Path>) -> bool {
    !out_dir.is_some_and(|out_dir| path.starts_with(out_dir))
}

/// The paths of the files that a run writes.
struct OutputPlace {
    output: PathBuf,
    note: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If files that the script writes were watched, Cargo would run the script and compile its package in each build.
    #[test]
    fn files_of_the_script_are_not_watched() {
        let out_dir = Some(Path::new("/target/build/a/out"));
        assert!(!is_watched(Path::new("/target/build/a/out/point.x"), out_dir));
        assert!(is_watched(Path::new("/target/build/a/output.x"), out_dir));
        assert!(is_watched(Path::new("src/point.x"), out_dir));
        assert!(is_watched(Path::new("/target/build/a/out/point.x"), None));
    }
}

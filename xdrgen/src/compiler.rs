//! The compiler as a library. Compiles XDR texts to a checked specification, or reports diagnostics.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use quote::ToTokens as _;

use crate::{
    ast::{Dialect, Statement},
    diag::{Code, Diagnostic, Diagnostics, Severity},
    elsewhere,
    ir::Spec,
    load::{Loader, TextSource},
    macro_kinds::classify,
    parse,
    prefix::{self, Stripped},
    resolve::resolve,
    source::Sources,
    ulb,
};

/// A compiler from XDR to the IR. All input files together form one specification.
///
/// ```
/// let compiled = rpcrdma_xdrgen::Compiler::new()
///     .source("point.x", "struct point { int x; int y; };")
///     .compile()?;
/// assert_eq!(compiled.spec.items[0].name.text, "point");
/// # Ok::<(), rpcrdma_xdrgen::diag::Diagnostics>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Compiler {
    inputs: Vec<TextSource>,
    bindings: Vec<TextSource>,
    options: ulb::UlbOptions,
    include_dirs: Vec<PathBuf>,
    defines: Vec<(String, Option<String>)>,
    externs: Vec<(String, String)>,
    strict: bool,
    stripped: Stripped,
}

/// The output of [`Compiler::compile`].
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The checked specification.
    pub spec: Spec,
    /// The source texts, indexed by the file number in a span.
    pub sources: Arc<Sources>,
    /// Files that the compiler read. A build script should watch them for changes.
    pub files: Vec<PathBuf>,
    /// Paths at which the compiler looked for included files, but that are not files. A build script should run again
    /// when a file appears at one of them.
    pub absent: Vec<PathBuf>,
    /// The warnings of the run.
    pub warnings: Diagnostics,
}

impl Compiler {
    /// Creates a compiler without input files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an XDR file.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.inputs.push(TextSource::Path(path.as_ref().to_owned()));
        self
    }

    /// Adds XDR text. Diagnostics show `name` in place of a path.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.inputs.push(TextSource::Text(name.into(), text.into()));
        self
    }

    /// Adds a binding (`.ulb` file), which replaces annotations if the specification should not be modified.
    #[must_use]
    pub fn ulb(mut self, path: impl AsRef<Path>) -> Self {
        self.bindings.push(TextSource::Path(path.as_ref().to_owned()));
        self
    }

    /// Adds the text of a binding. Diagnostics show `name` in place of a path.
    #[must_use]
    pub fn ulb_source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.bindings.push(TextSource::Text(name.into(), text.into()));
        self
    }

    /// Sets the maximum size, in bytes, of each reply whose maximum is not stated and does not follow from its type.
    ///
    /// By default, such a reply is an error (RFC 8166 §6.2) if the specification has a binding: annotations or a `.ulb`
    /// file. If it has none, the compiler assumes [`DEFAULT_REPLY_MAX`](crate::DEFAULT_REPLY_MAX) with a warning
    /// ([`Code::AssumedMaximum`]). With this setting, such replies are accepted silently. A call whose reply is larger
    /// fails.
    #[must_use]
    pub fn default_reply_max(mut self, bytes: u64) -> Self {
        self.options.default_reply_max = Some(bytes);
        self
    }

    /// Reports each reply without a maximum as an error, even if the specification has no binding.
    ///
    /// The macros call this, because a macro cannot show a warning.
    #[must_use]
    pub fn require_reply_max(mut self) -> Self {
        self.options.require_reply_max = true;
        self
    }

    /// Adds a directory to search for included files (`#include "types.x"`). The directory of the including file comes
    /// first.
    #[must_use]
    pub fn include_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.include_dirs.push(path.as_ref().to_owned());
        self
    }

    /// Defines a name for `#if` and `#ifdef`. If the value is a constant or a type, the specification can also use the
    /// name as that constant or type, unless a file declares the name itself.
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: Option<&str>) -> Self {
        self.defines.push((name.into(), value.map(str::to_owned)));
        self
    }

    /// Maps the XDR type `name` to the existing Rust type `path`. A declaration of `name` in the input is ignored.
    ///
    /// The Rust type must implement the codec traits of the runtime, `Debug`, `Clone` and `PartialEq`. It must not
    /// contain items that are eligible for direct data placement; the generated code checks this.
    ///
    /// The compiler does not know the maximum size of such a type: see [`Self::default_reply_max`].
    #[must_use]
    pub fn extern_type(mut self, name: impl Into<String>, path: &syn::Path) -> Self {
        self.externs.push((name.into(), path.to_token_stream().to_string()));
        self
    }

    /// Rejects the dialects of other compilers, which RFC 4506 and RFC 5531 do not define. Annotations are still
    /// accepted.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Strips the common prefix of the enumerators from the variants of each enumeration.
    ///
    /// For example, `NF3REG` becomes `Ftype3::Reg`, and `NFS3ERR_NOENT`, in an enumeration with `NFS3_OK`, becomes
    /// `Nfsstat3::Noent`. The prefix ends at the end of a word. Union variants that are named after enumerators lose
    /// the prefix too.
    ///
    /// [`Self::compile`] reports [`Code::BadShortName`] if a short name begins with a digit, or if two enumerators have
    /// the same short name.
    #[must_use]
    pub fn strip_enum_prefix(mut self) -> Self {
        self.stripped = Stripped::All;
        self
    }

    /// Strips the common prefix from the enumeration with the XDR name `name`. [`Self::strip_enum_prefix`] does this
    /// for all enumerations.
    #[must_use]
    pub fn strip_enum_prefix_of(mut self, name: impl Into<String>) -> Self {
        match &mut self.stripped {
            Stripped::All => {}
            Stripped::Named(names) => names.push(name.into()),
            Stripped::Nothing => self.stripped = Stripped::Named(vec![name.into()]),
        }
        self
    }

    /// Declares that no client is generated, so that a reply without a maximum is not an error.
    ///
    /// Only a requester needs to know the maximum size of a reply (RFC 8166 §6). The bound of such a reply is
    /// 4 294 967 295 bytes. [`Build`](crate::Build), the macros and the command set this according to the stubs that
    /// they generate.
    #[must_use]
    pub fn no_client(mut self) -> Self {
        self.options.no_client = true;
        self
    }

    /// Compiles the input.
    ///
    /// # Errors
    /// Returns all errors of the input that can be found in one run. An error may hide others.
    pub fn compile(&self) -> Result<Compiled, Diagnostics> {
        let mut out = Vec::new();
        let mut loader = Loader::new(&self.include_dirs, self.strict);
        loader
            .defines
            .extend(self.defines.iter().map(|(name, value)| (name.clone(), value.clone().unwrap_or("1".into()))));
        for input in &self.inputs {
            loader.load(input, &mut out);
        }
        let given = self.defines.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        loader.declare(&given.collect::<Vec<_>>());
        let mut statements = Vec::new();
        for input in &self.bindings {
            if let Some((file, text)) = loader.read(input, &mut out) {
                statements.extend(parse::parse_binding(file, &text, &mut out));
            }
        }
        if !self.strict {
            elsewhere::find(&mut loader, &self.externs, &mut out);
        }
        let Loader { mut trees, sources, files, absent, .. } = loader;
        if trees.iter().any(|tree| tree.stopped_early) {
            return Err(Diagnostics::new(out, Arc::new(sources)));
        }
        classify(&mut trees, &mut out);
        let resolved = resolve(&trees, &self.externs, &sources, &mut out);
        if self.strict {
            out.extend(trees.iter().flat_map(|tree| &tree.dialects).chain(&resolved.dialects).map(dialect_error));
        }
        let sources = Arc::new(sources);
        if out.iter().any(|diagnostic| diagnostic.severity() == Severity::Error) {
            return Err(Diagnostics::new(out, sources));
        }
        let hints: Vec<Statement> = trees.iter_mut().flat_map(|tree| std::mem::take(&mut tree.hints)).collect();
        let mut spec = ulb::bind(resolved, &statements, &hints, self.options, &mut out);
        prefix::strip(&mut spec, &self.stripped, &mut out);
        let diagnostics = Diagnostics::new(out, Arc::clone(&sources));
        if diagnostics.error_count() > 0 {
            return Err(diagnostics);
        }
        Ok(Compiled { spec, sources, files, absent, warnings: diagnostics })
    }
}

/// Returns the error for a dialect in strict mode.
fn dialect_error(dialect: &Dialect) -> Diagnostic {
    Diagnostic::new(Code::Dialect, format!("{}: a dialect", dialect.what))
        .at(&dialect.span, "")
        .note(format!("not in {}", dialect.rule))
}

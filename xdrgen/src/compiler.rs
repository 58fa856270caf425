//! The compiler as a library: texts in, a checked specification or diagnostics out.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use quote::ToTokens as _;

use crate::{
    ast::Dialect,
    diag::{Code, Diagnostic, Diagnostics, Severity},
    ir::Spec,
    load::{Loader, TextSource},
    macro_kinds::settle,
    parse,
    prefix::{self, Stripped},
    resolve::resolve,
    source::Sources,
    ulb,
};

/// Compiles XDR to the IR. Several files make one specification.
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

/// What comes out.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The specification.
    pub spec: Spec,
    /// The texts it was made from, by the index that spans carry.
    pub sources: Arc<Sources>,
    /// Files that were read, for build scripts to watch.
    pub files: Vec<PathBuf>,
    /// Files that would have been read in place of others, or of none, were they there.
    pub absent: Vec<PathBuf>,
    /// What is suspicious without being wrong.
    pub warnings: Diagnostics,
}

impl Compiler {
    /// A compiler without input.
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

    /// Adds XDR text; `name` stands for its path in messages.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.inputs.push(TextSource::Text(name.into(), text.into()));
        self
    }

    /// Adds a binding (`.ulb`): what annotations say, beside a specification that is to stay as it is.
    #[must_use]
    pub fn ulb(mut self, path: impl AsRef<Path>) -> Self {
        self.bindings.push(TextSource::Path(path.as_ref().to_owned()));
        self
    }

    /// Adds the text of a binding; `name` stands for its path in messages.
    #[must_use]
    pub fn ulb_source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.bindings.push(TextSource::Text(name.into(), text.into()));
        self
    }

    /// Takes `octets` as the maximum of each reply that has none. Without it such a reply is an error (RFC 8166
    /// §6.2): with it, a specification that has no binding compiles, and a reply that turns out longer fails its
    /// call.
    #[must_use]
    pub fn default_reply_max(mut self, octets: u64) -> Self {
        self.options.default_reply_max = Some(octets);
        self
    }

    /// Adds a directory in which files that others include (`#include "types.x"`) are looked for, after that of the
    /// file that includes them.
    #[must_use]
    pub fn include_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.include_dirs.push(path.as_ref().to_owned());
        self
    }

    /// Defines a name for `#if` and `#ifdef`. One with a value is a constant too, if no file declares it.
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: Option<&str>) -> Self {
        self.defines.push((name.into(), value.map(str::to_owned)));
        self
    }

    /// Takes the type `name` to be `path` in Rust, as one that another module has; a declaration of that name is not
    /// looked at. It must implement the codec traits of the runtime, hold nothing that is eligible for direct data
    /// placement (the generated code has that checked), and be `Debug`, `Clone` and `PartialEq`.
    ///
    /// How long it gets is not known here: see [`Self::default_reply_max`].
    #[must_use]
    pub fn extern_type(mut self, name: impl Into<String>, path: &syn::Path) -> Self {
        self.externs.push((name.into(), path.to_token_stream().to_string()));
        self
    }

    /// Refuses what other compilers take but RFC 4506 and RFC 5531 do not define. Annotations are no matter of it.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Strips from the variants of each enumeration the prefix that its enumerators share: `NF3REG` becomes `Ftype3::Reg`,
    /// and `NFS3ERR_NOENT`, beside `NFS3_OK`, becomes `Nfsstat3::Noent`. The prefix ends with a word. Variants of unions
    /// that are named after enumerators lose it, too.
    ///
    /// A short name that begins with a digit, or that two enumerators would have, is an error
    /// ([`Code::BadShortName`]).
    #[must_use]
    pub fn strip_enum_prefix(mut self) -> Self {
        self.stripped = Stripped::All;
        self
    }

    /// Strips the common prefix from one enumeration, by its name in XDR. See [`Self::strip_enum_prefix`], which includes
    /// all enumerations.
    #[must_use]
    pub fn strip_enum_prefix_of(mut self, name: impl Into<String>) -> Self {
        match &mut self.stripped {
            Stripped::All => {}
            Stripped::Named(names) => names.push(name.into()),
            Stripped::Nothing => self.stripped = Stripped::Named(vec![name.into()]),
        }
        self
    }

    /// Declares that no client is generated. Only a requester needs to know how large a reply gets (RFC 8166 §6), so a reply
    /// without a maximum is no error then: its bound is 4 294 967 295 bytes.
    ///
    /// [`Build`](crate::Build), the macros and the command set this according to the stubs that they generate.
    #[must_use]
    pub fn no_client(mut self) -> Self {
        self.options.no_client = true;
        self
    }

    /// Compiles.
    ///
    /// # Errors
    /// All that is wrong with the input, as far as one fault does not hide another.
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
        let Loader { mut trees, sources, files, absent, .. } = loader;
        if trees.iter().any(|tree| tree.given_up) {
            return Err(Diagnostics::new(out, Arc::new(sources)));
        }
        settle(&mut trees, &mut out);
        let resolved = resolve(&trees, &self.externs, &sources, &mut out);
        if self.strict {
            out.extend(trees.iter().flat_map(|tree| &tree.dialects).chain(&resolved.dialects).map(refused));
        }
        let sources = Arc::new(sources);
        if out.iter().any(|diagnostic| diagnostic.severity() == Severity::Error) {
            return Err(Diagnostics::new(out, sources));
        }
        let mut spec = ulb::bind(resolved, &statements, self.options, &mut out);
        prefix::strip(&mut spec, &self.stripped, &mut out);
        let diagnostics = Diagnostics::new(out, Arc::clone(&sources));
        if diagnostics.error_count() > 0 {
            return Err(diagnostics);
        }
        Ok(Compiled { spec, sources, files, absent, warnings: diagnostics })
    }
}

/// What is said of a dialect where none is to be.
fn refused(dialect: &Dialect) -> Diagnostic {
    Diagnostic::new(Code::Dialect, format!("{}: a dialect", dialect.what))
        .at(&dialect.span, "")
        .note(format!("not in {}", dialect.rule))
}

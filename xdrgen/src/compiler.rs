//! The compiler as a library: texts in, a checked specification or diagnostics out.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    ast,
    diag::{Code, Diagnostic, Diagnostics, Severity},
    ir::Spec,
    parse,
    resolve::resolve,
    source::Sources,
    ulb,
};

/// Where a text comes from.
#[derive(Debug, Clone)]
enum Input {
    Path(PathBuf),
    Text(String, Arc<str>),
}

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
    inputs: Vec<Input>,
    bindings: Vec<Input>,
    options: ulb::Options,
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
        self.inputs.push(Input::Path(path.as_ref().to_owned()));
        self
    }

    /// Adds XDR text; `name` stands for its path in messages.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.inputs.push(Input::Text(name.into(), text.into()));
        self
    }

    /// Adds a binding (`.ulb`): what annotations say, beside a specification that is to stay as it is.
    #[must_use]
    pub fn ulb(mut self, path: impl AsRef<Path>) -> Self {
        self.bindings.push(Input::Path(path.as_ref().to_owned()));
        self
    }

    /// Adds the text of a binding; `name` stands for its path in messages.
    #[must_use]
    pub fn ulb_source(mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        self.bindings.push(Input::Text(name.into(), text.into()));
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

    /// Compiles.
    ///
    /// # Errors
    /// All that is wrong with the input, as far as one fault does not hide another.
    pub fn compile(&self) -> Result<Compiled, Diagnostics> {
        let mut out = Vec::new();
        let mut sources = Sources::default();
        let mut files = Vec::new();
        let mut trees: Vec<ast::File> = Vec::new();
        for input in &self.inputs {
            if let Some((file, text)) = read(input, &mut sources, &mut files, &mut out) {
                trees.push(parse::parse(file, &text, &mut out));
            }
        }
        let mut statements = Vec::new();
        for input in &self.bindings {
            if let Some((file, text)) = read(input, &mut sources, &mut files, &mut out) {
                statements.extend(parse::parse_binding(file, &text, &mut out));
            }
        }
        if trees.iter().any(|tree| tree.given_up) {
            return Err(Diagnostics::new(out, Arc::new(sources)));
        }
        let resolved = resolve(&trees, &sources, &mut out);
        let sources = Arc::new(sources);
        if out.iter().any(|diagnostic| diagnostic.severity() == Severity::Error) {
            return Err(Diagnostics::new(out, sources));
        }
        let spec = ulb::bind(resolved, &statements, self.options, &mut out);
        let diagnostics = Diagnostics::new(out, Arc::clone(&sources));
        if diagnostics.error_count() > 0 {
            return Err(diagnostics);
        }
        Ok(Compiled { spec, sources, files, warnings: diagnostics })
    }
}

/// Takes an input among the sources; gives its index and its text. `None` after a complaint.
fn read(
    input: &Input,
    sources: &mut Sources,
    files: &mut Vec<PathBuf>,
    out: &mut Vec<Diagnostic>,
) -> Option<(usize, Arc<str>)> {
    let (name, text) = match input {
        Input::Text(name, text) => (name.clone(), Arc::clone(text)),
        Input::Path(path) => match std::fs::read(path) {
            // Old specifications have comments in other encodings: what is no UTF-8 is shown as such.
            Ok(octets) => {
                files.push(path.clone());
                (path.display().to_string(), Arc::from(String::from_utf8_lossy(&octets)))
            }
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                out.push(Diagnostic::new(Code::Unreadable, message));
                return None;
            }
        },
    };
    Some((sources.add(name, Arc::clone(&text)), text))
}

//! Loading of the input files and of the files that they include. Each file is parsed into a syntax tree.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    ast::{self, DefinitionKind, Ident, Macro},
    const_expr::Defines,
    diag::{Code, Diagnostic},
    parse,
    preprocess::{self, Included, MAX_INCLUDES},
    source::{self, Sources, span, unix_lines},
};

/// The origin of a source text: a file, or a name and a text.
#[derive(Debug, Clone)]
pub(crate) enum TextSource {
    Path(PathBuf),
    Text(String, Arc<str>),
}

/// A reader of source files, which collects their syntax trees.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    /// Directories to search for included files, after the directory of the including file.
    include_dirs: Vec<PathBuf>,
    /// `true` to record constructs that the RFCs do not define.
    strict: bool,
    pub(crate) defines: Defines,
    pub(crate) sources: Sources,
    /// Files that were read.
    pub(crate) files: Vec<PathBuf>,
    /// Paths that the loader tried, but that are not files.
    pub(crate) absent: Vec<PathBuf>,
    /// The paths of the sources that are files, by the index of the source.
    pub(crate) paths: HashMap<usize, PathBuf>,
    /// Syntax trees. The tree of a file follows the trees of the files that it includes.
    pub(crate) trees: Vec<ast::File>,
    /// Files whose reading has started. Each file is read once.
    seen: HashSet<PathBuf>,
    depth: usize,
}

impl Loader {
    /// Creates a loader that searches `include_dirs` for included files. If `strict` is `true`, it records constructs
    /// that the RFCs do not define.
    pub(crate) fn new(include_dirs: &[PathBuf], strict: bool) -> Self {
        Self { include_dirs: include_dirs.to_vec(), strict, ..Self::default() }
    }

    /// Reads and parses a file that is not part of the input. Returns the trees and the paths of the file and of the
    /// files that it includes.
    pub(crate) fn peek(&mut self, path: &Path) -> (Vec<ast::File>, Vec<PathBuf>) {
        let mut other = Self::new(&self.include_dirs, false);
        other.defines.clone_from(&self.defines);
        other.sources = std::mem::take(&mut self.sources);
        // The errors of a file that may not be used do not matter.
        other.load(&TextSource::Path(path.to_owned()), &mut Vec::new());
        self.sources = other.sources;
        self.paths.extend(other.paths);
        (other.trees, other.files)
    }

    /// Reads and parses an input, together with the files it includes. Does nothing if the loader has already read the
    /// file.
    pub(crate) fn load(&mut self, input: &TextSource, out: &mut Vec<Diagnostic>) {
        if let TextSource::Path(path) = input
            && !self.mark_read(path)
        {
            return;
        }
        let Some((file, text)) = self.read(input, out) else { return };
        if let TextSource::Path(path) = input {
            self.paths.insert(file, path.clone());
        }
        let base = match input {
            TextSource::Path(path) => path.parent().map(Path::to_owned),
            // The name of a text need not be a path.
            TextSource::Text(..) => None,
        };
        let mut defines = std::mem::take(&mut self.defines);
        let mut include = |name: &str, defines: &mut Defines, out: &mut Vec<Diagnostic>| {
            std::mem::swap(&mut self.defines, defines);
            let found = self.include(base.as_deref(), name, out);
            std::mem::swap(&mut self.defines, defines);
            found
        };
        let done = preprocess::run(file, &text, &mut defines, &mut include, out);
        self.defines = defines;
        let mut tree = parse::parse(file, &done.text, self.strict, out);
        tree.macros = done.macros;
        tree.excluded = done.excluded;
        tree.passed_through.extend(done.passed_through);
        if self.strict {
            tree.dialects.extend(done.dialects);
        }
        self.trees.push(tree);
    }

    /// Reads an input and adds it to the sources. Returns its index and its text, or `None` after reporting an error.
    pub(crate) fn read(&mut self, input: &TextSource, out: &mut Vec<Diagnostic>) -> Option<(usize, Arc<str>)> {
        let (name, text) = match input {
            TextSource::Text(name, text) => (name.clone(), Arc::clone(text)),
            TextSource::Path(path) => match source::read(path) {
                // Comments in old specifications use other encodings. Invalid UTF-8 is replaced.
                Ok(bytes) => {
                    self.files.push(path.clone());
                    (path.display().to_string(), Arc::from(String::from_utf8_lossy(&bytes)))
                }
                Err(error) => {
                    let message = format!("cannot read {}: {error}", path.display());
                    out.push(Diagnostic::new(Code::Unreadable, message));
                    return None;
                }
            },
        };
        let text = unix_lines(text);
        Some((self.sources.add(name, Arc::clone(&text)), text))
    }

    /// Marks the file as read. Returns `true` if it was not marked before.
    fn mark_read(&mut self, path: &Path) -> bool {
        self.seen.insert(canonical_path(path))
    }

    /// Reads an included file. `base` is the directory of the file that includes it.
    fn include(&mut self, base: Option<&Path>, name: &str, out: &mut Vec<Diagnostic>) -> Included {
        let directories = base.into_iter().chain(self.include_dirs.iter().map(PathBuf::as_path));
        let mut found = None;
        for path in directories.map(|directory| directory.join(name)) {
            if path.is_file() {
                found = Some(path);
                break;
            }
            self.absent.push(path);
        }
        let Some(path) = found else { return Included::Missing };
        if self.depth >= MAX_INCLUDES && !self.seen.contains(&canonical_path(&path)) {
            return Included::TooDeep;
        }
        self.depth += 1;
        self.load(&TextSource::Path(path), out);
        self.depth -= 1;
        Included::Read
    }

    /// Declares the user's definitions (`-D NAME=VALUE`) as constants or types. Skips names that a file declares as a
    /// constant or macro, and values that are neither constants nor types. Users need the declarations for names from C
    /// headers.
    pub(crate) fn declare(&mut self, given: &[(String, String)]) {
        let mut declared = HashSet::new();
        for definition in self.trees.iter().flat_map(|tree| &tree.definitions) {
            if let DefinitionKind::Const { name, .. } = &definition.kind {
                declared.insert(name.text.clone());
            }
        }
        declared.extend(self.trees.iter().flat_map(|tree| &tree.macros).map(|line| line.name.text.clone()));
        for (name, text) in given.iter().filter(|(name, _)| !declared.contains(name)) {
            let source = self.sources.add("user definition", format!("{name} = {text}"));
            let at = span(source, 0..name.len());
            let (value, ty) = preprocess::meaning(text, &self.defines, &at);
            // A value that is neither may be intended for conditions only.
            if value.is_none() && ty.is_none() {
                continue;
            }
            let whole = span(source, 0..name.len() + 3 + text.len());
            let line = Macro { name: Ident { text: name.clone(), span: at }, doc: Vec::new(), span: whole, value, ty };
            self.trees.push(ast::File { source, macros: vec![line], ..ast::File::default() });
        }
    }
}

/// Returns the canonical path of a file, so that two names of one file compare equal.
fn canonical_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

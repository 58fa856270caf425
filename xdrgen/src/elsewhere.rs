//! Search for declarations of names that the input uses but does not declare. Sources are `%#define` lines, types of
//! Sun's headers, and `.x` files in the same directory.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{
    ast::{Declaration, Declarator, Definition, DefinitionKind, File, Ident, Macro, Primitive, TypeKind},
    c_lines::{self, SUN_TYPES},
    declared::DeclaredNames,
    diag::{Code, Diagnostic},
    lexer::is_of_word,
    load::Loader,
    parse, preprocess, source,
    source::Span,
    uses::Uses,
};

/// Maximum number of `.x` files to search in a directory.
const MAX_SIBLINGS: usize = 512;

/// Adds declarations for the names that the input uses but does not declare, where a declaration is found. Warns about
/// declarations from other `.x` files. `externs` maps XDR types to the paths of user-defined Rust types.
pub(crate) fn find(loader: &mut Loader, externs: &[(String, String)], out: &mut Vec<Diagnostic>) {
    let mut search =
        Search { siblings: HashMap::new(), externs: externs.iter().map(|(name, _)| name.clone()).collect() };
    // A declaration can use other undeclared names. Each round adds at least one declaration.
    let mut looked_up = HashSet::new();
    loop {
        let undeclared = search.undeclared(&loader.trees);
        let new: Vec<Undeclared> =
            undeclared.into_iter().filter(|name| looked_up.insert((name.text.clone(), name.file))).collect();
        if new.is_empty() {
            break;
        }
        for name in new {
            let _ = declare_from_c(loader, &name)
                || declare_from_header(loader, &name)
                || search.find_in_siblings(loader, &name);
        }
    }
    search.finish(loader, out);
}

/// A name that the input uses but does not declare.
struct Undeclared {
    text: String,
    /// Index of the source that uses the name.
    file: usize,
    /// The position of the first use in this source.
    at: Span,
    is_type: bool,
}

/// A `.x` file in the directory of an input file that is not itself part of the input.
#[derive(Debug)]
struct Sibling {
    path: PathBuf,
    /// The words in the text of the file. A name that is not among them needs no search in the syntax trees.
    words: HashSet<String>,
    /// The syntax trees and the paths of the file and of the files that it includes. `None` until the file is parsed.
    trees: Option<(Vec<File>, Vec<PathBuf>)>,
    /// The names that the input takes from the file, each with the position of its first use and of its declaration.
    /// Does not contain names that were taken only because these declarations use them.
    taken: Vec<(String, Span, Span)>,
}

struct Search {
    /// For each directory, its `.x` files that do not belong to the input, sorted by path.
    siblings: HashMap<PathBuf, Vec<Sibling>>,
    externs: HashSet<String>,
}

impl Search {
    /// Returns the names that `trees` use but do not declare. A name is returned once for each source that uses it. The
    /// types of a tree come before its constants, both in order of their first use.
    fn undeclared(&self, trees: &[File]) -> Vec<Undeclared> {
        let known = DeclaredNames::of(trees);
        let macros: HashSet<&str> =
            trees.iter().flat_map(|tree| &tree.macros).map(|line| line.name.text.as_str()).collect();
        // The words of a definition with a syntax error may declare a name.
        let failed = |name: &str| trees.iter().any(|tree| tree.failed_words.contains(name));
        let is_type = |name: &str| {
            known.types.contains_key(name)
                || macros.contains(name)
                || self.externs.contains(name)
                || Primitive::predeclared(name).is_some()
                || name == "zcopaque"
        };
        let is_constant = |name: &str| known.constants.contains(name) || macros.contains(name) || name.contains("::");
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for tree in trees {
            let mut uses = Uses::default();
            let definitions = tree.definitions.iter().filter(|definition| !is_inverted(definition, &known));
            definitions.for_each(|definition| uses.definition(definition));
            tree.macros.iter().for_each(|line| uses.line(line));
            for ty in uses.types {
                if !is_type(&ty.text) && !failed(&ty.text) && seen.insert((ty.text.clone(), tree.source)) {
                    let at = ty.span.clone();
                    found.push(Undeclared { text: ty.text.clone(), file: tree.source, at, is_type: true });
                }
            }
            for (name, at) in uses.constants {
                // The value of a macro can be the name of a type.
                let is_known = is_constant(name) || is_type(name) || failed(name);
                if !is_known && seen.insert((name.to_owned(), tree.source)) {
                    found.push(Undeclared { text: name.to_owned(), file: tree.source, at: at.clone(), is_type: false });
                }
            }
        }
        found
    }

    /// Takes the declaration of a name from a `.x` file in the directory of the source that uses the name. Files with
    /// the name of an included header take precedence. Returns `true` if exactly one file declares the name, or if all
    /// declarations have the same text apart from white space.
    fn find_in_siblings(&mut self, loader: &mut Loader, name: &Undeclared) -> bool {
        let Some(path) = loader.paths.get(&name.file).cloned() else { return false };
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let files = self.siblings.entry(directory.clone()).or_insert_with(|| siblings(&directory, loader));
        let headers = loader.trees.iter().filter(|tree| tree.source == name.file).flat_map(c_lines::included);
        let stems: HashSet<PathBuf> =
            headers.filter_map(|header| Some(PathBuf::from(Path::new(header).file_stem()?))).collect();
        let (mut found, mut of_header): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (index, file) in files.iter_mut().enumerate().filter(|(_, file)| file.words.contains(&name.text)) {
            let (trees, _) = file.trees.get_or_insert_with(|| loader.peek(&file.path));
            if trees.iter().any(|tree| declares(tree, name).is_some()) {
                found.push(index);
                if file.path.file_stem().is_some_and(|stem| stems.contains(Path::new(stem))) {
                    of_header.push(index);
                }
            }
        }
        // The file that belongs to an included header takes precedence.
        let found = if of_header.is_empty() { found } else { of_header };
        let texts: HashSet<String> = found.iter().filter_map(|&index| text(loader, &files[index], name)).collect();
        let (Some(&first), 1) = (found.first(), texts.len()) else { return false };
        files[first].take(loader, name)
    }

    /// Warns about each file that declarations were taken from, and adds the file to the files that the loader has
    /// read.
    fn finish(self, loader: &mut Loader, out: &mut Vec<Diagnostic>) {
        let files: BTreeMap<PathBuf, Sibling> =
            self.siblings.into_values().flatten().map(|sibling| (sibling.path.clone(), sibling)).collect();
        for (path, sibling) in files {
            let Some((name, used, declared)) = sibling.taken.first() else { continue };
            let shown = path.file_name().unwrap_or_default().to_string_lossy();
            let more = match sibling.taken.len() - 1 {
                0 => String::new(),
                1 => " and one more name".to_owned(),
                more => format!(" and {more} more names"),
            };
            out.push(
                Diagnostic::new(
                    Code::FoundElsewhere,
                    format!("`{name}`{more}: taken from `{shown}`, in the same directory"),
                )
                .at(used, "not declared in the input")
                .also(declared, "declared here")
                .help(format!("write `#include \"{shown}\"`, or compile both files together")),
            );
            loader.files.extend(sibling.trees.map(|(_, files)| files).unwrap_or_default());
        }
    }
}

impl Sibling {
    /// Moves the declaration of a name from this file to the input. Also moves the declarations of this file on which
    /// that declaration depends, unless the input declares their names. Returns `true` if the file declares `name`.
    fn take(&mut self, loader: &mut Loader, name: &Undeclared) -> bool {
        let Some((trees, _)) = &mut self.trees else { return false };
        let known = DeclaredNames::of(&loader.trees);
        let mut wanted = vec![(name.text.clone(), name.is_type)];
        let mut done: HashSet<String> = HashSet::new();
        let mut declared = None;
        while let Some((text, is_type)) = wanted.pop() {
            if !done.insert(text.clone()) {
                continue;
            }
            let is_known = known.types.contains_key(&text) || known.constants.contains(&text);
            if is_known && text != name.text {
                continue;
            }
            let one = Undeclared { text, file: name.file, at: name.at.clone(), is_type };
            for tree in trees.iter_mut() {
                let Some((found, span)) = declares(tree, &one) else { continue };
                let target = target(&mut loader.trees, tree);
                let mut uses = Uses::default();
                match found {
                    Found::Definition(index) => {
                        target.definitions.push(tree.definitions.remove(index));
                        target.definitions.last().iter().for_each(|definition| uses.definition(definition));
                    }
                    Found::Macro(index) => {
                        target.macros.push(tree.macros.remove(index));
                        target.macros.last().iter().for_each(|line| uses.line(line));
                    }
                }
                if one.text == name.text {
                    declared = Some(span);
                }
                wanted.extend(uses.types.iter().map(|ty| (ty.text.clone(), true)));
                wanted.extend(uses.constants.iter().map(|(constant, _)| ((*constant).to_owned(), false)));
                break;
            }
        }
        let is_found = declared.is_some();
        self.taken.extend(declared.map(|declared| (name.text.clone(), name.at.clone(), declared)));
        is_found
    }
}

/// The index of a declaration among the definitions or the macros of a tree.
enum Found {
    Definition(usize),
    Macro(usize),
}

/// Returns the index and the source range of the declaration of a name in a tree. Ignores names of programs, versions
/// and procedures.
fn declares(tree: &File, name: &Undeclared) -> Option<(Found, Span)> {
    let definition = tree.definitions.iter().position(|definition| {
        if matches!(definition.kind, DefinitionKind::Program(_)) {
            return false;
        }
        let names = DeclaredNames::of_definition(definition);
        if name.is_type { names.types.contains_key(&name.text) } else { names.constants.contains(&name.text) }
    });
    if let Some(index) = definition {
        return Some((Found::Definition(index), tree.definitions[index].span.clone()));
    }
    let index = tree.macros.iter().position(|line| line.name.text == name.text)?;
    Some((Found::Macro(index), tree.macros[index].span.clone()))
}

/// Returns the text of the declaration of a name, without white space.
fn text(loader: &Loader, sibling: &Sibling, name: &Undeclared) -> Option<String> {
    let (trees, _) = sibling.trees.as_ref()?;
    let (_, at) = trees.iter().find_map(|tree| declares(tree, name))?;
    let text = loader.sources.get(at.file)?.text().get(at.range)?.to_owned();
    Some(text.split_whitespace().collect())
}

/// Returns the tree of the input to which declarations of `tree` are moved. If the input has no tree for this source,
/// adds one without declarations.
fn target<'a>(trees: &'a mut Vec<File>, tree: &File) -> &'a mut File {
    let index = trees.iter().position(|target| target.source == tree.source).unwrap_or_else(|| {
        let (annotations, excluded) = (tree.annotations.clone(), tree.excluded.clone());
        trees.push(File { source: tree.source, annotations, excluded, ..File::default() });
        trees.len() - 1
    });
    &mut trees[index]
}

/// Returns the readable `.x` files in a directory that do not belong to the input, sorted by path. Searches at most
/// [`MAX_SIBLINGS`] files.
fn siblings(directory: &Path, loader: &Loader) -> Vec<Sibling> {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let read: HashSet<PathBuf> = loader.files.iter().map(|path| canonical(path)).collect();
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    // Messages show the path as the user would write it.
    let entries = entries.map(|path| path.strip_prefix(".").map(Path::to_owned).unwrap_or(path));
    let mut paths: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "x") && !read.contains(&canonical(path)))
        .collect();
    paths.sort();
    paths.truncate(MAX_SIBLINGS);
    let sibling = |path: PathBuf| {
        let text = source::read(&path).ok()?;
        let text = String::from_utf8_lossy(&text);
        let words = text.split(|c| !is_of_word(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Some(Sibling { path, words, trees: None, taken: Vec::new() })
    };
    paths.into_iter().filter_map(sibling).collect()
}

/// Declares a name as a macro if it has a `%#define` line with a usable value. Returns `true` if the name was declared.
fn declare_from_c(loader: &mut Loader, name: &Undeclared) -> bool {
    let Some(tree) = loader.trees.iter_mut().find(|tree| tree.source == name.file) else { return false };
    let Some((line, text)) = c_lines::definition(&name.text, tree) else { return false };
    let at = line.span.clone();
    let (value, ty) = preprocess::meaning(text, &loader.defines, &at);
    if value.is_none() && ty.is_none() {
        return false;
    }
    let ident = Ident { text: name.text.clone(), span: at.clone() };
    tree.macros.push(Macro { name: ident, doc: Vec::new(), span: at, value, ty });
    true
}

/// Declares a name if it is a type of Sun's headers. Returns `true` if the name was declared.
fn declare_from_header(loader: &mut Loader, name: &Undeclared) -> bool {
    let Some((_, definition, header)) = SUN_TYPES.iter().find(|(known, ..)| name.is_type && *known == name.text) else {
        return false;
    };
    let source = loader.sources.add(format!("<{header}>"), *definition);
    loader.trees.push(parse::parse(source, definition, false, &mut Vec::new()));
    true
}

/// Returns `true` if a plain typedef declares a name that has another declaration or is a predeclared type. Such a
/// typedef has the form `typedef new old;`, which `macro_kinds` corrects.
fn is_inverted(definition: &Definition, known: &DeclaredNames) -> bool {
    let DefinitionKind::Typedef(Declaration { name: Some(name), ty, declarator: Declarator::Plain, .. }) =
        &definition.kind
    else {
        return false;
    };
    let TypeKind::Named(target) = &ty.kind else { return false };
    let is_declared = known.types.get(&name.text).is_some_and(|times| *times > 1);
    target.text != name.text && (is_declared || Primitive::predeclared(&name.text).is_some())
}

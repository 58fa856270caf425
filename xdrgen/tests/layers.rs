//! The modules of the compiler form layers without upward dependencies.
//!
//! [`LAYERS`] defines the order. The tests read all paths that begin with `crate::`, `super::` or `self::` in each file, in
//! imports and elsewhere. They fail if a module refers to one of the same or a higher layer, or if files of different folders
//! refer to each other in a cycle. The order alone does not exclude such cycles within a top-level module.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens as _;

/// The modules at the top level of the library, from the lowest layer to the highest. Modules of one layer do not refer to
/// one another.
const LAYERS: &[&[&str]] = &[
    &["did_you_mean", "lexer", "source"],
    &["ast", "const_expr", "diag", "ir"],
    &["scan"],
    &["parse"],
    &["preprocess"],
    &["fmt", "load"],
    &["macro_kinds", "strip"],
    &["prefix", "resolve"],
    &["ulb"],
    &["compiler", "emit", "report"],
    &["build_script", "decode", "derive", "explain"],
    &["extract"],
];

/// A module's path, from the root of the crate.
type Module = Vec<String>;

/// A source file, with the modules that it refers to.
struct File {
    path: PathBuf,
    uses: BTreeSet<Module>,
}

fn source_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the module in a file: `emit::types` for `emit/types.rs` and `emit/types/mod.rs`.
fn module_of(path: &Path, root: &Path) -> Module {
    let path = path.strip_prefix(root).unwrap().with_extension("");
    let mut module: Module = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

/// Returns whether an item is compiled for tests only.
fn is_test(item: &syn::Item) -> bool {
    let syn::Item::Mod(module) = item else { return false };
    module.attrs.iter().any(|attribute| attribute.to_token_stream().to_string().replace(' ', "") == "#[cfg(test)]")
}

/// Adds the paths in `tokens` that begin with `crate`, `super` or `self` to `found`. Resolves relative paths from `module`.
fn paths(tokens: TokenStream, module: &Module, found: &mut BTreeSet<Module>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) => paths(group.stream(), module, found),
            TokenTree::Ident(word) if is_separator(&tokens, at) => {
                let base = match word.to_string().as_str() {
                    "crate" => Module::new(),
                    "self" => module.clone(),
                    "super" => module[..module.len().saturating_sub(1)].to_vec(),
                    _ => continue,
                };
                tree(&tokens[at + 2..], base, found);
            }
            _ => {}
        }
    }
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    let is_joint = matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.spacing() == Spacing::Joint);
    colon(tokens.get(at)) && is_joint && colon(tokens.get(at + 1))
}

/// Adds the paths that begin with `base::` and continue with `tokens`, which may branch, to `found`.
fn tree(tokens: &[TokenTree], mut base: Module, found: &mut BTreeSet<Module>) {
    match tokens.first() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            tokens
                .split(is_comma)
                .filter(|branch| !branch.is_empty())
                .for_each(|branch| tree(branch, base.clone(), found));
        }
        Some(TokenTree::Ident(word)) => {
            match word.to_string().as_str() {
                "self" => {}
                "super" => drop(base.pop()),
                name => base.push(name.to_owned()),
            }
            if is_separator(tokens, 1) {
                tree(&tokens[3..], base, found);
            } else {
                found.insert(base);
            }
        }
        // In `quote!`, `super::#name` is a path of generated code, not of the compiler.
        _ => {}
    }
}

/// Returns the files of the library by module, with the modules that each refers to.
fn files() -> BTreeMap<Module, File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    source_files(&root, &mut found);
    let mut files = BTreeMap::new();
    for path in found {
        let module = module_of(&path, &root);
        // The command uses the public API of the library. Tests of a module may use everything.
        let is_apart = ["main", "cli", "lib"].contains(&module[0].as_str())
            || ["tests", "agreement"].contains(&module.last().unwrap().as_str());
        if !is_apart {
            let syntax = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
            let mut uses = BTreeSet::new();
            for item in syntax.items.iter().filter(|item| !is_test(item)) {
                paths(item.to_token_stream(), &module, &mut uses);
            }
            files.insert(module, File { path, uses });
        }
    }
    // Replace the paths of items by the modules that declare them.
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    for (module, file) in &mut files {
        let owner = |path: &Module| {
            let prefixes = (1..=path.len()).rev().map(|len| path[..len].to_vec());
            prefixes.clone().find(|prefix| modules.contains(prefix))
        };
        for path in std::mem::take(&mut file.uses) {
            let owner = owner(&path).unwrap_or_else(|| {
                panic!("{}: `crate::{}` is not in a module: name the module", file.path.display(), path.join("::"))
            });
            if owner != *module {
                file.uses.insert(owner);
            }
        }
    }
    files
}

fn layer_of(module: &str) -> usize {
    let layer = LAYERS.iter().position(|layer| layer.contains(&module));
    layer.unwrap_or_else(|| panic!("module `{module}` is in no layer: add it to LAYERS"))
}

#[test]
fn no_module_refers_to_a_higher_one() {
    let files = files();
    let mut upward = Vec::new();
    for (module, file) in &files {
        for used in file.uses.iter().filter(|used| used[0] != module[0]) {
            if layer_of(&used[0]) >= layer_of(&module[0]) {
                upward.push(format!("{}: crate::{}", file.path.display(), used.join("::")));
            }
        }
    }
    assert!(upward.is_empty(), "these refer to a module of the same layer or of a higher one: {upward:#?}");
    let found: BTreeSet<&str> = files.keys().map(|module| module[0].as_str()).collect();
    let listed: BTreeSet<&str> = LAYERS.iter().copied().flatten().copied().collect();
    assert_eq!(listed, found, "the modules in LAYERS are not those in src");
}

#[test]
fn no_cycle_between_folders() {
    let files = files();
    // For each module, the modules that it refers to directly or indirectly.
    let mut reached: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for start in files.keys() {
        let mut seen = BTreeSet::new();
        let mut open = vec![start];
        while let Some(next) = open.pop() {
            open.extend(files[next].uses.iter().filter(|used| seen.insert(*used)));
        }
        reached.insert(start, seen);
    }
    let mut cycles = Vec::new();
    for (module, file) in &files {
        for used in file.uses.iter().filter(|used| reached[used].contains(module)) {
            if file.path.parent() != files[used].path.parent() {
                cycles.push(format!("{} <-> {}", module.join("::"), used.join("::")));
            }
        }
    }
    assert!(cycles.is_empty(), "these refer to each other: {cycles:#?}");
}

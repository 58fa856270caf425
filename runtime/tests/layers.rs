//! The layers of the runtime: every import points down, and no imports form a cycle.
//!
//! ARCHITECTURE.md lists the layers. The test reads the imports from the source: `use` items, and paths that start with `crate`,
//! `self` or `super`, in macro calls as well. Re-exports are followed to the file that defines the item. Code under `#[cfg(test)]`
//! is ignored.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::visit::Visit;

/// The heading of the list in ARCHITECTURE.md.
const LIST: &str = "Layers of the runtime, lowest first";

/// A module: the file it is in, its child modules, and the names that it imports or re-exports.
#[derive(Debug, Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    names: BTreeMap<String, Vec<String>>,
}

/// An import in a file, not yet resolved.
#[derive(Debug)]
struct Import {
    /// The module that it is in.
    module: Vec<String>,
    /// The path, from the root of the crate.
    path: Vec<String>,
    /// `true` if it re-exports an item of a child module.
    is_reexport: bool,
}

/// The modules of a crate and the imports in them.
#[derive(Debug, Default)]
struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
    imports: Vec<Import>,
}

impl Crate {
    /// Reads a crate from its files, by their paths in the source folder.
    fn read(files: &BTreeMap<String, String>) -> Self {
        let mut found = Self::default();
        found.read_file(files, "lib.rs", Vec::new());
        found
    }

    fn read_file(&mut self, files: &BTreeMap<String, String>, file: &str, module: Vec<String>) {
        let parsed = syn::parse_file(&files[file]).unwrap_or_else(|error| panic!("{file}: {error}"));
        self.modules.insert(module.clone(), Module { file: file.into(), ..Module::default() });
        let mut reader = Reader { found: self, file, module, outside: Vec::new() };
        reader.visit_file(&parsed);
        for child in reader.outside {
            let path = child.join("/");
            let name =
                [format!("{path}.rs"), format!("{path}/mod.rs")].into_iter().find(|name| files.contains_key(name));
            self.read_file(files, &name.unwrap_or_else(|| panic!("{file}: no file for the module {path}")), child);
        }
    }

    /// Returns the file that defines what `path` names.
    fn file_of(&self, path: &[String]) -> Option<&str> {
        let mut path = path.to_vec();
        // Re-exports of re-exports end eventually; the limit handles cycles of globs.
        for _ in 0..16 {
            let len = (0..=path.len()).rev().find(|&len| self.modules.contains_key(&path[..len]))?;
            let module = &self.modules[&path[..len]];
            match path.get(len).and_then(|name| module.names.get(name)) {
                Some(target) if *target != path[..=len] => {
                    path = target.iter().chain(&path[len + 1..]).cloned().collect();
                }
                _ => return Some(&module.file),
            }
        }
        None
    }

    /// Returns the files that each file imports. With `reexports`, this includes re-exports of child modules.
    fn edges(&self, reexports: bool) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut edges = BTreeMap::<_, BTreeSet<_>>::new();
        for import in self.imports.iter().filter(|import| reexports || !import.is_reexport) {
            let from = self.modules[&import.module].file.as_str();
            match self.file_of(&import.path) {
                Some(to) if to != from => edges.entry(from).or_default().insert(to),
                _ => continue,
            };
        }
        edges
    }
}

/// Collects the modules and imports of one file.
struct Reader<'a> {
    found: &'a mut Crate,
    file: &'a str,
    module: Vec<String>,
    /// Modules in other files.
    outside: Vec<Vec<String>>,
}

impl Reader<'_> {
    /// Returns the path from the root of the crate. `None` for paths into other crates.
    fn absolute(&self, path: &[String], is_use: bool) -> Option<Vec<String>> {
        let mut module = self.module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
                    module.pop();
                    rest = after;
                }
            }
            child if is_use && self.found.modules[&self.module].children.contains(child) => {}
            _ => return None,
        }
        module.extend_from_slice(rest);
        Some(module)
    }

    fn read_use(&mut self, tree: &syn::UseTree, mut prefix: Vec<String>, is_public: bool) {
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                return self.read_use(&path.tree, prefix, is_public);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.read_use(tree, prefix.clone(), is_public));
            }
            syn::UseTree::Glob(_) => (prefix, None),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let name = prefix.last().cloned();
                (prefix, name)
            }
            syn::UseTree::Name(name) => {
                prefix.push(name.ident.to_string());
                (prefix, Some(name.ident.to_string()))
            }
            syn::UseTree::Rename(rename) => {
                prefix.extend((rename.ident != "self").then(|| rename.ident.to_string()));
                (prefix, Some(rename.rename.to_string()))
            }
        };
        let Some(path) = self.absolute(&path, true) else { return };
        let is_reexport = is_public && path.starts_with(&self.module);
        if let Some(name) = name {
            self.found.modules.get_mut(&self.module).unwrap().names.insert(name, path.clone());
        }
        self.found.imports.push(Import { module: self.module.clone(), path, is_reexport });
    }

    fn read_path(&mut self, path: &[String]) {
        if let Some(path) = self.absolute(path, false) {
            self.found.imports.push(Import { module: self.module.clone(), path, is_reexport: false });
        }
    }
}

/// Returns whether an item is compiled only for tests.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.declare(&file.items);
        syn::visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        let mut child = self.module.clone();
        child.push(item.ident.to_string());
        match &item.content {
            None => self.outside.push(child),
            Some((_, items)) => {
                let outer = std::mem::replace(&mut self.module, child.clone());
                self.found.modules.insert(child, Module { file: self.file.into(), ..Module::default() });
                self.declare(items);
                items.iter().for_each(|item| self.visit_item(item));
                self.module = outer;
            }
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            let is_public = !matches!(item.vis, syn::Visibility::Inherited);
            self.read_use(&item.tree, Vec::new(), is_public);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.read_path(&segments);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        syn::visit::visit_macro(self, invoked);
        let tokens = invoked.tokens.to_string();
        let words: Vec<&str> = tokens.split_whitespace().collect();
        for (at, first) in words.iter().enumerate().filter(|(_, word)| ["crate", "super"].contains(word)) {
            let mut path = vec![(*first).to_owned()];
            path.extend(words[at + 1..].chunks(2).map_while(|pair| match pair {
                ["::", name] => Some((*name).to_owned()),
                _ => None,
            }));
            self.read_path(&path);
        }
    }
}

impl Reader<'_> {
    fn declare(&mut self, items: &[syn::Item]) {
        let children = items.iter().filter_map(|item| match item {
            syn::Item::Mod(item) if !is_test(&item.attrs) => Some(item.ident.to_string()),
            _ => None,
        });
        self.found.modules.get_mut(&self.module).unwrap().children.extend(children);
    }
}

/// Parses the list of layers into modules and their layer numbers.
fn layers(architecture: &str) -> BTreeMap<String, usize> {
    let list = architecture.split_once(LIST).unwrap_or_else(|| panic!("ARCHITECTURE.md has no {LIST:?}")).1;
    let mut lines = list.lines().skip_while(|line| !line.starts_with("```")).skip(1);
    let lines = lines.by_ref().take_while(|line| !line.starts_with("```"));
    let modules = lines.enumerate().flat_map(|(layer, line)| {
        let modules = line.split(',').map(|module| module.trim().to_owned()).filter(|module| !module.is_empty());
        modules.map(move |module| (module, layer))
    });
    modules.collect()
}

fn top(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(folder, _)| folder)
}

/// Returns the violations in a crate. Files in the folders `circles` may import each other.
fn check(found: &Crate, layers: &BTreeMap<String, usize>, circles: &[&str]) -> Vec<String> {
    let mut wrong = BTreeSet::new();
    for (from, to) in found.edges(true).iter().flat_map(|(from, all)| all.iter().map(move |to| (*from, *to))) {
        // The crate root declares the modules and re-exports the macros.
        if from == "lib.rs" || to == "lib.rs" {
            continue;
        }
        match (layers.get(top(from)), layers.get(top(to))) {
            (Some(low), Some(high)) if low < high => {
                wrong.insert(format!("{from} imports {to}: {} is in a lower layer than {}", top(from), top(to)));
            }
            (Some(_), Some(_)) => {}
            (None, _) => {
                wrong.insert(format!("{} is in no layer", top(from)));
            }
            (_, None) => {
                wrong.insert(format!("{} is in no layer", top(to)));
            }
        }
    }
    let files = found.edges(false);
    let folders = |name: fn(&str) -> &str| {
        let mut edges = BTreeMap::<&str, BTreeSet<&str>>::new();
        for (from, to) in files.iter().flat_map(|(from, all)| all.iter().map(move |to| (name(from), name(to)))) {
            if from != to {
                edges.entry(from).or_default().insert(to);
            }
        }
        edges
    };
    for (kind, edges) in [("files", &files), ("modules", &folders(top))] {
        for circle in circles_of(edges) {
            let within = |allowed: &&str| circle.iter().all(|file| file.starts_with(&format!("{allowed}/")));
            if !circles.iter().any(within) {
                wrong.insert(format!("{kind} import each other: {}", circle.join(", ")));
            }
        }
    }
    // Folders within one module. A folder and its own sub-folders may import each other, but their files may not.
    for circle in circles_of(&folders(folder)) {
        let is_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_below = |outer: &str| circle.iter().all(|inner| is_in(inner, outer));
        if is_below(top(circle[0])) && !circle.iter().any(|outer| is_below(outer)) {
            wrong.insert(format!("folders import each other: {}", circle.join(", ")));
        }
    }
    wrong.into_iter().collect()
}

/// Returns the sets of nodes that can reach each other.
fn circles_of<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<Vec<&'a str>> {
    let reached = |from: &'a str| {
        let mut reached = BTreeSet::new();
        let mut left = vec![from];
        while let Some(node) = left.pop() {
            left.extend(edges.get(node).into_iter().flatten().filter(|to| reached.insert(**to)));
        }
        reached
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|from| (*from, reached(from))).collect();
    let circle = |node: &&'a str| {
        let circle = reached[node].iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(node)));
        circle.copied().collect::<Vec<_>>()
    };
    edges.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{name}/"), files);
        } else if name.ends_with(".rs") {
            files.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
}

#[test]
fn imports_point_down() {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    collect(&runtime.join("src"), "", &mut files);
    let found = Crate::read(&files);
    assert!(found.imports.len() > 500, "only {} imports found", found.imports.len());
    let architecture = fs::read_to_string(runtime.join("../ARCHITECTURE.md")).unwrap();
    let wrong = check(&found, &layers(&architecture), &[]);
    assert!(wrong.is_empty(), "imports break the layers in ARCHITECTURE.md:\n  {}", wrong.join("\n  "));
}

/// Checks a synthetic crate with the layers `low`, then `mid` and `side`, then `high`.
fn wrong(files: &[(&str, &str)], circles: &[&str]) -> Vec<String> {
    let root = [("lib.rs", "mod low; mod mid; mod side; mod high;")];
    let defaults = [("low.rs", ""), ("mid.rs", ""), ("side.rs", ""), ("high.rs", "")];
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, text) in root.iter().chain(files) {
        all.insert((*name).into(), (*text).into());
    }
    for (name, text) in defaults {
        if !all.contains_key(&name.replace(".rs", "/mod.rs")) {
            all.entry(name.into()).or_insert(text.into());
        }
    }
    let layers = layers(&format!("{LIST}:\n\n```text\nlow\nmid, side\nhigh\n```\n"));
    check(&Crate::read(&all), &layers, circles)
}

#[test]
fn the_check_finds_imports_that_point_up() {
    let up = "low.rs imports high.rs: low is in a lower layer than high";
    for import in [
        "use crate::high;",
        "use crate::{mid::A, high::{self, B}};",
        "pub(crate) use super::high::C as D;",
        "mod inner { use super::super::high::*; }",
        "fn f() { crate::high::g(); }",
        "fn f() { println!(\"{}\", crate::high::g()); }",
        "#[cfg(any(test, feature = \"x\"))] use crate::high::A;",
    ] {
        let found = wrong(&[("low.rs", import)], &[]);
        assert!(found.contains(&up.to_owned()), "{import}: {found:?}");
    }
    for import in [
        "use high::A;",
        "// use crate::high;",
        "#[cfg(test)] use crate::high;",
        "#[cfg(test)] mod tests { use crate::high::A; }",
        "const A: &str = \"crate::high\";",
    ] {
        assert_eq!(wrong(&[("low.rs", import)], &[]), [""; 0], "{import}");
    }
    assert_eq!(
        wrong(&[("high.rs", "use crate::{low::A, mid::B};"), ("mid.rs", "use crate::{low, side::C};")], &[]),
        [""; 0]
    );
    assert_eq!(
        wrong(&[("lib.rs", "mod low; mod other;"), ("other.rs", "use crate::low::A;")], &[]),
        ["other is in no layer"]
    );
}

#[test]
fn the_check_follows_reexports() {
    let files = [
        ("mid/mod.rs", "mod deep; pub use self::deep::A; pub struct B;"),
        ("mid/deep.rs", "use super::B; pub struct A;"),
        ("low.rs", "use crate::mid::A;"),
    ];
    // An import of a re-exported child item through the parent is not a cycle.
    assert_eq!(wrong(&files, &[]), ["low.rs imports mid/deep.rs: low is in a lower layer than mid"]);
}

#[test]
fn the_check_finds_cycles() {
    let modules = [("mid.rs", "use crate::side::A;"), ("side.rs", "use crate::mid::B;")];
    assert_eq!(
        wrong(&modules, &[]),
        ["files import each other: mid.rs, side.rs", "modules import each other: mid, side"]
    );
    let nested = [
        ("mid/mod.rs", "mod x; mod sub;"),
        ("mid/x.rs", "use super::sub::y::A;"),
        ("mid/sub/mod.rs", "pub mod y;"),
        ("mid/sub/y.rs", "use crate::mid::x::B;"),
    ];
    assert_eq!(wrong(&nested, &[]), ["files import each other: mid/sub/y.rs, mid/x.rs"]);
    assert_eq!(wrong(&nested, &["mid"]), [""; 0]);
    let folders = [
        ("mid/mod.rs", "mod a; mod b;"),
        ("mid/a/mod.rs", "mod one; pub mod two;"),
        ("mid/a/one.rs", "use crate::mid::b::one::X;"),
        ("mid/a/two.rs", ""),
        ("mid/b/mod.rs", "pub mod one; mod two;"),
        ("mid/b/one.rs", ""),
        ("mid/b/two.rs", "use crate::mid::a::two::X;"),
    ];
    assert_eq!(wrong(&folders, &[]), ["folders import each other: mid/a, mid/b"]);
}

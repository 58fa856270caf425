//! The imports in the source files of a crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::visit::Visit;

/// A module: the file it is in, its child modules, and its names.
#[derive(Debug, Default)]
struct Module {
    /// The path of the file, relative to the source folder.
    file: String,
    children: BTreeSet<String>,
    /// Names that the module defines or re-exports.
    exported: BTreeSet<String>,
    /// Names that the module imports or re-exports, with their paths.
    names: BTreeMap<String, Vec<String>>,
    /// Modules from which the module imports or re-exports all names.
    globs: Vec<Vec<String>>,
}

/// An import in a file, not yet resolved.
#[derive(Debug)]
struct Import {
    /// The module that contains the import.
    module: Vec<String>,
    /// The imported path, from the root of the crate.
    path: Vec<String>,
    /// `true` if the import re-exports an item of a child module.
    is_reexport: bool,
}

/// The modules of a crate and the imports in them.
#[derive(Debug, Default)]
pub(super) struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
    imports: Vec<Import>,
}

impl Crate {
    /// Reads a crate from the files in the folder of its root file.
    pub(super) fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        collect_files(root.parent().unwrap(), "", &mut files);
        Self::parse(root.file_name().unwrap().to_str().unwrap(), &files)
    }

    /// Parses a crate from the texts of its files, by their paths in the source folder.
    pub(super) fn parse(root: &str, files: &BTreeMap<String, String>) -> Self {
        let mut found = Self::default();
        found.read_file(files, root, Vec::new());
        found
    }

    /// Returns the names of the child modules of `parent`, a module at the top of the crate. Returns the modules at the
    /// top if `parent` is empty. Modules in the file of the parent itself are left out.
    pub(super) fn children(&self, parent: &str) -> BTreeSet<&str> {
        let parent: Vec<String> = (!parent.is_empty()).then(|| parent.to_owned()).into_iter().collect();
        let file = &self.modules[&parent].file;
        let is_child = |(path, module): &(&Vec<String>, &Module)| {
            path.len() == parent.len() + 1 && path.starts_with(&parent) && module.file != *file
        };
        self.modules.iter().filter(is_child).filter_map(|(path, _)| path.last()).map(String::as_str).collect()
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

    /// Returns the file that defines the item that `path` names. `None` if the path cannot be resolved.
    fn file_of(&self, path: &[String]) -> Option<&str> {
        let mut path = path.to_vec();
        // Re-exports of re-exports end eventually; the limit handles cycles of globs.
        for _ in 0..16 {
            let len = (0..=path.len()).rev().find(|&len| self.modules.contains_key(&path[..len]))?;
            let module = &self.modules[&path[..len]];
            let Some(name) = path.get(len) else { return Some(&module.file) };
            let exports =
                |glob: &&Vec<String>| self.modules.get(*glob).is_some_and(|other| other.exported.contains(name));
            if let Some(target) = module.names.get(name).filter(|target| **target != path[..=len]) {
                path = target.iter().chain(&path[len + 1..]).cloned().collect();
            } else if !module.exported.contains(name)
                && let Some(glob) = module.globs.iter().find(exports)
            {
                path = glob.iter().chain(&path[len..]).cloned().collect();
            } else {
                return Some(&module.file);
            }
        }
        None
    }

    /// Returns the files that each file imports. If `reexports` is `true`, this includes re-exports of child modules.
    pub(super) fn edges(&self, reexports: bool) -> BTreeMap<&str, BTreeSet<&str>> {
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

/// A visitor that collects the modules and imports of one file.
struct Reader<'a> {
    found: &'a mut Crate,
    file: &'a str,
    module: Vec<String>,
    /// Child modules whose contents are in other files.
    outside: Vec<Vec<String>>,
}

impl Reader<'_> {
    /// Returns the path from the root of the crate. Returns `None` if `path` does not begin with `crate`, `self`,
    /// `super` or, in a `use` item, a child module.
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
        let module = self.found.modules.get_mut(&self.module).unwrap();
        match name {
            Some(name) => {
                module.exported.extend(is_public.then(|| name.clone()));
                module.names.insert(name, path.clone());
            }
            None => module.globs.push(path.clone()),
        }
        self.found.imports.push(Import { module: self.module.clone(), path, is_reexport });
    }

    fn read_path(&mut self, path: &[String]) {
        if let Some(path) = self.absolute(path, false) {
            self.found.imports.push(Import { module: self.module.clone(), path, is_reexport: false });
        }
    }
}

/// Returns `true` if an item is compiled only for tests, or for tests and fuzzing.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition == "any(fuzzing,test)" || condition.starts_with("all(test,")
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
            // In `quote!`, `super::#name` is a path of the generated code.
            if path.len() > 1 {
                self.read_path(&path);
            }
        }
    }
}

impl Reader<'_> {
    fn declare(&mut self, items: &[syn::Item]) {
        let children = items.iter().filter_map(|item| match item {
            syn::Item::Mod(item) if !is_test(&item.attrs) => Some(item.ident.to_string()),
            _ => None,
        });
        let exported = items.iter().filter_map(|item| match item {
            syn::Item::Const(item) => Some(item.ident.to_string()),
            syn::Item::Enum(item) => Some(item.ident.to_string()),
            syn::Item::Fn(item) => Some(item.sig.ident.to_string()),
            syn::Item::Static(item) => Some(item.ident.to_string()),
            syn::Item::Struct(item) => Some(item.ident.to_string()),
            syn::Item::Trait(item) => Some(item.ident.to_string()),
            syn::Item::Type(item) => Some(item.ident.to_string()),
            syn::Item::Union(item) => Some(item.ident.to_string()),
            _ => None,
        });
        let module = self.found.modules.get_mut(&self.module).unwrap();
        module.children.extend(children);
        module.exported.extend(exported);
    }
}

/// Reads the source files below a folder. `prefix` is the path of the folder in the source folder.
fn collect_files(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect_files(&entry.path(), &format!("{name}/"), files);
        } else if name.ends_with(".rs") {
            files.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
}

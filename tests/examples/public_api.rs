//! Prints the public API of a crate from rustdoc's JSON, one item per line, sorted. `.ci/api` compares the output with
//! `tests/api`.
//!
//! An item is printed like its source, without its body. Of macros, and of items that a macro generated, only the kind
//! and the path are printed. An item with several paths is printed under its first path, and its other paths are
//! printed as re-exports.

use std::{
    collections::{BTreeSet, HashMap},
    env,
    error::Error,
    fs,
};

use serde_json::Value;

struct Listing {
    index: Value,
    sources: HashMap<String, String>,
    /// The path under which each item is printed, by its id.
    paths: HashMap<String, String>,
    lines: BTreeSet<String>,
}

impl Listing {
    fn item(&self, id: &Value) -> Option<Value> {
        self.index.get(id.to_string()).cloned()
    }

    /// Returns the source of an item in one line, without comments and attributes. Returns `None` if the source is not
    /// known, or if a macro generated the item. `names` are the possible beginnings of the source.
    fn source(&mut self, item: &Value, names: &[&str]) -> Option<String> {
        let span = item.get("span")?;
        let filename = span["filename"].as_str()?;
        let text =
            self.sources.entry(filename.to_owned()).or_insert_with(|| fs::read_to_string(filename).unwrap_or_default());
        let at = |place: &Value| Some((place[0].as_u64()? as usize, place[1].as_u64()? as usize));
        let (begin, end) = (at(&span["begin"])?, at(&span["end"])?);
        let lines = text.lines().enumerate().skip(begin.0 - 1).take(end.0 + 1 - begin.0);
        let lines = lines.map(|(index, line)| {
            let to = if index + 1 == end.0 { end.1 } else { usize::MAX };
            let from = if index + 1 == begin.0 { begin.1 - 1 } else { 0 };
            let kept: String = line.chars().take(to).skip(from).collect();
            // Comments and attributes of parts.
            let kept = kept.split("//").next().unwrap_or_default().trim().to_owned();
            if kept.starts_with("#[") { String::new() } else { kept }
        });
        let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let head = text.split(['{', ';']).next().unwrap_or_default();
        let is_source = names.iter().any(|name| head.starts_with(name)) && !head.contains('!');
        is_source.then_some(text)
    }

    /// Returns the source of an item up to its body. `names` are the possible beginnings of the source.
    fn head(&mut self, item: &Value, names: &[&str]) -> Option<String> {
        let text = self.source(item, names)?;
        let end = text.find([';', '{']).unwrap_or(text.len());
        Some(text[..end].trim().trim_end_matches(',').to_owned())
    }

    fn line(&mut self, line: String) {
        self.lines.insert(line);
    }

    fn add(&mut self, path: &str, kind: &str, source: Option<String>) {
        match source {
            Some(source) => self.line(format!("{path}: {source}")),
            None => self.line(format!("{path}: {kind}, generated")),
        }
    }

    /// Visits items, re-exports last.
    fn children(&mut self, ids: &Value, path: &str) {
        let ids = || ids.as_array().into_iter().flatten().filter(|id| !id.is_null());
        let is_use = |listing: &Self, id: &Value| listing.item(id).is_some_and(|item| !item["inner"]["use"].is_null());
        for re_exports in [false, true] {
            for id in ids() {
                if is_use(self, id) == re_exports {
                    self.visit(id, path, None);
                }
            }
        }
    }

    fn implementations(&mut self, ids: &Value, path: &str) {
        let mut derived = BTreeSet::new();
        for id in ids.as_array().into_iter().flatten() {
            let Some(item) = self.item(id) else { continue };
            let implementation = &item["inner"]["impl"];
            if implementation["is_synthetic"] == true || !implementation["blanket_impl"].is_null() {
                continue;
            }
            match implementation["trait"]["path"].as_str() {
                None => self.children(&implementation["items"], path),
                // The compiler's own, which comes with every derived `PartialEq`.
                Some("StructuralPartialEq") => {}
                Some(name) => match self.head(&item, &["impl"]) {
                    Some(head) => self.line(format!("{path}: {head}")),
                    None => {
                        derived.insert(name.to_owned());
                    }
                },
            }
        }
        if !derived.is_empty() {
            let derived: Vec<String> = derived.into_iter().collect();
            self.line(format!("{path}: derives {}", derived.join(", ")));
        }
    }

    fn visit(&mut self, id: &Value, parent: &str, renamed: Option<&str>) {
        let Some(item) = self.item(id) else { return };
        let Some((kind, inner)) = item["inner"].as_object().and_then(|inner| inner.iter().next()) else { return };
        if kind == "use" {
            let (name, target) = (inner["name"].as_str().unwrap_or_default(), &inner["id"]);
            match self.item(target) {
                Some(module) if inner["is_glob"] == true => self.children(&module["inner"]["module"]["items"], parent),
                Some(_) => self.visit(target, parent, Some(name)),
                None => {
                    let source = inner["source"].as_str().unwrap_or_default();
                    self.line(format!("{parent}::{name}: pub use {source}"));
                }
            }
            return;
        }
        let Some(name) = renamed.or_else(|| item["name"].as_str()) else { return };
        let path = format!("{parent}::{name}");
        let own = item["name"].as_str().unwrap_or(name);
        match self.paths.get(&id.to_string()) {
            Some(known) if *known != path => {
                self.line(format!("{path}: pub use {known}"));
                return;
            }
            _ => _ = self.paths.insert(id.to_string(), path.clone()),
        }
        match kind.as_str() {
            "module" => {
                self.line(format!("{path}: pub mod"));
                self.children(&inner["items"], &path);
            }
            "variant" | "struct_field" => {
                let source = self.source(&item, &[own, "pub ", "r#"]).map(|text| text.trim_end_matches(',').to_owned());
                self.add(&path, kind, source);
            }
            "macro" => self.line(format!("{path}: macro")),
            "proc_macro" => {
                let helpers = inner["helpers"].as_array().map_or(0, Vec::len);
                self.line(format!("{path}: procedural macro ({}), {helpers} attributes", inner["kind"]));
            }
            _ => {
                // Tuple structs name their fields with their types.
                let source = self.head(&item, &["pub ", "fn ", "async ", "const ", "type ", "unsafe "]);
                self.add(&path, kind, source);
                self.children(&inner["kind"]["plain"]["fields"], &path);
                self.children(&inner["variants"], &path);
                if kind == "trait" {
                    self.children(&inner["items"], &path);
                } else {
                    self.implementations(&inner["impls"], &path);
                }
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: public_api CRATE.json")?;
    let document: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let root = document["root"].clone();
    let mut listing = Listing {
        index: document["index"].clone(),
        sources: HashMap::new(),
        paths: HashMap::new(),
        lines: BTreeSet::new(),
    };
    let item = listing.item(&root).ok_or("the crate has no root")?;
    let name = item["name"].as_str().ok_or("the crate has no name")?.to_owned();
    listing.children(&item["inner"]["module"]["items"], &name);
    listing.lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

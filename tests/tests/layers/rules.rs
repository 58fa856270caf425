//! The rules for imports, and the lists of layers.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Crate;

/// Parses the list of layers into modules and their layer numbers.
///
/// `heading` is the text before the list. The list is in a code block, with one layer on each line.
pub(super) fn layers(architecture: &str, heading: &str) -> BTreeMap<String, usize> {
    let list = architecture.split_once(heading).unwrap_or_else(|| panic!("ARCHITECTURE.md has no {heading:?}")).1;
    let mut lines = list.lines().skip_while(|line| !line.starts_with("```")).skip(1);
    let lines = lines.by_ref().take_while(|line| !line.starts_with("```"));
    let modules = lines.enumerate().flat_map(|(layer, line)| {
        let modules = line.split(',').map(|module| module.trim().to_owned()).filter(|module| !module.is_empty());
        modules.map(move |module| (module, layer))
    });
    modules.collect()
}

/// Returns the top-level module that contains a file.
fn top(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// Returns the module declared by `parent` that contains a file. Returns `None` if the file is outside of `parent`.
fn child<'a>(parent: &str, file: &'a str) -> Option<&'a str> {
    if parent.is_empty() { Some(top(file)) } else { file.strip_prefix(parent)?.strip_prefix('/').map(top) }
}

/// Returns the folder that contains a file, or the file itself if it is in no folder.
fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(folder, _)| folder)
}

/// Returns the violations of the rules in a crate: modules without a layer, imports that point up, and cycles.
///
/// `layers` has the layers of the modules that `parent` declares, which is a module at the top of the crate, or the
/// crate itself if the name is empty. Cycles are found in the whole crate in both cases.
pub(super) fn check(found: &Crate, parent: &str, layers: &BTreeMap<String, usize>) -> Vec<String> {
    let mut wrong = BTreeSet::new();
    let modules = found.children(parent);
    for module in modules.iter().filter(|module| !layers.contains_key(**module)) {
        wrong.insert(format!("{module} is in no layer"));
    }
    for module in layers.keys().filter(|module| !modules.contains(module.as_str())) {
        wrong.insert(format!("there is no module {module}"));
    }
    for (from, to) in found.edges(true).iter().flat_map(|(from, all)| all.iter().map(move |to| (*from, *to))) {
        // The parent declares the modules and re-exports items. It is in no layer.
        if let (Some(from_module), Some(to_module)) = (child(parent, from), child(parent, to))
            && let (Some(low), Some(high)) = (layers.get(from_module), layers.get(to_module))
            && low < high
        {
            wrong.insert(format!("{from} imports {to}: {from_module} is in a lower layer than {to_module}"));
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
        for cycle in cycles_of(edges) {
            wrong.insert(format!("{kind} import each other: {}", cycle.join(", ")));
        }
    }
    // Folders within one module. A folder and its own sub-folders may import each other, but their files may not.
    for cycle in cycles_of(&folders(folder)) {
        let is_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_below = |outer: &str| cycle.iter().all(|inner| is_in(inner, outer));
        if is_below(top(cycle[0])) && !cycle.iter().any(|outer| is_below(outer)) {
            wrong.insert(format!("folders import each other: {}", cycle.join(", ")));
        }
    }
    wrong.into_iter().collect()
}

/// Returns each set of two or more nodes that can reach each other.
fn cycles_of<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<Vec<&'a str>> {
    let reached = |from: &'a str| {
        let mut reached = BTreeSet::new();
        let mut left = vec![from];
        while let Some(node) = left.pop() {
            left.extend(edges.get(node).into_iter().flatten().filter(|to| reached.insert(**to)));
        }
        reached
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|from| (*from, reached(from))).collect();
    let cycle = |node: &&'a str| {
        let cycle = reached[node].iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(node)));
        cycle.copied().collect::<Vec<_>>()
    };
    edges.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect()
}

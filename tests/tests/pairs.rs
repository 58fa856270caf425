//! `tests/PAIRS.md`: every pair of features is tested, or has a reason why it need not be.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Two features, in the order in which `tests/PAIRS.md` lists them.
type Pair<'a> = (&'a str, &'a str);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the part of the page below this heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    below.split("\n## ").next().unwrap()
}

/// Returns the rows of a table, without its header.
fn rows(section: &str) -> Vec<Vec<&str>> {
    let rows = section.lines().filter(|line| line.starts_with("| "));
    rows.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns the code spans of a text.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the items of a list. An item may have several lines.
fn items(section: &str) -> Vec<String> {
    let paragraphs = section.split("\n\n").filter(|paragraph| paragraph.starts_with("- "));
    paragraphs
        .flat_map(|list| list[2..].split("\n- ").map(|item| item.replace("\n  ", " ")).collect::<Vec<_>>())
        .collect()
}

/// The sources of the tests, by path without extension.
struct Sources(Vec<(String, String)>);

impl Sources {
    fn read() -> Self {
        let mut sources = Vec::new();
        for folder in ["examples", "runtime", "tests"] {
            add(&root().join(folder), &mut sources);
        }
        Self(sources)
    }

    /// Returns `true` if a file has this test: a function with an attribute for tests, or a function that the file also
    /// names elsewhere, for example in a macro that makes it a test.
    fn has(&self, test: &str) -> bool {
        let Some((file, function)) = test.rsplit_once("::") else { return false };
        let head = format!("fn {function}(");
        let is_test = |text: &str| {
            let Some((before, after)) = text.split_once(&head) else { return false };
            let above: Vec<_> = before
                .trim_end_matches("async ")
                .trim_end()
                .lines()
                .rev()
                .take_while(|line| !line.is_empty())
                .collect();
            let mut attributes = above.iter().map(|line| line.trim_start()).filter(|line| line.starts_with("#["));
            let is_marked = attributes.any(|line| line.contains("test"));
            let is_word =
                |text: &str| text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == function);
            is_marked || is_word(before) || is_word(after)
        };
        let of_file = self.0.iter().filter(|(path, _)| path.ends_with(&format!("/{file}")));
        of_file.into_iter().any(|(_, text)| is_test(text))
    }
}

fn add(folder: &Path, sources: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push((path.with_extension("").display().to_string(), read(&path)));
        }
    }
}

fn page() -> String {
    read(&root().join("tests/PAIRS.md"))
}

fn features(page: &str) -> Vec<&str> {
    rows(section(page, "Features")).into_iter().map(|row| spans(row[0])[0]).collect()
}

/// Returns the pair of two features, in the order in which `tests/PAIRS.md` lists them.
fn pair<'a>(features: &[&str], first: &'a str, second: &'a str) -> Pair<'a> {
    let place = |name: &str| {
        features.iter().position(|feature| *feature == name).unwrap_or_else(|| panic!("no feature {name}"))
    };
    if place(first) < place(second) { (first, second) } else { (second, first) }
}

#[test]
fn every_pair_is_on_the_page_once() {
    let page = page();
    let features = features(&page);
    assert!(features.len() >= 16, "found only {} features", features.len());
    assert_eq!(features.iter().collect::<BTreeSet<_>>().len(), features.len());
    let mut counts: BTreeMap<Pair<'_>, usize> = BTreeMap::new();
    for row in rows(section(&page, "Pairs that can interact")) {
        *counts.entry(pair(&features, spans(row[0])[0], spans(row[1])[0])).or_default() += 1;
    }
    let items = items(section(&page, "Pairs that cannot interact"));
    for item in &items {
        let (names, reason) = item.split_once(": ").unwrap_or_else(|| panic!("no reason: {item}"));
        assert!(reason.len() > 20, "{item}");
        let names = spans(names);
        for other in &names[1..] {
            *counts.entry(pair(&features, names[0], other)).or_default() += 1;
        }
    }
    for (place, first) in features.iter().enumerate() {
        for second in &features[place + 1..] {
            assert_eq!(counts.remove(&(*first, *second)), Some(1), "{first} with {second}");
        }
    }
    assert!(counts.is_empty(), "a feature with itself: {counts:?}");
}

#[test]
fn every_test_of_a_pair_exists() {
    let (page, sources) = (page(), Sources::read());
    let rows = rows(section(&page, "Pairs that can interact"));
    assert!(rows.len() > 80, "found only {} pairs", rows.len());
    for row in rows {
        let [first, second, fault, tests] = row[..] else { panic!("{row:?}") };
        assert!(fault.len() > 20, "{first} with {second}: {fault}");
        let tests = spans(tests);
        assert!(!tests.is_empty(), "{first} with {second}: no test");
        for test in tests {
            assert!(sources.has(test), "{first} with {second}: there is no test {test}");
        }
    }
}

#[test]
fn missing_tests_are_noticed() {
    let sources = Sources::read();
    assert!(sources.has("net/gss::services") && sources.has("tests/pairs::missing_tests_are_noticed"));
    // Not in one word, which would be a use of the function.
    let helper = format!("tests/pairs::{}_{}", "unused", "helper");
    for name in ["net/gss::gone", "gone::services", "services", &helper] {
        assert!(!sources.has(name), "{name}");
    }
}

/// A function that is not a test. `Sources::has` must not find it.
#[allow(dead_code)]
fn unused_helper() {}

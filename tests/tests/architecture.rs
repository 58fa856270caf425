//! Every name in ARCHITECTURE.md exists: files, types, functions, modules, crates and features.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Code spans of ARCHITECTURE.md that are not names of this repository.
const OTHERS: [&str; 3] = ["tcp://", "unsafe", "tshark"];

/// The repository's sources and the paths of its files.
struct Repository {
    /// Paths of files and folders, relative to the root.
    paths: BTreeSet<String>,
    /// Names of the defined items: types, traits, functions, modules, macros and constants.
    defined: BTreeSet<String>,
    /// Texts of the Rust sources.
    sources: Vec<String>,
    /// Texts of the `Cargo.toml` and `Cargo.lock` files, which contain the names of packages and features.
    packages: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Repository {
    fn read() -> Self {
        let mut repository =
            Self { paths: BTreeSet::new(), defined: BTreeSet::new(), sources: Vec::new(), packages: String::new() };
        repository.add(&root(), &root());
        repository
    }

    fn add(&mut self, folder: &Path, root: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name == "target" || name == ".git" || path.is_symlink() {
                continue;
            }
            self.paths.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
            if path.is_dir() {
                self.add(&path, root);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                for keyword in ["struct ", "enum ", "trait ", "type ", "fn ", "mod ", "macro_rules! ", "const "] {
                    for after in text.split(keyword).skip(1) {
                        self.defined.insert(after.chars().take_while(|&c| is_word(c)).collect());
                    }
                }
                self.sources.push(text);
            } else if name == "Cargo.toml" || name == "Cargo.lock" {
                self.packages += &fs::read_to_string(&path).unwrap();
            }
        }
    }

    /// Returns `true` if the path of a file or folder is `path` or ends with it. `.rs` may be left out of `path`.
    fn has_path(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let ends = |known: &str| known == path || known.strip_suffix(path).is_some_and(|before| before.ends_with('/'));
        self.paths.iter().any(|known| ends(known) || known.strip_suffix(".rs").is_some_and(ends))
    }

    /// Returns `true` if the function `member` is defined in a source with the declaration of the trait `owner` or an
    /// `impl` of the type or trait `owner`, or in the file of the module `owner`.
    fn has_member(&self, owner: &str, member: &str) -> bool {
        let defines = |text: &str| {
            let function = format!("fn {member}");
            let mut found = text.split(&function).skip(1);
            found.any(|after| !after.starts_with(is_word))
        };
        let owns = |text: &str| {
            let mut heads = text.lines().filter(|line| line.starts_with("impl") || line.contains("trait "));
            heads.any(|line| line.split(|c| !is_word(c)).any(|word| word == owner))
        };
        let in_module = || {
            let file = format!("/{owner}.rs");
            let mut files = self.paths.iter().filter(|path| path.ends_with(&file));
            files.any(|path| defines(&fs::read_to_string(root().join(path)).unwrap()))
        };
        self.sources.iter().any(|text| owns(text) && defines(text)) || in_module()
    }

    fn has_package(&self, name: &str) -> bool {
        self.packages.contains(&format!("\"{name}\""))
            || self.packages.lines().any(|line| line.starts_with(&format!("{name} =")))
    }

    fn has(&self, name: &str) -> bool {
        if let Some((before, after)) = name.split_once("**") {
            return self.has_path(before) && !after.is_empty();
        }
        if let Some((before, after)) = name.split_once('*') {
            return self.paths.iter().any(|path| path.starts_with(before) && path.ends_with(after));
        }
        if let Some((owner, member)) = name.split_once("::") {
            return self.has_member(owner, member);
        }
        let word = name.trim_start_matches("#[").trim_end_matches(']').trim_end_matches('!');
        let command = name.split(' ').next().unwrap();
        self.defined.contains(word) || self.has_path(name) || self.has_path(command) || self.has_package(word)
    }
}

/// Returns the code spans outside of fenced blocks.
fn spans(text: &str) -> BTreeSet<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_name_exists() {
    let (text, repository) = (fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap(), Repository::read());
    let spans = spans(&text);
    assert!(spans.len() > 150, "found only {} names", spans.len());
    let is_missing = |name: &&&str| {
        let is_order = name.contains(" <- ");
        let is_extension = name.starts_with('.') && repository.paths.iter().any(|path| path.ends_with(**name));
        !OTHERS.contains(name) && !is_order && !is_extension && !repository.has(name)
    };
    let missing: Vec<&&str> = spans.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what does not exist: {missing:?}");
}

#[test]
fn missing_names_are_noticed() {
    let repository = Repository::read();
    for name in [
        "engine/gone.rs",
        "GoneType",
        "Channel::gone",
        "Gone::call",
        "gone_function",
        "runtime/gone",
        "gone!",
        "tests/gone_*",
    ] {
        assert!(!repository.has(name), "{name}");
    }
}

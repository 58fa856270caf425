//! README, guide and the other documents: relative links resolve, blocks of XDR, ULB and TOML are valid, and lists of
//! pages, tests, settings and CI steps match the repository. Rust blocks are doc tests of this package or of
//! `rpcrdma`, and shell blocks are checked where the programs are built (`xdrgen/tests/readme.rs`,
//! `examples/tests/guide.rs`).
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use rpcrdma_xdrgen::Compiler;

/// Languages of fenced blocks. Every one is checked somewhere, except `text`.
const LANGUAGES: [&str; 8] = ["bash", "rust", "sh", "text", "toml", "ulb", "xdr", "yaml"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn markdown_in(folder: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found
}

fn pages() -> Vec<PathBuf> {
    let mut pages = markdown_in("examples/guide/src");
    pages.retain(|page| !page.ends_with("SUMMARY.md"));
    pages
}

fn documents() -> Vec<PathBuf> {
    let folders = [
        ".",
        "runtime",
        "runtime/xdr",
        "runtime/proto",
        "runtime/iwarp",
        "runtime/verbs",
        "runtime/discover",
        "xdrgen",
        "macros",
        "specs",
        "examples",
        "examples/guide/src",
        "tests",
        "tests/attacks",
        "tests/benches",
        "tests/counts",
        "tests/foreign",
        "tests/hostile",
        "tests/outages",
        "tests/peer",
        "tests/simulation",
        "tests/soak",
        "tests/vm",
        "tests/peers",
    ];
    folders.into_iter().flat_map(markdown_in).collect()
}

/// Returns a document's text outside of fenced blocks, and the language and text of each block.
fn split(text: &str) -> (String, Vec<(String, String)>) {
    let (mut prose, mut blocks) = (String::new(), Vec::new());
    for (index, part) in text.split("```").enumerate() {
        match index % 2 {
            0 => prose.push_str(part),
            _ => {
                let (language, text) = part.split_once('\n').unwrap();
                blocks.push((language.to_owned(), text.to_owned()));
            }
        }
    }
    (prose, blocks)
}

/// Returns the targets of links, as in `[text](target)`.
fn links(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Returns the URL fragments of a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    split(text).0.lines().filter(|line| line.starts_with('#')).map(heading).collect()
}

#[test]
fn every_relative_link_resolves() {
    let mut broken = Vec::new();
    let mut count = 0;
    for document in documents() {
        let text = read(&document);
        let (prose, _) = split(&text);
        for link in links(&prose) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let known = target.exists() && (fragment.is_empty() || anchors(&read(&target)).contains(fragment));
            if !known {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn the_guide_links_to_its_own_pages_only() {
    // Other files of the repository are not part of the built book.
    for page in pages() {
        let text = read(&page);
        for link in links(&split(&text).0).into_iter().filter(|link| !link.contains("://")) {
            assert!(!link.contains('/'), "{}: {link}", page.display());
        }
    }
}

#[test]
fn the_summary_lists_every_page() {
    let text = read(&root().join("examples/guide/src/SUMMARY.md"));
    let listed: BTreeSet<&str> = links(&text).into_iter().collect();
    let pages = pages();
    let pages: BTreeSet<&str> = pages.iter().map(|page| page.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(listed, pages);
}

/// The README and the guide's introduction link to every page of the guide, except that the introduction does not link
/// to itself.
#[test]
fn readme_and_introduction_link_to_every_page() {
    for (entrance, folder) in [("README.md", "examples/guide/src/"), ("examples/guide/src/index.md", "")] {
        let text = read(&root().join(entrance));
        let prose = split(&text).0;
        let linked: BTreeSet<&str> = links(&prose).into_iter().filter_map(|link| link.strip_prefix(folder)).collect();
        for page in pages() {
            let name = page.file_name().unwrap().to_str().unwrap();
            assert!(linked.contains(name) || entrance.ends_with(name), "{entrance} has no link to {name}");
        }
    }
}

/// No block is marked `ignore`, except on the page about generating code. `xdrgen/tests/readme.rs` builds packages from
/// the blocks of that page.
#[test]
fn only_the_page_about_generating_code_has_code_that_is_no_doc_test() {
    for document in documents().into_iter().filter(|path| !path.ends_with("generating.md")) {
        for (language, text) in split(&read(&document)).1 {
            assert!(!language.contains("ignore"), "{}: nothing compiles this block:\n{text}", document.display());
        }
    }
}

/// No cell of a table has two sentences. A fact that needs two belongs in the text beside the table.
#[test]
fn no_cell_of_a_table_has_two_sentences() {
    let mut found = Vec::new();
    for document in documents() {
        for line in split(&read(&document)).0.lines().filter(|line| line.starts_with('|')) {
            let words: Vec<&str> = line.split('`').step_by(2).flat_map(|text| text.split(' ')).collect();
            let begins = |word: &str| word.starts_with(char::is_uppercase);
            if words.windows(2).any(|pair| pair[0].ends_with('.') && !pair[0].ends_with("..") && begins(pair[1])) {
                found.push(format!("{}: {line}", document.display()));
            }
        }
    }
    assert!(found.is_empty(), "cells with two sentences:\n{}", found.join("\n"));
}

#[test]
fn every_document_with_rust_is_a_doc_test() {
    let tested = read(&root().join("tests/src/lib.rs"));
    // The benchmarks of `rpcrdma-tests` are measured without the paused clock that this page needs.
    let runtime = read(&root().join("runtime/src/lib.rs"));
    for document in documents() {
        let (_, blocks) = split(&read(&document));
        let has_rust = blocks.iter().any(|(language, _)| language.starts_with("rust"));
        let path = document.strip_prefix(root()).unwrap().to_str().unwrap();
        let is_tested = tested.contains(&format!("\"{path}\"")) || runtime.contains(&format!("\"../../{path}\""));
        assert!(!has_rust || is_tested, "{path} is not in tests/src/lib.rs");
    }
}

#[test]
fn blocks_have_a_known_language() {
    let written_here = |path: &Path| path.starts_with(root().join("examples")) || path == root().join("README.md");
    for document in documents().into_iter().filter(|path| written_here(path)) {
        for (language, text) in split(&read(&document)).1 {
            let language = language.split(',').next().unwrap();
            assert!(LANGUAGES.contains(&language), "{}: `{language}` before:\n{text}", document.display());
        }
    }
}

#[test]
fn xdr_compiles_with_the_ulb_of_its_page() {
    let mut count = 0;
    for document in documents() {
        let (_, blocks) = split(&read(&document));
        let name = document.display().to_string();
        let ulb: String = blocks.iter().filter(|(language, _)| language == "ulb").map(|(_, text)| &**text).collect();
        for (_, text) in blocks.iter().filter(|(language, _)| language == "xdr") {
            let mut compiler = Compiler::new().source(&name, &**text);
            if !ulb.is_empty() {
                compiler = compiler.ulb_source(format!("the ULB of {name}"), &*ulb);
            }
            let compiled = compiler.compile().unwrap_or_else(|diagnostics| panic!("{name}: {diagnostics}"));
            assert!(compiled.warnings.is_empty(), "{name}: {:?}", compiled.warnings);
            count += 1;
        }
    }
    assert!(count >= 5, "only {count} blocks of XDR were found");
}

#[test]
fn toml_parses_and_names_features_that_exist() {
    let manifest: toml::Table = read(&root().join("runtime/Cargo.toml")).parse().unwrap();
    let features = manifest["features"].as_table().unwrap();
    let mut count = 0;
    for document in documents() {
        for (_, text) in split(&read(&document)).1.into_iter().filter(|(language, _)| language == "toml") {
            let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", document.display()));
            count += 1;
            let kinds =
                ["dependencies", "build-dependencies"].into_iter().filter_map(|kind| table.get(kind)?.as_table());
            // Nothing is published yet, so a version would not be found.
            for (name, dependency) in kinds.flatten().filter(|(name, _)| name.starts_with("rpcrdma")) {
                let is_here = dependency.get("path").is_some() && dependency.get("version").is_none();
                assert!(is_here, "{}: {name} is not a path in a checkout", document.display());
            }
            let wanted = table.get("dependencies").and_then(|it| it.get("rpcrdma")).and_then(|it| it.get("features"));
            for feature in wanted.and_then(|it| it.as_array()).into_iter().flatten() {
                assert!(features.contains_key(feature.as_str().unwrap()), "{}: {feature}", document.display());
            }
        }
    }
    assert!(count >= 4, "only {count} blocks of TOML were found");
}

/// CONTRIBUTING.md names only steps of `.ci/run` that exist. The workflow `long.yml` has all long steps except
/// `mutants` and `perf`. `ci.yml` and `long.yml` use the compiler of `tests/counts/budget.tsv`.
#[test]
fn workflows_run_steps_that_exist() {
    let script = read(&root().join(".ci/run"));
    let named = |command: &str| -> BTreeSet<&str> {
        let lines = script.lines().filter_map(|line| line.strip_prefix(command)?.strip_prefix(' '));
        lines.map(|line| line.split(' ').next().unwrap()).collect()
    };
    let (steps, mut long_steps) = (named("step"), named("long_step"));

    let contributing = read(&root().join("CONTRIBUTING.md"));
    let lines = contributing.lines().filter_map(|line| line.strip_prefix(".ci/run "));
    for step in lines.flat_map(str::split_whitespace) {
        assert!(steps.contains(step) || long_steps.contains(step), "CONTRIBUTING.md: .ci/run has no step {step}");
    }

    let workflow = read(&root().join(".github/workflows/long.yml"));
    let (_, list) = workflow.split_once("step: [").unwrap();
    let in_workflow: BTreeSet<&str> = list.split_once(']').unwrap().0.split(", ").collect();
    // `mutants` compares with a revision, and `perf` gives no verdict.
    assert!(long_steps.remove("mutants") && long_steps.remove("perf"));
    assert_eq!(in_workflow, long_steps);

    // Instructions depend on the compiler.
    let budget = read(&root().join("tests/counts/budget.tsv"));
    let compiler = budget.split(' ').nth(2).unwrap();
    for workflow in ["ci.yml", "long.yml"] {
        let text = read(&root().join(".github/workflows").join(workflow));
        assert!(text.contains(&format!("RUST: {compiler}\n")), "{workflow} has another compiler than {compiler}");
    }
}

/// The page about tests on devices shows the case that CI runs, functions that exist, and the inputs of the action.
#[test]
fn the_page_about_the_guest_shows_what_ci_runs() {
    let page = read(&root().join("examples/guide/src/guest.md"));
    let (_, blocks) = split(&page);
    let block = |language: &str| &blocks.iter().find(|(found, _)| found == language).unwrap().1;
    assert_eq!(block("bash").trim_end(), read(&root().join("examples/guest/blobstore.sh")).trim_end());

    let functions = read(&root().join("tests/vm/guest/lib.sh"));
    let shown: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split([' ', '`']).next()).collect();
    assert!(shown.len() >= 8 && shown.iter().all(|name| functions.contains(&format!("\n{name}() {{"))), "{shown:?}");

    let action = read(&root().join(".github/actions/rdma-guest/action.yml"));
    let (_, inputs) = block("yaml").split_once("with:\n").unwrap();
    for input in inputs.lines() {
        let name = input.trim().split(':').next().unwrap();
        assert!(action.contains(&format!("\n  {name}:\n")), "the action has no input {name}");
    }
    let runs = read(&root().join(".ci/run"));
    let command = page.lines().find_map(|line| line.strip_prefix("tests/vm/run ")).unwrap();
    let [cases, _] = command.split_once(" --bin ").map(|(cases, bin)| [cases, bin]).unwrap();
    assert!(runs.contains(&format!("tests/vm/run {cases} --bin ")), "CI does not run: tests/vm/run {command}");
}

fn sources_in(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The guide's table of limits names tests that exist. A name is the end of the file's path, or for a file `tests.rs`
/// the end of its folder's path, followed by the function.
#[test]
fn the_table_of_limits_names_tests() {
    let mut sources = Vec::new();
    for folder in ["runtime", "examples/src"] {
        sources_in(&root().join(folder), &mut sources);
    }
    let page = read(&root().join("examples/guide/src/limits.md"));
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .skip(2)
        .collect();
    assert!(rows.len() > 15, "only {} rows were found", rows.len());
    for row in rows {
        let [resource, .., tests] = row[..] else { panic!("{row:?}") };
        assert_eq!(row.len(), 6, "{row:?}");
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{resource}: no test");
        for test in tests {
            let (module, function) = test.split_once("::").unwrap();
            let is_there = sources.iter().any(|path| {
                let file = path.with_extension("");
                let is_module = file.ends_with(module) || file.ends_with(Path::new(module).join("tests"));
                is_module && read(path).contains(&format!("fn {function}("))
            });
            assert!(is_there, "{resource}: there is no test {test}");
        }
    }
}

/// The guide names every setting that is defined in the listed source files, so that each has a known use.
#[test]
fn the_guide_names_every_setting() {
    let guide: String = pages().iter().map(|page| read(page)).collect();
    let words: BTreeSet<&str> = guide.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let sources = ["config.rs", "client/builder.rs", "server/builder.rs", "server/limits/mod.rs", "gss/contexts.rs"];
    let mut settings = 0;
    for source in sources {
        let text = read(&root().join("runtime/src").join(source));
        for after in text.split("pub fn ").skip(1) {
            let (head, arguments) = after.split_once('(').unwrap();
            if arguments.starts_with("mut self") {
                let name = head.split('<').next().unwrap();
                assert!(words.contains(name), "the guide does not name the setting {name} of runtime/src/{source}");
                settings += 1;
            }
        }
    }
    assert!(settings > 70, "found only {settings} settings");
}

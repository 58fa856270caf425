//! Compiles programs of the copy of the project, and lists and selects the tests in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use crate::copy::manifest_of;

/// Features with which the tests of packages are compiled. Other packages get their default features.
const FEATURES: [(&str, &str); 3] = [
    ("runtime/Cargo.toml", "discover,gss,introspection,metrics,tls"),
    ("specs/Cargo.toml", "discover"),
    ("xdrgen/Cargo.toml", "decode,tools"),
];

/// Limit of the virtual memory of a test program, in KiB.
const MAX_MEMORY_KIB: u64 = 8 << 20;

/// A test program: the unit tests of a library, or one file or folder of `tests`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestTarget {
    /// Manifest of the package, relative to the root.
    pub manifest: PathBuf,
    /// Name of the integration test. `None` for the library's unit tests.
    pub integration: Option<String>,
}

/// A cited test: all tests of a file, or one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CitedTest {
    /// The file, relative to the root.
    pub file: PathBuf,
    /// Name of the function. `None` for all tests of the file.
    pub function: Option<String>,
}

impl CitedTest {
    /// Parses `file::function` or `file`.
    pub fn parse(text: &str) -> Self {
        match text.split_once("::") {
            Some((file, function)) => Self { file: file.into(), function: Some(function.to_owned()) },
            None => Self { file: text.into(), function: None },
        }
    }

    /// Returns the program that contains the test.
    ///
    /// # Errors
    ///
    /// Fails if no program contains it.
    pub fn target(&self, root: &Path) -> anyhow::Result<TestTarget> {
        let manifest = manifest_of(root, &self.file)?;
        let package = manifest.parent().unwrap_or(Path::new(""));
        let inside = self.file.strip_prefix(package)?;
        let mut components = inside.iter();
        let integration = match components.next().and_then(|first| first.to_str()) {
            Some("src") => None,
            Some("tests") => Some(integration(&root.join(package).join("tests"), components.as_path())?),
            _ => bail!("{} is neither in src nor in tests", self.file.display()),
        };
        Ok(TestTarget { manifest, integration })
    }

    /// Selects the names of the cited tests from `all`, the names of all tests of their program. Of the tests with the
    /// cited name, or of all tests if a whole file is cited, selects those whose modules fit the path of the file best.
    fn select<'a>(&self, all: &'a [String]) -> Vec<&'a String> {
        let is_named = |name: &&String| match &self.function {
            Some(function) => name.rsplit("::").next() == Some(function),
            None => true,
        };
        let named: Vec<_> = all.iter().filter(is_named).collect();
        // The names of files and folders are those of modules, with exceptions such as `main.rs`.
        let mut modules: Vec<_> = self.file.iter().filter_map(|part| part.to_str()).collect();
        if let Some(last) = modules.last_mut() {
            *last = last.trim_end_matches(".rs");
        }
        let rank = |name: &str| name.split("::").filter(|part| modules.contains(part)).count();
        let best = named.iter().map(|name| rank(name)).max().unwrap_or(0);
        named.into_iter().filter(|name| rank(name) == best).collect()
    }
}

/// Returns the name of the integration test that contains a file of the folder `tests`.
fn integration(folder: &Path, file: &Path) -> anyhow::Result<String> {
    let mut parts = file.iter().filter_map(|part| part.to_str());
    let (first, is_file) = (parts.next().unwrap_or_default(), parts.next().is_none());
    if is_file {
        return Ok(first.trim_end_matches(".rs").to_owned());
    }
    if folder.join(first).join("main.rs").is_file() || folder.join(format!("{first}.rs")).is_file() {
        return Ok(first.to_owned());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let declares = |text: String| text.contains(&format!("mod {first};"));
        if path.extension().is_some_and(|extension| extension == "rs") && fs::read_to_string(&path).is_ok_and(declares)
        {
            return Ok(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    bail!("no test program in {} contains {}", folder.display(), file.display())
}

/// A compiled test program, or a program that [`build_binary`] has compiled.
#[derive(Clone, Debug)]
pub struct TestProgram {
    /// Path of the program.
    pub executable: PathBuf,
    /// Folder in which the program runs: the folder of the package, or the copy after [`build_binary`].
    pub folder: PathBuf,
    /// Names of all tests in the program. Empty after [`build_binary`].
    pub tests: Vec<String>,
}

impl TestProgram {
    /// Returns the names of the tests that a citation selects: one test, or all tests of a file.
    ///
    /// # Errors
    ///
    /// Fails if the program has no such test.
    pub fn names(&self, cited: &CitedTest) -> anyhow::Result<Vec<String>> {
        let names: Vec<_> = cited.select(&self.tests).into_iter().cloned().collect();
        ensure!(!names.is_empty(), "{} has no test {}", cited.file.display(), cited.function.as_deref().unwrap_or(""));
        Ok(names)
    }

    /// Returns a command that runs the test program. The caller adds the arguments of the test harness.
    pub fn command(&self) -> Command {
        self.in_folder(Command::new(&self.executable))
    }

    /// Returns a command that runs the program's tests with limited memory, because a mutant may allocate without end.
    /// The random inputs of proptest are the same in each run.
    pub fn limited_command(&self) -> Command {
        let mut command = Command::new("sh");
        let limits = format!("ulimit -c 0; ulimit -v {MAX_MEMORY_KIB}; exec \"$@\"");
        command.args(["-c", &limits, "sh"]).arg(&self.executable);
        command.env("PROPTEST_RNG_SEED", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0").env("RUST_BACKTRACE", "0");
        // Inputs that fail for a mutant are not those of a bug.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        self.in_folder(command)
    }

    fn in_folder(&self, mut command: Command) -> Command {
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<BuiltTarget>,
    #[serde(default)]
    profile: BuiltProfile,
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
    spans: Vec<DiagnosticSpan>,
}

#[derive(Deserialize)]
struct DiagnosticSpan {
    file_name: PathBuf,
    byte_start: usize,
    byte_end: usize,
}

impl DiagnosticSpan {
    /// Returns the file, relative to the copy and without `..`, and the byte range in it.
    fn place(&self, copy: &Path) -> (PathBuf, Range<usize>) {
        let mut file = PathBuf::new();
        for component in self.file_name.strip_prefix(copy).unwrap_or(&self.file_name).components() {
            match component {
                Component::ParentDir => drop(file.pop()),
                other => file.push(other),
            }
        }
        (file, self.byte_start..self.byte_end)
    }
}

#[derive(Deserialize)]
struct BuiltTarget {
    name: String,
    kind: Vec<String>,
}

#[derive(Default, Deserialize)]
struct BuiltProfile {
    test: bool,
}

/// An error of the compiler.
#[derive(Debug)]
pub struct CompilerError {
    /// The message with the code that it shows.
    pub rendered: String,
    /// The places of the error: files, relative to the copy, and byte ranges in them.
    pub places: Vec<(PathBuf, Range<usize>)>,
}

/// Outcome of compiling.
#[derive(Debug)]
pub enum Built {
    /// The compiled programs.
    Programs(BTreeMap<TestTarget, TestProgram>),
    /// The errors, of which there is at least one.
    Failed(Vec<CompilerError>),
}

/// Returns the features with which the tests of a package are compiled. `None` stands for the default features.
pub fn features_of(manifest: &Path) -> Option<&'static str> {
    FEATURES.iter().find(|(path, _)| Path::new(path) == manifest).map(|(_, features)| *features)
}

/// Compiles test programs of the copy, into the folder `output`. Returns the programs or the errors of the compiler.
///
/// # Errors
///
/// Fails if cargo cannot be run or fails without an error of the compiler, or if a program is not built or does not
/// list its tests.
pub fn build(copy: &Path, output: &Path, targets: &BTreeSet<TestTarget>) -> anyhow::Result<Built> {
    // Cargo applies `rpcrdma/tls` to every selected package that has a dependency `rpcrdma`, whichever package that is.
    // So packages with features are compiled on their own.
    let mut groups: BTreeMap<Option<&str>, BTreeSet<&TestTarget>> = BTreeMap::new();
    for target in targets {
        groups.entry(features_of(&target.manifest)).or_default().insert(target);
    }
    let mut programs = BTreeMap::new();
    for (features, targets) in groups {
        match build_group(copy, output, &targets, features)? {
            Built::Programs(mut group) => programs.append(&mut group),
            Built::Failed(errors) => return Ok(Built::Failed(errors)),
        }
    }
    for target in targets {
        ensure!(programs.contains_key(target), "cargo has not built {target:?}");
    }
    Ok(Built::Programs(programs))
}

/// Compiles test programs with these features.
fn build_group(
    copy: &Path,
    output: &Path,
    targets: &BTreeSet<&TestTarget>,
    features: Option<&str>,
) -> anyhow::Result<Built> {
    let mut command = cargo(copy, output, &["test", "--no-run"]);
    let manifests: BTreeSet<_> = targets.iter().map(|target| &target.manifest).collect();
    for manifest in manifests {
        command.args(["-p", &package_name(&copy.join(manifest))?]);
    }
    if let Some(features) = features {
        command.args(["--features", features]);
    }
    let integrations: BTreeSet<_> = targets.iter().filter_map(|target| target.integration.as_ref()).collect();
    for name in integrations {
        command.args(["--test", name]);
    }
    // Cargo accepts this argument only once, for the libraries of all packages.
    if targets.iter().any(|target| target.integration.is_none()) {
        command.arg("--lib");
    }
    let messages = match run(&mut command, copy)? {
        Ok(messages) => messages,
        Err(errors) => return Ok(Built::Failed(errors)),
    };
    let mut programs = BTreeMap::new();
    for message in messages {
        let (Some(manifest), Some(executable), Some(built)) =
            (message.manifest_path, message.executable, message.target)
        else {
            continue;
        };
        if message.reason != "compiler-artifact" || !message.profile.test {
            continue;
        }
        let integration = (built.kind == ["test"]).then_some(built.name);
        let target = TestTarget { manifest: manifest.strip_prefix(copy)?.to_owned(), integration };
        if targets.contains(&target) {
            let folder = manifest.parent().unwrap_or(copy).to_owned();
            let mut program = TestProgram { executable, folder, tests: Vec::new() };
            program.tests = list(&program)?;
            programs.insert(target, program);
        }
    }
    Ok(Built::Programs(programs))
}

/// Compiles the program of a package of the copy, into the folder `output`. The program is optimized a little, because
/// it runs often, unless the environment sets the level of optimization. Returns the program with an empty list of
/// tests, or the errors of the compiler.
///
/// # Errors
///
/// Fails if cargo cannot be run or fails without an error of the compiler, or if the program is not built.
pub fn build_binary(
    copy: &Path,
    output: &Path,
    package: &str,
) -> anyhow::Result<Result<TestProgram, Vec<CompilerError>>> {
    let mut command = cargo(copy, output, &["build", "-p", package, "--bin", package]);
    if std::env::var_os("CARGO_PROFILE_DEV_OPT_LEVEL").is_none() {
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    }
    let messages = match run(&mut command, copy)? {
        Ok(messages) => messages,
        Err(errors) => return Ok(Err(errors)),
    };
    let mut built = messages.into_iter().filter_map(|message| message.executable);
    let executable = built.next_back().with_context(|| format!("cargo has not built {package}"))?;
    Ok(Ok(TestProgram { executable, folder: copy.to_owned(), tests: Vec::new() }))
}

/// Checks the library of a package of the copy, and returns its errors. This takes less time than compiling it.
///
/// # Errors
///
/// Fails if cargo cannot be run, or fails without an error of the compiler.
pub fn check(copy: &Path, output: &Path, manifest: &Path) -> anyhow::Result<Vec<CompilerError>> {
    let mut command = cargo(copy, output, &["check", "--lib", "-p", &package_name(&copy.join(manifest))?]);
    if let Some(features) = features_of(manifest) {
        command.args(["--features", features]);
    }
    Ok(run(&mut command, copy)?.err().unwrap_or_default())
}

/// Returns a command that runs cargo in the copy and prints its messages as JSON.
fn cargo(copy: &Path, output: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).args(["-q", "--message-format=json"]).current_dir(copy);
    command.env("CARGO_TARGET_DIR", output).env("CARGO_INCREMENTAL", "0");
    if std::env::var_os("CARGO_PROFILE_DEV_DEBUG").is_none() {
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
    for variable in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_NAME", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command
}

/// Runs cargo, and returns its messages, or the errors of the compiler.
fn run(cargo: &mut Command, copy: &Path) -> anyhow::Result<Result<Vec<Message>, Vec<CompilerError>>> {
    let output = cargo.stderr(Stdio::inherit()).output().context("failed to run cargo")?;
    let messages = String::from_utf8(output.stdout)?;
    let messages: Vec<Message> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.success() {
        return Ok(Ok(messages));
    }
    let diagnostics = messages.into_iter().filter_map(|message| message.message);
    let errors: Vec<_> = diagnostics
        .filter(|diagnostic| diagnostic.level == "error")
        .map(|diagnostic| CompilerError {
            rendered: diagnostic.rendered.unwrap_or_default(),
            places: diagnostic.spans.iter().map(|span| span.place(copy)).collect(),
        })
        .collect();
    ensure!(!errors.is_empty(), "cargo failed without an error of the compiler");
    Ok(Err(errors))
}

fn package_name(manifest: &Path) -> anyhow::Result<String> {
    let manifest: toml::Table = toml::from_str(&fs::read_to_string(manifest)?)?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    Ok(name.context("the package has no name")?.to_owned())
}

fn list(program: &TestProgram) -> anyhow::Result<Vec<String>> {
    let listed = program.command().arg("--list").output()?;
    ensure!(listed.status.success(), "{} does not list its tests", program.executable.display());
    let text = String::from_utf8(listed.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test").map(ToOwned::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_selected_by_file_and_name() {
        let all = ["engine::credits::tests::grant", "engine::window::tests::grant", "engine::credits::tests::other"]
            .map(str::to_owned);
        let selected = |cited| CitedTest::parse(cited).select(&all);
        assert_eq!(selected("p/src/engine/window.rs::grant"), [&all[1]]);
        assert_eq!(selected("p/src/engine/credits.rs"), [&all[0], &all[2]]);
        assert!(selected("p/src/engine/credits.rs::none").is_empty());
    }
}

//! Tests of `xdrgen new`: the package that it writes, and the commands on the guide's page about it, run as a reader
//! would run them.
#![cfg(unix)]

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

const PAGE: &str = "examples/guide/src/first-service.md";
/// URL of the server in the documents. The test uses a free port.
const URL: &str = "iwarp://127.0.0.1:20100";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `xdrgen` in a folder.
fn xdrgen(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xdrgen")).args(arguments).current_dir(folder).output().unwrap()
}

/// Returns the paths of all files in a folder and its subfolders, relative to the folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn the_package_has_every_file_of_the_template() {
    let place = tempfile::tempdir().unwrap();
    let output = xdrgen(place.path(), &["new", "stock-list"]);
    assert!(output.status.success(), "{}", text(&output));
    let package = place.path().join("stock-list");
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("template");
    let mut expected = files(&template);
    // `cargo generate` does not copy the first file, and removes the ending of the second one.
    assert!(expected.remove(Path::new("cargo-generate.toml")) && expected.remove(Path::new("Cargo.toml.liquid")));
    expected.insert("Cargo.toml".into());
    assert_eq!(files(&package), expected);

    for file in expected {
        let text = fs::read_to_string(package.join(&file)).unwrap();
        assert!(!text.contains("{{") && !text.contains("{%"), "{}: a placeholder is left", file.display());
    }
    let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(manifest.contains("name = \"stock-list\"\n"));
    assert!(manifest.contains(&format!("\nrpcrdma = {{ version = \"{version}\" }}\n")), "{manifest}");
    assert!(manifest.contains(&format!("\nrpcrdma-xdrgen = {{ version = \"{version}\", default")), "{manifest}");
    assert!(fs::read_to_string(package.join("src/serve.rs")).unwrap().contains("use stock_list::{"));
    // The defaults of `cargo generate`.
    let settings = fs::read_to_string(template.join("cargo-generate.toml")).unwrap();
    assert_eq!(settings.matches(&format!("default = 'version = \"{version}\"'\n")).count(), 2, "{settings}");
}

#[test]
fn wrong_names_and_folders_are_refused() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("taken")).unwrap();
    let not_a_name = "is not the name of a package: use lower-case letters";
    for (arguments, expected) in [
        (&["Inventory"][..], not_a_name),
        (&["2fast"], not_a_name),
        (&["a/b"], not_a_name),
        (&["grün"], not_a_name),
        (&[""], not_a_name),
        (&["loop"], "`loop` is a keyword of Rust"),
        (&["async"], "`async` is a keyword of Rust"),
        (&["build"], "cargo or Rust uses the name `build`"),
        (&["proc-macro"], "cargo or Rust uses the name `proc-macro`"),
        (&["tokio"], "the package depends on a crate with the name `tokio`"),
        (&["hyper_util"], "the package depends on a crate with the name `hyper_util`"),
        (&["taken"], "`taken` exists"),
        (&["inventory", "--path", "taken"], "`taken` is not a checkout of rpcrdma"),
    ] {
        let output = xdrgen(place.path(), &[&["new"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.starts_with("error: ") && errors.contains(expected), "{arguments:?}: {errors}");
    }
    assert_eq!(files(place.path()), BTreeSet::new());
}

/// If the command names the checkout by a path relative to the current folder, the path in the manifest is relative to
/// the package. An absolute path stays absolute.
#[test]
fn the_manifest_names_the_checkout() {
    let place = tempfile::tempdir().unwrap();
    for krate in ["runtime", "xdrgen"] {
        fs::create_dir_all(place.path().join("code").join(krate)).unwrap();
        fs::write(place.path().join("code").join(krate).join("Cargo.toml"), "").unwrap();
    }
    let absolute = place.path().join("code").display().to_string();
    for (name, path, expected) in [("near", "code", "../code"), ("far", &*absolute, &*absolute)] {
        let output = xdrgen(place.path(), &["new", name, "--path", path]);
        assert!(output.status.success(), "{}", text(&output));
        let manifest = fs::read_to_string(place.path().join(name).join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("rpcrdma = {{ path = \"{expected}/runtime\" }}")), "{manifest}");
        assert!(manifest.contains(&format!("rpcrdma-xdrgen = {{ path = \"{expected}/xdrgen\", ")), "{manifest}");
    }
}

/// A server process, which is killed if the test fails.
struct ServerProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl ServerProcess {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Returns the rest of the next line that begins with `start`. Panics if the output ends before such a line.
    fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server ended without the line {start:?}");
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    /// Sends a signal, and checks that the server stops without an error.
    fn stop(mut self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.line("stopped");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the lines of all code blocks in `language` in a document.
fn lines<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let blocks = document.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).flat_map(str::lines).collect()
}

/// Returns a cargo command that reuses the build directory of this workspace and never uses the network.
fn cargo(folder: &Path, arguments: &[&str]) -> Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target).env("CARGO_NET_OFFLINE", "true");
    if std::env::var_os("CARGO_PROFILE_DEV_DEBUG").is_none() {
        // The profile of this workspace.
        command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    }
    command
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the commands of the guide's page in order, and then the command of the Dockerfile.
#[test]
fn the_commands_of_the_guide_make_test_and_run_a_service() {
    let place = tempfile::tempdir().unwrap();
    let mut folder = place.path().to_owned();
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let commands = lines(&page, "sh");
    let checkout = root().display().to_string();
    let mut server: Option<(ServerProcess, String)> = None;
    let mut outputs = Vec::new();
    for line in &commands {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["xdrgen", ref arguments @ .., "rpcrdma"] => {
                let output = xdrgen(&folder, &[arguments, &[&*checkout]].concat());
                assert!(output.status.success(), "{line}: {}", text(&output));
                // Only the versions of dependencies that this checkout uses are certain to be on this machine.
                fs::copy(root().join("Cargo.lock"), folder.join(arguments[1]).join("Cargo.lock")).unwrap();
            }
            ["cd", name] => folder.push(name),
            ["cargo", ref arguments @ .., "--listen", URL] => {
                let mut process = ServerProcess::start(&mut cargo(
                    &folder,
                    &[arguments, &["--listen", "iwarp://127.0.0.1:0"]].concat(),
                ));
                let url = process.line("listening on ");
                server = Some((process, url));
            }
            ["cargo", ref arguments @ ..] => {
                let url = server.as_ref().map_or(URL, |(_, url)| url);
                let arguments: Vec<&str> = arguments.iter().map(|&word| if word == URL { url } else { word }).collect();
                outputs.push(succeed(&mut cargo(&folder, &arguments)));
            }
            _ => panic!("the test does not know the command {line:?}"),
        }
    }
    let [tests, stored, fetched, keys] = &*outputs else { panic!("{outputs:?}") };
    assert!(tests.contains("test result: ok. 3 passed"), "{tests}");
    assert_eq!(stored.lines().collect::<Vec<_>>(), lines(&page, "text"));
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    assert_eq!((&**fetched, &**keys), (&*readme, "readme\n"));
    let (process, _) = server.unwrap();
    process.stop("INT");

    // The README of the package has no other commands than the page.
    let in_readme = lines(&readme, "sh");
    assert!(!in_readme.is_empty() && in_readme.iter().all(|line| commands.contains(line)), "{in_readme:?}");
    succeed(cargo(&folder, &["fmt", "--check"]).env_remove("CARGO_TARGET_DIR"));
    run_as_in_the_image(&folder);
}

/// Starts the server with the arguments in the Dockerfile, but with free ports. Checks that the server executes a call,
/// counts the call in its metrics, and stops on SIGTERM.
fn run_as_in_the_image(package: &Path) {
    let dockerfile = fs::read_to_string(package.join("Dockerfile")).unwrap();
    let list = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let arguments: Vec<String> = serde_json::from_str(list).unwrap();
    let arguments = arguments.iter().map(|word| match word.rsplit_once(':') {
        Some((address, _)) => format!("{}:0", address.replace("0.0.0.0", "127.0.0.1")),
        None => word.clone(),
    });
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("debug").join("inventory");
    let mut process = ServerProcess::start(Command::new(&program).args(arguments));
    let metrics = process.line("metrics on http://");
    let url = process.line("listening on ");
    succeed(Command::new(&program).args(["list", "--server", &url]));

    // The server counts a call after it has sent the reply.
    let is_counted = |_| get(&metrics).contains("rpc_method=\"STORE_V1.LIST\"");
    assert!((0..1000).any(is_counted), "{}", get(&metrics));
    process.stop("TERM");
}

/// Returns the response of an HTTP server to a request for `ADDRESS/PATH`.
fn get(place: &str) -> String {
    let (address, path) = place.split_at(place.find('/').unwrap());
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    response
}

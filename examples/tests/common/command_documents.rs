//! Checks of the output of `--generate`: shell completions and man pages, with the tools that read them. The tests of
//! `xdrgen` use this file too.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

/// A program, with samples of the expected completions and of the expected text of its man page.
pub(crate) struct Program<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
    /// Pairs of the words before the cursor and a completion of the last of these words, such as
    /// `(["get", "--def"], "--default-reply-max")`.
    pub(crate) completions: &'a [(&'a [&'a str], &'a str)],
    /// Text that the man page contains.
    pub(crate) described: &'a [&'a str],
}

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the standard output of a command, which must succeed and write nothing to standard error.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{program} {arguments:?}");
    text(&output.stdout)
}

/// Returns `true` if a tool is installed. Otherwise, prints that its check does not run.
fn is_installed(tool: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join(tool).is_file());
    if !found {
        eprintln!("NOT RUN: {tool} is not installed");
    }
    found
}

impl Program<'_> {
    /// Checks the completion script for each shell, completions in bash, the man page, and the use of `--generate`.
    pub(crate) fn check(&self) {
        let place = tempfile::tempdir().unwrap();
        for shell in SHELLS {
            let script = printed(self.path, &[&format!("--generate=completions-{shell}")]);
            assert!(script.contains(self.name) && script.contains("generate"), "{shell}:\n{script}");
            let path = place.path().join(shell);
            fs::write(&path, script).unwrap();
            self.check_syntax(shell, &path);
        }
        if is_installed("bash") {
            self.complete(&place.path().join("bash"));
        }
        self.check_page(place.path());
        self.check_usage();
    }

    fn check_syntax(&self, shell: &str, script: &Path) {
        let script = script.to_str().unwrap();
        let arguments = match shell {
            "bash" | "zsh" => ["-n", script],
            "fish" => ["--no-execute", script],
            _ => return,
        };
        if is_installed(shell) {
            assert_eq!(printed(shell, &arguments), "");
        }
    }

    /// Checks completions of command lines in bash, as when the user presses the Tab key.
    fn complete(&self, script: &Path) {
        const PRESS: &str = r#"
            source "$1" || exit 1
            shift
            COMP_WORDS=("$@")
            COMP_CWORD=$(($# - 1))
            words=$(complete -p "$1") || exit 1
            set -- $words -- "$@"
            while [ "$1" != -F ]; do shift; done
            "$2" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        assert!(!self.completions.is_empty());
        for (words, wanted) in self.completions {
            let head = ["--norc", "--noprofile", "-c", PRESS, "bash", script.to_str().unwrap(), self.name];
            let offered = printed("bash", &[&head, *words].concat());
            assert!(offered.lines().any(|line| line == *wanted), "{} {words:?} offers {offered}", self.name);
            let last = words.last().unwrap();
            assert!(offered.lines().all(|line| line.starts_with(last)), "{} {words:?} offers {offered}", self.name);
        }
    }

    fn check_page(&self, place: &Path) {
        let page = printed(self.path, &["--generate", "man"]);
        let path = place.join("page.1");
        fs::write(&path, &page).unwrap();
        let path = path.to_str().unwrap();
        assert!(page.contains(&format!(".TH {} 1 \"\" ", self.name)), "{page}");
        assert_eq!(page.matches(".TH ").count(), 1);
        if is_installed("groff") {
            // `-ww` enables all warnings, which go to standard error. One line for each paragraph, without styles.
            let shown =
                printed("groff", &["-man", "-ww", "-Tutf8", "-P-c", "-P-b", "-P-o", "-P-u", "-rLL=1000n", path]);
            // groff writes minus signs.
            let shown = shown.replace(['\u{2212}', '\u{2010}'], "-");
            for text in self.described {
                assert!(shown.contains(text), "{}: the page has no {text}:\n{shown}", self.name);
            }
        }
        if is_installed("mandoc") {
            printed("mandoc", &["-Tlint", "-Werror", path]);
        }
    }

    /// Checks that `--generate` excludes all other arguments, reports missing and unknown values and failed writes, and
    /// is in the help.
    fn check_usage(&self) {
        for (arguments, reported) in [
            (&["--generate", "man", "more"][..], "error: "),
            (&["--generate", "man", "--help-me"], "--help-me"),
            (&["--generate", "nonsense"], "completions-bash"),
            (&["--generate"], "completions-bash"),
        ] {
            let output = run(self.path, arguments);
            assert_eq!(output.status.code(), Some(2), "{} {arguments:?}", self.name);
            let errors = text(&output.stderr);
            assert!(errors.contains(reported), "{} {arguments:?}: {errors}", self.name);
            assert_eq!(text(&output.stdout), "", "{} {arguments:?}", self.name);
        }
        let help = printed(self.path, &["--help"]);
        assert!(help.contains("--generate <DOCUMENT>"), "{help}");
        // A full disk.
        if let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") {
            let mut command = Command::new(self.path);
            let output = command.args(["--generate", "man"]).stdin(Stdio::null()).stdout(full).output().unwrap();
            assert!(!output.status.success());
            assert!(text(&output.stderr).contains("cannot write to standard output"), "{}", text(&output.stderr));
        }
    }
}

//! Namespaces of the kernel, in which a program can change the network or mount file systems. The kernel removes them
//! with their last process.

use std::{
    env,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

/// Runs a tool of the system, and waits for its end.
///
/// # Errors
/// Returns the first line of the tool's error message if it fails. If the tool cannot be started, the error asks the
/// user to install it.
pub fn run_tool(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let command = || format!("{program} {}", arguments.join(" "));
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{}`, install it", command()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` failed: {}", command(), said.lines().next().unwrap_or_default().trim());
    Ok(())
}

/// Starts this program again in a namespace of its own, as root or in a user namespace, with the further option
/// `--isolated`. `kind` is an option of `unshare`: `--net` or `--mount`. Does not return on success. Returns the reason
/// for a failure.
#[must_use]
pub fn isolate(kind: &str) -> String {
    let forms: &[&[&str]] = &[&[kind], &["--user", "--map-root-user", kind]];
    let mut reason = String::new();
    for form in forms {
        match run_tool("unshare", &[form, &["true"][..]].concat()) {
            Ok(()) => {
                let Ok(program) = env::current_exe() else { return "this program has no path".to_owned() };
                let mut command = Command::new("unshare");
                command.args(*form).arg("--").arg(program).args(env::args_os().skip(1)).arg("--isolated");
                return format!("cannot run unshare: {}", command.exec());
            }
            Err(error) => reason = format!("{error:#}"),
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_tools_say_what_failed() {
        let said = format!("{:#}", run_tool("ls", &["/nonexistent"]).unwrap_err());
        assert!(said.starts_with("`ls /nonexistent` failed: "), "{said}");
        let said = format!("{:#}", run_tool("no-such-tool", &[]).unwrap_err());
        assert!(said.starts_with("cannot run `no-such-tool"), "{said}");
    }
}

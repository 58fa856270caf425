//! Fixture that runs `tshark` with generated dissectors.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    sync::LazyLock,
};

use rpcrdma_xdrgen::{Compiler, wireshark};
use tempfile::TempDir;

/// A folder with generated dissectors, in which `tshark` runs without personal settings.
pub(crate) struct Tshark {
    place: TempDir,
    scripts: Vec<String>,
}

/// Generates the dissector of a specification.
pub(crate) fn generate(specification: &str, protocol: &str) -> String {
    let compiled = Compiler::new().source("test.x", specification).no_client().compile();
    wireshark(&compiled.unwrap_or_else(|diagnostics| panic!("{diagnostics}")).spec, protocol)
}

/// Returns `true` if `tshark` runs Lua scripts. Newer versions run no scripts for the root user.
fn runs_scripts() -> bool {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("probe.lua");
    fs::write(&script, "print('the script runs')").unwrap();
    let mut tshark = Command::new("tshark");
    let tshark = tshark.args(["-G", "folders", "-X"]).arg(format!("lua_script:{}", script.display()));
    tshark.output().is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("the script runs"))
}

impl Tshark {
    /// Generates dissectors. Each specification comes with the name of its protocol.
    ///
    /// Prints a message and returns `None` if no `tshark` that runs scripts is installed.
    pub(crate) fn new(specifications: &[(&str, &str)]) -> Option<Self> {
        static RUNS_SCRIPTS: LazyLock<bool> = LazyLock::new(runs_scripts);
        if !*RUNS_SCRIPTS {
            // The test harness captures `eprintln!`, but not this.
            let _ = writeln!(std::io::stderr(), "SKIPPED, no tshark is installed that runs Lua scripts for this user");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        let mut scripts = Vec::new();
        for (protocol, specification) in specifications {
            let path = place.path().join(format!("{protocol}.lua"));
            fs::write(&path, generate(specification, protocol)).unwrap();
            scripts.push(format!("lua_script:{}", path.display()));
        }
        Some(Self { place, scripts })
    }

    /// Runs `tshark` and returns its output. Panics if a script failed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let scripts = self.scripts.iter().flat_map(|script| ["-X", script]);
        let mut command = Command::new("tshark");
        // `-G` has to come first.
        let command =
            command.args(arguments).args(scripts).env("HOME", self.place.path()).current_dir(self.place.path());
        let output = command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("Lua"), "{arguments:?}: {errors}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for failure in ["Lua Error:", "the dissector failed"] {
            assert!(!text.contains(failure), "{:?}", text.lines().find(|line| line.contains(failure)));
        }
        text
    }

    /// Writes a capture to a file, and returns the output of `tshark` for it.
    pub(crate) fn dissect(&self, capture: &[u8], arguments: &[&str]) -> String {
        fs::write(self.place.path().join("traffic.pcapng"), capture).unwrap();
        self.run(&[&["-n", "-r", "traffic.pcapng"][..], arguments].concat())
    }

    /// Returns the trees of the generated dissectors in the packets that contain one of `protocols`, without the trees
    /// of Wireshark's own dissectors.
    pub(crate) fn trees(&self, capture: &[u8], protocols: &[&str]) -> String {
        let text = self.dissect(capture, &["-O", &protocols.join(","), "-Y", &protocols.join(" or ")]);
        let mut out = String::new();
        let mut is_ours = false;
        for line in text.lines() {
            if !line.starts_with(' ') {
                is_ours = ["RPC-over-RDMA version 2", "ONC RPC", "FILES", "CONSTRUCTS"]
                    .iter()
                    .any(|name| line.starts_with(name));
            }
            if is_ours && !line.trim().is_empty() {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }

    /// Returns the values of fields in the packets that match a filter. Several values of a field are separated by
    /// commas.
    pub(crate) fn fields(&self, capture: &[u8], filter: &str, names: &[&str]) -> Vec<String> {
        let mut arguments = vec!["-Y", filter, "-T", "fields", "-E", "separator=|"];
        names.iter().for_each(|name| arguments.extend(["-e", name]));
        // Versions of `tshark` differ in how they print booleans.
        let text = self.dissect(capture, &arguments).replace("True", "1").replace("False", "0");
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the folder with the dissectors.
    pub(crate) fn place(&self) -> &std::path::Path {
        self.place.path()
    }
}

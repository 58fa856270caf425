//! Attacks on permissions: capabilities of the server, and directories that a caller must not search.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, ensure};
use rpcrdma::rpc::Credential;
use rpcrdma_specs::nfs3::{Lookup3args, Lookup3res, NfsFh3, Nfsstat3, nfs_v3::NfsV3Client};
use tokio::{process::Command, time::timeout};

use crate::{
    raw::{ATTACKER, PATIENCE},
    report::Findings,
    server::{NfsServer, prepare_export},
    trial::{Plan, Trial},
    victim::{self, Victim, entry, look_up, mount, own_credential},
};

const MAX_MEMORY: u64 = 256 << 20;
/// User and group ID of an unprivileged user.
const USER: u32 = 54_321;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Starts `nfs3d` as an unprivileged user with capabilities that override permissions. `nfs3d` must refuse to start.
pub(crate) async fn capabilities(plan: &Plan) -> anyhow::Result<Findings> {
    if !is_root() {
        return Ok(Findings::not_run("needs root, to give capabilities to another user"));
    }
    let is_installed = |folder: std::path::PathBuf| folder.join("setpriv").is_file();
    if !std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(is_installed)) {
        return Ok(Findings::not_run("needs the program setpriv"));
    }
    let (folder, root) = prepare_export()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    // The user may have no access to the directory of the programs.
    let program = folder.path().join("nfs3d");
    fs::copy(plan.programs.join("nfs3d"), &program).context("cannot copy nfs3d")?;
    let state = folder.path().join("state");
    fs::create_dir(&state)?;
    std::os::unix::fs::chown(&state, Some(USER), Some(USER))?;
    let mut findings = Findings::default();
    let mut refused = 0;
    let sets = ["+dac_override", "+dac_override,+setuid,+setgid", "+dac_read_search", "+fowner,+chown"];
    for set in sets {
        let said = start_with(set, &program, &root, &state).await?;
        match said {
            Some(said) if said.contains("permissions") && said.contains("CAP_") => refused += 1,
            Some(said) => findings.faults.push(format!("with {set}, the error does not name the capability: {said}")),
            None => findings.faults.push(format!("nfs3d starts with {set}")),
        }
    }
    // The counter-check: without capabilities it starts.
    if let Some(said) = start_with("-all", &program, &root, &state).await? {
        findings.faults.push(format!("nfs3d does not start without capabilities: {said}"));
    }
    findings.outcome = format!("{refused} of {} starts refused", sets.len());
    Ok(findings)
}

/// Starts `nfs3d` with capabilities. Returns its error, or `None` if it serves.
async fn start_with(set: &str, program: &Path, root: &Path, state: &Path) -> anyhow::Result<Option<String>> {
    let id = USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command.args([format!("--inh-caps={set}"), format!("--ambient-caps={set}")]);
    command.arg(program).arg("--root").arg(root).arg("--state").arg(state);
    command.args(["--listen", "tcp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0"]).kill_on_drop(true);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().context("cannot start setpriv")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, mut stderr) = (stdout.context("no output")?, stderr.context("no errors")?);
    let work = async {
        use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
        let first = BufReader::new(stdout).lines().next_line().await?;
        if first.is_some() {
            return Ok(None);
        }
        let mut said = String::new();
        stderr.read_to_string(&mut said).await?;
        anyhow::Ok(Some(said.trim().to_owned()))
    };
    let said = timeout(PATIENCE, work).await.context("nfs3d neither starts nor fails")?;
    let _ = child.kill().await;
    said
}

/// Looks up `..` in directories that the caller must not search. The server must refuse that. As a counter-check,
/// looks up `..` in a directory that the caller may search.
pub(crate) async fn closed_directory(plan: &Plan) -> anyhow::Result<Findings> {
    if !is_root() {
        return Ok(Findings::not_run("needs root, so that the server acts as its callers"));
    }
    let mut server = NfsServer::start(&plan.programs, MAX_MEMORY, &[]).await?;
    for (name, mode) in [("closed", 0o700), ("open", 0o755), ("listed", 0o744)] {
        fs::create_dir(server.root.join(name))?;
        fs::set_permissions(server.root.join(name), fs::Permissions::from_mode(mode))?;
    }
    let victim = Victim::of_nfs(&server, "tcp").await?;
    let mut trial = Trial::start(plan.form, &victim).await?;
    let root = mount(&server).await?;
    let own = NfsV3Client::new(victim::connect(ATTACKER, "tcp", server.tcp, &own_credential()).await?);
    let credential = Credential::sys("attacker", USER, USER, []);
    let caller = NfsV3Client::new(victim::connect(ATTACKER, "tcp", server.tcp, &credential).await?);
    let mut refused = 0;
    for (name, expected) in [("closed", Nfsstat3::Acces), ("listed", Nfsstat3::Acces), ("open", Nfsstat3::Ok)] {
        let dir = look_up(&own, &root, name).await?;
        let status = parent_of(&caller, &dir).await?;
        refused += usize::from(status == Nfsstat3::Acces);
        trial.expect(status == expected, || format!("LOOKUP .. of {name} returned {status:?}"));
    }
    ensure!(look_up(&own, &root, "closed").await.is_ok(), "the directory is gone");
    trial.measure(&victim).await;
    drop((own, caller));
    Ok(trial.finish(&mut server.process, &victim, format!("{refused} of 2 calls refused")).await)
}

/// Looks up `..` in a directory, and returns the status.
async fn parent_of(client: &NfsV3Client, dir: &NfsFh3) -> anyhow::Result<Nfsstat3> {
    Ok(match client.nfsproc3_lookup(&Lookup3args { what: entry(dir, "..") }).await? {
        Lookup3res::Ok(_) => Nfsstat3::Ok,
        Lookup3res::Default(status, _) => status,
    })
}

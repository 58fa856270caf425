//! A copy of the project in which faults are planted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use crate::plant::{SWITCH_CRATE, SWITCH_MANIFEST, SWITCH_SOURCE};

/// The folder of the switch's crate in the copy.
const SWITCH_FOLDER: &str = "tests/planted";

/// Copies the project's files to `copy`. The files in `changed` get the contents given there, and their packages depend
/// on the switch. Files whose contents do not change are not written, so cargo compiles only what differs. All other
/// files are removed from `copy`.
///
/// # Errors
///
/// Fails if a file cannot be read, written or removed, or if the manifest of a changed package has no `[dependencies]`.
pub fn write(root: &Path, copy: &Path, changed: &BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    let manifests: BTreeSet<PathBuf> = changed.keys().map(|file| manifest_of(root, file)).collect::<Result<_, _>>()?;
    let mut kept = BTreeSet::new();
    let mut put = |path: PathBuf, contents: &[u8]| {
        update(&copy.join(&path), contents).with_context(|| format!("failed to write {}", path.display()))?;
        kept.insert(path);
        anyhow::Ok(())
    };
    for path in files(root)? {
        if let Some(text) = changed.get(&path) {
            put(path, text.as_bytes())?;
            continue;
        }
        let contents = match fs::read(root.join(&path)) {
            Ok(contents) => contents,
            // Git knows a file that was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("failed to read {}", path.display())),
        };
        if manifests.contains(&path) {
            put(path.clone(), with_switch(&path, &String::from_utf8(contents)?)?.as_bytes())?;
        } else {
            put(path, &contents)?;
        }
    }
    let folder = Path::new(SWITCH_FOLDER);
    put(folder.join("Cargo.toml"), SWITCH_MANIFEST.as_bytes())?;
    put(folder.join("lib.rs"), SWITCH_SOURCE.as_bytes())?;
    remove_others(copy, Path::new(""), &kept)
}

/// Returns the files that git tracks, and the new ones that it does not ignore.
fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("failed to run git")?;
    ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout)?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// Returns the path of the manifest of the package that contains `file`. Both paths are relative to `root`.
///
/// # Errors
///
/// Fails if no folder below `root` that contains the file has a manifest.
pub fn manifest_of(root: &Path, file: &Path) -> anyhow::Result<PathBuf> {
    for folder in file.ancestors().skip(1) {
        let manifest = folder.join("Cargo.toml");
        if !folder.as_os_str().is_empty() && root.join(&manifest).is_file() {
            return Ok(manifest);
        }
    }
    bail!("{} belongs to no package", file.display())
}

/// Adds a dependency on the switch's crate to the text of a manifest. `path` is the path of the manifest in the copy.
fn with_switch(path: &Path, manifest: &str) -> anyhow::Result<String> {
    const HEADING: &str = "\n[dependencies]\n";
    let at =
        manifest.find(HEADING).with_context(|| format!("{} has no [dependencies]", path.display()))? + HEADING.len();
    let up = "../".repeat(path.components().count() - 1);
    let dependency = format!("{SWITCH_CRATE} = {{ path = \"{up}{SWITCH_FOLDER}\" }}\n");
    Ok([&manifest[..at], &dependency, &manifest[at..]].concat())
}

fn update(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|current| current == contents) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(path, contents)?)
}

/// Removes the files in `folder` that are not in `kept`. Both are relative to `copy`.
fn remove_others(copy: &Path, folder: &Path, kept: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(copy.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(copy, &path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(copy.join(path))?;
        }
    }
    Ok(())
}

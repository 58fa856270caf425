//! Areas: parts of the project that have their own mutation score, with their source files and test programs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

use super::cfg::is_compiled;
use crate::{copy::manifest_of, programs::TestTarget};

/// The areas in their order on the page, with their folders.
pub const AREAS: [(&str, &str); 6] = [
    ("codec", "runtime/xdr/src"),
    ("engine", "runtime/proto/src"),
    ("session", "runtime/src/session"),
    ("gss", "runtime/src/gss"),
    ("client", "runtime/src/client"),
    ("server", "runtime/src/server"),
];

/// Integration tests that are not used, because they load the machine or start programs.
const EXCLUDED_TESTS: [&str; 4] = ["net_busy_polling", "net_iwarp_busy", "net_kerberos", "net_stress"];

/// A part of the project that has its own mutation score.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Area {
    /// The name of one of [`AREAS`], or the folder of a package.
    pub name: String,
    /// Folder of the source files, relative to the root.
    pub folder: PathBuf,
    /// Manifest of the package, relative to the root.
    pub manifest: PathBuf,
}

impl Area {
    /// Returns the area with this name, or the area of the package in the folder with this name.
    ///
    /// # Errors
    ///
    /// Fails if there is no such area or package.
    pub fn named(root: &Path, name: &str) -> anyhow::Result<Self> {
        let own = AREAS.iter().find(|(known, _)| *known == name);
        let folder = own.map_or_else(|| Path::new(name).join("src"), |(_, folder)| PathBuf::from(folder));
        ensure!(
            root.join(&folder).is_dir(),
            "{name} is neither the folder of a package nor one of {}",
            AREAS.map(|(name, _)| name).join(", ")
        );
        let manifest = manifest_of(root, &folder)?;
        Ok(Self { name: name.to_owned(), folder, manifest })
    }

    /// Returns the source files of the area in a library with these features, without tests and generated code.
    ///
    /// # Errors
    ///
    /// Fails if a file is missing, or is not Rust.
    pub fn source_files(&self, root: &Path, features: &[&str]) -> anyhow::Result<BTreeSet<PathBuf>> {
        let source = self.manifest.with_file_name("src");
        let mut files = BTreeSet::new();
        follow(root, &source.join("lib.rs"), &source, features, &mut files)?;
        Ok(files.into_iter().filter(|file| file.starts_with(&self.folder)).collect())
    }
}

/// Adds a file and the files of its modules, recursively, to `files`. Skips files of generated code, and their modules.
/// `folder` is the folder of the modules.
fn follow(
    root: &Path,
    file: &Path,
    folder: &Path,
    features: &[&str],
    files: &mut BTreeSet<PathBuf>,
) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(file)).with_context(|| format!("failed to read {}", file.display()))?;
    let parsed = syn::parse_file(&text).with_context(|| format!("{} is not Rust", file.display()))?;
    if text.contains("@generated") {
        return Ok(());
    }
    files.insert(file.to_owned());
    for item in &parsed.items {
        let Item::Mod(module @ ItemMod { content: None, .. }) = item else { continue };
        if !is_compiled(&module.attrs, features) {
            continue;
        }
        let name = module.ident.to_string();
        let (path, inside) = match path_attribute(module) {
            Some(path) => {
                let path = file.with_file_name("").join(path);
                let inside = path.with_file_name("");
                (path, inside)
            }
            None => {
                let path = folder.join(format!("{name}.rs"));
                let path = if root.join(&path).is_file() { path } else { folder.join(&name).join("mod.rs") };
                (path, folder.join(&name))
            }
        };
        follow(root, &path, &inside, features, files)?;
    }
    Ok(())
}

fn path_attribute(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    test: Vec<ManifestTest>,
}

#[derive(Deserialize)]
struct ManifestTest {
    name: String,
    #[serde(default = "yes")]
    harness: bool,
}

fn yes() -> bool {
    true
}

/// Returns the programs that test the mutants of a package: its unit tests, and its integration tests except
/// `EXCLUDED_TESTS` and those without a test harness.
///
/// # Errors
///
/// Fails if the manifest or the folder of the integration tests cannot be read.
pub fn test_targets(root: &Path, manifest: &Path) -> anyhow::Result<BTreeSet<TestTarget>> {
    let parsed: Manifest = toml::from_str(&fs::read_to_string(root.join(manifest))?)?;
    let folder = root.join(manifest.with_file_name("tests"));
    let mut targets = BTreeSet::from([TestTarget { manifest: manifest.to_owned(), integration: None }]);
    let entries = if folder.is_dir() { fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()? } else { Vec::new() };
    for entry in entries {
        let path = entry.path();
        let is_program = path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file();
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_program) else { continue };
        let has_harness = parsed.test.iter().all(|test| test.name != name || test.harness);
        if has_harness && !EXCLUDED_TESTS.contains(&name) {
            targets.insert(TestTarget { manifest: manifest.to_owned(), integration: Some(name.to_owned()) });
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    #[test]
    fn areas_have_files_without_tests() {
        let files = |area| {
            let area = Area::named(&repository(), area).unwrap();
            let files = area.source_files(&repository(), &["tls"]).unwrap();
            files.into_iter().map(|file| file.to_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
        };
        let gss = files("gss");
        assert!(gss.contains("runtime/src/gss/mod.rs") && gss.contains("runtime/src/gss/window.rs"));
        // Tests, and code behind a feature.
        assert!(!gss.iter().any(|file| file.contains("tests") || file.contains("kerberos")), "{gss:?}");
        assert!(files("server").contains("runtime/src/server/duplicates/cache.rs"));
        assert!(files("runtime/iwarp").iter().all(|file| file.starts_with("runtime/iwarp/src/")));
        assert!(Area::named(&repository(), "nothing").is_err());
    }

    #[test]
    fn packages_have_test_programs() {
        let targets = test_targets(&repository(), Path::new("runtime/Cargo.toml")).unwrap();
        let has = |name: &str| targets.iter().any(|target| target.integration.as_deref() == Some(name));
        assert!(has("net_tower") && !has("net_kerberos") && !has("net_support"));
        let engine = test_targets(&repository(), Path::new("runtime/proto/Cargo.toml")).unwrap();
        let names: Vec<_> = engine.iter().map(|target| target.integration.as_deref()).collect();
        assert_eq!(names, [None, Some("engine"), Some("sim_contract")]);
    }
}

//! Compilation of the test programs with all mutants, in a copy of the project.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

use super::{
    mutate::Mutation,
    splice::{Spliced, splice},
};
use crate::{
    copy,
    programs::{self, Built, CompilerError, TestProgram, TestTarget},
};

/// Maximum number of rounds. Each round checks one package, or compiles all test programs.
const MAX_ROUNDS: usize = 16;

/// A mutation with its number and place.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The number that selects the mutant.
    pub number: u32,
    /// Name of the area that the mutant belongs to, as in [`Area::name`](super::areas::Area::name).
    pub area: String,
    /// Manifest of the package, relative to the root of the repository.
    pub manifest: PathBuf,
    /// The source file, relative to the root of the repository.
    pub file: PathBuf,
    /// The change of the code.
    pub mutation: Mutation,
}

/// Compiled test programs with mutants.
#[derive(Debug)]
pub struct Compiled {
    /// The programs, by test target.
    pub programs: BTreeMap<TestTarget, TestProgram>,
    /// Numbers of the mutants that do not compile.
    pub dropped: BTreeSet<u32>,
}

/// Compiles test programs with all mutants, in a copy of the project. Leaves out mutants that do not compile. `output`
/// is the target folder of cargo.
///
/// # Errors
///
/// Fails if the copy cannot be written, if it does not compile for other reasons, or if it still does not compile after
/// `MAX_ROUNDS` rounds.
pub fn compile(
    root: &Path,
    copy: &Path,
    output: &Path,
    mutants: &[Mutant],
    targets: &BTreeSet<TestTarget>,
) -> anyhow::Result<Compiled> {
    let known = copy.with_extension("dropped");
    // Types are wrong in a library more often than in its tests.
    let mut unchecked: Vec<_> =
        mutants.iter().map(|mutant| &mutant.manifest).collect::<BTreeSet<_>>().into_iter().collect();
    let mut dropped = read_dropped(&known, mutants);
    for _ in 0..MAX_ROUNDS {
        let files = spliced_files(root, mutants, &dropped)?;
        copy::write(root, copy, &files.iter().map(|(file, spliced)| (file.clone(), spliced.text.clone())).collect())?;
        let copy = copy.canonicalize()?;
        let errors = match unchecked.last() {
            Some(manifest) => programs::check(&copy, output, manifest)?,
            None => match programs::build(&copy, output, targets)? {
                Built::Programs(programs) => return Ok(Compiled { programs, dropped }),
                Built::Failed(errors) => errors,
            },
        };
        if errors.is_empty() {
            unchecked.pop();
            continue;
        }
        let culprits = culprits(&files, &errors);
        ensure!(
            !culprits.is_empty(),
            "the project does not compile, and no mutant is the cause:\n{}",
            errors.iter().map(|error| error.rendered.as_str()).collect::<Vec<_>>().join("\n")
        );
        println!("{} mutants do not compile", culprits.len());
        dropped.extend(culprits);
        write_dropped(&known, mutants, &dropped)?;
    }
    bail!("after {MAX_ROUNDS} rounds there are still mutants that do not compile")
}

/// Returns the mutants that did not compile last time, so that the first attempt succeeds if nothing has changed.
fn read_dropped(path: &Path, mutants: &[Mutant]) -> BTreeSet<u32> {
    let known = fs::read_to_string(path).unwrap_or_default();
    let known: BTreeSet<_> = known.lines().collect();
    mutants.iter().filter(|mutant| known.contains(name(mutant).as_str())).map(|mutant| mutant.number).collect()
}

fn write_dropped(path: &Path, mutants: &[Mutant], dropped: &BTreeSet<u32>) -> anyhow::Result<()> {
    let dropped = mutants.iter().filter(|mutant| dropped.contains(&mutant.number));
    let names: Vec<_> = dropped.map(name).collect();
    fs::write(path, names.join("\n")).with_context(|| format!("failed to write {}", path.display()))
}

/// Returns a name that consists of the place of a mutant and its change.
fn name(mutant: &Mutant) -> String {
    let Mutant { file, mutation, .. } = mutant;
    format!("{} {:?} {:?} {}", file.display(), mutation.range, mutation.form, mutation.change).replace('\n', " ")
}

fn spliced_files(
    root: &Path,
    mutants: &[Mutant],
    dropped: &BTreeSet<u32>,
) -> anyhow::Result<BTreeMap<PathBuf, Spliced>> {
    let mut by_file: BTreeMap<&PathBuf, Vec<(u32, &Mutation)>> = BTreeMap::new();
    for mutant in mutants.iter().filter(|mutant| !dropped.contains(&mutant.number)) {
        by_file.entry(&mutant.file).or_default().push((mutant.number, &mutant.mutation));
    }
    by_file
        .into_iter()
        .map(|(file, mutations)| {
            let text =
                fs::read_to_string(root.join(file)).with_context(|| format!("failed to read {}", file.display()))?;
            Ok((file.clone(), splice(&text, &mutations)))
        })
        .collect()
}

fn culprits(files: &BTreeMap<PathBuf, Spliced>, errors: &[CompilerError]) -> BTreeSet<u32> {
    let mut culprits = BTreeSet::new();
    for error in errors {
        for (file, spliced) in files {
            let places: Vec<_> =
                error.places.iter().filter(|(path, _)| path == file).map(|(_, range)| range.clone()).collect();
            if !places.is_empty() {
                culprits.extend(spliced.culprits(&places));
            }
        }
    }
    culprits
}

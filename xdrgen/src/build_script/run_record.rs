//! The record of a build-script run. The next run uses it to decide whether the output is up to date.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// The inputs and warnings of a run. The record file starts with a digest of the settings, the compiler, the input
/// files and the output. It then has one line for each input file, each absent file and each warning:
///
/// ```text
/// made 5f2c...        digest
/// file PATH
/// absent PATH
/// warning TEXT
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RunRecord {
    /// Files that were read.
    pub(super) files: Vec<PathBuf>,
    /// Paths of included files that do not exist, but would have been read.
    pub(super) absent: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl RunRecord {
    /// Loads the record at `path`. Returns `None` if there is no valid record, or if the `settings`, the compiler, a
    /// file or `output` has changed since the recorded run.
    pub(super) fn load(path: &Path, settings: &str, output: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        let made = lines.next()?.strip_prefix("made ")?;
        let mut record = Self::default();
        for line in lines {
            match line.split_once(' ')? {
                ("file", path) => record.files.push(path.into()),
                ("absent", path) => record.absent.push(path.into()),
                ("warning", text) => record.warnings.push(text.to_owned()),
                _ => return None,
            }
        }
        (record.digest(settings, output).ok()? == made).then_some(record)
    }

    /// Saves the record of a run that began at `start`.
    ///
    /// Fails if a file has changed since `start`, because the compiler may have read the previous contents. Also fails
    /// if a path is not valid UTF-8 or contains a line break, or if a file cannot be read or written.
    pub(super) fn save(&self, path: &Path, settings: &str, output: &Path, start: SystemTime) -> io::Result<()> {
        for file in &self.files {
            if fs::metadata(file)?.modified()? >= start {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
        }
        let mut text = format!("made {}\n", self.digest(settings, output)?);
        let files = self.files.iter().map(|path| ("file", path));
        for (what, path) in files.chain(self.absent.iter().map(|path| ("absent", path))) {
            // The format cannot represent a path that contains a line break or is not valid UTF-8.
            let name = path.to_str().filter(|name| !name.contains(['\n', '\r']));
            let name = name.ok_or(io::ErrorKind::InvalidInput)?;
            text.push_str(&format!("{what} {name}\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning {}\n", warning.replace(['\n', '\r'], " ")));
        }
        fs::write(path, text)
    }

    /// Returns the digest of the settings, the compiler, the input files, the existence of the absent files, and the
    /// output. The output is included because a user may have edited it.
    fn digest(&self, settings: &str, output: &Path) -> io::Result<String> {
        let mut hasher = DefaultHasher::new();
        (env!("CARGO_PKG_VERSION"), settings).hash(&mut hasher);
        // The version does not change while the compiler is under development. The executable, the build script, does.
        if let Ok(metadata) = env::current_exe().and_then(fs::metadata) {
            let built = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            (metadata.len(), built).hash(&mut hasher);
        }
        for path in &self.files {
            (path, fs::read(path)?).hash(&mut hasher);
        }
        for path in &self.absent {
            (path, path.exists()).hash(&mut hasher);
        }
        fs::read(output)?.hash(&mut hasher);
        Ok(format!("{:016x}", hasher.finish()))
    }
}

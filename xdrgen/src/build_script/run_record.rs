//! What a run of a build script leaves for the next: what the output was made from.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// What a run found out. As a file, a line for each:
///
/// ```text
/// made 5f2c...        digest of all that the output depends on, and of the output
/// file PATH
/// absent PATH
/// warning TEXT
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RunRecord {
    /// Files that were read.
    pub(super) files: Vec<PathBuf>,
    /// Files that would have been read, were they there.
    pub(super) absent: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl RunRecord {
    /// The note at `path`, if what was asked for then is `asked`, and neither the compiler, nor a file, nor `output` has
    /// changed since.
    pub(super) fn load(path: &Path, asked: &str, output: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        let made = lines.next()?.strip_prefix("made ")?;
        let mut note = Self::default();
        for line in lines {
            match line.split_once(' ')? {
                ("file", path) => note.files.push(path.into()),
                ("absent", path) => note.absent.push(path.into()),
                ("warning", text) => note.warnings.push(text.to_owned()),
                _ => return None,
            }
        }
        (note.digest(asked, output).ok()? == made).then_some(note)
    }

    /// Saves it for a run that began at `start`. A file that has changed since may not be what was compiled.
    pub(super) fn save(&self, path: &Path, asked: &str, output: &Path, start: SystemTime) -> io::Result<()> {
        for file in &self.files {
            if fs::metadata(file)?.modified()? >= start {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
        }
        let mut text = format!("made {}\n", self.digest(asked, output)?);
        let files = self.files.iter().map(|path| ("file", path));
        for (what, path) in files.chain(self.absent.iter().map(|path| ("absent", path))) {
            // A line's end in it would be read as another line, a name that is no text as another name.
            let name = path.to_str().filter(|name| !name.contains(['\n', '\r']));
            let name = name.ok_or(io::ErrorKind::InvalidInput)?;
            text.push_str(&format!("{what} {name}\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning {}\n", warning.replace(['\n', '\r'], " ")));
        }
        fs::write(path, text)
    }

    /// Of all that the output depends on, and of the output, which may have been edited.
    fn digest(&self, asked: &str, output: &Path) -> io::Result<String> {
        let mut hasher = DefaultHasher::new();
        (env!("CARGO_PKG_VERSION"), asked).hash(&mut hasher);
        // The compiler is part of the build script: a compiler under development keeps its version.
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

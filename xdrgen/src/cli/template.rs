//! `xdrgen new`: writes a package from the template in the folder `template`, which `cargo generate` also accepts.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::{
    args::New,
    error::{CliError, NO_FILE, WRONG_USAGE},
    output,
};

/// A file of the template, with its path in the package.
struct TemplateFile {
    path: &'static str,
    text: &'static str,
}

macro_rules! template {
    ($($path:literal $(as $source:literal)?,)*) => {
        [$(TemplateFile { path: $path, text: template!(@text $path $($source)?) },)*]
    };
    (@text $path:literal) => { include_str!(concat!("../../template/", $path)) };
    (@text $path:literal $source:literal) => { include_str!(concat!("../../template/", $source)) };
}

static FILES: [TemplateFile; 14] = template![
    // With the name `Cargo.toml`, cargo would leave the folder out of this package.
    "Cargo.toml" as "Cargo.toml.liquid",
    ".dockerignore",
    ".gitignore",
    "Dockerfile",
    "README.md",
    "build.rs",
    "protocol.x",
    "src/client.rs",
    "src/lib.rs",
    "src/main.rs",
    "src/metrics.rs",
    "src/serve.rs",
    "src/store.rs",
    "tests/service.rs",
];

pub(crate) fn run(new: &New) -> Result<(), CliError> {
    let wrong = |message| CliError { message: format!("error: {message}\n"), code: WRONG_USAGE };
    check_name(&new.name).map_err(wrong)?;
    let source = match &new.path {
        Some(checkout) => checkout_path(checkout).map_err(wrong)?,
        None => Source::Release,
    };
    let placeholders = [
        ("{{project-name}}", new.name.clone()),
        ("{{crate_name}}", crate_name(&new.name)),
        ("{{rpcrdma}}", source.of("runtime")),
        ("{{xdrgen}}", source.of("xdrgen")),
    ];
    let package = Path::new(&new.name);
    fs::create_dir(package).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CliError {
            message: format!("error: `{}` exists; choose another name or remove it\n", package.display()),
            code: WRONG_USAGE,
        },
        _ => cannot_create(package, &error),
    })?;
    for file in &FILES {
        let path = package.join(file.path);
        let folder = path.parent().unwrap_or(package);
        fs::create_dir_all(folder).map_err(|error| cannot_create(folder, &error))?;
        let fill = |text: String, (placeholder, value): &(&str, String)| text.replace(placeholder, value);
        output::write(Some(&path), &placeholders.iter().fold(file.text.to_owned(), fill))?;
    }
    output::write(None, &format!("created the package `{0}`: read {0}/README.md\n", new.name))
}

fn cannot_create(folder: &Path, error: &std::io::Error) -> CliError {
    CliError { message: format!("error: cannot create {}: {error}\n", folder.display()), code: NO_FILE }
}

/// Returns the name of the crate of `package` as it appears in Rust code.
fn crate_name(package: &str) -> String {
    package.replace('-', "_")
}

/// Checks that `name` is valid for a new package: its characters are allowed, it is neither a keyword nor reserved, and
/// no dependency of the package has it.
fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_allowed) {
        return Err(format!(
            "`{name}` is not the name of a package: use lower-case letters, digits, `-` and `_`, and begin with a letter"
        ));
    }
    let crate_name = crate_name(name);
    if syn::parse_str::<syn::Ident>(&crate_name).is_err() {
        return Err(format!("`{name}` is a keyword of Rust; choose another name"));
    }
    let is_reserved = matches!(name, "build" | "deps" | "examples" | "incremental")
        || matches!(&*crate_name, "alloc" | "core" | "proc_macro" | "std" | "test");
    if is_reserved {
        return Err(format!("cargo or Rust uses the name `{name}`; choose another name"));
    }
    let is_dependency = |line: &str| {
        let dependency = line.split_once(" = ").map_or("", |(name, _)| name);
        self::crate_name(dependency) == crate_name
    };
    if dependencies().any(is_dependency) {
        return Err(format!("the package depends on a crate with the name `{name}`; choose another name"));
    }
    Ok(())
}

/// Returns the lines of the template's manifest, starting with the line `[dependencies]`.
fn dependencies() -> impl Iterator<Item = &'static str> {
    let manifest = FILES.iter().find(|file| file.path == "Cargo.toml").map_or("", |file| file.text);
    manifest.lines().skip_while(|line| *line != "[dependencies]")
}

/// The source from which a new package takes the crates of this project.
enum Source {
    /// A registry. The crates have the version of this program.
    Release,
    /// A checkout, with its path from the folder of the package.
    Checkout(PathBuf),
}

impl Source {
    /// Returns the key and value that select the source of a crate in a dependency, for example `version = "1.0.0"`.
    /// `folder` is the folder of the crate within a checkout.
    fn of(&self, folder: &str) -> String {
        match self {
            Self::Release => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
            // Manifests have slashes on every system.
            Self::Checkout(path) => format!("path = {:?}", path.join(folder).display().to_string().replace('\\', "/")),
        }
    }
}

/// Returns the source for a checkout. A relative `checkout` starts at the current folder, in which the package is
/// created.
///
/// Fails if `checkout` is not a checkout of rpcrdma.
fn checkout_path(checkout: &Path) -> Result<Source, String> {
    if !checkout.join("runtime/Cargo.toml").is_file() || !checkout.join("xdrgen/Cargo.toml").is_file() {
        return Err(format!("`{}` is not a checkout of rpcrdma: it lacks runtime or xdrgen", checkout.display()));
    }
    // An absolute path replaces the dots.
    Ok(Source::Checkout(Path::new("..").join(checkout)))
}

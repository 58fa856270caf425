//! Generates the code that the tests compile.
//!
//! - `tests/golden.rs` compiles the code generated from the compiler's test constructs, and the compiler's golden
//!   files.
//! - `tests/debian.rs` compiles the code generated from specifications that Debian installs, each with its flags. The
//!   test reports specifications that are not installed.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use rpcrdma_xdrgen::{
    Compiler,
    emit::{Borrow, EmitOptions, emit},
};

/// The compiler's tests, in the neighbouring crate.
const COMPILER_TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../xdrgen/tests");

/// A specification with its Debian package and the flags that replace its C headers.
struct Installed {
    package: &'static str,
    path: &'static str,
    flags: fn(Compiler) -> Compiler,
}

/// Adds no flags.
fn plain(compiler: Compiler) -> Compiler {
    compiler
}

/// Adds `netobj`, a type of `<rpc/xdr.h>`.
fn netobj(compiler: Compiler) -> Compiler {
    let path = syn_path("super::Netobj");
    compiler.extern_type("netobj", &path)
}

/// Adds `netobj` and constants that the file defines only for C.
fn locks(compiler: Compiler) -> Compiler {
    netobj(compiler).define("LM_MAXSTRLEN", Some("1024")).define("MAXNAMELEN", Some("(LM_MAXSTRLEN + 1)"))
}

/// Adds `netobj`, and constants and types of Secure RPC.
fn keys(compiler: Compiler) -> Compiler {
    netobj(compiler).extern_type("des_block", &syn_path("super::DesBlock")).define("MAXNETNAMELEN", Some("255"))
}

/// Adds `netobj`, and the directory of the files that are included as `<rpcsvc/..>`.
fn nis(compiler: Compiler) -> Compiler {
    netobj(compiler).include_dir("/usr/include")
}

/// Adds the flags of [`nis`], and `nis.x`, whose types the file uses.
fn nis_callback(compiler: Compiler) -> Compiler {
    nis(compiler).file("/usr/include/rpcsvc/nis.x")
}

/// Adds number types of the C headers, and `netbuf`, a TLI address.
fn rpc_types(compiler: Compiler) -> Compiler {
    let compiler = compiler.extern_type("netbuf", &syn_path("super::Netbuf"));
    let numbers = ["rpcprog_t", "rpcvers_t", "rpcproc_t"].into_iter();
    numbers.fold(compiler, |compiler, name| compiler.define(name, Some("unsigned int")))
}

macro_rules! installed {
    ($($package:literal: $($path:literal $flags:ident),*;)*) => {
        &[$($(Installed { package: $package, path: $path, flags: $flags }),*),*]
    };
}

const INSTALLED: &[Installed] = installed! {
    "rpcsvc-proto":
        "rpcsvc/bootparam_prot.x" plain, "rpcsvc/key_prot.x" keys, "rpcsvc/klm_prot.x" netobj, "rpcsvc/mount.x" plain,
        "rpcsvc/nfs_prot.x" plain, "rpcsvc/nlm_prot.x" locks, "rpcsvc/rex.x" plain, "rpcsvc/rquota.x" plain,
        "rpcsvc/rstat.x" plain, "rpcsvc/rusers.x" plain, "rpcsvc/sm_inter.x" plain, "rpcsvc/spray.x" plain;
    "libtirpc-dev":
        "tirpc/rpcsvc/crypt.x" plain, "tirpc/rpc/rpcb_prot.x" rpc_types;
    "libnsl-dev":
        "rpcsvc/nis.x" nis, "rpcsvc/nis_callback.x" nis_callback, "rpcsvc/nis_object.x" nis, "rpcsvc/yp.x" plain,
        "rpcsvc/yppasswd.x" plain;
};

fn syn_path(path: &str) -> syn::Path {
    syn::parse_str(path).expect("invalid path")
}

/// Returns the files in a directory of [`COMPILER_TESTS`] with this extension, sorted, with their stems.
fn compiler_tests(directory: &str, extension: &str) -> Vec<(String, PathBuf)> {
    let directory = Path::new(COMPILER_TESTS).join(directory);
    println!("cargo::rerun-if-changed={}", directory.display());
    // In a package of this crate the compiler's tests are absent, and the tests that need them are left out.
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("unreadable directory entry").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    let mut found: Vec<(String, PathBuf)> =
        paths.map(|path| (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path)).collect();
    found.sort();
    found
}

/// Returns the text of a module that includes a file.
fn module(name: &str, path: &Path) -> String {
    format!("/// Generated.\npub mod {name} {{ include!({path:?}); }}\n")
}

/// Writes modules for the compiler's constructs and for its golden files.
fn constructs(out: &Path) {
    let mut modules = String::new();
    for (name, path) in compiler_tests("constructs", "x") {
        // One of the files has comments that are not UTF-8.
        let text = String::from_utf8_lossy(&fs::read(&path).expect("cannot read the construct")).into_owned();
        let mut compiler = Compiler::new().source(name.as_str(), text);
        if name == "prefixes" {
            compiler = compiler.strip_enum_prefix();
        }
        let compiled = compiler.compile();
        let compiled = compiled.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        let mut options = EmitOptions::default();
        if name == "prefixes" {
            options.borrowed = Borrow::All;
        }
        if name == "opaque_unions" {
            options.borrowed = Borrow::All;
            options.open = vec!["open".to_owned()];
        }
        if name == "borrowed" {
            options.borrowed = Borrow::All;
            options.open = vec!["operation".to_owned()];
        }
        let code = emit(&compiled.spec, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        let generated = out.join(format!("construct_{name}.rs"));
        fs::write(&generated, code).expect("cannot write to OUT_DIR");
        modules.push_str(&module(&name, &generated));
    }
    fs::write(out.join("constructs.rs"), modules).expect("cannot write to OUT_DIR");
    let golden: String = compiler_tests("golden", "rs").iter().map(|(name, path)| module(name, path)).collect();
    fs::write(out.join("golden.rs"), golden).expect("cannot write to OUT_DIR");
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("OUT_DIR is not set"));
    constructs(&out);
    debian(&out);
}

/// Writes modules for the installed specifications, and the lists of failed and missing ones.
fn debian(out: &Path) {
    let (mut modules, mut failed, mut missing) = (String::new(), String::new(), String::new());
    for Installed { package, path, flags } in INSTALLED {
        let file = Path::new("/usr/include").join(path);
        println!("cargo::rerun-if-changed={}", file.display());
        if !file.exists() {
            let _ = write!(missing, "({path:?}, {package:?}),");
            continue;
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // No binding limits the replies.
        let compiled = flags(Compiler::new().file(&file).default_reply_max(64 << 10)).compile();
        let code = compiled.map_err(|diagnostics| diagnostics.to_string()).and_then(|compiled| {
            let code = emit(&compiled.spec, &EmitOptions::default()).map_err(|error| error.to_string())?;
            let warnings = compiled.warnings.to_string();
            if warnings.is_empty() { Ok(code) } else { Err(warnings) }
        });
        match code {
            Ok(code) => {
                let generated = out.join(format!("{name}.rs"));
                fs::write(&generated, code).expect("cannot write to OUT_DIR");
                modules.push_str(&module(&name, &generated));
            }
            Err(said) => {
                let _ = write!(failed, "({path:?}, {said:?}),");
            }
        }
    }
    let lists = format!(
        "const FAILED: &[(&str, &str)] = &[{failed}];\nconst MISSING: &[(&str, &str)] = &[{missing}];\n{modules}"
    );
    fs::write(out.join("debian.rs"), lists).expect("cannot write to OUT_DIR");
}

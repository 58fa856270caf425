//! Tests that the C codecs of rpcgen and libtirpc encode the sample values to the same bytes as the generated codecs.
//!
//! The tests compare nothing if `rpcgen`, a C compiler or libtirpc is missing (Debian: rpcsvc-proto, gcc,
//! libtirpc-dev).

mod samples;

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use rpcrdma::xdr::{XdrDecode, XdrEncode};

/// The bytes of each sample of a protocol, as C encodes them.
struct Samples(BTreeMap<String, Vec<u8>>);

impl Samples {
    /// Compiles and runs `samples.c` for a protocol, and returns the samples that it prints. If `wants_rpcgen` is
    /// `true`, includes the output of rpcgen for `specs/xdr/PROTOCOL.x`. Returns `None` if a tool is missing.
    fn of(protocol: &str, wants_rpcgen: bool) -> Option<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rpcgen-{protocol}"));
        fs::create_dir_all(&folder).unwrap();
        let mut compile = Command::new("cc");
        compile.current_dir(&folder).args(["-std=gnu11", "-I.", "-I/usr/include/tirpc", "-o", "samples"]);
        compile.arg(format!("-D{}", protocol.to_uppercase())).arg(manifest.join("tests/rpcgen/samples.c"));
        if wants_rpcgen {
            // rpcgen derives the name of the generated header from its input.
            let file = format!("{protocol}.x");
            let text = fs::read_to_string(manifest.join("xdr").join(&file)).unwrap();
            // libtirpc declares a type of this name.
            fs::write(folder.join(&file), text.replace("authsys_parms", "nfs_authsys_parms")).unwrap();
            for (flag, output) in [("-h", format!("{protocol}.h")), ("-c", format!("{protocol}_xdr.c"))] {
                let mut rpcgen = Command::new("rpcgen");
                fs::write(folder.join(&output), run(rpcgen.current_dir(&folder).args([flag, &file]))?).unwrap();
            }
            // rpcgen declares unused variables.
            compile.args([format!("-DPROTOCOL=\"{protocol}.h\""), format!("{protocol}_xdr.c"), "-w".to_owned()]);
        }
        if !Path::new("/usr/include/tirpc/rpc/rpc.h").exists() {
            eprintln!("libtirpc is not installed, {protocol} is not compared");
            return None;
        }
        run(compile.arg("-ltirpc"))?;
        let output = String::from_utf8(run(&mut Command::new(folder.join("samples")))?).unwrap();
        let sample = |line: &str| {
            let (name, hex) = line.split_once(' ').expect("no space between name and bytes");
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (name.to_owned(), (0..hex.len()).step_by(2).map(byte).collect())
        };
        Some(Self(output.lines().map(sample).collect()))
    }

    /// Checks that `value` encodes to the bytes that the C program printed under `name`, and decodes from them.
    fn check<T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug>(&mut self, name: &str, value: &T) {
        let bytes = self.0.remove(name).unwrap_or_else(|| panic!("{name} is not in samples.c"));
        samples::bytes_both_ways(value, &bytes);
    }

    /// Checks that every sample was compared.
    fn finish(self) {
        assert!(self.0.is_empty(), "not compared: {:?}", self.0.keys());
    }
}

/// Runs a command and returns its standard output. Returns `None` if the command cannot be started, for example because
/// it is not installed. Panics if the command fails.
fn run(command: &mut Command) -> Option<Vec<u8>> {
    match command.output() {
        Ok(output) if output.status.success() => Some(output.stdout),
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("{}: {error}: nothing is compared", command.get_program().display());
            None
        }
    }
}

#[test]
fn nfs3() {
    let Some(mut c) = Samples::of("nfs3", true) else { return };
    c.check("getattr_reply", &samples::getattr_reply());
    c.check("read_call", &samples::read_call());
    c.check("read_reply", &samples::read_reply());
    c.check("write_call", &samples::write_call());
    c.check("write_reply", &samples::write_reply());
    c.check("readdirplus_call", &samples::readdirplus_call());
    c.check("readdirplus_reply", &samples::readdirplus_reply());
    c.finish();
}

#[test]
fn nfs4() {
    let Some(mut c) = Samples::of("nfs4", true) else { return };
    c.check("compound_call", &samples::compound_call());
    c.check("compound_reply", &samples::compound_reply());
    c.finish();
}

#[test]
fn mount3() {
    let Some(mut c) = Samples::of("mount3", true) else { return };
    c.check("mnt_call", &samples::mnt_call());
    c.check("mnt_reply", &samples::mnt_reply());
    c.check("exports", &samples::exports());
    c.finish();
}

#[test]
fn rpcbind() {
    let Some(mut c) = Samples::of("rpcbind", false) else { return };
    c.check("getport_call", &samples::getport_call());
    c.check("portmap", &samples::portmap());
    c.check("getaddr_call", &samples::getaddr_call());
    c.check("getaddr_reply", &samples::getaddr_reply());
    c.finish();
}

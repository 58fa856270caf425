//! The C codecs that `rpcgen` generates, in a child process that decodes and re-encodes values.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rpcrdma_xdrgen::ir::{ItemKind, Spec};

/// Replaces `<rpc/rpc.h>` in rpcgen's output, because that header declares names that the specifications declare too.
const HEADERS: &str = "#include <rpc/types.h>\n#include <rpc/xdr.h>\ntypedef struct CLIENT CLIENT;\nstruct svc_req;\n\
    typedef struct SVCXPRT SVCXPRT;\n#define netbuf own_netbuf\n#define xdr_netbuf xdr_own_netbuf\n\
    #define netobj own_netobj\n#define xdr_netobj xdr_own_netobj\n\
    typedef quad_t longlong_t;\ntypedef u_quad_t u_longlong_t;";

pub(crate) struct Transcoder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Transcoder {
    /// Generates and compiles the C codecs of the specification at `path`, and starts a process that runs them. Returns
    /// `None` if `rpcgen`, a C compiler or libtirpc is not installed (Debian: rpcsvc-proto, gcc, libtirpc-dev).
    pub(crate) fn new(path: &Path, spec: &Spec) -> Option<Self> {
        let protocol = path.file_stem().and_then(|stem| stem.to_str()).unwrap();
        if !Path::new("/usr/include/tirpc/rpc/xdr.h").exists() {
            eprintln!("libtirpc is not installed, {protocol} is not compared with C");
            return None;
        }
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("random-{protocol}"));
        fs::create_dir_all(&folder).unwrap();
        // rpcgen derives the name of the generated header from its input.
        let file = format!("{protocol}.x");
        fs::copy(path, folder.join(&file)).unwrap();
        let mut header = String::new();
        for (flag, output) in [("-h", format!("{protocol}.h")), ("-c", format!("{protocol}_xdr.c"))] {
            let text = run(Command::new("rpcgen").current_dir(&folder).args([flag, &file]))?;
            let text = String::from_utf8(text).unwrap().replace("#include <rpc/rpc.h>", HEADERS);
            fs::write(folder.join(output), &text).unwrap();
            header = if flag == "-h" { text } else { header };
        }
        let is_type = |kind: &ItemKind| !matches!(kind, ItemKind::Const(_) | ItemKind::Extern(_));
        // The preprocessor has replaced macros that stand for types.
        let is_in_c = |name: &str| header.contains(&format!(" xdr_{name} ("));
        let types = spec.items.iter().filter(|item| is_type(&item.kind) && is_in_c(&item.name.text));
        let types = types.map(|item| format!("TYPE({})\n", item.name.text)).collect::<String>();
        fs::write(folder.join("types.h"), types).unwrap();
        let mut compile = Command::new("cc");
        compile.current_dir(&folder).args([
            "-std=gnu11",
            "-O1",
            "-w",
            "-I.",
            "-I/usr/include/tirpc",
            "-o",
            "transcode",
        ]);
        compile.args([format!("-DPROTOCOL=\"{protocol}.h\""), "-DTYPES=\"types.h\"".to_owned()]);
        compile.arg(manifest.join("tests/random/transcode.c")).arg(format!("{protocol}_xdr.c")).arg("-ltirpc");
        run(&mut compile)?;
        let mut child = Command::new(folder.join("transcode"));
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Self { child, input, output: BufReader::new(output) })
    }

    /// Decodes and re-encodes `bytes` in C as a value of the type `name`. Returns the encoding or the error that C
    /// reports.
    pub(crate) fn transcode(&mut self, name: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.input, "{name} .{hex}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let byte = |at: usize| u8::from_str_radix(line.get(at..at + 2)?, 16).ok();
        let back: Option<Vec<u8>> = (0..line.len()).step_by(2).map(byte).collect();
        back.ok_or_else(|| line.to_owned())
    }
}

impl Drop for Transcoder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the standard output of a command, or `None` if the command cannot be started, for example because the
/// program is not installed. Panics if the command fails.
fn run(command: &mut Command) -> Option<Vec<u8>> {
    match command.output() {
        Ok(output) if output.status.success() => Some(output.stdout),
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("{}: {error}: not compared with C", command.get_program().display());
            None
        }
    }
}

//! Runs fastxdr on `messages.x`. If libtirpc and rpcgen are installed, also generates and compiles a C codec of NFS
//! version 3.

use std::{env, error::Error, fs, path::Path, process::Command};

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    println!("cargo::rerun-if-changed=messages.x");
    println!("cargo::rerun-if-changed=c");
    let spec = "../../specs/xdr/nfs3.x";
    println!("cargo::rerun-if-changed={spec}");

    let code = fastxdr::Generator::default().generate(fs::read_to_string("messages.x")?).map_err(|e| e.to_string())?;
    // Use the name that the crate has here.
    let code = code.replace("use bytes::", "use bytes05::");
    fs::write(out.join("fastxdr.rs"), code)?;

    if !Path::new("/usr/include/tirpc/rpc/rpc.h").exists() {
        println!("cargo::warning=libtirpc is not installed (Debian: libtirpc-dev), no figures for C");
        return Ok(());
    }
    // libtirpc declares a type of this name.
    fs::write(out.join("nfs3.x"), fs::read_to_string(spec)?.replace("authsys_parms", "nfs_authsys_parms"))?;
    for (flag, file) in [("-h", "nfs3.h"), ("-c", "nfs3_xdr.c")] {
        match Command::new("rpcgen").current_dir(out).args([flag, "nfs3.x"]).output() {
            Ok(output) if output.status.success() => fs::write(out.join(file), output.stdout)?,
            Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).into()),
            Err(error) => {
                println!("cargo::warning=rpcgen (Debian: rpcsvc-proto): {error}, no figures for C");
                return Ok(());
            }
        }
    }
    cc::Build::new()
        .files([out.join("nfs3_xdr.c"), "c/peer.c".into()])
        .include(out)
        .include("/usr/include/tirpc")
        .opt_level(3)
        .warnings(false)
        .flag("-w")
        .try_compile("nfs3_peer")?;
    println!("cargo::rustc-link-lib=tirpc");
    println!("cargo::rustc-cfg=libtirpc");
    Ok(())
}

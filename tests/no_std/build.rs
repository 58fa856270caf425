//! Generates `probe.rs` in `OUT_DIR`.

fn main() -> Result<(), rpcrdma_xdrgen::BuildError> {
    let mut options = rpcrdma_xdrgen::emit::EmitOptions::default().types_only();
    options.borrowed = rpcrdma_xdrgen::emit::Borrow::All;
    rpcrdma_xdrgen::Build::new().options(options).file("probe.x").run()?;
    Ok(())
}

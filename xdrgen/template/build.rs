fn main() -> Result<(), rpcrdma_xdrgen::BuildError> {
    rpcrdma_xdrgen::Build::new()
        .file("protocol.x")
        .strip_enum_prefix()
        .run()?;
    Ok(())
}

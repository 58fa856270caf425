//! Decodes the seeds of the fuzz target `decode`, whole and truncated, without a fuzzer. Inputs that failed once become
//! seeds. The runtime, its iWARP crate and `tests/hostile` have such tests for their own targets.
#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::LazyLock};

use rpcrdma_xdrgen::{
    Compiler,
    decode::{Decoder, MessageFormat, is_capture},
};

/// Decodes an input as the fuzz target `decode` does, but with the specification of blobstore, and not as hexadecimal
/// text.
fn decode(input: &[u8]) {
    static DECODER: LazyLock<Decoder> = LazyLock::new(|| {
        let specification = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/xdr/blobstore.x");
        Decoder::new(Compiler::new().file(specification).compile().unwrap().spec)
    });
    let formats =
        [MessageFormat::Rpc, MessageFormat::Tcp, MessageFormat::Rdma, MessageFormat::Iwarp, MessageFormat::Roce];
    let decoded = match input {
        capture if is_capture(capture) => DECODER.capture(capture),
        [format, message @ ..] => {
            let format = formats.get(usize::from(*format)).copied().unwrap_or_default();
            DECODER.messages([message.to_vec()], format)
        }
        [] => return,
    };
    for message in decoded.iter() {
        assert!(message.to_text(None, 16).ends_with('\n') && message.to_json().starts_with('{'));
    }
}

#[test]
fn seeds() {
    let mut count = 0;
    for seed in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/decode")).unwrap() {
        let path = seed.unwrap().path();
        eprintln!("{}", path.display());
        let bytes = std::fs::read(path).unwrap();
        decode(&bytes);
        // Truncated seeds, too.
        (0..bytes.len()).step_by(7).for_each(|len| decode(&bytes[..len]));
        count += 1;
    }
    assert!(count > 0, "the target has no seeds");
}

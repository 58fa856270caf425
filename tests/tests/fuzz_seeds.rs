//! Runs the fuzz targets on their seeds, without a fuzzer. Inputs that failed once become seeds.
#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::LazyLock};

use rpcrdma::fuzzing;
use rpcrdma_xdrgen::{
    Compiler,
    decode::{Decoder, MessageFormat, is_capture},
};

/// The target `decode`, with another specification.
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
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 10] = [
        ("decode", decode),
        ("engine", fuzzing::engine),
        ("gss_client", fuzzing::gss_client),
        ("gss_server", fuzzing::gss_server),
        ("mpa_frames", fuzzing::mpa_frames),
        ("mpa_stream", fuzzing::mpa_stream),
        ("payload_stream", fuzzing::payload_stream),
        ("private_data", fuzzing::private_data),
        ("rpc_message", fuzzing::rpc_message),
        ("rpcrdma_header", fuzzing::rpcrdma_header),
    ];
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (target, run) in targets {
        let mut count = 0;
        for seed in std::fs::read_dir(seeds.join(target)).unwrap() {
            let path = seed.unwrap().path();
            eprintln!("{}", path.display());
            let bytes = std::fs::read(path).unwrap();
            run(&bytes);
            // Truncated seeds, too.
            (0..bytes.len()).step_by(7).for_each(|len| run(&bytes[..len]));
            count += 1;
        }
        assert!(count > 0, "{target} has no seeds");
    }
}

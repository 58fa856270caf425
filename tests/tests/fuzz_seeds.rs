//! Runs the fuzz targets on their seeds, without a fuzzer. Inputs that failed once become seeds.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use rpcrdma::fuzzing;

#[test]
fn seeds() {
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 7] = [
        ("engine", fuzzing::engine),
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

//! Benchmarks of the compiler with NFS 4.2 and its binding: `cargo bench -p rpcrdma-tests --bench compiler`.
//!
//! `check` measures the compilation of the text to the checked specification. `emit` measures the generation of
//! formatted Rust from the specification, on as many threads as there are processors. `BENCHMARKS.md` has figures for
//! the whole command, which takes about the sum of both times.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_main};
use rpcrdma_specs::{binding, source};
use rpcrdma_xdrgen::{
    Compiled, Compiler,
    emit::{EmitOptions, emit},
};

fn compile() -> Compiled {
    let compiler = Compiler::new().source("nfs4.x", source::NFS4).ulb_source("nfs4.ulb", binding::NFS4);
    compiler.compile().expect("nfs4.x does not compile")
}

fn nfs4(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compiler/nfs4");
    group.sample_size(20);
    group.throughput(Throughput::Bytes(source::NFS4.len() as u64));
    group.bench_function("check", |b| b.iter(|| black_box(compile())));
    let compiled = compile();
    group.bench_function("emit", |b| b.iter(|| black_box(emit(&compiled.spec, &EmitOptions::default()))));
    group.finish();
}

// Criterion's macro makes a public function.
#[allow(missing_docs)]
mod group {
    use super::nfs4;
    criterion::criterion_group!(compiler, nfs4);
}
use group::compiler;
criterion_main!(compiler);

//! Tests across the crates of rpcrdma.
//!
//! | location | contents |
//! | --- | --- |
//! | `tests/capture` | blobstore's traffic, as `tshark` (also with generated dissectors) and `xdrgen decode` show it |
//! | `conformance` | each MUST of the specifications, with its code, its tests and a fault that the tests notice |
//! | `tests/bad_peer` | peers that violate the protocol, against complete servers and clients |
//! | `tests/zero_copy` | eligible payload is not copied |
//! | `tests/trace_context` | the spans of client and server, exported by OpenTelemetry, belong to one trace |
//! | `tests/golden`, `tests/generated` | generated code compiles without warnings and follows RFC 4506 |
//! | `tests/unused` | generated code gives no warnings in a program that uses little of it |
//! | `tests/debian`, `build.rs` | the specifications that Debian installs, with their flags: generated and compiled |
//! | `no_std` | types and codecs in a crate without the standard library |
//! | `tests/front_doors`, `tests/derives` | the macros; derives and types of the user's choice |
//! | `ui` | errors of the macros |
//! | `tests/layers` | the modules of each crate import downwards, without cycles |
//! | `tests/architecture` | the names in ARCHITECTURE.md exist |
//! | `tests/documents` | README, guide and other documents: links, and blocks of XDR, ULB and TOML |
//! | `tests/specifications` | the generated types of `specs`, byte by byte |
//! | `fuzz`, `tests/fuzz_seeds` | fuzz targets of all decoders of received data, and of the compiler |
//! | `benches` | codec; compiler; transport compared with plain TCP; version 2 compared with version 1 |
//! | `bindings` | the C declarations of the feature `verbs-dlopen`, compared with headers and built in a clean Debian |
//! | `foreign` | nfs-ganesha, libnfs, libtirpc and nfs-rs over TCP, with TLS and Kerberos |
//! | `vm` | Linux's NFS client and server, `siw` and `rxe` in a guest |
//! | `tests/determinism`, `simulation` | conditions under which runs repeat; random scenarios in virtual time |
//! | `tests/pairs` | each pair of features has a test, or needs none: `PAIRS.md` |
//! | `trials`, `attacks`, `outages`, `soak` | child processes under attacks, outages and disturbances |
//! | `hostile` | fuzz targets that play a hostile peer against a whole client or server |
//! | `peer` | a conformance peer for RPC-over-RDMA and iWARP |
//! | `peers` | the codec compared with the codecs of other projects |
//! | `counts` | instructions of calls, compared with a budget |
//! | `api`, `examples` | the public API of each crate |

/// The documents with Rust code, compiled and run as doc tests. `tests/documents.rs` checks that each such document is
/// here or, like the guide's page on tests, in `runtime/src/lib.rs`. Code that needs the features `gss` and `tls` is
/// compiled by the doc tests of `rpcrdma-examples`, and code that needs `etcd` and `kubernetes` by the doc tests of
/// `rpcrdma-discover`.
#[cfg(doctest)]
mod documents {
    macro_rules! documents {
        ($($name:ident: $path:literal,)*) => {
            $(
                #[doc = include_str!(concat!("../../", $path))]
                pub struct $name;
            )*
        };
    }

    documents! {
        Readme: "README.md",
        Runtime: "runtime/README.md",
        Xdrgen: "xdrgen/README.md",
        Index: "examples/guide/src/index.md",
        Protocol: "examples/guide/src/protocol.md",
        Annotations: "examples/guide/src/annotations.md",
        Ulb: "examples/guide/src/ulb.md",
        Generating: "examples/guide/src/generating.md",
        Serving: "examples/guide/src/serving.md",
        Calling: "examples/guide/src/calling.md",
        ExactlyOnce: "examples/guide/src/exactly-once.md",
        Landing: "examples/guide/src/landing.md",
        Callbacks: "examples/guide/src/callbacks.md",
        Middleware: "examples/guide/src/middleware.md",
        Several: "examples/guide/src/several.md",
        Discovery: "examples/guide/src/discovery.md",
        Version2: "examples/guide/src/version2.md",
        Extensions: "examples/guide/src/extensions.md",
        Security: "examples/guide/src/security.md",
        Tls: "examples/guide/src/tls.md",
        Kerberos: "examples/guide/src/kerberos.md",
        Callers: "examples/guide/src/callers.md",
        Limits: "examples/guide/src/limits.md",
        Devices: "examples/guide/src/devices.md",
        Guest: "examples/guide/src/guest.md",
        Providers: "examples/guide/src/providers.md",
        Tuning: "examples/guide/src/tuning.md",
        Promises: "examples/guide/src/promises.md",
        Health: "examples/guide/src/health.md",
        Observability: "examples/guide/src/observability.md",
        Shell: "examples/guide/src/shell.md",
        Rpcgen: "examples/guide/src/rpcgen.md",
        Tonic: "examples/guide/src/tonic.md",
    }
}

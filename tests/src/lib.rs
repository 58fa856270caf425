//! Tests across the crates of rpcrdma.
//!
//! | location | contents |
//! | --- | --- |
//! | `tests/capture` | loopback traffic of blobstore, dissected by `tshark`, field by field |
//! | `tests/conformance`, `conformance` | each MUST of the specifications with its code and its test: `CONFORMANCE.md` |
//! | `tests/bad_peer` | peers that violate the protocol, against complete servers and clients |
//! | `tests/zero_copy` | eligible payload is not copied |
//! | `tests/golden`, `tests/generated` | generated code compiles in a user's crate and follows RFC 4506 |
//! | `tests/debian`, `build.rs` | the specifications that Debian installs, with their flags: generated and compiled |
//! | `no_std` | types and codecs in a crate without the standard library |
//! | `tests/front_doors`, `tests/ui` | the macros, and their errors |
//! | `tests/specifications` | the generated types of `specs`, byte by byte |
//! | `fuzz`, `tests/fuzz_seeds` | fuzz targets of all decoders of received data, and of the compiler |
//! | `benches` | codec; compiler; transport compared with plain TCP; version 2 compared with version 1 |
//! | `vm` | Linux's NFS client and server, `siw` and `rxe` in a guest |

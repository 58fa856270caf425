//! The XDR compiler of `rpcrdma`. Compiles annotated XDR to Rust types, codecs with direct data placement, and RPC
//! stubs.
//!
//! The input is XDR (RFC 4506) with the RPC program language (RFC 5531 §12), annotations for the upper-layer binding
//! (RFC 8166 §6), and the dialects of other XDR compilers. There are three ways to use the compiler: the command
//! `xdrgen`, the build-script API [`Build`], and the library API [`Compiler`], which the macros of `rpcrdma-macros`
//! call.
//!
//! Each stage has its own module. `ARCHITECTURE.md` lists them in layers, which a test checks.
//!
//! | stage | module | input | output |
//! | --- | --- | --- | --- |
//! | preprocess | `preprocess` | text | text without the parts that conditions exclude; constants; included files |
//! | scan | `scan` | text | separate definitions and comments, with bounded nesting |
//! | parse | `parse`, grammars in `parse/*.pest` | definitions | `ast` |
//! | classify macros | `macro_kinds` | `ast` of all files | `ast` in which each macro is a constant or a type |
//! | resolve | `resolve` | `ast` | [`ir`]: names, constants, lists, recursion |
//! | bind | `ulb` | annotations, `.ulb` files | DDP-eligible items, checks, maximum reply sizes |
//! | emit | [`mod@emit`] | [`ir`] | Rust |
//!
//! All stages share one `lexer`, which agrees with the grammars. `derive` starts from Rust types instead, for the
//! macros.
//!
//! # Features
//!
//! Without features, the crate is the compiler: what build scripts and macros need.
//!
//! | feature | adds |
//! | --- | --- |
//! | `tools` | `fmt` and `strip`, which work on the text alone; `extract`, which reads the texts of specifications; `explain` and `table`, which document the [`ir`]; `wireshark`, which generates a dissector from it |
//! | `decode` | `decode`, which decodes messages and captures with the [`ir`], and encodes arguments in JSON |
//! | `cli` (default) | the command `xdrgen`; enables `tools` and `decode` |
//!
//! [`diag`] reports errors. A run reports as many errors as possible, each with a code that `ERRORS.md` explains. No
//! input makes the compiler panic, hang or overflow its stack; `tests/front_robust.rs` tests this.
//!
//! # Annotations
//!
//! An annotation precedes the item that it applies to. `xdrgen strip` removes all annotations. It also writes out the
//! procedures that a version takes over from another version (`version V2 : V1`).
//!
//! | annotation | applies to | meaning |
//! | --- | --- | --- |
//! | `@ddp` | a field, arm, typedef, argument, or procedure (for its result) | eligible for direct data placement |
//! | `@ddp(max = EXPR)` | a field, arm, typedef, argument, or procedure (for its result) | eligible, with at most `EXPR` bytes of contents when it is part of a result |
//! | `@max(EXPR)` | an array, linked list, opaque item or string that is not eligible | at most `EXPR` elements or bytes when it is part of a result |
//! | `@reply_max(EXPR)` | a procedure | maximum size of the part of the result that stays in the message, in bytes |
//! | `@port(N)` | a program | the program's port on RDMA |
//! | `@idempotent` | a procedure | executing the call twice has the same effect as executing it once |
//! | `@limit(chunks = N)` | a procedure, version or program | maximum number of eligible items in each direction, default [`DEFAULT_LIMIT`]; servers accept this many chunks |
//!
//! `EXPR` is computed from the call's arguments. `count` is the field `count` of the only argument, or the argument
//! `count`. If there are several arguments, `name.count` is a field of the argument `name`. `args.count` means the same
//! as `count`; use it if a constant is also named `count`. The name of an opaque item or a string stands for its length
//! in bytes: `@ddp(max = data)`. `len(names)` is the number of elements of an array. `max_len(entry)` is the maximum
//! length of the encoding of a type. Expressions also contain numbers (`64K`), constants, `+ - * /`, `min`, `max` and
//! parentheses.
//!
//! A `.ulb` file makes the same statements for a specification that should not be modified:
//!
//! ```text
//! ddp get_ok.data max = count;                   // type, then fields or arms
//! ddp STORE_V1.LAST: get_ok.data max = 64K;      // for one of the procedures that return it
//! ddp STORE_V1.PUT.args.data;                    // within an argument; .result likewise
//! max values.all = len(names);                   // elements of an array, or bytes
//! reply_max STORE_V1.LIST = 12 + count * max_len(entry);
//! port STORE = 20100;
//! idempotent STORE_V1.GET, STORE_V1.LIST;
//! limit STORE_V1.GET chunks = 1;
//! ```
//!
//! # Lists and trees
//!
//! A struct whose last field points to the same struct is the node of a linked list (RFC 4506 §4.19). The pointer can
//! be written as `node *next`, with a `typedef node *list`, or as the equivalent union. Such a list becomes a `Vec` of
//! nodes without the pointer field. The memory limit of the decoder bounds its length. Any other type that
//! contains itself becomes a tree, with a `Box` at each level. This includes a struct with two such pointers, or with
//! one that is not the last field. A decoder accepts 100 levels (`rpcrdma::xdr::DecodeLimits`), and an encoder refuses
//! to write more.
//!
//! # Conversions of generated types
//!
//! | XDR | conversions |
//! | --- | --- |
//! | every type | `to_bytes`, `from_bytes` (traits `XdrEncode` and `XdrDecode` of `rpcrdma::xdr`) |
//! | `enum` | to `i32` (`From`), from `i32` (`TryFrom`); `Display` writes the XDR name; `VARIANTS` lists all variants |
//! | `union switch (bool)` with one void arm | from and to `Option`; `into_option`, `as_option` |
//! | `union switch (status)` with a default arm, in which success (the value 0) is the only case with data | from and to `Result`; `into_result` |
//! | `union switch (status)` in which success is the only case, and the default arm has data | from and to `Result<T, (Status, Data)>`; `into_result` drops the data of a failure |
//! | `typedef string`, `typedef opaque` | from and to the inner type, from `&str` for strings |
//!
//! The status of a union that converts to a `Result` implements `core::error::Error`. A client writes
//! `client.lookup(&args).await?.into_result()?`, and a handler returns `Ok(result.into())`.
//! [`Compiler::strip_enum_prefix`] shortens the names of variants: `NFS3ERR_NOENT` becomes `Nfsstat3::Noent`.
//!
//! # Dialects
//!
//! The compiler accepts the extensions of other XDR compilers. [`Compiler::strict`] and `--strict` reject them, and
//! report the section of RFC 4506 or RFC 5531 that they violate.
//!
//! | dialect | example |
//! | --- | --- |
//! | lines for the C compiler | `%#include <rpc/rpc.h>`; `%#define N 20` declares `N` if nothing else does |
//! | preprocessor lines for constants, types, files and conditions | `#define N 3`, `#define T unsigned int`, `#include "types.x"` ([`Compiler::include_dir`]), `#if A > 2 && !defined(B)` ([`Compiler::define`]) |
//! | line comments | `// comment` |
//! | C types | `unsigned`, `char` (`i8` in Rust), `short` (`i16`), `long` (32 bits), `long long`, `u_int`, `uint32_t`, `quad_t`, `struct node *next` |
//! | strings without a maximum | `string name` |
//! | typedefs with the new name first | `typedef number unsigned int`, `typedef new old` |
//! | namespaces, which the compiler ignores | `namespace a::b { ... }` |
//! | constants | `const uint32 A = 1`, `const S = "text"`, `const B = (A + 1) << 4`, `'c'`, `1'000'000`, `0X1F`, `-010`, enumerators without a value or with bit 31 set |
//! | lengths | an enumerator, or a constant that is declared later: `opaque x[N]; const N = 3` |
//! | names | `_reserved`, `program`, `version`; one name for a constant, a type and a program, or for an arm and the discriminant |
//! | enumerators with the same name in two enumerations, and scopes | `color::RED`, `::RED`; in a `case`, `RED` is enough |
//! | types of Sun's headers | `netobj`, `des_block` |
//! | types and constants of other files in the same directory | `foo x;`, where only `types.x` declares `foo`; with a warning |
//! | pragmas of the Linux kernel, which are ignored with two exceptions | `pragma header nfs4;`, `public`, `big_endian`, `exclude` |
//! | hints of eligibility for direct data placement | `zcopaque data<>` (xdrzcc), `pragma pages read_ok data;` and `skip` (Linux) |
//! | unions | `union u switch (unsigned hyper kind) { ... }`, `opaque_union u switch (int kind) { ... }`, a default arm alone |
//! | procedures | `void P()`, `int P(string name<9>, int count) = LAST`; the names of procedures as constants; version 0 |
//! | punctuation | a repeated `;`, a `,` after the last enumerator |
//!
//! An arm of an `opaque_union` (xdrzcc) is the contents of a variable-length opaque item, so the length of the arm in
//! bytes precedes it. The length of a void arm is 0. An arm that is itself a variable-length opaque item has only its
//! own length. The decoder checks that the arm has exactly this length. Items in such an arm cannot be eligible for
//! direct data placement. In other positions, `opaque_union` is a name.
//!
//! A hint has the effect of `@ddp` if the resulting binding is valid. Otherwise it has no effect.
//!
//! To use types of another file, compile that file as well, include it, or declare them with
//! [`Compiler::extern_type`].
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]
// docs.rs shows the feature that each item requires.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod ast;
mod build_script;
mod c_lines;
mod compiler;
mod const_expr;
mod declared;
#[cfg(feature = "decode")]
pub mod decode;
pub mod derive;
pub mod diag;
mod did_you_mean;
mod elsewhere;
pub mod emit;
#[cfg(feature = "tools")]
mod explain;
#[cfg(feature = "tools")]
pub mod extract;
#[cfg(feature = "tools")]
pub mod fmt;
pub mod ir;
mod lexer;
mod load;
mod macro_kinds;
mod parse;
mod prefix;
mod preprocess;
#[cfg(feature = "tools")]
mod report;
mod resolve;
mod scan;
pub mod source;
#[cfg(feature = "tools")]
mod strip;
mod ulb;
mod uses;
#[cfg(feature = "tools")]
mod wireshark;
mod zero_copy;

pub use build_script::{Build, BuildError};
pub use compiler::{Compiled, Compiler};
#[cfg(feature = "tools")]
pub use explain::explain;
#[cfg(feature = "tools")]
pub use report::table;
#[cfg(feature = "tools")]
pub use strip::strip;
pub use ulb::{DEFAULT_ITEM_MAX, DEFAULT_LIMIT, DEFAULT_REPLY_MAX};
#[cfg(feature = "tools")]
pub use wireshark::wireshark;

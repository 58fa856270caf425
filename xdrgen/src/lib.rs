//! The XDR compiler of `rpcrdma`: annotated XDR in, Rust types, codecs that place data directly, and RPC stubs out.
//!
//! It takes XDR (RFC 4506) with the program language of ONC RPC (RFC 5531 §12), annotations for the upper-layer binding
//! (RFC 8166 §6), and the dialects in public use. It is a command, `xdrgen`; a library for build scripts, [`Build`];
//! and what the macros of `rpcrdma-macros` call, [`Compiler`].
//!
//! One module for each stage. `tests/layers.rs` lists all modules in their order and checks that none refers to a later one.
//!
//! | stage | module | from | to |
//! | --- | --- | --- | --- |
//! | preprocess | `preprocess` | text | text without what conditions leave out; constants; included files |
//! | scan | `scan` | text | definitions apart, comments, nesting bounded |
//! | parse | `parse`, its grammars `parse/*.pest` | definitions | [`ast`] |
//! | settle | `macro_kinds` | [`ast`] of all files | the same, macros being constants or types |
//! | resolve | `resolve` | [`ast`] | [`ir`]: names, constants, lists, recursion |
//! | bind | `ulb` | annotations, `.ulb` files | eligible items, checks, maximum replies |
//! | emit | [`mod@emit`] | [`ir`] | Rust |
//!
//! [`mod@fmt`] and [`strip`] work on the text alone. All of them read it with one `lexer`, which agrees with the grammars.
//!
//! What is wrong is said by [`diag`], many errors per run, each with a code that `ERRORS.md` explains. No input makes
//! the compiler panic, hang or overflow its stack: `tests/front_robust.rs`.
//!
//! # Annotations
//!
//! Each stands before what it marks. `xdrgen strip` takes them away.
//!
//! | annotation | before | says |
//! | --- | --- | --- |
//! | `@ddp` | a field, arm, typedef, argument, or procedure (for its result) | eligible for direct data placement |
//! | `@ddp(max = EXPR)` | the same | and, as a result, at most so many octets of contents |
//! | `@reply_max(EXPR)` | a procedure | most octets of the result that stay in the message |
//! | `@port(N)` | a program | its port on RDMA |
//! | `@idempotent` | a procedure | twice is as good as once |
//! | `@limit(chunks = N)` | a procedure, version or program | most eligible items each way, else [`DEFAULT_LIMIT`]; servers accept as many |
//!
//! `EXPR` is computed from the call's arguments. `count` is the field `count` of the only argument, or the argument `count`;
//! of several arguments, `name.count` is a field of the argument `name`. `args.count` is the same, and is needed where a
//! constant is named `count`. The name of an opaque item or a string stands for its length in bytes: `@ddp(max = data)`.
//! `len(names)` is the number of elements of an array. Numbers (`64K`), constants, `+ - * /`, `min`, `max` and parentheses
//! complete the language.
//!
//! A `.ulb` file says the same of a specification that is to stay as it is:
//!
//! ```text
//! ddp get_ok.data max = count;                   // type, then fields or arms
//! ddp STORE_V1.LAST: get_ok.data max = 64K;      // for one of the procedures that return it
//! ddp STORE_V1.PUT.args.data;                    // within an argument; .result likewise
//! reply_max STORE_V1.LIST = 12 + count * 312;
//! port STORE = 20100;
//! idempotent STORE_V1.GET, STORE_V1.LIST;
//! limit STORE_V1.GET chunks = 1;
//! ```
//!
//! # Lists and trees
//!
//! A struct whose last field points to the next of its kind is the node of a list (RFC 4506 §4.19), be the pointer written
//! `node *next`, by a `typedef node *list`, or as the union of which that is short: a `Vec` of nodes without that field, as
//! long as memory allows. Any other type that holds itself is a tree, a level at a time in a `Box`, and a decoder takes 100
//! levels (`rpcrdma::xdr::Limits`): so is a struct with two such pointers, or with one that is not last.
//!
//! # Conversions of generated types
//!
//! | XDR | conversions |
//! | --- | --- |
//! | every type | `to_bytes`, `from_bytes` (traits `XdrEncode` and `XdrDecode` of `rpcrdma::xdr`) |
//! | `enum` | `From` it `for i32`, `TryFrom<i32>`; `Display` writes the XDR name; `VARIANTS` lists all variants |
//! | `union switch (bool)` with one void arm | from and to `Option`; `into_option`, `as_option` |
//! | `union switch (status)` in which success, the value 0, is the only case with data, and a default arm | from and to `Result`; `into_result` |
//! | such a union whose default arm holds data | from and to `Result<T, (Status, Data)>`; `into_result` drops the data of a failure |
//! | `typedef string`, `typedef opaque` | from and to the type within, from `&str` for strings |
//!
//! The status of a union that converts to a `Result` is an error (`core::error::Error`): a client writes
//! `client.lookup(&args).await?.into_result()?`, a handler returns `Ok(result.into())`. [`Compiler::strip_enum_prefix`] shortens the
//! names of variants: `Nfsstat3::Noent` for `NFS3ERR_NOENT`.
//!
//! # Dialects
//!
//! What other compilers take is accepted in silence; [`Compiler::strict`] and `--strict` refuse it, with the section of
//! RFC 4506 or RFC 5531 that says otherwise.
//!
//! | dialect | example |
//! | --- | --- |
//! | lines for C | `%#include <rpc/rpc.h>` |
//! | constants, types, files, conditions | `#define N 3`, `#define T unsigned int`, `#include "types.x"` ([`Compiler::include_dir`]), `#if A > 2 && !defined(B)` ([`Compiler::define`]) |
//! | comments to the line's end | `// so` |
//! | C's types | `unsigned`, `char`, `short`, `long`, `long long`, `u_int`, `uint32_t`, `quad_t`, `struct node *next` |
//! | strings without a maximum | `string name` |
//! | typedefs of every order | `typedef struct { int x; } point`, `typedef number unsigned int`, `typedef new old` |
//! | namespaces, which are looked through | `namespace a::b { ... }` |
//! | constants | `const uint32 A = 1`, `const S = "text"`, `const B = (A + 1) << 4`, `'c'`, `1'000'000`, enumerators without a value or with the 32nd bit |
//! | enumerators of the same name in two enumerations, and their scope | `color::RED`, `::RED` |
//! | unions | `union u switch (unsigned hyper kind) { ... }` |
//! | procedures | `void P()`, `int P(string name<9>, int count) = LAST`; their names as constants |
//! | punctuation | `;` once more, a `,` after the last enumerator |
//!
//! Types of other files are given with those files, or by [`Compiler::extern_type`].
#![forbid(unsafe_code)]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod ast;
mod build_script;
mod compiler;
mod const_expr;
pub mod derive;
pub mod diag;
mod did_you_mean;
pub mod emit;
#[cfg(feature = "cli")]
mod explain;
pub mod extract;
pub mod fmt;
pub mod ir;
mod lexer;
mod load;
mod macro_kinds;
mod parse;
mod prefix;
mod preprocess;
#[cfg(feature = "cli")]
mod report;
mod resolve;
mod scan;
pub mod source;
mod strip;
mod ulb;

pub use build_script::{Build, BuildError};
pub use compiler::{Compiled, Compiler};
#[cfg(feature = "cli")]
pub use explain::explain;
#[cfg(feature = "cli")]
pub use report::table;
pub use strip::strip;
pub use ulb::DEFAULT_LIMIT;

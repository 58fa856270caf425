//! Macros of `rpcrdma`, which exports them: the front doors to the XDR compiler from within Rust.
//!
//! Each hands its tokens to the compiler's library and gives back what the compiler generates.
#![forbid(unsafe_code)]

mod include;
mod inline;
mod options;
mod output;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Compiles an XDR file into types, codecs and stubs, in place.
///
/// ```
/// mod nfs3 {
///     rpcrdma::include_xdr!("../specs/xdr/nfs3.x", ulb = "../specs/xdr/nfs3.ulb", derive(PartialOrd), server = false);
/// }
/// assert_eq!(nfs3::nfs_v3::PORT, 20049);
/// ```
///
/// Paths are relative to the folder of the crate's `Cargo.toml`. The file is watched: a change of it rebuilds.
/// It goes at the level of a module, which then holds a type for each of the specification's and a module for each
/// version of a program.
///
/// Options, in any order after the file: `ulb = "FILE"`, an upper-layer binding beside the specification;
/// `borrowed`, a second form of types that hold opaque items or strings, named with `Ref`, in which those are views of the
/// message: for all types, or with `borrowed(TYPE, ..)` for some and what they are made of; `open(UNION, ..)`, unions with a
/// variant `Unknown` for numbers that select none of their arms, with which decoding ends; `strip_enum_prefix`, variants without
/// the prefix that the enumerators of an enumeration share, as `Ftype3::Reg` for `NF3REG`, or with `strip_enum_prefix(ENUM, ..)`
/// for some enumerations;
/// `derive(TRAIT, ..)`, traits for every type, and `derive(type = TRAIT, ..)`, for one, by its name in XDR; `extern NAME =
/// PATH`, a type of your own in place of the one that XDR calls so, with the codec traits; `default_reply_max = BYTES`, the
/// most that a reply has for which nothing tells; `client = BOOL` and `server = BOOL`, whether stubs are generated, which
/// they are by default (without a client, a reply needs no maximum); `types_only`, neither: types, codecs and what is known of procedures, which do without the standard library;
/// `crate = PATH`, the runtime under another name.
#[proc_macro]
pub fn include_xdr(input: TokenStream) -> TokenStream {
    include::expand(input)
}

/// Compiles XDR that is written here.
///
/// ```
/// mod plane {
///     rpcrdma::xdr! {
///         #![derive(PartialOrd)]
///
///         /* A point in the plane. */
///         struct point { int x; int y; };
///     }
/// }
/// assert!(plane::Point { x: 1, y: 2 } < plane::Point { x: 1, y: 3 });
/// ```
///
/// The language is that of XDR files, annotations included. The options of [`include_xdr!`] are inner attributes at
/// the head: `#![ulb = "FILE"]`, `#![derive(..)]`, `#![extern NAME = PATH]`, `#![types_only]`. Errors point to the place in the text.
#[proc_macro]
pub fn xdr(input: TokenStream) -> TokenStream {
    inline::expand(input)
}

/// Derives `XdrType` and `XdrEncode` for a type written in Rust.
///
/// A struct is its fields, one after another. An enum without data is an enumeration, and gets `From` it `for i32`.
/// An enum with data is a discriminated union: each variant names its `#[xdr(case = ..)]`, and one may be the
/// `#[xdr(default)]`, whose first field is the discriminant. `#[xdr(discriminant = TYPE)]` on the enum tells the
/// discriminant's type: `i32`, which it is otherwise, `u32`, `bool` or an enumeration.
///
/// Fields: `Bytes`, `Vec<u8>`, `XdrString`, `String`, `Vec<T>` have a count; `#[xdr(max = N)]` bounds it and
/// `#[xdr(len = N)]` fixes it, so that none is sent. `[u8; N]` is opaque, `[T; N]` an array, `Option<T>` optional data.
/// `#[xdr(list)]` makes a linked list of a `Vec<T>`. `#[xdr(ddp)]` marks an item as eligible for direct data
/// placement: `Bytes` and `XdrString` are handed over by reference. `#[xdr(string)]` and `#[xdr(opaque)]` tell what an
/// alias of `XdrString` or `Bytes` is. `#[xdr(recursive)]` on a field whose type holds this type again in a way that
/// its name does not show bounds how deep it is read.
#[proc_macro_derive(XdrEncode, attributes(xdr))]
pub fn derive_xdr_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    rpcrdma_xdrgen::derive::encode(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `XdrDecode` for a type written in Rust, with the attributes of the derive of `XdrEncode`, which has to be
/// there too: it derives `XdrType`. An enumeration gets `TryFrom<i32>`.
#[proc_macro_derive(XdrDecode, attributes(xdr))]
pub fn derive_xdr_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    rpcrdma_xdrgen::derive::decode(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a program of a trait: what a version of a program in an XDR file becomes, without the file.
///
/// ```
/// use bytes::Bytes;
/// use rpcrdma::{XdrDecode, XdrEncode, server::{Context, Failure}};
///
/// #[derive(Debug, Clone, XdrEncode, XdrDecode)]
/// pub struct GetArgs {
///     offset: u64,
///     count: u32,
/// }
///
/// #[derive(Debug, Clone, XdrEncode, XdrDecode)]
/// pub struct GetRes {
///     #[xdr(ddp)]
///     data: Bytes,
/// }
///
/// #[rpcrdma::service(program = 0x2000_0ABC, version = 1, name = "BLOBSTORE_V1", port = 20100)]
/// pub trait Blobstore {
///     #[procedure(1)]
///     #[idempotent]
///     #[reply_max(chunks = [u64::from(args.count)])]
///     async fn get(&self, cx: &Context, args: GetArgs) -> Result<GetRes, Failure>;
/// }
/// assert_eq!(blobstore::PORT, 20100);
/// ```
///
/// The trait is what a server implements. Beside it there are `BlobstoreClient`, `BlobstoreServer`, and a module
/// `blobstore` with the numbers and a marker type for each procedure. A result that has no maximum by its type needs
/// `#[reply_max(inline = N)]`, and one that holds eligible items `#[reply_max(chunks = [N, ..])]`: `u64` expressions
/// over the arguments (RFC 8166 §6.2). There are as many chunks as eligible items, 0 for one that does not come; or fewer, and
/// `inline` has room for those that have none.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    rpcrdma_xdrgen::derive::service(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

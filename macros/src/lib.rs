//! Procedural macros that compile XDR within a Rust source file. The `rpcrdma` crate re-exports them.
//!
//! Each macro passes its tokens to the `rpcrdma-xdrgen` library and returns the generated code.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

mod include;
mod inline;
mod options;
mod output;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Compiles an XDR file and expands to the generated types, codecs and stubs.
///
/// ```
/// mod nfs3 {
///     rpcrdma::include_xdr!("../specs/xdr/nfs3.x", ulb = "../specs/xdr/nfs3.ulb", derive(PartialOrd), server = false);
/// }
/// assert_eq!(nfs3::nfs_v3::PORT, 20049);
/// ```
///
/// Paths are relative to the folder of the crate's `Cargo.toml`. A change of the file, of a file that it includes or of
/// a binding triggers a rebuild. Invoke the macro at module level: the module then contains a type for each type of the
/// specification, and a module for each version of a program.
///
/// These options may follow the file name, in any order:
///
/// - `ulb = "FILE"`: an Upper-Layer Binding (RFC 8166 section 6) for the specification.
/// - `borrowed`: generates a second form, named with the suffix `Ref`, of each type that contains opaque data or
///   strings. Its fields borrow from the received message. `borrowed(TYPE, ..)` restricts this to the named types and
///   the types that they contain.
/// - `open(UNION, ..)`: adds a variant `Unknown` to the unions, for discriminants that match no arm. Decoding stops
///   after such a discriminant.
/// - `strip_enum_prefix`: removes the prefix that the enumerators of an enumeration share from the names of its
///   variants, as in `Ftype3::Reg` for `NF3REG`. `strip_enum_prefix(ENUM, ..)` restricts this to the named
///   enumerations.
/// - `derive(TRAIT, ..)`: derives traits for every type. `derive(type = TRAIT, ..)` does so for one type, by its XDR
///   name.
/// - `extern NAME = PATH`: uses your own type at `PATH` for the XDR type `NAME`. It must implement the codec traits.
/// - `default_reply_max = BYTES`: the maximum size of each reply, in bytes, for which neither the types nor the binding
///   state a maximum.
/// - `client = BOOL`, `server = BOOL`: `false` generates no client or no server. Both default to `true`. Without a
///   client, replies need no maximum size.
/// - `types_only`: generates no stubs, only types, codecs and procedure metadata. The result does not need the standard
///   library.
/// - `crate = PATH`: the path of the runtime, if it is not `rpcrdma`.
#[proc_macro]
pub fn include_xdr(input: TokenStream) -> TokenStream {
    include::expand(input)
}

/// Compiles XDR text that is written inside the macro.
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
/// The macro accepts the language of XDR files, including annotations. The options of [`include_xdr!`] are inner
/// attributes at the start, for example `#![ulb = "FILE"]`, `#![derive(..)]`, `#![extern NAME = PATH]` or
/// `#![types_only]`. Errors point to their position in the text.
#[proc_macro]
pub fn xdr(input: TokenStream) -> TokenStream {
    inline::expand(input)
}

/// Derives `XdrType` and `XdrEncode` for a Rust type.
///
/// A struct is encoded as its fields, in the order of their declaration. An enum without data becomes an enumeration.
/// The macro then also implements `From<ENUM> for i32`.
///
/// An enum with data becomes a discriminated union. Each variant has a `#[xdr(case = ..)]`. One variant may have
/// `#[xdr(default)]` instead. The first field of this variant is the discriminant. `#[xdr(discriminant = TYPE)]` on the
/// enum sets the type of the discriminant: `i32` (the default), `u32`, `bool` or an enumeration.
///
/// `#[xdr(opaque_union)]` on the enum makes each arm the contents of a variable-length opaque item, so the length of
/// the arm in bytes precedes it. An arm that is a `Bytes` or `Vec<u8>` has only its own length. Each arm has at most
/// one field, and contains no eligible items.
///
/// `#[xdr(crate = PATH)]` on the type sets the path of the runtime, if it is not `rpcrdma`.
///
/// # Fields
///
/// - `Bytes`, `Vec<u8>`, `XdrString`, `String` and `Vec<T>` are encoded with a count. `#[xdr(max = N)]` limits the
///   count.
/// - `#[xdr(len = N)]` fixes the count of a `Bytes`, or of a `Vec<T>` other than `Vec<u8>`. The count is then not
///   encoded.
/// - `[u8; N]` is fixed-length opaque data, `[T; N]` an array, and `Option<T>` optional data.
/// - `#[xdr(list)]` encodes a `Vec<T>` as a linked list.
/// - `#[xdr(ddp)]` marks an item as eligible for direct data placement. `Bytes` and `XdrString` are passed by
///   reference.
/// - `#[xdr(string)]` marks a field whose type is an alias of `XdrString`. `#[xdr(opaque)]` marks an alias of `Bytes`.
/// - `#[xdr(recursive)]` limits the decoding depth of a field whose type contains this type without naming it.
#[proc_macro_derive(XdrEncode, attributes(xdr))]
pub fn derive_xdr_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    rpcrdma_xdrgen::derive::encode(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `XdrDecode` for a Rust type.
///
/// The attributes are the same as for `XdrEncode`. A type must derive `XdrEncode` as well, because that macro
/// implements `XdrType`. An enumeration also gets `TryFrom<i32>`.
#[proc_macro_derive(XdrDecode, attributes(xdr))]
pub fn derive_xdr_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    rpcrdma_xdrgen::derive::decode(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Turns a trait into a version of a program, like a `version` in an XDR file.
///
/// ```
/// use bytes::Bytes;
/// use rpcrdma::{XdrDecode, XdrEncode, server::{Context, HandlerError}};
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
///     async fn get(&self, cx: &Context, args: GetArgs) -> Result<GetRes, HandlerError>;
/// }
/// assert_eq!(blobstore::PORT, 20100);
/// ```
///
/// A server implements the trait. For this trait, the macro also generates `BlobstoreClient` and `BlobstoreServer`. The
/// generated module `blobstore` contains the program's numbers and a marker type for each procedure.
///
/// A result whose type has no maximum size needs `#[reply_max(inline = N)]`. A result with eligible items needs
/// `#[reply_max(chunks = [N, ..])]` (RFC 8166 section 6.2). Both are `u64` expressions over the arguments, in bytes.
/// Give one chunk for each eligible item, and 0 for an item that is absent. With fewer chunks, `inline` must have room
/// for the remaining items.
///
/// If the number of eligible items depends on the arguments, write `#[reply_max(computed)]`. The procedure then has one
/// argument, which implements `rpcrdma::service::BoundsReply`.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    rpcrdma_xdrgen::derive::service(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

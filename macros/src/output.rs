//! What both macros do with the compiler's answer.

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream};
use quote::quote;
use rpcrdma_xdrgen::{Compiled, emit::emit_tokens};

use crate::options::Options;

/// The generated code, and what makes the build watch the files it came from.
pub(crate) fn expand(compiled: &Compiled, options: &Options) -> TokenStream {
    let code = emit_tokens(&compiled.spec, &options.emit());
    let watched = compiled.files.iter().filter_map(|path| {
        let path = path.canonicalize().ok()?;
        let path = path.to_str()?.to_owned();
        Some(quote!(
            const _: &[u8] = ::core::include_bytes!(#path);
        ))
    });
    // A protocol has parts that one side does not use, and goes where its names need not be reachable.
    match syn::parse2::<syn::File>(code) {
        Ok(file) => {
            let items = file.items;
            quote!(#(#[allow(dead_code, unreachable_pub)] #items)* #(#watched)*)
        }
        Err(error) => {
            let message = format!("the generated code is not Rust, which is a fault of rpcrdma-xdrgen: {error}");
            syn::Error::new(Span::call_site(), message).into_compile_error()
        }
    }
}

/// `path`, which is relative to the folder of the crate's manifest.
pub(crate) fn resolve(path: &str) -> PathBuf {
    let path = Path::new(path);
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(dir) => Path::new(&dir).join(path),
        None => path.to_owned(),
    }
}

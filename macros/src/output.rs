//! What both macros do with the compiler's answer.

use std::path::PathBuf;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use rpcrdma_xdrgen::{
    Compiled, Compiler,
    emit::{EmitError, emit_tokens},
};
use syn::LitStr;

use crate::options::Options;

/// A compiler, and the files that it was given.
#[derive(Default)]
pub(crate) struct Inputs {
    pub(crate) compiler: Compiler,
    files: Vec<PathBuf>,
}

impl Inputs {
    /// With what `compiler` was given already.
    pub(crate) fn of(compiler: Compiler) -> Self {
        Self { compiler, files: Vec::new() }
    }

    /// Adds a specification.
    pub(crate) fn file(&mut self, path: &LitStr) -> syn::Result<()> {
        let text = self.read(path)?;
        self.compiler = std::mem::take(&mut self.compiler).source(path.value(), text);
        // What it includes is looked for beside it.
        if let Some(directory) = self.files.last().and_then(|file| file.parent()) {
            self.compiler = std::mem::take(&mut self.compiler).include_dir(directory);
        }
        Ok(())
    }

    /// Adds upper-layer bindings.
    pub(crate) fn ulb(&mut self, paths: &[LitStr]) -> syn::Result<()> {
        for path in paths {
            let text = self.read(path)?;
            self.compiler = std::mem::take(&mut self.compiler).ulb_source(path.value(), text);
        }
        Ok(())
    }

    /// Reads a file whose path is relative to the folder of the crate's manifest. Messages name it as it was written.
    fn read(&mut self, path: &LitStr) -> syn::Result<String> {
        let dir = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
        let file = dir.join(path.value());
        match rpcrdma_xdrgen::source::read(&file) {
            Ok(octets) => {
                self.files.push(file);
                // Old specifications have comments in other encodings.
                Ok(String::from_utf8_lossy(&octets).into_owned())
            }
            Err(error) => {
                let message = format!(
                    "cannot read {}: {error}; paths are relative to the folder of the crate's Cargo.toml",
                    path.value()
                );
                Err(syn::Error::new(path.span(), message))
            }
        }
    }

    /// Tells the compiler what the options have for it.
    pub(crate) fn options(&mut self, options: &Options) -> syn::Result<()> {
        self.compiler = options.apply(std::mem::take(&mut self.compiler))?;
        Ok(())
    }

    /// The generated code, and what makes the build watch the files it came from.
    pub(crate) fn expand(&self, compiled: &Compiled, options: &Options) -> TokenStream {
        let emit = options.emit();
        if let Err(error) = emit.check(&compiled.spec) {
            let place = match &error {
                EmitError::NoTypeToDerive(name) => options.place_of(name),
                _ => None,
            };
            return syn::Error::new(place.unwrap_or_else(Span::call_site), error).into_compile_error();
        }
        let code = emit_tokens(&compiled.spec, &emit);
        let watched = self.files.iter().chain(&compiled.files).filter_map(|path| {
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
}

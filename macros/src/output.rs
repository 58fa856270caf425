//! Handling of input files and generated code, which `include_xdr!` and `xdr!` share.

use std::path::PathBuf;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use rpcrdma_xdrgen::{
    Compiled, Compiler,
    emit::{EmitError, emit_tokens},
};
use syn::LitStr;

use crate::options::Options;

/// A compiler with its input files.
#[derive(Default)]
pub(crate) struct Inputs {
    pub(crate) compiler: Compiler,
    files: Vec<PathBuf>,
}

impl Inputs {
    /// Wraps a compiler that already has its sources.
    pub(crate) fn of(compiler: Compiler) -> Self {
        Self { compiler, files: Vec::new() }
    }

    /// Reads a specification, and adds it and the folder that its includes are relative to.
    pub(crate) fn file(&mut self, path: &LitStr) -> syn::Result<()> {
        let text = self.read(path)?;
        self.compiler = std::mem::take(&mut self.compiler).source(path.value(), text);
        if let Some(directory) = self.files.last().and_then(|file| file.parent()) {
            self.compiler = std::mem::take(&mut self.compiler).include_dir(directory);
        }
        Ok(())
    }

    /// Reads Upper-Layer Bindings, and adds them.
    pub(crate) fn ulb(&mut self, paths: &[LitStr]) -> syn::Result<()> {
        for path in paths {
            let text = self.read(path)?;
            self.compiler = std::mem::take(&mut self.compiler).ulb_source(path.value(), text);
        }
        Ok(())
    }

    /// Reads a file. The path is relative to the folder of the crate's manifest. Error messages show the path as it is
    /// written in the macro.
    fn read(&mut self, path: &LitStr) -> syn::Result<String> {
        let dir = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
        let file = dir.join(path.value());
        match rpcrdma_xdrgen::source::read(&file) {
            Ok(bytes) => {
                self.files.push(file);
                // Comments in old specifications are not always UTF-8.
                Ok(String::from_utf8_lossy(&bytes).into_owned())
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

    /// Applies the options that concern the compiler.
    pub(crate) fn options(&mut self, options: &Options) -> syn::Result<()> {
        self.compiler = options.apply(std::mem::take(&mut self.compiler))?;
        Ok(())
    }

    /// Returns the generated code, and items that make the build depend on the input files. Returns a compile error if
    /// the options do not fit the specification, or if the generated code does not parse.
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
        // One side of a protocol does not use all of its parts, and the module may be private.
        match syn::parse2::<syn::File>(code) {
            Ok(file) => {
                let items = file.items;
                quote!(#(#[allow(dead_code, unreachable_pub)] #items)* #(#watched)*)
            }
            Err(error) => {
                let message = format!("generated code does not parse: {error}; this is a bug in rpcrdma-xdrgen");
                syn::Error::new(Span::call_site(), message).into_compile_error()
            }
        }
    }
}

//! `include_xdr!`

use proc_macro::TokenStream;
use rpcrdma_xdrgen::Compiler;
use syn::{
    LitStr, Token,
    parse::{Parse, ParseStream},
    parse_macro_input,
};

use crate::{options::Options, output};

struct Input {
    file: LitStr,
    options: Options,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let file = input.parse()?;
        let mut options = Options::default();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                options.parse_one(input)?;
            }
        }
        Ok(Self { file, options })
    }
}

pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let Input { file, options } = parse_macro_input!(input as Input);
    let mut compiler = Compiler::new().file(output::resolve(&file.value()));
    for ulb in &options.ulb {
        compiler = compiler.ulb(output::resolve(&ulb.value()));
    }
    match compiler.compile() {
        Ok(compiled) => output::expand(&compiled, &options),
        // The places are in another file: rustc can only be pointed to its name, and shown the rest.
        Err(diagnostics) => syn::Error::new(file.span(), format!("in XDR\n{diagnostics}")).into_compile_error(),
    }
    .into()
}

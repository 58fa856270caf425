//! The `include_xdr!` macro.

use proc_macro::TokenStream;
use syn::{
    LitStr, Token,
    parse::{Parse, ParseStream},
    parse_macro_input,
};

use crate::{options::Options, output::Inputs};

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
    let mut inputs = Inputs::default();
    if let Err(error) =
        inputs.file(&file).and_then(|()| inputs.ulb(&options.ulb)).and_then(|()| inputs.options(&options))
    {
        return error.into_compile_error().into();
    }
    match inputs.compiler.compile() {
        Ok(compiled) => inputs.expand(&compiled, &options),
        // The errors are in another file, so the macro's span can only cover the file name; the message shows the rest.
        Err(diagnostics) => syn::Error::new(file.span(), format!("in XDR\n{diagnostics}")).into_compile_error(),
    }
    .into()
}

//! Options that `include_xdr!` and `xdr!` share.

use rpcrdma_xdrgen::emit::{Borrow, EmitOptions};
use syn::{
    Ident, LitBool, LitStr, Path, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

/// What was asked for.
#[derive(Default)]
pub(crate) struct Options {
    /// Files of upper-layer bindings.
    pub(crate) ulb: Vec<LitStr>,
    derives: Vec<Path>,
    client: Option<LitBool>,
    server: Option<LitBool>,
    runtime: Option<Path>,
    borrowed: Option<Borrow>,
    open: Vec<String>,
}

impl Options {
    /// Reads one option: `name = value` or `name(values)`.
    pub(crate) fn parse_one(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let name = input.call(Ident::parse_any)?;
        let repeated = || syn::Error::new(name.span(), format!("`{name}` is given twice"));
        match name.to_string().as_str() {
            "derive" => {
                let content;
                syn::parenthesized!(content in input);
                self.derives.extend(Punctuated::<Path, Token![,]>::parse_terminated(&content)?);
            }
            "borrowed" if self.borrowed.is_none() => {
                let named = input.peek(syn::token::Paren);
                self.borrowed = Some(if named { Borrow::Types(names(input)?) } else { Borrow::All });
            }
            "open" => self.open.extend(names(input)?),
            "ulb" => self.ulb.push(value(input)?),
            "client" if self.client.is_none() => self.client = Some(value(input)?),
            "server" if self.server.is_none() => self.server = Some(value(input)?),
            "crate" if self.runtime.is_none() => {
                input.parse::<Token![=]>()?;
                self.runtime = Some(input.call(Path::parse_mod_style)?);
            }
            "client" | "server" | "crate" | "borrowed" => return Err(repeated()),
            _ => {
                let message = format!(
                    "unknown option `{name}`: there are `ulb`, `derive`, `client`, `server`, `borrowed`, `open`, `crate`"
                );
                return Err(syn::Error::new(name.span(), message));
            }
        }
        Ok(())
    }

    /// For the compiler.
    pub(crate) fn emit(&self) -> EmitOptions {
        let mut emit = EmitOptions::default();
        emit.absolute_paths = true;
        emit.derives.clone_from(&self.derives);
        emit.client = self.client.as_ref().is_none_or(LitBool::value);
        emit.server = self.server.as_ref().is_none_or(LitBool::value);
        emit.open.clone_from(&self.open);
        emit.borrowed = self.borrowed.clone().unwrap_or_default();
        if let Some(runtime) = &self.runtime {
            emit.runtime = runtime.clone();
        }
        emit
    }
}

fn value<T: Parse>(input: ParseStream<'_>) -> syn::Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// `(name, name)`: names of the specification.
fn names(input: ParseStream<'_>) -> syn::Result<Vec<String>> {
    let content;
    syn::parenthesized!(content in input);
    let names = Punctuated::<Ident, Token![,]>::parse_terminated_with(&content, Ident::parse_any)?;
    Ok(names.iter().map(|name| name.unraw().to_string()).collect())
}

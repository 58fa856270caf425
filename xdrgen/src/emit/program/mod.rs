//! Programs: one module for each version, with its procedures, a typed client and the server's trait.

mod client;
mod lower;
mod procedure;
mod server;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

pub(crate) use lower::{Names, lower};

use super::names::Std;

/// A version of a program, ready to be written out, whichever front door it came in by.
#[derive(Debug)]
pub(crate) struct Module<'a> {
    /// The path of the runtime crate.
    pub(crate) runtime: TokenStream,
    /// How standard names are written.
    pub(crate) std: Std<'a>,
    /// The module's name.
    pub(crate) name: Ident,
    /// Whether only numbers and markers are in the module, and all that names types beside it.
    pub(crate) outside: bool,
    /// Visibility of what is beside the module, and of the module.
    pub(crate) visibility: TokenStream,
    /// The same visibility as what is in the module has to write it.
    pub(crate) inner_visibility: TokenStream,
    /// Documentation of the module.
    pub(crate) docs: TokenStream,
    /// The program's name in the specification.
    pub(crate) program: String,
    /// The version's name in the specification.
    pub(crate) version: String,
    /// The program's number.
    pub(crate) program_number: u32,
    /// The version's number.
    pub(crate) version_number: u32,
    /// The port that is assigned to it.
    pub(crate) port: Option<u16>,
    /// The client's name.
    pub(crate) client: Ident,
    /// The server trait's name.
    pub(crate) handler: Ident,
    /// Documentation of the server trait, where it has its own.
    pub(crate) handler_docs: Option<TokenStream>,
    /// The name of what makes a service of a handler.
    pub(crate) server: Ident,
    /// The procedures.
    pub(crate) procedures: Vec<Procedure>,
    /// Whether one of them may have more eligible items than servers accept by themselves.
    pub(crate) many_chunks: bool,
}

/// A procedure.
#[derive(Debug)]
pub(crate) struct Procedure {
    /// Its name in the specification.
    pub(crate) xdr_name: String,
    /// Its number.
    pub(crate) number: u32,
    /// The marker type.
    pub(crate) marker: Ident,
    /// The client's and the handler's method.
    pub(crate) method: Ident,
    /// The client's method that takes options.
    pub(crate) method_with: Ident,
    /// The client's method that hands the result over in its borrowed form, where it has one, and that form.
    pub(crate) view: Option<(Ident, TokenStream)>,
    /// Documentation of the marker.
    pub(crate) docs: TokenStream,
    /// Documentation of the handler's method.
    pub(crate) handler_docs: TokenStream,
    /// Documentation of the client's method.
    pub(crate) client_docs: TokenStream,
    /// `@idempotent`
    pub(crate) idempotent: bool,
    /// The arguments as one type.
    pub(crate) args: TokenStream,
    /// The arguments as parameters.
    pub(crate) params: Vec<Param>,
    /// How the parameters make the one type.
    pub(crate) packing: Packing,
    /// The result.
    pub(crate) reply: TokenStream,
    /// Types of its own, with their codecs.
    pub(crate) declarations: Vec<TokenStream>,
    /// Codecs of these.
    pub(crate) codecs: Vec<TokenStream>,
    /// The reply's bounds from `args`: the body of a function.
    pub(crate) bounds: TokenStream,
    /// The handler's method up to and including its body or semicolon, where it was written out.
    pub(crate) signature: Option<TokenStream>,
}

/// A parameter.
#[derive(Debug)]
pub(crate) struct Param {
    /// Its name.
    pub(crate) name: Ident,
    /// Its type.
    pub(crate) ty: TokenStream,
    /// Whether clients take it by value because it is as small as a reference.
    pub(crate) small: bool,
}

/// How parameters make a procedure's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// There are none.
    Void,
    /// The one parameter is the arguments.
    Single,
    /// They are fields of a struct.
    Struct,
    /// They are a tuple.
    Tuple,
}

/// Which stubs to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stubs {
    /// A typed client.
    pub(crate) client: bool,
    /// The server's trait and its dispatcher.
    pub(crate) server: bool,
}

impl Module<'_> {
    /// Writes the module out.
    pub(crate) fn emit(&self, stubs: Stubs) -> TokenStream {
        let (name, docs, visibility) = (&self.name, &self.docs, &self.visibility);
        let numbers = self.numbers();
        let own = self.procedures.iter().map(|procedure| &procedure.declarations);
        let own = quote!(#(#(#own)*)*);
        let markers = self.procedures.iter().map(|procedure| self.marker(procedure));
        let client = stubs.client.then(|| self.client());
        let server = stubs.server.then(|| self.server());
        let implementations = self.procedures.iter().map(|procedure| self.procedure(procedure));
        let codecs = self.procedures.iter().flat_map(|procedure| &procedure.codecs).cloned().collect();
        let codecs = super::codec_block(&self.runtime, codecs);
        if self.outside {
            quote! {
                #docs
                #visibility mod #name { #numbers #(#markers)* }
                #(#implementations)*
                #client
                #server
            }
        } else {
            quote! {
                #docs
                #visibility mod #name {
                    #numbers
                    #own
                    #(#markers #implementations)*
                    #client
                    #server
                    #codecs
                }
            }
        }
    }

    /// What is in the module, from where the stubs are.
    fn path(&self, name: &Ident) -> TokenStream {
        let module = &self.name;
        if self.outside { quote!(#module::#name) } else { quote!(#name) }
    }

    /// The constants.
    fn numbers(&self) -> TokenStream {
        let visibility = &self.inner_visibility;
        let of = if self.program == self.version {
            format!(" of `{}`.", self.program)
        } else {
            format!(" of `{}`, version `{}`.", self.program, self.version)
        };
        let (program_docs, version_docs) = (format!(" The program number{of}"), format!(" The version number{of}"));
        let (program, version) = (hex(self.program_number), Literal::u32_unsuffixed(self.version_number));
        let port = self.port.map(|port| {
            let docs = format!(" The port that is assigned to `{}` on RDMA (RFC 8166 §6).", self.program);
            let port = Literal::u16_unsuffixed(port);
            quote!(#[doc = #docs] #visibility const PORT: u16 = #port;)
        });
        quote! {
            #[doc = #program_docs]
            #visibility const PROGRAM: u32 = #program;
            #[doc = #version_docs]
            #visibility const VERSION: u32 = #version;
            #port
        }
    }
}

/// A program number as specifications write them.
fn hex(number: u32) -> TokenStream {
    let text =
        if number > 0xffff { format!("0x{:X}_{:04X}", number >> 16, number & 0xffff) } else { number.to_string() };
    text.parse().unwrap_or_default()
}

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
    /// The module's visibility and name; `None` where everything goes into the scope around.
    pub(crate) name: Option<Ident>,
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
    /// The name of what makes a service of a handler.
    pub(crate) server: Ident,
    /// The procedures.
    pub(crate) procedures: Vec<Procedure>,
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
    /// Documentation of the marker and the methods.
    pub(crate) docs: TokenStream,
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
    /// `inline` and `chunks` of the reply's bounds.
    pub(crate) inline: TokenStream,
    /// Each eligible result's bound.
    pub(crate) chunks: Vec<TokenStream>,
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
        let items = self.items(stubs);
        let docs = &self.docs;
        match &self.name {
            Some(name) => quote!(#docs pub mod #name { #items }),
            None => items,
        }
    }

    /// What is in the module.
    fn items(&self, stubs: Stubs) -> TokenStream {
        let of = format!(" of `{}`, version `{}`.", self.program, self.version);
        let (program_docs, version_docs) = (format!(" The program number{of}"), format!(" The version number{of}"));
        let (program, version) = (Literal::u32_unsuffixed(self.program_number), self.version_number);
        let version = Literal::u32_unsuffixed(version);
        let port = self.port.map(|port| {
            let docs = format!(" The port that is assigned to `{}` on RDMA (RFC 8166 §6).", self.program);
            let port = Literal::u16_unsuffixed(port);
            quote!(#[doc = #docs] pub const PORT: u16 = #port;)
        });
        let procedures = self.procedures.iter().map(|procedure| self.procedure(procedure));
        let client = stubs.client.then(|| self.client());
        let server = stubs.server.then(|| self.server());
        let codecs: Vec<&TokenStream> = self.procedures.iter().flat_map(|procedure| &procedure.codecs).collect();
        let codecs = super::codec_block(&self.runtime, &codecs);
        quote! {
            #[doc = #program_docs]
            pub const PROGRAM: u32 = #program;
            #[doc = #version_docs]
            pub const VERSION: u32 = #version;
            #port
            #(#procedures)*
            #client
            #server
            #codecs
        }
    }
}

//! Generation of programs: one module for each version, with its procedures, a typed client, and a server trait with
//! its dispatcher.

mod client;
mod lower;
mod module;
mod procedure;
mod server;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use self::module::CUT;
pub(crate) use self::{
    lower::{NamedVersion, link, lower},
    module::{Packing, Param, ProcedureModel, ProgramModule, Stubs},
};
use super::{names::ident, target::codec_block};

impl ProgramModule<'_> {
    /// Generates the module of the version, with the selected stubs.
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
        let codecs = codec_block(&self.runtime, codecs);
        let cut = self.cut();
        if self.outside {
            quote! {
                #docs
                #visibility mod #name { #numbers #(#markers)* }
                #(#implementations)*
                #client
                #server
            }
        } else {
            let procedures = quote!(#(#markers #implementations)*);
            let imports = self.imports(stubs);
            quote! {
                #docs
                #[allow(dead_code)]
                #visibility mod #name {
                    #imports
                    #numbers
                    #cut
                    #own
                    #cut
                    #cut
                    #procedures
                    #cut
                    #client
                    #server
                    #cut
                    #codecs
                    #cut
                }
            }
        }
    }

    /// Returns the imports of the module. If the module is emitted in pieces, they are the same for every range of
    /// procedures.
    fn imports(&self, stubs: Stubs) -> TokenStream {
        if !self.is_cut {
            return self.std.imports(&self.runtime);
        }
        let runtime = &self.runtime;
        let client = stubs.client.then(|| {
            quote! {
                #[allow(unused_imports)]
                use #runtime::{client, xdr};
            }
        });
        let server = stubs.server.then(|| quote!(use #runtime::server;));
        quote! {
            #client
            #server
            use #runtime::service;
            #[allow(unused_imports)]
            use #runtime::xdr::prelude::*;
        }
    }

    /// Returns the path of the runtime module `name`.
    fn module(&self, name: &'static str) -> TokenStream {
        self.std.module(&self.runtime, name)
    }

    /// Returns the path of the type `name` in the module `module` of `alloc`.
    fn alloc(&self, module: &str, name: &str) -> TokenStream {
        let (runtime, module, ident) = (&self.runtime, ident(module), ident(name));
        self.std.short(name, quote!(#runtime::alloc::#module::#ident))
    }

    /// Returns an item that marks a boundary between two [`pieces`](Self::pieces) of the printed text. Returns `None`
    /// if the module is emitted as a whole.
    fn cut(&self) -> Option<TokenStream> {
        let name = format_ident!("{CUT}");
        self.is_cut.then(|| quote!(const #name: () = ();))
    }

    /// Cuts the printed text of a module into pieces. Pieces with an odd index contain what the procedures add to the
    /// module. The other pieces are the same for every range of procedures.
    pub(crate) fn pieces(text: &str) -> Vec<String> {
        let (item, arm) = (format!("const {CUT}: () = ();"), format!("{CUT} => {{}}"));
        let mut pieces = vec![String::new()];
        for line in text.split_inclusive('\n') {
            if [item.as_str(), arm.as_str()].contains(&line.trim()) {
                pieces.push(String::new());
            } else if let Some(piece) = pieces.last_mut() {
                piece.push_str(line);
            }
        }
        pieces
    }

    /// Returns the path of an item of the module, as seen from the stubs.
    fn path(&self, name: &Ident) -> TokenStream {
        let module = &self.name;
        if self.outside { quote!(#module::#name) } else { quote!(#name) }
    }

    /// Returns the constants of the module: the program number, the version number, and the RDMA port if the program
    /// has one.
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
            let docs = format!(" The RDMA port that is assigned to `{}` (RFC 8166 §6).", self.program);
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

/// Returns a program number as a literal. A number of more than 16 bits is hexadecimal, as in specifications.
fn hex(number: u32) -> TokenStream {
    let text =
        if number > 0xffff { format!("0x{:X}_{:04X}", number >> 16, number & 0xffff) } else { number.to_string() };
    text.parse().unwrap_or_default()
}

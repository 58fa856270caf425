//! Generation of the marker type of a procedure, and of its `Procedure` implementation.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;

use super::super::codec::mentions;
use super::module::{ProcedureModel, ProgramModule};

impl ProgramModule<'_> {
    /// Returns the marker type of `procedure`.
    pub(super) fn marker(&self, procedure: &ProcedureModel) -> TokenStream {
        let ProcedureModel { marker, docs, .. } = procedure;
        let visibility = &self.inner_visibility;
        quote! {
            #docs
            #[derive(Debug, Clone, Copy)]
            #visibility struct #marker;
        }
    }

    /// Returns the implementation of `Procedure` for the marker type.
    pub(super) fn procedure(&self, procedure: &ProcedureModel) -> TokenStream {
        let service = self.module("service");
        let ProcedureModel { args, reply, bounds, .. } = procedure;
        let marker = self.path(&procedure.marker);
        let constant = |name: &str| self.path(&Ident::new(name, Span::call_site()));
        let (program, version) = (constant("PROGRAM"), constant("VERSION"));
        let number = Literal::u32_unsuffixed(procedure.number);
        let name = format!("{}.{}", self.version, procedure.xdr_name);
        let idempotent = procedure.idempotent.then(|| {
            quote!(
                const IDEMPOTENT: bool = true;
            )
        });
        let args_name = if mentions(bounds, "args") { quote!(args) } else { quote!(_args) };
        let bounds_docs = procedure.computed.then(|| {
            let lines = [
                " The binding says `@reply_max(computed)`: implement `BoundsReply` for the arguments, which returns the maximum",
                " length of the result in the message, and of each eligible item, in bytes.",
            ];
            quote!(#(#[doc = #lines])*)
        });
        quote! {
            impl #service::Procedure for #marker {
                const PROGRAM: u32 = #program;
                const VERSION: u32 = #version;
                const NUMBER: u32 = #number;
                const NAME: &'static str = #name;
                #idempotent
                type Args = #args;
                type Reply = #reply;

                #bounds_docs
                fn reply_bounds(#args_name: &Self::Args) -> #service::ReplyBounds {
                    #bounds
                }
            }
        }
    }
}

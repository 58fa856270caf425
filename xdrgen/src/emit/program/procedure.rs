//! The marker type of a procedure, and its bounds.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{Module, Procedure};

impl Module<'_> {
    /// The marker type of `procedure`, and what it has of types of its own.
    pub(super) fn procedure(&self, procedure: &Procedure) -> TokenStream {
        let runtime = &self.runtime;
        let Procedure { marker, docs, args, reply, inline, chunks, declarations, .. } = procedure;
        let number = Literal::u32_unsuffixed(procedure.number);
        let name = format!("{}.{}", self.version, procedure.xdr_name);
        let idempotent = procedure.idempotent.then(|| {
            quote!(
                const IDEMPOTENT: bool = true;
            )
        });
        let uses_args = !chunks.is_empty() || !is_literal(inline);
        let args_name = if uses_args && procedure.uses_args() { quote!(args) } else { quote!(_args) };
        quote! {
            #(#declarations)*

            #docs
            #[derive(Debug, Clone, Copy)]
            pub struct #marker;

            impl #runtime::service::Procedure for #marker {
                const PROGRAM: u32 = PROGRAM;
                const VERSION: u32 = VERSION;
                const NUMBER: u32 = #number;
                const NAME: &'static str = #name;
                #idempotent
                type Args = #args;
                type Reply = #reply;

                fn reply_bounds(#args_name: &Self::Args) -> #runtime::service::ReplyBounds {
                    #runtime::service::ReplyBounds::new(#inline, &[#(#chunks),*])
                }
            }
        }
    }
}

impl Procedure {
    /// Whether the reply's bounds are computed from the arguments.
    fn uses_args(&self) -> bool {
        self.chunks.iter().chain([&self.inline]).any(mentions_args)
    }
}

fn is_literal(tokens: &TokenStream) -> bool {
    !mentions_args(tokens)
}

fn mentions_args(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        proc_macro2::TokenTree::Group(group) => mentions_args(&group.stream()),
        proc_macro2::TokenTree::Ident(ident) => ident == "args",
        _ => false,
    })
}

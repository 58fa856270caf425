//! The typed client.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Module, Packing, Procedure};

impl Module<'_> {
    /// The client's type and methods.
    pub(super) fn client(&self) -> TokenStream {
        let (runtime, name) = (&self.runtime, &self.client);
        let docs = format!(" A client of `{}`, version `{}`: calls over one channel.", self.program, self.version);
        let methods = self.procedures.iter().map(|procedure| self.methods(procedure));
        quote! {
            #[doc = #docs]
            #[derive(Debug, Clone)]
            pub struct #name {
                channel: #runtime::client::Channel,
            }

            impl #name {
                /// A client whose calls go over `channel`.
                #[must_use]
                pub fn new(channel: #runtime::client::Channel) -> Self {
                    Self { channel }
                }

                /// The channel that the calls go over.
                #[must_use]
                pub fn channel(&self) -> &#runtime::client::Channel {
                    &self.channel
                }

                #(#methods)*
            }
        }
    }

    fn methods(&self, procedure: &Procedure) -> TokenStream {
        let (runtime, result) = (&self.runtime, self.std.path("Result"));
        let Procedure { marker, method, method_with, docs, reply, args: args_ty, params, .. } = procedure;
        let declared: Vec<TokenStream> = params
            .iter()
            .map(|param| {
                let (name, ty) = (&param.name, &param.ty);
                if procedure.packing == Packing::Struct || param.small {
                    quote!(#name: #ty)
                } else {
                    quote!(#name: &#ty)
                }
            })
            .collect();
        let names = params.iter().map(|param| &param.name);
        let packed = match (procedure.packing, params.as_slice()) {
            (Packing::Single, [param]) => {
                let name = &param.name;
                if param.small { quote!(&#name) } else { quote!(#name) }
            }
            (Packing::Struct, _) => quote!(&#args_ty { #(#names),* }),
            _ => quote!(&()),
        };
        let many = (declared.len() > 5).then(|| quote!(#[allow(clippy::too_many_arguments)]));
        let with_docs =
            format!(" As [`{0}`](Self::{0}), with a deadline, landing buffers or credentials.", plain(method));
        quote! {
            #docs
            ///
            /// # Errors
            /// When the call could not be made or answered, or the server refused it.
            #many
            pub async fn #method(&self #(, #declared)*) -> #result<#reply, #runtime::client::CallError> {
                self.channel.call::<#marker>(#packed, #runtime::client::CallOptions::default()).await
            }

            #[doc = #with_docs]
            ///
            /// # Errors
            /// As there, and when the options do not fit the call.
            #many
            pub async fn #method_with(
                &self
                #(, #declared)*,
                options: #runtime::client::CallOptions,
            ) -> #result<#reply, #runtime::client::CallError> {
                self.channel.call::<#marker>(#packed, options).await
            }
        }
    }
}

/// An identifier as a link names it.
fn plain(ident: &proc_macro2::Ident) -> String {
    ident.to_string()
}

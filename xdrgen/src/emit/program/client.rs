//! The typed client.

use proc_macro2::TokenStream;
use quote::quote;

use super::module::{Packing, ProcedureModel, ProgramModule, ReplyView};

impl ProgramModule<'_> {
    /// Returns the client type and its methods.
    pub(super) fn client(&self) -> TokenStream {
        let (client, name, visibility) = (self.module("client"), &self.client, &self.visibility);
        let docs = format!(" A typed client of `{}`.", self.version);
        let methods = self.procedures.iter().map(|procedure| self.methods(procedure));
        let cut = self.cut();
        let from = self.std.path("From");
        quote! {
            #[doc = #docs]
            #[derive(Debug, Clone)]
            #visibility struct #name {
                channel: #client::Channel,
            }

            impl #name {
                /// Creates a client that sends its calls over `channel`.
                #[must_use]
                pub fn new(channel: #client::Channel) -> Self {
                    Self { channel }
                }

                /// Returns the channel of the client.
                #[must_use]
                pub fn channel(&self) -> &#client::Channel {
                    &self.channel
                }

                #cut
                #(#methods)*
                #cut
            }

            impl #from<#client::Channel> for #name {
                fn from(channel: #client::Channel) -> Self {
                    Self::new(channel)
                }
            }
        }
    }

    fn methods(&self, procedure: &ProcedureModel) -> TokenStream {
        let (client, result) = (self.module("client"), self.std.path("Result"));
        let ProcedureModel { method, method_with, client_docs: docs, reply, args: args_ty, params, .. } = procedure;
        let marker = self.path(&procedure.marker);
        let declared: Vec<TokenStream> = params
            .iter()
            .map(|param| {
                let (name, ty) = (&param.name, &param.ty);
                if matches!(procedure.packing, Packing::Struct | Packing::Tuple) || param.small {
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
            (Packing::Tuple, _) => quote!(&(#(#names),*)),
            (Packing::Struct, _) => quote!(&#args_ty { #(#names),* }),
            _ => quote!(&()),
        };
        let many = (declared.len() > 5).then(|| quote!(#[allow(clippy::too_many_arguments)]));
        // rustdoc does not resolve links to raw identifiers.
        let plain = method.to_string();
        let plain = if plain.starts_with("r#") { format!("`{plain}`") } else { format!("[`{plain}`](Self::{plain})") };
        let (function, sync) = (self.std.path("Fn"), self.std.path("Sync"));
        let view = procedure.view.as_ref().map(|ReplyView { method: method_view, ty: borrowed, read }| {
            let docs = format!(" Calls the procedure like {plain}, but passes the result to `look` in its borrowed form, without a copy.");
            let xdr = self.module("xdr");
            quote! {
                #[doc = #docs]
                ///
                /// # Errors
                /// Returns the same errors, and an error if the options do not fit the call.
                #many
                pub async fn #method_view<T>(
                    &self
                    #(, #declared)*,
                    options: #client::CallOptions,
                    look: impl for<'a> #function(#borrowed) -> T + #sync,
                ) -> #result<T, #client::CallError> {
                    let read = |decoder: &mut #xdr::Decoder<'_>| {
                        #read
                        Ok(look(result))
                    };
                    self.channel.call_view::<#marker, _, _>(#packed, options, read).await
                }
            }
        });
        let with_docs = format!(" Calls the procedure like {plain}, with a deadline, landing buffers or credentials.");
        quote! {
            #docs
            ///
            /// # Errors
            /// Returns an error if the call cannot be sent, if no reply arrives, or if the server rejects the call.
            #many
            pub async fn #method(&self #(, #declared)*) -> #result<#reply, #client::CallError> {
                self.channel.call::<#marker>(#packed, #client::CallOptions::default()).await
            }

            #[doc = #with_docs]
            ///
            /// # Errors
            /// Returns the same errors, and an error if the options do not fit the call.
            #many
            pub async fn #method_with(
                &self
                #(, #declared)*,
                options: #client::CallOptions,
            ) -> #result<#reply, #client::CallError> {
                self.channel.call::<#marker>(#packed, options).await
            }

            #view
        }
    }
}

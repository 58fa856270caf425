//! Generation of the typed client of a program version.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use super::super::codec::mentions;
use super::module::{Packing, ProcedureModel, ProgramModule, ReplyView};

impl ProgramModule<'_> {
    /// Returns the client type, its conversion from a channel, and its methods: two for each procedure, and a third for
    /// a procedure with a [`ReplyView`].
    pub(super) fn client(&self) -> TokenStream {
        let (client, name, visibility) = (self.module("client"), &self.client, &self.visibility);
        let docs = format!(" A typed client of `{}`. `{}` carries its calls.", self.version, self.carrier());
        let carrier = self.carrier();
        let methods = self.procedures.iter().map(|procedure| self.methods(procedure));
        let cut = self.cut();
        let from = self.std.path("From");
        quote! {
            #[doc = #docs]
            #[derive(Debug, Clone)]
            #visibility struct #name<#carrier = #client::Channel> {
                channel: #carrier,
            }

            impl<#carrier> #name<#carrier> {
                /// Creates a client that sends its calls over `channel`.
                #[must_use]
                pub fn new(channel: #carrier) -> Self {
                    Self { channel }
                }

                /// Returns the channel of the client.
                #[must_use]
                pub fn channel(&self) -> &#carrier {
                    &self.channel
                }
            }

            impl<#carrier: #client::Invoke> #name<#carrier> {
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

    /// Returns the name of the client's type parameter: `C`, with underscores if the user's code already uses `C`. In a
    /// generated module, `C` cannot collide with names of the XDR specification, because the code names types by paths
    /// and no marker is named `C`. Outside of the module, the code contains types as the user has written them.
    fn carrier(&self) -> Ident {
        let is_written = |name: &str| {
            let mut procedures = self.procedures.iter();
            procedures.any(|ProcedureModel { params, reply, .. }| {
                mentions(reply, name) || params.iter().any(|param| mentions(&param.ty, name))
            })
        };
        let mut name = String::from("C");
        while self.outside && is_written(&name) {
            name.push('_');
        }
        Ident::new(&name, Span::call_site())
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
        let all_names: Vec<&Ident> = params.iter().map(|param| &param.name).collect();
        let names = all_names.iter();
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
        let (function, send, sync) = (self.std.path("Fn"), self.std.path("Send"), self.std.path("Sync"));
        let view = procedure.view.as_ref().map(|ReplyView { method: method_view, ty: borrowed, read }| {
            let docs = format!(" Calls the procedure like {plain}, but passes the result to `look` in its borrowed form, without a copy.");
            let xdr = self.module("xdr");
            quote! {
                #[doc = #docs]
                ///
                /// # Errors
                /// Returns an error if the options do not fit the call, if the call cannot be sent, if no reply
                /// arrives, or if the server rejects the call.
                #many
                pub async fn #method_view<T: #send>(
                    &self
                    #(, #declared)*,
                    options: #client::CallOptions,
                    look: impl for<'a> #function(#borrowed) -> T + #sync,
                ) -> #result<T, #client::CallError> {
                    let read = |decoder: &mut #xdr::Decoder<'_>| {
                        #read
                        Ok(look(result))
                    };
                    #client::Invoke::invoke_view::<#marker, _, _>(&self.channel, #packed, options, read).await
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
                self.#method_with(#(#all_names,)* #client::CallOptions::default()).await
            }

            #[doc = #with_docs]
            ///
            /// # Errors
            /// Returns an error if the options do not fit the call, if the call cannot be sent, if no reply arrives, or
            /// if the server rejects the call.
            #many
            pub async fn #method_with(
                &self
                #(, #declared)*,
                options: #client::CallOptions,
            ) -> #result<#reply, #client::CallError> {
                #client::Invoke::invoke::<#marker>(&self.channel, #packed, options).await
            }

            #view
        }
    }
}

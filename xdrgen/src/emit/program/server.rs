//! Generation of the server side: a trait with a method for each procedure that the version declares, and a dispatcher
//! for all procedures of the version.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;

use super::module::{CUT, Packing, ProcedureModel, ProgramModule};

impl ProgramModule<'_> {
    /// Returns the server trait and the dispatcher.
    pub(super) fn server(&self) -> TokenStream {
        let handler = self.handler();
        let dispatcher = self.dispatcher();
        quote!(#handler #dispatcher)
    }

    fn handler(&self) -> TokenStream {
        let (name, dispatcher) = (&self.handler, &self.server);
        let (send, sync) = (self.std.path("Send"), self.std.path("Sync"));
        let visibility = &self.visibility;
        let docs = format!(
            " The server interface of `{}`. [`{dispatcher}`] turns an implementation into a service.",
            self.version
        );
        let of_base = self.base.as_ref().map(|base| {
            let docs = format!(
                " It has the procedures that differ from `{}`. The server calls the others by the trait of that version, so that one \
                 implementation serves both versions.",
                base.version
            );
            quote!(#[doc = ""] #[doc = #docs])
        });
        let docs = self.handler_docs.clone().unwrap_or_else(|| quote!(#[doc = #docs] #of_base));
        let own = self.procedures.iter().filter(|procedure| procedure.origin.is_none());
        let methods = own.map(|procedure| self.handler_method(procedure));
        let cut = self.cut();
        let bounds = match &self.base {
            Some(base) => base.path.clone(),
            None => quote!(#send + #sync + 'static),
        };
        quote! {
            #docs
            #visibility trait #name: #bounds {
                #cut
                #(#methods)*
                #cut
            }
        }
    }

    fn handler_method(&self, procedure: &ProcedureModel) -> TokenStream {
        let (server, result, send) = (self.module("server"), self.std.path("Result"), self.std.path("Send"));
        let ProcedureModel { method, handler_docs: docs, reply, .. } = procedure;
        if let Some(signature) = &procedure.signature {
            return quote!(#docs #signature);
        }
        let params = procedure.params.iter().map(|param| {
            let (name, ty) = (&param.name, &param.ty);
            quote!(#name: #ty)
        });
        // Procedure 0 does nothing by convention (RFC 5531 §12.1).
        let null = procedure.number == 0 && procedure.packing == Packing::Void && reply.to_string() == "()";
        let (cx, body) = if null { (quote!(_cx), quote!({ async { Ok(()) } })) } else { (quote!(cx), quote!(;)) };
        let many = (procedure.params.len() > 5).then(|| quote!(#[allow(clippy::too_many_arguments)]));
        quote! {
            #docs
            #many
            fn #method(
                &self,
                #cx: &#server::Context
                #(, #params)*
            ) -> impl ::core::future::Future<Output = #result<#reply, #server::HandlerError>> + #send #body
        }
    }

    fn dispatcher(&self) -> TokenStream {
        let (name, handler) = (&self.server, &self.handler);
        let server = self.module("server");
        let arc = self.alloc("sync", "Arc");
        let clone = self.std.path("Clone");
        let docs = format!(" A service that dispatches calls to a [`{handler}`].");
        let service_name = &self.version;
        let visibility = &self.visibility;
        let constant = |name: &str| self.path(&Ident::new(name, Span::call_site()));
        let (program, version) = (constant("PROGRAM"), constant("VERSION"));
        let (max_chunks, procedure, dispatch) = (self.max_chunks(), self.procedure_info(), self.dispatch());
        let option = self.std.path("Option");
        // A service without procedures decodes nothing.
        let call = if self.procedures.is_empty() { quote!(call) } else { quote!(mut call) };
        quote! {
            #[doc = #docs]
            // Each connection has a counter of its own for its calls: `for_connection`.
            #[allow(clippy::redundant_allocation)]
            #[derive(Debug)]
            #visibility struct #name<T>(#arc<#arc<T>>);

            impl<T> #name<T> {
                /// Creates a service that dispatches calls to `handler`.
                #[must_use]
                pub fn new(handler: T) -> Self {
                    Self::from_arc(#arc::new(handler))
                }

                /// Creates a service from a shared handler.
                #[must_use]
                pub fn from_arc(handler: #arc<T>) -> Self {
                    Self(#arc::new(handler))
                }
            }

            impl<T> #clone for #name<T> {
                fn clone(&self) -> Self {
                    Self(#arc::clone(&self.0))
                }
            }

            impl<T: #handler> #server::Service for #name<T> {
                fn program(&self) -> u32 {
                    #program
                }

                fn version(&self) -> u32 {
                    #version
                }

                fn name(&self) -> &'static str {
                    #service_name
                }

                #max_chunks

                #procedure

                fn for_connection(&self) -> #option<#arc<dyn #server::Service>> {
                    Some(#arc::new(Self(#arc::new(#arc::clone(&self.0)))))
                }

                fn dispatch(&self, #call: #server::InboundCall) -> #server::ReplyFuture {
                    #dispatch
                }
            }
        }
    }

    /// Returns the body of `dispatch`, which selects the handler of a call. A call of an unknown procedure gets
    /// PROC_UNAVAIL (RFC 5531 §9).
    fn dispatch(&self) -> TokenStream {
        let (arc, boxed) = (self.alloc("sync", "Arc"), self.alloc("boxed", "Box"));
        if self.procedures.is_empty() {
            return quote!(#boxed::pin(async move { call.procedure_unavailable() }));
        }
        let arms = self.procedures.iter().map(|procedure| {
            let method = &procedure.method;
            let marker = self.path(&procedure.marker);
            let number = Literal::u32_unsuffixed(procedure.number);
            let args = match procedure.packing {
                Packing::Void => TokenStream::new(),
                Packing::Single => quote!(, args),
                Packing::Tuple => {
                    let indices = (0..procedure.params.len()).map(Literal::usize_unsuffixed);
                    quote!(#(, args.#indices)*)
                }
                Packing::Struct => {
                    let fields = procedure.params.iter().map(|param| &param.name);
                    quote!(#(, args.#fields)*)
                }
            };
            // The trait of another version may have a method of the same name.
            let called = match (&procedure.origin, &self.base) {
                (None, None) => quote!(handler.#method(call.context() #args)),
                (Some(origin), _) => quote!(#origin(&**handler, call.context() #args)),
                (None, Some(_)) => {
                    let handler = &self.handler;
                    quote!(#handler::#method(&**handler, call.context() #args))
                }
            };
            let pattern = if procedure.packing == Packing::Void { quote!(()) } else { quote!(args) };
            // Each future has the size that its procedure needs.
            quote! {
                #number => #boxed::pin(async move {
                    match call.decode::<#marker>() {
                        Ok(#pattern) => {
                            let result = #called.await;
                            call.finish::<#marker>(result)
                        }
                        Err(reply) => reply,
                    }
                }),
            }
        });
        let cut = self.cut_mark();
        quote! {
            let handler = #arc::clone(&self.0);
            match call.procedure() {
                #cut
                #(#arms)*
                #cut
                _ => #boxed::pin(async move { call.procedure_unavailable() }),
            }
        }
    }

    /// Returns the method `max_chunks` of the service, if the maximum number of chunks of a call may differ from the
    /// default.
    fn max_chunks(&self) -> Option<TokenStream> {
        self.many_chunks.as_ref().filter(|markers| !markers.is_empty()).map(|markers| {
            let markers = markers.iter().map(|marker| self.path(marker));
            let service = self.module("service");
            quote! {
                fn max_chunks(&self) -> u32 {
                    [#(#service::max_chunks::<#markers>()),*].into_iter().fold(0, u32::max)
                }
            }
        })
    }

    /// Returns the method `procedure` of the service, which describes its procedures.
    fn procedure_info(&self) -> Option<TokenStream> {
        if self.procedures.is_empty() {
            return None;
        }
        let infos = self.procedures.iter().map(|procedure| {
            let (marker, service) = (self.path(&procedure.marker), self.module("service"));
            let number = Literal::u32_unsuffixed(procedure.number);
            quote!(#number => Some(#service::ProcedureInfo::of::<#marker>()),)
        });
        let infos = quote!(#(#infos)*);
        let cut = self.cut_mark();
        let (option, service) = (self.std.path("Option"), self.module("service"));
        Some(quote! {
            fn procedure(&self, number: u32) -> #option<#service::ProcedureInfo> {
                match number {
                    #cut
                    #infos
                    #cut
                    _ => None,
                }
            }
        })
    }

    /// Returns the match arm that marks the start and the end of a list of procedures, if the module is cut.
    fn cut_mark(&self) -> Option<TokenStream> {
        let name_of_cut = Ident::new(CUT, Span::call_site());
        self.is_cut.then(|| quote!(#name_of_cut => {}))
    }
}

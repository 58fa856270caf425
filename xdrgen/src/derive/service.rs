//! `#[service]`: a version of a program, written as a trait.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{
    Attribute, Expr, ExprArray, FnArg, GenericArgument, Ident, ItemTrait, LitInt, LitStr, Pat, Path, PathArguments,
    ReceiverKind, ReturnType, Token, TraitItem, TraitItemFn, Type, Visibility,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    spanned::Spanned,
};

use super::error;
use crate::emit::{
    names::{Case, Std, convert, ident},
    program::{Packing, Param, ProcedureModel, ProgramModule, Stubs},
};

/// Most arguments: those that tuples have a codec for.
const MAX_ARGUMENTS: usize = 8;

/// `program = N, version = N, name = "NAME", port = N, crate = PATH`
struct ServiceArguments {
    program: u32,
    version: u32,
    name: Option<String>,
    port: Option<u16>,
    runtime: Path,
}

impl Parse for ServiceArguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut program, mut version, mut name, mut port, mut runtime) = (None, None, None, None, None);
        while !input.is_empty() {
            let option = input.call(Ident::parse_any)?;
            input.parse::<Token![=]>()?;
            let repeated = match option.to_string().as_str() {
                "program" => program.replace(input.parse::<LitInt>()?.base10_parse()?).is_some(),
                "version" => version.replace(input.parse::<LitInt>()?.base10_parse()?).is_some(),
                "name" => name.replace(input.parse::<LitStr>()?.value()).is_some(),
                "port" => port.replace(input.parse::<LitInt>()?.base10_parse()?).is_some(),
                "crate" => runtime.replace(input.call(Path::parse_mod_style)?).is_some(),
                _ => {
                    let known = "`program`, `version`, `name`, `port` and `crate`";
                    return error(option.span(), &format!("unknown option `{option}`: there are {known}"));
                }
            };
            if repeated {
                return error(option.span(), &format!("`{option}` is given twice"));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let needed = |name: &str| syn::Error::new(Span::call_site(), format!("a service needs `{name} = NUMBER`"));
        Ok(Self {
            program: program.ok_or_else(|| needed("program"))?,
            version: version.ok_or_else(|| needed("version"))?,
            name,
            port,
            runtime: runtime.unwrap_or_else(|| syn::parse_quote!(::rpcrdma)),
        })
    }
}

/// What attributes say of a procedure.
struct ProcedureAttributes {
    number: u32,
    idempotent: bool,
    inline: Option<Expr>,
    chunks: Option<Vec<Expr>>,
    /// Those that are documentation, or somebody else's.
    others: Vec<Attribute>,
}

/// Expands the attribute.
///
/// # Errors
/// With the place of what is wrong.
pub fn service(arguments: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments: ServiceArguments = syn::parse2(arguments)?;
    let item: ItemTrait = syn::parse2(item)?;
    if let Some(parameter) = item.generics.params.first() {
        return error(parameter.span(), "a service has no parameters");
    }
    let runtime = &arguments.runtime;
    let handler = &item.ident;
    let handler_name = handler.to_string().trim_start_matches("r#").to_owned();
    let module = ident(&convert(&handler_name, Case::Snake));
    let name = arguments.name.clone().unwrap_or_else(|| handler_name.clone());
    let (mut procedures, mut numbers, mut errors) = (Vec::new(), std::collections::HashMap::new(), None);
    for member in &item.items {
        let lowered = match member {
            TraitItem::Fn(function) => lower(function, &handler_name, runtime),
            other => error(other.span(), "a service has procedures only"),
        };
        match lowered {
            Ok(procedure) => {
                if let Some(first) = numbers.insert(procedure.number, procedure.method.clone()) {
                    let message = format!("procedure {} is `{first}` already", procedure.number);
                    push(&mut errors, syn::Error::new(procedure.method.span(), message));
                }
                procedures.push(procedure);
            }
            Err(error) => push(&mut errors, error),
        }
    }
    if let Some(errors) = errors {
        return Err(errors);
    }
    let docs: TokenStream = item.attrs.iter().map(ToTokens::to_token_stream).collect();
    let description = format!(" The numbers and procedures of [`{handler_name}`].");
    let out = ProgramModule {
        runtime: quote!(#runtime),
        std: Std::Absolute,
        name: module,
        docs: quote!(#[doc = #description]),
        program: name.clone(),
        version: name,
        program_number: arguments.program,
        version_number: arguments.version,
        port: arguments.port,
        client: format_ident!("{handler_name}Client"),
        handler: handler.clone(),
        server: format_ident!("{handler_name}Server"),
        handler_docs: Some(docs),
        visibility: item.vis.to_token_stream(),
        inner_visibility: one_module_in(&item.vis),
        outside: true,
        many_chunks: Some(procedures.iter().map(|procedure| procedure.marker.clone()).collect()),
        procedures,
        is_cut: false,
    };
    let items = out.emit(Stubs { client: true, server: true });
    let file: syn::File = syn::parse2(items)?;
    let items = file.items;
    Ok(quote!(#(#[allow(dead_code, unreachable_pub)] #items)*))
}

/// A visibility as it is written one module further in.
fn one_module_in(visibility: &Visibility) -> TokenStream {
    match visibility {
        Visibility::Inherited => quote!(pub(super)),
        Visibility::Restricted(restricted) => {
            let path = &restricted.path;
            match path.segments.first() {
                Some(first) if first.ident == "self" => quote!(pub(super)),
                Some(first) if first.ident == "super" => quote!(pub(in super::#path)),
                _ => quote!(#visibility),
            }
        }
        Visibility::Public(_) => quote!(#visibility),
    }
}

/// Adds an error to those before it.
fn push(errors: &mut Option<syn::Error>, error: syn::Error) {
    match errors {
        Some(errors) => errors.combine(error),
        None => *errors = Some(error),
    }
}

fn lower(function: &TraitItemFn, service: &str, runtime: &Path) -> syn::Result<ProcedureModel> {
    let marks = marks(function)?;
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return error(signature.fn_token.span, "a procedure is an `async fn`");
    }
    if let Some(parameter) = signature.generics.params.first() {
        return error(parameter.span(), "a procedure has no parameters of its own");
    }
    let mut inputs = signature.inputs.iter();
    match inputs.next() {
        Some(FnArg::Receiver(receiver)) if matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) => {}
        other => {
            let span = other.map_or(signature.paren_token.span.join(), Spanned::span);
            return error(span, "a procedure's first parameter is `&self`");
        }
    }
    let context = match inputs.next() {
        Some(FnArg::Typed(context)) if matches!(&*context.ty, Type::Reference(_)) => context,
        other => {
            let span = other.map_or(signature.paren_token.span.join(), Spanned::span);
            return error(span, "a procedure's second parameter is `cx: &Context`");
        }
    };
    let mut params = Vec::new();
    for input in inputs {
        let FnArg::Typed(input) = input else { return error(input.span(), "an argument has a name and a type") };
        let Pat::Ident(name) = &*input.pat else { return error(input.pat.span(), "an argument is a plain name") };
        params.push(Param { name: name.ident.clone(), ty: input.ty.to_token_stream(), small: is_scalar(&input.ty) });
    }
    if params.len() > MAX_ARGUMENTS {
        return error(params[MAX_ARGUMENTS].name.span(), "a procedure has at most 8 arguments: make a struct of them");
    }
    let reply = reply(&signature.output)?;
    let types = params.iter().map(|param| &param.ty);
    let (packing, args) = match params.as_slice() {
        [] => (Packing::Void, quote!(())),
        [param] => (Packing::Single, param.ty.clone()),
        _ => (Packing::Tuple, quote!((#(#types),*))),
    };
    let method_name = signature.ident.to_string().trim_start_matches("r#").to_owned();
    let docs = marks.others.iter().filter(|attr| attr.path().is_ident("doc"));
    let client_docs = if marks.others.iter().any(|attr| attr.path().is_ident("doc")) {
        quote!(#(#docs)*)
    } else {
        let text = format!(" Calls the procedure `{method_name}`.");
        quote!(#[doc = #text])
    };
    let others = &marks.others;
    let bounds = bounds(runtime, &method_name, reply, &marks, &params);
    let marker_docs = format!(" The procedure [`{method_name}`](super::{service}::{method_name}).");
    Ok(ProcedureModel {
        xdr_name: method_name.clone(),
        number: marks.number,
        marker: ident(&convert(&method_name, Case::Camel)),
        method: signature.ident.clone(),
        method_with: format_ident!("{method_name}_with"),
        view: None,
        docs: quote!(#[doc = #marker_docs]),
        handler_docs: quote!(#(#others)*),
        client_docs,
        idempotent: marks.idempotent,
        args,
        params,
        packing,
        reply: reply.to_token_stream(),
        declarations: Vec::new(),
        codecs: Vec::new(),
        bounds,
        signature: Some(signature_of(function, context)),
    })
}

/// The attributes of a procedure.
fn marks(function: &TraitItemFn) -> syn::Result<ProcedureAttributes> {
    let mut number = None;
    let mut marks =
        ProcedureAttributes { number: 0, idempotent: false, inline: None, chunks: None, others: Vec::new() };
    for attr in &function.attrs {
        if attr.path().is_ident("procedure") {
            let given: LitInt = attr.parse_args()?;
            if number.replace(given.base10_parse()?).is_some() {
                return error(attr.span(), "a procedure has one number");
            }
        } else if attr.path().is_ident("idempotent") {
            attr.meta.require_path_only()?;
            marks.idempotent = true;
        } else if attr.path().is_ident("reply_max") {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("inline") {
                    marks.inline = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("chunks") {
                    let chunks: ExprArray = meta.value()?.parse()?;
                    marks.chunks = Some(chunks.elems.into_iter().collect());
                } else {
                    return Err(meta.error("unknown option: there are `inline = N` and `chunks = [N, ..]`"));
                }
                Ok(())
            })?;
        } else {
            marks.others.push(attr.clone());
        }
    }
    let Some(number) = number else {
        return error(function.sig.ident.span(), "a procedure needs a number: `#[procedure(N)]`");
    };
    marks.number = number;
    Ok(marks)
}

/// `T` of `Result<T, HandlerError>`.
fn reply(output: &ReturnType) -> syn::Result<&Type> {
    let message = "a procedure returns `Result<REPLY, HandlerError>`";
    let ReturnType::Type(_, ty) = output else { return error(output.span(), message) };
    if let Type::Path(path) = &**ty
        && let Some(last) = path.path.segments.last()
        && last.ident == "Result"
        && let PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(GenericArgument::Type(reply)) = arguments.args.first()
    {
        return Ok(reply);
    }
    error(ty.span(), message)
}

/// The signature in the trait: `async` spelled out, so that the future is `Send`.
fn signature_of(function: &TraitItemFn, context: &syn::PatType) -> TokenStream {
    let signature = &function.sig;
    let name = &signature.ident;
    let ReturnType::Type(_, output) = &signature.output else { return TokenStream::new() };
    let context_name = match (&*context.pat, &function.default) {
        // `_` in the trait would be all that implementors see of it.
        (Pat::Ident(name), _) => name.to_token_stream(),
        (other, Some(_)) => other.to_token_stream(),
        (_, None) => quote!(cx),
    };
    let context = &context.ty;
    let inputs = signature.inputs.iter().skip(2);
    let body = match &function.default {
        Some(body) => quote!({ async move #body }),
        None => quote!(;),
    };
    quote! {
        fn #name(
            &self,
            #context_name: #context
            #(, #inputs)*
        ) -> impl ::core::future::Future<Output = #output> + ::core::marker::Send #body
    }
}

/// The body of `reply_bounds`, and what rustc checks of it.
fn bounds(runtime: &Path, method: &str, reply: &Type, marks: &ProcedureAttributes, params: &[Param]) -> TokenStream {
    let span = reply.span();
    // Constants, which rustc evaluates whether or not the function is used.
    let (known, inline) = match &marks.inline {
        Some(inline) => (TokenStream::new(), quote!(#inline)),
        None => {
            let message = format!(
                "the result of `{method}` has no maximum: it needs #[reply_max(inline = OCTETS)] (RFC 8166 §6.2)"
            );
            let known = quote_spanned! {span=>
                const INLINE: u64 = match <#reply as #runtime::xdr::XdrType>::MAX_INLINE {
                    // What is declared without bound comes to more than a message can hold (RFC 8166 §3.4.3).
                    ::core::option::Option::Some(octets) if octets <= ::core::primitive::u32::MAX as u64 => octets,
                    _ => ::core::panic!(#message),
                };
            };
            (known, quote!(INLINE))
        }
    };
    let chunks = marks.chunks.clone().unwrap_or_default();
    let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    let checks = if marks.chunks.is_some() {
        // An item without a chunk comes inline, for which the maximum by the type has no room.
        let stated = marks.inline.is_some();
        let condition = quote! {
            ::core::option::Option::None => true,
            ::core::option::Option::Some(n) => #count == n || (#stated && #count < n),
        };
        let message = format!(
            "the result of `{method}` has another number of eligible items than chunks are given: 0 is for one that does \
             not come, and `inline` has to have room for those that have none"
        );
        vec![(condition, message)]
    } else {
        let known = quote!(::core::option::Option::None => false, _ => true);
        let of_itself = format!(
            "the result of `{method}` is of a type that holds itself, so how many DDP-eligible items it has is not known: \
             it needs #[reply_max(chunks = [])], where it has none"
        );
        let none = quote!(::core::option::Option::Some(1..) => false, _ => true);
        let message = format!(
            "the result of `{method}` holds DDP-eligible items: it needs #[reply_max(chunks = [OCTETS, ..])], a maximum \
             for each of them (RFC 8166 §6.2)"
        );
        vec![(known, of_itself), (none, message)]
    };
    let check: TokenStream = checks
        .into_iter()
        .map(|(condition, message)| {
            quote_spanned! {span=>
                const _: () = ::core::assert!(
                    match <#reply as #runtime::xdr::XdrType>::MAX_DDP_ITEMS { #condition },
                    #message
                );
            }
        })
        .collect();
    // The expressions see each argument by its name: numbers as they are, others as references.
    let names: Vec<&Ident> = params.iter().map(|param| &param.name).collect();
    let small: Vec<&Ident> = params.iter().filter(|param| param.small).map(|param| &param.name).collect();
    let bind = match params {
        [] => TokenStream::new(),
        [param] if param.small => quote!(#[allow(unused_variables)] let #(#names)* = *args;),
        [param] if param.name == "args" => TokenStream::new(),
        [_] => quote!(#[allow(unused_variables)] let #(#names)* = args;),
        _ => quote! {
            #[allow(unused_variables)]
            let (#(#names),*) = args;
            #(#[allow(unused_variables)] let #small = *#small;)*
        },
    };
    quote! {
        #check
        #known
        #bind
        #runtime::service::ReplyBounds::new(#inline, &[#(#chunks),*])
    }
}

fn is_scalar(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    ["bool", "i32", "u32", "i64", "u64", "f32", "f64"].iter().any(|scalar| path.path.is_ident(scalar))
}

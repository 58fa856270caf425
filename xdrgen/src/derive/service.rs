//! The attribute `#[service]`, which defines a program version as a trait.

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
    names::{LetterCase, Std, convert, ident},
    program::{Packing, Param, ProcedureModel, ProgramModule, Stubs},
};

/// The maximum number of arguments of a procedure. The runtime has codecs for tuples of up to this length.
const MAX_ARGUMENTS: usize = 8;

/// The arguments of the attribute: `program = N, version = N, name = "NAME", port = N, crate = PATH`.
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
                    let known = "`program`, `version`, `name`, `port` or `crate`";
                    return error(option.span(), &format!("unknown option `{option}`, expected {known}"));
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

/// The attributes of a procedure.
struct ProcedureAttributes {
    number: u32,
    idempotent: bool,
    inline: Option<Expr>,
    chunks: Option<Vec<Expr>>,
    /// The option `computed`, if it is given. The argument's implementation of `BoundsReply` then computes the bounds
    /// of the reply.
    computed: Option<Path>,
    /// The procedure's documentation, and the attributes that belong to other macros.
    others: Vec<Attribute>,
}

/// Expands the attribute `#[service]`.
///
/// # Errors
/// Returns an error with the position of the fault if the arguments or the trait are not valid. The errors of different
/// procedures are combined.
pub fn service(arguments: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments: ServiceArguments = syn::parse2(arguments)?;
    let item: ItemTrait = syn::parse2(item)?;
    if let Some(parameter) = item.generics.params.first() {
        return error(parameter.span(), "a service cannot have generic parameters");
    }
    let runtime = &arguments.runtime;
    let handler = &item.ident;
    let handler_name = handler.to_string().trim_start_matches("r#").to_owned();
    let module = ident(&convert(&handler_name, LetterCase::Snake));
    let name = arguments.name.clone().unwrap_or_else(|| handler_name.clone());
    let (mut procedures, mut numbers, mut errors) = (Vec::new(), std::collections::HashMap::new(), None);
    for member in &item.items {
        let lowered = match member {
            TraitItem::Fn(function) => lower(function, &handler_name, runtime),
            other => error(other.span(), "a service can contain only procedures"),
        };
        match lowered {
            Ok(procedure) => {
                if let Some(first) = numbers.insert(procedure.number, procedure.method.clone()) {
                    let message = format!("procedure number {} is already used by `{first}`", procedure.number);
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
        base: None,
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

/// Returns the tokens of `visibility` for code that is one module deeper.
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

/// Adds an error to the errors found so far.
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
        return error(signature.fn_token.span, "a procedure must be an `async fn`");
    }
    if let Some(parameter) = signature.generics.params.first() {
        return error(parameter.span(), "a procedure cannot have generic parameters");
    }
    let mut inputs = signature.inputs.iter();
    match inputs.next() {
        Some(FnArg::Receiver(receiver)) if matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) => {}
        other => {
            let span = other.map_or(signature.paren_token.span.join(), Spanned::span);
            return error(span, "the first parameter of a procedure must be `&self`");
        }
    }
    let context = match inputs.next() {
        Some(FnArg::Typed(context)) if matches!(&*context.ty, Type::Reference(_)) => context,
        other => {
            let span = other.map_or(signature.paren_token.span.join(), Spanned::span);
            return error(span, "the second parameter of a procedure must be `cx: &Context`");
        }
    };
    let mut params = Vec::new();
    for input in inputs {
        let FnArg::Typed(input) = input else { return error(input.span(), "an argument must have a name and a type") };
        let Pat::Ident(name) = &*input.pat else {
            return error(input.pat.span(), "the name of an argument must be an identifier");
        };
        params.push(Param { name: name.ident.clone(), ty: input.ty.to_token_stream(), small: is_scalar(&input.ty) });
    }
    if params.len() > MAX_ARGUMENTS {
        return error(
            params[MAX_ARGUMENTS].name.span(),
            "a procedure can have at most 8 arguments: combine them in a struct",
        );
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
    let bounds = match (&marks.computed, params.as_slice()) {
        (None, _) => bounds(runtime, &method_name, reply, &marks, &params),
        (Some(_), [param]) => {
            let span = param.ty.span();
            quote_spanned!(span=> #runtime::service::BoundsReply::reply_bounds(args))
        }
        (Some(computed), []) => return error(computed.span(), "there are no arguments to compute the bounds from"),
        (Some(computed), _) => {
            let message =
                "`computed` needs one argument, which implements `BoundsReply`: combine the arguments in a struct";
            return error(computed.span(), message);
        }
    };
    let marker_docs = format!(" The procedure [`{method_name}`](super::{service}::{method_name}).");
    Ok(ProcedureModel {
        xdr_name: method_name.clone(),
        origin: None,
        number: marks.number,
        marker: ident(&convert(&method_name, LetterCase::Camel)),
        method: signature.ident.clone(),
        method_with: format_ident!("{method_name}_with"),
        view: None,
        docs: quote!(#[doc = #marker_docs]),
        handler_docs: quote!(#(#others)*),
        client_docs,
        idempotent: marks.idempotent,
        computed: marks.computed.is_some(),
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

/// Parses the attributes of a procedure.
fn marks(function: &TraitItemFn) -> syn::Result<ProcedureAttributes> {
    let mut number = None;
    let mut marks = ProcedureAttributes {
        number: 0,
        idempotent: false,
        inline: None,
        chunks: None,
        computed: None,
        others: Vec::new(),
    };
    for attr in &function.attrs {
        if attr.path().is_ident("procedure") {
            let given: LitInt = attr.parse_args()?;
            if number.replace(given.base10_parse()?).is_some() {
                return error(attr.span(), "a procedure can have only one number");
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
                } else if meta.path.is_ident("computed") {
                    marks.computed = Some(meta.path);
                } else {
                    return Err(meta.error("unknown option, expected `inline = N`, `chunks = [N, ..]` or `computed`"));
                }
                Ok(())
            })?;
            if let Some(computed) = marks.computed.as_ref().filter(|_| marks.inline.is_some() || marks.chunks.is_some())
            {
                return error(computed.span(), "`computed` replaces `inline` and `chunks`");
            }
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

/// Returns the type `T` of `Result<T, HandlerError>`.
fn reply(output: &ReturnType) -> syn::Result<&Type> {
    let message = "a procedure must return `Result<REPLY, HandlerError>`";
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

/// Returns the method of the emitted trait, with the default body if the function has one. The method returns a future
/// instead of using `async`, so that the future is `Send`.
fn signature_of(function: &TraitItemFn, context: &syn::PatType) -> TokenStream {
    let signature = &function.sig;
    let name = &signature.ident;
    let ReturnType::Type(_, output) = &signature.output else { return TokenStream::new() };
    let context_name = match (&*context.pat, &function.default) {
        // Implementors should see a parameter name instead of `_`.
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

/// Returns the body of `reply_bounds`, with compile-time checks.
fn bounds(runtime: &Path, method: &str, reply: &Type, marks: &ProcedureAttributes, params: &[Param]) -> TokenStream {
    let span = reply.span();
    // Use constants, because rustc evaluates them even if the function is not used.
    let (known, inline) = match &marks.inline {
        Some(inline) => (TokenStream::new(), quote!(#inline)),
        None => {
            let message = format!(
                "the result of `{method}` has no maximum size: add #[reply_max(inline = BYTES)] (RFC 8166 §6.2)"
            );
            let known = quote_spanned! {span=>
                const INLINE: u64 = match <#reply as #runtime::xdr::XdrType>::MAX_INLINE {
                    // A result without a bound exceeds the maximum size of a message (RFC 8166 §3.4.3).
                    ::core::option::Option::Some(bytes) if bytes <= ::core::primitive::u32::MAX as u64 => bytes,
                    _ => ::core::panic!(#message),
                };
            };
            (known, quote!(INLINE))
        }
    };
    let chunks = marks.chunks.clone().unwrap_or_default();
    let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    let checks = if marks.chunks.is_some() {
        // An item without a chunk is sent inline. The maximum inline size of the type does not include it.
        let stated = marks.inline.is_some();
        let condition = quote! {
            ::core::option::Option::None => true,
            ::core::option::Option::Some(n) => #count == n || (#stated && #count < n),
        };
        let message = format!(
            "the number of `chunks` differs from the number of DDP-eligible items in the result of `{method}`: use 0 for \
             an item that is never sent, and include items without a chunk in `inline`"
        );
        vec![(condition, message)]
    } else {
        let known = quote!(::core::option::Option::None => false, _ => true);
        let recursive = format!(
            "the result of `{method}` has a recursive type, so the number of its DDP-eligible items is unknown: add \
             #[reply_max(chunks = [])] if it has none"
        );
        let none = quote!(::core::option::Option::Some(1..) => false, _ => true);
        let message = format!(
            "the result of `{method}` contains DDP-eligible items: add #[reply_max(chunks = [BYTES, ..])] with a \
             maximum for each of them (RFC 8166 §6.2)"
        );
        vec![(known, recursive), (none, message)]
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
    // The expressions refer to each argument by name: numbers by value, other types by reference.
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

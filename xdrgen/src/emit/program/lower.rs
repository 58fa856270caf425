//! Lowering of program versions from the IR to modules.

use std::{collections::HashMap, ops::Range};

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::module::{BaseTrait, Packing, Param, ProcedureModel, ProgramModule, ReplyView};
use crate::{
    emit::{
        codec::{Borrowed, WireForm},
        docs::Docs,
        expr::ArgumentNames,
        facts::{self, BoundsSource},
        layout::Layout,
        names::{LetterCase, NameScope, RustName, convert, ident},
        target::{FieldCodec, Generics, Target},
        view::View,
        xdr_text,
    },
    ir::{self, Base, Field, ItemKind, Type},
    resolve::sizes,
    ulb::DEFAULT_LIMIT,
};

/// Reserved names of a version module: its own constants, prelude names that markers must not shadow, and the names of
/// generic parameters, which would shadow a marker.
const RESERVED: [&str; 9] = ["PROGRAM", "VERSION", "PORT", "Ok", "Err", "Some", "None", "C", "T"];

/// A program version, with the Rust names of its module.
#[derive(Debug)]
pub(crate) struct NamedVersion<'a> {
    program: &'a ir::Program,
    version: &'a ir::Version,
    scope: NameScope,
    module: RustName,
    client: Ident,
    handler: Ident,
    server: Ident,
    /// The index of the base version among the versions of the program.
    base: Option<usize>,
    base_trait: Option<BaseTrait>,
    procedures: Vec<NamedProcedure<'a>>,
}

/// A procedure, with its Rust names.
#[derive(Debug)]
struct NamedProcedure<'a> {
    procedure: &'a ir::Procedure,
    marker: RustName,
    method: RustName,
    with: Ident,
    view: Ident,
    /// The procedure in the version that declares it. `None` if this version itself declares the procedure.
    origin: Option<ProcedureOrigin>,
}

/// The Rust names of a procedure in the version that declares it.
#[derive(Debug, Clone)]
struct ProcedureOrigin {
    /// The path of the module of the version that declares the procedure, as seen from the module of another version.
    module: TokenStream,
    handler: Ident,
    method: Ident,
    marker: Ident,
}

/// Reserved method names: a client's own methods, and methods of prelude traits on a client or on the `Arc` of a
/// handler. These would take precedence over the method of a procedure.
const METHODS: [&str; 9] = ["new", "channel", "clone", "drop", "into", "try_into", "to_owned", "as_ref", "as_mut"];

impl<'a> NamedVersion<'a> {
    /// Assigns Rust names to everything in `version`. The name of the module is unique in the scope `outer`.
    pub(crate) fn new(program: &'a ir::Program, version: &'a ir::Version, outer: &mut NameScope) -> Self {
        let module = outer.claim(&version.name.text, LetterCase::Snake);
        let mut scope = NameScope::reserving(&RESERVED);
        let handler = scope.claim_with(&version.name.text, LetterCase::Camel, &["Client", "Server"]).ident;
        let handler_text = handler.to_string();
        let mut methods = NameScope::reserving(&METHODS);
        let procedures = version
            .procedures
            .iter()
            .map(|procedure| {
                let method = methods.claim_with(&procedure.name.text, LetterCase::Snake, &["_with", "_view"]);
                let text = method
                    .instead_of
                    .as_ref()
                    .map_or_else(|| convert(&procedure.name.text, LetterCase::Snake), |_| method.ident.to_string());
                let marker = scope.claim_with(&procedure.name.text, LetterCase::Camel, &["Args", "Reply"]);
                let [with, view] = ["with", "view"].map(|suffix| ident(&format!("{text}_{suffix}")));
                NamedProcedure { procedure, marker, method, with, view, origin: None }
            })
            .collect();
        Self {
            program,
            version,
            scope,
            module,
            client: format_ident!("{handler_text}Client"),
            server: format_ident!("{handler_text}Server"),
            handler,
            base: version.base,
            base_trait: None,
            procedures,
        }
    }

    /// Returns the path of the module, as seen from the module of another version.
    fn path(&self) -> TokenStream {
        let module = &self.module.ident;
        quote!(super::#module)
    }
}

/// Connects the versions that take over procedures with the versions of the same program that declare these procedures.
pub(crate) fn link(versions: &mut [NamedVersion<'_>]) {
    if versions.iter().all(|version| version.base.is_none()) {
        return;
    }
    let mut declared = HashMap::new();
    for (index, version) in versions.iter().enumerate() {
        for NamedProcedure { procedure, method, marker, .. } in &version.procedures {
            let origin = ProcedureOrigin {
                module: version.path(),
                handler: version.handler.clone(),
                method: method.ident.clone(),
                marker: marker.ident.clone(),
            };
            declared.insert((index, procedure.number), origin);
        }
    }
    let base_trait = |version: &NamedVersion<'_>| {
        let (path, handler) = (version.path(), &version.handler);
        BaseTrait { version: version.version.name.text.clone(), path: quote!(#path::#handler) }
    };
    let traits: Vec<BaseTrait> = versions.iter().map(base_trait).collect();
    for version in versions {
        version.base_trait = version.base.and_then(|base| traits.get(base).cloned());
        for NamedProcedure { procedure, origin, .. } in &mut version.procedures {
            *origin = procedure.declared_in.and_then(|index| declared.get(&(index, procedure.number)).cloned());
        }
    }
}

/// Lowers a version to a module.
///
/// If `range` is given, the module contains only the procedures with these indices, and [`ProgramModule::pieces`] cuts
/// its text. The code that belongs to no procedure is complete only if the range begins with 0. Without `range`, the
/// module is complete.
pub(crate) fn lower<'a>(
    layout: &'a Layout<'a>,
    names: &'a NamedVersion<'_>,
    range: Option<Range<usize>>,
) -> ProgramModule<'a> {
    let NamedVersion { program, version, .. } = names;
    let view = layout.nested_view(&names.scope);
    let mut docs =
        Docs::new(&version.doc, &format!("Program `{}`, version `{}`.", program.name.text, version.name.text));
    if version.doc.is_empty() {
        docs.comment(&program.doc);
    }
    docs.rename(&version.name.text, &names.module);
    let is_cut = range.is_some();
    // Of the modules that are cut, the first provides the code that does not belong to a procedure.
    let is_first = range.as_ref().is_none_or(|range| range.start == 0);
    let chosen = range.and_then(|range| names.procedures.get(range)).unwrap_or(&names.procedures);
    let procedures = chosen.iter().map(|procedure| lower_procedure(&view, procedure)).collect();
    let many_chunks = is_first && version.procedures.iter().any(|procedure| has_many_chunks(layout.spec, procedure));
    ProgramModule {
        runtime: layout.runtime.clone(),
        std: view.names(),
        name: names.module.ident.clone(),
        outside: false,
        visibility: quote!(pub),
        inner_visibility: quote!(pub),
        docs: docs.attributes(),
        program: program.name.text.clone(),
        version: version.name.text.clone(),
        program_number: program.number,
        version_number: version.number,
        port: program.port,
        client: names.client.clone(),
        handler: names.handler.clone(),
        base: names.base_trait.clone(),
        handler_docs: None,
        server: names.server.clone(),
        procedures,
        many_chunks: many_chunks
            .then(|| names.procedures.iter().map(|procedure| procedure.marker.ident.clone()).collect()),
        is_cut,
    }
}

fn has_many_chunks(spec: &ir::Spec, procedure: &ir::Procedure) -> bool {
    let items = |fields: &[Field]| {
        fields.iter().filter_map(|field| sizes::field(spec, field).max_ddp_items).fold(0, u32::saturating_add)
    };
    items(&procedure.args).max(items(procedure.result.as_slice())) > DEFAULT_LIMIT
}

fn lower_procedure(view: &View<'_>, names: &NamedProcedure<'_>) -> ProcedureModel {
    let procedure = names.procedure;
    let marker = names.marker.ident.clone();
    let mut docs = Docs::new(&procedure.doc, &format!("The procedure `{}`.", procedure.name.text));
    docs.rename(&procedure.name.text, &names.method);
    let docs_short = docs.attributes();
    docs.xdr(&procedure.text);

    let mut own = OwnTypes { view, declarations: Vec::new(), codecs: Vec::new() };
    // Reserve the variables of the generated methods.
    let mut scope = NameScope::reserving(&["self", "cx", "options", "args", "call", "handler", "result", "look"]);
    let single = procedure.args.len() == 1;
    let params: Vec<Param> = procedure
        .args
        .iter()
        .map(|arg| {
            let name = if single { ident("args") } else { scope.claim(&arg.name.text, LetterCase::Snake).ident };
            Param { name, ty: view.slot(arg).ty, small: is_small(view, &arg.ty) }
        })
        .collect();
    let (packing, args) = match procedure.args.as_slice() {
        [] => (Packing::Void, quote!(())),
        [arg] if is_plain(view, arg) => (Packing::Single, view.slot(arg).ty),
        args => {
            let members = args.iter().zip(&params).map(|(field, param)| Member { name: param.name.clone(), field });
            let docs = format!("The arguments of `{}`.", procedure.name.text);
            (Packing::Struct, own.declare(names, "Args", &docs, members))
        }
    };
    let reply = match &procedure.result {
        None => quote!(()),
        Some(result) if is_plain(view, result) => view.slot(result).ty,
        Some(result) => {
            let docs = format!("The result of `{}`.", procedure.name.text);
            own.declare(names, "Reply", &docs, std::iter::once(Member { name: ident("value"), field: result }))
        }
    };

    let reply_view = procedure.result.as_ref().filter(|result| is_plain(view, result)).and_then(|result| {
        let slot = view.borrowed().slot(result);
        let method = names.view.clone();
        match slot.borrowed {
            // A plain byte view has no generated borrowed type.
            None | Some(Borrowed::View) => None,
            Some(Borrowed::Value) if matches!(slot.wire, WireForm::Plain) => {
                Some(ReplyView { method, ty: slot.ty, read: quote!(let result = decoder.read_ref()?;) })
            }
            // `Option`, `Vec` and `NonEmpty` have no borrowed form. Codec functions decode their contents.
            Some(_) => {
                let (runtime, read) = (&view.layout().runtime, slot.read());
                Some(ReplyView { method, ty: slot.ty, read: quote!(use #runtime::xdr; let result = #read?;) })
            }
        }
    });

    let places: Vec<TokenStream> = match packing {
        Packing::Single if is_scalar(view, &procedure.args[0].ty) => vec![quote!(*args)],
        Packing::Single => vec![quote!(args)],
        _ => params.iter().map(|param| &param.name).map(|name| quote!(args.#name)).collect(),
    };
    let arguments = ArgumentNames { layout: view.layout(), args: &procedure.args, places: &places };
    let service = view.names().module(&view.layout().runtime, "service");
    let bounds = if procedure.bounds.computed {
        quote!(#service::BoundsReply::reply_bounds(args))
    } else {
        reply_bounds(&service, &arguments, &procedure.bounds)
    };
    let origin =
        names.origin.as_ref().map(|ProcedureOrigin { module, handler, method, .. }| quote!(#module::#handler::#method));
    ProcedureModel {
        xdr_name: procedure.name.text.clone(),
        origin,
        number: procedure.number,
        marker,
        method: names.method.ident.clone(),
        method_with: names.with.clone(),
        view: reply_view,
        docs: docs_short.clone(),
        handler_docs: docs_short,
        client_docs: docs.attributes(),
        idempotent: procedure.idempotent,
        computed: procedure.bounds.computed,
        args,
        params,
        packing,
        reply,
        declarations: own.declarations,
        codecs: own.codecs,
        bounds,
        signature: None,
    }
}

/// Returns the expression for the bounds of a reply.
fn reply_bounds(service: &TokenStream, arguments: &ArgumentNames<'_>, bounds: &ir::ReplyBounds) -> TokenStream {
    let lens = |run: &ir::ChunkRun| {
        let lens = run.items.iter().map(|(_, max)| arguments.emit(max));
        quote!(&[#(#lens),*])
    };
    let (first, others) = match bounds.chunks.split_first() {
        Some((first, others)) if first.count.is_none() => (lens(first), others),
        _ => (quote!(&[]), bounds.chunks.as_slice()),
    };
    let inline = arguments.emit(&bounds.inline);
    let others = others.iter().map(|run| {
        let (count, lens) = (run.count.as_ref().map_or(quote!(1), |count| arguments.emit(count)), lens(run));
        quote!(.and_chunks(#count, #lens))
    });
    let total = bounds.total.iter().map(|total| {
        let total = arguments.emit(total);
        quote!(.within(#total))
    });
    quote!(#service::ReplyBounds::new(#inline, #first) #(#others)* #(#total)*)
}

/// Returns the name of a marker without the prefix `r#` of raw identifiers.
fn convert_marker(marker: &Ident) -> String {
    marker.to_string().trim_start_matches("r#").to_owned()
}

/// Returns `true` if the codec of the field's Rust type encodes the field, and the field is not DDP-eligible.
fn is_plain(view: &View<'_>, field: &Field) -> bool {
    let slot = view.slot(field);
    let unbounded = matches!(field.ty, Type::Opaque(u32::MAX) | Type::String(u32::MAX) | Type::Array(_, u32::MAX));
    !slot.ddp && (unbounded || matches!(slot.wire, WireForm::Plain))
}

fn is_scalar(view: &View<'_>, ty: &Type) -> bool {
    matches!(ty, Type::Base(base) if !matches!(view.layout().resolve(*base), Base::Item(_)) || is_small(view, ty))
}

/// Returns `true` if values of the type are small enough to be passed by value.
fn is_small(view: &View<'_>, ty: &Type) -> bool {
    let Type::Base(base) = ty else { return false };
    match view.layout().resolve(*base) {
        Base::Item(id) => matches!(view.layout().item(id).kind, ItemKind::Enum(_)),
        Base::Quadruple => false,
        _ => true,
    }
}

/// A member of a generated type: an argument or the result.
struct Member<'a> {
    name: Ident,
    field: &'a Field,
}

/// The types that are generated for a procedure.
struct OwnTypes<'a> {
    view: &'a View<'a>,
    declarations: Vec<TokenStream>,
    codecs: Vec<TokenStream>,
}

impl OwnTypes<'_> {
    /// Declares a struct whose encoding is the sequence of its members, unless another version declares it. Returns the
    /// path of the struct. Its name is the name of the procedure's marker followed by `suffix`.
    fn declare<'f>(
        &mut self,
        names: &NamedProcedure<'_>,
        suffix: &str,
        docs: &str,
        members: impl Iterator<Item = Member<'f>>,
    ) -> TokenStream {
        if let Some(ProcedureOrigin { module, marker, .. }) = &names.origin {
            let name = format_ident!("{}{suffix}", convert_marker(marker));
            return quote!(#module::#name);
        }
        let name = &format_ident!("{}{suffix}", convert_marker(&names.marker.ident));
        let layout = self.view.layout();
        let (mut declared, mut codecs) = (Vec::new(), Vec::new());
        for Member { name, field } in members {
            let slot = self.view.slot(field);
            let docs = Docs::new(&field.doc, &format!("`{}`", xdr_text::declaration(layout.spec, field))).attributes();
            let ty = &slot.ty;
            declared.push(quote!(#docs pub #name: #ty));
            codecs.push(FieldCodec { member: quote!(#name), name: field.name.text.clone(), slot });
        }
        let docs = Docs::new(&[], docs).attributes();
        self.declarations.push(quote! {
            #docs
            #[derive(Debug, Clone, PartialEq)]
            pub struct #name { #(#declared),* }
        });
        let text = convert(&name.to_string(), LetterCase::Camel);
        let target = Target {
            ty: quote!(#name),
            name: &text,
            generics: Generics::default(),
            std: self.view.names(),
            recursive: false,
            borrowed_of: None,
            union: false,
        };
        let facts = facts::sequence(codecs.iter().map(|codec| facts::of(&codec.slot)));
        self.codecs.push(target.impl_type(&BoundsSource::Composed(facts)));
        self.codecs.push(target.encode_struct(&codecs));
        self.codecs.push(target.decode_struct(&codecs, true));
        quote!(#name)
    }
}

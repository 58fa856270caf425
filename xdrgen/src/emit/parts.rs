//! Generation of the text in parts. Several threads emit and print parts in parallel. The output does not depend on the
//! number of threads.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};

use super::{
    format,
    layout::Layout,
    options::{Borrow, EmitError, EmitOptions},
    program::{self, NamedVersion, ProgramModule, Stubs},
    target::codec_block,
    types::{
        self, Emitted,
        long_struct::{FIELDS_PER_PIECE, LongStruct, pieces},
    },
};
use crate::ir::{Item, ItemId, ItemKind, Spec};

/// Maximum number of items in a part. It is large enough that the fixed cost of a part does not matter.
const ITEMS_PER_PART: usize = 24;

/// Maximum number of procedures in a part. A version with more procedures is printed in pieces. The tokens and the
/// syntax tree of a procedure take about 100 kilobytes, so not all procedures should be in memory at the same time.
const PROCEDURES_PER_PART: usize = 64;

/// The maximum number of threads. More threads do not reduce the run time.
const MAX_THREADS: usize = 8;

/// The texts of one part, divided into pieces.
///
/// If other parts continue this part, each of their pieces with an odd index is appended to the piece of this part with
/// that index.
#[derive(Debug, Default)]
struct PrintedPart {
    declarations: Vec<String>,
    /// `true` if the declarations of this part, or of an earlier part of the same thread, use names of the runtime's
    /// `xdr::prelude`.
    imports: bool,
    /// The contents of the codec scope.
    codecs: Vec<String>,
}

/// A part of a specification. A thread generates one part at a time.
#[derive(Debug, Clone)]
enum Part {
    Items(Range<usize>),
    /// A piece of a long struct: the index of the struct among all long structs, and the index of the piece.
    Fields(usize, usize),
    /// The version with this index among all versions. A version with many procedures has several parts, each with a
    /// range of its procedures.
    Version(usize, Option<Range<usize>>),
}

impl Part {
    /// Returns `true` if the part continues the previous part.
    fn is_continuation(&self) -> bool {
        match self {
            Self::Items(_) => false,
            Self::Fields(_, piece) => *piece > 0,
            Self::Version(_, range) => range.as_ref().is_some_and(|range| range.start > 0),
        }
    }
}

/// Divides a range of items into parts.
fn parts_of_items(items: Range<usize>) -> impl Iterator<Item = Part> {
    let starts = items.clone().step_by(ITEMS_PER_PART);
    starts.map(move |start| Part::Items(start..items.end.min(start + ITEMS_PER_PART)))
}

/// Returns the plans for dividing the structs with more than `per_piece` fields.
fn long_structs(spec: &Spec, options: &EmitOptions, per_piece: usize) -> Vec<LongStruct> {
    let is_long = |item: &Item| matches!(&item.kind, ItemKind::Struct { fields, .. } if fields.len() > per_piece);
    if !spec.items.iter().any(is_long) {
        return Vec::new();
    }
    let (layout, _) = named(spec, options);
    (0..spec.items.len()).filter_map(|index| LongStruct::plan(&layout, ItemId(index), options, per_piece)).collect()
}

/// Returns the parts of the version with the index `index`, which has `procedures` procedures.
fn parts_of(index: usize, procedures: usize) -> Vec<Part> {
    if procedures <= PROCEDURES_PER_PART {
        return vec![Part::Version(index, None)];
    }
    let starts = (0..procedures).step_by(PROCEDURES_PER_PART);
    starts.map(|start| Part::Version(index, Some(start..procedures.min(start + PROCEDURES_PER_PART)))).collect()
}

/// Returns the body of the generated file.
pub(super) fn print(spec: &Spec, options: &EmitOptions) -> Result<String, EmitError> {
    print_with(spec, options, FIELDS_PER_PIECE)
}

/// Returns the body of the generated file. Structs with more than `per_piece` fields are printed in pieces.
pub(super) fn print_with(spec: &Spec, options: &EmitOptions, per_piece: usize) -> Result<String, EmitError> {
    let long = long_structs(spec, options, per_piece);
    let (mut items, mut start) = (Vec::new(), 0);
    for (index, plan) in long.iter().enumerate() {
        items.extend(parts_of_items(start..plan.id().0));
        items.extend((0..plan.len()).map(|piece| Part::Fields(index, piece)));
        start = plan.id().0 + 1;
    }
    items.extend(parts_of_items(start..spec.items.len()));
    let versions = spec.programs.iter().flat_map(|program| &program.versions).enumerate();
    let versions = versions.flat_map(|(index, version)| parts_of(index, version.procedures.len()));
    let parts: Vec<Part> = items.into_iter().chain(versions).collect();

    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<PrintedPart, EmitError>)>> = Mutex::new(Vec::with_capacity(parts.len()));
    let work = |options: &EmitOptions| {
        let mut worker = None;
        while let Some((index, part)) = take(&next, &parts) {
            let worker = worker.get_or_insert_with(|| Worker::new(spec, options, &long));
            let printed = worker.print(part);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, printed));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(parts.len());
    let portable = SendableOptions::of(options);
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, the current one does all the work.
            let _ = thread::Builder::new().spawn_scoped(scope, || work(&portable.options()));
        }
        work(options);
    });

    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    let (mut body, mut codecs, mut imports) = (String::new(), String::new(), false);
    // The pieces of parts that are not yet complete.
    let (mut open_body, mut open_codecs) = (Vec::new(), Vec::new());
    for (index, printed) in done {
        let printed = printed?;
        imports |= printed.imports;
        grow(&mut open_body, printed.declarations);
        grow(&mut open_codecs, printed.codecs);
        if !parts.get(index + 1).is_some_and(Part::is_continuation) {
            body.extend(open_body.drain(..));
            codecs.extend(open_codecs.drain(..));
        }
    }
    if !codecs.is_empty() {
        let (head, tail) = scope(options)?;
        body.push_str(&head);
        body.push_str(&codecs);
        body.push_str(&tail);
    }
    let head = if imports { format::print(prelude(options))? } else { String::new() };
    Ok(format::space(&(head + &body)))
}

/// Adds the pieces of a part to `open`. If `open` is not empty, it contains the pieces of the parts that this part
/// continues.
fn grow(open: &mut Vec<String>, pieces: Vec<String>) {
    if open.is_empty() {
        *open = pieces;
    } else {
        open.iter_mut().zip(&pieces).skip(1).step_by(2).for_each(|(piece, more)| piece.push_str(more));
    }
}

/// Returns the import of the names that the generated types use. It is a glob import, so that a name in the including
/// code takes precedence.
pub(super) fn prelude(options: &EmitOptions) -> TokenStream {
    let runtime = &options.runtime;
    quote! {
        #[allow(unused_imports)]
        use #runtime::xdr::prelude::*;
    }
}

fn take<'p>(next: &AtomicUsize, parts: &'p [Part]) -> Option<(usize, &'p Part)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    parts.get(index).map(|part| (index, part))
}

/// Assigns Rust names to the items and to the version modules. Applies the option for borrowed forms.
pub(super) fn named<'a>(spec: &'a Spec, options: &EmitOptions) -> (Layout<'a>, Vec<NamedVersion<'a>>) {
    let runtime = &options.runtime;
    let mut layout = Layout::new(spec, quote!(#runtime), options.absolute_paths);
    let mut versions = Vec::new();
    for program in &spec.programs {
        let named = program.versions.iter().map(|version| NamedVersion::new(program, version, &mut layout.scope));
        let mut named: Vec<NamedVersion<'_>> = named.collect();
        program::link(&mut named);
        versions.extend(named);
    }
    match &options.borrowed {
        Borrow::Nothing => {}
        Borrow::Types(names) => layout.borrow(|item| names.contains(&item.name.text)),
        Borrow::All => layout.borrow(|_| true),
    }
    (layout, versions)
}

/// The options with paths as text, to send them to another thread. Tokens are not `Send`.
struct SendableOptions {
    runtime: String,
    derives: Vec<String>,
    derives_for: Vec<(String, String)>,
    client: bool,
    server: bool,
    absolute_paths: bool,
    borrowed: Borrow,
    open: Vec<String>,
}

impl SendableOptions {
    fn of(options: &EmitOptions) -> Self {
        // `source` is used only in the header of the file.
        let EmitOptions { runtime, derives, derives_for, client, server, absolute_paths, source: _, borrowed, open } =
            options;
        let text = |path: &syn::Path| path.to_token_stream().to_string();
        Self {
            runtime: text(runtime),
            derives: derives.iter().map(text).collect(),
            derives_for: derives_for.iter().map(|(name, path)| (name.clone(), text(path))).collect(),
            client: *client,
            server: *server,
            absolute_paths: *absolute_paths,
            borrowed: borrowed.clone(),
            open: open.clone(),
        }
    }

    fn options(&self) -> EmitOptions {
        let path = |text: &String| syn::parse_str(text).expect("text of a path parses as a path");
        EmitOptions {
            runtime: path(&self.runtime),
            derives: self.derives.iter().map(path).collect(),
            derives_for: self.derives_for.iter().map(|(name, text)| (name.clone(), path(text))).collect(),
            client: self.client,
            server: self.server,
            absolute_paths: self.absolute_paths,
            source: None,
            borrowed: self.borrowed.clone(),
            open: self.open.clone(),
        }
    }
}

/// The state of a thread that prints parts.
struct Worker<'a> {
    options: &'a EmitOptions,
    layout: Layout<'a>,
    versions: Vec<NamedVersion<'a>>,
    long: &'a [LongStruct],
}

impl<'a> Worker<'a> {
    fn new(spec: &'a Spec, options: &'a EmitOptions, long: &'a [LongStruct]) -> Self {
        let (layout, versions) = named(spec, options);
        Self { options, layout, versions, long }
    }

    fn print(&self, part: &Part) -> Result<PrintedPart, EmitError> {
        match part {
            Part::Items(range) => {
                let emitted = types::emit_all(&self.layout, range.clone().map(ItemId), self.options);
                let (declarations, codecs) = self.print_emitted(emitted)?;
                let imports = self.layout.scope.imports_prelude();
                Ok(PrintedPart { declarations: vec![declarations], imports, codecs: vec![codecs] })
            }
            Part::Fields(index, piece) => {
                let Some(plan) = self.long.get(*index) else { return Ok(PrintedPart::default()) };
                let (declarations, codecs) = self.print_emitted(plan.emit(&self.layout, *piece, self.options))?;
                let imports = self.layout.scope.imports_prelude();
                Ok(PrintedPart { declarations: pieces(&declarations), imports, codecs: pieces(&codecs) })
            }
            Part::Version(index, range) => {
                let Some(version) = self.versions.get(*index) else { return Ok(PrintedPart::default()) };
                let module = program::lower(&self.layout, version, range.clone()).emit(Stubs::of(self.options));
                let text = format::print(module)?;
                let declarations = if range.is_some() { ProgramModule::pieces(&text) } else { vec![text] };
                Ok(PrintedPart { declarations, ..PrintedPart::default() })
            }
        }
    }

    /// Prints emitted code. Returns the text of its declarations and the text of its codecs.
    fn print_emitted(&self, emitted: Emitted) -> Result<(String, String), EmitError> {
        let declarations = format::print(emitted.declaration.into_iter().collect())?;
        Ok((declarations, self.codecs(emitted.codec)?))
    }

    /// Returns the contents of the codec scope, without its opening and closing lines.
    fn codecs(&self, codecs: Vec<TokenStream>) -> Result<String, EmitError> {
        if codecs.is_empty() {
            return Ok(String::new());
        }
        let text = format::print(codec_block(&self.layout.runtime, codecs))?;
        let (head, tail) = scope(self.options)?;
        let within = text.strip_prefix(&head).and_then(|text| text.strip_suffix(&tail));
        // Otherwise the codecs get their own scope, which has the same meaning.
        Ok(within.map(str::to_owned).unwrap_or(text))
    }
}

/// Returns the opening and closing lines of the codec scope.
fn scope(options: &EmitOptions) -> Result<(String, String), EmitError> {
    let runtime = &options.runtime;
    let empty = format::print(quote! { const _: () = { use #runtime::xdr; }; })?;
    let tail = "};\n";
    let head = empty.strip_suffix(tail).unwrap_or(&empty).to_owned();
    Ok((head, tail.to_owned()))
}

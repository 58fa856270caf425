//! The generated text in parts: each is emitted and printed by itself, on as many threads as there are processors.
//! What comes out does not depend on how many they are.

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
    program::{self, Named, ProgramModule, Stubs},
    target::codec_block,
    types,
};
use crate::ir::{ItemId, Spec};

/// Items in a part: enough that what every part begins with is small beside it.
const ITEMS: usize = 24;

/// Procedures in a part. A version of more is printed in pieces: tokens and syntax tree of a procedure take 100 kilobytes, and
/// those of all need not be in memory at the same time.
const PROCEDURES: usize = 64;

/// Threads that are worth their start.
const MOST_THREADS: usize = 8;

/// What one part comes to, as text.
#[derive(Debug, Default)]
struct PrintedPart {
    declarations: String,
    /// Whether they name what the runtime's `xdr::prelude` has.
    imports: bool,
    /// What stands within the scope of the codecs.
    codecs: String,
    /// The pieces of a version's module.
    pieces: Vec<String>,
}

/// A piece of the work.
#[derive(Debug, Clone)]
enum Part {
    Items(Range<usize>),
    /// The `n`th version of all; of one with many procedures, a range of them.
    Version(usize, Option<Range<usize>>),
}

/// The parts of a version.
fn parts_of(index: usize, procedures: usize) -> Vec<Part> {
    if procedures <= PROCEDURES {
        return vec![Part::Version(index, None)];
    }
    let starts = (0..procedures).step_by(PROCEDURES);
    starts.map(|start| Part::Version(index, Some(start..procedures.min(start + PROCEDURES)))).collect()
}

/// The body of the generated file.
pub(super) fn print(spec: &Spec, options: &EmitOptions) -> Result<String, EmitError> {
    let starts = (0..spec.items.len()).step_by(ITEMS);
    let items = starts.map(|start| Part::Items(start..spec.items.len().min(start + ITEMS)));
    let versions = spec.programs.iter().flat_map(|program| &program.versions).enumerate();
    let versions = versions.flat_map(|(index, version)| parts_of(index, version.procedures.len()));
    let parts: Vec<Part> = items.chain(versions).collect();

    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<PrintedPart, EmitError>)>> = Mutex::new(Vec::with_capacity(parts.len()));
    let work = |options: &EmitOptions| {
        let mut worker = None;
        while let Some((index, part)) = take(&next, &parts) {
            let worker = worker.get_or_insert_with(|| Worker::new(spec, options));
            let printed = worker.print(part);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, printed));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(parts.len());
    let portable = SendableOptions::of(options);
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without another thread this one does it all.
            let _ = thread::Builder::new().spawn_scoped(scope, || work(&portable.options()));
        }
        work(options);
    });

    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    let (mut body, mut codecs, mut imports) = (String::new(), String::new(), false);
    // The module of a version of which all parts have not been seen, in pieces.
    let mut module: Vec<String> = Vec::new();
    for (index, printed) in done {
        let PrintedPart { declarations, imports: needed, codecs: these, pieces } = printed?;
        imports |= needed;
        body.push_str(&declarations);
        codecs.push_str(&these);
        if module.is_empty() {
            module = pieces;
        } else {
            let grown = module.iter_mut().zip(&pieces).skip(1).step_by(2);
            grown.for_each(|(piece, more)| piece.push_str(more));
        }
        if !matches!(parts.get(index + 1), Some(Part::Version(_, Some(range))) if range.start > 0) {
            body.extend(module.drain(..));
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

/// The import of names for what the generated types are made of. By a glob, so that one of the same name wins where the code
/// is included.
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

/// Everything named: the items, and what stands beside the modules of versions.
pub(super) fn named<'a>(spec: &'a Spec, options: &EmitOptions) -> (Layout<'a>, Vec<Named<'a>>) {
    let runtime = &options.runtime;
    let mut layout = Layout::new(spec, quote!(#runtime), options.absolute_paths);
    let mut versions = Vec::new();
    for program in &spec.programs {
        versions.extend(program.versions.iter().map(|version| Named::new(program, version, &mut layout.scope)));
    }
    layout.open(&options.open);
    match &options.borrowed {
        Borrow::Nothing => {}
        Borrow::Types(names) => layout.borrow(|item| names.contains(&item.name.text)),
        Borrow::All => layout.borrow(|_| true),
    }
    (layout, versions)
}

/// The options as another thread can have them: tokens cannot leave the one that made them.
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
        // `source` is of the head of the file.
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
        let path = |text: &String| syn::parse_str(text).expect("it was a path");
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

/// What a thread prints parts with.
struct Worker<'a> {
    options: &'a EmitOptions,
    layout: Layout<'a>,
    versions: Vec<Named<'a>>,
}

impl<'a> Worker<'a> {
    fn new(spec: &'a Spec, options: &'a EmitOptions) -> Self {
        let (layout, versions) = named(spec, options);
        Self { options, layout, versions }
    }

    fn print(&self, part: &Part) -> Result<PrintedPart, EmitError> {
        match part {
            Part::Items(range) => {
                let types::Emitted { declaration, codec } =
                    types::emit_all(&self.layout, range.clone().map(ItemId), self.options);
                let declarations = format::print(declaration.into_iter().collect())?;
                let imports = self.layout.scope.imports_prelude();
                Ok(PrintedPart { declarations, imports, codecs: self.codecs(codec)?, pieces: Vec::new() })
            }
            Part::Version(index, range) => {
                let Some(version) = self.versions.get(*index) else { return Ok(PrintedPart::default()) };
                let module = program::lower(&self.layout, version, range.clone()).emit(Stubs::of(self.options));
                let text = format::print(module)?;
                Ok(match range {
                    None => PrintedPart { declarations: text, ..PrintedPart::default() },
                    Some(_) => PrintedPart { pieces: ProgramModule::pieces(&text), ..PrintedPart::default() },
                })
            }
        }
    }

    /// Codecs as they stand within their scope, without what opens and closes it.
    fn codecs(&self, codecs: Vec<TokenStream>) -> Result<String, EmitError> {
        if codecs.is_empty() {
            return Ok(String::new());
        }
        let text = format::print(codec_block(&self.layout.runtime, codecs))?;
        let (head, tail) = scope(self.options)?;
        let within = text.strip_prefix(&head).and_then(|text| text.strip_suffix(&tail));
        // Otherwise it is a scope of its own, which means the same.
        Ok(within.map_or(text.clone(), str::to_owned))
    }
}

/// How the scope of the codecs opens and closes.
fn scope(options: &EmitOptions) -> Result<(String, String), EmitError> {
    let runtime = &options.runtime;
    let empty = format::print(quote! { const _: () = { use #runtime::xdr; }; })?;
    let tail = "};\n";
    let head = empty.strip_suffix(tail).unwrap_or(&empty).to_owned();
    Ok((head, tail.to_owned()))
}

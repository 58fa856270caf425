//! Generation of the text in parts. Parts are emitted and printed in parallel, on as many threads as there are processors.
//! The output does not depend on the number of threads.

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
    types,
};
use crate::ir::{ItemId, Spec};

/// The number of items in a part. It is large enough that the fixed cost of a part does not matter.
const ITEMS_PER_PART: usize = 24;

/// The number of procedures in a part. A version with more procedures is printed in pieces. The tokens and the syntax tree of a
/// procedure take about 100 kilobytes, so that all procedures should not be in memory at the same time.
const PROCEDURES_PER_PART: usize = 64;

/// The maximum number of threads. More threads do not reduce the run time.
const MAX_THREADS: usize = 8;

/// The text of one part.
#[derive(Debug, Default)]
struct PrintedPart {
    declarations: String,
    /// `true` if the declarations use names of the runtime's `xdr::prelude`.
    imports: bool,
    /// The contents of the codec scope.
    codecs: String,
    /// The pieces of a version module.
    pieces: Vec<String>,
}

/// A unit of work.
#[derive(Debug, Clone)]
enum Part {
    Items(Range<usize>),
    /// The version with this index among all versions. If it has many procedures, a range of them.
    Version(usize, Option<Range<usize>>),
}

/// Returns the parts of a version.
fn parts_of(index: usize, procedures: usize) -> Vec<Part> {
    if procedures <= PROCEDURES_PER_PART {
        return vec![Part::Version(index, None)];
    }
    let starts = (0..procedures).step_by(PROCEDURES_PER_PART);
    starts.map(|start| Part::Version(index, Some(start..procedures.min(start + PROCEDURES_PER_PART)))).collect()
}

/// Returns the body of the generated file.
pub(super) fn print(spec: &Spec, options: &EmitOptions) -> Result<String, EmitError> {
    let starts = (0..spec.items.len()).step_by(ITEMS_PER_PART);
    let items = starts.map(|start| Part::Items(start..spec.items.len().min(start + ITEMS_PER_PART)));
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
    // The pieces of a version module whose parts are not yet complete.
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

/// Returns the import of the names that the generated types use. It is a glob import, so that a name in the including code takes
/// precedence.
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

/// Assigns Rust names to the items and to the version modules.
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
    layout.open(&options.open);
    match &options.borrowed {
        Borrow::Nothing => {}
        Borrow::Types(names) => layout.borrow(|item| names.contains(&item.name.text)),
        Borrow::All => layout.borrow(|_| true),
    }
    (layout, versions)
}

/// The options in a form that can be sent to another thread. Tokens are not `Send`.
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

    /// Returns the contents of the codec scope, without its opening and closing lines.
    fn codecs(&self, codecs: Vec<TokenStream>) -> Result<String, EmitError> {
        if codecs.is_empty() {
            return Ok(String::new());
        }
        let text = format::print(codec_block(&self.layout.runtime, codecs))?;
        let (head, tail) = scope(self.options)?;
        let within = text.strip_prefix(&head).and_then(|text| text.strip_suffix(&tail));
        // Otherwise the codecs get their own scope, which has the same meaning.
        Ok(within.map_or(text.clone(), str::to_owned))
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

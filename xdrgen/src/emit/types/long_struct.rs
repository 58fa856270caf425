//! Structs with many fields, which are emitted in pieces.
//!
//! The tokens and the syntax tree of a field take about 15 kilobytes, so not all fields should be in memory at the same
//! time. A piece is the declaration and the codec of the struct with some of its fields. [`pieces`] cuts its text.

use std::ops::Range;

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{Emitted, Emitter, emitter};
use crate::{
    emit::{
        codec::{Len, WriteCode, number},
        layout::Layout,
        names::{LetterCase, NameScope, RustName, ident},
        options::EmitOptions,
        target::{FieldCodec, Target},
        words,
    },
    ir::{Field, ItemId, ItemKind},
};

/// Minimum number of fields in a piece, except for the last piece. A struct with at most this number of fields is
/// emitted as a whole.
pub(in crate::emit) const FIELDS_PER_PIECE: usize = 512;

/// The name that marks the lines at which [`pieces`] cuts. It fills a line, so that the printer breaks every list that
/// contains it.
const CUT: &str =
    "__xdrgen_cut________________________________________________________________________________________________";

/// The plan for emitting a struct in pieces. It has the facts about all fields that each piece needs.
#[derive(Debug)]
pub(in crate::emit) struct LongStruct {
    id: ItemId,
    /// The Rust name of each field, and the plain name that it replaces because of a collision, if any.
    names: Vec<(String, Option<String>)>,
    pieces: Vec<Piece>,
    /// The fixed part of the length of the encoding, in bytes.
    fixed_len: u64,
    /// The indices of the fields whose encodings have a variable length.
    variable: Vec<usize>,
    /// `true` if adjacent fields are encoded together.
    has_runs: bool,
    /// `true` if the last field is encoded by its own codec. If `false`, it is in a run.
    last_is_alone: bool,
}

#[derive(Debug)]
struct Piece {
    fields: Range<usize>,
    /// Number of runs in the pieces before this one.
    first_run: usize,
}

impl LongStruct {
    /// Returns the plan for a struct. Returns `None` if the item must be emitted as a whole, for example because it is
    /// not a struct, has at most `per_piece` fields, or has a borrowed form.
    pub(in crate::emit) fn plan(
        layout: &Layout<'_>,
        id: ItemId,
        options: &EmitOptions,
        per_piece: usize,
    ) -> Option<Self> {
        let ItemKind::Struct { fields, .. } = &layout.item(id).kind else { return None };
        if fields.len() <= per_piece || layout.ref_name(id).is_some() {
            return None;
        }
        let emitter = emitter(layout, id, options);
        let mut scope = NameScope::default();
        let (mut names, mut lengths, mut variable, mut terms) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut fixed_len = 0_u64;
        for (index, field) in fields.iter().enumerate() {
            let name = scope.claim(&field.name.text, LetterCase::Snake);
            let codec = emitter.field_codec(field, &name);
            let len = codec.slot.len(&codec.place());
            fixed_len = fixed_len.checked_add(len.fixed_part())?;
            if len.known().is_none() {
                terms += len.terms().len();
                variable.push(index);
            }
            names.push((name.ident.to_string(), name.instead_of));
            lengths.push(words::run_len(&codec));
        }
        // A sum of few terms is an expression, and one of many has a statement for each term.
        if (terms > Len::MAX_TERMS) != (variable.len() > Len::MAX_TERMS) {
            return None;
        }
        let mut plan =
            Self { id, names, pieces: Vec::new(), fixed_len, variable, has_runs: false, last_is_alone: true };
        let is_fixed = layout.words(id).is_some();
        let (mut at, mut run, mut piece) = (0, 0, Piece { fields: 0..0, first_run: 0 });
        while at < fields.len() {
            let count = if is_fixed { 1 } else { words::run_at(lengths[at..].iter().copied()).0.max(1) };
            plan.has_runs |= count > 1;
            plan.last_is_alone = count == 1;
            (at, run) = (at + count, run + 1);
            piece.fields.end = at;
            if piece.fields.len() >= per_piece || at == fields.len() {
                let next = Piece { fields: at..at, first_run: run };
                plan.pieces.push(std::mem::replace(&mut piece, next));
            }
        }
        Some(plan)
    }

    /// Returns the id of the struct.
    pub(in crate::emit) fn id(&self) -> ItemId {
        self.id
    }

    /// Returns the number of pieces.
    pub(in crate::emit) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Emits a piece. The first piece also contains the code that does not belong to a field.
    pub(in crate::emit) fn emit(&self, layout: &Layout<'_>, index: usize, options: &EmitOptions) -> Emitted {
        let emitter = emitter(layout, self.id, options);
        let ItemKind::Struct { fields, .. } = &emitter.item.kind else { return Emitted::default() };
        let Some(piece) = self.pieces.get(index) else { return Emitted::default() };
        let codecs: Vec<FieldCodec> =
            piece.fields.clone().filter_map(|at| self.field_codec(&emitter, fields, at)).collect();
        let declared = piece.fields.clone().zip(&codecs).map(|(at, codec)| {
            let docs = emitter.field_docs(&fields[at], Some(&self.name(at)));
            let needs = emitter.derives.of_field(&layout.runtime, &codec.slot);
            let (member, ty) = (&codec.member, &codec.slot.ty);
            quote!(#docs #needs pub #member: #ty,)
        });
        let (name, lifetime, cut) = (&emitter.name.ident, emitter.lifetime(), cut());
        let is_first = index == 0;
        let head = is_first.then(|| {
            let (docs, derive) = (emitter.docs("structure"), emitter.derive(false));
            quote!(#docs #[allow(dead_code)] #derive)
        });
        let declaration = vec![quote!(#head pub struct #name #lifetime { #cut: (), #(#declared)* #cut: (), })];

        let target = emitter.target();
        let mut codec = Vec::new();
        if is_first {
            codec.push(target.impl_type(&emitter.source()));
        }
        match layout.words(self.id) {
            Some(len) => {
                let [fixed, encode, decode] = target.fixed_struct(len, &codecs, Some(&cut));
                codec.push(fixed);
                if is_first {
                    codec.extend([encode, decode]);
                }
            }
            None => {
                let last = self.field_codec(&emitter, fields, fields.len() - 1);
                let few = (self.variable.len() <= Len::MAX_TERMS).then(|| {
                    let variable = self.variable.iter().filter_map(|&at| self.field_codec(&emitter, fields, at));
                    variable.map(|codec| codec.slot.len(&codec.place())).fold(Len::default(), |mut sum, len| {
                        sum.add(len);
                        sum
                    })
                });
                let parts = EncodedParts {
                    fixed_len: self.fixed_len,
                    few,
                    tail: last.filter(|_| self.last_is_alone),
                    is_last: index + 1 == self.pieces.len(),
                };
                codec.push(target.encode_piece(&codecs, parts, &cut));
                codec.push(target.decode_piece(&codecs, self.has_runs.then_some(piece.first_run), &cut));
            }
        }
        Emitted { declaration, codec }
    }

    fn name(&self, index: usize) -> RustName {
        let (name, instead_of) = &self.names[index];
        RustName { ident: ident(name), instead_of: instead_of.clone() }
    }

    fn field_codec(&self, emitter: &Emitter<'_>, fields: &[Field], index: usize) -> Option<FieldCodec> {
        Some(emitter.field_codec(fields.get(index)?, &self.name(index)))
    }
}

/// The parts of the `XdrEncode` implementation that depend on all fields.
struct EncodedParts {
    fixed_len: u64,
    /// The variable part of the length, if it is a single expression.
    few: Option<Len>,
    /// The last field, if it is encoded by its own codec.
    tail: Option<FieldCodec>,
    /// `true` for the piece with the last field.
    is_last: bool,
}

impl Target<'_> {
    fn encode_piece(&self, fields: &[FieldCodec], parts: EncodedParts, cut: &Ident) -> TokenStream {
        let len = match parts.few {
            Some(mut len) => {
                len.add(Len::fixed(parts.fixed_len.saturating_sub(len.fixed_part())));
                len.tokens()
            }
            None => {
                let fixed = number(parts.fixed_len);
                let terms = fields.iter().flat_map(|field| field.slot.len(&field.place()).terms().to_vec());
                quote!({
                    let mut len: usize = #fixed;
                    #cut;
                    #(len += #terms;)*
                    #cut;
                    len
                })
            }
        };
        let mut writings = self.writings(fields);
        let tail = parts.tail.map(|field| (field.slot.write(&field.place()), self.path(&field.name)));
        let tail = tail.filter(|(writing, _)| writing.fallible);
        if parts.is_last && tail.is_some() {
            writings.pop();
        }
        let tail = tail.map_or(quote!(Ok(())), |(writing, item): (WriteCode, String)| writing.result(&item));
        let statements = writings.iter().map(|(writing, item)| writing.statement(item));
        self.impl_encode(len, quote!(#cut; #(#statements)* #cut; #tail))
    }

    /// Implements `XdrDecode` for the struct, with the fields of one piece. `first_run` is the index in the struct of
    /// the first run in this piece. `None` means that the struct has no runs.
    fn decode_piece(&self, fields: &[FieldCodec], first_run: Option<usize>, cut: &Ident) -> TokenStream {
        let Some(first_run) = first_run else {
            let reads = fields.iter().map(|field| {
                let (member, read) = (&field.member, field.slot.read_field(self.name, &field.name));
                quote!(#member: #read)
            });
            return self.impl_decode_value(quote!(Self { #cut, #(#reads,)* #cut }));
        };
        let (reads, members) = self.read_runs(fields, first_run);
        self.impl_decode_fields(&quote!(#cut; #(#reads)* #cut;), &quote!(#cut, #(#members,)* #cut))
    }
}

fn cut() -> Ident {
    ident(CUT)
}

/// Cuts the printed text of a piece into parts. Parts with an odd index belong to the fields of the piece. The other
/// parts are needed only from the first piece.
pub(in crate::emit) fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with(CUT) {
            pieces.push(String::new());
        } else if let Some(piece) = pieces.last_mut() {
            piece.push_str(line);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use crate::{
        Compiler,
        emit::{EmitOptions, parts},
        ir::Spec,
    };

    fn compile(text: &str) -> Spec {
        let compiled = Compiler::new().source("test.x", text).compile();
        compiled.unwrap_or_else(|diagnostics| panic!("{diagnostics}")).spec
    }

    /// Returns an XDR struct with `count` fields, which use `declarations` in turn. `@` in a declaration stands for the
    /// name of the field.
    fn long(count: usize, declarations: &[&str]) -> String {
        let fields = declarations.iter().cycle().take(count).enumerate();
        let fields: String = fields.map(|(at, field)| field.replace('@', &format!("field{at}")) + "; ").collect();
        format!("struct long {{ {fields} }};")
    }

    #[test]
    fn pieces_give_the_same_text() {
        let options = EmitOptions::default();
        let texts = [
            // Fixed lengths, runs, variable lengths, and mixtures of them that end in each.
            long(40, &["int @"]),
            long(40, &["string @<9>"]),
            long(250, &["string @<9>", "opaque @<>"]),
            long(41, &["int @", "hyper @", "string @<9>"]),
            long(42, &["int @", "hyper @", "string @<9>"]),
            long(43, &["string @<9>", "bool @", "opaque @[5]", "int @<4>", "int *@", "double @"]),
            // Other items around it, names that collide, and a struct that contains itself.
            format!("struct before {{ int a; }}; {} const AFTER = 1;", long(40, &["int @"])),
            format!(
                "struct long {{ int a_b; int aB; {} }};",
                long(30, &["unsigned @"]).split('{').nth(1).unwrap().trim_end_matches("};")
            ),
            format!(
                "struct long {{ long *next; int tail; {} }};",
                long(30, &["int @"]).split('{').nth(1).unwrap().trim_end_matches("};")
            ),
        ];
        for text in texts {
            let spec = compile(&text);
            let whole = parts::print_with(&spec, &options, usize::MAX).unwrap();
            for per_piece in [7, 12, 29] {
                assert_eq!(parts::print_with(&spec, &options, per_piece).unwrap(), whole, "{per_piece} of {text}");
            }
        }
    }

    /// The fields of a long struct are not all in memory at the same time. At 15,000 bytes each, 6000 fields would take
    /// 90 MB, and the limit is 12 MB beyond the copies of the text.
    #[test]
    fn a_long_struct_takes_little_memory() {
        let spec = compile(&long(6000, &["int @", "string @<9>"]));
        let mut printed = String::new();
        let counted = allocation_counter::measure(|| {
            printed = parts::print_with(&spec, &EmitOptions::default(), super::FIELDS_PER_PIECE).unwrap();
        });
        // The text exists in several copies. Without pieces, a field takes 15,000 bytes.
        let bound = 6 * printed.len() as u64 + 12_000_000;
        assert!(counted.bytes_max < bound, "{} of {bound} bytes", counted.bytes_max);
    }
}

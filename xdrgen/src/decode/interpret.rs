//! A decoder of XDR (RFC 4506) that interprets the types of a specification, without generated code.

use super::{json::arm_key, memory::ChunkData, payload_source::PayloadSource, value::DecodedValue};
use crate::{
    ir::{Base, Field, Item, ItemId, ItemKind, Spec, Type, Union},
    resolve::sizes,
};

/// The maximum nesting depth of fields and types. It protects the stack from hostile messages.
pub(super) const MAX_DEPTH: usize = 200;

/// A decoder of values in a payload stream. It stops at the first error.
#[derive(Debug)]
pub(super) struct Interpreter<'s, 'a> {
    spec: &'s Spec,
    source: PayloadSource<'a>,
    failed: bool,
    depth: usize,
    /// `true` if the specification marks eligible items. Otherwise, Write chunks are matched by their length.
    has_eligible: bool,
    /// `true` if an opaque item in a chunk is decoded to the chunk. If `false`, it is decoded to its contents.
    keeps_chunks: bool,
}

impl<'s, 'a> Interpreter<'s, 'a> {
    pub(super) fn new(spec: &'s Spec, source: PayloadSource<'a>) -> Self {
        let holds_eligible =
            |item: &Item| !matches!(item.kind, ItemKind::Const(_)) && item.facts.max_ddp_items != Some(0);
        let has_eligible = spec.items.iter().any(holds_eligible)
            || spec
                .programs
                .iter()
                .flat_map(|program| &program.versions)
                .flat_map(|version| &version.procedures)
                .any(|procedure| procedure.args.iter().chain(&procedure.result).any(|field| field.ddp.is_some()));
        Self { spec, source, failed: false, depth: 0, has_eligible, keeps_chunks: true }
    }

    /// Makes the interpreter decode opaque items in chunks to their contents, so that a value does not depend on the
    /// use of chunks.
    pub(super) fn without_chunks(self) -> Self {
        Self { keeps_chunks: false, ..self }
    }

    /// Returns the rest of the payload stream.
    pub(super) fn into_source(self) -> PayloadSource<'a> {
        self.source
    }

    /// Decodes a value of the type named `name`.
    pub(super) fn named(&mut self, name: &str) -> DecodedValue {
        match self.spec.items.iter().position(|item| item.name.text == name) {
            Some(index) => self.item(ItemId(index), false),
            None => self.fail(format!("no type is named `{name}`")),
        }
    }

    /// Decodes fields in sequence, such as the arguments of a procedure.
    pub(super) fn fields<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>) -> DecodedValue {
        let mut out = Vec::new();
        for field in fields {
            out.push((field.name.text.clone(), self.field(field, false)));
            if self.failed {
                break;
            }
        }
        DecodedValue::Struct(out)
    }

    /// Decodes a field. `eligible` is `true` if `field` is the target of a typedef, and the item with that typedef as
    /// its type is marked as eligible.
    pub(super) fn field(&mut self, field: &Field, eligible: bool) -> DecodedValue {
        let eligible = eligible || field.ddp.is_some();
        if self.depth >= MAX_DEPTH {
            return self.fail(format!("nested more than {MAX_DEPTH} levels deep"));
        }
        self.depth += 1;
        let value = self.ty(&field.ty, eligible);
        self.depth -= 1;
        value
    }

    fn ty(&mut self, ty: &Type, eligible: bool) -> DecodedValue {
        match *ty {
            Type::Base(base) => self.base(base, eligible),
            Type::OpaqueFixed(len) => self.opaque(len, eligible, true, DecodedValue::Opaque),
            Type::Opaque(max) => self.counted(max, eligible, DecodedValue::Opaque),
            Type::String(max) => self.counted(max, eligible, DecodedValue::Text),
            Type::ArrayFixed(base, len) => self.array(base, len, eligible),
            Type::Array(base, max) => match self.length(max) {
                Ok(len) => self.array(base, len, eligible),
                Err(error) => error,
            },
            Type::Optional(base) => match self.flag() {
                Ok(true) => self.base(base, false),
                Ok(false) => DecodedValue::None,
                Err(error) => error,
            },
            Type::List(node) => self.list(node, false),
            Type::NonEmptyList(node) => self.list(node, true),
        }
    }

    fn base(&mut self, base: Base, eligible: bool) -> DecodedValue {
        let is_typedef = matches!(base, Base::Item(id)
            if self.spec.items.get(id.0).is_some_and(|item| matches!(item.kind, ItemKind::Typedef(_))));
        // All of an eligible item of fixed size moves to the chunk.
        if eligible
            && !is_typedef
            && let Some(chunk) = self.source.take_chunk(true, None)
        {
            return self.in_chunk(chunk, |within| within.base(base, false));
        }
        match base {
            Base::Bool => match self.flag() {
                Ok(flag) => DecodedValue::Bool(flag),
                Err(error) => error,
            },
            Base::Int => self.word().map_or_else(|error| error, |word| DecodedValue::Int(word.cast_signed().into())),
            Base::UInt => self.word().map_or_else(|error| error, |word| DecodedValue::UInt(word.into())),
            Base::Short(short) => match self.word() {
                Ok(word) if short.is_unsigned() && short.holds(word.into()) => DecodedValue::UInt(word.into()),
                Ok(word) if !short.is_unsigned() && short.holds(word.cast_signed().into()) => {
                    DecodedValue::Int(word.cast_signed().into())
                }
                Ok(word) => self.fail(format!("{} is not a value of `{}`", word.cast_signed(), short.text())),
                Err(error) => error,
            },
            Base::Hyper => self.hyper().map_or_else(|error| error, |hyper| DecodedValue::Int(hyper.cast_signed())),
            Base::UHyper => self.hyper().map_or_else(|error| error, DecodedValue::UInt),
            Base::Float => {
                self.word().map_or_else(|error| error, |word| DecodedValue::Double(f32::from_bits(word).into()))
            }
            Base::Double => {
                self.hyper().map_or_else(|error| error, |hyper| DecodedValue::Double(f64::from_bits(hyper)))
            }
            Base::Quadruple => self.bytes().map_or_else(|error| error, DecodedValue::Quadruple),
            Base::Item(id) => self.item(id, eligible),
        }
    }

    fn item(&mut self, id: ItemId, eligible: bool) -> DecodedValue {
        let spec = self.spec;
        let Some(item) = spec.items.get(id.0) else { return self.fail("unknown type".to_owned()) };
        if self.depth >= MAX_DEPTH {
            return self.fail(format!("nested more than {MAX_DEPTH} levels deep"));
        }
        self.depth += 1;
        let value = match &item.kind {
            ItemKind::Enum(_) => match self.word() {
                Ok(word) => self.enumerator(item, word.cast_signed().into()),
                Err(error) => error,
            },
            ItemKind::Struct { fields, .. } => self.fields(fields),
            ItemKind::Union(union) => self.union(item, union),
            ItemKind::Typedef(field) => self.field(field, eligible),
            ItemKind::Extern(path) => {
                let why = format!("`{}` has the Rust type `{path}`, whose encoding is unknown", item.name.text);
                self.fail(why)
            }
            ItemKind::Const(_) => self.fail(format!("`{}` is a constant", item.name.text)),
        };
        self.depth -= 1;
        value
    }

    fn enumerator(&mut self, item: &Item, number: i64) -> DecodedValue {
        let ItemKind::Enum(enumerators) = &item.kind else { return DecodedValue::Int(number) };
        let known = enumerators.iter().find(|enumerator| i64::from(enumerator.value) == number);
        DecodedValue::Enum(known.map(|enumerator| enumerator.name.text.clone()), number)
    }

    fn union(&mut self, item: &Item, union: &Union) -> DecodedValue {
        let discriminant = self.field(&union.discriminant, false);
        let number = match &discriminant {
            DecodedValue::Bool(flag) => i64::from(*flag),
            DecodedValue::Int(number) | DecodedValue::Enum(_, number) => *number,
            DecodedValue::UInt(number) => number.cast_signed(),
            _ => return DecodedValue::Struct(vec![(union.discriminant.name.text.clone(), discriminant)]),
        };
        let mut out = vec![(union.discriminant.name.text.clone(), discriminant)];
        let arm = union.arms.iter().find(|arm| arm.cases.iter().any(|case| case.value == number));
        let field = match (arm, &union.default) {
            (Some(arm), _) => arm.field.as_ref(),
            (None, Some(default)) => default.as_ref(),
            (None, None) => {
                let error = self.fail(format!("union `{}` has no arm for {number}", item.name.text));
                out.push(("arm".to_owned(), error));
                None
            }
        };
        let has_length = union.opaque && !field.is_some_and(|field| sizes::has_own_length(self.spec, &field.ty));
        match field {
            Some(field) => {
                let value = if has_length { self.arm(Some(field)) } else { self.field(field, false) };
                out.push((arm_key(union, field).to_owned(), value));
            }
            None if has_length && !self.failed => {
                let value = self.arm(None);
                out.extend((value != DecodedValue::None).then(|| ("arm".to_owned(), value)));
            }
            None => {}
        }
        DecodedValue::Struct(out)
    }

    /// Decodes an arm of an `opaque_union`. The length of the arm in bytes precedes it.
    fn arm(&mut self, field: Option<&Field>) -> DecodedValue {
        let len = match self.word() {
            Ok(len) => len as usize,
            Err(error) => return error,
        };
        let Some(bytes) = self.source.take(len) else {
            let left = self.source.left();
            return self.fail(format!("the arm has {len} bytes, but the message ends after {left}"));
        };
        let mut within = Interpreter::new(self.spec, PayloadSource::new(bytes));
        within.depth = self.depth;
        let value = field.map_or(DecodedValue::None, |field| within.field(field, false));
        let (has_failed, left) = (within.failed, within.source.left());
        self.failed |= has_failed;
        if left > 0 && !has_failed {
            return self.fail(format!("{left} bytes follow the value in an arm of {len} bytes"));
        }
        value
    }

    /// Decodes a list whose nodes are linked by optional pointers (RFC 4506 §4.19). `more` is `true` if no flag
    /// precedes the first node, because the type requires at least one.
    fn list(&mut self, node: ItemId, mut more: bool) -> DecodedValue {
        let mut nodes = Vec::new();
        loop {
            if !more {
                match self.flag() {
                    Ok(true) => {}
                    Ok(false) => return DecodedValue::Array(nodes),
                    Err(error) => {
                        nodes.push(error);
                        return DecodedValue::Array(nodes);
                    }
                }
            }
            more = false;
            nodes.push(self.item(node, false));
            if self.failed {
                return DecodedValue::Array(nodes);
            }
        }
    }

    /// Decodes `len` elements. The length is not trusted: memory is allocated only for elements that exist.
    fn array(&mut self, base: Base, len: u32, eligible: bool) -> DecodedValue {
        let empty = (len == 0).then_some(0);
        let chunk = if len == 0 && !eligible { None } else { self.source.take_chunk(eligible, empty) };
        if let Some(chunk) = chunk {
            return self.in_chunk(chunk, |within| within.array(base, len, false));
        }
        let mut elements = Vec::new();
        for _ in 0..len {
            let before = self.source.left();
            elements.push(self.base(base, false));
            // Elements without contents would cost memory that the message does not pay for.
            if self.failed || self.source.left() == before {
                break;
            }
        }
        DecodedValue::Array(elements)
    }

    /// Decodes an item from its chunk. If the capture lacks a part of the chunk, returns the chunk itself.
    fn in_chunk(
        &mut self,
        chunk: ChunkData,
        decode: impl FnOnce(&mut Interpreter<'_, '_>) -> DecodedValue,
    ) -> DecodedValue {
        if !chunk.is_complete() {
            return DecodedValue::Chunk(chunk);
        }
        let mut within = Interpreter::new(self.spec, PayloadSource::new(&chunk.bytes));
        within.depth = self.depth;
        within.keeps_chunks = self.keeps_chunks;
        let value = decode(&mut within);
        self.failed |= within.failed;
        value
    }

    fn counted(&mut self, max: u32, eligible: bool, make: fn(Vec<u8>) -> DecodedValue) -> DecodedValue {
        match self.length(max) {
            Ok(len) => self.opaque(len, eligible, false, make),
            Err(error) => error,
        }
    }

    /// Decodes opaque data of `len` bytes, with its padding. `fixed` is `true` if the type specifies the length. `make`
    /// creates the value from the bytes.
    fn opaque(&mut self, len: u32, mut eligible: bool, fixed: bool, make: fn(Vec<u8>) -> DecodedValue) -> DecodedValue {
        let padded = u64::from(len).next_multiple_of(4);
        let len = u64::from(len);
        if !eligible && !self.has_eligible && !fixed {
            // Plain XDR does not mark eligible items. The length of the chunk, and a message too short for the item,
            // tell.
            let same = |chunk: u64| chunk == len || chunk == padded;
            eligible = len > 0 && self.source.next_write().is_some_and(same) && (self.source.left() as u64) < padded;
        }
        if let Some(mut chunk) = self.source.take_chunk(eligible, Some(len)) {
            if chunk.len != len && chunk.len != padded {
                return self.fail(format!("the item has {len} bytes, but its chunk has {}", chunk.len));
            }
            // A chunk may contain the padding.
            chunk.len = len;
            chunk.bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
            return if self.keeps_chunks { DecodedValue::Chunk(chunk) } else { make(chunk.bytes) };
        }
        let taken = usize::try_from(padded).ok().and_then(|padded| self.source.take(padded));
        match (taken, usize::try_from(len)) {
            (Some(bytes), Ok(len)) => make(bytes.get(..len).unwrap_or_default().to_vec()),
            _ => {
                let left = self.source.left();
                self.fail(format!("the item has {len} bytes, but the message ends after {left}"))
            }
        }
    }

    fn length(&mut self, max: u32) -> Result<u32, DecodedValue> {
        let len = self.word()?;
        if len > max { Err(self.fail(format!("length {len} exceeds the maximum of {max}"))) } else { Ok(len) }
    }

    fn flag(&mut self) -> Result<bool, DecodedValue> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.fail(format!("{other} is not a boolean"))),
        }
    }

    fn word(&mut self) -> Result<u32, DecodedValue> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn hyper(&mut self) -> Result<u64, DecodedValue> {
        self.bytes().map(u64::from_be_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], DecodedValue> {
        match self.source.take(N).map(<[u8; N]>::try_from) {
            Some(Ok(bytes)) => Ok(bytes),
            _ => Err(self.fail("the message ends here".to_owned())),
        }
    }

    fn fail(&mut self, why: String) -> DecodedValue {
        self.failed = true;
        DecodedValue::Error(format!("{why} (at byte {})", self.source.position()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compiler;

    fn spec(text: &str) -> Spec {
        Compiler::new().source("test.x", text).no_client().compile().unwrap().spec
    }

    fn decode(text: &str, name: &str, bytes: &[u8]) -> DecodedValue {
        Interpreter::new(&spec(text), PayloadSource::new(bytes)).named(name)
    }

    fn chunk(len: u64, bytes: &[u8]) -> ChunkData {
        ChunkData { segments: Vec::new(), len, bytes: bytes.to_vec() }
    }

    #[test]
    fn all_kinds_of_types() {
        let text = "enum colour { RED = 1, BLUE = -2 };
            typedef opaque hash[3];
            struct node { int n; node *next; };
            union shade switch (colour c) { case RED: unsigned hyper light; default: void; };
            struct all { hash h; string s<8>; node *list; shade a; shade b; bool t; float f; int *none; short_t few<2>; };
            typedef int short_t;";
        let bytes = [
            &b"abc\0\0\0\0\x02hi\0\0"[..],
            &[0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0],
            &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9],
            &[255, 255, 255, 254, 0, 0, 0, 1],
            &1.5f32.to_be_bytes(),
            &[0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255],
        ]
        .concat();
        let value = decode(text, "all", &bytes);
        assert_eq!(value.at(&["h"]), Some(&DecodedValue::Opaque(b"abc".to_vec())));
        assert_eq!(value.at(&["s"]), Some(&DecodedValue::Text(b"hi".to_vec())));
        assert_eq!(value.at(&["list"]).unwrap().elements()[0].at(&["n"]), Some(&DecodedValue::Int(5)));
        assert_eq!(value.number(&["a", "light"]), Some(9));
        assert_eq!(value.at(&["b", "c"]), Some(&DecodedValue::Enum(Some("BLUE".to_owned()), -2)));
        assert_eq!(value.at(&["f"]), Some(&DecodedValue::Double(1.5)));
        assert_eq!(value.at(&["none"]), Some(&DecodedValue::None));
        assert_eq!(value.at(&["few"]), Some(&DecodedValue::Array(vec![DecodedValue::Int(-1)])));
        assert_eq!(value.error(), None);
    }

    #[test]
    fn errors_keep_what_precedes_them() {
        let text = "struct a { int x; opaque data<9>; int y; };";
        let value = decode(text, "a", &[0, 0, 0, 1, 0, 0, 0, 8, 1, 2]);
        assert_eq!(value.number(&["x"]), Some(1));
        assert_eq!(value.error(), Some("the item has 8 bytes, but the message ends after 2 (at byte 8)"));
        let value = decode(text, "a", &[0, 0, 0, 1, 0, 0, 0, 10]);
        assert_eq!(value.error(), Some("length 10 exceeds the maximum of 9 (at byte 8)"));
        let value = decode("union u switch (bool b) { case TRUE: int x; };", "u", &[0, 0, 0, 0]);
        assert_eq!(value.error(), Some("union `u` has no arm for 0 (at byte 4)"));
        assert_eq!(decode("typedef bool b;", "b", &[0, 0, 0, 2]).error(), Some("2 is not a boolean (at byte 4)"));
    }

    /// The length of an arm precedes it, unless the arm is itself a variable-length opaque item.
    #[test]
    fn arms_of_an_opaque_union_have_a_length() {
        let text = "opaque_union u switch (int k) { case 1: hyper x; case 2: opaque raw<8>; default: void; };
            struct three { u a; u b; u c; int last; };";
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let value = decode(text, "three", &words(&[1, 8, 0, 5, 2, 3, 0x0102_0300, 9, 0, 7]));
        assert_eq!(value.at(&["a", "x"]), Some(&DecodedValue::Int(5)));
        assert_eq!(value.at(&["b", "raw"]), Some(&DecodedValue::Opaque(vec![1, 2, 3])));
        assert_eq!((value.at(&["last"]), value.error()), (Some(&DecodedValue::Int(7)), None));
    }

    #[test]
    fn hostile_nesting_and_lengths_end() {
        let tree = "struct tree { tree *left; tree *right; };";
        let value = decode(tree, "tree", &[0, 0, 0, 1].repeat(100_000));
        let mut depth = 0;
        let mut at = &value;
        while let Some(next) = at.at(&["left"]) {
            (at, depth) = (next, depth + 1);
        }
        assert!(depth < MAX_DEPTH && at.error().unwrap().starts_with("nested more than"), "{depth} {at:?}");
        let empty = "struct none { opaque nothing[0]; }; typedef none many<>;";
        if let Ok(compiled) = Compiler::new().source("empty.x", empty).compile() {
            let value = Interpreter::new(&compiled.spec, PayloadSource::new(&[255; 4])).named("many");
            assert_eq!(value.elements().len(), 1);
        }
        assert!(decode("typedef int many<>;", "many", &[255; 8]).elements().len() <= 2);
    }

    #[test]
    fn read_chunks_are_found_by_position() {
        let text = "struct a { opaque x<>; opaque y<>; int z; };";
        let spec = spec(text);
        let inline = [0, 0, 0, 3, 0, 0, 0, 2, 8, 9, 0, 0, 0, 0, 0, 7];
        // The second chunk is at no item.
        let reads = vec![(4, chunk(3, &[1, 2, 3])), (9, chunk(4, &[]))];
        let mut interpreter = Interpreter::new(&spec, PayloadSource::new(&inline).with_reads(reads));
        let value = interpreter.named("a");
        assert_eq!(value.at(&["x"]), Some(&DecodedValue::Chunk(chunk(3, &[1, 2, 3]))));
        assert_eq!(value.at(&["y"]), Some(&DecodedValue::Opaque(vec![8, 9])));
        assert_eq!(value.at(&["z"]), Some(&DecodedValue::Int(7)));
        let mut source = interpreter.into_source();
        assert_eq!((source.position(), source.unused().len()), (20, 1));
    }

    #[test]
    fn write_chunks_belong_to_eligible_items_in_order() {
        let text = "struct a { opaque i<>; @ddp opaque x<>; @ddp opaque y<>; @ddp int z<>; @ddp two f; };
            struct two { int p; int q; };";
        let spec = spec(text);
        let inline = [0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1];
        // The first is returned unused, the second includes padding that is not part of the item.
        let last = chunk(8, &[0, 0, 0, 4, 0, 0, 0, 5]);
        let writes = vec![chunk(0, &[]), chunk(4, &[6, 7, 0, 0]), chunk(4, &[0, 0, 0, 9]), last];
        let value = Interpreter::new(&spec, PayloadSource::new(&inline).with_writes(writes)).named("a");
        assert_eq!(value.at(&["x"]), Some(&DecodedValue::Opaque(vec![5])));
        assert_eq!(value.at(&["y"]), Some(&DecodedValue::Chunk(chunk(2, &[6, 7]))));
        assert_eq!(value.at(&["z"]), Some(&DecodedValue::Array(vec![DecodedValue::Int(9)])));
        assert_eq!(value.number(&["f", "q"]), Some(5));
    }

    /// A Write chunk with contents belongs to the next item with contents, whether the responder uses chunks for empty
    /// items or, like Linux, does not.
    #[test]
    fn an_empty_item_leaves_a_chunk_with_contents_to_the_next_item() {
        let spec = spec("struct a { @ddp opaque x<>; @ddp int y<>; @ddp opaque z<>; };");
        let inline = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for unused in 0..3 {
            let writes = [vec![chunk(0, &[]); unused], vec![chunk(1, &[7])]].concat();
            let value = Interpreter::new(&spec, PayloadSource::new(&inline).with_writes(writes.clone())).named("a");
            assert_eq!(
                (value.error(), value.at(&["z"])),
                (None, Some(&DecodedValue::Chunk(chunk(1, &[7])))),
                "{unused}"
            );
            let source = PayloadSource::new(&inline).with_writes(writes);
            let value = Interpreter::new(&spec, source).without_chunks().named("a");
            assert_eq!(value.at(&["z"]), Some(&DecodedValue::Opaque(vec![7])));
        }
    }

    /// The length of an arm precedes it, unless the arm is itself a variable-length opaque item.
    #[test]
    fn arms_of_an_opaque_union() {
        let text =
            "opaque_union u switch (int kind) { case 1: int x; case 2: opaque b<>; case 3: u *deep; default: void; };";
        let decode =
            |words: &[u32]| decode(text, "u", &words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>());
        assert_eq!(decode(&[1, 4, 9]).at(&["x"]), Some(&DecodedValue::Int(9)));
        assert_eq!(decode(&[2, 1, 0x0900_0000]).at(&["b"]), Some(&DecodedValue::Opaque(vec![9])));
        assert_eq!(decode(&[3, 16, 1, 1, 4, 9]).at(&["deep", "x"]), Some(&DecodedValue::Int(9)));
        assert_eq!((decode(&[4, 0]).error(), decode(&[4, 0]).fields().len()), (None, 1));
        for (words, expected) in [
            (&[1, 8, 9, 9][..], "4 bytes follow the value in an arm of 8 bytes (at byte 16)"),
            (&[1, 8, 9], "the arm has 8 bytes, but the message ends after 4 (at byte 8)"),
            (&[1, 0, 9], "the message ends here (at byte 0)"),
            (&[4, 4, 9], "4 bytes follow the value in an arm of 4 bytes (at byte 12)"),
            (&[1], "the message ends here (at byte 4)"),
        ] {
            assert_eq!(decode(words).error(), Some(expected), "{words:?}");
        }
    }

    #[test]
    fn without_marks_the_length_tells_the_reduced_item() {
        let spec = spec("struct a { opaque x<>; opaque y<>; };");
        let inline = [0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 2];
        // The responder did not use the first chunk.
        let writes = vec![chunk(0, &[]), chunk(2, &[6, 7])];
        let value = Interpreter::new(&spec, PayloadSource::new(&inline).with_writes(writes)).named("a");
        assert_eq!(value.at(&["y"]), Some(&DecodedValue::Chunk(chunk(2, &[6, 7]))));
    }
}

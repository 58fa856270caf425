//! Random encodings, made from a specification according to RFC 4506 section 4, without the generated codecs or the C
//! codecs.

use rpcrdma_xdrgen::ir::{Base, Field, ItemId, ItemKind, Spec, Type};

/// Exclusive upper bound of the number of elements of a variable-length array, and of the number of bytes of
/// variable-length opaque data and strings. The lengths include zero, one, several, and lengths that need padding.
const MAX_ITEMS: u32 = 9;
/// Maximum nesting depth at which optional data can be present, and arrays, lists and counted bytes can be non-empty.
const DEEP: u32 = 12;

/// A source of random decisions, made from bytes that proptest generates. Once the bytes are used up, all further bytes
/// are 0, so that each decision is the simplest one.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn word(&mut self) -> u32 {
        // Most numbers use one byte of input, large ones five.
        match self.byte() {
            0xFF => u32::MAX,
            byte @ 0xF0.. => u32::from_be_bytes([byte, self.byte(), self.byte(), self.byte()]),
            byte => u32::from(byte),
        }
    }
}

/// Returns a random encoding of the type `name`. If `narrow` is `true`, the values of `int` and `unsigned int` fit into
/// one byte, the size of C's shortest integer types.
pub(crate) fn encoding(spec: &Spec, name: &str, narrow: bool, choices: Choices<'_>) -> Vec<u8> {
    let id = spec.items.iter().position(|item| item.name.text == name).unwrap_or_else(|| panic!("no type {name}"));
    let mut writer = Writer { spec, choices, narrow, out: Vec::new(), depth: 0 };
    writer.item(ItemId(id));
    writer.out
}

struct Writer<'a> {
    spec: &'a Spec,
    choices: Choices<'a>,
    narrow: bool,
    out: Vec<u8>,
    depth: u32,
}

impl Writer<'_> {
    fn word(&mut self, word: u32) {
        self.out.extend(word.to_be_bytes());
    }

    fn count(&mut self, max: u32) -> u32 {
        if self.depth > DEEP { 0 } else { u32::try_from(self.choices.below(MAX_ITEMS as usize)).unwrap().min(max) }
    }

    fn item(&mut self, id: ItemId) {
        self.depth += 1;
        match &self.spec.items[id.0].kind {
            ItemKind::Const(_) | ItemKind::Extern(_) => panic!("not a type"),
            ItemKind::Enum(values) => {
                let value = values[self.choices.below(values.len())].value;
                self.word(value.cast_unsigned());
            }
            ItemKind::Struct { fields, .. } => fields.iter().for_each(|field| self.field(field)),
            ItemKind::Typedef(field) => self.field(field),
            ItemKind::Union(union) => {
                let cases: Vec<(i64, Option<&Field>)> = union
                    .arms
                    .iter()
                    .flat_map(|arm| arm.cases.iter().map(|case| (case.value, arm.field.as_ref())))
                    .collect();
                let choice = self.choices.below(cases.len() + usize::from(union.default.is_some()));
                // Specifications list the arm with the most data first, so a deep value uses the last one.
                let choice = if self.depth > DEEP { cases.len() - 1 } else { choice };
                let (value, field) = match (cases.get(choice), &union.default) {
                    (Some(case), _) => *case,
                    (None, default) => match self.other(&union.discriminant, &cases) {
                        Some(value) => (value, default.as_ref().and_then(Option::as_ref)),
                        None => cases[0],
                    },
                };
                self.word(value as u32);
                field.into_iter().for_each(|field| self.field(field));
            }
        }
        self.depth -= 1;
    }

    /// Chooses a value of the discriminant that has no case, for the default arm. Returns `None` if all values of an
    /// enumeration or boolean have cases, or if the random integer has one.
    fn other(&mut self, discriminant: &Field, cases: &[(i64, Option<&Field>)]) -> Option<i64> {
        let free = |value: &i64| cases.iter().all(|(case, _)| case != value);
        let mut base = match discriminant.ty {
            Type::Base(base) => base,
            _ => panic!("a discriminant is a base type"),
        };
        loop {
            match base {
                Base::Bool => return [0, 1].into_iter().find(free),
                Base::Int if self.narrow => return Some(i64::from(self.choices.byte().cast_signed())).filter(free),
                Base::Int => return Some(i64::from(self.choices.word().cast_signed())).filter(free),
                Base::UInt => return Some(i64::from(self.choices.word())).filter(free),
                Base::Item(id) => match &self.spec.items[id.0].kind {
                    ItemKind::Enum(values) => {
                        let free: Vec<i64> = values.iter().map(|value| i64::from(value.value)).filter(free).collect();
                        return free.get(self.choices.below(free.len())).copied();
                    }
                    ItemKind::Typedef(Field { ty: Type::Base(of), .. }) => base = *of,
                    other => panic!("{other:?} as a discriminant"),
                },
                other => panic!("{other:?} as a discriminant"),
            }
        }
    }

    fn field(&mut self, field: &Field) {
        match &field.ty {
            Type::Base(base) => self.base(*base),
            Type::OpaqueFixed(len) => self.bytes(*len, false),
            Type::Opaque(max) | Type::String(max) => {
                let len = self.count(*max);
                self.word(len);
                // C strings end at the first zero byte.
                self.bytes(len, matches!(field.ty, Type::String(_)));
            }
            Type::ArrayFixed(base, len) => (0..*len).for_each(|_| self.base(*base)),
            Type::Array(base, max) => {
                let len = self.count(*max);
                self.word(len);
                (0..len).for_each(|_| self.base(*base));
            }
            Type::Optional(base) => {
                let there = self.count(1);
                self.word(there);
                (0..there).for_each(|_| self.base(*base));
            }
            Type::List(id) => self.list(*id),
            Type::NonEmptyList(id) => {
                self.item(*id);
                self.list(*id);
            }
        }
    }

    fn list(&mut self, node: ItemId) {
        for _ in 0..self.count(4) {
            self.word(1);
            self.item(node);
        }
        self.word(0);
    }

    fn bytes(&mut self, len: u32, text: bool) {
        for _ in 0..len {
            let byte = self.choices.byte();
            self.out.push(if text { byte | 1 } else { byte });
        }
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }

    fn base(&mut self, base: Base) {
        match base {
            Base::Bool => {
                let value = self.choices.byte() & 1;
                self.word(u32::from(value));
            }
            Base::Short(short) => {
                let byte = self.choices.byte();
                let value = if short.is_unsigned() { i32::from(byte) } else { i32::from(byte.cast_signed()) };
                self.word(value.cast_unsigned());
            }
            Base::Int if self.narrow => {
                let value = i32::from(self.choices.byte().cast_signed());
                self.word(value.cast_unsigned());
            }
            Base::UInt if self.narrow => {
                let value = self.choices.byte();
                self.word(u32::from(value));
            }
            Base::Int | Base::UInt => {
                let value = self.choices.word();
                self.word(value);
            }
            Base::Hyper | Base::UHyper => {
                for _ in 0..2 {
                    let value = self.choices.word();
                    self.word(value);
                }
            }
            // Never NaN, so that values compare equal.
            Base::Float => {
                let value = f32::from(self.choices.byte()) / 3.0;
                self.word(value.to_bits());
            }
            Base::Double => {
                let value = f64::from(self.choices.byte()) / 3.0;
                self.out.extend(value.to_be_bytes());
            }
            Base::Quadruple => panic!("no specification has a quadruple"),
            Base::Item(id) => self.item(id),
        }
    }
}

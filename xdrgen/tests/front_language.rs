//! Tests of the IR for the constructs of RFC 4506 and RFC 5531, and for common dialects.

use rpcrdma_xdrgen::{
    Compiled, Compiler,
    ir::{Base, ConstValue, Field, Item, ItemId, ItemKind, Spec, Type, TypeFacts},
};

fn compile(text: &str) -> Compiled {
    Compiler::new().source("t.x", text).compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn spec(text: &str) -> Spec {
    compile(text).spec
}

fn item<'a>(spec: &'a Spec, name: &str) -> &'a Item {
    spec.items.iter().find(|item| item.name.text == name).unwrap_or_else(|| panic!("no item {name}"))
}

fn id(spec: &Spec, name: &str) -> ItemId {
    ItemId(spec.items.iter().position(|item| item.name.text == name).unwrap_or_else(|| panic!("no item {name}")))
}

fn fields(item: &Item) -> &[Field] {
    match &item.kind {
        ItemKind::Struct { fields, .. } => fields,
        ItemKind::Typedef(field) => std::slice::from_ref(field),
        other => panic!("{} is {other:?}", item.name.text),
    }
}

fn types(item: &Item) -> Vec<Type> {
    fields(item).iter().map(|field| field.ty.clone()).collect()
}

fn constant(spec: &Spec, name: &str) -> ConstValue {
    match &item(spec, name).kind {
        ItemKind::Const(value) => value.clone(),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn primitives_and_declarators() {
    let spec = spec(
        "const N = 5;
         struct all {
             int a; unsigned int b; unsigned c; hyper d; unsigned hyper e; float f; double g; quadruple h; bool i;
             opaque j[N]; opaque k<N>; opaque l<>; string m<0x10>; string n<>; int o[010]; hyper p<N>; bool *q; void;
         };",
    );
    use Base::{Bool, Double, Float, Hyper, Int, Quadruple, UHyper, UInt};
    let base = |base| Type::Base(base);
    assert_eq!(
        types(item(&spec, "all")),
        [
            base(Int),
            base(UInt),
            base(UInt),
            base(Hyper),
            base(UHyper),
            base(Float),
            base(Double),
            base(Quadruple),
            base(Bool),
            Type::OpaqueFixed(5),
            Type::Opaque(5),
            Type::Opaque(u32::MAX),
            Type::String(16),
            Type::String(u32::MAX),
            Type::ArrayFixed(Int, 8),
            Type::Array(Hyper, 5),
            Type::Optional(Bool),
        ]
    );
}

#[test]
fn constants_in_any_order_and_base() {
    let spec = spec(
        "const B = A; const A = 0x7FFFFFFFFFFFFFFF; const C = -010; const D = 18446744073709551615; const T = TRUE;
         const S = \"text\"; const uint32 TYPED = 7; const FROM_ENUM = GREEN;
         enum color { RED, GREEN, BLUE = 5, WHITE, NEGATIVE = -1, LIKE_N = C, };",
    );
    assert_eq!(constant(&spec, "B"), ConstValue::Int(i64::MAX.into()));
    assert_eq!(constant(&spec, "C"), ConstValue::Int(-8));
    assert_eq!(constant(&spec, "D"), ConstValue::Int(u64::MAX.into()));
    assert_eq!(constant(&spec, "T"), ConstValue::Int(1));
    assert_eq!(constant(&spec, "S"), ConstValue::Str("text".to_owned()));
    assert_eq!(constant(&spec, "TYPED"), ConstValue::Typed(7, Base::UInt));
    assert_eq!(constant(&spec, "FROM_ENUM"), ConstValue::Int(1));
    let ItemKind::Enum(enumerators) = &item(&spec, "color").kind else { panic!() };
    let values: Vec<i32> = enumerators.iter().map(|enumerator| enumerator.value).collect();
    assert_eq!(values, [0, 1, 5, 6, -1, -8]);
}

#[test]
fn unions_fall_through_and_default() {
    let spec = spec(
        "enum kind { A = 1, B = 2, C = 3 };
         const FIVE = 5;
         union u switch (kind k) { case A: case B: int both; case C: void; };
         union v switch (int n) { case -1: case FIVE: case 0x10: hyper x; default: opaque rest<>; };
         union w switch (bool b) { case TRUE: int yes; case FALSE: void; };
         typedef kind alias;
         union z switch (alias a) { case 2: default: int any; };",
    );
    let union = |name: &str| match &item(&spec, name).kind {
        ItemKind::Union(union) => union.clone(),
        other => panic!("{other:?}"),
    };
    let cases = |name: &str| -> Vec<Vec<(String, i64)>> {
        let arms = union(name).arms;
        arms.into_iter().map(|arm| arm.cases.into_iter().map(|case| (case.label, case.value)).collect()).collect()
    };
    let case = |label: &str, value| (label.to_owned(), value);
    assert_eq!(cases("u"), [vec![case("A", 1), case("B", 2)], vec![case("C", 3)]]);
    assert!(union("u").arms[1].field.is_none() && union("u").default.is_none());
    assert_eq!(cases("v"), [vec![case("-1", -1), case("FIVE", 5), case("16", 16)]]);
    assert_eq!(union("v").default.unwrap().unwrap().ty, Type::Opaque(u32::MAX));
    assert_eq!(cases("w"), [vec![case("TRUE", 1)], vec![case("FALSE", 0)]]);
    assert_eq!(union("z").default.unwrap().unwrap().name.text, "any");
    assert_eq!(cases("z"), [vec![case("2", 2)]]);
}

#[test]
fn bodies_without_a_name_get_one() {
    let spec = spec(
        "struct outer { struct { int x; } inner; enum { P, Q } kind; union switch (int d) { case 0: struct { int y; } deep; } u; };
         struct outer_kind { int taken; };
         typedef struct { int z; } plain;
         typedef struct tagged { int z; } other;
         typedef enum { YES = 1 } answer;
         typedef struct { int e; } many<4>;
         typedef struct plain plain;",
    );
    let names: Vec<&str> = spec.items.iter().map(|item| item.name.text.as_str()).collect();
    assert_eq!(
        names,
        [
            "outer_inner",
            "outer_kind_2",
            "outer_u_deep",
            "outer_u",
            "outer",
            "outer_kind",
            "plain",
            "tagged",
            "other",
            "answer",
            "many_element",
            "many",
        ]
    );
    assert_eq!(types(item(&spec, "outer"))[0], Type::Base(Base::Item(id(&spec, "outer_inner"))));
    assert!(matches!(item(&spec, "plain").kind, ItemKind::Struct { .. }));
    assert_eq!(types(item(&spec, "other")), [Type::Base(Base::Item(id(&spec, "tagged")))]);
    assert_eq!(types(item(&spec, "many")), [Type::Array(Base::Item(id(&spec, "many_element")), 4)]);
}

#[test]
fn c_type_references_and_names_of_c_types() {
    let spec = spec(
        "struct segment { uint32 handle; uint32_t length; uint64 offset; u_int a; int64_t b; long c; unsigned long d; };
         struct chunk { struct segment target; enum e kind; union u value; };
         enum e { X };
         union u switch (int d) { case 0: void; };
         typedef hyper uint32;",
    );
    use Base::{Hyper, Int, UHyper, UInt};
    let declared = Base::Item(id(&spec, "uint32"));
    let expected = [declared, UInt, UHyper, UInt, Hyper, Int, UInt].map(Type::Base);
    assert_eq!(types(item(&spec, "segment")), expected);
    let chunk = ["segment", "e", "u"].map(|name| Type::Base(Base::Item(id(&spec, name))));
    assert_eq!(types(item(&spec, "chunk")), chunk);
}

#[test]
fn lists_are_found_however_they_are_written() {
    let spec = spec(
        "struct direct { int x; direct *next; };
         typedef struct group *groups;
         struct group { string name<9>; groups rest; };
         struct first { first *next; int x; };
         struct tree { int v; tree *left; tree *right; };
         struct user { direct *all; direct some; groups by_name; group *other; };
         struct in_array { int x; in_array *next; };
         struct holder { in_array many<>; };",
    );
    let is_node = |name: &str| matches!(item(&spec, name).kind, ItemKind::Struct { list_node: true, .. });
    assert!(is_node("direct") && is_node("group"));
    assert_eq!(fields(item(&spec, "direct")).len(), 1);
    assert_eq!(fields(item(&spec, "group")).len(), 1);
    // The fields after the pointer follow the whole rest of the list on the wire, so this is not a sequence of nodes.
    assert!(!is_node("first") && item(&spec, "first").recursive);
    // Each element of the array would be a list.
    assert!(!is_node("in_array") && item(&spec, "in_array").recursive);
    let (direct, group) = (id(&spec, "direct"), id(&spec, "group"));
    assert_eq!(types(item(&spec, "groups")), [Type::List(group)]);
    assert_eq!(
        types(item(&spec, "user")),
        [
            Type::List(direct),
            Type::NonEmptyList(direct),
            Type::Base(Base::Item(id(&spec, "groups"))),
            Type::List(group)
        ]
    );
    // Two pointers make a tree, not a list.
    let tree = id(&spec, "tree");
    assert!(!is_node("tree") && item(&spec, "tree").recursive);
    let leaf = Type::Optional(Base::Item(tree));
    assert_eq!(types(item(&spec, "tree")), [Type::Base(Base::Int), leaf.clone(), leaf]);
    assert!(fields(item(&spec, "tree"))[1..].iter().all(|field| field.boxed));
    assert!(!item(&spec, "direct").recursive && !item(&spec, "group").recursive);
}

#[test]
fn recursive_values_are_boxed() {
    let spec = spec(
        "struct chain { chain *next; int x; };
         union expr switch (int op) { case 0: int value; case 1: pair operands; case 2: list args; };
         struct pair { expr left; expr right; };
         typedef expr list<>;
         struct outside { expr *root; pair p; };",
    );
    let boxed = |name: &str| -> Vec<bool> { fields(item(&spec, name)).iter().map(|field| field.boxed).collect() };
    assert_eq!(boxed("chain"), [true, false]);
    assert_eq!(boxed("pair"), [false, false]);
    assert_eq!(boxed("outside"), [false, false]);
    assert_eq!(boxed("list"), [false]);
    let ItemKind::Union(union) = &item(&spec, "expr").kind else { panic!() };
    let arms: Vec<bool> = union.arms.iter().map(|arm| arm.field.as_ref().unwrap().boxed).collect();
    assert_eq!(arms, [false, true, false]);
    assert!(["chain", "expr", "pair", "list"].iter().all(|name| item(&spec, name).recursive));
    assert!(!item(&spec, "outside").recursive);
}

#[test]
fn sizes_with_and_without_eligible_items() {
    let spec = spec(
        "typedef opaque name<5>;
         struct plain { name n; hyper h; opaque f[3]; int a[4]; int c<4>; int *o; };
         union u switch (int d) { case 0: int x; case 1: hyper y; default: void; };
         struct moved { int before; @ddp opaque data<4096>; @ddp opaque page[4096]; };
         union either switch (bool b) { case TRUE: moved m; case FALSE: @ddp string s<>; };
         struct node { int x; node *next; };
         struct lists { node *all; node some; };
         struct many { moved m<3>; };
         struct tree { @ddp opaque data<9>; tree children<>; };",
    );
    let facts = |name: &str| item(&spec, name).facts;
    let expect = |min_len, max_len, max_inline, items| TypeFacts { min_len, max_len, max_inline, max_ddp_items: items };
    assert_eq!(facts("name"), expect(4, Some(12), Some(12), Some(0)));
    assert_eq!(facts("plain"), expect(4 + 8 + 4 + 16 + 4 + 4, Some(68), Some(68), Some(0)));
    assert_eq!(facts("u"), expect(4, Some(12), Some(12), Some(0)));
    // RFC 8166 §3.4.4.1: the count of a reduced item stays inline.
    assert_eq!(facts("moved"), expect(8, Some(4 + 4 + 4096 + 4096), Some(8), Some(2)));
    assert_eq!(facts("either"), expect(8, Some(4 + 4 + (1 << 32)), Some(12), Some(2)));
    assert_eq!(facts("lists"), expect(4 + 8, None, None, Some(0)));
    assert_eq!(facts("many"), expect(4, Some(4 + 3 * 8200), Some(4 + 3 * 8), Some(6)));
    assert_eq!(facts("tree"), expect(8, None, None, None));
}

#[test]
fn programs_versions_and_procedures() {
    let spec = spec(
        "struct pair { int a; int b; };
         /* Adds. */
         program CALC {
             /* The first. */
             version ONE {
                 void NULL(void) = 0;
                 /* Both at once. */
                 int ADD(int, int) = 1;
                 pair SWAP(pair p) = 0x2;
                 string<9> NAME(string, opaque<4>) = 3;
                 pair *MAYBE() = 4;
             } = 1;
             version TWO { void NULL(void) = 0; } = 2;
         } = 0x20000099;",
    );
    let program = &spec.programs[0];
    assert_eq!((program.name.text.as_str(), program.number), ("CALC", 0x2000_0099));
    assert_eq!((program.doc.join(" "), program.versions[0].doc.join(" ")), ("Adds.".into(), "The first.".into()));
    assert_eq!(program.versions[1].number, 2);
    let procedures = &program.versions[0].procedures;
    let names: Vec<(&str, u32)> = procedures.iter().map(|p| (p.name.text.as_str(), p.number)).collect();
    assert_eq!(names, [("NULL", 0), ("ADD", 1), ("SWAP", 2), ("NAME", 3), ("MAYBE", 4)]);
    let args = |index: usize| -> Vec<(&str, Type)> {
        procedures[index].args.iter().map(|arg| (arg.name.text.as_str(), arg.ty.clone())).collect()
    };
    assert!(args(0).is_empty() && procedures[0].result.is_none());
    assert_eq!(args(1), [("arg", Type::Base(Base::Int)), ("arg2", Type::Base(Base::Int))]);
    assert_eq!(args(2), [("p", Type::Base(Base::Item(id(&spec, "pair"))))]);
    assert_eq!(args(3), [("arg", Type::String(u32::MAX)), ("arg2", Type::Opaque(4))]);
    assert_eq!(procedures[3].result.as_ref().unwrap().ty, Type::String(9));
    assert_eq!(procedures[4].result.as_ref().unwrap().ty, Type::Optional(Base::Item(id(&spec, "pair"))));
    assert_eq!(procedures[1].text, "int ADD(int, int) = 1;");
    assert_eq!(procedures[1].doc, ["Both at once."]);
}

#[test]
fn program_and_version_may_name_fields() {
    let spec = spec("struct mapping { unsigned int program; unsigned int version; string struct_<9>; };");
    let names: Vec<&str> = fields(item(&spec, "mapping")).iter().map(|field| field.name.text.as_str()).collect();
    assert_eq!(names, ["program", "version", "struct_"]);
}

#[test]
fn comments_document_adjacent_items() {
    let spec = spec(
        "/*\n * Licence\n */\n\n/* A point. */\n// In the plane.\nstruct point {\n    int x; /* across */\n    /* up */\n    int y;\n};\n\
         /* far away */\n\nenum e {\n    A = 1, /* first */\n    B = 2  /* second */\n};\n\
         %#include <stdio.h>\n",
    );
    assert_eq!(spec.header, ["Licence"]);
    let point = item(&spec, "point");
    assert_eq!(point.doc, ["A point.", "In the plane."]);
    let docs: Vec<&[String]> = fields(point).iter().map(|field| field.doc.as_slice()).collect();
    assert_eq!(docs, [["across".to_owned()], ["up".to_owned()]]);
    assert!(item(&spec, "e").doc.is_empty());
    let ItemKind::Enum(enumerators) = &item(&spec, "e").kind else { panic!() };
    assert_eq!((&enumerators[0].doc[..], &enumerators[1].doc[..]), (&["first".into()][..], &["second".into()][..]));
}

#[test]
fn text_is_the_declaration_without_annotations() {
    let spec = spec(
        "  @ddp\n  typedef opaque page<9>;\n  struct a {\n      @ddp opaque data<>;\n      @ddp\n      opaque more<>;\n  };\n",
    );
    assert_eq!(item(&spec, "page").text, "typedef opaque page<9>;");
    assert_eq!(item(&spec, "a").text, "struct a {\n    opaque data<>;\n    opaque more<>;\n};");
}

#[test]
fn line_endings_and_byte_order_mark() {
    let spec = spec("\u{feff}const A = 1;\r\nstruct a {\r\n\tint x; /* c */\r\n};\r\n\u{1a}");
    assert_eq!(spec.items.len(), 2);
    assert_eq!(fields(item(&spec, "a"))[0].doc, ["c"]);
}

#[test]
fn several_files_are_one_specification() {
    let compiled = Compiler::new()
        .source("types.x", "const N = 4; typedef opaque id[N];")
        .source("program.x", "program P { version V { id GET(id) = 1; } = N; } = 1;")
        .compile()
        .unwrap();
    assert_eq!(compiled.spec.programs[0].versions[0].number, 4);
    assert_eq!(compiled.sources.iter().count(), 2);
}

/// The scanner that finds the start of definitions treats comments as white space.
#[test]
fn comments_stand_between_any_two_tokens() {
    let text = "namespace /* so */ a::b /* named */ { struct s { int program /* a name */; }; }
        program /* here */ P /* it */ { version V { void NULL(void) = 0; } = 1; } = 1;
        typedef t /* here */ struct /* it is */ { int x; };";
    let spec = spec(text);
    assert_eq!(spec.programs.len(), 1);
    for name in ["s", "t"] {
        assert!(matches!(item(&spec, name).kind, ItemKind::Struct { .. }), "{name}");
    }
}

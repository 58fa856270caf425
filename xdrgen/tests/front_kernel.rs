//! Tests of the dialects of the Linux kernel's XDR compiler (`pragma`) and of xdrzcc (`zcopaque`), and of their hints
//! that items are eligible.

use rpcrdma_xdrgen::{
    Compiled, Compiler, DEFAULT_ITEM_MAX,
    diag::{Code, Diagnostics},
    emit::{EmitOptions, emit},
    ir::{Expr, ItemKind},
};

fn codes(diagnostics: &Diagnostics) -> Vec<Code> {
    diagnostics.iter().map(|diagnostic| diagnostic.code).collect()
}

fn compile(text: &str) -> Compiled {
    Compiler::new().source("t.x", text).compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

/// Returns the names of the eligible items.
fn eligible(compiled: &Compiled) -> Vec<String> {
    let mut found = Vec::new();
    for item in &compiled.spec.items {
        let fields = match &item.kind {
            ItemKind::Struct { fields, .. } => fields.iter().collect(),
            ItemKind::Union(union) => union.arms.iter().filter_map(|arm| arm.field.as_ref()).collect(),
            ItemKind::Typedef(field) => vec![field],
            _ => Vec::new(),
        };
        let names = fields.into_iter().filter(|field| field.ddp.is_some());
        found.extend(names.map(|field| format!("{}.{}", item.name.text, field.name.text)));
    }
    found
}

/// A specification in the style of `Documentation/sunrpc/xdr`, with every pragma that is not a hint.
const LOCKS: &str = "
/* Locks. */

pragma header locks1;

const NAME_MAX = 64;
typedef opaque cookie<NAME_MAX>;
typedef unsigned long uint32;
typedef long int32;

enum lock_stat { LOCK_OK = 0, LOCK_DENIED = 1 };
pragma big_endian lock_stat;
pragma public\t\tlock_stat;

struct lock_args { cookie id; bool exclusive; int32 state; opaque private[16]; };
union lock_res switch (lock_stat stat) { case LOCK_DENIED: lock_args holder; default: void; };
struct lock_data { uint32 count; opaque page<4096>; };
pragma exclude LOCK_READ;

program LOCKS {
    version LOCKS_V1 {
        void LOCK_NULL(void) = 0;
        lock_res LOCK_TEST(lock_args) = 1;
        lock_data LOCK_READ(lock_args) = 2;
    } = 1;
} = 0x20000001;
";

#[test]
fn pragmas_of_the_kernel_are_accepted() {
    let compiled = compile(LOCKS);
    assert_eq!(compiled.warnings.to_string(), "");
    // A pragma separates comments from declarations, and changes nothing else.
    let lines = LOCKS.lines().filter(|line| !line.starts_with("pragma"));
    let plain = compile(&lines.collect::<Vec<_>>().join("\n"));
    let rust = |compiled: &Compiled| emit(&compiled.spec, &EmitOptions::default()).unwrap();
    assert!(rust(&compiled) == rust(&plain), "{}", rust(&compiled));
    // `pragma` remains a name elsewhere.
    compile("struct pragma { int pragma; }; typedef pragma other; const PRAGMA = 1;");
    for (text, code) in [
        ("pragma pubic x;", Code::BadAnnotation),
        ("pragma header a b;", Code::BadArguments),
        ("pragma header;", Code::Syntax),
        ("pragma header a b c;", Code::Syntax),
    ] {
        let refused = Compiler::new().source("t.x", text).compile().unwrap_err();
        assert_eq!(codes(&refused), [code], "{text}: {refused}");
    }
    let refused = Compiler::new().source("t.x", "pragma pubic x;").compile().unwrap_err().to_string();
    assert!(refused.contains("did you mean `public`?"), "{refused}");
}

#[test]
fn hints_mark_items_where_a_binding_follows() {
    // The declaration can follow the hint.
    let pragma = "pragma pages put_args data; pragma skip bulk; typedef opaque bulk<4096>;
        struct put_args { int x; opaque data<>; bulk more; };
        program P { version V { void PUT(put_args) = 1; } = 1; } = 1;";
    let compiled = compile(pragma);
    assert_eq!(compiled.warnings.to_string(), "");
    assert_eq!(eligible(&compiled), ["bulk.bulk", "put_args.data"]);
    let zcopaque = "struct put_args { zcopaque data<>; zcopaque more; }; typedef zcopaque bulk<9>;
        union u switch (bool b) { case TRUE: zcopaque a<8>; default: void; };
        struct outer { struct { zcopaque x<7>; } in; };
        program P { version V { void PUT(put_args, bulk, u, outer) = 1; } = 1; } = 1;";
    let compiled = compile(zcopaque);
    assert_eq!(compiled.warnings.to_string(), "");
    assert_eq!(eligible(&compiled), ["put_args.data", "put_args.more", "bulk.bulk", "u.a", "outer_in.x"]);
    // A stated fact takes precedence, and the specification may declare the name.
    let both = "struct ok { @ddp(max = 9) zcopaque data<>; }; program P { version V { ok GET(void) = 1; } = 1; } = 1;";
    let compiled = compile(both);
    assert_eq!(compiled.spec.programs[0].versions[0].procedures[0].bounds.chunks[0].items[0].1, Expr::Const(9));
    let own = compile("typedef opaque zcopaque<9>; struct a { zcopaque x; };");
    assert_eq!(eligible(&own), Vec::<String>::new());
}

#[test]
fn hints_without_a_maximum_get_a_default() {
    let text = "struct ok { zcopaque data<>; }; program P { version V { ok GET(void) = 1; } = 1; } = 1;";
    let compiled = compile(text);
    assert_eq!(codes(&compiled.warnings), [Code::AssumedMaximum]);
    let bounds = &compiled.spec.programs[0].versions[0].procedures[0].bounds;
    assert_eq!(
        (bounds.inline.clone(), bounds.chunks[0].items[0].1.clone()),
        (Expr::Const(4), Expr::Const(DEFAULT_ITEM_MAX))
    );
    let stated = text.replace("ok GET", "@ddp ok GET");
    assert!(Compiler::new().source("t.x", stated).compile().is_err());
}

#[test]
fn hints_that_fit_nothing_have_no_effect() {
    // An `opaque_union` cannot hold eligible items.
    let union = "struct ok { zcopaque data<9>; }; opaque_union u switch (int d) { case 0: ok x; default: void; };";
    let list = "struct ok { zcopaque data<9>; ok *next; }; program P { version V { void PUT(ok) = 1; } = 1; } = 1;";
    for text in [union, list] {
        let compiled = compile(text);
        assert_eq!(codes(&compiled.warnings), [Code::NoEffect], "{}", compiled.warnings);
        assert!(compiled.warnings.to_string().contains("hints of eligibility"), "{}", compiled.warnings);
        assert_eq!(eligible(&compiled), Vec::<String>::new());
    }
    for pragma in ["pragma pages nothing data;", "pragma pages ok nothing;", "pragma skip ok;"] {
        let compiled = compile(&format!("struct ok {{ opaque data<9>; }}; {pragma}"));
        assert_eq!(codes(&compiled.warnings), [Code::NoEffect], "{pragma}: {}", compiled.warnings);
    }
}

/// A procedure, version or program number that is out of range causes exactly one error. The tests of the kernel's
/// compiler contain such specifications.
#[test]
fn a_bad_number_is_one_error() {
    for number in ["-1", "4294967296"] {
        let text = |procedure: &str, version: &str, program: &str| {
            format!(
                "program P {{ version V {{ void A(void) = 0; void B(void) = {procedure}; }} = {version};
                 version W {{ void C(void) = 0; }} = 0; }} = {program};"
            )
        };
        for text in [text(number, "1", "1"), text("1", number, "1"), text("1", "1", number)] {
            let refused = Compiler::new().source("t.x", &*text).compile().unwrap_err();
            assert_eq!(codes(&refused), [Code::OutOfRange], "{text}: {refused}");
        }
    }
}

//! Tests of Upper-Layer Bindings: the bounds of each procedure that result from annotations or from a binding file.

use rpcrdma_xdrgen::{
    Compiled, Compiler,
    diag::Code,
    ir::{ArgPath, Expr, ItemKind, Procedure},
};

const STORE: &str = "
    const MAX = 4096;
    struct range { unsigned hyper offset; unsigned int count; };
    struct get_args { string name<255>; range where_; opaque token<64>; };
    struct get_ok { bool eof; opaque data<>; };
    union get_res switch (int status) { case 0: get_ok ok; default: void; };
    struct put_args { string name<255>; opaque data<>; };
    program STORE { version STORE_V1 {
        void NULL(void) = 0;
        get_res GET(get_args) = 1;
        get_res LAST(unsigned int) = 2;
        int PUT(put_args) = 3;
    } = 1; } = 0x20000001;";

const BINDING: &str = "
    # Comments are as in XDR, and this.
    port STORE = 20100;
    ddp put_args.data;
    ddp get_ok.data max = min(args.where_.count, 64K);   // the usual way
    ddp STORE_V1.LAST: get_res.ok.data max = args;       /* its argument is the count */
    idempotent STORE_V1.GET, STORE.STORE_V1.LAST;
    limit STORE chunks = 1;
    reply_max STORE_V1.PUT = MAX / 2 + len(args.name) * 2;";

fn compile(text: &str, binding: &str) -> Compiled {
    let compiler = Compiler::new().source("t.x", text).ulb_source("t.ulb", binding);
    compiler.compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn procedure<'a>(compiled: &'a Compiled, name: &str) -> &'a Procedure {
    let versions = compiled.spec.programs.iter().flat_map(|program| &program.versions);
    versions.flat_map(|version| &version.procedures).find(|procedure| procedure.name.text == name).unwrap()
}

fn codes(text: &str) -> Vec<Code> {
    match Compiler::new().source("t.x", text).compile() {
        Ok(compiled) => compiled.warnings.iter().map(|diagnostic| diagnostic.code).collect(),
        Err(diagnostics) => diagnostics.iter().map(|diagnostic| diagnostic.code).collect(),
    }
}

fn arg(fields: &[usize]) -> Expr {
    Expr::Arg(ArgPath { arg: 0, fields: fields.to_vec() })
}

fn maxima(procedure: &Procedure) -> Vec<Expr> {
    procedure.bounds.items().map(|(_, max)| max.clone()).collect()
}

#[test]
fn a_binding_file_sets_bounds() {
    let compiled = compile(STORE, BINDING);
    assert_eq!(compiled.spec.programs[0].port, Some(20100));
    let get = procedure(&compiled, "GET");
    assert!(get.idempotent && procedure(&compiled, "LAST").idempotent && !procedure(&compiled, "PUT").idempotent);
    assert_eq!(get.bounds.inline, Expr::Const(4 + 4 + 4));
    assert_eq!(maxima(get), [Expr::Min(arg(&[1, 1]).into(), Expr::Const(65536).into())]);
    assert_eq!(get.bounds.chunks[0].items[0].0, "get_ok.data");
    assert_eq!(maxima(procedure(&compiled, "LAST")), [arg(&[])]);
    // A stated maximum is limited to the maximum of the type.
    let len = Expr::Len(ArgPath { arg: 0, fields: vec![0] });
    let twice = Expr::Mul(len.into(), Expr::Const(2).into());
    let stated = Expr::Add(Expr::Const(2048).into(), twice.into());
    assert_eq!(procedure(&compiled, "PUT").bounds.inline, Expr::Min(stated.into(), Expr::Const(4).into()));
    assert_eq!(procedure(&compiled, "NULL").bounds.inline, Expr::Const(0));
    assert!(compiled.warnings.is_empty(), "{}", compiled.warnings);
}

#[test]
fn annotations_say_the_same_as_statements() {
    let annotated = STORE
        .replace("program STORE", "@port(20100) @limit(1) program STORE")
        .replace("struct put_args { string name<255>;", "struct put_args { string name<255>; @ddp")
        .replace("bool eof;", "bool eof; @ddp(max = min(args.where_.count, 64K))")
        .replace("get_res GET", "@idempotent get_res GET")
        .replace("get_res LAST", "@idempotent get_res LAST")
        .replace("int PUT", "@reply_max(MAX / 2 + len(args.name) * 2) int PUT");
    // Only a binding can give an item different bounds in different procedures.
    let one = compile(&annotated, "ddp STORE_V1.LAST: get_ok.data max = args;");
    let other = compile(STORE, BINDING);
    for name in ["NULL", "GET", "LAST", "PUT"] {
        let (one, other) = (procedure(&one, name), procedure(&other, name));
        assert_eq!(one.bounds.inline, other.bounds.inline, "{name}");
        assert_eq!(one.bounds.chunks, other.bounds.chunks, "{name}");
        assert_eq!(one.idempotent, other.idempotent, "{name}");
        assert_eq!(one.text, other.text, "{name}");
    }
    assert_eq!(one.spec.programs[0].port, other.spec.programs[0].port);
    let facts = |compiled: &Compiled| compiled.spec.items.iter().map(|item| item.facts).collect::<Vec<_>>();
    assert_eq!(facts(&one), facts(&other));
}

#[test]
fn a_shared_maximum_is_the_maximum_of_the_item() {
    let max = |compiled: &Compiled| {
        let item = compiled.spec.items.iter().find(|item| item.name.text == "get_ok").unwrap();
        let ItemKind::Struct { fields, .. } = &item.kind else { panic!() };
        fields[1].ddp.clone().unwrap().max
    };
    let shared = "struct a { unsigned int n; };
        struct get_ok { bool eof; @ddp(max = args.n) opaque data<>; };
        program P { version V { get_ok A(a) = 1; get_ok B(a) = 2; } = 1; } = 1;";
    assert_eq!(max(&compile(shared, "")), Some(arg(&[0])));
    assert_eq!(max(&compile(shared, "ddp V.B: get_ok.data max = 3;")), None);
}

#[test]
fn optional_items_shift_later_chunks() {
    let compiled = compile(
        "struct small { @ddp opaque a<10>; };
         union perhaps switch (int d) { case 0: small s; default: void; };
         struct sure { small first; @ddp opaque b<20>; };
         struct unsure { perhaps first; @ddp opaque b<20>; small last; };
         struct array { small many<2>; @ddp opaque b<20>; };
         struct fixed { small many[2]; @ddp opaque b<20>; };
         struct option { small *maybe; @ddp opaque b<20>; };
         union either switch (int d) { case 0: small s; case 1: sure both; };
         struct large { @ddp opaque b<20>; };
         union other switch (int d) { case 0: small s; case 1: large l; };
         program P { version V {
             sure SURE(void) = 1; unsure UNSURE(void) = 2; array ARRAY(void) = 3; fixed FIXED(void) = 4;
             option OPTION(void) = 5; either EITHER(void) = 6; other OTHER(void) = 7;
         } = 1; } = 1;",
        "",
    );
    let maxima = |name: &str| -> Vec<u64> {
        let constant = |expr| if let Expr::Const(n) = expr { n } else { panic!("{expr:?}") };
        maxima(procedure(&compiled, name)).into_iter().map(constant).collect()
    };
    assert_eq!(maxima("SURE"), [10, 20]);
    // If `first` is absent, `b` becomes the first eligible item and `last` the second.
    assert_eq!(maxima("UNSURE"), [20, 20, 10]);
    assert_eq!(maxima("ARRAY"), [20, 20, 20]);
    assert_eq!(maxima("FIXED"), [10, 10, 20]);
    assert_eq!(maxima("OPTION"), [20, 20]);
    assert_eq!(maxima("EITHER"), [10, 20]);
    assert_eq!(maxima("OTHER"), [20]);
    assert_eq!(procedure(&compiled, "UNSURE").bounds.chunks[0].items[0].0, "small.a or unsure.b");
}

#[test]
fn eligible_kinds() {
    let good = "struct fixed { int a; opaque b[8]; };
        typedef opaque blob<4096>; typedef blob alias;
        struct args {
            @ddp opaque a<>; @ddp string b<>; @ddp opaque c[4096]; @ddp fixed d<100>; @ddp fixed e; @ddp int f[1024]; @ddp alias g;
            @ddp string names<>;
        };
        struct ok { @ddp fixed d<100>; @ddp fixed e; @ddp int f[1024]; @ddp alias g; };
        program P { version V { ok A(args) = 1; @ddp alias B(@ddp blob, @ddp alias b) = 2; } = 1; } = 1;";
    let compiled = compile(good, "");
    let maxima_of = |name| maxima(procedure(&compiled, name));
    // Maxima are the sizes of the contents, without the count.
    assert_eq!(maxima_of("A"), [1200, 12, 4096, 4096].map(Expr::Const));
    assert_eq!(maxima_of("B"), [Expr::Const(4096)]);
    assert_eq!(procedure(&compiled, "B").bounds.inline, Expr::Const(4));
    assert!(procedure(&compiled, "B").args.iter().all(|arg| arg.ddp.is_some()));
}

#[test]
fn a_typedef_marks_all_its_uses() {
    let compiled = compile(
        "@ddp typedef opaque page<4096>;
         struct two { page a; page b; };
         program P { version V { two GET(void) = 1; void PUT(two) = 2; } = 1; } = 1;",
        "",
    );
    let get = procedure(&compiled, "GET");
    assert_eq!(maxima(get), [Expr::Const(4096), Expr::Const(4096)]);
    assert_eq!(get.bounds.inline, Expr::Const(8));
}

#[test]
fn arguments_are_selected_by_name() {
    let compiled = compile(
        "struct a { unsigned int n; }; struct ok { opaque data<>; };
         program P { version V { ok GET(a first, a second, unsigned int) = 1; } = 1; } = 1;",
        "ddp V.GET.result.data max = args.second.n + args.arg;",
    );
    let path = |arg, fields: &[usize]| Expr::Arg(ArgPath { arg, fields: fields.to_vec() });
    let sum = Expr::Add(path(1, &[0]).into(), path(2, &[]).into());
    assert_eq!(maxima(procedure(&compiled, "GET")), [sum]);
}

#[test]
fn constant_arithmetic_is_evaluated_and_saturates() {
    let inline = |expr: &str| {
        let text =
            format!("const C = 7; program P {{ version V {{ @reply_max({expr}) opaque<> A(void) = 1; }} = 1; }} = 1;");
        procedure(&compile(&text, ""), "A").bounds.inline.clone()
    };
    assert_eq!(inline("2 + 3 * 4 - 10 / 3"), Expr::Const(11));
    assert_eq!(inline("(2 + 3) * C"), Expr::Const(35));
    assert_eq!(inline("1 - 2"), Expr::Const(0));
    assert_eq!(inline("16G * 16G * 16G"), Expr::Const(u64::MAX));
    assert_eq!(inline("min(5, max(1, 3, 2), 4)"), Expr::Const(3));
    assert_eq!(inline("010 + 0x10 + 1K"), Expr::Const(8 + 16 + 1024));
}

#[test]
fn replies_without_a_maximum() {
    let text = "typedef string text<>; program P { version V { text A(void) = 1; } = 1; } = 1;";
    let binding = |text: &str| Compiler::new().source("t.x", text).ulb_source("t.ulb", "port P = 9;");
    let refused = binding(text).compile().unwrap_err();
    assert_eq!(refused.iter().map(|d| d.code).collect::<Vec<_>>(), [Code::UnboundedReply]);
    // Without a binding, the maximum has a default.
    let compiled = Compiler::new().source("t.x", text).compile().unwrap();
    assert_eq!(compiled.warnings.iter().map(|d| d.code).collect::<Vec<_>>(), [Code::AssumedMaximum]);
    assert_eq!(procedure(&compiled, "A").bounds.inline, Expr::Const(rpcrdma_xdrgen::DEFAULT_REPLY_MAX));
    let required = Compiler::new().source("t.x", text).require_reply_max().compile().unwrap_err();
    assert_eq!(required.to_string(), refused.to_string());
    let compiled = Compiler::new().source("t.x", text).default_reply_max(1000).compile().unwrap();
    assert_eq!(procedure(&compiled, "A").bounds.inline, Expr::Const(1000));
    assert_eq!(codes("typedef opaque x<>; struct unused { x y; };"), []);
}

#[test]
fn the_innermost_limit_applies() {
    let text = |program: &str, version: &str, procedure: &str| {
        format!(
            "struct page {{ @ddp opaque data[4096]; }};
             {program} program P {{ {version} version V {{ {procedure} void PUT(page, page, page) = 1; }} = 1; }} = 1;"
        )
    };
    assert_eq!(codes(&text("", "", "")), []);
    assert_eq!(codes(&text("@limit(2)", "", "")), [Code::TooManyItems]);
    assert_eq!(codes(&text("@limit(2)", "@limit(3)", "")), []);
    assert_eq!(codes(&text("@limit(2)", "@limit(3)", "@limit(chunks = 2)")), [Code::TooManyItems]);
    let seventeen = text("", "", "").replace("page, page, page", &vec!["page"; 17].join(", "));
    assert_eq!(codes(&seventeen), [Code::TooManyItems]);
}

#[test]
fn nested_unions_compile_quickly() {
    let mut text = "union u0 switch (int a) { case 0: @ddp(max = args.n) opaque d<>; };".to_owned();
    for n in 0..100 {
        text += &format!("union u{} switch (int a) {{ case 0: u{n} a; case 1: u{n} b; }};", n + 1);
    }
    text += "struct args { unsigned int n; }; program P { version V { u100 A(args) = 1; } = 1; } = 1;";
    assert_eq!(maxima(procedure(&compile(&text, ""), "A")), [arg(&[0])]);
}

#[test]
fn stripped_text_declares_the_same_without_the_binding() {
    let annotated = "struct a { unsigned int n; };
        struct ok { bool eof; @ddp(max = args.n) opaque data<4096>; };
        @port(20100) program P { version V { @idempotent @reply_max(4) ok GET(a) = 1; } = 1; } = 1;";
    let plain = rpcrdma_xdrgen::strip("t.x", annotated).unwrap();
    assert!(!plain.contains('@'), "{plain}");
    let (one, other) = (compile(annotated, ""), compile(&plain, ""));
    let texts = |compiled: &Compiled| compiled.spec.items.iter().map(|item| item.text.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&one), texts(&other));
    assert_eq!(procedure(&one, "GET").text, procedure(&other, "GET").text);
    assert!(procedure(&other, "GET").bounds.chunks.is_empty() && !procedure(&other, "GET").idempotent);
}

/// The compiler does not examine the whole result type of a procedure with an error, so it does not warn about
/// ineffective annotations in that type.
#[test]
fn errors_suppress_warnings_about_unexamined_items() {
    let text = "struct n { @ddp opaque d<100>; n *next; }; program P { version V { n X(void) = 1; } = 1; } = 1;";
    assert_eq!(codes(text), [Code::TooManyItems]);
}

/// RFC 4506 §4.10: a length is a 32-bit number, in a type as well as in a binding.
#[test]
fn maxima_beyond_32_bits() {
    let text = |max: &str, ty: &str| {
        format!(
            "struct a {{ unsigned int n; }}; struct ok {{ @ddp(max = {max}) opaque x{ty}; }};
             program P {{ version V {{ ok GET(a) = 1; }} = 1; }} = 1;"
        )
    };
    assert_eq!(codes(&text("4294967295", "<>")), []);
    assert_eq!(codes(&text("args.n * 8", "<>")), [], "its value is known only in a call");
    for max in ["4294967296", "5368709120", "1M * 1M"] {
        assert_eq!(codes(&text(max, "<>")), [Code::OutOfRange], "{max}");
        assert_eq!(codes(&text(max, "<100>")), [Code::OutOfRange], "{max}");
    }
}

/// A plain number, such as a port, is evaluated like the expression of a maximum, but cannot depend on the arguments of
/// a call.
#[test]
fn numbers_and_maxima_use_the_same_evaluator() {
    let message = |number: &str| {
        let text = format!("@port({number}) program P {{ version V {{ void NULL(void) = 0; }} = 1; }} = 1;");
        match Compiler::new().source("t.x", text).compile() {
            Ok(compiled) => format!("{:?}", compiled.spec.programs[0].port),
            Err(diagnostics) => diagnostics.iter().map(|diagnostic| diagnostic.message.clone()).collect(),
        }
    };
    assert_eq!(message("20000 + max(10, 20) * 5"), "Some(20100)");
    assert_eq!(message("1 / 0"), "division by zero");
    assert_eq!(message("min(3)"), "`min` takes two or more arguments");
    assert_eq!(message("avg(3, 4)"), "there is no function `avg`");
    for depends in ["args.count", "len(args.name)", "args", "other.count"] {
        assert_eq!(message(depends), "this cannot depend on a call's arguments");
    }
}

#[test]
fn items_of_the_arguments_can_be_named_by_one_word() {
    let text = "const limit = 9;
        struct range { unsigned int count; };
        struct args { range of; opaque data<>; unsigned int limit; unsigned int count; };
        struct ok { @ddp(max = count) opaque data<>; };
        struct echo_ok { @ddp(max = data) opaque data<>; };
        program P { version V {
            ok A(args) = 1;
            @reply_max(of.count + len(data)) int B(args) = 2;
            ok C(unsigned int count, unsigned int other) = 3;
            echo_ok ECHO(opaque data<>) = 4;
            @reply_max(limit) string D(args) = 5;
            @reply_max(args.limit) string E(args) = 6;
        } = 1; } = 1;";
    let compiled = compile(text, "");
    let path = |arg: usize, fields: &[usize]| ArgPath { arg, fields: fields.to_vec() };
    assert_eq!(maxima(procedure(&compiled, "A")), [arg(&[3])]);
    assert_eq!(maxima(procedure(&compiled, "C")), [Expr::Arg(path(0, &[]))]);
    assert_eq!(maxima(procedure(&compiled, "ECHO")), [Expr::Len(path(0, &[]))]);
    let inline = |name: &str| procedure(&compiled, name).bounds.inline.clone();
    // A constant takes precedence over a field of the same name.
    assert_eq!((inline("D"), inline("E")), (Expr::Const(9), arg(&[2])));
}

#[test]
fn hints_name_the_arguments() {
    let text = "struct list { opaque names<>; };
        struct args { unsigned hyper cookie; unsigned int maxcount; };
        program P { version V { list LIST(args) = 1; } = 1; } = 1;";
    let error = Compiler::new().source("t.x", text).require_reply_max().compile().unwrap_err().to_string();
    assert!(error.contains("write `@reply_max(maxcount)` before `LIST`"), "{error}");
    assert!(error.contains("`reply_max V.LIST = maxcount;`"), "{error}");
    assert!(error.contains("--default-reply-max 65536"), "{error}");
    // The suggestion compiles.
    let binding = "reply_max V.LIST = maxcount;";
    let compiled = Compiler::new().source("t.x", text).ulb_source("t.ulb", binding).compile().unwrap();
    assert_eq!(procedure(&compiled, "LIST").bounds.inline, arg(&[1]));
}

/// Types for the tests of arrays.
const MANY: &str = "
    typedef string key<64>;
    struct keys { key names<16>; unsigned int count; };
    struct small { @ddp opaque a<10>; };
    struct entry { unsigned int n; @ddp opaque data<1000>; };
    struct pair { @ddp opaque digest<32>; @ddp opaque data<1000>; };
    union found switch (bool yes) { case TRUE: @ddp opaque data<1000>; case FALSE: void; };
    struct twice { found first; found second; };
    struct index { @ddp opaque table<50>; };";

/// Compiles a procedure `GET(keys)` whose result has the fields `result`. Returns the runs of the result's chunks as
/// text, and the maximum length of the result in the message.
fn runs(result: &str, binding: &str) -> (Vec<(String, String)>, Expr) {
    let text = format!(
        "{MANY} struct result {{ {result} }}; @limit(99) program P {{ version V {{ result GET(keys) = 1; }} = 1; }} = 1;"
    );
    let compiled = compile(&text, binding);
    let bounds = &procedure(&compiled, "GET").bounds;
    let constant = |expr: &Expr| if let Expr::Const(n) = expr { n.to_string() } else { format!("{expr:?}") };
    let len = Expr::Len(ArgPath { arg: 0, fields: vec![0] });
    let names = Expr::Min(len.clone().into(), Expr::Const(16).into());
    let count = |count: &Option<Expr>| match count {
        None => "once".to_owned(),
        Some(count) if *count == names => "names".to_owned(),
        Some(Expr::Mul(count, twice)) if **count == names => format!("{} * names", constant(twice)),
        Some(other) => format!("{other:?}"),
    };
    let run = |run: &rpcrdma_xdrgen::ir::ChunkRun| {
        let items: Vec<String> = run.items.iter().map(|(_, max)| constant(max)).collect();
        (count(&run.count), items.join(" "))
    };
    (bounds.chunks.iter().map(run).collect(), bounds.inline.clone())
}

/// Each element of an array has its own chunks if the count of the array follows from the arguments.
#[test]
fn elements_are_counted_by_the_arguments() {
    let chunks = |result: &str| runs(result, "").0;
    let run = |count: &str, items: &str| (count.to_owned(), items.to_owned());
    assert_eq!(chunks("@max(len(names)) entry all<16>;"), [run("names", "1000")]);
    assert_eq!(chunks("@max(len(names)) pair all<16>;"), [run("names", "32 1000")]);
    // If an item is missing in an element, that of the next element takes its position.
    assert_eq!(chunks("@max(len(names)) found all<16>;"), [run("names", "1000")]);
    assert_eq!(chunks("@max(len(names)) twice all<16>;"), [run("2 * names", "1000")]);
    assert_eq!(chunks("small first; @max(len(names)) entry all<16>;"), [run("once", "10"), run("names", "1000")]);
    // The item after the array may take the position of each element.
    assert_eq!(chunks("@max(len(names)) small all<16>; index last;"), [run("names", "50"), run("once", "50")]);
    let two = "small first; @max(len(names)) pair all<16>; index last;";
    assert_eq!(chunks(two), [run("once", "10"), run("names", "50 1000"), run("once", "50")]);
    // The elements after an optional item may take its position, and the count of a nested array multiplies.
    assert_eq!(chunks("small *first; @max(len(names)) entry all<16>;"), [run("once", "1000"), run("names", "1000")]);
}

/// The maximum length of a result in the message follows from the counts of its arrays.
#[test]
fn the_message_is_bounded_by_the_counts() {
    let inline = |result: &str, binding: &str| runs(result, binding).1;
    let names = || Expr::Min(Expr::Len(ArgPath { arg: 0, fields: vec![0] }).into(), Expr::Const(16).into());
    let times = |n: u64| Expr::Mul(names().into(), Expr::Const(n).into());
    let sum = |a: Expr, b: Expr| Expr::Add(a.into(), b.into());
    assert_eq!(inline("@max(len(names)) entry all<16>;", ""), sum(Expr::Const(4), times(8)));
    let key = Expr::Const(4);
    assert_eq!(inline("@max(len(names)) key all<16>;", ""), sum(key, times(4 + 64)));
    // The count of 4 bytes, the contents, and up to 3 bytes of padding.
    let count = Expr::Arg(ArgPath { arg: 0, fields: vec![1] });
    assert_eq!(inline("@max(count) opaque text<>;", ""), sum(count.clone(), Expr::Const(7)));
    let limited = Expr::Min(sum(count.clone(), Expr::Const(7)).into(), Expr::Const(104).into());
    assert_eq!(inline("@max(count) string text<100>;", ""), limited);
    assert_eq!(
        inline("@max(count) opaque text<>;", "reply_max V.GET = 9;"),
        Expr::Min(Expr::Const(9).into(), sum(count, Expr::Const(7)).into())
    );
    // Statements of a binding have the same effect.
    assert_eq!(inline("entry all<16>;", "max result.all = len(names);"), sum(Expr::Const(4), times(8)));
    assert_eq!(inline("@max(9) entry all<16>;", "max V.GET: result.all = len(names);"), sum(Expr::Const(4), times(8)));
}

/// A linked list has a maximum length if its number of nodes has a maximum.
#[test]
fn lists_are_bounded_by_the_number_of_their_nodes() {
    let text = "struct args { unsigned int count; };
        struct entry { string name<255>; unsigned hyper size; entry *next; };
        struct blob { @ddp opaque data<100>; blob *next; };
        struct some { int first; @max(count) blob *all; };
        program P { version V {
            @max(count) entry *LIST(args) = 1;
            @reply_max(4 + count * max_len(entry)) entry *SAME(args) = 2;
            some BLOBS(args) = 3;
            @reply_max(max_len(entry.name) + max_len(args)) entry *FIELDS(args) = 4;
        } = 1; } = 1;";
    let binding = "limit V.BLOBS chunks = 3; max V.BLOBS: some.all = min(count, 3);";
    let compiled = compile(text, binding);
    let count = arg(&[0]);
    let bound = Expr::Add(Expr::Const(4).into(), Expr::Mul(count.into(), Expr::Const(272).into()).into());
    assert_eq!(procedure(&compiled, "LIST").bounds.inline, bound);
    assert_eq!(procedure(&compiled, "SAME").bounds.inline, bound);
    assert_eq!(procedure(&compiled, "FIELDS").bounds.inline, Expr::Const(260 + 4));
    let blobs = &procedure(&compiled, "BLOBS").bounds.chunks;
    assert_eq!(blobs[0].count, Some(Expr::Min(arg(&[0]).into(), Expr::Const(3).into())));
}

/// RFC 8166 §4.3.2.2: if an item is missing, the next item takes its chunk. A chunk therefore needs room for each item
/// that can take this chunk, but for no other item. The bound of the whole result counts each item once.
#[test]
fn an_item_that_may_be_missing_does_not_count_twice() {
    let compiled = compile(
        "struct two { @ddp opaque a<8>; @ddp opaque b<12>; };
         struct large { two *maybe; @ddp opaque data<1000>; };
         struct plain { two both; @ddp opaque data<1000>; };
         program P { version V { large LARGE(void) = 1; plain PLAIN(void) = 2; } = 1; } = 1;",
        "",
    );
    let bounds = &procedure(&compiled, "LARGE").bounds;
    // `maybe` has two items or none, so the second chunk is never that of `data`.
    assert_eq!(maxima(procedure(&compiled, "LARGE")), [1000, 12, 1000].map(Expr::Const));
    assert_eq!(bounds.total, Some(Expr::Const(1020)));
    assert_eq!(procedure(&compiled, "PLAIN").bounds.total, None);
}

const VERSIONS: &str = "
    struct args { unsigned int count; };
    struct ok { @ddp(max = count) opaque data<>; };
    struct list { opaque names<>; };
    program P {
        version V3 : V2 { int NEW3(int) = 5; } = 3;
        @limit(chunks = 1)
        version V1 {
            void NULL(void) = 0;
            @idempotent ok GET(args) = 1;
            list LIST(args) = 2;
            void PUT(@ddp opaque data<100>) = 3;
        } = 1;
        version V2 : V1 {
            /* Twice as much. */
            ok GET(args, int) = 1;
            int NEW(int) = 4;
        } = 2;
    } = 1;";

#[test]
fn versions_take_over_procedures_and_their_binding() {
    let binding = "reply_max V1.LIST = 100; reply_max V3.LIST = 7; ddp V2.GET: ok.data max = args.args.count * 2;
        ddp V1.GET: ok.data max = args.count + 1; limit V3 chunks = 2;";
    let compiled = compile(VERSIONS, binding);
    let versions = &compiled.spec.programs[0].versions;
    let names = |at: usize| -> Vec<(&str, u32, Option<usize>)> {
        let all = versions[at].procedures.iter();
        all.map(|procedure| (procedure.name.text.as_str(), procedure.number, procedure.declared_in)).collect()
    };
    assert_eq!(
        names(2),
        [("NULL", 0, Some(1)), ("GET", 1, None), ("LIST", 2, Some(1)), ("PUT", 3, Some(1)), ("NEW", 4, None)]
    );
    let third = [("NULL", 0, Some(1)), ("GET", 1, Some(2)), ("LIST", 2, Some(1)), ("PUT", 3, Some(1))];
    assert_eq!(names(0)[..4], third);
    assert_eq!(names(0)[4..], [("NEW", 4, Some(2)), ("NEW3", 5, None)]);
    let at = |version: usize, procedure: usize| &versions[version].procedures[procedure];
    assert!(at(1, 1).idempotent && !at(2, 1).idempotent && !at(0, 1).idempotent);
    assert_eq!([1, 2, 0].map(|version| at(version, 2).bounds.inline.clone()), [100, 100, 7].map(Expr::Const));
    assert!(at(0, 3).args[0].ddp.is_some());
    assert_eq!(at(2, 1).bounds, at(0, 1).bounds);
    assert_ne!(at(1, 1).bounds, at(2, 1).bounds);
    assert_eq!(at(0, 2).text, at(1, 2).text);
    assert!(compiled.warnings.is_empty(), "{}", compiled.warnings);
}

/// An error in a procedure is reported once, not for each version that takes it over.
#[test]
fn errors_of_procedures_are_not_repeated() {
    let codes: Vec<Code> = {
        let refused = Compiler::new().source("t.x", VERSIONS).require_reply_max().compile().unwrap_err();
        refused.iter().map(|diagnostic| diagnostic.code).collect()
    };
    assert_eq!(codes, [Code::UnknownConstant, Code::UnboundedReply]);
}

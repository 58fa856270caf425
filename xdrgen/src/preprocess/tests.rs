use super::*;

fn preprocess(text: &str, given: &[(&str, &str)]) -> (String, Vec<String>, Vec<Code>) {
    let mut defines: Defines = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut out = Vec::new();
    let done = run(
        0,
        text,
        &mut defines,
        &mut |name, _, _| if name == "there.x" { Included::Read } else { Included::Missing },
        &mut out,
    );
    assert_eq!(done.text.len(), text.len());
    let constants = done.macros.iter().map(|line| {
        let value = match (&line.value, &line.ty) {
            (Some(Value { kind: ValueKind::Computed(text, names), .. }), _) => format!("{text} of {}", names.len()),
            (Some(value), _) => format!("{:?}", value.kind),
            (None, ty) => format!("{:?}", ty.as_ref().map(|ty| &ty.kind)),
        };
        format!("{} {value} {}", line.name.text, line.doc.join("|"))
    });
    (done.text.replace(' ', ""), constants.collect(), out.iter().map(|diagnostic| diagnostic.code).collect())
}

#[test]
fn inactive_branches_become_spaces() {
    let text = "#ifdef A\none\n#elif B > 1 && !defined(C)\ntwo\n#else\n/* \u{e9}\n#endif */\nthree\n#endif\nlast\n";
    let kept = |given: &[(&str, &str)]| {
        let (text, _, codes) = preprocess(text, given);
        assert!(codes.is_empty());
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(kept(&[("A", "")]), "one last");
    assert_eq!(kept(&[("B", "2")]), "two last");
    // A directive within a comment has no effect.
    assert_eq!(kept(&[("B", "2"), ("C", "")]), "/*\u{e9} three last");
    assert_eq!(kept(&[("A", ""), ("B", "2")]), "one last");
}

#[test]
fn constants_of_every_kind() {
    let text = "#define A 0x10\n # define B (A << 2) /* four A */\n#define C \"text\"\n#define D other // why\n\
                #define E 010UL\n#define FLAG\n#define F -1\n#define LONG \\\n 7\n#define A 0x10\n#undef A\n#define A 3 /* goes\non */\n";
    let (_, constants, codes) = preprocess(text, &[]);
    let expected = [
        "A Int(16) ",
        "B Int(64) four A",
        "C Text(\"text\") ",
        "D Name(\"other\") why",
        "E Int(8) ",
        "F Int(-1) ",
        "LONG Int(7) ",
        "A Int(3) goes",
    ];
    assert_eq!(constants, expected);
    assert!(codes.is_empty());
}

/// A directive may follow a byte order mark at the start of a text, where editors on Windows write one. A `#` after a
/// later byte order mark does not start a directive.
#[test]
fn a_byte_order_mark_is_allowed_at_the_start() {
    let (_, constants, codes) = preprocess("\u{feff}#define A 3\n#ifdef A\n#endif\n\u{feff}#define B 4\n", &[]);
    assert_eq!(constants, ["A Int(3) "]);
    assert!(codes.is_empty());
}

#[test]
fn macros_that_are_not_constants_are_reported() {
    let text = "#define MAX(a, b) a\n#define T extern int x\n#pragma once\n#include <a.h>\n#include \"there.x\"\n\
                #include \"gone.x\"\n#if 1 +\n#endif\n# 1 \"file\"\n";
    assert_eq!(preprocess(text, &[]).2, [Code::Preprocessor; 7]);
}

#[test]
fn types_and_computations() {
    let mut text = "#define T unsigned /* of C's */ int\n#define S struct s\n".to_owned();
    text += "#define N (LATER + 1) * sizeof_it\n#define C 'a'\n";
    text += &format!("#define DEEP {}1{}\n", "(".repeat(70), ")".repeat(70));
    let (_, macros, codes) = preprocess(&text, &[]);
    assert_eq!(macros[0], "T Some(Primitive(UInt)) of C's");
    assert!(macros[1].starts_with("S Some(Named("), "{}", macros[1]);
    assert_eq!(macros[2..], ["N ( LATER + 1 ) * sizeof_it of 2 ", "C Int(97) "]);
    assert_eq!(codes, [Code::Preprocessor]);
}

#[test]
fn unmatched_conditions_are_errors() {
    assert_eq!(preprocess("#if 1\n", &[]).2, [Code::Unclosed]);
    assert_eq!(preprocess("#endif\n#else\n", &[]).2, [Code::Syntax; 2]);
    assert_eq!(preprocess("#if 0\n#else\n#else\n#endif\n", &[]).2, [Code::Syntax]);
}

#[test]
fn conditions_are_c_expressions() {
    let is_true = |text: &str| {
        const_expr::is_true(text, &Defines::from([("V".into(), "(4)".into()), ("LOOP".into(), "LOOP".into())]))
    };
    for (text, expected) in [
        ("V >= 4 && V < 5", Some(true)),
        ("1 + 2 * 3 == 7", Some(true)),
        ("(1 + 2) * 3 == 7", Some(false)),
        ("10 - 4 - 3 == 3", Some(true)),
        ("1 << 4 == 0x10 || nothing", Some(true)),
        ("defined V && !defined(W)", Some(true)),
        ("~0 & 6 ^ 6 | 0", Some(false)),
        ("7 / 0", None),
        ("LOOP", None),
        ("1 2", None),
        ("", None),
        ("1 << 100", None),
        ("defined V ? V == 4 : 1 / 0", Some(true)),
        ("V > 9 ? 1 : V > 3 ? 2 - 2 : 1", Some(false)),
        ("1 ? 1", None),
        ("0 && 1 / 0 || 'a' == 97", Some(true)),
        ("1 || 1 / 0", Some(true)),
        ("1 && 1 / 0", None),
        ("'\\n' == 10 && '\\377' == -1 && '\\'' == 39", Some(true)),
        ("'ab'", None),
        ("'\\q'", None),
    ] {
        assert_eq!(is_true(text), expected, "{text}");
    }
    assert_eq!(is_true(&"(".repeat(100_000)), None);
    assert_eq!(is_true(&"!".repeat(100_000)), None);
    assert_eq!(is_true(&"1 + ".repeat(1000)), None);
    assert_eq!(is_true(&"1 ? 1 : ".repeat(100_000)), None);
}

#[test]
fn strings_in_directives_contain_no_comments() {
    let text = "#define A \"/* text\"\n#define B \"http://there\" // B's\n#define C '\"' /* C's */\n#include \"gone/*.x\"\nlast\n";
    let (kept, constants, codes) = preprocess(text, &[]);
    assert_eq!(constants, ["A Text(\"/* text\") ", "B Text(\"http://there\") B's", "C Int(34) C's"]);
    assert!(kept.ends_with("\nlast\n"), "{kept}");
    assert_eq!(codes, [Code::Preprocessor]);
}

#[test]
fn an_empty_line_ends_a_directive() {
    let (kept, constants, codes) =
        preprocess("#define A 1 \\\n\nfirst\n#if 0\nprose's \"quote /*\n#endif */\n#endif\nlast\n", &[]);
    assert_eq!(constants, ["A Int(1) "]);
    assert_eq!(kept.lines().filter(|line| !line.starts_with('#')).collect::<String>(), "firstlast");
    assert!(codes.is_empty());
}

//! Tests that `fmt` keeps the meaning of a specification, and that formatting twice changes nothing. The inputs are the
//! specifications in the repository, texts found by fuzzing, and definitions with random white space, line ends,
//! comments, preprocessor lines and pass-through lines.

use proptest::prelude::*;

use super::{formatted, meaning, specifications};

/// Texts with definitions of every kind. No text refers to a name in another text.
const DEFINITIONS: &[&str] = &[
    "const A = -0x10 ;",
    "const uint32 B = 1 ;",
    "const SUM = A_1 + 2 * ( 3 - -4 ) << 1 ; const A_1 = ~ 5 & 7 ;",
    "const QUOTE = '\\'' + '{' + '\\012' ;",
    "typedef opaque sized < ( 1 << 4 ) >> 2 > ;",
    "const TEXT = \"a  b; /* c */ // d\" ;",
    "typedef opaque data < 1048576 > ;",
    "typedef string word < > ;",
    "typedef unsigned hyper * maybe ;",
    "typedef struct { int x ; } point ;",
    "typedef number unsigned int ;",
    "@ ddp typedef opaque page [ 4096 ] ;",
    "enum color { RED , GREEN = 5 , BLUE = 6 , } ;",
    "enum small { ONE = 1 } ;",
    "struct empty { } ;",
    "struct pair { int a ; unsigned b < 3 > ; ; struct { bool c ; string d ; } e ; enum { F , G } h < 2 > ; } ;",
    "struct node { int value ; struct node * next ; } ;",
    "struct marked { @ ddp opaque large < 65536 > ; @ ddp ( max = 4 ) string text < 9 > ; } ;",
    "union choice switch ( int kind ) { case 1 : int a ; case 2 : case -3 : void ; default : opaque rest [ 4 ] ; } ;",
    "opaque_union apart switch ( int kind ) { case 1 : int a ; case 2 : case -3 : void ; default : opaque rest < 4 > ; } ;",
    "union nested switch ( bool b ) { case TRUE : union switch ( int c ) { case 0 : int d ; } e ; case FALSE : void ; } ;",
    "namespace_a::b_{ typedef int inner ; }",
    "@ port ( 2049 ) program P { version V { void NULL ( ) = 0 ; @ idempotent @ reply_max ( 4 + min ( 5 , 6 ) * 2 )
     int GET ( int , string name < 9 > , unsigned * ) = 1 ; } = 1 ; version W { void NULL ( void ) = 0 ; } = 2 ; } = 0x20000000 ;",
    "struct program { int version ; int program ; } ;",
];

/// Texts that may separate two tokens.
const BETWEEN: &[&str] = &[
    " ",
    " ",
    " ",
    "  \t ",
    "\n",
    "\n",
    "\n    ",
    "\n\n",
    "\n\n\n",
    "\r\n",
    " /* c */ ",
    "/* c */",
    "\n/* own */\n",
    "\n/* own */ ",
    "\n\n/* own */\n\n",
    " /* beside */\n",
    "\n  /* two\n   * lines\n   */\n",
    " /* two\n      lines */ ",
    " // rest\n",
    "\n// own\n",
    "\n// own\n\n",
    "\n%raw { line\n",
    "\n  % indented \"raw\n",
    " %behind\n",
    "\n#define N1 3 /* c */\n",
    "\n#define N2 \\\n  4\n",
    "\n#ifdef NEVER\n don't { \"look\n#endif\n",
    "\n#ifdef NEVER\nstruct x {\n#else\n#endif\n",
    "\n#if 0 /* goes\non */ \n#endif\n",
];

fn definitions() -> impl Strategy<Value = String> {
    let picked = prop::sample::subsequence(DEFINITIONS, 1..6).prop_shuffle();
    picked.prop_flat_map(|picked| {
        let tokens: Vec<String> = split(&picked.join(" "));
        let count = tokens.len() + 1;
        let plain = prop::collection::vec(prop::sample::select(BETWEEN), count);
        // `rate` is the percentage of gaps between tokens that get more than a space.
        (Just(tokens), plain, prop::collection::vec(0..100_u8, count), 0..100_u8).prop_map(
            |(tokens, between, chance, rate)| {
                let mut text = String::new();
                for ((token, between), chance) in tokens.iter().zip(&between).zip(&chance) {
                    text.push_str(if *chance < rate { between } else { " " });
                    text.push_str(token);
                }
                text.push_str(between.last().unwrap());
                text
            },
        )
    })
}

/// Splits a text at white space outside of strings.
fn split(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for (at, part) in text.split('"').enumerate() {
        match at % 2 {
            // The head of a namespace may contain white space only, so it stays in one token.
            0 => tokens.extend(part.split_whitespace().map(|word| word.replace("namespace_a::b_", "namespace a::b "))),
            _ => tokens.push(format!("\"{part}\"")),
        }
    }
    tokens
}

fn check(text: &str, binding: &str) -> Result<(), TestCaseError> {
    let once = formatted(text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    let twice = formatted(&once).map_err(|error| TestCaseError::fail(format!("{error}\n{once}")))?;
    prop_assert_eq!(&twice, &once, "of\n{}", text);
    match (meaning::compile(text, binding), meaning::compile(&once, binding)) {
        (Ok(before), Ok(after)) => {
            let (before, after) = (meaning::of(before), meaning::of(after));
            let difference = meaning::difference(&before, &after);
            prop_assert!(before == after, "{difference}\n--- of\n{text}\n--- formatted\n{once}");
        }
        (Err(before), Err(after)) => prop_assert_eq!(before.error_count(), after.error_count()),
        (Ok(_), Err(after)) => prop_assert!(false, "{after}\nof\n{text}"),
        (Err(before), Ok(_)) => prop_assert!(false, "{before}\nof\n{text}"),
    }
    Ok(())
}

#[test]
fn every_specification() {
    for (name, text, binding) in specifications() {
        if let Err(error) = check(&text, &binding) {
            panic!("{name}: {error}");
        }
    }
}

/// Found by fuzzing: the DOS end-of-file character (0x1a) is white space at any position.
#[test]
fn blanks_of_every_kind() -> Result<(), TestCaseError> {
    check("struct\u{c}a {\u{1a} int\u{b}x;\u{feff}\tint y; }\u{1a};\u{1a}", "")
}

/// Found by fuzzing: a line that starts with a character that is white space in XDR but not for a preprocessor is not a
/// directive. At the start of the text, U+FEFF is a byte order mark, and a directive can follow it.
#[test]
fn no_directives() -> Result<(), TestCaseError> {
    for blanks in ["\u{feff}", "\u{1a}", "\u{1a} \u{feff}\t"] {
        for at in ["", "const A = 1;\n", "const A = 1; ", "/* a */ ", "\u{feff}", "% x\n"] {
            check(&format!("{at}{blanks}#define B 2\nconst C = 3;\n"), "")?;
        }
    }
    Ok(())
}

/// Found by fuzzing: if a file consists only of a header comment, white space and stray semicolons, the comment stays
/// the header of the file.
#[test]
fn nothing_but_a_header() -> Result<(), TestCaseError> {
    for end in ["", "\n", "\n\n", "\n\n\n", "\n\u{1a}", "\n\u{feff}\n", "\n;\n"] {
        check(&format!("// a licence{end}"), "")?;
        check(&format!("/* a licence */{end}"), "")?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_layouts(text in definitions()) {
        check(&text, "")?;
    }
}

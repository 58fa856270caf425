//! Tests of the extraction and of amendments, with sample documents and with random text.

use proptest::prelude::*;

use super::*;

/// Two pages of a specification, with marked lines on both sides of a page break, an empty marked line, and marks in
/// the running text.
const MARKED: &str = "\
Widgets Working Group                                          A. Author
Internet-Draft                                              January 2031

   1.  Introduction ................................................. 2
   4.2.  Types ...................................................... 3

1.  Introduction

   Marks look like this: /// at the start of a line.

4.  XDR

4.1.  Licence

   <CODE BEGINS>
   /// /* Licence:
   ///  * do as you please. */
   ///
   <CODE ENDS>

4.2.  Types

   <CODE BEGINS>
   /// const FROBS 7;
   ///
   /// struct widget {
   ///    struct part first;



Author                        Standards Track                   [Page 2]
\u{c}
RFC 9999                          Widgets                   January 2031


   ///    struct part *more;
   /// };
   <CODE ENDS>

   #!/bin/sh
   grep '///' spec.txt
";

const MARKED_CODE: &str = "\
/* Licence:
 * do as you please. */

const FROBS 7;

struct widget {
   struct part first;
   struct part *more;
};
";

fn code(document: &str) -> String {
    let extraction = extract(document, &Amendments::default()).unwrap();
    let (_, code) = extraction.text.split_once(" */\n\n").expect("a heading");
    code.to_owned()
}

#[test]
fn marked_lines_are_extracted_across_pages() {
    assert_eq!(code(MARKED), MARKED_CODE);
}

#[test]
fn sections_with_code_are_reported() {
    let extraction = extract(MARKED, &Amendments::default()).unwrap();
    assert_eq!(extraction.sections, ["4.1", "4.2"]);
    assert!(
        extraction
            .text
            .starts_with("/*\n * Extracted by `xdrgen extract` from sections 4.1, 4.2.\n * Not amended.\n */\n\n")
    );
}

#[test]
fn one_space_after_the_mark_is_removed() {
    // A tab after the mark, no space after the mark, trailing spaces, and CRLF line terminators.
    assert_eq!(code("/// a;\n///   b;  \n///\n///c;\n  ///\td;\r\n"), "a;\n  b;\n\nc;\n\td;\n");
}

#[test]
fn a_document_without_marks_uses_its_code_blocks() {
    let document = "\
3.  XDR

   <CODE BEGINS> file \"widget.x\"

      struct widget {

         int size;


Author                        Standards Track                   [Page 2]
\u{c}
Internet-Draft                    Widgets                   January 2031


         int weight;
      };

   <CODE ENDS>

   Not code: int x;

   <CODE BEGINS>
   const A = 1;
   <CODE ENDS>
";
    assert_eq!(code(document), "struct widget {\n\n   int size;\n\n   int weight;\n};\nconst A = 1;\n");
}

#[test]
fn missing_xdr_and_unclosed_blocks_are_errors() {
    let none = Amendments::default();
    assert_eq!(extract("No XDR here.", &none).unwrap_err(), ExtractError::NothingFound);
    assert_eq!(extract("", &none).unwrap_err(), ExtractError::NothingFound);
    assert_eq!(extract("a\n<CODE BEGINS>\nb\n", &none).unwrap_err(), ExtractError::UnclosedBlock { line: 2 });
    assert_eq!(
        extract_with("<CODE BEGINS>\n/// a\n", &[], ExtractOptions::default().scanned()).unwrap_err(),
        ExtractError::UnclosedBlock { line: 1 }
    );
}

const SCANNED: &str = "\
8.1. Licence

<CODE BEGINS>

/// /* Licence: 111 /// * do as /// * you please. /// */ 111

<CODE ENDS>

<CODE BEGINS>
sed -n 111
<CODE ENDS>

8.2. Types
```
<CODE BEGINS>
/// struct widget {
111
      int size;
111   int weight; /// };
<CODE ENDS>
```
Port 111 is not code.
";

#[test]
fn a_scanned_document_is_repaired_and_repairs_are_reported() {
    let options = ExtractOptions::default().scanned();
    let extraction = extract_with(SCANNED, &[], options).unwrap();
    let code = extraction.text.split_once(" */\n\n").unwrap().1;
    assert_eq!(
        code,
        "/* Licence:\n\n* do as\n* you please.\n*/\n\nstruct widget {\n\n      int size;\nint weight;\n};\n"
    );
    let repairs: Vec<_> = extraction.repairs.iter().map(|repair| (repair.line, repair.kind)).collect();
    use RepairKind::{Joined, Mark, Unmarked};
    assert_eq!(repairs, [(5, Mark), (5, Mark), (5, Joined), (17, Mark), (18, Unmarked), (19, Mark), (19, Joined)]);
    assert!(extraction.text.contains("7 places damaged by a scanner were repaired."));
    assert_eq!(extraction.sections, ["8.1", "8.2"]);
    // Without `scanned`, the extractor repairs nothing.
    let plain = extract(SCANNED, &Amendments::default()).unwrap();
    assert!(plain.repairs.is_empty() && !plain.text.contains("int size"));
}

const AMENDMENTS: &str = "\
# What is wrong with widgets.
source: RFC 9999, Widgets,
  of January 2031.

amendment: The constant has no `=`
section: 4.2
reason: RFC 4506 section 6.3
  wants one.

- const FROBS 7;
+ const FROBS = 7;

amendment: `struct` before the name of a type
reason: Likewise.

-    struct part first;
-    struct part *more;
+ part first;
+ part *more;
";

#[test]
fn amendments_are_applied_and_listed() {
    let extraction = extract(MARKED, &Amendments::parse(AMENDMENTS).unwrap()).unwrap();
    assert_eq!(
        extraction.text,
        "\
/*
 * RFC 9999, Widgets, of January 2031.
 * Extracted by `xdrgen extract` from sections 4.1, 4.2.
 * Amended:
 * - The constant has no `=` (section 4.2): RFC 4506 section 6.3 wants one.
 * - `struct` before the name of a type: Likewise.
 */

/* Licence:
 * do as you please. */

const FROBS = 7;

struct widget {
   part first;
   part *more;
};
"
    );
}

#[test]
fn an_amendments_file_is_parsed() {
    let amendments = Amendments::parse(AMENDMENTS).unwrap();
    assert_eq!(amendments.source(), ["RFC 9999, Widgets, of January 2031."]);
    let [constant, keyword] = amendments.entries() else { panic!("two") };
    assert_eq!((constant.section.as_deref(), keyword.section.as_deref()), (Some("4.2"), None));
    assert_eq!(constant.reason, "RFC 4506 section 6.3 wants one.");
    assert_eq!(
        keyword.changes,
        [Change {
            line: 16,
            find: vec!["   struct part first;".into(), "   struct part *more;".into()],
            put: vec!["part first;".into(), "part *more;".into()],
        }]
    );
}

/// Applies the `- ` and `+ ` lines of `changes` to `code`.
fn amended(code: &str, changes: &str) -> Result<String, ExtractError> {
    Amendments::parse(&format!("amendment: t\nreason: r\n{changes}\n"))?.apply(code)
}

#[test]
fn words_match_regardless_of_white_space() {
    assert_eq!(amended("a   b\n  c d\n", "- b c\n+ x"), Ok("a   x d\n".into()));
    // Only whole words match.
    assert!(matches!(amended("ab c", "- b c\n+ x"), Err(ExtractError::NotFound { .. })));
}

#[test]
fn replacements_keep_the_indentation() {
    assert_eq!(
        amended("s {\n    a;\n};\n", "- a;\n+ b;\n+ c;\n+\n+   d;"),
        Ok("s {\n    b;\n    c;\n\n      d;\n};\n".into())
    );
}

#[test]
fn lines_that_become_empty_are_removed() {
    assert_eq!(amended("a;\n  b;\nc;\n", "- b;"), Ok("a;\nc;\n".into()));
    assert_eq!(amended("a; b; c;\n", "- b;"), Ok("a;  c;\n".into()));
}

#[test]
fn changes_of_an_amendment_are_applied_in_order() {
    assert_eq!(amended("a b", "- a\n+ c\n\n- c b\n+ d"), Ok("d".into()));
    // Changes without a blank line between them.
    assert_eq!(amended("a b", "- a\n+ c\n- b\n+ d"), Ok("c d".into()));
    // A removal followed by another change.
    assert_eq!(amended("a b", "- a\n\n- b\n+ d"), Ok(" d".into()));
}

#[test]
fn an_amendment_matches_exactly_once() {
    let error = amended("a a", "- a\n+ b").unwrap_err();
    assert_eq!(error.to_string(), "amendment `t` (line 3): its text was found 2 times: a");
    let error = amended("c", "- a\n- b\n+ d").unwrap_err();
    assert_eq!(error.to_string(), "amendment `t` (line 3): its text was not found: a b");
    // Matches may overlap.
    assert!(matches!(amended("a a a", "- a a\n+ b"), Err(ExtractError::Ambiguous { count: 2, .. })));
    // The search text is longer than the code.
    assert!(matches!(amended("", "- a\n+ b"), Err(ExtractError::NotFound { .. })));
}

#[test]
fn errors_in_amendments_files_name_the_line() {
    let cases = [
        ("- a\n+ b", 1, "a change before the first `amendment:`"),
        ("amendment: t\nreason: r\n+ b", 3, "a `+` line without `-` lines right before it"),
        ("amendment: t\nreason: r\n- a\n\n+ b", 5, "a `+` line without `-` lines right before it"),
        ("section: 4", 1, "before the first `amendment:`"),
        ("amendment:", 1, "nothing after the colon"),
        ("amendment: t\nreason: r\nreason: s", 3, "a second `reason:`"),
        ("amendment: t\nsource: s", 2, "`source:` after the first amendment"),
        ("amendment: t\n  more", 2, "an indented line that continues neither"),
        ("sections: 2.1, b", 1, "`sections:` needs section numbers"),
        ("sections: 2.1,", 1, "`sections:` needs section numbers"),
        ("amendment: t\nsections: 2", 2, "`sections:` after the first amendment"),
        ("hello", 1, "expected `source:`"),
        ("amendment: t\nreason: r\n-a", 3, "expected `source:`"),
        ("title: t", 1, "expected `source:`"),
        ("amendment: t\nreason: r", 0, "`t` changes nothing"),
        ("amendment: t\n- a\n+ b", 2, "`t` has no `reason:`"),
        ("amendment: t\nreason: r\n-\n+ b", 3, "`t` has a change with nothing to find"),
    ];
    for (text, at, says) in cases {
        match Amendments::parse(text) {
            Err(ExtractError::BadAmendments { line, message }) => {
                assert_eq!(line, at, "{text:?}: {message}");
                assert!(message.starts_with(says), "{text:?}: {message}");
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

const RUNNING: &str = "\
1. Introduction
   const NOT_ASKED_FOR = 1;

2.1 Types

   A struct is what follows. The
   struct that follows is a list, an enum {

      struct node {   /* } ; */
         int value;

Author, el al             Informational                     [Page 14]
\u{c}
RFC 9999                 Frobnication                June 1995


         node *next;
      };
   typedef is a word that prose has, too; and const = is
      typedef node *list;  /* a comment
                              of two lines; */
  /* A comment
     by itself. */
      union u switch (int n) {
      default: void;
      };

2.10 Programs
   program P { version V { void NULL(void) = 0; } = 1; } = 2;

21 Other
   const NOT_ASKED_FOR = 2;
";

fn running(sections: &str) -> Result<super::Extraction, ExtractError> {
    extract(RUNNING, &Amendments::parse(&format!("sections: {sections}\n")).unwrap())
}

#[test]
fn declarations_are_extracted_from_running_text() {
    let extraction = running("2").unwrap();
    assert_eq!(extraction.sections, ["2.1", "2.10"]);
    let code = extraction.text.split_once("*/\n\n").unwrap().1;
    let expected = "\
struct node {   /* } ; */
   int value;

   node *next;
};

typedef node *list;  /* a comment
                        of two lines; */
/* A comment
   by itself. */
union u switch (int n) {
default: void;
};

program P { version V { void NULL(void) = 0; } = 1; } = 2;
";
    assert_eq!(code, expected);
    // Section 2.1 does not include section 2.10.
    assert_eq!(running("2.1").unwrap().sections, ["2.1"]);
    assert_eq!(running("2.10").unwrap().sections, ["2.10"]);
}

#[test]
fn a_section_without_declarations_is_an_error() {
    assert_eq!(running("2.1, 3").unwrap_err(), ExtractError::EmptySection { section: "3".to_owned() });
    let text = "2.1 Types\n\n   struct node {\n      int value;\n";
    let error = extract(text, &Amendments::parse("sections: 2").unwrap()).unwrap_err();
    assert_eq!(error, ExtractError::UnclosedDeclaration { line: 3 });
}

#[test]
fn file_ends_marks_split_the_result() {
    let document = "/// a;\n/// /* FILE ENDS: common.x; */\n/// b;\n/// /* FILE ENDS: base-ops_2.x */\n///\n";
    let files = extract(document, &Amendments::default()).unwrap().files;
    let parts: Vec<_> = files.iter().map(|f| (f.name.as_deref(), f.text.lines().last())).collect();
    assert_eq!(parts, [(Some("common.x"), Some("a;")), (Some("base-ops_2.x"), Some("b;"))]);
    assert!(files.iter().all(|file| file.text.starts_with("/*\n * Extracted by")));
    // Text after the last `FILE ENDS` has no name.
    let rest = extract("/// /* FILE ENDS: a.x; */\n/// b;\n", &Amendments::default()).unwrap().files;
    assert_eq!((rest.len(), rest[1].name.as_deref()), (2, None));
    // Without `FILE ENDS`, there is one text and no files.
    assert!(extract(MARKED, &Amendments::default()).unwrap().files.is_empty());
}

#[test]
fn file_names_with_paths_are_errors() {
    for name in ["../up.x", "/etc/passwd", "a b.x", "..", ".hidden", "", "c:\\x", "a\u{0}b"] {
        let document = format!("/// a;\n/// /* FILE ENDS: {name}; */\n");
        let error = extract(&document, &Amendments::default()).unwrap_err();
        assert!(matches!(error, ExtractError::BadFileName { .. }), "{name:?}: {error}");
    }
    let twice = "/// /* FILE ENDS: a.x; */\n/// /* FILE ENDS: a.x; */\n";
    let error = extract(twice, &Amendments::default()).unwrap_err();
    assert_eq!(error.to_string(), "FILE ENDS: `a.x`: the name of an earlier file");
}

#[test]
fn quoted_text_does_not_end_the_heading() {
    let amendments = "source: a */ b\namendment: t */\nreason: r\n- a;\n+ b;\n";
    let text = extract("/// a;\n", &Amendments::parse(amendments).unwrap()).unwrap().text;
    assert_eq!(text.matches("*/").count(), 1, "{text}");
}

#[test]
fn long_lines_of_the_heading_are_wrapped() {
    assert_eq!(wrap("- aa bb cc", 6), ["- aa", "  bb", "  cc"]);
    assert_eq!(wrap("aa bb", 5), ["aa bb"]);
    assert_eq!(wrap("", 5), [""]);
}

proptest! {
    /// No document and no amendments cause a panic.
    #[test]
    fn no_input_causes_a_panic(
        lines in proptest::collection::vec("(///|111|<CODE BEGINS>|<CODE ENDS>|4\\.2\\.  T|FILE ENDS: |[Page 3]|- a|\\+ b|amendment: t|reason: r|sections: 4|struct a \\{|\\};| |[a-é]*){0,4}", 0..20),
        scanned: bool,
    ) {
        let text = lines.join("\n");
        let options = if scanned { ExtractOptions::default().scanned() } else { ExtractOptions::default() };
        let sets: Vec<_> = Amendments::parse(&text).into_iter().collect();
        let _ = extract_with(&text, &sets, options);
    }

    /// Marks and page layout do not change the extracted code.
    #[test]
    fn marked_lines_round_trip(lines in proptest::collection::vec("[a-z;{}*/ ]{0,20}", 1..30), page in 1..6usize) {
        let mut document = String::new();
        for (index, line) in lines.iter().enumerate() {
            document.push_str(&format!("   /// {line}\n"));
            if index % page == 0 {
                document.push_str("\n\nA    B    [Page 1]\n\u{c}\nRFC 1    T    May 2031\n\n");
            }
        }
        let expected: String = lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect();
        prop_assert_eq!(code(&document), expected);
    }
}

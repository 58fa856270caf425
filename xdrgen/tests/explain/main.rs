//! Tests of `xdrgen explain`: the content of the page is complete, and text of the specification is never interpreted
//! as markup.

mod page;

use std::{collections::BTreeSet, fs, path::Path};

use base64::Engine as _;
use page::{Part, parts};
use rpcrdma_xdrgen::{Compiler, explain};
use sha2::{Digest as _, Sha256};

fn page(text: &str) -> String {
    let compiled = Compiler::new().source("t.x", text).default_reply_max(4096).compile();
    explain(&compiled.unwrap_or_else(|diagnostics| panic!("{diagnostics}")).spec, "t.x")
}

/// Returns the visible text of the page. Each line is the text of one element, after the class of the element. Ids and
/// block elements have lines as well.
fn outline(page: &str) -> String {
    let mut out = String::new();
    let mut skipped = 0;
    let mut class = String::new();
    for part in parts(page) {
        match part {
            Part::Open { name: "style" | "script" | "nav", .. } => skipped += 1,
            Part::Close("style" | "script" | "nav") => skipped -= 1,
            Part::Open { name, attributes } => {
                let value = |key: &str| attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
                class = value("class").map(|class| format!(".{class}")).unwrap_or_default();
                if let Some(id) = value("id") {
                    out.push_str(&format!("\n#{id}\n"));
                }
                if matches!(name, "p" | "h1" | "h2" | "h3" | "li" | "pre" | "tr" | "svg") {
                    out.push_str(&format!("{name}{class}\n"));
                }
            }
            Part::Text(text) if skipped == 0 && !text.trim().is_empty() => {
                let words: Vec<&str> = text.split_whitespace().collect();
                out.push_str(&format!("  {} {}\n", class, words.join(" ")));
            }
            _ => {}
        }
    }
    out
}

#[test]
fn page_of_the_example_matches_the_golden_outline() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("tests/explain/parcels.x")).unwrap();
    let outline = outline(&page(&text));
    let golden = root.join("tests/explain/parcels.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &outline).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    for (at, (new, old)) in outline.lines().zip(expected.lines()).enumerate() {
        assert_eq!(new, old, "line {} of {}; set UPDATE_GOLDEN=1 to update it", at + 1, golden.display());
    }
    assert_eq!(outline.lines().count(), expected.lines().count());
}

/// A procedure that a version takes over is described once, in the version that declares it, unless its bounds differ.
#[test]
fn a_version_refers_to_the_procedures_of_its_base() {
    let text = "struct ok { int n; };
        program P {
            version V1 { ok GET(int) = 1; opaque<> LIST(void) = 2; } = 1;
            version V2 : V1 { ok NEW(int) = 3; } = 2;
        } = 1;";
    let compiled =
        Compiler::new().source("t.x", text).ulb_source("t.ulb", "reply_max V1.LIST = 9; reply_max V2.LIST = 10;");
    let page = explain(&compiled.compile().unwrap().spec, "t.x");
    check(&page);
    assert!(page.contains("takes over the procedures of <a href=\"#version-P-V1\">V1</a>"), "{page}");
    assert_eq!(page.matches("id=\"procedure-P-V1-GET\"").count(), 1);
    assert!(!page.contains("procedure-P-V2-GET"), "{page}");
    // With another bound, it is described again.
    assert_eq!(page.matches("id=\"procedure-P-V2-LIST\"").count(), 1);
}

/// The elements that a page may contain.
const ELEMENTS: &str = "html head meta title style body nav input div details summary ol ul li a span main header h1 h2 h3 \
    p aside dl dt dd section table thead tbody tr th td code pre figure svg path text tspan g rect b i br footer script";
/// The attributes that a page may contain.
const ATTRIBUTES: &str = "lang charset http-equiv content name class href id type placeholder aria-label autocomplete open \
    title role viewBox d x y rx width height";

/// Checks that a page is well formed, contains only known elements and attributes, and has no dead link.
fn check(page: &str) {
    let known = |list: &'static str| list.split_whitespace().collect::<BTreeSet<_>>();
    let (elements, attributes) = (known(ELEMENTS), known(ATTRIBUTES));
    let (mut ids, mut links, mut open) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let mut scripts = 0;
    for part in parts(page) {
        match part {
            Part::Open { name, attributes: given } => {
                assert!(elements.contains(name), "<{name}>");
                scripts += usize::from(name == "script");
                for (attribute, value) in given {
                    assert!(attributes.contains(attribute), "<{name} {attribute}>");
                    match attribute {
                        "id" => assert!(ids.insert(value.to_owned()), "two of {value}"),
                        "href" => {
                            links.insert(value.strip_prefix('#').unwrap_or_else(|| panic!("{value}")).to_owned());
                        }
                        _ => {}
                    }
                }
                if !matches!(name, "meta" | "input" | "br" | "path" | "rect") {
                    open.push(name);
                }
            }
            Part::Close(name) => assert_eq!(open.pop(), Some(name)),
            Part::Text(text) => {
                assert!(!text.contains(['<', '>']) || matches!(open.last(), Some(&("script" | "style"))))
            }
        }
    }
    assert!(open.is_empty() && scripts == 1, "{open:?}, {scripts}");
    let nowhere: Vec<_> = links.difference(&ids).collect();
    assert!(nowhere.is_empty(), "{nowhere:?}");
    let picture = page.split("<svg").skip(1).map(|rest| rest.split_once("</svg>").unwrap().0);
    for svg in picture {
        let svg = format!("<svg{svg}</svg>");
        roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
    }
}

#[test]
fn every_specification_has_a_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut count = 0;
    for directory in ["specs/xdr", "examples/xdr", "xdrgen/tests/golden", "xdrgen/tests/constructs"] {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "x") {
                let mut compiler = Compiler::new().file(&path).default_reply_max(4096);
                if path.with_extension("ulb").is_file() {
                    compiler = compiler.ulb(path.with_extension("ulb"));
                }
                if let Ok(compiled) = compiler.compile() {
                    check(&explain(&compiled.spec, "page"));
                    count += 1;
                }
            }
        }
    }
    assert!(count > 15, "{count}");
}

#[test]
fn input_is_escaped() {
    let hostile = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> --> ]]> &lt; \" onclick=\"a()\" `<b>` ' \
                   - <i> javascript:alert(1) <svg onload=alert(1)> </title></style>";
    let text = format!(
        "/* {hostile} */\n\n/* {hostile}\n * - {hostile}\n *     {hostile} */\nstruct a {{ int x; /* {hostile} */ }};\n\
         enum e {{ E = 1 /* {hostile} */ }};\nconst S = \"<script>alert('x')</script>\"; /* {hostile} */\n\
         /* {hostile} */\nprogram P {{ version V {{ /* {hostile} */ a A(e) = 1; }} = 1; }} = 1;\n"
    );
    let compiled = Compiler::new().source("t.x", text).compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let page = explain(&compiled.spec, hostile);
    check(&page);
    assert!(page.contains("&lt;script&gt;alert(1)"));
}

#[test]
fn only_the_page_s_own_script_is_allowed() {
    let page = page("struct a { int x; };");
    let script = page.split_once("<script>").unwrap().1.split_once("</script>").unwrap().0;
    let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script));
    assert!(page.contains(&format!("script-src 'sha256-{digest}'")), "write {digest} to src/explain/script.sha256");
    assert!(page.contains("default-src 'none'") && !page.contains("http://") && !page.contains("https://"));
}

#[test]
fn anchors_have_the_names_of_what_they_lead_to() {
    let page = page("program P { version V_1 { void GET(void) = 7; } = 1; } = 536870913;");
    for anchor in ["version-P-V_1", "procedure-P-V_1-GET"] {
        assert!(page.contains(&format!("id=\"{anchor}\"")) && page.contains(&format!("href=\"#{anchor}\"")), "{page}");
    }
    assert!(page.contains("<details id=\"index\" open>"));
}

#[test]
fn long_pages_are_written_quickly() {
    let start = std::time::Instant::now();
    let arms: String = (0..5_000).map(|n| format!("case {n}: int a{n};\n")).collect();
    let structs: String = (0..3_000).map(|n| format!("/* s{n} */ struct s{n} {{ u x; s{n} *next; }};\n")).collect();
    let page = page(&format!("union u switch (int a) {{ {arms} }};\n{structs}"));
    check(&page);
    assert!(page.contains("more cases"));
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", start.elapsed());
}

/// If several enumerations have an enumerator of the same name, the page shows the name with its enumeration, as a
/// specification must write it.
#[test]
fn ambiguous_enumerators_are_shown_with_their_enumeration() {
    let text = "enum color { RED = 1, GREEN = 2 }; enum light { RED = 5 }; struct paint { opaque pixels[1'000'000]; };";
    let outline = outline(&page(text));
    for shown in ["color::RED", "light::RED", "GREEN", "1&#39;000&#39;000"] {
        assert!(outline.contains(shown), "{shown}: {outline}");
    }
    assert!(!outline.contains("color::GREEN"), "{outline}");
}

use super::*;

/// Returns the changes of the mutations of a file.
fn changes(text: &str) -> Vec<String> {
    mutations(text, &["tls"]).unwrap().into_iter().map(|mutation| mutation.change).collect()
}

/// Returns the changes of the mutations of a function's body.
fn changes_in(body: &str) -> Vec<String> {
    changes(&format!("fn f() -> T {{ {body} }}"))
}

#[test]
fn conditions_become_constant() {
    assert_eq!(changes_in("if a == b {}"), ["a == b → true", "a == b → false"]);
    assert_eq!(changes_in("if !a.b() {}"), ["!a.b() → true", "!a.b() → false"]);
    assert_eq!(changes_in("if matches!(a, 0) {}"), ["matches!(a, 0) → true", "matches!(a, 0) → false"]);
    // A loop without an end would only waste time.
    assert_eq!(changes_in("while a { b.c(); }"), ["a → false", "without b.c();"]);
    assert_eq!(
        changes_in("if a.b(c + d) {} else { e + f; }"),
        ["a.b(c + d) → true", "a.b(c + d) → false", "c + d → c - d", "e + f → e - f"]
    );
    assert_eq!(changes_in("if !(a || b) {}"), ["!(a || b) → true", "!(a || b) → false", "a → false", "b → false"]);
    assert_eq!(changes_in("if *a {}"), ["*a → true", "*a → false"]);
    assert_eq!(changes_in("match a { b if c => d, _ => e }"), ["c → true", "c → false"]);
    assert_eq!(changes_in("while true {} if cfg!(test) {}"), [""; 0]);
}

#[test]
fn operands_become_constant() {
    assert_eq!(changes_in("if a && b && !c {}"), ["a && b && !c → false", "a → true", "b → true", "!c → true"]);
    assert_eq!(changes_in("if a || b {}"), ["a || b → true", "a → false", "b → false"]);
    assert_eq!(
        changes_in("if a && (b || c) {}"),
        ["a && (b || c) → false", "a → true", "b || c → true", "b → false", "c → false"]
    );
    assert_eq!(changes_in("!(a && b)"), ["!(a && b) → (a && b)", "a && b → false", "a → true", "b → true"]);
}

#[test]
fn chains_with_let_keep_their_operators() {
    assert_eq!(changes_in("if let A = b {}"), ["let A = b → never"]);
    assert_eq!(changes_in("while let A = b {}"), ["let A = b → never"]);
    let chain = changes_in("if a && let B = c + d && e < f {}");
    assert_eq!(
        chain,
        ["a && let B = c + d && e < f → never", "a → true", "c + d → c - d", "e < f → true", "e < f → e <= f"]
    );
}

#[test]
fn operators_change() {
    assert_eq!(changes_in("a + b"), ["a + b → a - b"]);
    assert_eq!(changes_in("a - b * c"), ["a - b * c → a + (b * c)"]);
    assert_eq!(changes_in("a += 1; a"), ["a += 1 → a -= 1"]);
    assert_eq!(changes_in("(a >= b).then(c)"), ["a >= b → true", "a >= b → false", "a >= b → a > b"]);
    assert_eq!(
        changes_in("a as u8 > b"),
        ["a as u8 > b → true", "a as u8 > b → false", "a as u8 > b → (a as u8) >= b"]
    );
    assert_eq!(changes_in("a.max(b)"), ["a.max(b) → a.min(b)"]);
    assert_eq!(changes_in("let a = !b; a"), ["!b → b"]);
    assert_eq!(changes_in("a(b || c)"), ["b || c → true", "b → false", "c → false"]);
    assert_eq!(changes_in("&(a + b); -c; (d + e).0; (f + g).h"), ["a + b → a - b", "d + e → d - e", "f + g → f - g"]);
    // Not in the trait bounds of a type.
    assert_eq!(changes_in("a as Box<dyn B + C>"), [""; 0]);
}

#[test]
fn numbers_change() {
    let line = "fn f() -> T { a(0, 1u8, 2, 0x0, 1.0, \"0\") }";
    assert_eq!(changes(line), [format!("0 → 1 in {line}"), format!("1u8 → 0u8 in {line}")]);
    // Lengths, fields, constants and references to them.
    assert_eq!(
        changes_in("let a: [u8; 1] = [b; 1]; c.0; &0; &[0, 1]; d::<1>(e); const F: u8 = 1; const { 1 }"),
        ["without d::<1>(e);"]
    );
    // Patterns.
    assert_eq!(changes_in("match a { 0 => b, 1..2 => c, (1, d) => e }"), [""; 0]);
    // Other changes of the same expression say more.
    assert_eq!(changes_in("a + 1"), ["a + 1 → a - 1"]);
    assert_eq!(changes_in("if a == 0 {}"), ["a == 0 → true", "a == 0 → false"]);
    assert_eq!(changes_in("if a > b(0) {}").len(), 4);
    assert_eq!(changes_in("if a == b(0) {}").len(), 3);
    assert_eq!(changes_in("a | 1")[0], "1 → 0 in fn f() -> T { a | 1 }");
    assert_eq!(changes_in("!(!0)"), ["!(!0) → (!0)", "!0 → 0", "0 → 1 in fn f() -> T { !(!0) }"]);
}

#[test]
fn statements_are_deleted() {
    assert_eq!(
        changes_in("a.b(); c(d)?; e.f().await?; let _ = g.h(); self.i = j; k"),
        ["without a.b();", "without c(d)?;", "without e.f().await?;", "without let _ = g.h();", "without self.i = j;"]
    );
    // Macros, which log and assert; variables, which are not set otherwise; locks, which would never be released.
    assert_eq!(changes_in("a!(b); c = d; drop(e); let f = g(); return h; let _ = i;"), [""; 0]);
    assert_eq!(changes_in("let _ = a() else { b };"), [""; 0]);
}

#[test]
fn bodies_return_at_once() {
    assert_eq!(changes("fn a() { b!(); c.d(); }"), ["body → return;", "without c.d();"]);
    // The same change once.
    assert_eq!(changes("fn a() { c.d(); }"), ["body → return;"]);
    assert_eq!(changes("fn a() -> bool { let b = c; b }"), ["body → return true;", "body → return false;"]);
    assert_eq!(changes("fn a() -> bool { b.c() }"), ["b.c() → true", "b.c() → false"]);
    assert_eq!(changes("async fn a() -> io::Result<()> { b() }"), ["body → return Ok(());"]);
    assert_eq!(changes("#[inline] fn a() -> () { b() }"), ["body → return;"]);
    assert_eq!(changes("fn a(&self) -> Option<u8> { self.b }"), ["body → return None;"]);
    assert_eq!(changes("trait A { fn b() -> bool; fn c() -> bool { d } }"), ["d → true", "d → false"]);
    assert_eq!(changes("fn a(b: u8) -> bool { let _ = b; true }"), ["body → return false;"]);
    for kept in [
        "fn a(b: u8) -> Option<u8> { let _ = (b, b); None }",
        "fn a() {}",
        "fn a() { b!(); }",
        "fn a() { b!() }",
        "fn a() -> Option<u8> { None }",
        "fn a() -> Result<()> { Ok(()) }",
    ] {
        assert_eq!(changes(kept), [""; 0], "{kept}");
    }
    assert_eq!(changes("fn a() -> Result<u8> { b } fn c() -> u8 { d }"), [""; 0]);
}

#[test]
fn code_that_cannot_have_the_switch_is_kept() {
    for kept in [
        "const fn a() -> bool { b == c }",
        "const A: bool = B == C;",
        "static A: u8 = 0;",
        "enum A { B = 1 }",
        "macro_rules! a { () => { b == c } }",
        "a! { fn b() -> bool { c == d } }",
        "#[derive(A)] struct B { #[c(d == 1)] e: [u8; 1] }",
        "impl A<{ 1 + 0 }> for B { const C: u8 = 1; }",
    ] {
        assert_eq!(changes(kept), [""; 0], "{kept}");
    }
}

#[test]
fn tests_and_text_for_people_are_kept() {
    for kept in [
        "#[cfg(test)] mod a { fn b() -> bool { c } }",
        "#[cfg(test)] trait A { fn b() -> bool { c } }",
        "#[cfg(test)] impl A { fn b() -> bool { c } }",
        "#[test] fn a() { b.c(); }",
        "#[tokio::test] async fn a() { b.c(); }",
        "#[cfg(not(feature = \"tls\"))] fn a() -> bool { b }",
        "impl fmt::Display for A { fn fmt(&self) -> fmt::Result<()> { b } }",
        "impl Debug for A { fn fmt(&self) -> bool { b } }",
        "fn a() -> T { #[cfg(test)] b.c(); #[cfg(test)] if m {} #[cfg(test)] let _ = n(); #[cfg(test)] let d = e + f; match g { #[cfg(test)] h => i + j, k => l } }",
    ] {
        assert_eq!(changes(kept), [""; 0], "{kept}");
    }
    assert_eq!(changes("impl Clone for A { fn b() -> bool { c } }"), ["c → true", "c → false"]);
    assert_eq!(changes("#[cfg(feature = \"tls\")] mod a { fn b() -> bool { c } }"), ["c → true", "c → false"]);
}

#[test]
fn mutations_have_places() {
    let text = "struct A;\nimpl A {\n    fn b(&self) -> T {\n        c +\n        d\n    }\n}\n";
    let found = mutations(text, &[]).unwrap();
    assert_eq!(
        (found[0].lines, found[0].function.as_str(), &text[found[0].range.clone()]),
        ((4, 5), "A::b", "c +\n        d")
    );
    assert_eq!(found[0].form, Form::Replaced("c - d".to_owned()));
    let whole = &mutations("fn a() {\n b();\n c();\n}", &[]).unwrap()[0];
    assert_eq!((whole.lines, &whole.form), ((1, 4), &Form::Returns("return;")));
}

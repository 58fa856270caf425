//! Tests of `Build`, the interface for build scripts.

use std::fs;

use rpcrdma_xdrgen::{Build, BuildError};

#[test]
fn writes_to_out_dir_only_when_changed() {
    let place = tempfile::tempdir().unwrap();
    let input = place.path().join("point.x");
    fs::write(&input, "struct point { int x; int y; };").unwrap();
    let build = Build::new().file(&input).out_dir(place.path());
    let output = build.run().unwrap();
    assert_eq!(output, place.path().join("point.rs"));
    let first = fs::read_to_string(&output).unwrap();
    assert!(first.contains("pub struct Point"), "{first}");
    let written = fs::metadata(&output).unwrap().modified().unwrap();
    build.run().unwrap();
    assert_eq!(fs::metadata(&output).unwrap().modified().unwrap(), written);
    fs::write(&input, "struct point { int x; int y; int z; };").unwrap();
    build.run().unwrap();
    assert!(fs::read_to_string(&output).unwrap().contains("pub z: i32"));
    assert!(build.output("other.rs").run().unwrap().ends_with("other.rs"));
}

#[test]
fn bindings_apply() {
    let place = tempfile::tempdir().unwrap();
    let input = place.path().join("p.x");
    let text = "struct a { unsigned int n; }; struct ok { opaque data<>; };
        program P { version V { ok GET(a) = 1; } = 1; } = 1;";
    fs::write(&input, text).unwrap();
    let build = Build::new().file(&input).out_dir(place.path());
    let generated = |build: &Build| fs::read_to_string(build.run().unwrap()).unwrap();
    assert!(generated(&build).contains("ReplyBounds::new(65536, &[])"));
    assert!(generated(&build.clone().default_reply_max(4096)).contains("ReplyBounds::new(4096, &[])"));
    assert!(matches!(build.clone().ulb_source("p.ulb", "port P = 9;").run(), Err(BuildError::Specification(_))));
    build.clone().ulb_source("p.ulb", "ddp ok.data max = args.n;").run().unwrap();
    let binding = place.path().join("p.ulb");
    fs::write(&binding, "ddp ok.data max = args.n;").unwrap();
    build.ulb(&binding).run().unwrap();
}

#[test]
fn debug_output_of_errors_is_readable() {
    let place = tempfile::tempdir().unwrap();
    let input = place.path().join("bad.x");
    fs::write(&input, "struct a { nothing x; };").unwrap();
    let error = Build::new().file(&input).out_dir(place.path()).run().unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(error.to_string().contains("error[E0101]: no type is named `nothing`"), "{error}");
    assert!(matches!(Build::new().out_dir(place.path()).run(), Err(BuildError::NoInput)));
    fs::write(&input, "struct a { int x; };").unwrap();
    let error = Build::new().file(&input).out_dir(place.path().join("none")).run().unwrap_err();
    assert!(matches!(error, BuildError::Output { .. }));
}

#[test]
fn generates_only_when_something_has_changed() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
    fs::create_dir_all(path("first")).unwrap();
    fs::create_dir_all(path("second")).unwrap();
    write("main.x", "#include \"types.x\"\n#pragma once\nstruct a { number x; };");
    write("second/types.x", "typedef int number;");
    let build = Build::new()
        .file(path("main.x"))
        .include_dir(path("first"))
        .include_dir(path("second"))
        .out_dir(place.path())
        .note_dir(place.path());
    assert!(!build.is_current());
    let output = build.run().unwrap();
    let first = fs::read_to_string(&output).unwrap();
    assert!(build.is_current());

    // Other options.
    assert!(!build.clone().types_only().is_current() && !build.clone().define("A", None).is_current());
    assert!(!build.clone().derive(syn::parse_str("a::B").unwrap()).is_current());

    // The output is named after the first XDR file, also if a binding was named before it.
    write("main.ulb", "");
    let named =
        Build::new().ulb(path("main.ulb")).file(path("second/types.x")).file(path("main.x")).out_dir(place.path());
    assert_eq!(named.note_dir(path("first")).run().unwrap(), path("types.rs"));

    // A change of an included file.
    write("second/types.x", "typedef hyper number;");
    assert!(!build.is_current());
    build.run().unwrap();
    assert!(build.is_current() && fs::read_to_string(&output).unwrap() != first);

    // A new file that comes earlier in the search path.
    write("first/types.x", "typedef int number;");
    assert!(!build.is_current());
    build.run().unwrap();
    assert_eq!(fs::read_to_string(&output).unwrap(), first);

    // An output that was edited or deleted.
    write("main.rs", "edited");
    assert!(!build.is_current());
    build.run().unwrap();
    assert_eq!(fs::read_to_string(&output).unwrap(), first);
    fs::remove_file(&output).unwrap();
    assert!(!build.is_current());
    build.run().unwrap();

    // An invalid note is ignored. A failed run leaves no valid note.
    write("main.rs.note", "file nonsense\n");
    assert!(!build.is_current());
    build.run().unwrap();
    assert!(build.is_current());
    write("main.x", "struct a { nothing x; };");
    assert!(build.run().is_err() && !build.is_current());
}

#[test]
fn options_select_prefixes_and_stubs() {
    let place = tempfile::tempdir().unwrap();
    let input = place.path().join("p.x");
    let text = "enum kind { KIND_A = 1, KIND_B = 2 }; struct r { kind of; opaque data<>; };
        program P { version V { r GET(void) = 1; } = 1; } = 1;";
    fs::write(&input, text).unwrap();
    let build = Build::new().file(&input).out_dir(place.path());
    let generated = |build: Build| fs::read_to_string(build.run().unwrap()).unwrap();
    let with = |build: &Build| build.clone().ulb_source("p.ulb", "port P = 9;");
    assert!(matches!(with(&build).run(), Err(BuildError::Specification(_))));
    assert!(matches!(with(&build).no_server().run(), Err(BuildError::Specification(_))));
    let server = generated(with(&build).no_client());
    assert!(server.contains("VServer") && !server.contains("VClient") && server.contains("KindA"), "{server}");
    let client = generated(build.clone().no_server().default_reply_max(64));
    assert!(!client.contains("VServer") && client.contains("VClient"), "{client}");
    for build in [build.clone().strip_enum_prefix(), build.strip_enum_prefix_of("kind")] {
        let types = generated(build.types_only());
        assert!(types.contains("    A = 1") && !types.contains("KindA"), "{types}");
    }
}

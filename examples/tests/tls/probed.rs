//! RPC-with-TLS with a client that shares no code with the project: Python's standard library, driven by `probe.py`.

use std::env;

use super::*;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/probe.py");
/// A Python program that succeeds if Python has the features that the script needs.
const REQUIREMENTS: &str =
    "import ssl, sys; sys.exit(not (ssl.HAS_TLSv1_3 and ssl.HAS_ALPN and sys.version_info >= (3, 8)))";

/// Program and version of NFS.
const NFS: [&str; 2] = ["100003", "3"];
/// Program and version of MOUNT.
const MOUNT: [&str; 2] = ["100005", "3"];
/// Program and version in `blobstore.x`.
const BLOBS: [&str; 2] = ["0x20100b10", "1"];
const OFFERED: &str = "probe: success, STARTTLS";
const SECURED: &str = "tls: TLSv1.3 sunrpc";
const ENDED: &str = "the end after 0 bytes";
const SUNRPC: [&str; 2] = ["--alpn", "sunrpc"];

/// Returns `true` if Python 3.8 or later with TLS 1.3 and ALPN is installed. Otherwise, prints that the test does not
/// run, or panics if the environment variable `RPCRDMA_REQUIRE_TOOLS` is set.
fn has_python() -> bool {
    let found = Command::new("python3").args(["-c", REQUIREMENTS]).status().is_ok_and(|status| status.success());
    if !found {
        assert!(env::var_os("RPCRDMA_REQUIRE_TOOLS").is_none(), "Python 3.8 with TLS 1.3 is not installed");
        println!("NOT RUN: Python 3.8 with TLS 1.3 is not installed");
    }
    found
}

/// Runs the script with `steps` on a connection to a server, and returns the lines that it prints.
fn probe(url: &str, program: [&str; 2], options: &[&str], steps: &[&str]) -> Vec<String> {
    let address = url.trim_start_matches("tcp://").trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').unwrap();
    let args = [options, &[host, port], &program, steps].concat();
    let printed = printed("python3", &[&[SCRIPT], &args[..]].concat());
    printed.lines().map(str::to_owned).collect()
}

/// Returns the options of a client with the certificate that the servers accept.
fn certified(scene: &Scene) -> Vec<&str> {
    let [certificate, key] = &scene.client;
    vec!["--ca", text(&scene.servers.ca), "--cert", text(certificate), "--key", text(key)]
}

/// Starts `nfs3d`, which requires certificates of clients and exports a directory as `/e`.
fn nfs3d(scene: &Scene) -> Running {
    let (export, state) = (scene.path("export"), scene.path("state"));
    fs::create_dir(&export).unwrap();
    let mut args = vec!["--root", text(&export), "--state", text(&state), "--export", "/e", "--all-squash"];
    args.extend(["--listen", "tcp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0"]);
    args.extend(scene.server_options());
    Running::start(NFS3D, &args, "MOUNT on ")
}

/// Returns the hexadecimal results of a call, which must have succeeded.
fn results(line: &str) -> &str {
    line.strip_prefix("call: success ").unwrap_or_else(|| panic!("{line}"))
}

/// Mounts the export and reads the attributes of its root, each over a TLS session of its own.
fn uses_the_export(server: &Running, options: &[&str]) {
    let (nfs, mount) = (server.url("NFS on "), server.url("MOUNT on "));
    // MNT with the argument "/e".
    let steps = ["probe", "tls", "null", "call=1:000000022f650000", "close"];
    let lines = probe(mount, MOUNT, options, &steps);
    let [offered, secured, null, mounted, closed] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!([offered, secured, null, closed], [OFFERED, SECURED, "null: success", "close: closed by both"]);
    // Status, handle with its length, and the flavor AUTH_SYS (RFC 1813 §5.2.1).
    let (status, rest) = results(mounted).split_at(8);
    assert_eq!(status, "00000000", "{mounted}");
    let padded = usize::from_str_radix(&rest[..8], 16).unwrap().next_multiple_of(4);
    let (handle, flavors) = rest.split_at(8 + 2 * padded);
    assert_eq!(flavors, "0000000100000001", "{mounted}");

    let steps = ["probe", "tls", "null", &format!("call=1:{handle}"), "call=1:00000000", "close"];
    let lines = probe(nfs, NFS, options, &steps);
    let [offered, secured, null, attributes, refused, closed] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!([offered, secured, null, closed], [OFFERED, SECURED, "null: success", "close: closed by both"]);
    // Status and type: a directory (RFC 1813 §2.5).
    assert!(results(attributes).starts_with("0000000000000002"), "{attributes}");
    // An empty handle: NFS3ERR_BADHANDLE.
    assert_eq!(results(refused), "00002711");
}

#[test]
fn another_library_makes_calls() {
    if !has_python() {
        return;
    }
    let scene = Scene::new();
    let server = nfs3d(&scene);
    uses_the_export(&server, &[&SUNRPC[..], &certified(&scene)].concat());
    // The server chooses its protocol wherever it is in the list.
    uses_the_export(&server, &[&["--alpn", "h2"], &SUNRPC[..], &certified(&scene)].concat());
}

/// A violation: its description, the options of the client, its steps, and the lines that the script must print.
type ViolationCase<'a> = (&'a str, Vec<&'a str>, &'a [&'a str], &'a [&'a str]);

/// A server responds to each violation of RFC 9289 as the RFC requires, and serves the next client.
#[test]
fn violations_of_another_library_are_refused() {
    if !has_python() {
        return;
    }
    let scene = Scene::new();
    let server = nfs3d(&scene);
    let unknown = ["unknown.pem", "unknown.key"].map(|name| scene.path(name));
    scene.servers.issue("client.example", &unknown);
    let certified = certified(&scene);
    let (authority, good) = (["--ca", text(&scene.servers.ca)], [&SUNRPC[..], &certified].concat());
    let with = |options: &[&'static str]| [&certified[..], options].concat();
    let of_unknown = [&SUNRPC[..], &authority, &["--cert", text(&unknown[0]), "--key", text(&unknown[1])]].concat();
    let closed = |step| format!("{step}: {ENDED}");
    let cases: [ViolationCase<'_>; 14] = [
        ("a call without TLS", good.clone(), &["null"], &["null: denied, AUTH_TOOWEAK"]),
        ("no protocol", with(&[]), &["probe", "tls", "null"], &[OFFERED, "tls: TLSv1.3 None", &closed("null")]),
        (
            "another protocol",
            with(&["--alpn", "h2"]),
            &["probe", "tls"],
            &[OFFERED, "tls: alert no application protocol"],
        ),
        (
            "TLS 1.2",
            with(&["--tls12", "--alpn", "sunrpc"]),
            &["probe", "tls"],
            &[OFFERED, "tls: alert protocol version"],
        ),
        ("TLS without a probe", good.clone(), &["tls"], &[&closed("tls")]),
        ("a call instead of the handshake", good.clone(), &["probe", "null"], &[OFFERED, &closed("null")]),
        ("a probe instead of the handshake", good.clone(), &["probe", "probe"], &[OFFERED, &closed("probe")]),
        (
            "a call before the handshake",
            good.clone(),
            &["probe", "send=null", "tls"],
            &[OFFERED, "send: held", &closed("tls")],
        ),
        ("a call behind the probe", good.clone(), &["send=probe", "null"], &["send: held", &closed("null")]),
        ("a probe behind the probe", good.clone(), &["send=probe", "probe"], &["send: held", &closed("probe")]),
        ("a probe with a procedure", good.clone(), &["probe=1"], &["probe: denied, AUTH_BADCRED"]),
        (
            "a probe in a session",
            good.clone(),
            &["probe", "tls", "probe", "null", "probe=1", "null"],
            &[
                OFFERED,
                SECURED,
                "probe: denied, AUTH_BADCRED",
                "null: success",
                "probe: denied, AUTH_BADCRED",
                "null: success",
            ],
        ),
        ("an unknown certificate", of_unknown, &["probe", "tls", "end"], &[OFFERED, SECURED, "end: alert unknown ca"]),
        (
            "no certificate",
            [&SUNRPC[..], &authority].concat(),
            &["probe", "tls", "end"],
            &[OFFERED, SECURED, "end: alert certificate required"],
        ),
    ];
    for (what, options, steps, expected) in cases {
        assert_eq!(probe(server.url("NFS on "), NFS, &options, steps), expected, "{what}");
        uses_the_export(&server, &good);
    }
}

/// `--tls-allow-missing-alpn` admits clients that offer no ALPN protocol, but no clients that offer another protocol.
#[test]
fn another_library_without_a_protocol() {
    if !has_python() {
        return;
    }
    let scene = Scene::new();
    let (_server, url) = blobstore(&scene, &["--tls-allow-missing-alpn"]);
    let certified = certified(&scene);
    // LIST from the beginning, of at most 10 names. The last page has none.
    let steps = ["probe", "tls", "null", "call=9:000000000000000a", "close"];
    let listed = "call: success 000000000000000000000001";
    for (options, secured) in [(&[][..], "tls: TLSv1.3 None"), (&SUNRPC, SECURED)] {
        let lines = probe(&url, BLOBS, &[&certified[..], options].concat(), &steps);
        assert_eq!(lines, [OFFERED, secured, "null: success", listed, "close: closed by both"]);
    }
    let lines = probe(&url, BLOBS, &[&certified[..], &["--alpn", "h2"]].concat(), &["probe", "tls"]);
    assert_eq!(lines, [OFFERED, "tls: alert no application protocol"]);
}

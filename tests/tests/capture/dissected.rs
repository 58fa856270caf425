//! Checks of a capture that `tshark` has dissected with the dissectors that `xdrgen wireshark` generates.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use rpcrdma_xdrgen::{Compiler, wireshark};

use super::{
    decoded::LONG,
    traffic::{ATTACHMENT, DATA},
};

/// The fields of each message that `tshark` prints and that are compared.
const FIELDS: [&str; 6] = [
    "blobstore.type",
    "blobstore.procedure_name",
    "blobstore.reduced",
    "blobstore.get_args.offset",
    "blobstore.blob_stat.attachment_len",
    "long.type",
];

/// Generates the dissectors of blobstore and of `traffic::long`, and runs `tshark` with them. Returns, for each client
/// port, the [`FIELDS`] of each message between the server and this client.
pub(crate) fn dissect(file: &Path, clients: &[u16]) -> Vec<Vec<String>> {
    let place = tempfile::tempdir().unwrap();
    let specification = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/xdr/blobstore.x");
    let compilers =
        [("blobstore", Compiler::new().file(specification)), ("long", Compiler::new().source("long.x", LONG))];
    let mut scripts = Vec::new();
    for (protocol, compiler) in compilers {
        let path = place.path().join(format!("{protocol}.lua"));
        fs::write(&path, wireshark(&compiler.no_client().compile().unwrap().spec, protocol)).unwrap();
        scripts.extend(["-X".to_owned(), format!("lua_script:{}", path.display())]);
    }
    let dissect_client = |client: &u16| {
        let mut tshark = Command::new("tshark");
        let tshark = tshark.args(&scripts).args(["-n", "-T", "fields", "-E", "separator=|", "-r"]).arg(file);
        let filter = format!("tcp.port == {client} && (blobstore || long)");
        let tshark = tshark.args(["-Y", &filter]).args(FIELDS.iter().flat_map(|field| ["-e", field]));
        let output = tshark.stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    clients.iter().map(dissect_client).collect()
}

/// Checks the messages of a connection. `has_long` is `true` if Wireshark reassembles the call and the reply of ECHO,
/// which do not fit in one Send. Otherwise, they are not expected.
pub(crate) fn check(messages: &[String], has_long: bool) {
    let attachment = format!("{ATTACHMENT}");
    let both = format!("{ATTACHMENT},{DATA}");
    let got = format!("{}", DATA - 1);
    let expected = [
        "0|NULL||||".to_owned(),
        "1|NULL||||".to_owned(),
        format!("0|PUT|{both}|||"),
        format!("1|PUT|||{attachment}|"),
        "0|GET||1||".to_owned(),
        format!("1|GET|{got}|||"),
        "0|FETCH||||".to_owned(),
        format!("1|FETCH|{both}||{attachment}|"),
        "0|LIST||||".to_owned(),
        format!("1|LIST|||{attachment}|"),
        "|||||0".to_owned(),
        "|||||1".to_owned(),
    ];
    assert_eq!(messages, &expected[..if has_long { 12 } else { 10 }]);
}

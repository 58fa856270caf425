//! Tests that the files of `specs/xdr` compile without warnings and have the values, sizes and eligible items of their
//! documents.

use std::path::PathBuf;

use rpcrdma_specs::source;
use rpcrdma_xdrgen::{
    Compiled, Compiler,
    ir::{ConstValue, Field, Item, ItemKind, TypeFacts},
};

fn compile(name: &str) -> Compiled {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("xdr").join(name);
    let binding = path.with_extension("ulb");
    let compiler = Compiler::new().file(path);
    let compiler = if binding.exists() { compiler.ulb(binding) } else { compiler };
    let compiled = compiler.compile().unwrap_or_else(|errors| panic!("{name}:\n{errors}"));
    assert_eq!(compiled.warnings.to_string(), "", "{name}");
    compiled
}

fn item<'a>(compiled: &'a Compiled, name: &str) -> &'a Item {
    let found = compiled.spec.items.iter().find(|item| item.name.text == name);
    found.unwrap_or_else(|| panic!("{name} is not declared"))
}

/// Returns the minimum and maximum encoded length of a type in bytes. Checks that the type has no eligible items.
fn lengths(compiled: &Compiled, name: &str) -> (u64, Option<u64>) {
    let TypeFacts { min_len, max_len, max_ddp_items, .. } = item(compiled, name).facts;
    assert_eq!(max_ddp_items, Some(0), "{name}: headers have no eligible items");
    (min_len, max_len)
}

fn constant(compiled: &Compiled, name: &str) -> i128 {
    match item(compiled, name).kind {
        ItemKind::Const(ConstValue::Int(value)) => value,
        ref other => panic!("{name}: {other:?}"),
    }
}

fn enumeration(compiled: &Compiled, name: &str) -> Vec<(String, i32)> {
    match &item(compiled, name).kind {
        ItemKind::Enum(values) => values.iter().map(|value| (value.name.text.clone(), value.value)).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn rpc_has_the_sizes_and_values_of_rfc_5531() {
    let rpc = compile("rpc.x");
    assert_eq!(lengths(&rpc, "opaque_auth"), (8, Some(8 + 400)));
    assert_eq!(lengths(&rpc, "call_body"), (32, Some(16 + 2 * 408)));
    assert_eq!(lengths(&rpc, "rpc_msg"), (20, Some(8 + 832)));
    assert_eq!(lengths(&rpc, "authsys_parms"), (20, Some(20 + 256 + 64)));
    let auth_stat = enumeration(&rpc, "auth_stat");
    assert_eq!(auth_stat.len(), 15);
    assert!(auth_stat.iter().enumerate().all(|(index, (_, value))| *value == index as i32));
    let accept_stat: Vec<_> = enumeration(&rpc, "accept_stat").into_iter().map(|(name, _)| name).collect();
    assert_eq!(accept_stat, ["SUCCESS", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR"]);
    assert_eq!(enumeration(&rpc, "auth_flavor").last(), Some(&("RPCSEC_GSS".to_owned(), 6)));
    assert_eq!(constant(&rpc, "RPC_VERS"), 2);
}

#[test]
fn rpcrdma1_has_the_sizes_and_values_of_rfc_8166() {
    let v1 = compile("rpcrdma1.x");
    assert_eq!(lengths(&v1, "xdr_rdma_segment"), (16, Some(16)));
    // xid, vers, credit and proc, then three empty lists; RDMA_DONE has no lists.
    assert_eq!(lengths(&v1, "rpc_rdma_header"), (12, None));
    assert_eq!(lengths(&v1, "rdma_msg"), (16, None));
    assert_eq!(lengths(&v1, "rpc_rdma_error"), (4, Some(12)));
    let proc: Vec<_> = enumeration(&v1, "rdma_proc").into_iter().map(|(_, value)| value).collect();
    assert_eq!(proc, [0, 1, 2, 3, 4]);
    for node in ["xdr_read_list", "xdr_write_list"] {
        assert!(matches!(item(&v1, node).kind, ItemKind::Struct { list_node: true, .. }), "{node} is not a list");
    }
}

#[test]
fn rpcrdma2_has_the_sizes_and_values_of_the_draft() {
    let v2 = compile("rpcrdma2.x");
    assert_eq!(lengths(&v2, "rpcrdma2_hdr_prefix"), (20, Some(20)));
    assert_eq!(lengths(&v2, "rpcrdma2_chunk_lists"), (16, None));
    assert_eq!(lengths(&v2, "rpcrdma2_error"), (4, Some(12)));
    let levels = ["NONE", "SIMPLE", "CONT", "GENL"].map(|level| constant(&v2, &format!("RDMA2_RVRSDIR_{level}")));
    assert_eq!(levels, [0, 1, 2, 3], "section 5.2.5");
    let flags = ["RESPONSE", "MORE", "TPMORE"].map(|flag| constant(&v2, &format!("RDMA2_F_{flag}")));
    assert_eq!(flags, [1, 2, 4]);
    let ItemKind::Union(error) = &item(&v2, "rpcrdma2_error").kind else { panic!("a union") };
    assert_eq!(error.arms.iter().map(|arm| arm.cases.len()).sum::<usize>(), 6);
    assert!(matches!(error.default, Some(None)), "the default arm is not void");
}

/// Returns the eligible items that each type declares, as `type.field`.
fn eligible(compiled: &Compiled) -> Vec<String> {
    let mut found = Vec::new();
    for item in &compiled.spec.items {
        let fields: Vec<&Field> = match &item.kind {
            ItemKind::Struct { fields, .. } => fields.iter().collect(),
            ItemKind::Union(union) => union.arms.iter().filter_map(|arm| arm.field.as_ref()).collect(),
            _ => Vec::new(),
        };
        let placed = fields.into_iter().filter(|field| field.ddp.is_some());
        found.extend(placed.map(|field| format!("{}.{}", item.name.text, field.name.text)));
    }
    found
}

#[test]
fn nfs_binds_the_items_of_rfc_8267_and_no_others() {
    let nfs3 = compile("nfs3.x");
    let items = ["READLINK3resok.data", "READ3resok.data", "WRITE3args.data", "symlinkdata3.symlink_data"];
    assert_eq!(eligible(&nfs3), items, "section 4");
    let nfs4 = compile("nfs4.x");
    let items = ["createtype4.linkdata", "READ4resok.data", "READLINK4resok.link", "WRITE4args.data"];
    assert_eq!(eligible(&nfs4), items, "section 6.1");
    for program in [&nfs3.spec.programs[0], &nfs4.spec.programs[0]] {
        assert_eq!(program.port, Some(20049), "section 9");
    }
    for name in ["mount3.x", "rpcbind.x", "nlm4.x", "nsm1.x", "nfsacl3.x"] {
        let none = compile(name);
        assert!(eligible(&none).is_empty() && none.spec.programs.iter().all(|program| program.port.is_none()));
    }
}

#[test]
fn procedures_match_the_specifications() {
    let numbers = |name: &str, program: usize, version: usize| -> Vec<u32> {
        let spec = compile(name).spec;
        spec.programs[program].versions[version].procedures.iter().map(|procedure| procedure.number).collect()
    };
    assert_eq!(numbers("nfs3.x", 0, 0), (0..=21).collect::<Vec<_>>());
    assert_eq!(numbers("mount3.x", 0, 0), (0..=5).collect::<Vec<_>>());
    assert_eq!(numbers("nlm4.x", 0, 0), (0..=15).chain(20..=23).collect::<Vec<_>>());
    assert_eq!(numbers("nfsacl3.x", 0, 0), [0, 1, 2]);
    assert_eq!(numbers("nsm1.x", 0, 0), (0..=6).collect::<Vec<_>>());
    assert_eq!(numbers("rpcbind.x", 0, 0), (1..=8).collect::<Vec<_>>());
    assert_eq!(numbers("rpcbind.x", 0, 1), (1..=12).collect::<Vec<_>>());
    assert_eq!(numbers("rpcbind.x", 1, 0), (0..=5).collect::<Vec<_>>());
    assert_eq!(numbers("nfs4.x", 0, 0), [0, 1]);
    assert_eq!(numbers("nfs4.x", 1, 0), [0, 1]);
}

#[test]
fn nfs_sizes_match_the_specifications() {
    let nfs3 = compile("nfs3.x");
    let sizes = |compiled: &Compiled, name: &str| {
        let TypeFacts { min_len, max_len, .. } = item(compiled, name).facts;
        (min_len, max_len)
    };
    assert_eq!(sizes(&nfs3, "fattr3"), (84, Some(84)));
    assert_eq!(sizes(&nfs3, "nfs_fh3"), (4, Some(4 + 64)));
    assert_eq!(sizes(&nfs3, "wcc_data"), (8, Some(4 + 24 + 4 + 84)));
    let nfs4 = compile("nfs4.x");
    assert_eq!(sizes(&nfs4, "stateid4"), (16, Some(16)));
    assert_eq!(sizes(&nfs4, "nfs_fh4"), (4, Some(4 + 128)));
    // Operations 3 to 71, and OP_ILLEGAL.
    assert_eq!(enumeration(&nfs4, "nfs_opnum4").len(), 70);
    let ItemKind::Union(operations) = &item(&nfs4, "nfs_argop4").kind else { panic!("a union") };
    assert_eq!(operations.arms.iter().map(|arm| arm.cases.len()).sum::<usize>(), 70);
}

/// After `fmt` or `strip`, a specification compiles to the same code, apart from comments.
#[test]
fn formatting_and_stripping_change_nothing() {
    use rpcrdma_xdrgen::{
        emit::{EmitOptions, emit},
        fmt::{FormatOptions, format},
        strip,
    };
    let all = [
        ("rpc.x", source::RPC),
        ("rpcrdma1.x", source::RPCRDMA1),
        ("rpcrdma2.x", source::RPCRDMA2),
        ("rpcsec_gss.x", source::RPCSEC_GSS),
        ("rpcbind.x", source::RPCBIND),
        ("mount3.x", source::MOUNT3),
        ("nlm4.x", source::NLM4),
        ("nsm1.x", source::NSM1),
        ("nfs3.x", source::NFS3),
        ("nfsacl3.x", source::NFSACL3),
        ("nfs4.x", source::NFS4),
    ];
    for (name, text) in all {
        let generate = |text: &str| -> Vec<String> {
            let compiled = Compiler::new().source(name, text).default_reply_max(4096).compile().unwrap();
            let code = emit(&compiled.spec, &EmitOptions::default()).unwrap();
            code.lines().filter(|line| !line.trim_start().starts_with("//")).map(str::to_owned).collect()
        };
        let formatted = format(name, text, &FormatOptions::default()).unwrap();
        let before = generate(text);
        assert!(before == generate(&formatted), "{name} formatted");
        assert!(before == generate(&strip(name, text).unwrap()), "{name} stripped");
        assert!(before == generate(&strip(name, formatted.as_str()).unwrap()), "{name} formatted and stripped");
    }
}

//! Generation of the Lua specifications of headers: ONC RPC (RFC 5531) and RPC-over-RDMA version 2
//! (draft-ietf-nfsv4-rpcrdma-version-two-01).

use std::fmt::Write as _;

use super::tables::{quoted, specification};
use crate::{
    compiler::Compiler,
    ir::{ConstValue, ItemKind, Spec},
};

/// Fields that Wireshark shows in hexadecimal.
const HEX: [&str; 7] = ["xid", "prog", "rdma_xid", "rdma_flags", "rdma_inv_handle", "rdma_handle", "rdma_offset"];

const HEADER_TYPES: [&str; 4] = ["RDMA2_MSG", "RDMA2_NOMSG", "RDMA2_ERROR", "RDMA2_CONNPROP"];

/// The prefix of the constants of transport properties, and the prefix of the types of their values.
const PROPERTIES: (&str, &str) = ("RDMA2_PROPID_", "rpcrdma2_prop_");

/// Returns the Lua statements that create the specifications of headers.
pub(super) fn tables() -> String {
    let compile = |name: &str, text: &'static str| {
        let compiled = Compiler::new().source(name, text).no_client().compile();
        compiled.map(|compiled| compiled.spec).expect("the specification is part of this crate")
    };
    let rpc = compile("rpc.x", include_str!("../../xdr/rpc.x"));
    let version_2 = compile("rpcrdma2.x", include_str!("../../xdr/rpcrdma2.x"));
    let mut out =
        String::from("-- Headers.\ndo\nlocal specification = R.specification(\"oncrpc\", \"ONC RPC\", true)\n");
    out.push_str(&specification(&rpc));
    hexadecimal(&mut out);
    names(&mut out, "flavor", enumerators(&rpc, "auth_flavor"));
    names(&mut out, "auth", enumerators(&rpc, "auth_stat"));
    out.push_str("specification:register()\nR.rpc = specification\nend\ndo\n");
    out.push_str("local specification = R.specification(\"rpcrdma2\", \"RPC-over-RDMA version 2\", true)\n");
    out.push_str(&specification(&version_2));
    hexadecimal(&mut out);
    let named = |prefix: &str| constants(&version_2).filter(|(name, _)| name.starts_with(prefix)).collect::<Vec<_>>();
    let types = constants(&version_2).filter(|(name, _)| HEADER_TYPES.contains(&name.as_str()));
    names(&mut out, "rdma_htype", types.collect());
    names(&mut out, "rdma_err", named("RDMA2_ERR_"));
    names(&mut out, "rdma_which", named(PROPERTIES.0));
    let flags = named("RDMA2_F_").into_iter().map(|(name, value)| format!("{{ {value}, {} }}, ", quoted(&name)));
    let _ = writeln!(out, "specification.flags = {{ {}}}", flags.collect::<String>());
    out.push_str("specification.properties = {\n");
    for (name, value) in named(PROPERTIES.0) {
        let value_type = format!("{}{}", PROPERTIES.1, name[PROPERTIES.0.len()..].to_lowercase());
        let _ = writeln!(out, "  [{value}] = {},", quoted(&value_type));
    }
    out.push_str("}\nspecification:register()\nR.transport = specification\nend\n");
    out
}

fn hexadecimal(out: &mut String) {
    let fields: Vec<String> = HEX.iter().map(|name| format!("{name} = true")).collect();
    let _ = writeln!(out, "specification.hexadecimal = {{ {} }}", fields.join(", "));
}

/// Writes the names of the values of a field.
fn names(out: &mut String, field: &str, values: Vec<(String, i128)>) {
    let values = values.into_iter().map(|(name, value)| format!("  [{value}] = {},\n", quoted(&name)));
    let _ = writeln!(out, "specification.names.{field} = {{\n{}}}", values.collect::<String>());
}

fn enumerators(spec: &Spec, name: &str) -> Vec<(String, i128)> {
    let item = spec.items.iter().find(|item| item.name.text == name);
    match item.map(|item| &item.kind) {
        Some(ItemKind::Enum(enumerators)) => {
            enumerators.iter().map(|it| (it.name.text.clone(), it.value.into())).collect()
        }
        _ => Vec::new(),
    }
}

fn constants(spec: &Spec) -> impl Iterator<Item = (String, i128)> {
    spec.items.iter().filter_map(|item| match &item.kind {
        ItemKind::Const(ConstValue::Int(value) | ConstValue::Typed(value, _)) => Some((item.name.text.clone(), *value)),
        _ => None,
    })
}

//! Sample values of NFS, MOUNT and rpcbind messages, parts of their encodings, and functions that check encodings.
#![allow(dead_code)] // Each test binary uses some of it.

use rpcrdma::{
    service::Procedure,
    xdr::{Bytes, Decoder, XdrDecode, XdrEncode, encode_to_bytes},
};
use rpcrdma_specs::{mount3, nfs3, nfs4, rpcbind};

/// Returns the program number, the program version, and the number of the procedure `P`.
pub(crate) fn numbers<P: Procedure>() -> (u32, u32, u32) {
    (P::PROGRAM, P::VERSION, P::NUMBER)
}

/// Checks that `value` encodes to `words`, decodes from them, and does not decode from any prefix of their bytes.
pub(crate) fn both_ways<T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug>(value: &T, words: &[u32]) {
    bytes_both_ways(value, &words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>());
}

/// Checks that `value` encodes to `bytes`, decodes from them, and does not decode from any prefix of them.
pub(crate) fn bytes_both_ways<T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8]) {
    assert_eq!(encode_to_bytes(value).as_deref(), Ok(bytes), "{value:?}");
    assert_eq!(value.encoded_len(), bytes.len());
    let mut decoder = Decoder::new(bytes);
    assert_eq!(decoder.read::<T>().as_ref(), Ok(value));
    assert_eq!(decoder.finish(), Ok(()));
    for len in 0..bytes.len() {
        let mut decoder = Decoder::new(&bytes[..len]);
        assert!(decoder.read::<T>().is_err(), "{len} bytes of {value:?}");
    }
}

/// Encodes a variable-length opaque or string: count, contents, padding (RFC 4506 §4.10).
pub(crate) fn counted(contents: &[u8]) -> Vec<u32> {
    let mut padded = contents.to_vec();
    padded.resize(contents.len().next_multiple_of(4), 0);
    let words = padded.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    [contents.len() as u32].into_iter().chain(words).collect()
}

pub(crate) const HANDLE: &[u8] = b"fh\x00\x01\xff";
pub(crate) const VERIFIER: [u8; 8] = [0, 1, 2, 3, 0xfc, 0xfd, 0xfe, 0xff];
pub(crate) const VERIFIER_WORDS: [u32; 2] = [0x0001_0203, 0xfcfd_feff];

pub(crate) fn handle() -> nfs3::NfsFh3 {
    nfs3::NfsFh3 { data: Bytes::from_static(HANDLE) }
}

fn time(seconds: u32) -> nfs3::Nfstime3 {
    nfs3::Nfstime3 { seconds, nseconds: seconds + 1 }
}

pub(crate) fn attributes() -> nfs3::Fattr3 {
    nfs3::Fattr3 {
        r#type: nfs3::Ftype3::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        size: 5,
        used: 4096,
        rdev: nfs3::Specdata3 { specdata1: 8, specdata2: 9 },
        fsid: 0x0102_0304_0506_0708,
        fileid: 42,
        atime: time(1),
        mtime: time(3),
        ctime: time(5),
    }
}

/// The encoding of [`attributes`], which have the thirteen fields of `fattr3` (RFC 1813 §2.6).
pub(crate) const ATTRIBUTES: [u32; 21] =
    [1, 0o644, 1, 1000, 100, 0, 5, 0, 4096, 8, 9, 0x0102_0304, 0x0506_0708, 0, 42, 1, 2, 3, 4, 5, 6];

pub(crate) fn getattr_reply() -> nfs3::Getattr3res {
    nfs3::Getattr3res::Ok(nfs3::Getattr3resok { obj_attributes: attributes() })
}

pub(crate) fn read_call() -> nfs3::Read3args {
    nfs3::Read3args { file: handle(), offset: 0x1_0000_0002, count: 12 }
}

pub(crate) fn read_reply() -> nfs3::Read3res {
    nfs3::Read3res::Ok(nfs3::Read3resok {
        file_attributes: nfs3::PostOpAttr::True(attributes()),
        count: 5,
        eof: true,
        data: Bytes::from_static(b"hello"),
    })
}

pub(crate) fn write_call() -> nfs3::Write3args {
    nfs3::Write3args {
        file: handle(),
        offset: 7,
        count: 5,
        stable: nfs3::StableHow::FileSync,
        data: Bytes::from_static(b"hello"),
    }
}

pub(crate) fn write_reply() -> nfs3::Write3res {
    let before = nfs3::WccAttr { size: 9, mtime: time(3), ctime: time(5) };
    nfs3::Write3res::Ok(nfs3::Write3resok {
        file_wcc: nfs3::WccData { before: nfs3::PreOpAttr::True(before), after: nfs3::PostOpAttr::False },
        count: 5,
        committed: nfs3::StableHow::DataSync,
        verf: nfs3::Writeverf3(VERIFIER),
    })
}

pub(crate) fn readdirplus_call() -> nfs3::Readdirplus3args {
    nfs3::Readdirplus3args {
        dir: handle(),
        cookie: 3,
        cookieverf: nfs3::Cookieverf3(VERIFIER),
        dircount: 512,
        maxcount: 4096,
    }
}

pub(crate) fn readdirplus_reply() -> nfs3::Readdirplus3res {
    let entries = vec![
        nfs3::Entryplus3 {
            fileid: 42,
            name: nfs3::Filename3("hosts".into()),
            cookie: 4,
            name_attributes: nfs3::PostOpAttr::True(attributes()),
            name_handle: nfs3::PostOpFh3::True(handle()),
        },
        nfs3::Entryplus3 {
            fileid: 43,
            name: nfs3::Filename3("motd".into()),
            cookie: 5,
            name_attributes: nfs3::PostOpAttr::False,
            name_handle: nfs3::PostOpFh3::False,
        },
    ];
    nfs3::Readdirplus3res::Ok(nfs3::Readdirplus3resok {
        dir_attributes: nfs3::PostOpAttr::False,
        cookieverf: nfs3::Cookieverf3(VERIFIER),
        reply: nfs3::Dirlistplus3 { entries, eof: true },
    })
}

pub(crate) fn mnt_call() -> mount3::Dirpath {
    mount3::Dirpath("/export".into())
}

/// Returns a reply to MNT with the flavors AUTH_SYS and krb5, a pseudo-flavor (RFC 2623 §2.3).
pub(crate) fn mnt_reply() -> mount3::Mountres3 {
    mount3::Mountres3::Ok(mount3::Mountres3Ok {
        fhandle: mount3::Fhandle3(Bytes::from_static(HANDLE)),
        auth_flavors: vec![1, 390_003],
    })
}

pub(crate) fn exports() -> mount3::Exports {
    let group = |name: &str| mount3::Groupnode { gr_name: mount3::Name(name.into()) };
    mount3::Exports(vec![
        mount3::Exportnode {
            ex_dir: mount3::Dirpath("/export".into()),
            ex_groups: mount3::Groups(vec![group("a"), group("host")]),
        },
        mount3::Exportnode { ex_dir: mount3::Dirpath("/".into()), ex_groups: mount3::Groups(vec![]) },
    ])
}

/// Returns the arguments of a GETPORT for NFS version 3 over TCP.
pub(crate) fn getport_call() -> rpcbind::Mapping {
    rpcbind::Mapping { prog: 100_003, vers: 3, prot: rpcbind::IPPROTO_TCP, port: 0 }
}

pub(crate) fn getaddr_call() -> rpcbind::Rpcb {
    rpcbind::Rpcb {
        r_prog: 100_003,
        r_vers: 3,
        r_netid: "rdma".into(),
        r_addr: "192.0.2.1.0.111".into(),
        r_owner: "".into(),
    }
}

pub(crate) fn getaddr_reply() -> rpcbind::RpcbUaddr {
    rpcbind::RpcbUaddr("192.0.2.1.78.81".into())
}

pub(crate) fn portmap() -> rpcbind::Pmaplist {
    let node = |map| rpcbind::PmaplistNode { map };
    rpcbind::Pmaplist(vec![
        node(rpcbind::Mapping { port: 2049, ..getport_call() }),
        node(rpcbind::Mapping { prog: 100_000, vers: 2, prot: rpcbind::IPPROTO_UDP, port: 111 }),
    ])
}

pub(crate) fn utf8(text: &'static str) -> nfs4::Utf8string {
    nfs4::Utf8string(Bytes::from_static(text.as_bytes()))
}

pub(crate) fn stateid() -> nfs4::Stateid4 {
    nfs4::Stateid4 { seqid: 7, other: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] }
}

/// Returns the arguments of a COMPOUND with PUTFH, LOOKUP and READ.
pub(crate) fn compound_call() -> nfs4::Compound4args {
    use nfs4::NfsArgop4 as Op;
    let argarray = vec![
        Op::Putfh(nfs4::Putfh4args { object: nfs4::NfsFh4(Bytes::from_static(HANDLE)) }),
        Op::Lookup(nfs4::Lookup4args { objname: utf8("file") }),
        Op::Read(nfs4::Read4args { stateid: stateid(), offset: 1, count: 4096 }),
    ];
    nfs4::Compound4args { tag: utf8("test"), minorversion: 2, argarray }
}

pub(crate) fn compound_reply() -> nfs4::Compound4res {
    use nfs4::NfsResop4 as Res;
    let status = nfs4::Nfsstat4::Ok;
    let data = nfs4::Read4resok { eof: true, data: Bytes::from_static(b"hello") };
    let resarray = vec![
        Res::Putfh(nfs4::Putfh4res { status }),
        Res::Lookup(nfs4::Lookup4res { status }),
        Res::Read(nfs4::Read4res::Ok(data)),
    ];
    nfs4::Compound4res { status, tag: utf8("test"), resarray }
}

//! Tests of the encodings of calls and replies of each program, word by word, and of the reply bounds of their
//! bindings.

mod samples;

use rpcrdma::{
    service::Procedure,
    xdr::{XdrEncode, XdrType, encode_to_bytes},
};
use rpcrdma_specs::{
    mount3::{self, mount_v3},
    nfs3::{self, nfs_v3},
    rpcbind::{self, pmap_vers, rpcbvers, rpcbvers4},
};
use samples::{ATTRIBUTES, HANDLE, VERIFIER_WORDS, both_ways, counted, numbers};

fn handle() -> Vec<u32> {
    counted(HANDLE)
}

#[test]
fn nfs3_getattr() {
    both_ways(&nfs3::Getattr3args { object: samples::handle() }, &handle());
    both_ways(&samples::getattr_reply(), &[&[0], &ATTRIBUTES[..]].concat());
    both_ways(&nfs3::Getattr3res::Default(nfs3::Nfsstat3::Stale), &[70]);
}

#[test]
fn nfs3_read() {
    both_ways(&samples::read_call(), &[handle().as_slice(), &[1, 2, 12]].concat());
    let words = [&[0, 1], &ATTRIBUTES[..], &[5, 1], &counted(b"hello")].concat();
    both_ways(&samples::read_reply(), &words);
    let failure = nfs3::Read3resfail { file_attributes: nfs3::PostOpAttr::False };
    both_ways(&nfs3::Read3res::Default(nfs3::Nfsstat3::Acces, failure), &[13, 0]);
}

#[test]
fn nfs3_write() {
    both_ways(&samples::write_call(), &[handle().as_slice(), &[0, 7, 5, 2], &counted(b"hello")].concat());
    // Attributes before the WRITE, none after it.
    both_ways(&samples::write_reply(), &[&[0, 1, 0, 9, 3, 4, 5, 6, 0, 5, 1], &VERIFIER_WORDS[..]].concat());
}

#[test]
fn nfs3_readdirplus() {
    let call = [handle().as_slice(), &[0, 3], &VERIFIER_WORDS, &[512, 4096]].concat();
    both_ways(&samples::readdirplus_call(), &call);
    let first = [&[1, 0, 42], counted(b"hosts").as_slice(), &[0, 4, 1], &ATTRIBUTES, &[1], &handle()].concat();
    let second = [&[1, 0, 43], counted(b"motd").as_slice(), &[0, 5, 0, 0]].concat();
    let reply = [&[0, 0], &VERIFIER_WORDS[..], &first, &second, &[0, 1]].concat();
    both_ways(&samples::readdirplus_reply(), &reply);
}

#[test]
fn mount3_mnt_and_export() {
    both_ways(&samples::mnt_call(), &counted(b"/export"));
    both_ways(&samples::mnt_reply(), &[&[0], handle().as_slice(), &[2, 1, 390_003]].concat());
    both_ways(&mount3::Mountres3::Default(mount3::Mountstat3::Acces), &[13]);
    let groups = [&[1], counted(b"a").as_slice(), &[1], &counted(b"host"), &[0]].concat();
    let words = [&[1], counted(b"/export").as_slice(), &groups, &[1], &counted(b"/"), &[0, 0]].concat();
    both_ways(&samples::exports(), &words);
}

#[test]
fn port_mapper_getport_and_dump() {
    both_ways(&samples::getport_call(), &[100_003, 3, 6, 0]);
    both_ways(&2049_u32, &[2049]);
    both_ways(&samples::portmap(), &[1, 100_003, 3, 6, 2049, 1, 100_000, 2, 17, 111, 0]);
}

#[test]
fn rpcbind_getaddr() {
    let call = [&[100_003, 3], counted(b"rdma").as_slice(), &counted(b"192.0.2.1.0.111"), &[0]].concat();
    both_ways(&samples::getaddr_call(), &call);
    // Port 20049 is 78 * 256 + 81 (RFC 5665 §5.2.3.3).
    both_ways(&samples::getaddr_reply(), &counted(b"192.0.2.1.78.81"));
    both_ways(&rpcbind::RpcbUaddr("".into()), &[0]);
}

#[test]
fn numbers_match_the_specifications() {
    assert_eq!(numbers::<nfs_v3::Nfsproc3Read>(), (100_003, 3, 6));
    assert_eq!(numbers::<nfs_v3::Nfsproc3Commit>(), (100_003, 3, 21));
    assert_eq!(numbers::<mount_v3::Mountproc3Mnt>(), (100_005, 3, 1));
    assert_eq!(numbers::<pmap_vers::PmapprocGetport>(), (100_000, 2, 3));
    assert_eq!(numbers::<rpcbvers::RpcbprocGetaddr>(), (100_000, 3, 3));
    assert_eq!(numbers::<rpcbvers4::RpcbprocBcast>(), (100_000, 4, 5));
    assert_eq!(nfs_v3::PORT, 20049, "RFC 8267 §9");
}

/// RFC 8267 §4: the data of WRITE and the path of SYMLINK are eligible. The arguments of five other procedures have no
/// eligible items.
#[test]
fn eligible_arguments_of_nfs3() {
    assert_eq!([nfs3::Write3args::MAX_DDP_ITEMS, nfs3::Symlink3args::MAX_DDP_ITEMS], [Some(1); 2]);
    let others = [
        nfs3::Setattr3args::MAX_DDP_ITEMS,
        nfs3::Create3args::MAX_DDP_ITEMS,
        nfs3::Mknod3args::MAX_DDP_ITEMS,
        nfs3::Rename3args::MAX_DDP_ITEMS,
        nfs3::Readdirplus3args::MAX_DDP_ITEMS,
    ];
    assert_eq!(others, [Some(0); 5]);
}

/// RFC 8267 §4: only the data of READ and the path of READLINK go into chunks of a reply. The types of the results and
/// the arguments of the call bound the inline part.
#[test]
fn replies_of_nfs3_are_bounded_by_their_calls() {
    let bounds = |reply: rpcrdma::service::ReplyBounds| (reply.inline, reply.chunks.to_vec());
    assert_eq!(bounds(nfs_v3::Nfsproc3Read::reply_bounds(&samples::read_call())), (104, vec![12]));
    let link = nfs3::Readlink3args { symlink: samples::handle() };
    assert_eq!(bounds(nfs_v3::Nfsproc3Readlink::reply_bounds(&link)), (96, vec![4096]));
    assert_eq!(bounds(nfs_v3::Nfsproc3Write::reply_bounds(&samples::write_call())), (136, vec![]));
    assert_eq!(bounds(nfs_v3::Nfsproc3Readdirplus::reply_bounds(&samples::readdirplus_call())), (4100, vec![]));
    let list =
        |count| nfs3::Readdir3args { dir: samples::handle(), cookie: 0, cookieverf: nfs3::Cookieverf3([0; 8]), count };
    assert_eq!(bounds(nfs_v3::Nfsproc3Readdir::reply_bounds(&list(512))), (516, vec![]));
    assert_eq!(bounds(nfs_v3::Nfsproc3Readdir::reply_bounds(&list(0))), (92, vec![]));
    // A failure can be larger than the requested size.
    let tiny = nfs3::Readdirplus3args { maxcount: 0, ..samples::readdirplus_call() };
    assert_eq!(bounds(nfs_v3::Nfsproc3Readdirplus::reply_bounds(&tiny)), (92, vec![]));
    let all = nfs3::Readdirplus3args { maxcount: u32::MAX, ..samples::readdirplus_call() };
    assert_eq!(bounds(nfs_v3::Nfsproc3Readdirplus::reply_bounds(&all)), (4 + u64::from(u32::MAX), vec![]));
}

#[test]
fn the_largest_replies_fit_their_bounds() {
    let most = |inline: u64, encoded: usize| assert_eq!(inline, encoded as u64);
    let attributes = nfs3::PostOpAttr::True(samples::attributes());
    // Status, attributes, count, eof, and the length of the data, which goes into a chunk.
    let read = nfs3::Read3resok { file_attributes: attributes.clone(), count: 0, eof: false, data: Default::default() };
    let bounds = nfs_v3::Nfsproc3Read::reply_bounds(&samples::read_call());
    most(bounds.inline, nfs3::Read3res::Ok(read).encoded_len());
    let handle = nfs3::NfsFh3 { data: vec![7; nfs3::NFS3_FHSIZE as usize].into() };
    let lookup =
        nfs3::Lookup3resok { object: handle, obj_attributes: attributes.clone(), dir_attributes: attributes.clone() };
    let what = nfs3::Diropargs3 { dir: samples::handle(), name: nfs3::Filename3("x".into()) };
    let bounds = nfs_v3::Nfsproc3Lookup::reply_bounds(&nfs3::Lookup3args { what });
    most(bounds.inline, nfs3::Lookup3res::Ok(lookup).encoded_len());
    let failure = nfs3::Readdirplus3resfail { dir_attributes: attributes };
    let failure = nfs3::Readdirplus3res::Default(nfs3::Nfsstat3::BadCookie, failure);
    assert_eq!(failure.encoded_len(), 92);
    let many = mount3::Mountres3Ok {
        fhandle: mount3::Fhandle3(vec![7; mount3::FHSIZE3 as usize].into()),
        auth_flavors: vec![6; 256],
    };
    let bounds = mount_v3::Mountproc3Mnt::reply_bounds(&samples::mnt_call());
    most(bounds.inline, mount3::Mountres3::Ok(many).encoded_len());
}

#[test]
fn too_long_items_are_not_encoded() {
    let handle = nfs3::NfsFh3 { data: vec![7; nfs3::NFS3_FHSIZE as usize + 1].into() };
    assert!(encode_to_bytes(&handle).is_err());
    let name = mount3::Name("x".repeat(mount3::MNTNAMLEN as usize + 1).into());
    assert!(encode_to_bytes(&name).is_err());
}

//! Tests of the encodings of COMPOUNDs of NFS version 4, word by word (RFC 7863), and of the bounds of their replies
//! (RFC 8267 §6).

mod samples;

use rpcrdma::{
    service::{Procedure, ReplyBounds},
    xdr::{Bytes, XdrEncode, XdrType},
};
use rpcrdma_specs::nfs4::{
    self as nfs, CbCompound4args, Compound4args, Compound4res, NfsArgop4 as Op, NfsCbArgop4 as CbOp, NfsResop4 as Res,
    nfs_cb::CbCompound, nfs_v4, nfs_v4::Nfsproc4Compound,
};
use samples::{HANDLE, both_ways, counted, stateid, utf8};

const STATEID: [u32; 4] = [7, 0x0001_0203, 0x0405_0607, 0x0809_0a0b];

fn putfh() -> Op {
    Op::Putfh(nfs::Putfh4args { object: nfs::NfsFh4(Bytes::from_static(HANDLE)) })
}

fn lookup(name: &'static str) -> Op {
    Op::Lookup(nfs::Lookup4args { objname: utf8(name) })
}

fn read(count: u32) -> Op {
    Op::Read(nfs::Read4args { stateid: stateid(), offset: 1, count })
}

fn compound(argarray: Vec<Op>) -> Compound4args {
    Compound4args { tag: utf8("test"), minorversion: 2, argarray }
}

fn bounds(argarray: Vec<Op>) -> ReplyBounds {
    Nfsproc4Compound::reply_bounds(&compound(argarray))
}

#[test]
fn a_compound_call_and_its_reply() {
    let words = [
        counted(b"test").as_slice(),
        &[2, 3],
        &[22],
        &counted(HANDLE),
        &[15],
        &counted(b"file"),
        &[25],
        &STATEID,
        &[0, 1, 4096],
    ]
    .concat();
    both_ways(&samples::compound_call(), &words);

    let words = [&[0], counted(b"test").as_slice(), &[3, 22, 0, 15, 0, 25, 0, 1], &counted(b"hello")].concat();
    both_ways(&samples::compound_reply(), &words);
}

#[test]
fn writes_and_links_are_eligible_in_calls() {
    let data = Bytes::from_static(b"hello");
    let write = Op::Write(nfs::Write4args { stateid: stateid(), offset: 9, stable: nfs::StableHow4::FileSync4, data });
    let words = [&[0, 1, 1, 38], &STATEID[..], &[0, 9, 2], &counted(b"hello")].concat();
    let call = Compound4args { tag: utf8(""), minorversion: 1, argarray: vec![write] };
    both_ways(&call, &words);
    // A COMPOUND has any number of operations, and so of eligible items.
    assert_eq!(Compound4args::MAX_DDP_ITEMS, Some(u32::MAX));
    assert_eq!(nfs::Write4args::MAX_DDP_ITEMS, Some(1));
    assert_eq!(nfs::Createtype4::MAX_DDP_ITEMS, Some(1));
    let nothing_in_callbacks = CbCompound4args::MAX_DDP_ITEMS;
    assert_eq!(nothing_in_callbacks, Some(0), "RFC 8267 §6.5");
}

/// The bounds of two READs and a READLINK have three Write chunks, as in the example in RFC 8267 §6.4.3.
#[test]
fn each_read_and_readlink_gets_a_chunk() {
    let operations =
        vec![putfh(), lookup("a"), read(8191), putfh(), lookup("b"), Op::Readlink, putfh(), lookup("c"), read(101)];
    let bounds = bounds(operations);
    assert_eq!(bounds.chunks.as_slice(), [8191, nfs::MAX_LINK_LEN, 101]);
    // Status, tag and count; PUTFH and LOOKUP three times; READ without its data; READLINK without its link.
    assert_eq!(bounds.inline, (4 + 8 + 4) + 6 * 8 + 2 * (4 + 4 + 4 + 4) + (4 + 4 + 4));
}

#[test]
fn other_operations_add_what_their_arguments_ask_for() {
    let alone = |operation| {
        let bounds = bounds(vec![operation]);
        assert!(bounds.chunks.is_empty());
        bounds.inline - bounds_of_nothing()
    };
    let list = |maxcount| nfs::Readdir4args {
        cookie: 0,
        cookieverf: nfs::Verifier4([0; 8]),
        dircount: 0,
        maxcount,
        attr_request: nfs::Bitmap4(vec![]),
    };
    assert_eq!(alone(Op::Readdir(list(32768))), 4 + 4 + 32768);
    assert_eq!(alone(Op::Readdir(list(u32::MAX))), 8 + u64::from(u32::MAX));
    let attributes = nfs::Getattr4args { attr_request: nfs::Bitmap4(vec![1]) };
    assert_eq!(alone(Op::Getattr(attributes)), 4 + nfs::UNKNOWN_RESULT_LEN);
    // A file handle has at most 128 bytes.
    assert_eq!(alone(Op::Getfh), 4 + 4 + 4 + 128);
    assert_eq!(alone(Op::Illegal), 4 + 4);
}

/// The types of the requested attributes bound the reply to GETATTR (RFC 8267 §3). If an attribute has no maximum size
/// or is unknown, the bound is [`nfs::UNKNOWN_RESULT_LEN`].
#[test]
fn attributes_add_what_their_types_allow() {
    let most = |numbers: &[u32]| {
        let mut mask = vec![0; 3];
        numbers.iter().for_each(|number| mask[*number as usize / 32] |= 1 << (number % 32));
        let asked = nfs::Getattr4args { attr_request: nfs::Bitmap4(mask) };
        bounds(vec![Op::Getattr(asked)]).inline - bounds_of_nothing()
    };
    // The operation, its status, the mask, and the length of the values.
    let frame = 4 + 4 + (4 + 3 * 4) + 4;
    assert_eq!(most(&[]), frame);
    let fixed = [nfs::FATTR4_TYPE, nfs::FATTR4_CHANGE, nfs::FATTR4_SIZE, nfs::FATTR4_FSID, nfs::FATTR4_MODE];
    assert_eq!(most(&fixed), frame + 4 + 8 + 8 + 16 + 4);
    assert_eq!(most(&[nfs::FATTR4_FILEHANDLE, nfs::FATTR4_SPACE_FREED]), frame + (4 + 128) + 8);
    // Section 6.2 lists the attributes without a maximum; an unknown attribute has none either.
    for unbounded in [nfs::FATTR4_ACL, nfs::FATTR4_DACL, nfs::FATTR4_FS_LOCATIONS, nfs::FATTR4_LAYOUT_TYPES, 95] {
        assert_eq!(most(&[nfs::FATTR4_TYPE, unbounded]), 4 + nfs::UNKNOWN_RESULT_LEN, "{unbounded}");
    }
    // A mask can have any length.
    let long = nfs::Getattr4args { attr_request: nfs::Bitmap4(vec![u32::MAX; 10_000]) };
    assert_eq!(bounds(vec![Op::Getattr(long)]).inline - bounds_of_nothing(), 4 + nfs::UNKNOWN_RESULT_LEN);
}

#[test]
fn lists_add_the_requested_number_of_items() {
    let stateids = nfs::TestStateid4args { ts_stateids: vec![stateid(); 5000] };
    assert_eq!(bounds(vec![Op::TestStateid(stateids)]).inline - bounds_of_nothing(), 4 + 4 + 4 + 5000 * 4);
    let devices = nfs::Getdevicelist4args {
        gdla_layout_type: nfs::Layouttype4::Nfsv41Files,
        gdla_maxdevices: 3,
        gdla_cookie: 0,
        gdla_cookieverf: nfs::Verifier4([0; 8]),
    };
    let list = nfs::Getdevicelist4resok {
        gdlr_cookie: 0,
        gdlr_cookieverf: nfs::Verifier4([0; 8]),
        gdlr_deviceid_list: vec![nfs::Deviceid4([0; 16]); 3],
        gdlr_eof: true,
    };
    let result = Res::Getdevicelist(nfs::Getdevicelist4res::Ok(list));
    let bound = bounds(vec![Op::Getdevicelist(devices)]).inline - bounds_of_nothing();
    assert_eq!(bound, result.encoded_len() as u64);
}

/// RFC 8267 §6.2: the protocol does not limit the data of layouts and devices, but the arguments of the call do.
#[test]
fn layouts_add_what_their_arguments_ask_for() {
    let device = nfs::Getdeviceinfo4args {
        gdia_device_id: nfs::Deviceid4([0; 16]),
        gdia_layout_type: nfs::Layouttype4::Nfsv41Files,
        gdia_maxcount: 50_000,
        gdia_notify_types: nfs::Bitmap4(vec![]),
    };
    let layout = nfs::Layoutget4args {
        loga_signal_layout_avail: false,
        loga_layout_type: nfs::Layouttype4::Nfsv41Files,
        loga_iomode: nfs::Layoutiomode4::Read,
        loga_offset: 0,
        loga_length: 1,
        loga_minlength: 1,
        loga_stateid: stateid(),
        loga_maxcount: 60_000,
    };
    for (operation, asked) in [(Op::Getdeviceinfo(device), 50_000), (Op::Layoutget(layout), 60_000)] {
        let bounds = bounds(vec![operation]);
        let inline = bounds.inline - bounds_of_nothing();
        // The operation, the status, a stateid and three words surround the layouts. A device needs less.
        assert!((asked + 36..asked + 100).contains(&inline) && bounds.chunks.is_empty(), "{inline} for {asked}");
    }
}

/// RFC 8267 §6.1 lists no eligible item of READ_PLUS, so the data of READ_PLUS stays inline. The operations of sessions
/// have no eligible items either (§6.6).
#[test]
fn read_plus_gets_no_chunk() {
    let read = nfs::ReadPlus4args { rpa_stateid: stateid(), rpa_offset: 0, rpa_count: 100_000 };
    let bounds = bounds(vec![Op::ReadPlus(read)]);
    assert!(bounds.chunks.is_empty() && bounds.inline > 104_000, "{bounds:?}");
    assert_eq!(nfs::ReadPlus4res::MAX_DDP_ITEMS, Some(0));
    // RFC 8267 §6.6: the operations of sessions have no eligible items either.
    assert_eq!(nfs::Sequence4args::MAX_DDP_ITEMS, Some(0));
    assert_eq!(nfs::Sequence4res::MAX_DDP_ITEMS, Some(0));
    assert_eq!(nfs::CreateSession4res::MAX_DDP_ITEMS, Some(0));
}

fn bounds_of_nothing() -> u64 {
    bounds(vec![]).inline
}

#[test]
fn any_number_of_operations_has_bounds() {
    let many = bounds(vec![read(u32::MAX); 1000]);
    assert_eq!(many.chunks.len(), 1000);
    assert!(many.chunks.iter().all(|bytes| *bytes == u64::from(u32::MAX)));
}

#[test]
fn reply_has_the_computed_size() {
    let tag = utf8("tag");
    let call = Compound4args { tag: tag.clone(), minorversion: 0, argarray: vec![putfh(), Op::Getfh, Op::Restorefh] };
    let handle = nfs::NfsFh4(vec![1; nfs::NFS4_FHSIZE as usize].into());
    let status = nfs::Nfsstat4::Ok;
    let reply = Compound4res {
        status,
        tag,
        resarray: vec![
            Res::Putfh(nfs::Putfh4res { status }),
            Res::Getfh(nfs::Getfh4res::Ok(nfs::Getfh4resok { object: handle })),
            Res::Restorefh(nfs::Restorefh4res { status }),
        ],
    };
    assert_eq!(Nfsproc4Compound::reply_bounds(&call).inline, reply.encoded_len() as u64);
}

#[test]
fn callbacks_have_bounds_and_no_chunks() {
    let recall =
        nfs::CbRecall4args { stateid: stateid(), truncate: false, fh: nfs::NfsFh4(Bytes::from_static(HANDLE)) };
    let getattr =
        nfs::CbGetattr4args { fh: nfs::NfsFh4(Bytes::from_static(HANDLE)), attr_request: nfs::Bitmap4(vec![0x10]) };
    let call = |argarray| CbCompound4args { tag: utf8(""), minorversion: 0, callback_ident: 1, argarray };
    let small = CbCompound::reply_bounds(&call(vec![CbOp::Recall(recall)]));
    // The reply to CB_RECALL has a small, fixed size (RFC 8267 §6.5.1).
    assert_eq!((small.inline, small.chunks.len()), (12 + 4 + 4, 0));
    let large = CbCompound::reply_bounds(&call(vec![CbOp::Getattr(getattr)]));
    assert_eq!(
        (large.inline, large.chunks.len()),
        (12 + 4 + (4 + 4 + 4 + 4 + 8), 0),
        "room for the requested size attribute"
    );
    // RFC 8267 §6.2: the types of attributes such as ACLs have no maximum.
    let acl = nfs::CbGetattr4args {
        fh: nfs::NfsFh4(Bytes::from_static(HANDLE)),
        attr_request: nfs::Bitmap4(vec![1 << nfs::FATTR4_ACL]),
    };
    let unknown = CbCompound::reply_bounds(&call(vec![CbOp::Getattr(acl)]));
    assert_eq!((unknown.inline, unknown.chunks.len()), (12 + 4 + nfs::UNKNOWN_RESULT_LEN, 0));
}

#[test]
fn numbers_match_the_specifications() {
    assert_eq!((nfs_v4::PROGRAM, nfs_v4::VERSION, nfs_v4::PORT), (100_003, 4, 20049));
    assert_eq!(Nfsproc4Compound::NUMBER, 1);
    assert_eq!((CbCompound::PROGRAM, CbCompound::VERSION, CbCompound::NUMBER), (0x4000_0000, 1, 1));
}

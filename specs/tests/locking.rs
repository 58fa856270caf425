//! Tests of the encodings of calls and replies of NLM, NSM and NFSACL, word by word.

mod samples;

use rpcrdma::{
    service::Procedure,
    xdr::{XdrEncode as _, XdrType, encode_to_bytes},
};
use rpcrdma_specs::{
    nfs3::{Nfsstat3, PostOpAttr},
    nfsacl3::{self, nfs_acl_v3},
    nlm4::{self, nlm4_vers},
    nsm1::{self, sm_vers},
};
use samples::{both_ways, counted, numbers};

fn object(bytes: &'static [u8]) -> nlm4::Netobj {
    nlm4::Netobj(bytes.into())
}

fn alock() -> nlm4::Nlm4Lock {
    nlm4::Nlm4Lock {
        caller_name: "alpha".into(),
        fh: object(b"handle"),
        oh: object(b"7@alpha"),
        svid: 7,
        l_offset: 1 << 40,
        l_len: 9,
    }
}

fn alock_words() -> Vec<u32> {
    [counted(b"alpha"), counted(b"handle"), counted(b"7@alpha"), vec![7, 256, 0, 0, 9]].concat()
}

#[test]
fn nlm4_lock() {
    let args = nlm4::Nlm4Lockargs {
        cookie: object(b"ck"),
        block: true,
        exclusive: false,
        alock: alock(),
        reclaim: true,
        state: 5,
    };
    both_ways(&args, &[counted(b"ck"), vec![1, 0], alock_words(), vec![1, 5]].concat());
    let stat = nlm4::Nlm4Stat { stat: nlm4::Nlm4Stats::Blocked };
    both_ways(&nlm4::Nlm4Res { cookie: object(b"ck"), stat }, &[counted(b"ck"), vec![3]].concat());
}

#[test]
fn nlm4_test_cancel_and_unlock() {
    let args = nlm4::Nlm4Testargs { cookie: object(b"ck"), exclusive: true, alock: alock() };
    both_ways(&args, &[counted(b"ck"), vec![1], alock_words()].concat());
    let args = nlm4::Nlm4Cancargs { cookie: object(b"ck"), block: true, exclusive: true, alock: alock() };
    both_ways(&args, &[counted(b"ck"), vec![1, 1], alock_words()].concat());
    let args = nlm4::Nlm4Unlockargs { cookie: object(b"ck"), alock: alock() };
    both_ways(&args, &[counted(b"ck"), alock_words()].concat());
    let holder = nlm4::Nlm4Holder { exclusive: true, svid: -1, oh: object(b"x"), l_offset: 2, l_len: 3 };
    let denied = nlm4::Nlm4Testres { cookie: object(b""), stat: nlm4::Nlm4Testrply::Denied(holder) };
    both_ways(&denied, &[vec![0, 1, 1, u32::MAX], counted(b"x"), vec![0, 2, 0, 3]].concat());
    let granted = nlm4::Nlm4Testrply::Default(nlm4::Nlm4Stats::Granted);
    both_ways(&nlm4::Nlm4Testres { cookie: object(b""), stat: granted }, &[0, 0]);
}

#[test]
fn nlm4_share_and_free_all() {
    let share = nlm4::Nlm4Share {
        caller_name: "alpha".into(),
        fh: object(b"handle"),
        oh: object(b"oh"),
        mode: nlm4::Fsh4Mode::Drw,
        access: nlm4::Fsh4Access::R,
    };
    let args = nlm4::Nlm4Shareargs { cookie: object(b"ck"), share, reclaim: false };
    let words = [counted(b"ck"), counted(b"alpha"), counted(b"handle"), counted(b"oh"), vec![3, 1, 0]].concat();
    both_ways(&args, &words);
    let res = nlm4::Nlm4Shareres { cookie: object(b"ck"), stat: nlm4::Nlm4Stats::Granted, sequence: 4 };
    both_ways(&res, &[counted(b"ck"), vec![0, 4]].concat());
    both_ways(&nlm4::Nlm4Notify { name: "alpha".into(), state: 3 }, &[counted(b"alpha"), vec![3]].concat());
}

#[test]
fn nsm1_notify_and_stat() {
    both_ways(&nsm1::StatChge { mon_name: "alpha".into(), state: 3 }, &[counted(b"alpha"), vec![3]].concat());
    both_ways(&nsm1::SmStatRes { res_stat: nsm1::Res::Fail, state: 3 }, &[1, 3]);
    let my_id = nsm1::MyId { my_name: "beta".into(), my_prog: 100_021, my_vers: 4, my_proc: 16 };
    let mon = nsm1::Mon { mon_id: nsm1::MonId { mon_name: "alpha".into(), my_id }, r#priv: [1; 16] };
    let words = [counted(b"alpha"), counted(b"beta"), vec![100_021, 4, 16], vec![0x0101_0101; 4]].concat();
    both_ways(&mon, &words);
}

#[test]
fn nfsacl3_getacl_and_setacl() {
    let call = nfsacl3::Getacl3args { fh: samples::handle(), mask: nfsacl3::NA_ACL | nfsacl3::NA_DFACLCNT };
    both_ways(&call, &[counted(samples::HANDLE), vec![9]].concat());
    let entry = |r#type, id, perm| nfsacl3::Aclent { r#type, id, perm };
    let aclent = vec![entry(nfsacl3::NA_USER_OBJ, 5, 7), entry(nfsacl3::NA_OTHER, 0, 4)];
    let dfaclent = vec![entry(nfsacl3::NA_MASK | nfsacl3::NA_DEFAULT, 0, 6)];
    let acl = nfsacl3::Secattr { mask: 15, aclcnt: 2, aclent, dfaclcnt: 1, dfaclent };
    let words = [15, 2, 2, 1, 5, 7, 32, 0, 4, 1, 1, 4112, 0, 6];
    let set = nfsacl3::Setacl3args { fh: samples::handle(), acl: acl.clone() };
    both_ways(&set, &[counted(samples::HANDLE), words.to_vec()].concat());
    let attr = PostOpAttr::True(samples::attributes());
    let ok = nfsacl3::Getacl3res::Ok(nfsacl3::Getacl3resok { attr, acl });
    both_ways(&ok, &[&[0, 1], &samples::ATTRIBUTES[..], &words].concat());
    let status = nfsacl3::Nfsstat3::try_from(Nfsstat3::Stale as i32).unwrap();
    let failure = nfsacl3::Getacl3res::Default(status, nfsacl3::Acl3resfail { attr: PostOpAttr::False });
    both_ways(&failure, &[70, 0]);
}

#[test]
fn the_largest_lists_fit_their_bounds() {
    let most = vec![nfsacl3::Aclent::default(); nfsacl3::NFS_ACL_MAX_ENTRIES as usize];
    let acl = nfsacl3::Secattr { aclent: most.clone(), dfaclent: most, ..Default::default() };
    let attr = PostOpAttr::True(samples::attributes());
    let reply = nfsacl3::Getacl3res::Ok(nfsacl3::Getacl3resok { attr: attr.clone(), acl });
    let call = nfsacl3::Getacl3args { fh: samples::handle(), mask: 0 };
    let bounds = nfs_acl_v3::Aclproc3Getacl::reply_bounds(&call);
    assert_eq!((bounds.inline, bounds.chunks.len()), (reply.encoded_len() as u64, 0));
    let call = nfsacl3::Setacl3args { fh: samples::handle(), acl: Default::default() };
    let reply = nfsacl3::Setacl3res::Ok(nfsacl3::Setacl3resok { attr });
    assert_eq!(nfs_acl_v3::Aclproc3Setacl::reply_bounds(&call).inline, reply.encoded_len() as u64);
}

#[test]
fn numbers_match_the_specifications() {
    assert_eq!(numbers::<nlm4_vers::Nlmproc4Granted>(), (100_021, 4, 5));
    assert_eq!(numbers::<nlm4_vers::Nlmproc4FreeAll>(), (100_021, 4, 23));
    assert_eq!(numbers::<sm_vers::SmNotify>(), (100_024, 1, 6));
    assert_eq!(numbers::<nfs_acl_v3::Aclproc3Setacl>(), (100_227, 3, 2));
}

/// RFC 8267 §5.1, §5.2: NLM, NSM and NFSACL have no eligible items.
#[test]
fn no_item_is_eligible() {
    let items = [
        nlm4::Nlm4Lockargs::MAX_DDP_ITEMS,
        nlm4::Nlm4Testres::MAX_DDP_ITEMS,
        nlm4::Nlm4Shareargs::MAX_DDP_ITEMS,
        nsm1::Mon::MAX_DDP_ITEMS,
        nfsacl3::Setacl3args::MAX_DDP_ITEMS,
        nfsacl3::Getacl3res::MAX_DDP_ITEMS,
    ];
    assert_eq!(items, [Some(0); 6]);
}

#[test]
fn too_long_names_are_not_encoded() {
    let long = nlm4::Nlm4Lock { caller_name: "x".repeat(1025).into(), ..alock() };
    assert!(encode_to_bytes(&long).is_err());
    let long = nlm4::Netobj(vec![0; 1025].into());
    assert!(encode_to_bytes(&long).is_err());
}

//! Tests of READ, WRITE and COMMIT, over iWARP and TCP, at various offsets and sizes.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
};

use bytes::Bytes;
use rpcrdma::rpc::Credential;
use rpcrdma_specs::nfs3::*;

use crate::support::{Nfs, Served, mode, nothing, own_gid, own_uid, pattern};

async fn both(served: &Served) -> [Nfs; 2] {
    let own = || Credential::sys("test", own_uid(), own_gid(), []);
    [served.client_as(own(), &served.iwarp).await, served.client_as(own(), &served.tcp).await]
}

#[tokio::test]
async fn written_data_is_in_the_file_and_read_back() {
    let served = Served::new().await;
    for (nth, nfs) in both(&served).await.into_iter().enumerate() {
        let path = served.root.join(nth.to_string());
        let file = nfs.file(&nfs.root, nth.to_string()).await;
        let mut want = vec![0; 2_000_003];
        let pieces = [(0, 1), (1, 4095), (5000, 100_003), (1_000_000, 4 << 20), (999_999, 3), (7, 0)];
        for (seed, (offset, len)) in pieces.into_iter().enumerate() {
            let data = pattern(len, seed as u8);
            let stable = [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync][seed % 3];
            let ok = nfs.write(&file, offset as u64, &data, stable).await.unwrap();
            assert_eq!((ok.count as usize, ok.committed), (len, stable));
            let end = offset + len;
            if end > want.len() {
                want.resize(end, 0);
            }
            want[offset..end].copy_from_slice(&data);
        }
        let len = fs::metadata(&path).unwrap().len() as usize;
        want.truncate(len);
        assert!(fs::read(&path).unwrap() == want);
        for (offset, count) in [(0, 1), (3, 5), (4096, 65_537), (1, 4 << 20), (len as u64 - 1, 10), (len as u64, 1)] {
            let (data, eof) = nfs.read(&file, offset, count).await.unwrap();
            let there = &want[offset as usize..len.min(offset as usize + count as usize)];
            assert!(data == there, "{count} at {offset}");
            assert_eq!(eof, offset as usize + there.len() == len, "{count} at {offset}");
        }
        assert_eq!(nfs.read(&file, u64::MAX, 1).await, Ok((Bytes::new(), true)));
        assert_eq!(nfs.read(&file, 0, 0).await, Ok((Bytes::new(), false)));
        // A READ returns at most the maximum that FSINFO announces.
        let (data, eof) = nfs.read(&file, 0, 8 << 20).await.unwrap();
        assert_eq!((data.len(), eof), (4 << 20, false));
        // So does a WRITE.
        let ok = nfs.write(&file, 7, &pattern(6 << 20, 9), StableHow::Unstable).await.unwrap();
        assert_eq!((ok.count, fs::metadata(&path).unwrap().len()), (4 << 20, len as u64));
        assert!(fs::read(&path).unwrap()[7..7 + (4 << 20)] == pattern(6 << 20, 9)[..4 << 20]);
    }
    let counters = served.service.counters();
    assert!(counters.bytes_written() > 16 << 20 && counters.bytes_read() > 16 << 20, "{counters}");
}

/// FSINFO offers the maximum transfer size of the export, as a multiple of 4 KiB, from 4 KiB to 4 MiB. READ and WRITE
/// transfer only that many bytes of a longer request.
#[tokio::test]
async fn sizes_follow_the_offer() {
    for (max, offer) in [(100_000, 98_304), (1 << 20, 1 << 20), (5 << 20, 4 << 20), (u64::MAX, 4 << 20), (0, 4096)] {
        let served = Served::with_max_transfer(max).await;
        for nfs in both(&served).await {
            let args = Fsinfo3args { fsroot: nfs.root.clone() };
            let Fsinfo3res::Ok(info) = nfs.client.nfsproc3_fsinfo(&args).await.unwrap() else { panic!() };
            assert_eq!([info.rtmax, info.rtpref, info.wtmax, info.wtpref], [offer; 4], "{max}");
            fs::write(served.root.join("a"), pattern(5 << 20, 1)).unwrap();
            let file = nfs.lookup(&nfs.root, "a").await.unwrap();
            let (data, eof) = nfs.read(&file, 3, 32 << 20).await.unwrap();
            assert_eq!((data.len(), eof), (offer as usize, false), "{max}");
            let ok = nfs.write(&file, 3, &pattern(5 << 20, 2), StableHow::FileSync).await.unwrap();
            assert_eq!(ok.count, offer, "{max}");
            let stored = fs::read(served.root.join("a")).unwrap();
            assert!(stored[3..][..offer as usize] == pattern(5 << 20, 2)[..offer as usize], "{max}");
            assert!(stored[3 + offer as usize..] == pattern(5 << 20, 1)[3 + offer as usize..], "{max}");
        }
    }
}

/// File data moves by RDMA, without copies at client or server.
#[tokio::test]
async fn data_is_placed_directly() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let file = nfs.file(&nfs.root, "a").await;
    nfs.write(&file, 0, &pattern(4 << 20, 1), StableHow::Unstable).await.unwrap();
    nfs.read(&file, 0, 4 << 20).await.unwrap();
    let counters = nfs.client.channel().counters();
    assert!(counters.read_by_peer_bytes >= 4 << 20, "fetched by RDMA Read: {counters:?}");
    assert!(counters.written_by_peer_bytes >= 4 << 20, "returned by RDMA Write: {counters:?}");
    assert_eq!((counters.copied_eligible_bytes, counters.exposed_regions), (0, 0), "{counters:?}");
    assert_eq!(counters.copied_payload_bytes, 0, "{counters:?}");
    // The server's counters would include copies between the file and registered memory.
    let at_server = served.connections();
    let [counters] = at_server.as_slice() else { panic!("{at_server:?}") };
    assert!(counters.rdma_read_bytes >= 4 << 20 && counters.rdma_write_bytes >= 4 << 20, "{counters:?}");
    assert_eq!((counters.copied_eligible_bytes, counters.copied_payload_bytes), (0, 0), "{counters:?}");
}

/// WRITE and COMMIT return the same write verifier until the server restarts (RFC 1813 §3.3.7, §3.3.21).
#[tokio::test]
async fn the_write_verifier_is_constant_within_a_run() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let (a, b) = (nfs.file(&nfs.root, "a").await, nfs.file(&nfs.root, "b").await);
    let first = nfs.write(&a, 0, b"x", StableHow::Unstable).await.unwrap().verf;
    assert_eq!(nfs.write(&b, 0, b"y", StableHow::FileSync).await.unwrap().verf, first);
    assert_eq!(nfs.commit(&a).await, Ok(first.clone()));
    assert_eq!(nfs.commit(&nfs.root).await, Err(Nfsstat3::Isdir));

    let served = Served::of(served.end(), Default::default()).await;
    let nfs = served.client().await;
    let a = nfs.lookup(&nfs.root, "a").await.unwrap();
    assert_ne!(nfs.commit(&a).await, Ok(first), "the verifier of another run differs");
}

#[tokio::test]
async fn invalid_writes_are_refused() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let file = nfs.file(&nfs.root, "a").await;
    let mut args = Write3args {
        file: file.clone(),
        offset: 0,
        count: 5,
        stable: StableHow::Unstable,
        data: Bytes::from_static(b"four"),
    };
    let status = |result: Write3res| result.discriminant();
    assert_eq!(status(nfs.client.nfsproc3_write(&args).await.unwrap()), Nfsstat3::Inval);
    args.count = 4;
    for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64 - 3] {
        args.offset = offset;
        assert_eq!(status(nfs.client.nfsproc3_write(&args).await.unwrap()), Nfsstat3::Fbig, "{offset}");
    }
    assert_eq!(fs::metadata(served.root.join("a")).unwrap().len(), 0);
    assert_eq!(nfs.write(&nfs.root, 0, b"x", StableHow::Unstable).await.err(), Some(Nfsstat3::Isdir));
    assert_eq!(nfs.read(&nfs.root, 0, 1).await, Err(Nfsstat3::Isdir));
    let (pipe, _) = nfs.mknod(&nfs.root, "pipe", Mknoddata3::Fifo(mode(0o644))).await.unwrap();
    assert_eq!(nfs.read(&pipe, 0, 1).await, Err(Nfsstat3::Inval), "READ of a pipe must not wait for a writer");
    assert_eq!(nfs.write(&pipe, 0, b"x", StableHow::FileSync).await.err(), Some(Nfsstat3::Inval));
    let link = nfs.symlink(&nfs.root, "link", "a").await.unwrap();
    assert_eq!(nfs.read(&link, 0, 1).await, Err(Nfsstat3::Inval), "READ must not follow a link");
}

/// The owner can read and write a file that it created as read-only, or whose permissions it removed, as if it had the
/// file open (RFC 1813 §4.4).
#[tokio::test]
async fn an_owner_reads_and_writes_whatever_the_mode_says() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let how = Createhow3::Guarded(mode(0o444));
    let (file, attributes) = nfs.create(&nfs.root, "object", how).await.unwrap();
    assert_eq!(attributes.mode, 0o444);
    nfs.write(&file, 0, b"content", StableHow::FileSync).await.unwrap();
    nfs.setattr(&file, Sattr3 { size: SetSize3::True(4), ..nothing() }, Sattrguard3::False).await.unwrap();
    assert_eq!(nfs.read(&file, 0, 100).await, Ok((Bytes::from_static(b"cont"), true)));
    nfs.setattr(&file, mode(0), Sattrguard3::False).await.unwrap();
    nfs.write(&file, 4, b"ract", StableHow::Unstable).await.unwrap();
    assert_eq!(nfs.read(&file, 0, 100).await, Ok((Bytes::from_static(b"contract"), true)));
    nfs.commit(&file).await.unwrap();
    let meta = fs::metadata(served.root.join("object")).unwrap();
    assert_eq!((meta.permissions().mode() & 0o777, meta.size()), (0, 8));
}

/// The `wcc_data` of each concurrent call covers only the change of this call (RFC 1813 §2.6).
#[tokio::test]
async fn calls_at_the_same_time_do_not_mix_their_changes() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let file = nfs.file(&nfs.root, "a").await;
    let writes = (0..24_u64).map(|nth| {
        let (nfs, file) = (&nfs, &file);
        async move { nfs.write(file, nth * 1000, &[nth as u8; 1000], StableHow::Unstable).await.unwrap().file_wcc }
    });
    let mut sizes: Vec<_> = futures_util::future::join_all(writes)
        .await
        .into_iter()
        .map(|wcc| {
            let (PreOpAttr::True(before), PostOpAttr::True(after)) = (wcc.before, wcc.after) else { panic!() };
            (before.size, after.size)
        })
        .collect();
    sizes.sort_unstable();
    // Each write begins at the size that another has left.
    sizes.retain(|(before, after)| before != after);
    assert!(sizes.windows(2).all(|pair| pair[0].1 == pair[1].0), "{sizes:?}");
    assert_eq!((sizes.first().unwrap().0, sizes.last().unwrap().1), (0, 24_000));
}

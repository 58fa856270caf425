//! Tests of the blobstore service and client, over iWARP on loopback.
#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, io::Write as _};

use bytes::Bytes;
use common::{Fixture, digest, name, noise, wire_name};
use futures_util::future::join_all;
use rpcrdma::server::{Context, HandlerError, Server};
use rpcrdma_examples::{
    blobstore::{
        protocol::{
            BLOB_ATTACHMENT_MAX, BLOB_LIST_MAX, BeginArgs, BeginRes, BlobStatus, CommitArgs, FetchArgs, FetchRes,
            GetArgs, GetOk, GetRes, ListArgs, ListRes, PutArgs, StatRes, WriteArgs,
        },
        transfer::{RefusedStatus, TransferError, TransferOptions},
    },
    command::chain,
};

/// Blob sizes in bytes: near multiples of four (XDR padding), the inline threshold, the page size, and the length of
/// one range and of several ranges.
const SIZES: [usize; 17] =
    [0, 1, 2, 3, 4, 5, 1023, 1024, 1025, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, 5 << 20];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_all_sizes_round_trip() {
    let fixture = Fixture::start().await;
    for (range, sizes) in [(1 << 20, &SIZES[..]), (4096, &SIZES[..13]), (777, &SIZES[..12])] {
        let client = fixture.client(TransferOptions::default().with_range(range).with_depth(5)).await;
        for &size in sizes {
            let (data, blob) = (noise(size, range), name(&format!("{range}/{size}")));
            let mut source = tempfile::tempfile().unwrap();
            source.write_all(&data).unwrap();
            std::io::Seek::rewind(&mut source).unwrap();
            let attachment = Bytes::from(noise(size.min(BLOB_ATTACHMENT_MAX as usize) / 3, 1));
            let told = std::cell::Cell::new(0);
            let progress = |len| told.set(told.get() + len);
            let stored = client.upload(&blob, source, size as u64, attachment.clone(), progress).await.unwrap();
            assert_eq!((stored.size, &stored.digest, told.get()), (size as u64, &digest(&data), size as u64));

            let (fetched, stat, got) = client.download(&blob, Vec::new(), |_, _| {}).await.unwrap();
            assert!(fetched == data, "{size} bytes in ranges of {range} have changed");
            assert_eq!((stat, got), (stored, attachment));
        }
        assert_eq!(client.rpc().channel().counters().exposed_regions, 0, "no memory is exposed between calls");
    }
    assert_eq!(fixture.files_in("uploads"), 0);
}

#[tokio::test]
async fn a_range_of_a_blob() {
    let fixture = Fixture::start().await;
    let rpc = fixture.rpc().await;
    let data = Bytes::from(noise(10_000, 0));
    let put = PutArgs {
        name: wire_name(b"x"),
        digest: digest(&data),
        attachment: Bytes::from_static(b"must not be returned after the data"),
        data: data.clone(),
    };
    let StatRes::BlobOk(stat) = rpc.put(&put).await.unwrap() else { panic!("PUT failed") };
    let get = |offset, count, expect| GetArgs { name: wire_name(b"x"), offset, count, expect };
    for (offset, count) in [(0, 0), (0, 1), (1, 3), (4095, 4097), (0, 10_000), (0, 10_001), (9_999, 9), (10_000, 5)] {
        let range = offset.min(10_000)..(offset + count).min(10_000);
        let ok = GetOk { eof: range.end == 10_000, data: data.slice(range) };
        let got = rpc.get(&get(offset as u64, count as u32, 0)).await.unwrap();
        assert_eq!(got, GetRes::BlobOk(ok), "{count} at {offset}");
    }
    let beyond = GetRes::BlobOk(GetOk { eof: true, data: Bytes::new() });
    assert_eq!(rpc.get(&get(u64::MAX, 100, stat.modified)).await.unwrap(), beyond);
    assert_eq!(rpc.get(&get(0, 1, stat.modified + 1)).await.unwrap(), GetRes::Default(BlobStatus::BlobChanged));
}

#[tokio::test]
async fn two_eligible_results_are_placed_separately() {
    let fixture = Fixture::start().await;
    let rpc = fixture.rpc().await;
    let (data, attachment) = (Bytes::from(noise(70_001, 0)), Bytes::from(noise(9_999, 1)));
    let name = wire_name(b"x");
    let put = PutArgs { name: name.clone(), digest: digest(&data), attachment: attachment.clone(), data: data.clone() };
    let StatRes::BlobOk(stat) = rpc.put(&put).await.unwrap() else { panic!("PUT failed") };
    let before = rpc.channel().counters();
    assert!(before.read_by_peer_bytes >= 80_000, "both eligible arguments use RDMA Read: {before:?}");

    // Space for both results, for either, for neither, and for a part of each.
    for (attachment_count, count) in [(10_000, 80_000), (0, 80_000), (10_000, 0), (0, 0), (5_003, 33_333), (1, 2)] {
        let fetch = FetchArgs { name: name.clone(), attachment_count, count };
        let FetchRes::BlobOk(got) = rpc.fetch(&fetch).await.unwrap() else { panic!("FETCH failed") };
        assert_eq!(got.stat, stat);
        assert!(got.attachment == attachment[..attachment.len().min(attachment_count as usize)]);
        assert!(got.data == data[..data.len().min(count as usize)]);
    }
    let after = rpc.channel().counters();
    assert!(
        after.written_by_peer_bytes - before.written_by_peer_bytes >= 80_000 + 70_000,
        "both eligible results use RDMA Write: {after:?}"
    );
    assert_eq!(after.exposed_regions, 0);
}

#[tokio::test]
async fn invalid_names_are_refused_by_every_procedure() {
    let fixture = Fixture::start().await;
    let rpc = fixture.rpc().await;
    let bad = BlobStatus::BlobBadName;
    for bytes in [&b""[..], b"..", b"../x", b"a/../../x", b"/etc/passwd", b"a//b", b"a/", b"a\0b", b"\x1b[2J", b"\xff"]
    {
        let name = wire_name(bytes);
        let (digest, none) = (digest(b""), Bytes::new());
        let put = PutArgs { name: name.clone(), digest, attachment: none.clone(), data: none.clone() };
        assert_eq!(rpc.put(&put).await.unwrap(), StatRes::Default(bad), "{bytes:?}");
        let begin = BeginArgs { name: name.clone(), size: 1, attachment: none };
        assert_eq!(rpc.begin(&begin).await.unwrap(), BeginRes::Default(bad));
        assert_eq!(rpc.stat(&name).await.unwrap(), StatRes::Default(bad));
        let get = GetArgs { name: name.clone(), offset: 0, count: 9, expect: 0 };
        assert_eq!(rpc.get(&get).await.unwrap(), GetRes::Default(bad));
        let fetch = FetchArgs { name: name.clone(), attachment_count: 9, count: 9 };
        assert_eq!(rpc.fetch(&fetch).await.unwrap(), FetchRes::Default(bad));
        assert_eq!(rpc.delete(&name).await.unwrap(), bad);
    }
    // The generated client rejects names that exceed the limit in the XDR.
    let error = chain(&rpc.stat(&wire_name(&[b'x'; 256])).await.unwrap_err());
    assert!(error.contains("STAT") && error.contains("blob_name"), "{error}");
    assert_eq!((fixture.files_in("blobs"), fixture.files_in("uploads")), (0, 0));
}

#[tokio::test]
async fn an_upload_must_be_complete_and_match_its_digest() {
    let fixture = Fixture::start().await;
    let rpc = fixture.rpc().await;
    let data = noise(100_000, 0);
    let begin = BeginArgs { name: wire_name(b"x"), size: 100_000, attachment: Bytes::new() };
    let begin = async || match rpc.begin(&begin).await.unwrap() {
        BeginRes::BlobOk(upload) => upload,
        BeginRes::Default(status) => panic!("BEGIN: {status:?}"),
    };
    let write = async |upload, range: std::ops::Range<usize>| {
        let data = Bytes::copy_from_slice(&data[range.clone()]);
        rpc.write(&WriteArgs { upload, offset: range.start as u64, data }).await.unwrap()
    };
    let commit = async |upload, data: &[u8]| rpc.commit(&CommitArgs { upload, digest: digest(data) }).await.unwrap();

    let missing_a_range = begin().await;
    assert_eq!(write(missing_a_range, 50_000..100_000).await, BlobStatus::BlobOk);
    assert_eq!(commit(missing_a_range, &data).await, StatRes::Default(BlobStatus::BlobBadDigest));
    assert_eq!(write(missing_a_range, 0..50_000).await, BlobStatus::BlobNoSuchUpload);

    let too_long = begin().await;
    let beyond = WriteArgs { upload: too_long, offset: 99_999, data: Bytes::from_static(b"ab") };
    assert_eq!(rpc.write(&beyond).await.unwrap(), BlobStatus::BlobBadRange);
    assert_eq!(rpc.abort(too_long).await.unwrap(), BlobStatus::BlobOk);
    assert_eq!(rpc.abort(too_long).await.unwrap(), BlobStatus::BlobNoSuchUpload);

    assert_eq!(rpc.stat(&wire_name(b"x")).await.unwrap(), StatRes::Default(BlobStatus::BlobNoSuchBlob));
    assert_eq!((fixture.files_in("blobs"), fixture.files_in("uploads")), (0, 0));

    let whole = begin().await;
    let (first, second) = tokio::join!(write(whole, 30_000..100_000), write(whole, 0..30_000));
    assert_eq!((first, second), (BlobStatus::BlobOk, BlobStatus::BlobOk));
    assert!(matches!(commit(whole, &data).await, StatRes::BlobOk(_)));
}

#[tokio::test]
async fn downloads_of_damaged_or_replaced_blobs_fail() {
    let fixture = Fixture::start().await;
    let client = fixture.client(TransferOptions::default().with_range(1000)).await;
    let upload = async |seed| {
        let data = noise(5000, seed);
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(&data).unwrap();
        std::io::Seek::rewind(&mut source).unwrap();
        client.upload(&name("x"), source, 5000, Bytes::new(), |_| {}).await.unwrap()
    };
    let old = upload(0).await;
    upload(1).await;
    let get = GetArgs { name: wire_name(b"x"), offset: 1000, count: 1000, expect: old.modified };
    assert_eq!(client.rpc().get(&get).await.unwrap(), GetRes::Default(BlobStatus::BlobChanged));

    // Flip a bit of the stored file.
    let blob = fs::read_dir(fixture.root.path().join("blobs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[4500] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let error = client.download(&name("x"), Vec::new(), |_, _| {}).await.unwrap_err();
    assert!(matches!(error, TransferError::BadDigest), "{error}");
    let error = client.download(&name("y"), Vec::new(), |_, _| {}).await.unwrap_err();
    assert!(matches!(error, TransferError::Refused(RefusedStatus(BlobStatus::BlobNoSuchBlob))), "{error}");
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_stored_is_noticed() {
    let fixture = Fixture::start().await;
    let client = fixture.client(TransferOptions::default().with_range(1000)).await;
    for (is, said) in [(4500, 5000), (500, 700)] {
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(&noise(is, 0)).unwrap();
        std::io::Seek::rewind(&mut source).unwrap();
        let error = client.upload(&name("x"), source, said, Bytes::new(), |_| {}).await.unwrap_err();
        assert!(matches!(error, TransferError::SourceChanged(len) if len == said), "{error}");
    }
    assert_eq!((fixture.files_in("blobs"), fixture.files_in("uploads")), (0, 0));
}

/// A writer that fails with a full disk after some bytes.
#[derive(Debug)]
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(buf.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_transfer_that_fails_half_way_leaves_the_connection_usable() {
    let fixture = Fixture::start().await;
    let client = fixture.client(TransferOptions::default().with_range(50_000).with_depth(8)).await;
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(&noise(3_000_000, 0)).unwrap();
    std::io::Seek::rewind(&mut source).unwrap();
    client.upload(&name("x"), source, 3_000_000, Bytes::new(), |_| {}).await.unwrap();
    for room in [0, 60_000, 1_000_000, 2_999_999] {
        let error = client.download(&name("x"), Full(room), |_, _| {}).await.unwrap_err();
        assert!(
            matches!(&error, TransferError::Local(error) if error.kind() == std::io::ErrorKind::StorageFull),
            "{error}"
        );
        client.rpc().null().await.unwrap();
    }
    client.download(&name("x"), Full(3_000_000), |_, _| {}).await.map(|_| ()).unwrap();
    assert_eq!(client.rpc().channel().counters().exposed_regions, 0);
}

#[tokio::test]
async fn a_full_list_uses_a_reply_chunk_and_pages_are_complete() {
    let fixture = Fixture::start().await;
    let rpc = fixture.rpc().await;
    let mut names: Vec<String> = (0..300).map(|n| format!("{n:03}-{}", "n".repeat(n % 200))).collect();
    for name in &names {
        let none = Bytes::new();
        let put =
            PutArgs { name: wire_name(name.as_bytes()), digest: digest(b""), attachment: none.clone(), data: none };
        assert!(matches!(rpc.put(&put).await.unwrap(), StatRes::BlobOk(_)));
    }
    names.sort();
    for (count, pages) in [(7, 43), (100, 3), (u32::MAX / 1000, 2)] {
        let (mut cookie, mut seen, mut asked) = (String::new(), Vec::new(), 0);
        loop {
            let args = ListArgs { cookie: cookie.as_str().into(), count };
            let ListRes::BlobOk(page) = rpc.list(&args).await.unwrap() else { panic!("LIST failed") };
            asked += 1;
            assert!(page.entries.len() <= (count.min(BLOB_LIST_MAX)) as usize);
            seen.extend(page.entries.iter().map(|entry| entry.name.0.to_string()));
            if page.end {
                break;
            }
            cookie = seen.last().unwrap().clone();
        }
        assert_eq!((&seen, asked), (&names, pages), "{count} at a time");
    }
    // No result of LIST is eligible. The bytes written are Reply chunks, as the pages exceed the inline threshold.
    let written = rpc.channel().counters().written_by_peer_bytes;
    assert!(written > 300 * 60 * 2, "{written}");
}

/// The part of the blobstore protocol that a server with malformed listings needs.
mod liar {
    rpcrdma::xdr! {
        struct stat { unsigned hyper size; unsigned int attachment_len; unsigned hyper modified; opaque digest[32]; };
        struct entry { string name<255>; stat about; };
        struct list { entry entries<9>; bool end; };
        union list_res switch (int status) { case 0: list page; default: void; };
        struct list_args { string cookie<>; unsigned int count; };
        program BLOBSTORE { version BLOBSTORE_V1 { list_res LIST(list_args) = 9; } = 1; } = 0x20100B10;
    }
}

struct Liar;

impl liar::blobstore_v1::BlobstoreV1 for Liar {
    /// Lists the letters of the cookie as names. A `.` becomes a name with an escape sequence. If the cookie ends with
    /// `!`, the page is not marked as the last one.
    async fn list(&self, _cx: &Context, args: liar::ListArgs) -> Result<liar::ListRes, HandlerError> {
        let (letters, end) = match args.cookie.strip_suffix(b"!") {
            Some(letters) => (letters, false),
            None => (args.cookie.as_ref(), true),
        };
        let name = |&letter: &u8| if letter == b'.' { "z\x1b[2J".into() } else { Bytes::from(vec![letter]).into() };
        let entry = |letter| liar::Entry { name: name(letter), about: liar::Stat::default() };
        Ok(liar::ListRes::Case0(liar::List { entries: letters.iter().map(entry).collect(), end }))
    }
}

#[tokio::test]
async fn malformed_listings_are_rejected() {
    let service = liar::blobstore_v1::BlobstoreV1Server::new(Liar);
    let server = Server::builder().service(service).listen("iwarp://127.0.0.1:0").bind().await.unwrap();
    let url = server.urls()[0].clone();
    tokio::spawn(server.serve());
    let client = common::client(&url, TransferOptions::default()).await;
    for (cookie, said) in
        [("Zba", "\"Z\" is listed after \"Zba\""), ("!", "is not the last"), (".", "control characters")]
    {
        let error = client.list(cookie).await.unwrap_err();
        assert!(matches!(&error, TransferError::Protocol(what) if what.contains(said)), "{cookie}: {error}");
    }
    assert_eq!(client.list("").await.unwrap(), (vec![], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_clients() {
    let fixture = Fixture::start().await;
    let work = (0..6).map(|number: u64| {
        let url = fixture.url.clone();
        tokio::spawn(async move {
            let client = common::client(&url, TransferOptions::default().with_range(10_000).with_depth(4)).await;
            for round in 0..4 {
                // One name per client, and one that all clients share.
                for blob in [format!("own/{number}"), "shared".to_owned()] {
                    let data = noise(25_000 + number as usize, number * 100 + round);
                    let mut source = tempfile::tempfile().unwrap();
                    source.write_all(&data).unwrap();
                    std::io::Seek::rewind(&mut source).unwrap();
                    let size = data.len() as u64;
                    client.upload(&name(&blob), source, size, Bytes::new(), |_| {}).await.unwrap();
                    match client.download(&name(&blob), Vec::new(), |_, _| {}).await {
                        Ok((fetched, stat, _)) => {
                            assert_eq!(digest(&fetched), stat.digest);
                            assert!(blob == "shared" || fetched == data);
                        }
                        // The blob was replaced between two ranges, which the client detects.
                        Err(TransferError::Refused(RefusedStatus(BlobStatus::BlobChanged))) if blob == "shared" => {}
                        Err(error) => panic!("{blob}: {error}"),
                    }
                }
            }
        })
    });
    for outcome in join_all(work).await {
        outcome.unwrap();
    }
    assert_eq!((fixture.files_in("blobs"), fixture.files_in("uploads")), (7, 0));
}

use std::thread;

use super::*;

fn open(root: &Path) -> Store {
    Store::open(root, StoreOptions::default()).unwrap()
}

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

fn begin(store: &Store, size: u64, attachment: &[u8]) -> UploadId {
    store.begin(PEER, name("x"), size, attachment).unwrap().id
}

fn name(text: &str) -> ValidName {
    text.parse().unwrap()
}

fn digest(data: &[u8]) -> Digest {
    *blake3::hash(data).as_bytes()
}

fn content(store: &Store, blob: &str) -> (Vec<u8>, Vec<u8>) {
    let blob = store.get(&name(blob)).unwrap();
    let (mut data, mut attachment) = (vec![0; 10_000], vec![0; 10_000]);
    let (d, a) = (blob.read_at(&mut data, 0).unwrap(), blob.read_attachment(&mut attachment).unwrap());
    data.truncate(d);
    attachment.truncate(a);
    (data, attachment)
}

fn files_in(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn put_get_replace_and_remove_across_restarts() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let first = store.put(name("a/b"), b"hello", b"note", &digest(b"hello")).unwrap();
    let old = store.get(&name("a/b")).unwrap();
    let second = store.put(name("a/b"), b"other", b"", &digest(b"other")).unwrap();
    assert!(second.modified > first.modified);
    drop(store);

    let store = open(root.path());
    assert_eq!(store.stat(&name("a/b")).unwrap(), second);
    assert_eq!(content(&store, "a/b"), (b"other".to_vec(), vec![]));
    let mut buf = [0; 9];
    assert_eq!(old.read_at(&mut buf, 1).unwrap(), 4, "an open blob keeps its old content");
    assert_eq!(&buf[..4], b"ello");
    assert_eq!(
        old.read_at(&mut buf, u64::MAX).unwrap(),
        0,
        "a read beyond the end returns nothing, not even the attachment"
    );
    store.remove(&name("a/b")).unwrap();
    assert!(matches!(store.get(&name("a/b")), Err(StoreError::NoSuchBlob)));
    assert!(matches!(store.remove(&name("a/b")), Err(StoreError::NoSuchBlob)));
    drop(store);
    assert!(open(root.path()).list("", 10).entries.is_empty());
}

#[test]
fn an_upload_is_seen_only_when_committed() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let id = begin(&store, 6, b"att");
    store.write(id, 3, b"def").unwrap();
    assert!(matches!(store.stat(&name("x")), Err(StoreError::NoSuchBlob)));
    store.write(id, 0, b"abc").unwrap();
    assert!(matches!(store.write(id, 4, b"xyz"), Err(StoreError::BadRange { offset: 4, len: 3, size: 6 })));
    assert!(matches!(store.write(id, u64::MAX, b"xyz"), Err(StoreError::BadRange { .. })));
    store.commit(id, &digest(b"abcdef"), || true).unwrap();
    assert_eq!(content(&store, "x"), (b"abcdef".to_vec(), b"att".to_vec()));
    assert!(matches!(store.write(id, 0, b"q"), Err(StoreError::NoSuchUpload)));
    assert!(matches!(store.commit(id, &digest(b"abcdef"), || true), Err(StoreError::NoSuchUpload)));
    assert_eq!(files_in(&root.path().join("uploads")), 0);
}

#[test]
fn a_missing_range_or_a_wrong_digest_stores_nothing() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.put(name("x"), b"old", b"", &digest(b"old")).unwrap();
    let id = begin(&store, 6, b"");
    store.write(id, 3, b"def").unwrap();
    assert!(matches!(store.commit(id, &digest(b"abcdef"), || true), Err(StoreError::BadDigest)));
    assert!(matches!(store.put(name("x"), b"abc", b"", &digest(b"abd")), Err(StoreError::BadDigest)));
    assert_eq!(content(&store, "x").0, b"old");
    assert_eq!(files_in(&root.path().join("uploads")), 0);
    assert_eq!(files_in(&root.path().join("blobs")), 1);
}

#[test]
fn unfinished_uploads_are_removed_and_foreign_files_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.put(name("kept"), b"abc", b"", &digest(b"abc")).unwrap();
    let id = begin(&store, 3, b"");
    store.write(id, 0, b"ab").unwrap();
    // Simulates kill -9: the lock is released, but the uploads' destructors do not run.
    std::mem::forget(std::mem::take(&mut *lock(&store.uploads_in_progress)));
    drop(store);
    assert_eq!(files_in(&root.path().join("uploads")), 1);
    let blobs = root.path().join("blobs");
    fs::write(blobs.join("README"), b"not a blob").unwrap();
    let whole = fs::read(blobs.join(file_name(&name("kept")))).unwrap();
    fs::write(blobs.join(file_name(&name("cut"))), &whole[..whole.len() - 1]).unwrap();
    fs::write(blobs.join(file_name(&name("alias"))), &whole).unwrap();

    let store = open(root.path());
    assert_eq!(files_in(&root.path().join("uploads")), 0);
    let names: Vec<_> = store.list("", 10).entries.into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!(files_in(&blobs), 4);
}

#[test]
fn two_stores_do_not_share_a_directory() {
    let root = tempfile::tempdir().unwrap();
    let _store = open(root.path());
    assert!(matches!(Store::open(root.path(), StoreOptions::default()), Err(StoreError::InUse(_))));
}

#[test]
fn limits() {
    let root = tempfile::tempdir().unwrap();
    let mut options = StoreOptions {
        max_blob: 4,
        max_attachment: 2,
        // One connection may take two of them.
        max_uploads: 6,
        upload_idle: Duration::MAX,
        ..Default::default()
    };
    let store = Store::open(root.path(), options.clone()).unwrap();
    assert!(matches!(store.begin(PEER, name("x"), 5, b""), Err(StoreError::TooLarge { limit: 4 })));
    assert!(matches!(store.put(name("x"), b"12345", b"", &[0; 32]), Err(StoreError::TooLarge { limit: 4 })));
    assert!(matches!(store.begin(PEER, name("x"), 4, b"123"), Err(StoreError::TooLarge { limit: 2 })));
    let first = begin(&store, 4, b"");
    let second = begin(&store, 4, b"");
    assert!(matches!(store.begin(PEER, name("x"), 4, b""), Err(StoreError::Busy)));
    let other = SocketAddr::new([10, 0, 0, 1].into(), 1);
    drop(store.begin(other, name("x"), 4, b"").unwrap());
    store.abort(first).unwrap();
    assert!(matches!(store.abort(first), Err(StoreError::NoSuchUpload)));
    begin(&store, 4, b"");
    assert_eq!(files_in(&root.path().join("uploads")), 3);
    assert!(store.end_if_idle(second, Duration::from_secs(3600)));
    assert!(!store.end_if_idle(second, Duration::ZERO));
    assert!(matches!(store.abort(second), Err(StoreError::NoSuchUpload)));
    drop(store);

    options.upload_idle = Duration::ZERO;
    let store = Store::open(root.path(), options).unwrap();
    let ids: Vec<_> = (0..5).map(|_| begin(&store, 4, b"")).collect();
    assert!(
        matches!(store.write(ids[0], 0, b"a"), Err(StoreError::NoSuchUpload)),
        "idle uploads are dropped for new ones"
    );
    assert!(files_in(&root.path().join("uploads")) <= 2);
}

/// A commit hashes no more data than the client has sent, and ends when the client leaves.
#[test]
fn commits_are_bounded() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let begun = store.begin(PEER, name("x"), 1 << 40, b"").unwrap();
    let (id, mut ended) = (begun.id, begun.ended);
    store.write(id, 0, b"a").unwrap();
    assert!(ended.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
    let is_wanted = || panic!("a sparse upload is not hashed");
    assert!(matches!(store.commit(id, &digest(b"a"), is_wanted), Err(StoreError::BadDigest)));
    assert!(ended.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));

    let data = vec![7; 3 * HASH_STEP];
    let id = begin(&store, data.len() as u64, b"");
    store.write(id, 0, &data).unwrap();
    let steps = std::cell::Cell::new(0);
    let is_wanted = || {
        // The upload still has its place.
        assert_eq!(store.upload_slots.count(), 1);
        steps.set(steps.get() + 1);
        steps.get() < 2
    };
    assert!(matches!(store.commit(id, &digest(&data), is_wanted), Err(StoreError::Abandoned)));
    assert_eq!((steps.get(), store.upload_slots.count()), (2, 0));
    assert_eq!(files_in(&root.path().join("uploads")), 0);
}

#[test]
fn pages_stay_consistent_while_blobs_change() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for blob in ["b", "d", "a", "c/1", "c"] {
        store.put(name(blob), b"", b"", &digest(b"")).unwrap();
    }
    let names = |page: &Page| page.entries.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    let first = store.list("", 2);
    assert_eq!((names(&first), first.end), (vec!["a".into(), "b".into()], false));
    store.remove(&name("b")).unwrap();
    store.put(name("aa"), b"", b"", &digest(b"")).unwrap();
    let second = store.list("b", 3);
    assert_eq!((names(&second), second.end), (vec!["c".into(), "c/1".into(), "d".into()], true));
    assert_eq!(names(&store.list("d", 3)), Vec::<String>::new());
    assert_eq!((names(&store.list("", 0)), store.list("", 0).end), (vec![], false));
}

#[test]
fn concurrent_uploads_to_one_name_do_not_mix() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    thread::scope(|scope| {
        for letter in b'a'..b'g' {
            let store = &store;
            scope.spawn(move || {
                let data = [letter; 4096];
                let id = begin(store, 4096, &[letter]);
                for at in (0..4096).step_by(512) {
                    store.write(id, at as u64, &data[at..at + 512]).unwrap();
                }
                store.commit(id, &digest(&data), || true).unwrap();
                let (data, attachment) = content(store, "x");
                assert_eq!(data.len(), 4096);
                assert!(data.iter().all(|&byte| byte == attachment[0]));
            });
        }
    });
    assert_eq!(files_in(&root.path().join("blobs")), 1);
    assert_eq!(files_in(&root.path().join("uploads")), 0);
}

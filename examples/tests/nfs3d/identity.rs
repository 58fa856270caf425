//! Tests of the user that performs a call: the caller if the server may act as other users, otherwise the server's own
//! user.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    sync::Arc,
};

use rpcrdma::rpc::Credential;
use rpcrdma_examples::nfs3d::identity::{Identities, NOBODY, Squash};
use rpcrdma_specs::nfs3::*;

use crate::support::{Nfs, Served, at, mode, nothing, own_uid, prepared};

/// Returns `true` if the tests have the privilege to act as other users.
fn enforced() -> bool {
    Identities::new(Squash::None, None, None).enforced()
}

async fn user(served: &Served, uid: u32, gid: u32, gids: &[u32]) -> Nfs {
    served.client_as(Credential::sys("test", uid, gid, gids.iter().copied()), &served.iwarp).await
}

#[tokio::test]
async fn files_are_created_and_opened_as_the_caller() {
    created_and_opened_as_the_caller(Served::new().await).await;
}

/// Runs the checks on a file system in memory, where most of the calls need no blocking thread.
#[tokio::test]
async fn files_in_memory_are_created_and_opened_as_the_caller() {
    created_and_opened_as_the_caller(Served::in_memory().await).await;
}

/// Runs the checks with a policy that permits only blocking threads to act as the caller.
#[tokio::test]
async fn files_are_created_and_opened_by_blocking_threads() {
    let folder = prepared(tempfile::TempDir::new().unwrap());
    let identities = Identities::new(Squash::None, None, None);
    created_and_opened_as_the_caller(Served::acting(Arc::new(folder), identities).await).await;
}

async fn created_and_opened_as_the_caller(served: Served) {
    fs::set_permissions(&served.root, fs::Permissions::from_mode(0o777)).unwrap();
    let uid = own_uid() + 1000;
    let caller = user(&served, uid, 1001, &[1002]).await;
    if !enforced() {
        let refused = caller.create(&caller.root, "a", Createhow3::Guarded(mode(0o600))).await;
        assert_eq!(refused.err(), Some(Nfsstat3::Acces));
        assert_eq!(caller.access(&caller.root, ACCESS3_READ).await, Ok(0));
        assert_eq!(caller.getattr(&caller.root).await.unwrap().mode, 0o777);
        return;
    }
    let (a, attributes) = caller.create(&caller.root, "a", Createhow3::Guarded(mode(0o600))).await.unwrap();
    assert_eq!((attributes.uid, attributes.gid, attributes.mode), (uid, 1001, 0o600));
    caller.write(&a, 0, b"mine", StableHow::Unstable).await.unwrap();

    let other = user(&served, uid + 1, 1003, &[]).await;
    let denied = Nfsstat3::Acces;
    assert_eq!(other.read(&a, 0, 10).await, Err(denied));
    assert_eq!(other.write(&a, 0, b"x", StableHow::Unstable).await.err(), Some(denied));
    assert_eq!(other.access(&a, ACCESS3_READ | ACCESS3_MODIFY).await, Ok(0));
    let not_owner = Some(Nfsstat3::Perm);
    assert_eq!(other.setattr(&a, mode(0o777), Sattrguard3::False).await.err(), not_owner);
    let size = Sattr3 { size: SetSize3::True(0), ..nothing() };
    assert_eq!(other.setattr(&a, size, Sattrguard3::False).await.err(), Some(denied));
    let give_away = Sattr3 { uid: SetUid3::True(uid + 1), ..nothing() };
    assert_eq!(caller.setattr(&a, give_away, Sattrguard3::False).await.err(), not_owner, "chown_restricted");
    let to_own_group = Sattr3 { gid: SetGid3::True(1002), ..mode(0o640) };
    caller.setattr(&a, to_own_group, Sattrguard3::False).await.unwrap();

    // Access through a supplementary group.
    let member = user(&served, uid + 2, 1004, &[7, 1002]).await;
    assert_eq!(member.read(&a, 0, 10).await.unwrap().0, "mine");
    assert_eq!(member.write(&a, 0, b"x", StableHow::Unstable).await.err(), Some(denied));
    assert_eq!(other.read(&a, 0, 10).await, Err(denied));
    // Execute permission implies read permission (RFC 1813 §4.4).
    caller.setattr(&a, mode(0o611), Sattrguard3::False).await.unwrap();
    assert_eq!(other.read(&a, 0, 10).await.unwrap().0, "mine");

    // Directories: search permission, changes, and the sticky bit.
    let d = caller.mkdir(&caller.root, "d", mode(0o700)).await.unwrap().0;
    caller.file(&d, "b").await;
    // Each name takes the permission to search, those of the directory itself and of its parent as well.
    for name in ["b", ".", "..", "missing"] {
        assert_eq!(other.lookup(&d, name).await, Err(denied), "{name}");
    }
    assert_eq!(other.readdir(&d, 0, Cookieverf3([0; 8]), 4096).await.err(), Some(denied));
    caller.setattr(&d, mode(0o744), Sattrguard3::False).await.unwrap();
    let page = other.readdirplus(&d, 0, Cookieverf3([0; 8]), (4096, 4096)).await.unwrap();
    let b = page.reply.entries.iter().find(|entry| entry.name.as_bytes() == b"b").unwrap();
    assert_eq!(
        (&b.name_attributes, &b.name_handle),
        (&PostOpAttr::False, &PostOpFh3::False),
        "the caller has no search permission"
    );
    assert_eq!(other.lookup(&d, "..").await, Err(denied), "a directory that may be read, but not searched");
    caller.setattr(&d, mode(0o1777), Sattrguard3::False).await.unwrap();
    assert_eq!((other.lookup(&d, "..").await, other.lookup(&d, ".").await), (Ok(caller.root.clone()), Ok(d.clone())));
    other.file(&d, "c").await;
    assert_eq!(other.remove(&d, "b").await.err(), not_owner);
    assert_eq!(other.rename(at(&d, "b"), at(&d, "e")).await.err(), not_owner);
    other.remove(&d, "c").await.unwrap();
    let device = Devicedata3 { dev_attributes: mode(0o666), spec: Specdata3 { specdata1: 1, specdata2: 3 } };
    assert_eq!(caller.mknod(&d, "null", Mknoddata3::Chr(device)).await.err(), not_owner);
}

/// A change by another user clears the set-user-ID and set-group-ID bits, as for local users.
#[tokio::test]
async fn changes_by_others_clear_set_user_id() {
    if !enforced() {
        return;
    }
    let served = Served::new().await;
    fs::set_permissions(&served.root, fs::Permissions::from_mode(0o777)).unwrap();
    let owner = user(&served, 2000, 3000, &[3001]).await;
    let other = user(&served, 2001, 3002, &[]).await;
    let new = Sattr3 { size: SetSize3::True(0), gid: SetGid3::True(3001), ..mode(0o6777) };
    let (a, made) = owner.create(&owner.root, "a", Createhow3::Guarded(new)).await.unwrap();
    assert_eq!((made.mode, made.gid), (0o6777, 3001), "all attributes of a new file are set");
    let now = || fs::metadata(served.root.join("a")).unwrap().mode() & 0o7777;
    other.write(&a, 0, b"other", StableHow::Unstable).await.unwrap();
    assert_eq!(now(), 0o777, "WRITE");
    owner.setattr(&a, mode(0o6777), Sattrguard3::False).await.unwrap();
    let size = Sattr3 { size: SetSize3::True(1), ..nothing() };
    other.setattr(&a, size.clone(), Sattrguard3::False).await.unwrap();
    assert_eq!(now(), 0o777, "SETATTR");
    owner.setattr(&a, mode(0o6777), Sattrguard3::False).await.unwrap();
    other.create(&other.root, "a", Createhow3::Unchecked(Sattr3 { size: SetSize3::True(0), ..size })).await.unwrap();
    assert_eq!(now(), 0o777, "CREATE");
}

#[tokio::test]
async fn root_is_squashed_by_default() {
    if !enforced() {
        return squashed_to_the_servers_own_user().await;
    }
    let served = Served::with(Squash::Root).await;
    let root = user(&served, 0, 0, &[0]).await;
    let denied = Some(Nfsstat3::Acces);
    assert_eq!(root.create(&root.root, "a", Createhow3::Guarded(mode(0o644))).await.err(), denied);
    fs::set_permissions(&served.root, fs::Permissions::from_mode(0o1777)).unwrap();
    let (_, attributes) = root.create(&root.root, "a", Createhow3::Guarded(mode(0o644))).await.unwrap();
    assert_eq!((attributes.uid, attributes.gid), (NOBODY, NOBODY));
    let none = served.client_as(Credential::None, &served.tcp).await;
    let (_, attributes) = none.create(&none.root, "b", Createhow3::Guarded(mode(0o644))).await.unwrap();
    assert_eq!((attributes.uid, attributes.gid), (NOBODY, NOBODY));
    // For the system, an ID of -1 means unchanged.
    let minus_one = user(&served, u32::MAX, u32::MAX, &[u32::MAX]).await;
    let (_, attributes) = minus_one.create(&minus_one.root, "c", Createhow3::Guarded(mode(0o644))).await.unwrap();
    assert_eq!((attributes.uid, attributes.gid), (NOBODY, NOBODY));

    let served = Served::with(Squash::None).await;
    let root = user(&served, 0, 0, &[]).await;
    let (_, attributes) = root.create(&root.root, "a", Createhow3::Guarded(mode(0o600))).await.unwrap();
    assert_eq!((attributes.uid, attributes.gid), (0, 0));
}

async fn squashed_to_the_servers_own_user() {
    let served = Served::with(Squash::All).await;
    let root = user(&served, 0, 0, &[]).await;
    root.file(&root.root, "a").await;
    assert_eq!(fs::metadata(served.root.join("a")).unwrap().uid(), own_uid());
}

/// Each call is performed with the identity of its caller, even if calls of several users run concurrently on the same
/// threads.
#[tokio::test]
async fn identities_do_not_mix() {
    if !enforced() {
        return;
    }
    for served in [Served::new().await, Served::in_memory().await] {
        do_not_mix(&served).await;
    }
}

async fn do_not_mix(served: &Served) {
    fs::set_permissions(&served.root, fs::Permissions::from_mode(0o777)).unwrap();
    let users = (1..9).map(|nth| async move {
        let caller = user(served, 2000 + nth, 3000 + nth, &[]).await;
        for file in 0..40 {
            let how = Createhow3::Guarded(mode(0o600));
            let (handle, made) = caller.create(&caller.root, format!("{nth}-{file}"), how).await.unwrap();
            assert_eq!((made.uid, made.gid), (2000 + nth, 3000 + nth));
            caller.write(&handle, 0, b"x", StableHow::Unstable).await.unwrap();
        }
    });
    futures_util::future::join_all(users).await;
}

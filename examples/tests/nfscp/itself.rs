//! Tests that no file is copied onto itself or onto another source's copy, and no directory into itself without end.

use std::fs;

use tempfile::TempDir;
use tokio::process::Command;

use super::{complaint, nfs_server::FakeServer, nfs3d, noise, output, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_not_copied_over_itself() {
    let here = TempDir::new().unwrap();
    let export = here.path().join("export");
    fs::create_dir(&export).unwrap();
    fs::write(export.join("file"), noise(200_000, 9)).unwrap();
    fs::hard_link(export.join("file"), export.join("link")).unwrap();
    let (_server, urls, mount_port) = nfs3d(&export, &here.path().join("state"), &["--no-root-squash"]).await;
    for target in ["", "/file", "/link"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
        let source = export.join("file");
        let args = ["--verify", "--mount-port", &mount_port, text(&source), &format!("{}{target}", urls[1])];
        let output = output(command.args(args)).await;
        assert_eq!(output.status.code(), Some(1), "{target}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("are the same file"), "{output:?}");
        assert!(fs::read(&source).unwrap() == noise(200_000, 9), "{target}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_is_not_copied_into_itself_without_end() {
    let here = TempDir::new().unwrap();
    let export = here.path().join("export");
    for (source, up) in [("up", true), ("down", false)] {
        fs::create_dir_all(export.join(source).join("sub")).unwrap();
        fs::write(export.join(source).join("file"), "data").unwrap();
        let (_server, urls, mount_port) = nfs3d(&export, &here.path().join("state"), &["--no-root-squash"]).await;
        let (local, remote) = (export.join(source), format!("{}/{source}", urls[1]));
        let (from, to) = match up {
            true => (text(&local).to_owned(), format!("{remote}/sub")),
            false => (remote.clone(), text(&local.join("sub")).to_owned()),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
        let output = output(command.args(["-r", "--mount-port", &mount_port, &from, &to])).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("into itself"), "{output:?}");
        let copy = export.join(source).join("sub").join(source);
        assert_eq!(fs::read(copy.join("file")).unwrap(), b"data");
        assert!(!copy.join("sub").join(source).join("sub").exists());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sources_do_not_become_one_file() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    for (dir, seed) in [("a", 1), ("b", 2)] {
        fs::create_dir_all(here.path().join(dir).join("t")).unwrap();
        fs::write(here.path().join(dir).join("t/x"), noise(3 << 20, seed)).unwrap();
    }
    let (a, b) = (here.path().join("a/t"), here.path().join("b/t"));
    let error = complaint(&server, &["-r", text(&a), text(&b), &server.url("tcp", "/")]).await;
    assert!(error.contains("another source"), "{error}");
    let copy = server.fake.data("t/x");
    assert!(copy == noise(3 << 20, 1) || copy == noise(3 << 20, 2), "a mixture");
    let back = here.path().join("back");
    fs::create_dir(&back).unwrap();
    let there = server.url("tcp", "/t/x");
    let error = complaint(&server, &[&there, &there, text(&back)]).await;
    assert!(error.contains("another source"), "{error}");
}

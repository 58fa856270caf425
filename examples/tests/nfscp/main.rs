//! Tests of the `nfscp` command with an in-memory NFS version 3 server and with `nfs3d`: processes, files, exit codes
//! and messages.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod itself;
mod mount;
#[path = "../nfs_server/mod.rs"]
mod nfs_server;
mod sizes;

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::{Output, Stdio},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, SystemTime},
};

use nfs_server::{EXPORT, FakeServer, Kind};
use rpcrdma::server::{Context, HandlerError, Server};
use rpcrdma_specs::rpcbind::{
    CallArgs, CallResult, Mapping, Pmaplist,
    pmap_vers::{PmapVers, PmapVersServer},
};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Returns pseudo-random bytes that depend on the seed.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; len];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut noise);
    noise
}

/// Time limit of a run of `nfscp`.
const PATIENCE: Duration = Duration::from_secs(300);

fn nfscp(server: &FakeServer) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
    command.env_remove("RUST_LOG").stdin(Stdio::null()).kill_on_drop(true);
    command.args(["--mount-port", &server.mount_port.to_string(), "--retry", "20"]);
    command
}

async fn output(command: &mut Command) -> Output {
    tokio::time::timeout(PATIENCE, command.output()).await.expect("nfscp did not exit in time").unwrap()
}

/// Runs `nfscp`, which must succeed, and returns its standard output.
async fn printed(server: &FakeServer, args: &[&str]) -> String {
    let output = output(nfscp(server).args(args)).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `nfscp`, which must fail with exit code 1, and returns its standard error.
async fn complaint(server: &FakeServer, args: &[&str]) -> String {
    let output = output(nfscp(server).args(args)).await;
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

async fn report(server: &FakeServer, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&printed(server, &[&["--json"], args].concat()).await).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// File sizes in bytes: near multiples of four (XDR padding), the inline threshold, the page size, and the data of one
/// call and of several calls of 64 KiB.
const SIZES: [usize; 12] = [0, 1, 3, 1023, 1025, 4095, 4096, 65_535, 65_536, 65_537, 200_001, 3 << 20];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_all_sizes_round_trip() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let file = |size: usize| here.path().join(size.to_string());
    for size in SIZES {
        fs::write(file(size), noise(size, 1)).unwrap();
    }
    let sources: Vec<_> = SIZES.iter().map(|size| text(&file(*size)).to_owned()).collect();
    for transport in ["iwarp", "tcp"] {
        server.fake.put(transport, Kind::Dir(Default::default()));
        let there = server.url(transport, &format!("/{transport}/"));
        let args: Vec<_> = sources.iter().map(String::as_str).chain([there.as_str()]).collect();
        let put = report(&server, &args).await;
        assert_eq!(put["copied"]["files"], SIZES.len());
        assert_eq!(put["copied"]["bytes"], SIZES.iter().sum::<usize>());
        assert_eq!(put["connection"]["exposed"], 0);
        for size in SIZES {
            assert!(server.fake.data(&format!("{transport}/{size}")) == noise(size, 1), "{size} by {transport}");
        }
        let back = TempDir::new().unwrap();
        let urls: Vec<_> = SIZES.iter().map(|size| server.url(transport, &format!("/{transport}/{size}"))).collect();
        let args: Vec<_> = urls.iter().map(String::as_str).chain([text(back.path())]).collect();
        let got = report(&server, &args).await;
        for size in SIZES {
            assert!(fs::read(back.path().join(size.to_string())).unwrap() == noise(size, 1), "{size} by {transport}");
        }
        assert_eq!(got["connection"]["exposed"], 0);
        if transport == "iwarp" {
            // Except for small files, data moves by RDMA Read and RDMA Write, without copies.
            assert!(put["connection"]["read_by_peer_bytes"].as_u64().unwrap() > 3_500_000, "{put}");
            assert!(put["connection"]["copied_eligible_bytes"].as_u64().unwrap() < 4096, "{put}");
            assert!(got["connection"]["written_by_peer_bytes"].as_u64().unwrap() > 3_500_000, "{got}");
            assert!(got["most_in_flight"].as_u64().unwrap() > 1, "{got}");
        }
    }
    // A file that fits into one call is written FILE_SYNC. Others are written UNSTABLE, with one COMMIT each.
    assert_eq!(server.fake.commits.load(SeqCst), 2 * 3);
    assert!(server.fake.unstable.load(SeqCst) >= 2 * (48 + 4 + 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_gets_the_name_it_is_given() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let (source, copy) = (here.path().join("source"), here.path().join("copy"));
    fs::write(&source, "one").unwrap();
    printed(&server, &[text(&source), &server.url("tcp", "/name%20with%25")]).await;
    assert_eq!(server.fake.data("name with%"), b"one");
    // An existing file is overwritten and truncated.
    fs::write(&source, "1").unwrap();
    printed(&server, &[text(&source), &server.url("tcp", "/name%20with%25")]).await;
    assert_eq!(server.fake.data("name with%"), b"1");
    fs::write(&copy, "something longer").unwrap();
    printed(&server, &[&server.url("tcp", "/name%20with%25"), text(&copy)]).await;
    assert_eq!(fs::read(&copy).unwrap(), b"1");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 2, "no temporary file remains");
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    fs::create_dir_all(root.join("many")).unwrap();
    for number in 0..700 {
        fs::write(root.join(format!("many/entry-{number:04}-{}", "x".repeat(number % 90))), number.to_string())
            .unwrap();
    }
    fs::write(root.join("sub/näme 'quoted'"), noise(70_000, 2)).unwrap();
    fs::write(root.join("script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("script"), fs::Permissions::from_mode(0o751)).unwrap();
    symlink("sub/nothing there", root.join("link")).unwrap();
    symlink("..", root.join("sub/up")).unwrap();
    // This directory is read-only, so its contents must be copied before its mode is set.
    fs::create_dir(root.join("closed")).unwrap();
    fs::write(root.join("closed/file"), "inside").unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 5000);
    let script = fs::File::options().write(true).open(root.join("script")).unwrap();
    script.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
}

/// Returns the names, modes, types and contents of everything below a directory. If `times` is `true`, also returns the
/// modification times of files and links.
fn listing(root: &Path, times: bool) -> Vec<String> {
    let mut todo = vec![root.to_owned()];
    let mut lines = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_dir() {
                todo.push(path.clone());
                "directory".to_owned()
            } else if meta.is_symlink() {
                format!("to {}", fs::read_link(&path).unwrap().display())
            } else {
                blake3::hash(&fs::read(&path).unwrap()).to_string()
            };
            let time = if times && !meta.is_dir() { meta.mtime_nsec() + meta.mtime() } else { 0 };
            let name = path.strip_prefix(root).unwrap().display().to_string();
            lines.push(format!("{name} {:o} {what} {time}", meta.mode()));
        }
    }
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_round_trip() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let tree = here.path().join("tree");
    make_tree(&tree);
    assert!(std::process::Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap().success());
    let url = server.url("iwarp", "");
    for way in ["plain", "no READDIRPLUS", "again"] {
        server.fake.no_readdirplus.store(way == "no READDIRPLUS", SeqCst);
        server.fake.taciturn.store(way == "no READDIRPLUS", SeqCst);
        let put = report(&server, &["-rp", text(&tree), &url]).await;
        assert_eq!(
            (&put["copied"]["files"], &put["copied"]["directories"], &put["copied"]["symlinks"]),
            (&703.into(), &5.into(), &2.into()),
            "{way}"
        );
        assert_eq!((&put["copied"]["skipped"], &put["copied"]["failed"]), (&1.into(), &0.into()));
        // Pipes are skipped in both directions.
        server.fake.put("tree/pipe", Kind::Pipe);
        let back = here.path().join(way);
        printed(&server, &["-rp", &server.url("iwarp", "/tree"), text(&back)]).await;
        fs::rename(tree.join("pipe"), here.path().join("pipe")).unwrap();
        assert_eq!(listing(&back, true), listing(&tree, true), "{way}");
        // Copy over the existing tree.
        printed(&server, &["-rp", &server.url("iwarp", "/tree/."), text(&back)]).await;
        fs::rename(here.path().join("pipe"), tree.join("pipe")).unwrap();
    }
    assert!(server.fake.lists_read.load(SeqCst) > 60, "long listings are read in pages");
    let script = server.fake.at("tree/script").unwrap();
    assert_eq!((script.mode, script.mtime.seconds, script.mtime.nseconds), (0o751, 1_234_567_890, 5000));
    assert_eq!(server.fake.at("tree/closed").unwrap().mode, 0o555);
    // Make the read-only directories writable, so that their contents can be removed.
    for closed in ["tree", "plain", "no READDIRPLUS", "again"] {
        fs::set_permissions(here.path().join(closed).join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Starts `nfs3d`, and returns it with the URLs of its export and the port of MOUNT.
async fn nfs3d(export: &Path, state: &Path, options: &[&str]) -> (Child, Vec<String>, String) {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let mut server = Command::new(env!("CARGO_BIN_EXE_nfs3d"))
        .args(["--root", text(export), "--state", text(state), "--export", "/e"])
        .args(["--listen", "iwarp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0"])
        .args(options)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut urls = Vec::new();
    let mount_port = loop {
        let line = lines.next_line().await.unwrap().expect("nfs3d exited before printing its URLs");
        if let Some(url) = line.strip_prefix("NFS on ") {
            urls.push(format!("nfs3+{}/e", url.trim_end_matches('/')));
        } else if let Some(port) = line.strip_prefix("MOUNT on ").and_then(|url| url.rsplit(':').next()) {
            break port.trim_end_matches('/').to_owned();
        }
    };
    assert_eq!(urls.len(), 2);
    (server, urls, mount_port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_round_trip_through_nfs3d() {
    let here = TempDir::new().unwrap();
    let (tree, export) = (here.path().join("tree"), here.path().join("export"));
    make_tree(&tree);
    fs::create_dir(&export).unwrap();
    let (_server, urls, mount_port) = nfs3d(&export, &here.path().join("state"), &["--no-root-squash"]).await;
    for (number, url) in urls.iter().enumerate() {
        let (there, back) = (format!("{url}/{number}"), here.path().join(number.to_string()));
        for args in [["-rp", text(&tree), &there], ["-rp", &there, text(&back)]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
            let output = output(command.args(["--verify", "--mount-port", &mount_port]).args(args)).await;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        assert_eq!(listing(&export.join(number.to_string()), true), listing(&tree, true));
        assert_eq!(listing(&back, true), listing(&tree, true));
    }
    for closed in ["tree", "export/0", "export/1", "0", "1"] {
        fs::set_permissions(here.path().join(closed).join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_data_is_sent_again() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let source = here.path().join("source");
    fs::write(&source, noise(2_000_000, 3)).unwrap();
    // The server restarts after 20 of 31 WRITEs and loses them.
    server.fake.restart_after.store(20, SeqCst);
    let put = report(&server, &["--verify", text(&source), &server.url("iwarp", "/lost")]).await;
    assert!(put["copied"]["sent_again"].as_u64().unwrap() >= 19 * (64 << 10), "{put}");
    assert_eq!(put["copied"]["bytes"], 2_000_000);
    assert!(server.fake.data("lost") == noise(2_000_000, 3));
    assert_eq!(server.fake.commits.load(SeqCst), 2);

    server.fake.always_loses.store(true, SeqCst);
    let error = complaint(&server, &[text(&source), &server.url("iwarp", "/never")]).await;
    assert!(error.contains("lost uncommitted data in each of"), "{error}");
}

/// Several connections share the calls. The counters in the report are sums over all connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_share_the_calls() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let source = here.path().join("source");
    fs::write(&source, noise(2_000_000, 6)).unwrap();
    let url = server.url("iwarp", "/many");
    let one = report(&server, &[text(&source), &url]).await;
    let four = report(&server, &["--connections", "4", text(&source), &url]).await;
    assert!(server.fake.data("many") == noise(2_000_000, 6));
    let counters = |report: &serde_json::Value, name| report["connection"][name].as_u64().unwrap();
    assert_eq!(counters(&four, "read_by_peer_bytes"), 2_000_000);
    assert!(counters(&four, "credits") > counters(&one, "credits"), "{one} {four}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_may_be_short_and_the_server_busy() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let source = here.path().join("source");
    fs::write(&source, noise(300_000, 4)).unwrap();
    server.fake.short.store(10_001, SeqCst);
    server.fake.jukebox.store(3, SeqCst);
    let put = report(&server, &[text(&source), &server.url("iwarp", "/short")]).await;
    assert_eq!(put["copied"]["bytes"], 300_000);
    assert!(server.fake.data("short") == noise(300_000, 4));
    assert_eq!(server.fake.jukebox.load(SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_respect_job_and_chunk_limits() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let source = here.path().join("source");
    fs::write(&source, noise(500_000, 5)).unwrap();
    let url = server.url("iwarp", "/x");
    let put = report(&server, &["-j", "1", "--chunk-size", "10000", text(&source), &url]).await;
    assert_eq!(put["most_in_flight"], 1);
    assert_eq!(server.fake.unstable.load(SeqCst), 50);
    let got = report(&server, &["-j", "3", "--chunk-size", "4KiB", &url, text(&here.path().join("y"))]).await;
    assert!((2..=3).contains(&got["most_in_flight"].as_u64().unwrap()), "{got}");
    // The server's 32 credits limit it.
    let got = report(&server, &["-j", "500", "--chunk-size", "1KiB", &url, text(&here.path().join("y"))]).await;
    assert!((8..=32).contains(&got["most_in_flight"].as_u64().unwrap()), "{got}");
    assert!(fs::read(here.path().join("y")).unwrap() == noise(500_000, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_are_not_sent_and_not_written() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let source = here.path().join("source");
    let file = fs::File::create(&source).unwrap();
    file.write_all_at(b"in the middle", 5 << 20).unwrap();
    file.set_len(10 << 20).unwrap();
    let there = server.url("iwarp", "/sparse");
    let put = report(&server, &[text(&source), &there]).await;
    assert!(put["copied"]["bytes"].as_u64().unwrap() < 1 << 20, "{put}");
    assert!(server.fake.data("sparse") == fs::read(&source).unwrap());
    server.fake.set_used("sparse", 4096);
    let back = here.path().join("back");
    printed(&server, &[&there, text(&back)]).await;
    assert!(fs::read(&back).unwrap() == fs::read(&source).unwrap());
    assert!(back.metadata().unwrap().blocks() < 1000, "the copy has holes as well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_compared_with_their_sources() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let (source, back) = (here.path().join("source"), here.path().join("back"));
    fs::write(&source, noise(300_000, 6)).unwrap();
    let there = server.url("iwarp", "/verified");
    let digest = blake3::hash(&noise(300_000, 6)).to_string();
    let put = printed(&server, &["--verify", text(&source), &there]).await;
    assert!(put.contains(&format!("{digest}  {}", text(&source))), "{put}");
    let got = printed(&server, &["--verify", &there, text(&back)]).await;
    assert!(got.contains(&format!("{digest}  {EXPORT}/verified")), "{got}");
    fs::remove_file(&back).unwrap();

    server.fake.rotten.store(true, SeqCst);
    let error = complaint(&server, &["--verify", text(&source), &there]).await;
    assert!(error.contains("the copy differs") && error.contains(&digest), "{error}");
    let error = complaint(&server, &["--verify", &there, text(&back)]).await;
    assert!(error.contains("the copy differs"), "{error}");
    assert!(!back.exists(), "a copy that differs is not created");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malicious_listings_do_no_harm() {
    let server = FakeServer::start().await;
    for (dir, name) in [("a", &b"../escaped"[..]), ("b", b"x/y"), ("c", b""), ("d", b"nul\0")] {
        let here = TempDir::new().unwrap();
        server.fake.put(dir, Kind::Dir([(name.to_vec(), 1)].into()));
        let error = complaint(&server, &["-r", &server.url("tcp", &format!("/{dir}")), text(here.path())]).await;
        assert!(error.contains("violated the protocol") && error.contains("invalid name"), "{error}");
        assert_eq!(fs::read_dir(here.path().join(dir)).unwrap().count(), 0);
    }
    // Symbolic links in the target are not followed: files replace them, and directories are refused.
    let (here, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    server.fake.put("t", Kind::Dir(Default::default()));
    server.fake.put("t/dir", Kind::Dir(Default::default()));
    server.fake.put_file("t/dir/file", b"x");
    server.fake.put_file("t/file", b"new");
    fs::create_dir(here.path().join("t")).unwrap();
    symlink(outside.path(), here.path().join("t/dir")).unwrap();
    fs::write(outside.path().join("kept"), "old").unwrap();
    symlink(outside.path().join("kept"), here.path().join("t/file")).unwrap();
    let error = complaint(&server, &["-r", &server.url("tcp", "/t"), text(here.path())]).await;
    assert!(error.contains("exists and is not a directory"), "{error}");
    assert_eq!(fs::read(outside.path().join("kept")).unwrap(), b"old");
    assert_eq!(fs::read(here.path().join("t/file")).unwrap(), b"new");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_in_a_path_are_followed_inside_the_export() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let get = |path: &str| [server.url("tcp", path), text(&here.path().join("got")).to_owned()];
    server.fake.put("real", Kind::Dir(Default::default()));
    server.fake.put_file("real/file", b"found");
    let absolute = format!("{EXPORT}/real");
    let links: [(&str, &str); 6] = [
        ("relative", "./real"),
        ("absolute", &absolute),
        ("real/back", "../relative/file"),
        ("loop", "loop"),
        ("out", "/etc"),
        ("above", "../../../real/file"),
    ];
    for (name, target) in links {
        server.fake.put(name, Kind::Link(target.as_bytes().to_vec()));
    }
    for path in ["/relative/file", "/absolute/file", "/real/back", "/real/../real//file", "/above"] {
        let [url, target] = get(path);
        printed(&server, &[&url, &target]).await;
        assert_eq!(fs::read(here.path().join("got")).unwrap(), b"found", "{path}");
        fs::remove_file(here.path().join("got")).unwrap();
    }
    for (path, why) in
        [("/loop", "too many levels"), ("/out/passwd", "outside of this export"), ("/x/y", "no such directory: x")]
    {
        let [url, target] = get(path);
        let error = complaint(&server, &[&url, &target]).await;
        assert!(error.contains(why), "{path}: {error}");
    }
    // Write through a link.
    fs::write(here.path().join("new"), "through").unwrap();
    printed(&server, &[text(&here.path().join("new")), &server.url("tcp", "/real/back")]).await;
    assert_eq!(server.fake.data("real/file"), b"through");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_explained() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let file = here.path().join("file");
    fs::write(&file, "x").unwrap();
    server.fake.put("dir", Kind::Dir(Default::default()));
    server.fake.put_file("file", b"x");
    let url = |path: &str| server.url("iwarp", path);
    let cases: [(Vec<String>, &str); 11] = [
        (vec![url("/absent"), text(here.path()).into()], "no such file or directory: /srv/export/absent"),
        (vec![url("/dir"), text(here.path()).into()], "use -r to copy directories"),
        (vec![text(here.path()).into(), url("/dir")], "use -r to copy directories"),
        (vec![text(&file).into(), text(&file).into(), url("/file")], "must be an existing directory"),
        (vec![text(&here.path().join("no")).into(), url("/dir")], "No such file"),
        (vec![text(&file).into(), url("/file/below")], "NFS3ERR_NOTDIR (not a directory)"),
        (vec![text(&file).into(), url("/file").replace("/srv/export", "/elsewhere")], "MNT3ERR_ACCES"),
        (vec!["--root-handle".into(), "00".into(), url("/file"), text(here.path()).into()], "NFS3ERR_BADHANDLE"),
        (vec![url("/file"), "/nonexistent/x".into()], "No such file"),
        (vec!["/dev/null".into(), url("/dir")], "not a regular file, directory or symbolic link"),
        (vec!["/proc/version".into(), url("/dir")], "contains data but reports size 0"),
    ];
    for (args, why) in cases {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let mut command = nfscp(&server);
        if args[0] == "--root-handle" {
            command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
        }
        let output = output(command.args(&args)).await;
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains(why), "{args:?}: {error}");
    }
    // An unknown transport option is detected when connecting.
    let wrong =
        [["a", "b"], ["nfs3+tcp://h/x", "nfs3+tcp://h/y"], ["nfs://h/x", "y"], ["nfs3+iwarp://127.0.0.1/x?no=1", "y"]];
    for args in wrong {
        assert_eq!(output(nfscp(&server).args(args)).await.status.code(), Some(2), "{args:?}");
    }
    // The server requires AUTH_SYS. With the root handle, MOUNT is not needed.
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
    let there = url("/file").replace("/srv/export", "");
    let args = ["--root-handle", "0000000000000001", &there, text(here.path())];
    assert!(output(command.args(args)).await.status.success());
    // The port of another service instead of MOUNT.
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
    let port = server.iwarp_address().rsplit(':').next().unwrap().to_owned();
    let output = output(command.args(["--mount-port", &port, &url("/file"), text(here.path())])).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("no reply from MOUNT at tcp://") && error.contains("--mount-port"), "{error}");
    // The server is down.
    server.end().await;
    let error = complaint(&server, &[&url("/file"), text(here.path())]).await;
    assert!(error.contains("cannot use iwarp://") && error.contains("no server is listening on"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copying_resumes_after_a_server_restart() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let source = here.path().join("source");
    fs::write(&source, noise(64 << 20, 7)).unwrap();
    let address = server.iwarp_address();
    let url = server.url("iwarp", "/x");
    let mut command = nfscp(&server);
    command.args(["--json", "--chunk-size", "16KiB", text(&source), &url]).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    while server.fake.unstable.load(SeqCst) < 200 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.end().await;
    // Uncommitted data is lost, as when a machine crashes.
    server.fake.crash();
    let again = FakeServer::start_on(server.fake.clone(), &address).await;
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success());
    let put: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(put["copied"]["sent_again"].as_u64().unwrap() > 0, "{put}");
    assert_eq!(put["connection"]["exposed"], 0);
    assert!(again.fake.data("x") == noise(64 << 20, 7));

    // The server does not come back.
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
    command.args(["--mount-port", &again.mount_port.to_string(), "--retry", "1", "--chunk-size", "16KiB"]);
    command.args([text(&source), &url]).stderr(Stdio::piped()).kill_on_drop(true);
    let (before, mut child) = (again.fake.unstable.load(SeqCst), command.spawn().unwrap());
    while again.fake.unstable.load(SeqCst) < before + 100 {
        assert_eq!(child.try_wait().unwrap(), None, "nfscp has exited");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    again.handle.shutdown_within(Duration::ZERO);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    // Either a call in flight fails, or the attempt to reconnect.
    assert!(error.contains("the server did not respond for 1s: "), "{error}");
    assert!(error.contains("cannot connect to"), "{error}");
}

/// When the server refuses a call of root, the message explains root squashing.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_squashing_is_explained() {
    let here = TempDir::new().unwrap();
    let (file, export) = (here.path().join("file"), here.path().join("export"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&export).unwrap();
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755)).unwrap();
    let (_server, urls, mount_port) = nfs3d(&export, &here.path().join("state"), &[]).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
    command.args(["--uid", "0", "--gid", "0", "--mount-port", &mount_port, text(&file), &urls[0]]);
    let output = output(&mut command).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    if rustix::process::geteuid().is_root() {
        assert!(error.contains("NFS3ERR_ACCES") && error.contains("no_root_squash"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mount_port_is_found_with_the_port_mapper() {
    /// A port mapper with one entry.
    struct Portmapper(u16);
    impl PmapVers for Portmapper {
        async fn pmapproc_set(&self, _cx: &Context, _args: Mapping) -> Result<bool, HandlerError> {
            Ok(false)
        }
        async fn pmapproc_unset(&self, _cx: &Context, _args: Mapping) -> Result<bool, HandlerError> {
            Ok(false)
        }
        async fn pmapproc_getport(&self, _cx: &Context, args: Mapping) -> Result<u32, HandlerError> {
            let known = (args.prog, args.vers, args.prot) == (100_005, 3, 6);
            Ok(if known { self.0.into() } else { 0 })
        }
        async fn pmapproc_dump(&self, _cx: &Context) -> Result<Pmaplist, HandlerError> {
            Ok(Pmaplist(Vec::new()))
        }
        async fn pmapproc_callit(&self, _cx: &Context, _args: CallArgs) -> Result<CallResult, HandlerError> {
            Err(HandlerError::ProcedureUnavailable)
        }
    }
    let server = FakeServer::start().await;
    // The server does not list its exports.
    server.fake.lists.store(false, SeqCst);
    server.fake.put_file("file", b"found");
    let here = TempDir::new().unwrap();
    for (port, works) in [(server.mount_port, true), (0, false)] {
        let service = PmapVersServer::new(Portmapper(port));
        let rpcbind = Server::builder().service(service).listen("tcp://127.0.0.1:0").bind().await.unwrap();
        let rpcbind_port = rpcbind.local_addrs()[0].port().to_string();
        tokio::spawn(rpcbind.serve());
        let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
        command.args(["--rpcbind-port", &rpcbind_port, &server.url("tcp", "/file"), text(here.path())]);
        let output = output(&mut command).await;
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), works, "{error}");
        assert!(works || error.contains("lists no MOUNT version 3 over TCP"), "{error}");
    }
    assert_eq!(fs::read(here.path().join("file")).unwrap(), b"found");
}

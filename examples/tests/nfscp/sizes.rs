//! Tests of the sizes of READ and WRITE, which are the server's offer in FSINFO within the limits of the client.

use std::{fs, sync::atomic::Ordering::SeqCst};

use tempfile::TempDir;
use tokio::process::Command;

use super::{nfs_server::FakeServer, nfs3d, noise, output, report, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_have_the_size_that_the_server_offers() {
    const MIB: usize = 1 << 20;
    // Offer, length of the file, number of WRITEs.
    let cases = [
        (4 * MIB, 9 * MIB + 1, 3),
        (64 * MIB, 9 * MIB + 1, 3),
        (MIB, 9 * MIB + 1, 10),
        (64 << 10, 3 * MIB, 48),
        (99_991, 3 * MIB, 32),
        (0, 100_000, 13),
        (1, 100, 100),
    ];
    for transport in ["iwarp", "tcp"] {
        for (offer, len, writes) in cases {
            let server = FakeServer::start().await;
            server.fake.max.store(offer as u32, SeqCst);
            let here = TempDir::new().unwrap();
            let (source, back) = (here.path().join("source"), here.path().join("back"));
            fs::write(&source, noise(len, 5)).unwrap();
            let url = server.url(transport, "/file");
            let put = report(&server, &[text(&source), &url]).await;
            assert!(server.fake.data("file") == noise(len, 5), "{offer}");
            // Over TCP, larger calls are slower.
            let writes = if transport == "tcp" && offer > MIB { len.div_ceil(MIB) as u32 } else { writes };
            assert_eq!(server.fake.unstable.load(SeqCst), writes, "an offer of {offer}: {put}");
            // The server repeats parts of READs that it has shortened.
            report(&server, &[&url, text(&back)]).await;
            assert!(fs::read(&back).unwrap() == noise(len, 5), "{offer}");
            let reads = server.fake.reads.load(SeqCst);
            assert!((writes..=writes * 3 / 2).contains(&reads), "an offer of {offer}: {reads} READs");
        }
    }
}

/// With calls of 4 MiB and `--jobs 5`, at most two calls are in flight. This limits the memory for the data in flight,
/// and keeps each call within its time limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_in_flight_is_limited() {
    let server = FakeServer::start().await;
    server.fake.max.store(4 << 20, SeqCst);
    let here = TempDir::new().unwrap();
    let source = here.path().join("source");
    fs::write(&source, noise(32 << 20, 6)).unwrap();
    let put = report(&server, &["--jobs", "5", text(&source), &server.url("iwarp", "/large")]).await;
    // Without the limit, five.
    assert!(put["most_in_flight"].as_u64().unwrap() <= 2, "{put}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nfs3d_takes_4_mib() {
    let here = TempDir::new().unwrap();
    let (source, export) = (here.path().join("source"), here.path().join("export"));
    fs::write(&source, noise(24 << 20, 7)).unwrap();
    for (memory, calls) in [("1GiB", 6), ("12MiB", 6), ("8MiB", 8), ("3MiB", 22)] {
        fs::create_dir(&export).unwrap();
        let options = ["--no-root-squash", "--max-memory", memory];
        let (_server, urls, mount_port) = nfs3d(&export, &here.path().join("state"), &options).await;
        for url in &urls {
            let back = here.path().join("back");
            for args in [[text(&source), &format!("{url}/copy")], [&format!("{url}/copy"), text(&back)]] {
                let mut command = Command::new(env!("CARGO_BIN_EXE_nfscp"));
                let output =
                    output(command.args(["--json", "--chunk-size", "4MiB", "--mount-port", &mount_port]).args(args))
                        .await;
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let copied: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                let made = copied["connection"]["calls"].as_u64().unwrap();
                // Besides NULL, FSINFO, the look-ups, CREATE and COMMIT.
                assert!((calls..=calls + 8).contains(&made), "{memory}: {copied}");
                assert_eq!(copied["connection"]["copied_eligible_bytes"], 0, "{copied}");
                assert_eq!(copied["connection"]["exposed"], 0, "{copied}");
            }
            assert!(fs::read(export.join("copy")).unwrap() == noise(24 << 20, 7), "{memory}: {url}");
            assert!(fs::read(&back).unwrap() == noise(24 << 20, 7), "{memory}: {url}");
        }
        fs::remove_dir_all(&export).unwrap();
    }
}

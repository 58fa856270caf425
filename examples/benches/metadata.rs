//! Calls of one NFS version 3 procedure, one at a time, for measurements of `nfs3d`.
//!
//! `metadata URL MOUNT_URL PROCEDURE COUNT` repeats PROCEDURE COUNT times and prints the average time in microseconds.
//! The script `tests/counts/nfs3d` counts the system calls that the server needs for them.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use rpcrdma::{client::Channel, rpc::Credential};
use rpcrdma_examples::nfs3::no_changes;
use rpcrdma_specs::{
    mount3::{Dirpath, Mountres3, mount_v3::MountV3Client},
    nfs3::{nfs_v3::NfsV3Client, *},
};

/// Rights that Linux's client requests in ACCESS calls.
const RIGHTS: u32 = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE | ACCESS3_EXECUTE;

async fn channel(url: &str, uid: u32) -> Channel {
    let credential = Credential::sys("metadata", uid, uid, [uid, uid + 1]).to_opaque().unwrap();
    Channel::builder().credential(credential).connect(url).await.unwrap()
}

struct Files {
    client: NfsV3Client,
    directory: NfsFh3,
    file: NfsFh3,
}

impl Files {
    fn at(&self, name: &str) -> Diropargs3 {
        Diropargs3 { dir: self.directory.clone(), name: Filename3(name.to_owned().into()) }
    }

    /// Makes one call of `procedure`, or two for `create-remove`. Panics if the result is not the expected one.
    async fn call(&self, procedure: &str, n: u32) {
        let (client, directory, file) = (&self.client, || self.directory.clone(), || self.file.clone());
        match procedure {
            "null" => client.nfsproc3_null().await.unwrap(),
            "getattr" => {
                let reply = client.nfsproc3_getattr(&Getattr3args { object: file() }).await.unwrap();
                assert!(matches!(reply, Getattr3res::Ok(_)), "{reply:?}");
            }
            "lookup" => {
                let reply = client.nfsproc3_lookup(&Lookup3args { what: self.at("file") }).await.unwrap();
                assert!(matches!(reply, Lookup3res::Ok(_)), "{reply:?}");
            }
            "lookup-none" => {
                let reply = client.nfsproc3_lookup(&Lookup3args { what: self.at("none") }).await.unwrap();
                assert!(matches!(reply, Lookup3res::Default(Nfsstat3::Noent, _)), "{reply:?}");
            }
            "access" => {
                let object = if n.is_multiple_of(2) { file() } else { directory() };
                let reply = client.nfsproc3_access(&Access3args { object, access: RIGHTS }).await.unwrap();
                assert!(matches!(reply, Access3res::Ok(_)), "{reply:?}");
            }
            "setattr" => {
                let new_attributes = Sattr3 { mode: SetMode3::True(0o600 + (n % 8)), ..no_changes() };
                let args = Setattr3args { object: file(), new_attributes, guard: Sattrguard3::False };
                let reply = client.nfsproc3_setattr(&args).await.unwrap();
                assert!(matches!(reply, Setattr3res::Ok(_)), "{reply:?}");
            }
            "fsstat" => {
                let reply = client.nfsproc3_fsstat(&Fsstat3args { fsroot: directory() }).await.unwrap();
                assert!(matches!(reply, Fsstat3res::Ok(_)), "{reply:?}");
            }
            "create-remove" => {
                let how = Createhow3::Guarded(Sattr3 { mode: SetMode3::True(0o644), ..no_changes() });
                let reply = client.nfsproc3_create(&Create3args { r#where: self.at("new"), how }).await.unwrap();
                assert!(matches!(reply, Create3res::Ok(_)), "{reply:?}");
                let reply = client.nfsproc3_remove(&Remove3args { object: self.at("new") }).await.unwrap();
                assert!(matches!(reply, Remove3res::Ok(_)), "{reply:?}");
            }
            "readdir" => {
                let args = Readdir3args { dir: directory(), cookie: 0, cookieverf: Cookieverf3([0; 8]), count: 8192 };
                let reply = client.nfsproc3_readdir(&args).await.unwrap();
                assert!(matches!(reply, Readdir3res::Ok(_)), "{reply:?}");
            }
            other => panic!("unknown procedure {other}"),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [url, mount, procedure, count] = &args[..] else {
        println!("usage: metadata URL MOUNT_URL PROCEDURE COUNT");
        return;
    };
    let uid = 12345;
    let mount = MountV3Client::new(channel(mount, uid).await);
    let reply = mount.mountproc3_mnt(&Dirpath("/".into())).await.unwrap();
    let Mountres3::Ok(ok) = reply else { panic!("{reply:?}") };
    let client = NfsV3Client::new(channel(url, uid).await);
    let mut files =
        Files { client, directory: NfsFh3 { data: ok.fhandle.0.clone() }, file: NfsFh3 { data: ok.fhandle.0 } };
    // A directory below the root, as in use.
    for name in ["directory", "file"] {
        let look_up = || Lookup3args { what: files.at(name) };
        let mut reply = files.client.nfsproc3_lookup(&look_up()).await.unwrap();
        if !matches!(reply, Lookup3res::Ok(_)) {
            if name == "directory" {
                let args = Mkdir3args { r#where: files.at(name), attributes: no_changes() };
                files.client.nfsproc3_mkdir(&args).await.unwrap();
            } else {
                let args = Create3args { r#where: files.at(name), how: Createhow3::Guarded(no_changes()) };
                files.client.nfsproc3_create(&args).await.unwrap();
            }
            reply = files.client.nfsproc3_lookup(&look_up()).await.unwrap();
        }
        let Lookup3res::Ok(ok) = reply else { panic!("{name}: {reply:?}") };
        if name == "directory" { files.directory = ok.object } else { files.file = ok.object }
    }
    let count: u32 = count.parse().unwrap();
    files.call(procedure, 0).await;
    let started = Instant::now();
    for n in 0..count {
        files.call(procedure, n).await;
    }
    println!("{procedure} {:.1}", started.elapsed().as_secs_f64() * 1e6 / f64::from(count));
}

//! Fuzz test: calls with random arguments, chosen to provoke errors, and with corrupted bytes. Each must get a reply
//! other than SYSTEM_ERR, which reports a panic, and nothing outside of the export may change.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use proptest::{prelude::*, test_runner::TestRunner};
use rpcrdma::rpc::Credential;
use rpcrdma_examples::nfs3d::identity::Squash;
use rpcrdma_specs::nfs3::*;
use tempfile::TempDir;

use crate::{
    raw::{Raw, encoded, header},
    support::{Served, mode, name, own_gid, own_uid},
};

/// A source of values, drawn from numbers that proptest generates, so that proptest can shrink a failing case.
struct Dice<'a>(std::slice::Iter<'a, u64>);

impl Dice<'_> {
    fn number(&mut self) -> u64 {
        self.0.next().copied().unwrap_or_default()
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.number() as usize % all.len()].clone()
    }

    fn u32(&mut self) -> u32 {
        match self.number() {
            even if even.is_multiple_of(2) => even as u32 >> 1,
            _ => self.of(&[0, 1, 2, 3, 100, 104, 512, 4096, 65_536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, u32::MAX]),
        }
    }

    fn u64(&mut self) -> u64 {
        match self.number() {
            even if even.is_multiple_of(2) => even >> 1,
            _ => {
                self.of(&[0, 1, 4095, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, i64::MAX as u64 - 1, 1 << 63, u64::MAX])
            }
        }
    }

    fn time(&mut self) -> Nfstime3 {
        Nfstime3 { seconds: self.u32(), nseconds: self.of(&[0, 999_999_999, 1_000_000_000, 0x3fff_ffff, 0x3fff_fffe]) }
    }
}

/// File handles and names to draw arguments from.
struct Stock {
    handles: Vec<NfsFh3>,
    names: Vec<Vec<u8>>,
}

impl Stock {
    fn handle(&self, dice: &mut Dice<'_>) -> NfsFh3 {
        dice.of(&self.handles)
    }

    fn at(&self, dice: &mut Dice<'_>) -> Diropargs3 {
        Diropargs3 { dir: self.handle(dice), name: name(dice.of(&self.names)) }
    }

    fn attributes(dice: &mut Dice<'_>) -> Sattr3 {
        let which = dice.number();
        let given = |bit: u32| which & (1 << bit) != 0;
        Sattr3 {
            mode: if given(0) { SetMode3::True(dice.u32()) } else { SetMode3::False },
            uid: if given(1) { SetUid3::True(dice.u32()) } else { SetUid3::False },
            gid: if given(2) { SetGid3::True(dice.u32()) } else { SetGid3::False },
            size: if given(3) { SetSize3::True(dice.u64()) } else { SetSize3::False },
            atime: match which >> 4 & 3 {
                0 => SetAtime::SetToClientTime(dice.time()),
                1 => SetAtime::Default(TimeHow::SetToServerTime),
                _ => SetAtime::Default(TimeHow::DontChange),
            },
            mtime: match which >> 6 & 3 {
                0 => SetMtime::SetToClientTime(dice.time()),
                1 => SetMtime::Default(TimeHow::SetToServerTime),
                _ => SetMtime::Default(TimeHow::DontChange),
            },
        }
    }

    fn create_how(dice: &mut Dice<'_>) -> Createhow3 {
        match dice.number() % 3 {
            0 => Createhow3::Unchecked(Self::attributes(dice)),
            1 => Createhow3::Guarded(Self::attributes(dice)),
            _ => Createhow3::Exclusive(Createverf3(dice.u64().to_be_bytes())),
        }
    }

    fn node(dice: &mut Dice<'_>) -> Mknoddata3 {
        let kind = dice.number() % 5;
        let attributes = Self::attributes(dice);
        let device = |dice: &mut Dice<'_>| Devicedata3 {
            dev_attributes: attributes.clone(),
            spec: Specdata3 { specdata1: dice.u32(), specdata2: dice.u32() },
        };
        match kind {
            0 => Mknoddata3::Chr(device(dice)),
            1 => Mknoddata3::Blk(device(dice)),
            2 => Mknoddata3::Sock(attributes),
            3 => Mknoddata3::Fifo(attributes),
            _ => Mknoddata3::Default(dice.of(&[Ftype3::Reg, Ftype3::Dir, Ftype3::Lnk])),
        }
    }

    /// Returns encoded arguments of a procedure. The arguments of NULL and of undefined procedures are eight bytes.
    fn args(&self, procedure: u32, dice: &mut Dice<'_>) -> Vec<u8> {
        match procedure {
            1 => encoded(&Getattr3args { object: self.handle(dice) }),
            2 => encoded(&Setattr3args {
                object: self.handle(dice),
                new_attributes: Self::attributes(dice),
                guard: if dice.number().is_multiple_of(4) {
                    Sattrguard3::True(dice.time())
                } else {
                    Sattrguard3::False
                },
            }),
            3 => encoded(&Lookup3args { what: self.at(dice) }),
            4 => encoded(&Access3args { object: self.handle(dice), access: dice.u32() }),
            5 => encoded(&Readlink3args { symlink: self.handle(dice) }),
            6 => encoded(&Read3args { file: self.handle(dice), offset: dice.u64(), count: dice.u32() }),
            7 => {
                let data = Bytes::from(vec![7; dice.number() as usize % 9000]);
                let count = if dice.number().is_multiple_of(8) { dice.u32() } else { data.len() as u32 };
                let stable = dice.of(&[StableHow::Unstable, StableHow::DataSync, StableHow::FileSync]);
                encoded(&Write3args { file: self.handle(dice), offset: dice.u64(), count, stable, data })
            }
            8 => encoded(&Create3args { r#where: self.at(dice), how: Self::create_how(dice) }),
            9 => encoded(&Mkdir3args { r#where: self.at(dice), attributes: Self::attributes(dice) }),
            10 => encoded(&Symlink3args {
                r#where: self.at(dice),
                symlink: Symlinkdata3 {
                    symlink_attributes: Self::attributes(dice),
                    symlink_data: Nfspath3(Bytes::from(dice.of(&self.names)).into()),
                },
            }),
            11 => encoded(&Mknod3args { r#where: self.at(dice), what: Self::node(dice) }),
            12 => encoded(&Remove3args { object: self.at(dice) }),
            13 => encoded(&Rmdir3args { object: self.at(dice) }),
            14 => encoded(&Rename3args { from: self.at(dice), to: self.at(dice) }),
            15 => encoded(&Link3args { file: self.handle(dice), link: self.at(dice) }),
            16 => encoded(&Readdir3args {
                dir: self.handle(dice),
                cookie: dice.u64(),
                cookieverf: Cookieverf3(dice.u64().to_be_bytes()),
                count: dice.u32(),
            }),
            17 => encoded(&Readdirplus3args {
                dir: self.handle(dice),
                cookie: dice.u64(),
                cookieverf: Cookieverf3(dice.u64().to_be_bytes()),
                dircount: dice.u32(),
                maxcount: dice.u32(),
            }),
            18 => encoded(&Fsstat3args { fsroot: self.handle(dice) }),
            19 => encoded(&Fsinfo3args { fsroot: self.handle(dice) }),
            20 => encoded(&Pathconf3args { object: self.handle(dice) }),
            21 => encoded(&Commit3args { file: self.handle(dice), offset: dice.u64(), count: dice.u32() }),
            _ => dice.u64().to_be_bytes().to_vec(),
        }
    }
}

/// A call: its procedure, the numbers that its arguments are drawn from, and the corruption of its bytes.
#[derive(Debug, Clone)]
struct Call {
    procedure: u32,
    dice: Vec<u64>,
    changed: Vec<(prop::sample::Index, u8)>,
    cut: Option<prop::sample::Index>,
}

fn call() -> impl Strategy<Value = Call> {
    let changed = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ];
    let cut = prop::option::weighted(0.05, any::<prop::sample::Index>());
    (0..24_u32, prop::collection::vec(any::<u64>(), 24), changed, cut)
        .prop_map(|(procedure, dice, changed, cut)| Call { procedure, dice, changed, cut })
}

/// Returns the paths of all entries of `folder` other than `root`, with the contents of files.
fn contents_outside(folder: &Path, root: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path != root);
    let mut all: Vec<_> = entries
        .map(|path| (path.display().to_string(), if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() }))
        .collect();
    all.sort();
    all
}

fn run(served: &Served, stock: &Stock, calls: &[Call], xid: &mut u32) -> Result<(), TestCaseError> {
    let mut server = Raw::connect(&served.tcp);
    for call in calls {
        *xid += 1;
        let mut dice = Dice(call.dice.iter());
        let uid = dice.of(&[own_uid(), own_uid(), own_uid() + 1000, u32::MAX]);
        let mut bytes = header(*xid, call.procedure, &Credential::sys("fuzz", uid, own_gid(), [1, u32::MAX]));
        let header = bytes.len();
        bytes.extend(stock.args(call.procedure, &mut dice));
        for (at, byte) in &call.changed {
            if bytes.len() > header {
                let at = header + at.index(bytes.len() - header);
                bytes[at] = *byte;
            }
        }
        if let Some(cut) = call.cut {
            bytes.truncate(header + cut.index(bytes.len() - header + 1) / 4 * 4);
        }
        let reply = server.call(&bytes).map_err(|error| TestCaseError::fail(format!("no reply: {error}")))?;
        // XID, REPLY, MSG_ACCEPTED, an empty verifier, then the status. A panic would result in SYSTEM_ERR (RFC 5531
        // §9).
        prop_assert_eq!(&reply[..4], &xid.to_be_bytes());
        prop_assert_eq!(&reply[4..20], [[0, 0, 0, 1], [0; 4], [0; 4], [0; 4]].concat());
        prop_assert_ne!(&reply[20..24], 5_u32.to_be_bytes(), "procedure {} failed", call.procedure);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_calls_get_replies_and_do_no_harm() {
    // Use memory if possible, as nearly every call syncs.
    let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    let served = Served::of(Arc::new(folder), Squash::None).await;
    let folder = served.folder.path().to_owned();
    fs::write(folder.join("secret"), "secret").unwrap();
    fs::create_dir(folder.join("outside")).unwrap();
    std::os::unix::fs::symlink("../outside", served.root.join("way-out")).unwrap();
    let nfs = served.client().await;
    let dir = nfs.folder(&nfs.root, "dir").await;
    let deep = nfs.folder(&dir, "deep").await;
    let file = nfs.file(&dir, "file").await;
    nfs.write(&file, 0, b"content", StableHow::Unstable).await.unwrap();
    let pipe = nfs.mknod(&nfs.root, "pipe", Mknoddata3::Fifo(mode(0o666))).await.unwrap().0;
    let link = nfs.lookup(&nfs.root, "way-out").await.unwrap();
    let gone = nfs.file(&nfs.root, "gone").await;
    nfs.remove(&nfs.root, "gone").await.unwrap();
    let mut forged = file.data.to_vec();
    forged[10] ^= 1;
    let forged = [Vec::new(), vec![0; 36], vec![0xff; 64], forged].map(|data| NfsFh3 { data: data.into() });
    let handles = [nfs.root.clone(), nfs.root.clone(), dir.clone(), dir, deep, file, pipe, link, gone];
    let texts: [&[u8]; 17] = [
        b"dir",
        b"file",
        b"deep",
        b"pipe",
        b"way-out",
        b"new",
        b"newer",
        b"newest",
        b"",
        b".",
        b"..",
        b"/",
        b"../secret",
        b"a\0b",
        b"\xff\xfe",
        b"way-out/x",
        b"/etc/passwd",
    ];
    let long = [vec![b'x'; 255], vec![b'x'; 256], vec![b'y'; 4096]];
    let stock = Stock {
        handles: handles.into_iter().chain(forged).collect(),
        names: texts.iter().map(|name| name.to_vec()).chain(long).collect(),
    };
    let before = contents_outside(&folder, &served.root);
    tokio::task::block_in_place(|| {
        let mut runner =
            TestRunner::new(ProptestConfig { cases: 250, failure_persistence: None, ..Default::default() });
        let mut xid = 0;
        let xid = std::cell::RefCell::new(&mut xid);
        let tested =
            runner.run(&prop::collection::vec(call(), 1..24), |calls| run(&served, &stock, &calls, *xid.borrow_mut()));
        if let Err(failure) = tested {
            panic!("{failure}");
        }
    });
    // Calls of each kind reached their procedure.
    let counters = served.service.counters().to_string();
    for procedure in ["SETATTR", "READ ", "WRITE", "MKNOD", "RENAME", "LINK ", "READDIR ", "READDIRPLUS", "COMMIT"] {
        assert!(counters.contains(procedure), "{counters}");
    }
    assert_eq!(contents_outside(&folder, &served.root), before);
    assert_eq!(fs::read_dir(folder.join("outside")).unwrap().count(), 0);
    assert_eq!(nfs.getattr(&nfs.root).await.unwrap().r#type, Ftype3::Dir, "the server still works");
}

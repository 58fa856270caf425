//! READ (RFC 1813 §3.3.6), WRITE (§3.3.7), COMMIT (§3.3.21).
//!
//! Data is not copied here: READ has the system read into memory of the connection's pool, from which the reply's RDMA
//! Write takes it; WRITE has the system write from the memory that the call's RDMA Read has filled.

use bytes::Bytes;
use rpcrdma::memory::BufferPool;
use rpcrdma_specs::nfs3::{
    Commit3args, Commit3res, Commit3resfail, Commit3resok, Nfsstat3, PostOpAttr, Read3args, Read3res, Read3resfail,
    Read3resok, StableHow, WccData, Write3args, Write3res, Write3resfail, Write3resok, Writeverf3,
};
use rustix::{
    fs::OFlags,
    io::{Errno, retry_on_intr},
};

use super::{
    attributes::NO_WCC,
    export::Export,
    file_system::{DATA_MAX, FILE_SIZE_MAX},
    identity::Identity,
    object::{Object, Stat},
    status::{Outcome, Refusal},
};

impl Export {
    /// READ, into memory of `pool`.
    pub fn read(&self, who: &Identity, pool: &BufferPool, args: &Read3args) -> Read3res {
        let object = match self.find(&args.file) {
            Ok(object) => object,
            Err(refusal) => return Read3res::Default(refusal.0, Read3resfail { file_attributes: PostOpAttr::False }),
        };
        match self.read_data(who, pool, object.clone(), args.offset, args.count) {
            Ok((data, stat)) => Read3res::Ok(Read3resok {
                file_attributes: PostOpAttr::True(stat.attributes(self.fsid)),
                count: data.len() as u32,
                eof: args.offset.saturating_add(data.len() as u64) >= stat.0.stx_size,
                data,
            }),
            Err(refusal) => Read3res::Default(refusal.0, Read3resfail { file_attributes: self.post_op(&object) }),
        }
    }

    fn read_data(
        &self,
        who: &Identity,
        pool: &BufferPool,
        object: Object,
        offset: u64,
        count: u32,
    ) -> Outcome<(Bytes, Stat)> {
        let object = object.regular()?;
        let file = self.open_file(who, &object, OFlags::RDONLY)?;
        // Memory for what there is, not for what is asked for.
        let there = object.stat.0.stx_size.saturating_sub(offset).min(count.min(DATA_MAX).into());
        let mut memory = pool.alloc(there as usize);
        let mut len = 0;
        while len < memory.len() {
            match retry_on_intr(|| rustix::io::pread(&*file, &mut memory[len..], offset + len as u64))? {
                // It has become shorter.
                0 => break,
                read => len += read,
            }
        }
        memory.truncate(len);
        // The attributes of after the read, so that `eof` is about them.
        Ok((memory.freeze(), Stat::of(&file)?))
    }

    /// WRITE.
    pub fn write(&self, who: &Identity, args: &Write3args) -> Write3res {
        // From before the data is written: if it is lost, the verifier is another one by then.
        let verf = self.verifier.get();
        let (file_wcc, written) = self.write_data(who, args);
        match written {
            Ok(count) => Write3res::Ok(Write3resok { file_wcc, count, committed: args.stable, verf }),
            Err(refusal) => Write3res::Default(refusal.0, Write3resfail { file_wcc }),
        }
    }

    fn write_data(&self, who: &Identity, args: &Write3args) -> (WccData, Outcome<u32>) {
        let object = match self.find(&args.file) {
            Ok(object) => object,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let file = object.clone().regular().and_then(|object| {
            // §3.3.7: `count` and the length of `data` are the same.
            if args.count as usize != args.data.len() {
                return Err(Refusal(Nfsstat3::Inval));
            }
            if args.offset.checked_add(args.count.into()).is_none_or(|end| end > FILE_SIZE_MAX) {
                return Err(Refusal(Nfsstat3::Fbig));
            }
            self.open_file(who, &object, OFlags::WRONLY)
        });
        let locked = self.locks.one(object.id.ino);
        let before = match object.stat_now() {
            Ok(stat) => stat,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let written = file.and_then(|file| {
            // As the caller: as root the system would leave set-user-ID and set-group-ID where they are, and give out the
            // blocks that are root's and those beyond a quota.
            let acting = self.identities.assume(who)?;
            let written = write_all(&file, &args.data, args.offset)?;
            drop(acting);
            Ok((written, file))
        });
        let wcc = self.wcc(&before, &object);
        drop(locked);
        let synced = written.and_then(|(written, file)| {
            match args.stable {
                StableHow::Unstable => Ok(()),
                StableHow::DataSync => rustix::fs::fdatasync(&*file),
                StableHow::FileSync => rustix::fs::fsync(&*file),
            }
            .inspect_err(|_| self.verifier.data_lost())?;
            Ok(written)
        });
        (wcc, synced)
    }

    /// COMMIT: all of the file, whatever part of it is asked for.
    pub fn commit(&self, args: &Commit3args) -> Commit3res {
        let object = match self.find(&args.file) {
            Ok(object) => object,
            Err(refusal) => return Commit3res::Default(refusal.0, Commit3resfail { file_wcc: NO_WCC }),
        };
        let (verf, synced) = self.commit_object(&object);
        let file_wcc = self.wcc(&object.stat, &object);
        match synced {
            Ok(()) => Commit3res::Ok(Commit3resok { file_wcc, verf }),
            Err(refusal) => Commit3res::Default(refusal.0, Commit3resfail { file_wcc }),
        }
    }

    fn commit_object(&self, object: &Object) -> (Writeverf3, Outcome<()>) {
        let synced = object.clone().regular().and_then(|object| self.sync(&object));
        // From after the sync: one that fails for somebody else changes it, and takes this client's data as well.
        (self.verifier.get(), synced)
    }
}

/// Writes as much as there is room for.
///
/// # Errors
/// If nothing at all could be written.
fn write_all(file: &rustix::fd::OwnedFd, data: &[u8], offset: u64) -> Outcome<u32> {
    let mut len = 0;
    while len < data.len() {
        match retry_on_intr(|| rustix::io::pwrite(file, &data[len..], offset + len as u64)) {
            Ok(0) => break,
            Ok(written) => len += written,
            Err(error) if len == 0 => return Err(error.into()),
            // The client sends the rest again, and meets the error.
            Err(_) => break,
        }
    }
    if len == 0 && !data.is_empty() { Err(Errno::NOSPC.into()) } else { Ok(len as u32) }
}

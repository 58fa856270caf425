//! The procedures READ (RFC 1813 §3.3.6), WRITE (§3.3.7) and COMMIT (§3.3.21).
//!
//! Data that moves by RDMA Read or RDMA Write is not copied in memory. READ reads the file into a buffer of the
//! connection's pool, from which the reply's RDMA Write sends it. WRITE writes the file from the buffer that the call's
//! RDMA Read has filled.

use bytes::Bytes;
use rpcrdma::memory::BufferPool;
use rpcrdma_specs::nfs3::{
    Commit3args, Commit3res, Commit3resfail, Commit3resok, Nfsstat3, PostOpAttr, PreOpAttr, Read3args, Read3res,
    Read3resfail, Read3resok, StableHow, WccData, Write3args, Write3res, Write3resfail, Write3resok, Writeverf3,
};
use rustix::{
    fs::OFlags,
    io::{Errno, retry_on_intr},
};

use super::{
    attributes::NO_WCC,
    export::Export,
    file_system::FILE_SIZE_MAX,
    identity::Identity,
    object::{Object, Stat},
    status::{NfsError, NfsResult},
};

impl Export {
    /// Performs READ as `who`, into a buffer of `pool`.
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
    ) -> NfsResult<(Bytes, Stat)> {
        let object = object.regular()?;
        let file = self.open_file(who, &object, OFlags::RDONLY)?;
        // Allocate for the data that exists, not for the requested count.
        let there = object.stat.0.stx_size.saturating_sub(offset).min(count.min(self.max_transfer).into());
        let mut memory = pool.alloc(there as usize);
        let mut len = 0;
        while len < memory.len() {
            match retry_on_intr(|| rustix::io::pread(&*file, &mut memory[len..], offset + len as u64))? {
                // The file has shrunk.
                0 => break,
                read => len += read,
            }
        }
        memory.truncate(len);
        // Attributes from after the read, to be consistent with `eof`.
        Ok((memory.freeze(), Stat::of(&file)?))
    }

    /// Performs WRITE as `who`. Data beyond the maximum size of a WRITE is not written, so the client sends it again.
    pub fn write(&self, who: &Identity, args: &Write3args) -> Write3res {
        // Get the verifier before writing: if the data is lost later, the verifier will have changed.
        let verf = self.verifier.get();
        let (file_wcc, written) = self.write_data(who, args);
        match written {
            Ok(count) => Write3res::Ok(Write3resok { file_wcc, count, committed: args.stable, verf }),
            Err(refusal) => Write3res::Default(refusal.0, Write3resfail { file_wcc }),
        }
    }

    fn write_data(&self, who: &Identity, args: &Write3args) -> (WccData, NfsResult<u32>) {
        let object = match self.find(&args.file) {
            Ok(object) => object,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let file = object.clone().regular().and_then(|object| {
            // `count` and the length of `data` must be equal (RFC 1813 §3.3.7).
            if args.count as usize != args.data.len() {
                return Err(NfsError(Nfsstat3::Inval));
            }
            if args.offset.checked_add(args.count.into()).is_none_or(|end| end > FILE_SIZE_MAX) {
                return Err(NfsError(Nfsstat3::Fbig));
            }
            self.open_file(who, &object, OFlags::WRONLY)
        });
        let locked = self.locks.one(object.id.ino);
        let before = match object.stat_now() {
            Ok(stat) => stat,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let written = file.and_then(|file| {
            // Write as the caller: for root, the system would keep the set-user-ID and set-group-ID bits, and ignore
            // reserved blocks and quotas.
            let acting = self.identities.assume(who)?;
            // The client sends the rest of a longer WRITE again.
            let data = &args.data[..args.data.len().min(self.max_transfer as usize)];
            let written = write_all(&file, data, args.offset)?;
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

    /// Performs COMMIT. Commits the whole file, regardless of the requested range.
    pub fn commit(&self, args: &Commit3args) -> Commit3res {
        let object = match self.find(&args.file) {
            Ok(object) => object,
            Err(refusal) => return Commit3res::Default(refusal.0, Commit3resfail { file_wcc: NO_WCC }),
        };
        let (verf, synced) = self.commit_object(&object);
        // Without attributes from before: COMMIT does not lock the file, so the client would take a WRITE of another
        // client that is performed meanwhile for its own, and keep its cached data.
        let file_wcc = WccData { before: PreOpAttr::False, after: self.post_op(&object) };
        match synced {
            Ok(()) => Commit3res::Ok(Commit3resok { file_wcc, verf }),
            Err(refusal) => Commit3res::Default(refusal.0, Commit3resfail { file_wcc }),
        }
    }

    fn commit_object(&self, object: &Object) -> (Writeverf3, NfsResult<()>) {
        let synced = object.clone().regular().and_then(|object| self.sync(&object));
        // Get the verifier after the sync: a sync that fails for another client changes it and concerns this client's
        // data too.
        (self.verifier.get(), synced)
    }
}

/// Writes `data`, and returns the number of bytes written. It is less than the length of `data` if a later part cannot
/// be written, for example because the disk is full.
///
/// # Errors
/// Fails if nothing could be written.
fn write_all(file: &rustix::fd::OwnedFd, data: &[u8], offset: u64) -> NfsResult<u32> {
    let mut len = 0;
    while len < data.len() {
        match retry_on_intr(|| rustix::io::pwrite(file, &data[len..], offset + len as u64)) {
            Ok(0) => break,
            Ok(written) => len += written,
            Err(error) if len == 0 => return Err(error.into()),
            // The client retries the rest and then receives the error.
            Err(_) => break,
        }
    }
    if len == 0 && !data.is_empty() { Err(Errno::NOSPC.into()) } else { Ok(len as u32) }
}

//! An NFS 3 service with one file in memory.

use std::sync::Mutex;

use bytes::Bytes;
use rpcrdma::server::{Context, HandlerError};
use rpcrdma_specs::nfs3::{nfs_v3::NfsV3, *};

/// A service of NFS 3 with one file. Every file handle refers to this file.
#[derive(Debug)]
pub(crate) struct OneFile(Mutex<Vec<u8>>);

impl Default for OneFile {
    fn default() -> Self {
        Self(Mutex::new((0..256 << 10).map(|at: u32| (at % 253) as u8).collect()))
    }
}

/// Implements procedures that always fail, because no test calls them.
macro_rules! unserved {
    ($($name:ident $args:ident $res:ident)*) => {
        $(async fn $name(&self, _cx: &Context, _args: $args) -> Result<$res, HandlerError> {
            Err(HandlerError::from(std::io::Error::from(std::io::ErrorKind::Unsupported)))
        })*
    };
}

impl NfsV3 for OneFile {
    async fn nfsproc3_read(&self, _cx: &Context, args: Read3args) -> Result<Read3res, HandlerError> {
        let file = self.0.lock().unwrap();
        let start = usize::try_from(args.offset).unwrap_or(usize::MAX).min(file.len());
        let end = start.saturating_add(args.count as usize).min(file.len());
        let data = Bytes::copy_from_slice(&file[start..end]);
        Ok(Read3res::Ok(Read3resok {
            file_attributes: PostOpAttr::False,
            count: data.len() as u32,
            eof: end == file.len(),
            data,
        }))
    }

    async fn nfsproc3_write(&self, _cx: &Context, args: Write3args) -> Result<Write3res, HandlerError> {
        let mut file = self.0.lock().unwrap();
        let start = usize::try_from(args.offset).unwrap_or(usize::MAX);
        let Some(place) = start.checked_add(args.data.len()).and_then(|end| file.get_mut(start..end)) else {
            return Err(HandlerError::from(std::io::Error::from(std::io::ErrorKind::InvalidInput)));
        };
        place.copy_from_slice(&args.data);
        let (count, file_wcc) =
            (args.data.len() as u32, WccData { before: PreOpAttr::False, after: PostOpAttr::False });
        Ok(Write3res::Ok(Write3resok { file_wcc, count, committed: StableHow::FileSync, verf: Default::default() }))
    }

    unserved! {
        nfsproc3_getattr Getattr3args Getattr3res
        nfsproc3_setattr Setattr3args Setattr3res
        nfsproc3_lookup Lookup3args Lookup3res
        nfsproc3_access Access3args Access3res
        nfsproc3_readlink Readlink3args Readlink3res
        nfsproc3_create Create3args Create3res
        nfsproc3_mkdir Mkdir3args Mkdir3res
        nfsproc3_symlink Symlink3args Symlink3res
        nfsproc3_mknod Mknod3args Mknod3res
        nfsproc3_remove Remove3args Remove3res
        nfsproc3_rmdir Rmdir3args Rmdir3res
        nfsproc3_rename Rename3args Rename3res
        nfsproc3_link Link3args Link3res
        nfsproc3_readdir Readdir3args Readdir3res
        nfsproc3_readdirplus Readdirplus3args Readdirplus3res
        nfsproc3_fsstat Fsstat3args Fsstat3res
        nfsproc3_fsinfo Fsinfo3args Fsinfo3res
        nfsproc3_pathconf Pathconf3args Pathconf3res
        nfsproc3_commit Commit3args Commit3res
    }
}

//! The calls of clients to the NFS service, and the model that their results are compared with.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use rpcrdma::{CallError, CallOptions, client::Invoke};
use rpcrdma_specs::nfs3::{
    Create3args, Create3res, Createhow3, Createverf3, Diropargs3, Filename3, Lookup3args, Lookup3res, Nfsstat3,
    Read3args, Read3res, Readdir3args, Readdir3res, Remove3args, Remove3res, Rename3args, Rename3res, StableHow,
    Write3args, Write3res, nfs_v3::NfsV3Client,
};

use crate::{calls::data, file_tree::handle, linearizability::Model};

/// Number of blocks of a file.
pub const BLOCKS: usize = 3;

/// A call to the NFS service. Names are numbers. All blocks of a run have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCall {
    /// LOOKUP of a name.
    LookUp {
        /// The name to look up.
        name: u8,
    },
    /// CREATE of a file, in the mode EXCLUSIVE.
    Create {
        /// The name of the new file.
        name: u8,
        /// The ID of the new file, which the client sends as the create verifier.
        file: u64,
    },
    /// REMOVE of a file.
    Remove {
        /// The name to remove.
        name: u8,
    },
    /// RENAME of a file.
    Rename {
        /// The old name.
        from: u8,
        /// The new name.
        to: u8,
    },
    /// READDIR of the directory.
    List,
    /// READ of a block.
    Read {
        /// The name by which the client looks the file up before the call.
        name: u8,
        /// The file ID that LOOKUP returned. 0 before the LOOKUP.
        file: u64,
        /// The index of the block.
        block: u8,
    },
    /// WRITE of a block that contains the number of the operation.
    Write {
        /// The name by which the client looks the file up before the call.
        name: u8,
        /// The file ID that LOOKUP returned. 0 before the LOOKUP.
        file: u64,
        /// The index of the block.
        block: u8,
        /// The number to write.
        number: u64,
    },
}

impl FileCall {
    /// Returns `true` if the call changes nothing, so that clients may repeat it without a duplicate request cache.
    #[must_use]
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::LookUp { .. } | Self::List | Self::Read { .. })
    }

    /// Returns the name of the file that the client has to look up before the call, or `None` if no LOOKUP is
    /// necessary.
    #[must_use]
    pub const fn name_to_look_up(self) -> Option<u8> {
        match self {
            Self::Read { name, file: 0, .. } | Self::Write { name, file: 0, .. } => Some(name),
            _ => None,
        }
    }

    /// Returns this call with the file ID that LOOKUP returned.
    #[must_use]
    pub const fn with_file(self, found: u64) -> Self {
        match self {
            Self::Read { name, block, .. } => Self::Read { name, file: found, block },
            Self::Write { name, block, number, .. } => Self::Write { name, file: found, block, number },
            other => other,
        }
    }
}

/// The result of a [`FileCall`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileReply {
    /// The call succeeded. Its reply has nothing else to compare.
    Done,
    /// The name does not exist (NFS3ERR_NOENT).
    Missing,
    /// Another file has the name (NFS3ERR_EXIST).
    Exists,
    /// The file was removed (NFS3ERR_STALE).
    Stale,
    /// The ID of a file.
    File(u64),
    /// The number in a block, or 0 if the block was not written.
    Block(u64),
    /// The names with the IDs of their files.
    Names(Vec<(u8, u64)>),
}

/// The state of the model [`Directory`]: the files by name, and the blocks by file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DirectoryState {
    names: BTreeMap<u8, u64>,
    blocks: BTreeMap<u64, [u64; BLOCKS]>,
}

/// The model of a directory for the linearizability check.
#[derive(Debug)]
pub struct Directory;

impl Directory {
    fn apply(state: &mut DirectoryState, call: &FileCall) -> FileReply {
        match *call {
            FileCall::LookUp { name } => {
                state.names.get(&name).map_or(FileReply::Missing, |file| FileReply::File(*file))
            }
            FileCall::Create { name, file } => {
                if *state.names.entry(name).or_insert(file) != file {
                    return FileReply::Exists;
                }
                state.blocks.entry(file).or_default();
                FileReply::Done
            }
            FileCall::Remove { name } => {
                let Some(file) = state.names.remove(&name) else { return FileReply::Missing };
                state.blocks.remove(&file);
                FileReply::Done
            }
            FileCall::Rename { from, to } => {
                let Some(file) = state.names.remove(&from) else { return FileReply::Missing };
                if let Some(replaced) = state.names.insert(to, file) {
                    state.blocks.remove(&replaced);
                }
                FileReply::Done
            }
            FileCall::List => FileReply::Names(state.names.iter().map(|(name, file)| (*name, *file)).collect()),
            FileCall::Read { file, block, .. } => {
                state.blocks.get(&file).map_or(FileReply::Stale, |blocks| FileReply::Block(blocks[usize::from(block)]))
            }
            FileCall::Write { file, block, number, .. } => {
                let Some(blocks) = state.blocks.get_mut(&file) else { return FileReply::Stale };
                blocks[usize::from(block)] = number;
                FileReply::Done
            }
        }
    }
}

impl Model for Directory {
    type State = DirectoryState;
    type Call = FileCall;
    type Reply = FileReply;

    fn step(state: &DirectoryState, call: &FileCall, reply: Option<&FileReply>) -> Option<DirectoryState> {
        let mut after = state.clone();
        let expected = Self::apply(&mut after, call);
        reply.is_none_or(|reply| *reply == expected).then_some(after)
    }

    fn only_reads(call: &FileCall) -> bool {
        call.only_reads()
    }
}

/// Returns the name of a file. Names are long, so that listings need long messages.
fn name(number: u8) -> Filename3 {
    Filename3(Bytes::from(format!("{}-{number}", "file".repeat(50))).into())
}

fn number(name: &Filename3) -> Option<u8> {
    std::str::from_utf8(name.0.as_bytes()).ok()?.rsplit_once('-')?.1.parse().ok()
}

/// Returns `len` bytes as the contents of a block: `number`, and bytes that depend on `number`.
fn block_data(number: u64, len: u32) -> Bytes {
    let mut block = BytesMut::with_capacity(len as usize);
    block.put_u64(number);
    block.put(data(number, len - 8));
    block.freeze()
}

/// Returns the number in a block, or 0 if the block was not written. Returns an error if the rest of the block does not
/// match the number.
fn block_number(block: &[u8], len: u32) -> Result<u64, String> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let number = block.first_chunk().map(|number| u64::from_be_bytes(*number)).unwrap_or_default();
    if block == block_data(number, len) {
        Ok(number)
    } else {
        Err(format!("the {} bytes are not block {number}", block.len()))
    }
}

/// Makes a call in a directory, whose files have blocks of `len` bytes. The inner error describes what is wrong with
/// the reply.
///
/// # Errors
/// Returns the error of the call.
pub async fn call<C: Invoke>(
    client: &NfsV3Client<C>,
    directory: u64,
    call: FileCall,
    len: u32,
    options: CallOptions,
) -> Result<Result<FileReply, String>, CallError> {
    let at = |number| Diropargs3 { dir: handle(directory), name: name(number) };
    let failure = |status| match status {
        Nfsstat3::Noent => Ok(FileReply::Missing),
        Nfsstat3::Exist => Ok(FileReply::Exists),
        Nfsstat3::Stale => Ok(FileReply::Stale),
        other => Err(format!("the status is {other:?}")),
    };
    Ok(match call {
        FileCall::LookUp { name } => {
            match client.nfsproc3_lookup_with(&Lookup3args { what: at(name) }, options).await? {
                Lookup3res::Ok(ok) => match ok.object.data[..].try_into() {
                    Ok(file) => Ok(FileReply::File(u64::from_be_bytes(file))),
                    Err(_) => Err(format!("the handle {:?} is wrong", ok.object)),
                },
                Lookup3res::Default(status, _) => failure(status),
            }
        }
        FileCall::Create { name, file } => {
            let how = Createhow3::Exclusive(Createverf3(file.to_be_bytes()));
            match client.nfsproc3_create_with(&Create3args { r#where: at(name), how }, options).await? {
                Create3res::Ok(_) => Ok(FileReply::Done),
                Create3res::Default(status, _) => failure(status),
            }
        }
        FileCall::Remove { name } => {
            match client.nfsproc3_remove_with(&Remove3args { object: at(name) }, options).await? {
                Remove3res::Ok(_) => Ok(FileReply::Done),
                Remove3res::Default(status, _) => failure(status),
            }
        }
        FileCall::Rename { from, to } => {
            match client.nfsproc3_rename_with(&Rename3args { from: at(from), to: at(to) }, options).await? {
                Rename3res::Ok(_) => Ok(FileReply::Done),
                Rename3res::Default(status, _) => failure(status),
            }
        }
        FileCall::List => {
            let args = Readdir3args { dir: handle(directory), cookie: 0, cookieverf: Default::default(), count: 8192 };
            match client.nfsproc3_readdir_with(&args, options).await? {
                Readdir3res::Ok(ok) => {
                    let names = ok.reply.entries.iter().map(|entry| Some((number(&entry.name)?, entry.fileid)));
                    names.collect::<Option<_>>().map(FileReply::Names).ok_or_else(|| "a name is wrong".into())
                }
                Readdir3res::Default(status, _) => failure(status),
            }
        }
        FileCall::Read { file, block, .. } => {
            let args = Read3args { file: handle(file), offset: u64::from(block) * u64::from(len), count: len };
            match client.nfsproc3_read_with(&args, options).await? {
                Read3res::Ok(ok) => block_number(&ok.data, len).map(FileReply::Block),
                Read3res::Default(status, _) => failure(status),
            }
        }
        FileCall::Write { file, block, number, .. } => {
            let (offset, data) = (u64::from(block) * u64::from(len), block_data(number, len));
            let args = Write3args { file: handle(file), offset, count: len, stable: StableHow::FileSync, data };
            match client.nfsproc3_write_with(&args, options).await? {
                Write3res::Ok(ok) if ok.count == len => Ok(FileReply::Done),
                Write3res::Ok(ok) => Err(format!("{} bytes were written", ok.count)),
                Write3res::Default(status, _) => failure(status),
            }
        }
    })
}

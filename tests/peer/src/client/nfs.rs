//! A small NFS 3 server (RFC 1813): a directory with one file, so that clients make calls with chunks.

use rpcrdma_specs::nfs3::{
    Access3res, Access3resok, Commit3res, Commit3resok, Fattr3, Fsinfo3res, Fsinfo3resok, Ftype3, Getattr3res,
    Getattr3resok, Lookup3res, Lookup3resok, NfsFh3, Nfstime3, Pathconf3res, Pathconf3resok, PostOpAttr, PreOpAttr,
    Read3args, Specdata3, StableHow, WccData,
};
use rpcrdma_xdr::xdr::{Decoder, XdrDecode};

use crate::rpc;

/// Number of the procedure READ.
pub(super) const READ: u32 = 6;
/// Number of the procedure WRITE.
pub(super) const WRITE: u32 = 7;
/// Size of the file in bytes.
const SIZE: u64 = 1 << 20;
/// Maximum number of data bytes in a READ or WRITE, as FSINFO reports it.
const TRANSFER: u32 = 64 << 10;
/// The handle of the file. Any other handle names the directory.
const FILE: &[u8] = b"file";

/// Returns `len` bytes of the file from an offset, or fewer at the end of the file.
pub(super) fn contents(offset: u64, len: u32) -> Vec<u8> {
    let end = (offset + u64::from(len)).min(SIZE);
    (offset.min(end)..end).map(|at| (at % 251) as u8).collect()
}

fn attributes(is_file: bool) -> Fattr3 {
    let time = || Nfstime3 { seconds: 1, nseconds: 0 };
    Fattr3 {
        r#type: if is_file { Ftype3::Reg } else { Ftype3::Dir },
        mode: if is_file { 0o666 } else { 0o777 },
        nlink: if is_file { 1 } else { 2 },
        uid: 0,
        gid: 0,
        size: if is_file { SIZE } else { 4096 },
        used: SIZE,
        rdev: Specdata3 { specdata1: 0, specdata2: 0 },
        fsid: 1,
        fileid: if is_file { 2 } else { 1 },
        atime: time(),
        mtime: time(),
        ctime: time(),
    }
}

/// Returns the offset and the count of a READ. Returns `None` if the arguments are malformed.
pub(super) fn read_args(args: &[u8]) -> Option<(u64, u32)> {
    let Read3args { offset, count, .. } = Read3args::decode(&mut Decoder::new(args)).ok()?;
    Some((offset, count))
}

/// Returns the results of a READ up to the data, and the data. Returns `None` if the arguments are malformed.
pub(super) fn read(args: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (offset, count) = read_args(args)?;
    let data = contents(offset, count);
    let is_end = offset + data.len() as u64 >= SIZE;
    let attributes = rpc::encode(&PostOpAttr::True(attributes(true)));
    let rest = rpc::words(&[data.len() as u32, is_end.into(), data.len() as u32]);
    Some(([rpc::words(&[0]), attributes, rest].concat(), data))
}

/// Returns the complete results of a READ, with the data. Returns `None` if the arguments are malformed.
pub(super) fn read_inline(args: &[u8]) -> Option<Vec<u8>> {
    let (results, data) = read(args)?;
    let mut inline = [results, data].concat();
    inline.resize(inline.len().next_multiple_of(4), 0);
    Some(inline)
}

/// Returns the count of a WRITE, with or without the data. Returns `None` if the arguments are malformed.
pub(super) fn write_count(args: &[u8]) -> Option<u32> {
    let mut decoder = Decoder::new(args);
    NfsFh3::decode(&mut decoder).ok()?;
    u64::decode(&mut decoder).ok()?;
    u32::decode(&mut decoder).ok()
}

/// Returns the results of a successful WRITE of `len` bytes.
pub(super) fn written(len: u32) -> Vec<u8> {
    let wcc = WccData { before: PreOpAttr::False, after: PostOpAttr::True(attributes(true)) };
    [rpc::words(&[0]), rpc::encode(&wcc), rpc::words(&[len, StableHow::FileSync as u32, 1, 1])].concat()
}

/// Returns the results of a procedure other than READ and WRITE. Returns `None` if the procedure is not served.
pub(super) fn results(procedure: u32, args: &[u8]) -> Option<Vec<u8>> {
    let is_file = NfsFh3::decode(&mut Decoder::new(args)).is_ok_and(|handle| handle.data[..] == *FILE);
    let post = || PostOpAttr::True(attributes(is_file));
    Some(match procedure {
        0 => Vec::new(),
        1 => rpc::encode(&Getattr3res::Ok(Getattr3resok { obj_attributes: attributes(is_file) })),
        3 => rpc::encode(&Lookup3res::Ok(Lookup3resok {
            object: NfsFh3 { data: FILE.into() },
            obj_attributes: PostOpAttr::True(attributes(true)),
            dir_attributes: post(),
        })),
        4 => rpc::encode(&Access3res::Ok(Access3resok { obj_attributes: post(), access: 0x3f })),
        19 => rpc::encode(&Fsinfo3res::Ok(Fsinfo3resok {
            obj_attributes: post(),
            rtmax: TRANSFER,
            rtpref: TRANSFER,
            rtmult: 4096,
            wtmax: TRANSFER,
            wtpref: TRANSFER,
            wtmult: 4096,
            dtpref: 4096,
            maxfilesize: SIZE,
            time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
            properties: 0x1b,
        })),
        20 => rpc::encode(&Pathconf3res::Ok(Pathconf3resok {
            obj_attributes: post(),
            linkmax: 1,
            name_max: 255,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })),
        21 => rpc::encode(&Commit3res::Ok(Commit3resok {
            file_wcc: WccData { before: PreOpAttr::False, after: post() },
            verf: Default::default(),
        })),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rpcrdma_specs::nfs3::Write3args;

    use super::*;

    /// The count of a WRITE is not the last word of its data, and is there without the data as well.
    #[test]
    fn counts_of_inline_and_reduced_writes() {
        let data = vec![7; 12];
        let file = NfsFh3 { data: FILE.into() };
        let args = Write3args { file, offset: 9, count: 12, stable: StableHow::Unstable, data: data.into() };
        let inline = rpc::encode(&args);
        assert_eq!(write_count(&inline), Some(12));
        assert_eq!(write_count(&inline[..inline.len() - 12]), Some(12));
        assert_eq!(write_count(&inline[..10]), None);
    }

    #[test]
    fn an_inline_read_ends_with_its_padded_data() {
        let args = Read3args { file: NfsFh3 { data: FILE.into() }, offset: 250, count: 3 };
        let results = read_inline(&rpc::encode(&args)).unwrap();
        assert_eq!(results[results.len() - 8..], [0, 0, 0, 3, 250, 0, 1, 0]);
    }
}

//! The handle of a file at an NFS 3 server. MOUNT over TCP finds the folder (RFC 1813 appendix I), and LOOKUP over RDMA
//! finds the file.

use anyhow::{Context as _, bail, ensure};
use rpcrdma_peer::{server::look_up, transport::Target};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The program MOUNT, its version, and its procedure MNT.
const MNT: [u32; 3] = [100_005, 3, 1];
/// The bit of a record mark that marks the last fragment (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;
/// Maximum length of a reply of MOUNT, in bytes.
const MAX_REPLY: u32 = 64 << 10;

/// Decodes pairs of hexadecimal digits. Fails if there is no pair, if a digit has no partner, or for any other
/// character.
pub(crate) fn from_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    ensure!(text.len().is_multiple_of(2) && !text.is_empty(), "an odd number of digits");
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.context("not hexadecimal")?;
    Ok(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect())
}

/// Returns the handle of a file. `mount` is `HOST:PORT:PATH`, with the address of the MOUNT service and the path of the
/// file. `target` is the NFS server.
pub(crate) async fn find(mount: &str, target: Target) -> anyhow::Result<Vec<u8>> {
    let mut parts = mount.rsplitn(2, ':');
    let (path, authority) = (parts.next().unwrap_or_default(), parts.next().context("not HOST:PORT:PATH")?);
    let (folder, name) = path.rsplit_once('/').context("the path is not absolute")?;
    let folder = if folder.is_empty() { "/" } else { folder };
    let root = mount_folder(authority, folder).await?;
    look_up(target, &root, name).await
}

/// Returns the handle of a folder that the server exports.
async fn mount_folder(authority: &str, folder: &str) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(authority).await.with_context(|| format!("cannot connect to {authority}"))?;
    let [program, version, procedure] = MNT;
    let mut call: Vec<u8> = Vec::new();
    // AUTH_SYS of root: stamp, an empty machine name, user, group, no groups.
    let words = [1, 0, 2, program, version, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0, folder.len() as u32];
    words.iter().for_each(|word: &u32| call.extend_from_slice(&word.to_be_bytes()));
    call.extend_from_slice(folder.as_bytes());
    call.resize(call.len().next_multiple_of(4), 0);
    stream.write_u32(LAST_FRAGMENT | call.len() as u32).await?;
    stream.write_all(&call).await?;
    let mark = stream.read_u32().await.context("MOUNT sent no reply")?;
    let len = mark & !LAST_FRAGMENT;
    ensure!(mark & LAST_FRAGMENT != 0 && len <= MAX_REPLY, "MOUNT sent a long reply");
    let mut reply = vec![0; len as usize];
    stream.read_exact(&mut reply).await?;
    let words: Vec<u32> = reply.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    // XID, REPLY, MSG_ACCEPTED, verifier of no length, SUCCESS, MNT3_OK, length of the handle.
    match words[..] {
        [1, 1, 0, 0, 0, 0, 0, len, ..] => {
            let handle = reply.get(32..32 + len as usize);
            Ok(handle.context("MOUNT sent a short handle")?.to_vec())
        }
        [1, 1, 0, 0, 0, 0, status, ..] => bail!("MOUNT refuses {folder}: status {status}"),
        _ => bail!("MOUNT refuses the call"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_hexadecimal() {
        assert_eq!(from_hex("00fF10").unwrap(), [0, 255, 16]);
        for text in ["", "0", "0g", "é0", "+1"] {
            assert!(from_hex(text).is_err(), "{text}");
        }
    }
}

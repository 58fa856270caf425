//! Lookup of paths in an export, with one LOOKUP for each component. Follows symbolic links that stay in the export.

use std::collections::VecDeque;

use bytes::Bytes;
use rpcrdma_specs::nfs3::{Ftype3, NfsFh3};

use super::{
    client::{Nfs, Node},
    error::CopyError,
    mount::Mounted,
};

/// Maximum number of symbolic links to follow in one path, as in Linux.
const MAX_LINKS: u32 = 40;

/// The result of a path lookup.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// The path exists.
    Found {
        /// The object.
        node: Node,
        /// The directory and the name of the object. Always `Some` if the object is not a directory.
        entry: Option<(NfsFh3, Bytes)>,
    },
    /// The path does not exist, but its directory does.
    Absent {
        /// The parent directory.
        dir: Node,
        /// The name of the missing object.
        name: Bytes,
    },
}

/// Looks up `path`, relative to the root of `mounted`.
///
/// The server does not follow symbolic links (RFC 1813 §3.3.5), so this function does. The target of an absolute link
/// is a path on the server. The link is followed only if this path leads back into the export.
///
/// # Errors
/// Returns errors of GETATTR, LOOKUP and READLINK. Fails if a directory in the path does not exist, for links that lead
/// out of the export, and after too many links.
pub async fn resolve(nfs: &Nfs, mounted: &Mounted, path: &[u8]) -> Result<Resolved, CopyError> {
    let root = nfs.getattr(mounted.root.clone()).await?;
    // The ancestors of the current directory, starting at the root.
    let mut way = vec![];
    let mut here = root.clone();
    let mut entry = None;
    let mut todo: VecDeque<Bytes> = components(path);
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if &*name == b".." {
            // Stay at the root: its `..` may be refused, or lead out of the export.
            here = way.pop().unwrap_or_else(|| root.clone());
            entry = None;
            continue;
        }
        let Some(node) = nfs.find(&here.handle, &name).await? else {
            if !todo.is_empty() {
                return Err(CopyError::InvalidTarget(format!("no such directory: {}", String::from_utf8_lossy(&name))));
            }
            return Ok(Resolved::Absent { dir: here, name });
        };
        if node.attributes.r#type != Ftype3::Lnk {
            entry = Some((here.handle.clone(), name));
            way.push(std::mem::replace(&mut here, node));
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(CopyError::InvalidTarget("too many levels of symbolic links".into()));
        }
        let target = nfs.readlink(&node.handle).await?;
        let inside;
        let target = if target.starts_with(b"/") {
            let shown = String::from_utf8_lossy(&target).into_owned();
            inside = mounted.inside(&target).ok_or_else(|| {
                CopyError::InvalidTarget(format!("a symbolic link leads to {shown}, which is outside of this export"))
            })?;
            way.clear();
            here = root.clone();
            entry = None;
            &inside
        } else {
            &*target
        };
        for part in components(target).into_iter().rev() {
            todo.push_front(part);
        }
    }
    Ok(Resolved::Found { node: here, entry })
}

fn components(path: &[u8]) -> VecDeque<Bytes> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.map(Bytes::copy_from_slice).collect()
}

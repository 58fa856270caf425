//! Paths below an export: one LOOKUP a component, symbolic links followed where they stay in the export.

use std::collections::VecDeque;

use bytes::Bytes;
use rpcrdma_specs::nfs3::{Ftype3, NfsFh3};

use super::{
    client::{Nfs, Node},
    error::CopyError,
    mount::Mounted,
};

/// Most symbolic links of one path that are followed, as Linux has it.
const MAX_LINKS: u32 = 40;

/// What a path leads to.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// Something that is there.
    Found {
        /// What it is.
        node: Node,
        /// Its directory and its name there; of what is no directory always known.
        entry: Option<(NfsFh3, Bytes)>,
    },
    /// Nothing yet, but its directory.
    Absent {
        /// The directory it would be in.
        dir: Node,
        /// The name it would have.
        name: Bytes,
    },
}

/// Looks up `path`, which is relative to the root of `mounted`.
///
/// The server does not follow symbolic links (RFC 1813 §3.3.5). An absolute one leads where the server says, so it is
/// followed only as far as it leads into the export again.
///
/// # Errors
/// As LOOKUP's, and for links that lead out of the export or in circles.
pub async fn resolve(nfs: &Nfs, mounted: &Mounted, path: &[u8]) -> Result<Resolved, CopyError> {
    let root = nfs.getattr(mounted.root.clone()).await?;
    // The directories above where we are, from the root down.
    let mut way = vec![];
    let mut here = root.clone();
    let mut entry = None;
    let mut todo: VecDeque<Bytes> = components(path);
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if &*name == b".." {
            // Not past the root: LOOKUP of `..` there would be refused or lead out.
            here = way.pop().unwrap_or_else(|| root.clone());
            entry = None;
            continue;
        }
        let Some(node) = nfs.find(&here.handle, &name).await? else {
            if !todo.is_empty() {
                return Err(CopyError::Unfit(format!("there is no directory {}", String::from_utf8_lossy(&name))));
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
            return Err(CopyError::Unfit("too many symbolic links: do they lead in a circle?".into()));
        }
        let target = nfs.readlink(&node.handle).await?;
        let inside;
        let target = if target.starts_with(b"/") {
            let shown = String::from_utf8_lossy(&target).into_owned();
            inside = mounted.inside(&target).ok_or_else(|| {
                CopyError::Unfit(format!("a symbolic link leads to {shown}, which is not in this export"))
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
    let parts = path.split(|octet| *octet == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.map(Bytes::copy_from_slice).collect()
}

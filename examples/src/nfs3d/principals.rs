//! Mapping of Kerberos principals to users, by a static file and by the users of the system.

use std::{
    collections::HashMap,
    io,
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;

/// Maximum number of principals whose users are remembered.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Time after which a principal is looked up again, so that changed groups take effect.
const LIFETIME: Duration = Duration::from_secs(300);

/// The user ID, the group ID and the supplementary group IDs of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

/// The error for an invalid file of principals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}, expected PRINCIPAL UID GID [GROUP..]")]
pub struct PrincipalFileError {
    /// The number of the line. The first line has the number 1.
    pub line: usize,
    /// The reason why the line is invalid.
    pub why: String,
}

/// The error for a failure of the user or group database. A later lookup may succeed.
#[derive(Debug, thiserror::Error)]
#[error("cannot look up the user of the principal {principal}")]
pub(super) struct LookupError {
    principal: String,
    source: io::Error,
}

/// A mapping of Kerberos principals to users: the entries of a file and, for other principals, the users of the system.
#[derive(Debug)]
pub struct Principals {
    listed: HashMap<String, User>,
    /// The function that returns the user of the system for a principal. Tests replace it.
    lookup: fn(&str) -> io::Result<Option<User>>,
    /// The users of the system that were looked up, by principal, each with the time of the lookup. `None` stands for a
    /// principal without a user.
    known: Mutex<LruCache<String, (Instant, Option<User>)>>,
}

impl Default for Principals {
    /// Returns a mapping to the users of the system only, without entries of a file.
    fn default() -> Self {
        Self { listed: HashMap::new(), lookup: system_user, known: Mutex::new(LruCache::new(MAX_KNOWN)) }
    }
}

impl Principals {
    /// Parses a file of principals, which take precedence over the users of the system. Each line has a principal, its
    /// user ID, its group ID and its supplementary group IDs, separated by blanks: `alice@EXAMPLE.COM 1000 1000 27`.
    /// `#` begins a comment.
    ///
    /// # Errors
    /// Returns an error for the first invalid line.
    pub fn parse(text: &str) -> Result<Self, PrincipalFileError> {
        let mut listed = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let failed = |why: String| PrincipalFileError { line: index + 1, why };
            let line = line.split_once('#').map_or(line, |(line, _)| line);
            let mut words = line.split_ascii_whitespace();
            let Some(principal) = words.next() else { continue };
            let ids: Result<Vec<u32>, _> = words.map(|word| parse_id(word).map_err(failed)).collect();
            let ids = ids?;
            let [uid, gid, groups @ ..] = ids.as_slice() else {
                return Err(failed("the user ID or the group ID is missing".to_owned()));
            };
            let user = User { uid: *uid, gid: *gid, groups: groups.to_vec() };
            if listed.insert(principal.to_owned(), user).is_some() {
                return Err(failed(format!("{principal} is repeated")));
            }
        }
        Ok(Self { listed, ..Self::default() })
    }

    /// Returns the user of a principal. Returns `None` if the principal has no user. May block.
    ///
    /// # Errors
    /// Fails if the user or group database cannot be queried.
    pub(super) fn user(&self, principal: &str) -> Result<Option<User>, LookupError> {
        if let Some(user) = self.listed.get(principal) {
            return Ok(Some(user.clone()));
        }
        if let Some((since, user)) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(principal)
            && since.elapsed() < LIFETIME
        {
            return Ok(user.clone());
        }
        // Not the anonymous user: new files would belong to it.
        let user = (self.lookup)(principal);
        let user = user.map_err(|source| LookupError { principal: principal.to_owned(), source })?;
        let entry = (Instant::now(), user.clone());
        self.known.lock().unwrap_or_else(PoisonError::into_inner).put(principal.to_owned(), entry);
        Ok(user)
    }
}

fn parse_id(word: &str) -> Result<u32, String> {
    match word.parse() {
        // The system takes the ID -1 for no ID.
        Ok(u32::MAX) | Err(_) => Err(format!("{word} is not an ID")),
        Ok(id) => Ok(id),
    }
}

/// Returns the user of the system for a principal. The rules of `krb5.conf` determine the user name, and the user and
/// group database its IDs.
#[cfg(feature = "gss")]
fn system_user(principal: &str) -> io::Result<Option<User>> {
    use nix::unistd::User as SystemUser;
    let name = match rpcrdma::gss::local_user(principal) {
        Ok(name) => name,
        Err(error) => {
            tracing::info!(principal, %error, "no local user, using the anonymous user");
            return Ok(None);
        }
    };
    let Some(user) = SystemUser::from_name(&name)? else {
        tracing::info!(principal, user = name, "the local user does not exist, using the anonymous user");
        return Ok(None);
    };
    let name = std::ffi::CString::new(name)?;
    let groups = nix::unistd::getgrouplist(&name, user.gid)?;
    let groups = groups.into_iter().filter(|group| *group != user.gid).map(nix::unistd::Gid::as_raw).collect();
    Ok(Some(User { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }))
}

/// Returns no user. Without the feature `gss`, calls have no principal, unless the server has another authenticator.
#[cfg(not(feature = "gss"))]
fn system_user(_principal: &str) -> io::Result<Option<User>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files() {
        let text = "# users\nalice@EXAMPLE.COM 1000 1001 27 28 # admin\n\n  nfs/client@EXAMPLE.COM\t0 0\n";
        let principals = Principals::parse(text).unwrap();
        let user = |principal| principals.user(principal).unwrap();
        assert_eq!(user("alice@EXAMPLE.COM"), Some(User { uid: 1000, gid: 1001, groups: vec![27, 28] }));
        assert_eq!(user("nfs/client@EXAMPLE.COM").map(|user| user.uid), Some(0));
        assert_eq!(user("alice@ELSEWHERE.EXAMPLE"), None);
        for bad in ["alice", "alice 1", "alice 1 x", "alice 4294967295 1", "alice -1 1", "alice 1 1\nalice 2 2"] {
            let error = Principals::parse(bad).err().unwrap();
            assert_eq!(error.line, bad.lines().count(), "{error}");
        }
    }

    /// A failed lookup is an error, and is not remembered.
    #[test]
    fn failed_lookups() {
        let mut principals = Principals { lookup: |_| Err(io::ErrorKind::TimedOut.into()), ..Principals::default() };
        let error = principals.user("alice@EXAMPLE.COM").unwrap_err();
        assert!(error.to_string().contains("alice@EXAMPLE.COM"), "{error}");
        principals.lookup = |_| Ok(Some(User { uid: 7, gid: 8, groups: vec![] }));
        assert_eq!(principals.user("alice@EXAMPLE.COM").unwrap().map(|user| user.uid), Some(7));
    }
}

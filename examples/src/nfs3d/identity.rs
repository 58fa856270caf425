//! The identity under which a call is performed. It is an AUTH_SYS identity or the user of a Kerberos principal. The
//! export's policy may squash it, and the kernel enforces it.
//!
//! File operations run with the caller's user, group and supplementary groups as the effective IDs of the *thread*. All
//! permissions, access control lists, set-group-ID directories, quotas and capabilities therefore apply as for that
//! user on this machine. The IDs are set by raw system calls, because the functions of the C library change the IDs of
//! all threads. [`AssumedIdentity`] restores the IDs when it is dropped, also on a panic. If that fails, the process
//! aborts, because a thread that serves other callers must not keep the identity.
//!
//! Changing identities requires capabilities. Without them the server can act only as the user it runs as, and refuses
//! calls by others unless all callers are squashed to that user. When a thread of root changes its user ID, it loses
//! the capabilities that override permissions. A thread of another user keeps them, so a server with such capabilities
//! [must not start](Identities::check).

use std::{fmt, marker::PhantomData};

use rpcrdma::rpc::{AuthFailure, AuthStat, Credential};
use rpcrdma::security::Principal;
use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::{
    io::Errno,
    process::{getegid, geteuid, getgroups},
    thread::{CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

pub use rustix::fs::{Gid, Uid};

use super::{
    principals::{LookupError, Principals, User},
    prompt,
    status::{NfsError, NfsResult},
};

/// The default user and group ID of the anonymous user.
pub const NOBODY: u32 = 65534;

/// The policy for mapping callers to the anonymous user. Callers with AUTH_NONE, principals without a user, and the ID
/// -1 are always mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Squash {
    /// Map root, and the group of root, to the anonymous user and its group.
    #[default]
    Root,
    /// Map no other users. Root calls are performed as root.
    None,
    /// Map all users to the anonymous user.
    All,
}

/// A user with a group and supplementary groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    /// Returns the ID of the user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }
}

/// The caller of an accepted call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// A caller whose identity is known.
    Known(Identity),
    /// A Kerberos principal whose user has to be looked up.
    Principal(String),
}

/// The mapping of callers to the users that perform their calls: the squashing policy of an export, the users of
/// Kerberos principals, and the ability of this process to act as other users.
#[derive(Debug)]
pub struct Identities {
    squash: Squash,
    anonymous: (u32, u32),
    principals: Principals,
    own: ProcessIdentity,
    switching: bool,
    /// The capabilities that override permissions, and that threads keep while they perform calls.
    overriding: CapabilitySet,
    /// `true` if threads of the runtime may change their identity.
    any_thread: bool,
}

/// The identity that the process runs as.
#[derive(Debug, Clone)]
struct ProcessIdentity {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl ProcessIdentity {
    /// Makes the calling thread act as the process again.
    fn restore(&self, changes: IdentityChanges) -> Result<(), Errno> {
        // The user comes first, as root's user ID brings back its capabilities.
        if changes.uid {
            set_thread_res_uid(None, self.uid, None)?;
        }
        if changes.gid {
            set_thread_res_gid(None, self.gid, None)?;
        }
        if changes.groups {
            set_thread_groups(&self.groups)?;
        }
        Ok(())
    }
}

impl Identities {
    /// Creates a policy with the IDs of the anonymous user. The defaults are [`NOBODY`], or this process's own IDs if
    /// it cannot act as another user.
    #[must_use]
    pub fn new(squash: Squash, uid: Option<u32>, gid: Option<u32>) -> Self {
        let own = ProcessIdentity { uid: geteuid(), gid: getegid(), groups: getgroups().unwrap_or_default() };
        let (switching, overriding) = try_switch(&own);
        let default = |own: u32| if switching { NOBODY } else { own };
        let anonymous =
            (uid.unwrap_or_else(|| default(own.uid.as_raw())), gid.unwrap_or_else(|| default(own.gid.as_raw())));
        Self { squash, anonymous, principals: Principals::default(), own, switching, overriding, any_thread: false }
    }

    /// Sets whether threads of the runtime may act as callers, which is faster. The default is `false`, and only
    /// threads for blocking work change their identity.
    ///
    /// A process that uses RDMA devices must not set this to `true`. The kernel refuses the devices to a thread that
    /// has changed its identity since they were opened, even if the thread has restored its identity.
    #[must_use]
    pub fn with_any_thread(mut self, any_thread: bool) -> Self {
        self.any_thread = any_thread;
        self
    }

    /// Sets the mapping of Kerberos principals to users.
    #[must_use]
    pub fn with_principals(mut self, principals: Principals) -> Self {
        self.principals = principals;
        self
    }

    /// Checks that the kernel will apply the permissions of files to calls.
    ///
    /// # Errors
    /// Returns an error if the process is not root and has capabilities that override permissions, because calls would
    /// be performed with these.
    pub fn check(&self) -> Result<(), OverridingCapabilities> {
        if self.overriding.is_empty() { Ok(()) } else { Err(OverridingCapabilities(self.overriding)) }
    }

    /// Returns `true` if the server performs calls as their callers. If not, it performs calls only as the process's
    /// own user.
    #[must_use]
    pub fn enforced(&self) -> bool {
        self.switching
    }

    /// Returns the identity for a credential, according to the squashing policy. AUTH_NONE gets the anonymous user.
    ///
    /// # Errors
    /// Returns AUTH_BADCRED for flavors other than AUTH_NONE and AUTH_SYS.
    pub fn identity_of(&self, credential: &Credential) -> Result<Identity, AuthFailure> {
        match credential {
            Credential::None => Ok(self.anonymous()),
            Credential::Sys(caller) => {
                Ok(self.squashed(User { uid: caller.uid, gid: caller.gid, groups: caller.gids.to_vec() }))
            }
            _ => Err(AuthStat::AuthBadcred.into()),
        }
    }

    /// Returns the identity of the anonymous user.
    pub(super) fn anonymous(&self) -> Identity {
        let (uid, gid) = self.anonymous;
        Identity { uid, gid, groups: Vec::new() }
    }

    /// Returns the caller for a credential, or for the principal that the credential proves. The user of a principal is
    /// not looked up. Without a principal, fails as [`identity_of`](Self::identity_of) does.
    pub(super) fn caller(&self, credential: &Credential, principal: Option<&Principal>) -> Result<Caller, AuthFailure> {
        match principal {
            Some(_) if self.squash == Squash::All => Ok(Caller::Known(self.anonymous())),
            Some(principal) => Ok(Caller::Principal(principal.name.clone())),
            None => self.identity_of(credential).map(Caller::Known),
        }
    }

    /// Returns the identity of a caller. A principal without a user gets the anonymous user. May block.
    ///
    /// # Errors
    /// Fails if the database of users does not answer.
    pub(super) fn identity(&self, caller: Caller) -> Result<Identity, LookupError> {
        match caller {
            Caller::Known(identity) => Ok(identity),
            Caller::Principal(name) => {
                Ok(self.principals.user(&name)?.map_or_else(|| self.anonymous(), |user| self.squashed(user)))
            }
        }
    }

    fn squashed(&self, caller: User) -> Identity {
        let anonymous = self.anonymous();
        if self.squash == Squash::All {
            return anonymous;
        }
        // The ID -1 tells the system to change nothing, which would leave the server's own identity. It is always
        // squashed.
        let squashed = |id: u32| id == u32::MAX || id == 0 && self.squash == Squash::Root;
        if squashed(caller.uid) {
            return anonymous;
        }
        let group = |gid: u32| if squashed(gid) { anonymous.gid } else { gid };
        Identity { uid: caller.uid, gid: group(caller.gid), groups: caller.groups.into_iter().map(group).collect() }
    }

    /// Returns `true` if threads of the runtime, and not only blocking threads, may perform calls as `who`.
    pub(super) fn is_prompt(&self, who: &Identity) -> bool {
        let changes = self.changes(who);
        self.any_thread || !self.switching || !(changes.uid || changes.gid || changes.groups)
    }

    /// Returns the parts in which `who` differs from the identity of the process. Each part takes a system call, and
    /// another one to undo it.
    fn changes(&self, who: &Identity) -> IdentityChanges {
        IdentityChanges {
            uid: who.uid != self.own.uid.as_raw(),
            gid: who.gid != self.own.gid.as_raw(),
            groups: !self.own.groups.iter().map(|gid| gid.as_raw()).eq(who.groups.iter().copied()),
        }
    }

    /// Makes the calling thread act as `who` until the result is dropped.
    ///
    /// # Errors
    /// Returns NFS3ERR_ACCES if this process cannot act as that user, and NFS3ERR_JUKEBOX if the call has to be
    /// repeated on a blocking thread. Returns NFS3ERR_SERVERFAULT if the system refuses the change of identity.
    pub fn assume(&self, who: &Identity) -> NfsResult<AssumedIdentity<'_>> {
        if !self.switching {
            let same = who.uid == self.own.uid.as_raw();
            return if same { Ok(AssumedIdentity(None, PhantomData)) } else { Err(NfsError(Nfsstat3::Acces)) };
        }
        if !self.is_prompt(who) && !prompt::may_wait() {
            return Err(NfsError(Nfsstat3::Jukebox));
        }
        let changes = self.changes(who);
        // From here on, dropping `assumed` restores the identity, even if a step below fails.
        let assumed = AssumedIdentity(Some((&self.own, changes)), PhantomData);
        set_thread_identity(who, changes).map_err(|error| {
            tracing::error!(?who, %error, "cannot act as the caller");
            NfsError(Nfsstat3::Serverfault)
        })?;
        Ok(assumed)
    }
}

/// The parts of its identity that a thread changes to act as a caller.
#[derive(Debug, Clone, Copy)]
struct IdentityChanges {
    uid: bool,
    gid: bool,
    groups: bool,
}

impl IdentityChanges {
    const ALL: Self = Self { uid: true, gid: true, groups: true };
}

/// Sets the parts of the thread's effective identity that `changes` selects. Groups come first, because a thread of
/// root may no longer set them after it has changed its user ID.
fn set_thread_identity(who: &Identity, changes: IdentityChanges) -> Result<(), Errno> {
    if changes.groups {
        let groups: Vec<Gid> = who.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        set_thread_groups(&groups)?;
    }
    if changes.gid {
        set_thread_res_gid(None, Gid::from_raw(who.gid), None)?;
    }
    if changes.uid {
        // The real and saved user IDs stay, so that the identity can be restored. With the effective ID of root, the
        // kernel also removes root's capabilities.
        set_thread_res_uid(None, Uid::from_raw(who.uid), None)?;
    }
    Ok(())
}

/// The guard of a thread that acts as another user. Restores the thread's identity when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct AssumedIdentity<'a>(
    Option<(&'a ProcessIdentity, IdentityChanges)>,
    /* not Send: it concerns this thread */ PhantomData<*const ()>,
);

impl Drop for AssumedIdentity<'_> {
    fn drop(&mut self) {
        let Some((own, changes)) = self.0 else { return };
        if let Err(error) = own.restore(changes) {
            tracing::error!(%error, "cannot restore the identity of a thread, aborting");
            std::process::abort();
        }
    }
}

/// The capabilities that override the permissions of files or quotas. They are CAP_SYS_RESOURCE, and the capabilities
/// that the kernel takes from a thread whose file system user ID changes from root to another user (capabilities(7),
/// "Effect of user ID changes on capabilities").
const OVERRIDING: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);

/// The error for a process that is not root and has capabilities that override permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverridingCapabilities(CapabilitySet);

impl fmt::Display for OverridingCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("callers would not be subject to the permissions of files, because this process has")?;
        for (index, (name, _)) in self.0.iter_names().enumerate() {
            write!(f, "{} CAP_{name}", if index == 0 { "" } else { "," })?;
        }
        f.write_str(": run it as root, or only with CAP_SETUID and CAP_SETGID, or without capabilities")
    }
}

impl std::error::Error for OverridingCapabilities {}

/// Tries to act as another user, on a new thread that then ends. Returns `true` if this process can do so, and the
/// overriding capabilities that threads would have while they perform calls.
fn try_switch(own: &ProcessIdentity) -> (bool, CapabilitySet) {
    // What cannot be found out is taken for the worst.
    let overriding = || capabilities(None).map_or(OVERRIDING, |sets| sets.effective & OVERRIDING);
    let tried = std::thread::spawn({
        let own = own.clone();
        move || {
            let nobody = Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() };
            set_thread_identity(&nobody, IdentityChanges::ALL)?;
            let overriding = overriding();
            own.restore(IdentityChanges::ALL).map(|()| overriding)
        }
    });
    match tried.join() {
        Ok(Ok(overriding)) => (true, overriding),
        // Calls of root are performed as root.
        _ if own.uid.is_root() => (false, CapabilitySet::empty()),
        _ => (false, overriding()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sys(uid: u32, gid: u32, gids: &[u32]) -> Credential {
        Credential::sys("client", uid, gid, gids.iter().copied())
    }

    fn of(squash: Squash, credential: &Credential) -> (u32, u32, Vec<u32>) {
        let who = Identities::new(squash, Some(1000), Some(1001)).identity_of(credential).unwrap();
        (who.uid, who.gid, who.groups)
    }

    #[test]
    fn root_is_squashed_by_default() {
        assert_eq!(of(Squash::Root, &sys(0, 0, &[0, 5])), (1000, 1001, vec![]));
        assert_eq!(of(Squash::Root, &sys(7, 0, &[5, 0])), (7, 1001, vec![5, 1001]), "root's group is squashed as well");
        assert_eq!(of(Squash::Root, &sys(7, 8, &[9])), (7, 8, vec![9]));
        assert_eq!(of(Squash::None, &sys(0, 0, &[0])), (0, 0, vec![0]));
        assert_eq!(of(Squash::All, &sys(7, 8, &[9])), (1000, 1001, vec![]));
        assert_eq!(of(Squash::None, &Credential::None), (1000, 1001, vec![]));
    }

    /// The ID -1 is always squashed. `setresuid` changes nothing for this ID, so the caller would be root.
    #[test]
    fn id_minus_one_is_always_squashed() {
        for squash in [Squash::Root, Squash::None, Squash::All] {
            assert_eq!(of(squash, &sys(u32::MAX, u32::MAX, &[u32::MAX])).0, 1000);
            assert_eq!(of(squash, &sys(1000, u32::MAX, &[])).1, 1001);
        }
        assert_eq!(of(Squash::None, &sys(7, 8, &[u32::MAX])).2, [1001]);
    }

    #[test]
    fn principals_map_to_users() {
        let principals = || Principals::parse("alice@EXAMPLE.COM 7 8 9\nroot@EXAMPLE.COM 0 0").unwrap();
        let of = |squash, name: &str| {
            let identities = Identities::new(squash, Some(1000), Some(1001)).with_principals(principals());
            let principal = Principal::new(name, rpcrdma::security::ProtectionLevel::Authentication);
            let who = identities.identity(identities.caller(&Credential::None, Some(&principal)).unwrap()).unwrap();
            (who.uid, who.gid, who.groups)
        };
        assert_eq!(of(Squash::Root, "alice@EXAMPLE.COM"), (7, 8, vec![9]));
        assert_eq!(of(Squash::All, "alice@EXAMPLE.COM"), (1000, 1001, vec![]));
        assert_eq!(of(Squash::Root, "root@EXAMPLE.COM"), (1000, 1001, vec![]));
        assert_eq!(of(Squash::None, "root@EXAMPLE.COM"), (0, 0, vec![]));
        assert_eq!(of(Squash::None, "alice@ELSEWHERE.EXAMPLE"), (1000, 1001, vec![]), "no user");
    }

    /// Returns the policy of a process that is not root and has the capabilities `effective`. Returns `None` if the
    /// test itself does not run as root or cannot act as another user.
    fn with_capabilities(effective: CapabilitySet) -> Option<Identities> {
        use rustix::thread::{CapabilitySets, set_capabilities, set_keep_capabilities};
        if !geteuid().is_root() || !Identities::new(Squash::None, None, None).enforced() {
            return None;
        }
        // The identity and the capabilities are those of the thread, and the policy tries on a thread that inherits
        // them.
        let thread = std::thread::spawn(move || {
            let user = Uid::from_raw(4242);
            set_keep_capabilities(true).unwrap();
            set_thread_res_uid(Some(user), user, Some(user)).unwrap();
            set_capabilities(
                None,
                CapabilitySets { effective, permitted: effective, inheritable: CapabilitySet::empty() },
            )
            .unwrap();
            Identities::new(Squash::Root, None, None)
        });
        Some(thread.join().unwrap())
    }

    #[test]
    fn capabilities_that_override_permissions_are_refused() {
        assert_eq!(
            Identities::new(Squash::Root, None, None).check(),
            Ok(()),
            "the tests run as root or without capabilities"
        );
        let switching = CapabilitySet::SETUID | CapabilitySet::SETGID;
        for (others, enforced, refused) in [
            (switching, true, CapabilitySet::empty()),
            (switching | CapabilitySet::NET_BIND_SERVICE, true, CapabilitySet::empty()),
            (switching | CapabilitySet::DAC_OVERRIDE, true, CapabilitySet::DAC_OVERRIDE),
            (switching | CapabilitySet::DAC_READ_SEARCH, true, CapabilitySet::DAC_READ_SEARCH),
            (
                switching | CapabilitySet::FOWNER | CapabilitySet::CHOWN,
                true,
                CapabilitySet::FOWNER | CapabilitySet::CHOWN,
            ),
            // Calls of the server's own user would override permissions as well.
            (CapabilitySet::DAC_OVERRIDE, false, CapabilitySet::DAC_OVERRIDE),
            (CapabilitySet::empty(), false, CapabilitySet::empty()),
        ] {
            let Some(identities) = with_capabilities(others) else { return };
            let expected = if refused.is_empty() { Ok(()) } else { Err(OverridingCapabilities(refused)) };
            assert_eq!((identities.enforced(), identities.check()), (enforced, expected), "{others:?}");
        }
        let error = OverridingCapabilities(CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE).to_string();
        assert!(error.contains("has CAP_CHOWN, CAP_DAC_OVERRIDE: run it"), "{error}");
    }

    thread_local! {
        /// A thread that reports its user ID. It starts before the test changes its own identity, because a new thread
        /// inherits the identity of its creator.
        static OTHER_THREAD: std::sync::mpsc::Sender<std::sync::mpsc::Sender<u32>> = {
            let (ask, asked) = std::sync::mpsc::channel::<std::sync::mpsc::Sender<u32>>();
            std::thread::spawn(move || asked.iter().for_each(|answer| answer.send(geteuid().as_raw()).unwrap()));
            ask
        };
    }

    #[test]
    fn an_identity_applies_to_one_thread_only() {
        let identities = Identities::new(Squash::None, None, None);
        let own = geteuid().as_raw();
        let other = identities.identity_of(&sys(own + 4242, 4243, &[4244])).unwrap();
        if !identities.enforced() {
            assert_eq!(identities.assume(&other).err(), Some(NfsError(Nfsstat3::Acces)));
            assert!(identities.assume(&identities.identity_of(&sys(own, 1, &[])).unwrap()).is_ok());
            assert_eq!(geteuid().as_raw(), own);
            return;
        }
        OTHER_THREAD.with(|_| ());
        let assumed = identities.assume(&other).unwrap();
        let now = || (geteuid().as_raw(), getegid().as_raw(), getgroups().unwrap());
        assert_eq!(now(), (own + 4242, 4243, vec![Gid::from_raw(4244)]));
        let (asked, answer) = std::sync::mpsc::channel();
        OTHER_THREAD.with(|other| other.send(asked).unwrap());
        assert_eq!(answer.recv().unwrap(), own, "other threads keep their identity");
        drop(assumed);
        assert_eq!(geteuid().as_raw(), own);
        let panicked = std::panic::catch_unwind(|| {
            let _assumed = identities.assume(&other).unwrap();
            panic!("in the middle");
        });
        assert!(panicked.is_err());
        assert_eq!(geteuid().as_raw(), own, "restored after a panic");
    }
}

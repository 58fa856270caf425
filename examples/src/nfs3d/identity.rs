//! Who a call is carried out as: AUTH_SYS identities, squashed where the export says so, and enforced by the kernel.
//!
//! What touches files runs with the caller's user, group and supplementary groups as the *thread's* effective ones, so
//! every permission, access control list, set-group-ID directory, quota and capability counts as it would for that user
//! on this machine. Credentials of a thread are set by the system calls themselves: the C library's functions of the
//! same names would set those of all threads. [`Assumed`] sets them back when it is dropped, on panics too; should that
//! ever fail, the process ends rather than go on with somebody's identity on a thread that serves others.
//!
//! This takes the capabilities to do so. A server without them can act as one user only: the one it runs as. Calls by
//! others are refused, unless the administrator has all callers squashed to that user.

use std::marker::PhantomData;

use rpcrdma::rpc::{AuthFailure, AuthStat, Credential};
use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::{
    io::Errno,
    process::{getegid, geteuid, getgroups},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

pub use rustix::fs::{Gid, Uid};

use super::status::{Outcome, Refusal};

/// The user and group of nobody in particular.
pub const NOBODY: u32 = 65534;

/// Whose identity is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Squash {
    /// All but the superuser's, who becomes the anonymous user.
    #[default]
    Root,
    /// Everybody's, the superuser's too.
    Nobody,
    /// Nobody's: all become the anonymous user.
    All,
}

/// A user with groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    /// The user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }
}

/// The policy of an export, and what this process may do.
#[derive(Debug)]
pub struct Identities {
    squash: Squash,
    anonymous: (u32, u32),
    own: Own,
    switching: bool,
}

/// What the process runs as.
#[derive(Debug, Clone)]
struct Own {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Identities {
    /// With the user and group of those who are squashed; where they are not given, [`NOBODY`], or, where this process
    /// cannot act as another user, its own.
    #[must_use]
    pub fn new(squash: Squash, uid: Option<u32>, gid: Option<u32>) -> Self {
        let own = Own { uid: geteuid(), gid: getegid(), groups: getgroups().unwrap_or_default() };
        let switching = can_switch(&own);
        let default = |own: u32| if switching { NOBODY } else { own };
        let anonymous =
            (uid.unwrap_or_else(|| default(own.uid.as_raw())), gid.unwrap_or_else(|| default(own.gid.as_raw())));
        Self { squash, anonymous, own, switching }
    }

    /// Whether calls are carried out as their callers. If not, only this process's own user is served.
    #[must_use]
    pub fn enforced(&self) -> bool {
        self.switching
    }

    /// Who a credential stands for.
    ///
    /// # Errors
    /// AUTH_BADCRED for flavors other than AUTH_NONE and AUTH_SYS.
    pub fn of(&self, credential: &Credential) -> Result<Identity, AuthFailure> {
        let (anonymous_uid, anonymous_gid) = self.anonymous;
        let anonymous = Identity { uid: anonymous_uid, gid: anonymous_gid, groups: Vec::new() };
        let caller = match credential {
            Credential::None => return Ok(anonymous),
            Credential::Sys(caller) => caller,
            _ => return Err(AuthStat::AuthBadcred.into()),
        };
        if self.squash == Squash::All {
            return Ok(anonymous);
        }
        // -1 is nobody's number: to the system it means that nothing be changed, so the server's own identity.
        let squashed = |id: u32| id == u32::MAX || id == 0 && self.squash == Squash::Root;
        if squashed(caller.uid) {
            return Ok(anonymous);
        }
        let group = |gid: u32| if squashed(gid) { anonymous_gid } else { gid };
        Ok(Identity {
            uid: caller.uid,
            gid: group(caller.gid),
            groups: caller.gids.iter().map(|&gid| group(gid)).collect(),
        })
    }

    /// Makes the calling thread act as `who` until the result is dropped.
    ///
    /// # Errors
    /// NFS3ERR_ACCES where this process cannot.
    pub fn assume(&self, who: &Identity) -> Outcome<Assumed<'_>> {
        if !self.switching {
            let same = who.uid == self.own.uid.as_raw();
            return if same { Ok(Assumed(None, PhantomData)) } else { Err(Refusal(Nfsstat3::Acces)) };
        }
        // From here on the way back is taken whatever happens.
        let assumed = Assumed(Some(&self.own), PhantomData);
        let groups: Vec<Gid> = who.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        take(&groups, Gid::from_raw(who.gid), Uid::from_raw(who.uid)).map_err(|error| {
            tracing::error!(?who, %error, "cannot act as the caller");
            Refusal(Nfsstat3::Serverfault)
        })?;
        Ok(assumed)
    }
}

/// Groups first: a user other than root may not set them.
fn take(groups: &[Gid], gid: Gid, uid: Uid) -> Result<(), Errno> {
    set_thread_groups(groups)?;
    set_thread_res_gid(None, gid, None)?;
    // The real and the saved one stay, for the way back. The kernel takes root's capabilities away with the effective one.
    set_thread_res_uid(None, uid, None)
}

/// A thread acts as somebody.
#[derive(Debug)]
#[must_use]
pub struct Assumed<'a>(Option<&'a Own>, /* of this thread */ PhantomData<*const ()>);

impl Drop for Assumed<'_> {
    fn drop(&mut self) {
        let Some(own) = self.0 else { return };
        // The user first: with root's number come its capabilities.
        let back = set_thread_res_uid(None, own.uid, None)
            .and_then(|()| set_thread_res_gid(None, own.gid, None))
            .and_then(|()| set_thread_groups(&own.groups));
        if let Err(error) = back {
            tracing::error!(%error, "a thread cannot take its own identity again");
            std::process::abort();
        }
    }
}

/// Tries it, on a thread that ends with what it has done to itself.
fn can_switch(own: &Own) -> bool {
    let own = own.clone();
    let nobody = || take(&[], Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
    let tried = std::thread::spawn(move || {
        nobody()?;
        set_thread_res_uid(None, own.uid, None)?;
        set_thread_res_gid(None, own.gid, None)?;
        set_thread_groups(&own.groups)
    });
    matches!(tried.join(), Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sys(uid: u32, gid: u32, gids: &[u32]) -> Credential {
        Credential::sys("client", uid, gid, gids.iter().copied())
    }

    fn of(squash: Squash, credential: &Credential) -> (u32, u32, Vec<u32>) {
        let who = Identities::new(squash, Some(1000), Some(1001)).of(credential).unwrap();
        (who.uid, who.gid, who.groups)
    }

    #[test]
    fn root_is_squashed_unless_told_otherwise() {
        assert_eq!(of(Squash::Root, &sys(0, 0, &[0, 5])), (1000, 1001, vec![]));
        assert_eq!(of(Squash::Root, &sys(7, 0, &[5, 0])), (7, 1001, vec![5, 1001]), "so is its group");
        assert_eq!(of(Squash::Root, &sys(7, 8, &[9])), (7, 8, vec![9]));
        assert_eq!(of(Squash::Nobody, &sys(0, 0, &[0])), (0, 0, vec![0]));
        assert_eq!(of(Squash::All, &sys(7, 8, &[9])), (1000, 1001, vec![]));
        assert_eq!(of(Squash::Nobody, &Credential::None), (1000, 1001, vec![]));
    }

    /// To `setresuid` it means "as it is", so root.
    #[test]
    fn minus_one_is_nobody_whatever_is_squashed() {
        for squash in [Squash::Root, Squash::Nobody, Squash::All] {
            assert_eq!(of(squash, &sys(u32::MAX, u32::MAX, &[u32::MAX])).0, 1000);
            assert_eq!(of(squash, &sys(1000, u32::MAX, &[])).1, 1001);
        }
        assert_eq!(of(Squash::Nobody, &sys(7, 8, &[u32::MAX])).2, [1001]);
    }

    thread_local! {
        /// Answers who it is. Made before the test's thread becomes somebody: a thread begins as who made it.
        static OTHER_THREAD: std::sync::mpsc::Sender<std::sync::mpsc::Sender<u32>> = {
            let (ask, asked) = std::sync::mpsc::channel::<std::sync::mpsc::Sender<u32>>();
            std::thread::spawn(move || asked.iter().for_each(|answer| answer.send(geteuid().as_raw()).unwrap()));
            ask
        };
    }

    #[test]
    fn a_thread_is_who_it_acts_as_and_nobody_else_is() {
        let identities = Identities::new(Squash::Nobody, None, None);
        let own = geteuid().as_raw();
        let other = identities.of(&sys(own + 4242, 4243, &[4244])).unwrap();
        if !identities.enforced() {
            assert_eq!(identities.assume(&other).err(), Some(Refusal(Nfsstat3::Acces)));
            assert!(identities.assume(&identities.of(&sys(own, 1, &[])).unwrap()).is_ok());
            assert_eq!(geteuid().as_raw(), own);
            return;
        }
        OTHER_THREAD.with(|_| ());
        let assumed = identities.assume(&other).unwrap();
        let now = || (geteuid().as_raw(), getegid().as_raw(), getgroups().unwrap());
        assert_eq!(now(), (own + 4242, 4243, vec![Gid::from_raw(4244)]));
        let (asked, answer) = std::sync::mpsc::channel();
        OTHER_THREAD.with(|other| other.send(asked).unwrap());
        assert_eq!(answer.recv().unwrap(), own, "threads that were there before are not concerned");
        drop(assumed);
        assert_eq!(geteuid().as_raw(), own);
        let panicked = std::panic::catch_unwind(|| {
            let _assumed = identities.assume(&other).unwrap();
            panic!("in the middle");
        });
        assert!(panicked.is_err());
        assert_eq!(geteuid().as_raw(), own, "back after a panic");
    }
}

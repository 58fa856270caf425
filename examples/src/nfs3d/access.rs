//! The procedure ACCESS (RFC 1813 §3.3.4).

use rpcrdma_specs::nfs3::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, Access3args,
    Access3res, Access3resfail, Access3resok, PostOpAttr,
};
use rustix::fs::{Access, AtFlags};

use super::{export::Export, identity::Identity, object::Object};

/// The permissions that each access right on a directory requires.
const OF_DIRECTORY: [(u32, Access); 5] = [
    (ACCESS3_READ, Access::READ_OK),
    (ACCESS3_LOOKUP, Access::EXEC_OK),
    (ACCESS3_MODIFY, Access::WRITE_OK.union(Access::EXEC_OK)),
    (ACCESS3_EXTEND, Access::WRITE_OK.union(Access::EXEC_OK)),
    (ACCESS3_DELETE, Access::WRITE_OK.union(Access::EXEC_OK)),
];
/// The permissions that each access right on an object other than a directory requires. DELETE depends on the directory
/// that contains the object.
const OF_OTHERS: [(u32, Access); 4] = [
    (ACCESS3_READ, Access::READ_OK),
    (ACCESS3_MODIFY, Access::WRITE_OK),
    (ACCESS3_EXTEND, Access::WRITE_OK),
    (ACCESS3_EXECUTE, Access::EXEC_OK),
];

impl Export {
    /// Performs ACCESS. The result contains the requested rights that the kernel would grant. It is advisory, because
    /// each procedure is checked again.
    pub fn access(&self, who: &Identity, args: &Access3args) -> Access3res {
        match self.find(&args.object) {
            Ok(object) => Access3res::Ok(Access3resok {
                access: self.granted(who, &object, args.access),
                obj_attributes: PostOpAttr::True(object.stat.attributes(self.fsid)),
            }),
            Err(refusal) => Access3res::Default(refusal.0, Access3resfail { obj_attributes: PostOpAttr::False }),
        }
    }

    pub(super) fn granted(&self, who: &Identity, object: &Object, asked: u32) -> u32 {
        // An identity that the server cannot assume has no rights.
        let Ok(_acting) = self.identities.assume(who) else { return 0 };
        let rights: &[(u32, Access)] = if object.is_directory() { &OF_DIRECTORY } else { &OF_OTHERS };
        let rights = || rights.iter().filter(|(right, _)| asked & right != 0);
        let wanted = rights().fold(Access::empty(), |wanted, (_, takes)| wanted | *takes);
        let granted = if object.is_directory() && self.grants_all(object, wanted) {
            wanted
        } else {
            self.permissions(object, wanted)
        };
        rights().filter(|(_, takes)| granted.contains(*takes)).fold(0, |rights, (right, _)| rights | right)
    }

    /// Returns `true` if the user that the thread acts as has the `wanted` permissions on a directory, and may search
    /// it.
    fn grants_all(&self, directory: &Object, wanted: Access) -> bool {
        // `.` needs no look-up in /proc, but is itself a look-up in the directory.
        rustix::fs::accessat(directory, c".", wanted, AtFlags::EACCESS).is_ok()
    }

    /// Returns the `wanted` permissions that the thread's effective user has on an object.
    fn permissions(&self, object: &Object, wanted: Access) -> Access {
        let (folder, name) = self.descriptors.name(object);
        let is_granted = |takes| rustix::fs::accessat(folder, name.as_c_str(), takes, AtFlags::EACCESS).is_ok();
        // A writable file usually is readable as well.
        let both = wanted & (Access::READ_OK | Access::WRITE_OK);
        let mut granted = if !both.is_empty() && is_granted(both) { both } else { Access::empty() };
        for one in [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
            // One permission alone has been asked for above.
            if wanted.contains(one) && !granted.contains(one) && both != one && is_granted(one) {
                granted |= one;
            }
        }
        granted
    }
}

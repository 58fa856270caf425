//! Common steps of procedures that change a directory.

use rpcrdma_specs::nfs3::{NfsFh3, WccData};

use super::{attributes::NO_WCC, export::Export, object::Object, status::NfsResult};

impl Export {
    /// Finds a directory, locks it, calls `change`, and unlocks the directory. Syncs it if `change` has succeeded.
    /// Returns the directory's `wcc_data`, even if `change` or the sync fails, and the result of `change` or the first
    /// error. The `wcc_data` is empty if the directory or its attributes cannot be found.
    pub(super) fn change_directory<T>(
        &self,
        handle: &NfsFh3,
        change: impl FnOnce(&Object) -> NfsResult<T>,
    ) -> (WccData, NfsResult<T>) {
        let directory = match self.find(handle).and_then(Object::directory) {
            Ok(directory) => directory,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let locked = self.locks.one(directory.id.ino);
        let before = match directory.stat_now() {
            Ok(stat) => stat,
            Err(refusal) => return (NO_WCC, Err(refusal)),
        };
        let changed = change(&directory);
        let wcc = self.wcc(&before, &directory);
        drop(locked);
        (wcc, changed.and_then(|changed| self.sync(&directory).map(|()| changed)))
    }
}

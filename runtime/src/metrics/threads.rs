//! The shards of each thread.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use super::{
    procedures::{self, Side},
    values::{ProcedureId, Shard, Sizes},
};

/// Maximum number of client procedures that a thread finds without a look-up in a map.
const CALLED: usize = 128;

/// Maximum number of server procedures that a thread finds without a look-up in a map.
const SERVED: usize = 64;

/// The placeholder where no shard is cached. Its last sizes fit no call, so nothing is added to it.
static NONE: Shard = Shard::new(ProcedureId(u32::MAX), "");

thread_local! {
    /// Cached shards of client procedures, by name.
    static CALLED_SHARDS: [Cell<&'static Shard>; CALLED] = const { [const { Cell::new(&NONE) }; CALLED] };
    /// Cached shards of server procedures, by identifier.
    static SERVED_SHARDS: [Cell<&'static Shard>; SERVED] = const { [const { Cell::new(&NONE) }; SERVED] };
    /// All shards of this thread.
    static OWN: RefCell<OwnShards> = RefCell::default();
}

#[inline(always)]
fn called_place(method: &'static str) -> usize {
    (method.as_ptr() as usize >> 3) % CALLED
}

#[inline(always)]
fn served_place(id: ProcedureId) -> usize {
    id.0 as usize % SERVED
}

/// Adds a successful outbound call. `duration` is in ticks.
#[inline(always)]
pub(super) fn called(method: &'static str, duration: u64, sizes: Sizes) {
    let shard = CALLED_SHARDS.with(|shards| shards.get(called_place(method)).map_or(&NONE, Cell::get));
    if std::ptr::eq(shard.method, method) && shard.is_last(sizes) {
        shard.add(duration);
    } else {
        called_slowly(method, duration, sizes);
    }
}

/// Adds a successful inbound call. `duration` is in ticks.
#[inline(always)]
pub(super) fn served(id: ProcedureId, duration: u64, sizes: Sizes) {
    let shard = SERVED_SHARDS.with(|shards| shards.get(served_place(id)).map_or(&NONE, Cell::get));
    if shard.id == id && shard.is_last(sizes) {
        shard.add(duration);
    } else {
        served_slowly(id, duration, sizes);
    }
}

#[cold]
#[inline(never)]
fn called_slowly(method: &'static str, duration: u64, sizes: Sizes) {
    match OWN.try_with(|own| own.borrow_mut().called(method)) {
        Ok(Some(shard)) => {
            CALLED_SHARDS.with(|shards| shards.get(called_place(method)).map(|place| place.set(shard)));
            shard.add_any(duration, sizes);
        }
        _ => add_at_end(procedures::procedure(Side::Client, method), Some(method), duration, sizes),
    }
}

#[cold]
#[inline(never)]
fn served_slowly(id: ProcedureId, duration: u64, sizes: Sizes) {
    match OWN.try_with(|own| own.borrow_mut().served(id)) {
        Ok(Some(shard)) => {
            SERVED_SHARDS.with(|shards| shards.get(served_place(id)).map(|place| place.set(shard)));
            shard.add_any(duration, sizes);
        }
        _ => add_at_end(id, None, duration, sizes),
    }
}

/// Adds a call that a destructor of another thread-local value makes, after this thread has released its shards.
fn add_at_end(id: ProcedureId, method: Option<&'static str>, duration: u64, sizes: Sizes) {
    if let Some(shard) = procedures::acquire(id, method) {
        shard.add_any(duration, sizes);
        procedures::release([shard]);
    }
}

/// Returns the identifier of a procedure. Takes a lock only for the first lookup of the procedure on each thread, and
/// after the thread-local values of the thread were dropped.
pub(super) fn procedure(side: Side, method: &'static str) -> ProcedureId {
    let own = OWN.try_with(|own| own.borrow_mut().procedure(side, method));
    own.unwrap_or_else(|_| procedures::procedure(side, method))
}

/// Returns the address and the length of a name, which identify it.
fn key(method: &'static str) -> (usize, usize) {
    (method.as_ptr() as usize, method.len())
}

/// The shards of a thread, which releases them when it ends.
#[derive(Default)]
struct OwnShards {
    procedures: HashMap<(Side, (usize, usize)), ProcedureId>,
    called: HashMap<(usize, usize), &'static Shard>,
    served: HashMap<ProcedureId, &'static Shard>,
}

impl OwnShards {
    fn procedure(&mut self, side: Side, method: &'static str) -> ProcedureId {
        *self.procedures.entry((side, key(method))).or_insert_with(|| procedures::procedure(side, method))
    }

    fn called(&mut self, method: &'static str) -> Option<&'static Shard> {
        if let Some(shard) = self.called.get(&key(method)) {
            return Some(shard);
        }
        let id = self.procedure(Side::Client, method);
        let shard = procedures::acquire(id, Some(method))?;
        self.called.insert(key(method), shard);
        Some(shard)
    }

    fn served(&mut self, id: ProcedureId) -> Option<&'static Shard> {
        if let Some(shard) = self.served.get(&id) {
            return Some(shard);
        }
        let shard = procedures::acquire(id, None)?;
        self.served.insert(id, shard);
        Some(shard)
    }
}

impl Drop for OwnShards {
    fn drop(&mut self) {
        CALLED_SHARDS.with(|shards| shards.iter().for_each(|place| place.set(&NONE)));
        SERVED_SHARDS.with(|shards| shards.iter().for_each(|place| place.set(&NONE)));
        procedures::release(self.called.drain().map(|(_, shard)| shard));
        procedures::release(self.served.drain().map(|(_, shard)| shard));
    }
}

//! STags: the table of a connection's registered memory. Each connection is a protection domain of its own (RFC 5042
//! §2.2.4, §2.2.5).
//!
//! Each connection has its own table, so an STag of another connection is unknown here (RFC 5042 §6.1.1). Every access
//! is checked against bounds and access rights (RFC 5042 §6.2.1, §6.3.1). RPC-over-RDMA requires this of its providers
//! (RFC 8166 §8.1, §8.1.1, RPC-over-RDMA v2 §11.1, §11.1.1).

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::terminate::TerminateCode;
use crate::{
    memory::PayloadBuf,
    provider::{Access, IoError, MemoryHandle, RegisterableMemory, WrId},
};

/// Number of the most recently released handles, none of which is assigned again (RFC 5042 §6.3.3; promised by
/// [`Region`](crate::provider::Region)).
const RECENT: usize = 64;

/// Random words, fetched from the operating system in batches.
struct RandomWords {
    words: [u8; 256],
    used: usize,
}

impl RandomWords {
    fn next(&mut self) -> Result<u32, getrandom::Error> {
        if self.used >= self.words.len() {
            getrandom::fill(&mut self.words)?;
            self.used = 0;
        }
        let word = self.words.get(self.used..).and_then(|w| w.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w));
        self.used += 4;
        Ok(word)
    }
}

struct StagEntry {
    memory: RegisterableMemory,
    access: Access,
    /// `true` until the memory is invalidated, by the local side or by the peer.
    valid: bool,
    /// Number of local RDMA Reads that write to the memory, or of RDMA Read Responses that send from it.
    users: u32,
    /// The highest end offset of the peer's RDMA Writes to the memory, in bytes.
    written: usize,
    /// The Invalidate that waits until the memory has no users.
    invalidate: Option<WrId>,
}

impl StagEntry {
    fn may_be_written(&self) -> bool {
        match self.access {
            Access::RemoteRead => false,
            Access::RemoteWrite => self.valid,
            Access::ReadSink => true,
        }
    }
}

/// The result of an Invalidate.
pub(crate) enum InvalidateOutcome {
    /// The memory is released.
    Now(RegisterableMemory),
    /// The memory will be released when its last user is done.
    Later,
    /// The handle is unknown, or an earlier Invalidate of it is still waiting.
    Unknown,
}

/// The registered memory of one connection.
pub(crate) struct StagTable {
    entries: FxHashMap<u32, StagEntry>,
    /// Number of entries whose memory may receive tagged data.
    writable: usize,
    recent: [u32; RECENT],
    next_recent: usize,
    random: RandomWords,
}

impl Default for StagTable {
    fn default() -> Self {
        Self {
            entries: FxHashMap::default(),
            writable: 0,
            recent: [0; RECENT],
            next_recent: 0,
            random: RandomWords { words: [0; 256], used: 256 },
        }
    }
}

impl StagTable {
    /// Registers `memory` under an STag of 32 random bits that is not 0, not in use and not recently used. The peer
    /// gets access to this memory only, either to read or to write it. Fails if `access` does not suit the kind of
    /// memory, or the operating system provides no random numbers.
    // RFC 8166 §8.1.2, RPC-over-RDMA v2 §11.1.2, RFC 5040 §8.1.1, RFC 5042 §6.1.1, §6.3.3: handles are unpredictable.
    // RFC 5041 §8.3, §8.3.1, RFC 5042 §6.3.5: access is limited.
    pub(crate) fn register(
        &mut self,
        memory: RegisterableMemory,
        access: Access,
    ) -> Result<MemoryHandle, (IoError, RegisterableMemory)> {
        let fits = matches!(
            (&memory, access),
            (RegisterableMemory::Source(_), Access::RemoteRead)
                | (RegisterableMemory::Sink(_), Access::RemoteWrite | Access::ReadSink)
        );
        if !fits {
            return Err((
                format!("{access:?} requires {} memory", if access == Access::RemoteRead { "source" } else { "sink" })
                    .into(),
                memory,
            ));
        }
        let stag = loop {
            match self.random.next() {
                Ok(0) => {}
                Ok(stag) if self.entries.contains_key(&stag) || self.recent.contains(&stag) => {}
                Ok(stag) => break stag,
                Err(error) => {
                    return Err((
                        format!("failed to get random numbers from the operating system: {error}").into(),
                        memory,
                    ));
                }
            }
        };
        let entry = StagEntry { memory, access, valid: true, users: 0, written: 0, invalidate: None };
        self.writable += usize::from(entry.may_be_written());
        self.entries.insert(stag, entry);
        Ok(MemoryHandle(stag))
    }

    /// Returns `true` if tagged data may arrive for some memory.
    pub(crate) fn expects_tagged(&self) -> bool {
        self.writable > 0
    }

    /// Checks an RDMA Write segment (RFC 5041 §4.2, §7.1, §7.2, §8.3.1), records that its range is written, and returns
    /// its offset in the memory, in bytes.
    pub(crate) fn check_write(&mut self, stag: u32, offset: u64, len: usize) -> Result<usize, TerminateCode> {
        // RFC 5041 has no code for memory that is not writable. The second check of §7.1 covers it: the STag has no
        // buffer that allows placement.
        let entry = self
            .entries
            .get_mut(&stag)
            .filter(|entry| entry.valid && entry.access == Access::RemoteWrite)
            .ok_or(TerminateCode::TAGGED_INVALID_STAG)?;
        let start = place(offset, len, entry.memory.len())
            .map_err(|wrap| if wrap { TerminateCode::TAGGED_TO_WRAP } else { TerminateCode::TAGGED_BOUNDS })?;
        entry.written = entry.written.max(start + len);
        Ok(start)
    }

    /// Returns the number of bytes of the memory behind the offset `end`, if the peer may write them and has written
    /// none of them; otherwise `None`.
    pub(crate) fn unwritten(&self, stag: u32, end: usize) -> Option<usize> {
        let entry = self.entries.get(&stag)?;
        let is_unwritten = entry.valid && entry.access == Access::RemoteWrite && entry.written <= end;
        entry.memory.len().checked_sub(end).filter(|_| is_unwritten)
    }

    /// Checks an RDMA Read Request (RFC 5040 §4.8, §5.2.1, §7.2) and returns the requested data. Adds a user of the
    /// memory.
    pub(crate) fn begin_response(&mut self, stag: u32, offset: u64, len: u32) -> Result<Bytes, TerminateCode> {
        let entry = self.entries.get_mut(&stag).filter(|entry| entry.valid).ok_or(TerminateCode::READ_INVALID_STAG)?;
        let RegisterableMemory::Source(source) = &entry.memory else { return Err(TerminateCode::READ_ACCESS) };
        let len = usize::try_from(len).map_err(|_| TerminateCode::READ_BOUNDS)?;
        let start = place(offset, len, source.len())
            .map_err(|wrap| if wrap { TerminateCode::READ_TO_WRAP } else { TerminateCode::READ_BOUNDS })?;
        entry.users += 1;
        Ok(source.slice(start..start + len))
    }

    /// Checks the sink of a local RDMA Read. Adds a user of the memory.
    pub(crate) fn begin_read(&mut self, sink: MemoryHandle, offset: u64, len: u32) -> Result<(), String> {
        let entry = self
            .entries
            .get_mut(&sink.0)
            .filter(|entry| entry.valid && entry.access == Access::ReadSink && entry.invalidate.is_none())
            .ok_or_else(|| format!("{sink:?} is not registered as a sink of RDMA Reads"))?;
        let fits = usize::try_from(len).is_ok_and(|len| place(offset, len, entry.memory.len()).is_ok());
        if !fits {
            return Err(format!(
                "{len} bytes at offset {offset} are outside {sink:?}, which has {} bytes",
                entry.memory.len()
            ));
        }
        entry.users += 1;
        Ok(())
    }

    /// Removes a user of the memory. If no user is left and an Invalidate request waits, also removes the registration,
    /// and returns the ID of the request and the memory.
    pub(crate) fn end_use(&mut self, stag: u32) -> Option<(WrId, RegisterableMemory)> {
        let entry = self.entries.get_mut(&stag)?;
        entry.users = entry.users.saturating_sub(1);
        let id = entry.invalidate.filter(|_| entry.users == 0)?;
        self.remove(stag).map(|memory| (id, memory))
    }

    /// Returns the memory for a segment's payload, which was checked before. Returns `None` if the memory was
    /// invalidated since.
    pub(crate) fn sink(&mut self, stag: u32, start: usize, len: usize) -> Option<&mut [u8]> {
        let entry = self.entries.get_mut(&stag).filter(|entry| entry.may_be_written())?;
        let RegisterableMemory::Sink(sink) = &mut entry.memory else { return None };
        let sink: &mut PayloadBuf = sink;
        sink.get_mut(start..start.checked_add(len)?)
    }

    /// Applies the peer's Send with Invalidate (RFC 5040 §5.3). Returns `false` if the peer may not invalidate this
    /// STag. Sinks of local RDMA Reads are refused because they were never advertised.
    pub(crate) fn invalidate_by_peer(&mut self, stag: u32) -> bool {
        let Some(entry) = self.entries.get_mut(&stag).filter(|e| e.valid && e.access != Access::ReadSink) else {
            return false;
        };
        self.writable -= usize::from(entry.may_be_written());
        entry.valid = false;
        true
    }

    /// Invalidates memory. The peer's access ends at once (RFC 5041 §8.3, RFC 5042 §6.2.2).
    pub(crate) fn invalidate(&mut self, id: WrId, handle: MemoryHandle) -> InvalidateOutcome {
        let Some(entry) = self.entries.get_mut(&handle.0).filter(|entry| entry.invalidate.is_none()) else {
            return InvalidateOutcome::Unknown;
        };
        if entry.users == 0 {
            return self.remove(handle.0).map_or(InvalidateOutcome::Unknown, InvalidateOutcome::Now);
        }
        self.writable -= usize::from(entry.may_be_written());
        entry.valid = false;
        self.writable += usize::from(entry.may_be_written());
        entry.invalidate = Some(id);
        InvalidateOutcome::Later
    }

    /// Removes all users after the connection has ended, and returns the memory of pending Invalidates.
    pub(crate) fn end_all_uses(&mut self) -> Vec<(WrId, RegisterableMemory)> {
        let mut waiting = Vec::new();
        for (stag, entry) in &mut self.entries {
            entry.users = 0;
            waiting.extend(entry.invalidate.map(|id| (id, *stag)));
        }
        waiting.into_iter().filter_map(|(id, stag)| Some((id, self.remove(stag)?))).collect()
    }

    fn remove(&mut self, stag: u32) -> Option<RegisterableMemory> {
        let entry = self.entries.remove(&stag)?;
        self.writable -= usize::from(entry.may_be_written());
        self.recent[self.next_recent % RECENT] = stag;
        self.next_recent = (self.next_recent + 1) % RECENT;
        Some(entry.memory)
    }
}

/// Returns the position of `len` bytes at `offset` in memory of `size` bytes whose base is 0. Returns `Err(true)` if
/// the end of the range exceeds 2^64 - 1, and `Err(false)` if the range is out of bounds.
fn place(offset: u64, len: usize, size: usize) -> Result<usize, bool> {
    let end = u64::try_from(len).ok().and_then(|len| offset.checked_add(len)).ok_or(true)?;
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    if end > size {
        return Err(false);
    }
    usize::try_from(offset).map_err(|_| false)
}

#[cfg(test)]
mod tests;

//! Memory for RDMA transfers, and the pools that provide it.
//!
//! - [`PayloadBuf`]: writable memory with one owner, such as a landing buffer, the sink of an RDMA Read, or a source
//!   that is being filled. [`PayloadBuf::freeze`] converts it to [`Bytes`](bytes::Bytes), which return it to its pool
//!   when the last view is dropped.
//! - [`BufferPool`]: buffers that are reused, with [`PoolStats`].
//! - [`BufferSource`]: memory for the large buffers of a pool, other than that of the allocator.
//! - [`LandingPool`]: landing buffers that a caller reuses from call to call.
//! - [`LandingMemory`]: memory that the caller provides.
//! - [`LandingLoan`]: memory of the caller that comes back after a call, as a [`LandedResult`].
//! - [`AlignedBuf`]: memory at an aligned address, for direct I/O.
//! - [`MessageBuf`]: a buffer for a message that is sent or received whole.
//! - [`Output`]: a growable buffer for encoded bytes, such as a `MessageBuf`.
//!
//! This module needs no unsafe code: a provider owns the `PayloadBuf` while it may write to it.

mod aligned;
mod budget;
mod landing;
mod landing_memory;
mod loan;
mod magazine;
mod message;
mod pool;
mod pool_buffers;
mod reusable;
mod shared_buffers;
mod source;

pub use aligned::AlignedBuf;
#[doc(hidden)]
pub use budget::{BudgetCharge, MemoryAccount, MemoryBudget, MemoryShare, MemoryTurn};
pub use landing::LandingPool;
pub use landing_memory::LandingMemory;
pub use loan::{LandedResult, LandingLoan};
pub use message::MessageBuf;
pub use pool::{BufferPool, PayloadBuf};
#[doc(hidden)]
pub use pool_buffers::PoolBuffer;
pub use shared_buffers::PoolStats;
pub use source::BufferSource;

pub use crate::xdr::Output;

#[cfg(test)]
mod tests;

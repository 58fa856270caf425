//! Memory that RDMA reads from and writes to, and the pools that it comes from and returns to.
//!
//! - [`PayloadBuf`]: memory with one owner, writable: a landing buffer, the sink of an RDMA Read, a source being
//!   filled. [`PayloadBuf::freeze`] makes it a [`Bytes`](bytes::Bytes), which returns it to its pool when the last view is dropped.
//! - [`LandingPool`]: landing buffers that a caller uses for one call after the other.
//! - [`MessageBuf`]: a small one, for a message sent or received whole.
//!
//! Nothing here is unsafe: while a provider may write to a `PayloadBuf`, the provider owns it.

mod budget;
mod landing;
mod message;
mod pool;
mod pool_buffers;
mod reusable;

#[doc(hidden)]
pub use budget::MemoryShare;
pub(crate) use budget::{BudgetCharge, MemoryBudget};
pub use landing::LandingPool;
pub use message::MessageBuf;
pub use pool::{BufferPool, LandingMemory, PayloadBuf, PoolStats};
#[cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), allow(unused_imports))]
pub(crate) use pool_buffers::PoolBuffer;

pub use crate::xdr::Output;

#[cfg(test)]
mod tests;

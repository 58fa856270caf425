//! A limit on the memory that all connections of a server hold for calls, and the shares of hosts and connections.
//!
//! | part of the limit | who takes it |
//! | --- | --- |
//! | the main part, seven eighths | all hosts and connections |
//! | the part for small amounts, one eighth | hosts and connections that hold little of it and cannot take the main part without waiting |
//!
//! Arguments take at most half of the main part, and so do the results of one call. The results of all calls take the
//! other half, or the whole main part while no arguments wait. Arguments that cannot wait may exceed these limits.
//! While no call waits, a host takes memory of the main part without waiting, as long as it holds at most three times
//! what it leaves free. The same ratio limits a connection within the memory that its host may take. Other hosts and
//! connections therefore always find free memory. An amount that exceeds the ratio waits for its turn.
//!
//! Hosts take turns, and so do the connections of a host. The first host in turn that holds nothing, or that would hold
//! at most an equal share, is next. Free memory is kept for it until there is enough. If there is no such host, the
//! first host that stays within the ratio gets memory. These rules count memory for arguments and memory for results
//! separately.
//!
//! Results never wait for memory that arguments hold. A call that holds memory for its arguments may itself wait for
//! its results, or for a handler that waits for results, so that such calls would wait for one another forever. The
//! results of one call therefore fit into the half that arguments cannot take.
//!
//! | file | contents |
//! | --- | --- |
//! | `limit` | the limit, and the memory currently held |
//! | `state` | the rules: who takes memory, and who waits |
//! | `share` | the access of one connection, and charges |

mod limit;
mod share;
mod state;
#[cfg(test)]
mod tests;

pub use self::{
    limit::MemoryBudget,
    share::{BudgetCharge, MemoryAccount, MemoryShare, MemoryTurn},
};
use crate::sync;

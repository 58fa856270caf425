//! A limit on the memory that all connections of a server hold for calls, and the shares of hosts and connections.
//!
//! | part of the limit | who takes it |
//! | --- | --- |
//! | the main part, seven eighths | everybody. Arguments take at most half of it, and so do the results of one call. Results of all calls take the other half, or all of it while no arguments wait |
//! | the part for small amounts, one eighth | hosts and connections that hold little of it, while others wait for the main part |
//!
//! While nobody waits, a host takes memory of the main part until it holds three times what it leaves free, and so does a connection in
//! what is left to its host. Others therefore always find some. A larger amount waits for its turn. Hosts take turns, and so do the
//! connections of a host. Only a host that holds nothing, or less than an equal share, has a turn; then memory is kept for it until there is
//! enough. The rest of the memory goes to the others by the first rule. What is held for arguments and for results counts separately in
//! these rules.
//!
//! Results never wait for arguments, because a call with arguments may itself wait: for its results, or for a handler that waits for
//! results. Calls would wait for one another for ever. The results of one call therefore fit into what arguments leave.
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

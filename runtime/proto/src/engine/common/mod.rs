//! Parts that both directions of a connection use: state, timers, messages and chunk lists.
//!
//! | file | content |
//! | --- | --- |
//! | `shared` | state that requester and responder share; the limits of both peers |
//! | `state` | the stages of a connection |
//! | `message` | RPC messages and the headers in front of them |
//! | `format` | the parts of a header that versions encode alike: the fixed words, the chunk lists |
//! | `lists`, `chunks` | chunk lists of a header; segments |
//! | `work` | work request identifiers |
//! | `slots`, `xid_table` | storage of calls; their slots by XID |
//! | `deadlines` | deadlines of calls and of transfers |
//! | `reply_stall` | timeout for replies that the peer does not accept |

pub(super) mod chunks;
pub(super) mod deadlines;
pub(super) mod format;
pub(super) mod lists;
pub(super) mod message;
mod reply_stall;
pub(super) mod shared;
pub(super) mod slots;
pub(super) mod state;
pub(super) mod work;
pub(super) mod xid_table;

//! Calls of NLMPROC4_GRANTED to clients.
//!
//! Each client address has a queue and one task while the queue has grants, so a silent client delays only itself. The task asks
//! rpcbind on the client for its NLM service. If the client says that it does not want the lock, the server takes the lock back.
//! If a call may have arrived but was not answered, the client may act as the owner of the lock. It then keeps the lock until it
//! unlocks, cancels or restarts. If no call can have arrived, the server takes the lock back and withdraws the client's other
//! blocked requests: Linux's client asks again every 30 s.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rpcrdma::{
    CallError, Channel, ChannelBuilder, ConnectError,
    client::Reconnect,
};
use rpcrdma_specs::{
    nlm4::{NLM_PROG_PLACEHOLDER},
};

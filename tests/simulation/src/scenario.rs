//! The plan of a run, which follows from its seed: servers, clients, their calls, and the faults.

use std::collections::BTreeSet;

use crate::{
    fault::{Fault, FaultKind},
    files::{BLOCKS, FileCall},
    generated,
    network::{Direction, Host},
    random::Choices,
};

/// Time from the beginning of a run to the latest beginning of a fault, in milliseconds.
const FAULT_WINDOW: u64 = 20_000;

/// A call of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A call of NULL.
    Null,
    /// ADD to a counter.
    Add {
        /// Number of the counter.
        counter: u32,
        /// The summand.
        amount: u64,
    },
    /// VALUE of a counter.
    Value {
        /// Number of the counter.
        counter: u32,
    },
    /// PUT of a blob, whose version is the number of the operation.
    Put {
        /// The key of the blob.
        key: u32,
        /// Length of the data, in bytes.
        len: u32,
    },
    /// GET of a blob.
    Get {
        /// The key of the blob.
        key: u32,
    },
    /// SUM of the numbers from 1 to a limit.
    Sum {
        /// The last number of the sum.
        limit: u32,
    },
    /// COUNT to a limit.
    Count {
        /// The last number of the list.
        limit: u32,
    },
    /// ASK_BACK, during which the server calls the client back.
    AskBack {
        /// The number to double.
        number: u32,
    },
    /// A call to the NFS service.
    File {
        /// The ID of the directory.
        directory: u64,
        /// Length of the blocks of all files, in bytes.
        block_len: u32,
        /// The call in this directory.
        call: FileCall,
    },
    /// A call of a protocol generated from random XDR.
    Generated {
        /// Number of the protocol.
        protocol: u64,
        /// Number of the procedure.
        procedure: u64,
        /// The seed of the arguments.
        seed: u64,
    },
}

impl CallKind {
    /// Returns `true` if clients may repeat the call without a duplicate request cache.
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        match self {
            Self::Add { .. } => false,
            Self::File { call, .. } => call.only_reads(),
            _ => true,
        }
    }
}

/// A planned call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Number of the operation. It is unique in the run, and increases with each operation of a client.
    pub number: u64,
    /// `true` if the call is the last one of its client, after all faults were repaired.
    pub is_last: bool,
    /// Pause before the call, in milliseconds.
    pub pause: u64,
    /// The time limit in milliseconds. 0 for none.
    pub timeout: u64,
    /// Time after which the caller gives the call up, in milliseconds. 0 if the caller waits for the end of the call.
    pub patience: u64,
    /// The procedure and the arguments of the call.
    pub call: CallKind,
}

/// The connections of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// One channel to one server.
    Single,
    /// A pool of channels to one server.
    Pool(usize),
    /// A balancer over all servers, with one attempt of a call at a time.
    Balanced,
    /// A balancer that makes second attempts of slow calls, and limits the time of each attempt.
    Hedged,
}

impl Connections {
    const ALL: [Self; 5] = [Self::Single, Self::Pool(2), Self::Pool(3), Self::Balanced, Self::Hedged];

    /// Returns the number of channels to a server.
    #[must_use]
    pub const fn channels(self) -> usize {
        match self {
            Self::Pool(size) => size,
            _ => 1,
        }
    }

    /// Returns `true` if the calls may go to any server.
    #[must_use]
    pub const fn is_balanced(self) -> bool {
        matches!(self, Self::Balanced | Self::Hedged)
    }
}

/// The plan of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPlan {
    /// The host of the client.
    pub host: Host,
    /// The server that the client calls, unless it balances its calls over all servers.
    pub server: Host,
    /// `sim-rdma` or `sim-tcp`.
    pub scheme: &'static str,
    /// The version of RPC-over-RDMA that the client offers: 1 or 2, or 0 for both.
    pub version: u8,
    /// The connections of the client.
    pub connections: Connections,
    /// Credits to request.
    pub credits: u32,
    /// Inline threshold, in bytes.
    pub inline: u32,
    /// Interval and time-out of keep-alive probes, in milliseconds.
    pub keepalive: (u64, u64),
    /// Lifetime of the tickets of the client's security mechanism, in milliseconds. `None` if it has no limit.
    pub ticket: Option<u64>,
    /// Protection by RPCSEC_GSS: 0 for none, 1 for authentication, 2 for integrity, 3 for privacy.
    pub protection: u8,
    /// Maximum number of calls at a time.
    pub concurrency: usize,
    /// Shortest and longest pause between attempts to connect, in milliseconds.
    pub backoff: (u64, u64),
    /// Maximum number of retries of a call without a deadline. With 0, calls with a deadline are not retried either.
    pub retries: u32,
    /// The calls of the client.
    pub operations: Vec<Operation>,
}

/// The settings of all servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPlan {
    /// Credits to grant.
    pub credits: u32,
    /// Inline threshold, in bytes.
    pub inline: u32,
    /// Memory limit of the calls, in bytes.
    pub memory: u64,
    /// Maximum number of handlers at a time. 0 for no limit.
    pub handlers: usize,
    /// Maximum number of handlers of one caller at a time. 0 for no limit.
    pub per_caller: usize,
    /// Maximum lifetime of a security context, in milliseconds.
    pub lifetime: u64,
    /// Time after which an idle connection is closed, in milliseconds.
    pub idle: u64,
}

/// The plan of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The seed of everything that is not planned: delays, sizes of pieces, random numbers of the library.
    pub seed: u64,
    /// Number of servers, whose hosts are 1, 2 and so on.
    pub servers: Host,
    /// `true` if the servers share one disk, so that clients may call any of them. Otherwise, each server has its own.
    pub shares_disk: bool,
    /// The settings of the servers.
    pub server: ServerPlan,
    /// The plans of the clients.
    pub clients: Vec<ClientPlan>,
    /// The faults, in the order of their times.
    pub faults: Vec<Fault>,
}

/// Returns a random subset that is not empty, so that each run has only some features (swarm testing).
fn subset<T: Copy>(choices: &Choices, all: &[T]) -> Vec<T> {
    let percent = choices.one_of(&[20, 50, 80]);
    let mut chosen: Vec<_> = all.iter().copied().filter(|_| choices.chance(percent)).collect();
    if chosen.is_empty() {
        chosen.push(choices.one_of(all));
    }
    chosen
}

/// Returns a random call to the NFS service.
fn file_call(choices: &Choices, number: u64) -> FileCall {
    let name = || choices.within(0..=2) as u8;
    let block = || choices.within(0..=BLOCKS as u64 - 1) as u8;
    match choices.within(0..=9) {
        0 | 1 => FileCall::Create { name: name(), file: number },
        2 => FileCall::Remove { name: name() },
        3 => FileCall::Rename { from: name(), to: name() },
        4 => FileCall::List,
        5 => FileCall::LookUp { name: name() },
        6 | 7 => FileCall::Read { name: name(), file: 0, block: block() },
        _ => FileCall::Write { name: name(), file: 0, block: block(), number },
    }
}

impl Scenario {
    /// Returns the scenario that follows from a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let choices = Choices::new(seed);
        let servers = choices.one_of(&[1, 1, 2, 3]);
        let kinds = subset(&choices, &[0, 1, 1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 9]);
        let (directories, block_len) = (choices.within(1..=2), choices.one_of(&[8, 900, 5_000, 70_000]));
        let server = ServerPlan {
            credits: choices.one_of(&[1, 2, 8, 32]),
            inline: choices.one_of(&[1024, 4096, 65536]),
            memory: choices.one_of(&[640 << 10, 4 << 20, 64 << 20]),
            // A handler that calls back waits for its client, and with it all that come after the last one that may
            // run.
            handlers: if kinds.contains(&5) { 0 } else { choices.one_of(&[0, 0, 1, 4]) },
            lifetime: choices.one_of(&[12_000, 60_000, 3_600_000]),
            per_caller: choices.one_of(&[0, 0, 1]),
            idle: choices.one_of(&[500, 5_000, 360_000]),
        };
        let schemes = subset(&choices, &["sim-rdma", "sim-rdma", "sim-tcp"]);
        let versions = subset(&choices, &[0, 1, 2]);
        let connections = subset(&choices, &Connections::ALL);
        let (keys, counters) = (choices.within(1..=3) as u32, choices.within(1..=2) as u32);
        let (operations, max_concurrency) = (choices.within(3..=25), choices.one_of(&[1, 2, 6]));
        let max_pause = choices.one_of(&[5, 200, 2_000]);
        let timeouts = subset(&choices, &[1_000, 3_000, 15_000, 60_000, 0]);
        let protections = if choices.chance(70) { vec![0] } else { subset(&choices, &[0, 1, 2, 3]) };
        let tickets = subset(&choices, &[None, Some(5_000), Some(60_000)]);
        let cancelled = choices.one_of(&[0, 0, 20]);
        let mut next = 0;
        let clients = (0..choices.within(1..=4)).map(|index| {
            let connections = choices.one_of(&connections);
            let operations = (0..operations).map(|_| {
                next += 1;
                let call = match choices.one_of(&kinds) {
                    0 => CallKind::Null,
                    1 => CallKind::Add {
                        counter: choices.within(1..=counters.into()) as u32,
                        amount: choices.within(1..=1000),
                    },
                    2 => CallKind::Value { counter: choices.within(1..=counters.into()) as u32 },
                    3 => CallKind::Put {
                        key: choices.within(1..=keys.into()) as u32,
                        len: choices.one_of(&[0, 1, 7, 900, 5_000, 70_000, 262_144]),
                    },
                    4 => CallKind::Get { key: choices.within(1..=keys.into()) as u32 },
                    6 => CallKind::Sum { limit: choices.one_of(&[0, 10, 300, 5_000, 20_000]) },
                    7 => CallKind::Count { limit: choices.one_of(&[0, 10, 300, 5_000, 20_000]) },
                    8 => CallKind::File {
                        directory: choices.within(1..=directories),
                        block_len,
                        call: file_call(&choices, next),
                    },
                    9 => CallKind::Generated {
                        protocol: choices.within(0..=generated::PROTOCOLS - 1),
                        procedure: choices.within(0..=generated::PROCEDURES - 1),
                        seed: choices.number(),
                    },
                    _ => CallKind::AskBack { number: choices.number() as u32 },
                };
                let timeout = choices.one_of(&timeouts);
                let patience = if choices.chance(cancelled) { choices.within(1..=50) } else { 0 };
                Operation {
                    patience,
                    number: next,
                    is_last: false,
                    pause: choices.millis(0..=max_pause).as_millis() as u64,
                    timeout,
                    call,
                }
            });
            ClientPlan {
                host: 100 + index as Host,
                server: choices.within(1..=u64::from(servers)) as Host,
                scheme: choices.one_of(&schemes),
                version: choices.one_of(&versions),
                connections,
                credits: choices.one_of(&[1, 2, 8, 32]),
                inline: choices.one_of(&[1024, 4096, 65536]),
                keepalive: (choices.one_of(&[500, 5_000]), choices.one_of(&[500, 5_000])),
                ticket: choices.one_of(&tickets),
                protection: choices.one_of(&protections),
                concurrency: choices.within(1..=max_concurrency) as usize,
                backoff: choices.one_of(&[(1, 10), (100, 3_000)]),
                // Without retries, a call fails whenever the server closes an idle connection at the same time.
                retries: if server.idle < 100_000 { choices.one_of(&[1, 3]) } else { choices.one_of(&[0, 1, 3]) },
                operations: operations.collect(),
            }
        });
        let clients: Vec<_> = clients.collect();
        // A balancer's clients see one service only if its servers share their data.
        let is_balanced = clients.iter().any(|client| client.connections.is_balanced());
        let shares_disk = is_balanced || choices.chance(50);
        let fault_kinds = subset(&choices, &FaultKind::ALL);
        let count = choices.one_of(&[0, 1, 3, 8, 20]);
        let mut faults: Vec<_> = (0..count)
            .map(|_| {
                let kind = choices.one_of(&fault_kinds);
                let client = choices.one_of(&clients);
                let is_balanced = client.connections.is_balanced();
                Fault {
                    kind,
                    at: choices.within(0..=choices.one_of(&[500, 5_000, FAULT_WINDOW])),
                    len: choices.millis(1..=if choices.chance(10) { 90_000 } else { 15_000 }).as_millis() as u64,
                    client: client.host,
                    server: if is_balanced { choices.within(1..=u64::from(servers)) as Host } else { client.server },
                    direction: choices.one_of(&Direction::ALL),
                    number: match kind {
                        FaultKind::Cut => choices.within(0..=40),
                        FaultKind::ClockJump => choices.one_of(&[100, 3_000, 60_000, 4_000_000]),
                        FaultKind::SlowHandlers => choices.one_of(&[50, 1_000, 10_000]),
                        FaultKind::TornWrite => choices.within(0..=1),
                        _ => choices.one_of(&[3, 20, 200]),
                    },
                }
            })
            .collect();
        faults.sort_by_key(|fault| fault.at);
        Self { seed: choices.number(), servers, shares_disk, server, clients, faults }
    }

    /// Returns the hosts of the servers.
    pub fn server_hosts(&self) -> impl Iterator<Item = Host> + use<> {
        1..=self.servers
    }

    /// Returns the kinds of the planned faults.
    #[must_use]
    pub fn fault_kinds(&self) -> BTreeSet<FaultKind> {
        self.faults.iter().map(|fault| fault.kind).collect()
    }
}

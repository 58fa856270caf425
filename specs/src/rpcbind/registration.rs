//! Registration of a server with rpcbind (RFC 1833 §2.2.1).

#[cfg(unix)]
use std::time::Duration;
use std::{error::Error, fmt, net::SocketAddr};

#[cfg(unix)]
use rpcrdma::ConnectError;
use rpcrdma::{CallError, transport::Url};
#[cfg(unix)]
use tokio::{sync::oneshot, task::JoinHandle};

use super::{Netid, Rpcbind};

/// The registration of a server's listeners with rpcbind. [`unregister`](Self::unregister) ends it.
///
/// ```no_run
/// # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma::Server;
/// use rpcrdma_specs::rpcbind::Registration;
///
/// let server = Server::builder().service(service).listen("iwarp://[::]:20100").bind().await?;
/// let registration = Registration::keep(&[(0x2000_0001, 1)], server.urls()).await?;
/// let handle = server.handle();
/// tokio::spawn(async move {
///     handle.unready().await;
///     registration.unregister().await
/// });
/// server.serve().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "unregister the server before it ends"]
pub struct Registration(RegistrationKind);

#[derive(Debug)]
enum RegistrationKind {
    Once(Registered),
    /// A task repeats the registration when rpcbind has lost it.
    #[cfg(unix)]
    Kept {
        end: oneshot::Sender<()>,
        task: JoinHandle<()>,
    },
}

/// An rpcbind entry: one version of a program, and the netid and the address of its listener.
#[derive(Debug, Clone, Copy)]
struct Entry {
    program: u32,
    version: u32,
    netid: Netid,
    addr: SocketAddr,
}

/// A connection to rpcbind, and the entries that are registered there.
#[derive(Debug)]
struct Registered {
    rpcbind: Rpcbind,
    entries: Vec<Entry>,
}

/// The reason why the listeners of a server were not registered with rpcbind.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RegisterError {
    /// A call to rpcbind failed.
    Call(CallError),
    /// rpcbind refused the registration.
    Refused {
        /// The program number.
        program: u32,
        /// The program version.
        version: u32,
        /// The network identifier (netid) of the listener.
        netid: Netid,
        /// The address of the listener.
        addr: SocketAddr,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Refused { program, version, netid, addr } => write!(
                f,
                "rpcbind refused to register program {program:#x} version {version} over {netid} at {addr}: another server may be \
                 registered, see `rpcinfo`"
            ),
        }
    }
}

impl Error for RegisterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Call(error) => error.source(),
            Self::Refused { .. } => None,
        }
    }
}

/// Returns the netids and addresses to register for a listener. The result is empty if `url` is invalid, or if its host
/// is not an IP address.
fn addresses(url: &str) -> Vec<(Netid, SocketAddr)> {
    let (addr, transport) = match url.strip_prefix("udp://") {
        Some(addr) => {
            let Ok(addr) = addr.parse::<SocketAddr>() else { return Vec::new() };
            (addr, None)
        }
        None => {
            let Ok(url) = url.parse::<Url>() else { return Vec::new() };
            let Ok(ip) = url.host().parse() else { return Vec::new() };
            (SocketAddr::new(ip, url.port()), Some(url.scheme().transport()))
        }
    };
    let mut addresses = vec![addr];
    // A listener on the wildcard address of IPv6 accepts IPv4 as well.
    if addr.ip() == std::net::Ipv6Addr::UNSPECIFIED {
        addresses.push(SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), addr.port()));
    }
    let netid = |addr: &SocketAddr| match transport {
        Some(transport) => Netid::of(transport, addr.ip()),
        None if addr.is_ipv4() => Netid::Udp,
        None => Netid::Udp6,
    };
    addresses.into_iter().map(|addr| (netid(&addr), addr)).collect()
}

/// Returns the entries to register for `programs` at `urls`. Only the first address of each netid is registered.
fn entries(programs: &[(u32, u32)], urls: &[String]) -> Vec<Entry> {
    let mut listeners: Vec<_> = urls.iter().flat_map(|url| addresses(url)).collect();
    // The sort is stable, so the first URL of each transport stays.
    listeners.sort_by_key(|(netid, _)| *netid);
    listeners.dedup_by_key(|(netid, _)| *netid);
    let of_program = |&(program, version): &(u32, u32)| {
        let entry = move |&(netid, addr): &(Netid, SocketAddr)| Entry { program, version, netid, addr };
        listeners.iter().map(entry).collect::<Vec<_>>()
    };
    programs.iter().flat_map(of_program).collect()
}

impl Registered {
    /// Registers `entries`, in place of entries that a predecessor has left. If one of them cannot be registered,
    /// removes those that were registered before it.
    async fn new(rpcbind: Rpcbind, entries: &[Entry]) -> Result<Self, RegisterError> {
        let mut registered = Self { rpcbind, entries: Vec::new() };
        for entry in entries {
            if let Err(error) = registered.add(*entry).await {
                registered.unregister().await;
                return Err(error);
            }
        }
        Ok(registered)
    }

    async fn add(&mut self, entry: Entry) -> Result<(), RegisterError> {
        let Entry { program, version, netid, addr } = entry;
        self.rpcbind.unregister(program, version, netid).await.map_err(RegisterError::Call)?;
        if !self.rpcbind.register(program, version, netid, addr).await.map_err(RegisterError::Call)? {
            return Err(RegisterError::Refused { program, version, netid, addr });
        }
        self.entries.push(entry);
        Ok(())
    }

    async fn unregister(self) {
        for Entry { program, version, netid, .. } in self.entries {
            let _ = self.rpcbind.unregister(program, version, netid).await;
        }
    }
}

impl Registration {
    /// Registers each of `programs` at `urls` ([`Server::urls`](rpcrdma::server::Server::urls)). Each program is a pair
    /// of a program number and a version. Only the first address of each netid is registered. URLs that are invalid or
    /// whose host is not an IP address are ignored. `udp://ADDRESS:PORT` registers a UDP socket that the caller serves,
    /// because this library has no UDP transport. Replaces registrations that a predecessor has left.
    ///
    /// The registration is lost if rpcbind restarts. Use [`keep`](Self::keep) to repeat it then.
    ///
    /// # Errors
    /// Returns [`RegisterError`] if a call to rpcbind fails, or if rpcbind refuses a registration. Registrations made
    /// before the error are removed again.
    pub async fn new(rpcbind: Rpcbind, programs: &[(u32, u32)], urls: &[String]) -> Result<Self, RegisterError> {
        let registered = Registered::new(rpcbind, &entries(programs, urls)).await?;
        Ok(Self(RegistrationKind::Once(registered)))
    }

    /// Registers with rpcbind on this host ([`Rpcbind::local`]) like [`new`](Self::new), and repeats the registration
    /// when rpcbind has restarted. If rpcbind cannot be reached, this function logs a warning, and a task registers the
    /// server later.
    ///
    /// # Errors
    /// Returns [`RegisterError`] if rpcbind can be reached, but does not register the server.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    #[cfg(unix)]
    pub async fn keep(programs: &[(u32, u32)], urls: &[String]) -> Result<Self, RegisterError> {
        let entries = entries(programs, urls);
        let registered = match register_locally(&entries).await {
            Ok(registered) => Some(registered),
            Err(KeepError::Register(error)) => return Err(error),
            Err(KeepError::Unreachable(error)) => {
                warn_of(&*error);
                None
            }
        };
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(keep(entries, registered, ended));
        Ok(Self(RegistrationKind::Kept { end, task }))
    }

    /// Removes the registrations. Errors are ignored, because rpcbind may have ended before the server.
    pub async fn unregister(self) {
        match self.0 {
            RegistrationKind::Once(registered) => registered.unregister().await,
            #[cfg(unix)]
            RegistrationKind::Kept { end, task } => {
                let _ = end.send(());
                let _ = task.await;
            }
        }
    }
}

/// The first and the longest pause before another attempt to reach rpcbind. Each pause is twice as long as the one
/// before.
#[cfg(unix)]
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The reason why an attempt to register failed.
#[cfg(unix)]
enum KeepError {
    /// rpcbind cannot be reached. A later attempt may succeed.
    Unreachable(Box<dyn Error + Send + Sync>),
    Register(RegisterError),
}

#[cfg(unix)]
impl From<ConnectError> for KeepError {
    fn from(error: ConnectError) -> Self {
        Self::Unreachable(error.into())
    }
}

#[cfg(unix)]
impl From<RegisterError> for KeepError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Call(error @ (CallError::Connect { .. } | CallError::Transport { .. })) => {
                Self::Unreachable(error.into())
            }
            error => Self::Register(error),
        }
    }
}

#[cfg(unix)]
async fn register_locally(entries: &[Entry]) -> Result<Registered, KeepError> {
    Ok(Registered::new(Rpcbind::local().await?, entries).await?)
}

#[cfg(unix)]
fn warn_of(error: &(dyn Error + 'static)) {
    tracing::warn!(
        target: "rpcrdma", error,
        "cannot register with rpcbind, the server serves without, and registers when rpcbind is back"
    );
}

/// Connects to rpcbind again. Registers `entries` if rpcbind does not list all of them. They are still listed if
/// rpcbind only closed an idle connection.
#[cfg(unix)]
async fn restore(entries: &[Entry]) -> Result<Registered, KeepError> {
    let rpcbind = Rpcbind::local().await?;
    for entry in entries {
        let found = rpcbind.lookup(entry.program, entry.version, entry.netid).await.map_err(RegisterError::Call)?;
        if found.map(|found| found.port()) != Some(entry.addr.port()) {
            let registered = Registered::new(rpcbind, entries).await?;
            tracing::info!(target: "rpcrdma", "registered with rpcbind again");
            return Ok(registered);
        }
    }
    Ok(Registered { rpcbind, entries: entries.to_vec() })
}

/// Keeps `entries` registered until `ended` receives a message or its sender is dropped, and then removes them.
#[cfg(unix)]
async fn keep(entries: Vec<Entry>, mut registered: Option<Registered>, mut ended: oneshot::Receiver<()>) {
    let (mut pause, mut has_warned) = (PAUSES.0, registered.is_none());
    loop {
        if let Some(current) = &registered {
            tokio::select! {
                // An error means that the registration was dropped.
                _ = &mut ended => break,
                () = current.rpcbind.closed() => {}
            }
        }
        tokio::select! {
            _ = &mut ended => break,
            () = tokio::time::sleep(pause) => {}
        }
        // Not cancelled in the middle, so that nothing stays registered that is not known.
        match restore(&entries).await {
            Ok(restored) => {
                registered = Some(restored);
                (pause, has_warned) = (PAUSES.0, false);
            }
            Err(error) => {
                registered = None;
                let error: Box<dyn Error + Send + Sync> = match error {
                    KeepError::Unreachable(error) => error,
                    KeepError::Register(error) => error.into(),
                };
                if !std::mem::replace(&mut has_warned, true) {
                    warn_of(&*error);
                }
                pause = pause.saturating_mul(2).min(PAUSES.1);
            }
        }
    }
    // rpcbind may have been restarted with the registrations that it had before.
    if let Ok(rpcbind) = Rpcbind::local().await {
        Registered { rpcbind, entries }.unregister().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        let of = |url| addresses(url).iter().map(|(netid, addr)| format!("{netid} {addr}")).collect::<Vec<_>>();
        assert_eq!(of("tcp://192.0.2.1:7"), ["tcp 192.0.2.1:7"]);
        assert_eq!(of("iwarp://[::]:20100?crc=off"), ["rdma6 [::]:20100", "rdma 0.0.0.0:20100"]);
        assert_eq!(of("udp://192.0.2.1:7"), ["udp 192.0.2.1:7"]);
        assert_eq!(of("udp://[::]:7"), ["udp6 [::]:7", "udp 0.0.0.0:7"]);
        assert!(of("tcp://a.name:1").is_empty() && of("udp://a.name:1").is_empty() && of("no URL").is_empty());
    }
}

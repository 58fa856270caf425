//! The list of hosts with locks, which survives a restart of the server, and the server's state number.
//!
//! The file has lines of text and ends with their hash. It is replaced as a whole, and is on stable storage before a
//! host gets its first monitored lock. A damaged file does not keep the server from starting. The hosts that had locks
//! are then unknown, so the server notifies none of them, but waits for reclaims.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::task::spawn_blocking;

use super::owner::Host;

const NAME: &str = "locks";
const FORM: &str = "nfs3d locks 1";
/// Maximum number of hosts in the list. A host takes up to 2200 of the [`MAX_BYTES`] bytes of the file.
const MAX_HOSTS: usize = 16_384;
const MAX_BYTES: u64 = 40 << 20;
/// Time after which a host without locks may leave the list.
const IDLE: Duration = Duration::from_secs(3600);

/// A host in the list.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The server's address that the host uses.
    local: Option<IpAddr>,
    /// The time of the host's last request for a monitored lock, or of the server's start.
    used: Instant,
    /// The number of the change of the list that added or updated the entry.
    change: u64,
}

/// The list in memory, which may have changes that are not in the file yet.
#[derive(Debug, Default)]
struct List {
    hosts: BTreeMap<Arc<Host>, Entry>,
    /// The number of changes since the server has started.
    changes: u64,
    /// The number of changes that are in the file.
    stored: u64,
}

/// The hosts to notify after a restart.
#[derive(Debug)]
pub(super) struct MonitoredHosts {
    path: PathBuf,
    state: i32,
    names_per_client: usize,
    list: Mutex<List>,
    /// Held while the file is written. All changes that wait for it are written together.
    writing: tokio::sync::Mutex<()>,
}

/// The list of hosts with locks that the previous run of the server stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Predecessor {
    /// The hosts that may have had locks, with the server's addresses that they used.
    pub(super) hosts: Vec<(Arc<Host>, Option<IpAddr>)>,
    /// `true` if the list is damaged.
    pub(super) is_damaged: bool,
}

impl MonitoredHosts {
    /// Reads the list in the directory `state`, and records the new state number.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written.
    pub(super) fn open(state: &Path, names_per_client: usize) -> io::Result<(Self, Predecessor)> {
        let path = state.join(NAME);
        let (last, hosts, is_damaged) = match read(&path)? {
            None => (-1, Vec::new(), false),
            Some(text) => match parse(&text) {
                Some((state, hosts)) => (state, hosts, false),
                None => {
                    tracing::error!(file = %path.display(), "the list of hosts with locks is damaged, hosts are not notified");
                    // Larger than any number that counts restarts.
                    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
                    ((seconds & 0x3FFF_FFFF) as i32, Vec::new(), true)
                }
            },
        };
        let state = next_state(last);
        let used = Instant::now();
        let entries = hosts.iter().map(|(host, local)| (Arc::clone(host), Entry { local: *local, used, change: 0 }));
        let list = List { hosts: entries.collect(), ..List::default() };
        write(&path, state, &list.hosts)?;
        let (list, writing) = (Mutex::new(list), tokio::sync::Mutex::default());
        Ok((Self { path, state, names_per_client, list, writing }, Predecessor { hosts, is_damaged }))
    }

    /// Returns the server's state number (NSM). It is odd, and grows with each restart until it starts again at 1.
    pub(super) fn state(&self) -> i32 {
        self.state
    }

    /// Adds a host to the list, or updates the server's address that the host uses. Waits until the list is on stable
    /// storage. Before the list changes, hosts without locks leave the list if their last request for a monitored lock
    /// was more than an hour ago. If the client address has too many names, its least recently used host without locks
    /// leaves the list as well.
    ///
    /// # Errors
    /// Fails if the list cannot be written, if it has too many hosts, or if too many hosts at the client address have
    /// locks.
    pub(super) async fn add(
        &self,
        host: &Arc<Host>,
        local: Option<IpAddr>,
        is_in_use: impl Fn(&Host) -> bool,
    ) -> io::Result<()> {
        let change = self.insert(host, local, is_in_use)?;
        if self.list().stored >= change {
            return Ok(());
        }
        let _writing = self.writing.lock().await;
        if self.list().stored >= change {
            return Ok(());
        }
        self.store().await
    }

    /// Adds a host to the list in memory, and returns the number of the change that added or updated it.
    fn insert(&self, host: &Arc<Host>, local: Option<IpAddr>, is_in_use: impl Fn(&Host) -> bool) -> io::Result<u64> {
        let mut list = self.list();
        let used = Instant::now();
        if let Some(entry) = list.hosts.get_mut(host)
            && entry.local == local
        {
            entry.used = used;
            return Ok(entry.change);
        }
        list.hosts.retain(|host, entry| entry.used.elapsed() < IDLE || is_in_use(host));
        let of_client = |other: &&Arc<Host>| other.account() == host.account() && *other != host;
        if list.hosts.keys().filter(of_client).count() >= self.names_per_client {
            let idle = list.hosts.iter().filter(|(other, _)| of_client(other) && !is_in_use(other));
            let idle = idle.min_by_key(|(_, entry)| entry.used).map(|(other, _)| Arc::clone(other));
            let idle = idle.ok_or_else(|| io::Error::other("too many hosts at one address have locks"))?;
            list.hosts.remove(&idle);
        }
        if list.hosts.len() >= MAX_HOSTS {
            return Err(io::Error::other(format!("{MAX_HOSTS} hosts have had locks within the last hour")));
        }
        list.changes += 1;
        let change = list.changes;
        list.hosts.insert(Arc::clone(host), Entry { local, used, change });
        Ok(change)
    }

    /// Removes the hosts without locks from the list when the server stops.
    ///
    /// # Errors
    /// Fails if the list cannot be written.
    pub(super) async fn prune(&self, is_in_use: impl Fn(&Host) -> bool) -> io::Result<()> {
        let _writing = self.writing.lock().await;
        let is_changed = {
            let mut list = self.list();
            let before = list.hosts.len();
            list.hosts.retain(|host, _| is_in_use(host));
            list.hosts.len() != before
        };
        if is_changed { self.store().await } else { Ok(()) }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the list. `writing` must be held.
    async fn store(&self) -> io::Result<()> {
        let (hosts, changes) = {
            let list = self.list();
            (list.hosts.clone(), list.changes)
        };
        let (path, state) = (self.path.clone(), self.state);
        spawn_blocking(move || write(&path, state, &hosts)).await.map_err(io::Error::other)??;
        self.list().stored = changes;
        Ok(())
    }
}

/// Returns the next odd number, or 1 after the largest one.
fn next_state(last: i32) -> i32 {
    let next = if last % 2 == 0 { last.checked_add(1) } else { last.checked_add(2) };
    next.filter(|next| *next > 0).unwrap_or(1)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(Some(text))
}

type Hosts = Vec<(Arc<Host>, Option<IpAddr>)>;

/// Returns the state number and the hosts, or `None` if the text is not a list as it was written.
fn parse(text: &[u8]) -> Option<(i32, Hosts)> {
    let text = std::str::from_utf8(text).ok()?;
    let (content, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    if sum.strip_prefix("sum ")? != blake3::hash(content.as_bytes()).to_hex().as_str() {
        return None;
    }
    let mut lines = content.lines();
    if lines.next()? != FORM {
        return None;
    }
    let state = lines.next()?.strip_prefix("state ")?.parse().ok()?;
    let host = |line: &str| {
        let mut words = line.strip_prefix("host ")?.split(' ');
        let (addr, local, name) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let local = if local == "-" { None } else { Some(local.parse().ok()?) };
        Some((Arc::new(Host::new(addr, &unhex(name)?)), local))
    };
    Some((state, lines.map(host).collect::<Option<_>>()?))
}

fn write(path: &Path, state: i32, hosts: &BTreeMap<Arc<Host>, Entry>) -> io::Result<()> {
    let mut text = format!("{FORM}\nstate {state}");
    for (host, entry) in hosts {
        let local = entry.local.map_or_else(|| "-".to_owned(), |local| local.to_string());
        text += &format!("\nhost {} {local} {}", host.addr, hex(&host.name));
    }
    let sum = blake3::hash(text.as_bytes()).to_hex();
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    write!(file, "{text}\nsum {sum}\n")?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    fs::File::open(folder)?.sync_all()
}

/// Returns the bytes in hexadecimal after the letter `x`, so that an empty name is a word as well.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix('x')?.as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn host(n: u8, name: &str) -> Arc<Host> {
        Arc::new(Host::new([192, 0, 2, n].into(), name.as_bytes()))
    }

    #[tokio::test]
    async fn hosts_survive_a_restart_and_the_state_is_odd_and_grows() {
        let folder = tempfile::tempdir().unwrap();
        let (hosts, before) = MonitoredHosts::open(folder.path(), 64).unwrap();
        assert_eq!((hosts.state(), before), (1, Predecessor::default()));
        let local = Some(IpAddr::from([192, 0, 2, 9]));
        hosts.add(&host(1, "a b\n"), local, |_| true).await.unwrap();
        hosts.add(&host(2, ""), None, |_| true).await.unwrap();
        hosts.add(&host(1, "a b\n"), local, |_| true).await.unwrap();
        drop(hosts);
        let (hosts, before) = MonitoredHosts::open(folder.path(), 64).unwrap();
        assert_eq!(hosts.state(), 3);
        let expected = vec![(host(1, "a b\n"), local), (host(2, ""), None)];
        assert_eq!(before, Predecessor { hosts: expected, is_damaged: false });
        // A second restart during the grace period notifies the same hosts.
        let (hosts, before) = MonitoredHosts::open(folder.path(), 64).unwrap();
        assert_eq!((hosts.state(), before.hosts.len()), (5, 2));
        hosts.prune(|used| used.name.is_empty()).await.unwrap();
        let (hosts, before) = MonitoredHosts::open(folder.path(), 64).unwrap();
        assert_eq!((hosts.state(), before.hosts), (7, vec![(host(2, ""), None)]));
    }

    #[tokio::test]
    async fn the_address_that_a_host_uses_is_kept_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        let (hosts, _) = MonitoredHosts::open(folder.path(), 64).unwrap();
        let local = |n| Some(IpAddr::from([192, 0, 2, n]));
        for n in [8, 9] {
            hosts.add(&host(1, "a"), local(n), |_| true).await.unwrap();
        }
        assert_eq!(MonitoredHosts::open(folder.path(), 64).unwrap().1.hosts, [(host(1, "a"), local(9))]);
    }

    #[tokio::test]
    async fn a_torn_list_is_noticed_wherever_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (hosts, _) = MonitoredHosts::open(folder.path(), 64).unwrap();
        hosts.add(&host(1, "alpha"), None, |_| true).await.unwrap();
        let path = folder.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        let damaged = (0..whole.len()).map(|len| whole[..len].to_vec());
        let flipped = (0..whole.len()).map(|at| {
            let mut text = whole.clone();
            text[at] ^= 1;
            text
        });
        for text in damaged.chain(flipped) {
            assert_eq!(parse(&text), None, "{:?}", text.escape_ascii().to_string());
        }
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let (hosts, before) = MonitoredHosts::open(folder.path(), 64).unwrap();
        assert!(before.is_damaged && before.hosts.is_empty());
        assert!(hosts.state() > 1000 && hosts.state() % 2 == 1, "{}", hosts.state());
        assert!(!MonitoredHosts::open(folder.path(), 64).unwrap().1.is_damaged);
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::create_dir(&state).unwrap();
        let (hosts, _) = MonitoredHosts::open(&state, 64).unwrap();
        fs::remove_dir_all(&state).unwrap();
        hosts.add(&host(1, "alpha"), None, |_| true).await.unwrap_err();
        hosts.add(&host(1, "alpha"), None, |_| true).await.unwrap_err();
    }

    #[tokio::test]
    async fn an_address_with_many_names_replaces_its_own_idle_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (hosts, _) = MonitoredHosts::open(folder.path(), 3).unwrap();
        let is_in_use = |host: &Host| *host.name == *b"kept";
        hosts.add(&host(2, "other"), None, is_in_use).await.unwrap();
        for name in ["kept", "a", "b", "c", "d"] {
            hosts.add(&host(1, name), None, is_in_use).await.unwrap();
        }
        let names =
            |hosts: Hosts| hosts.iter().map(|(host, _)| host.name.escape_ascii().to_string()).collect::<Vec<_>>();
        let (hosts, before) = MonitoredHosts::open(folder.path(), 3).unwrap();
        assert_eq!(names(before.hosts), ["c", "d", "kept", "other"]);
        hosts.add(&host(1, "e"), None, |_| true).await.unwrap_err();
        hosts.add(&host(1, "d"), None, |_| true).await.unwrap();
        hosts.add(&host(3, "e"), None, |_| true).await.unwrap();
    }

    #[tokio::test]
    async fn hosts_that_are_added_together_are_all_stored() {
        let folder = tempfile::tempdir().unwrap();
        let (hosts, _) = MonitoredHosts::open(folder.path(), 64).unwrap();
        let added: Vec<_> = (0..50).map(|n| host(n, "a")).collect();
        let adding = added.iter().map(|host| hosts.add(host, None, |_| true));
        assert!(futures_util::future::join_all(adding).await.iter().all(Result::is_ok));
        assert_eq!(MonitoredHosts::open(folder.path(), 64).unwrap().1.hosts.len(), 50);
    }

    #[test]
    fn states_wrap_to_one() {
        assert_eq!([next_state(-1), next_state(1), next_state(2), next_state(i32::MAX)], [1, 3, 3, 1]);
    }
}

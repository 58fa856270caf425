//! Discovery of servers through rpcbind (RFC 1833 §2).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rpcrdma::{
    client::discover::Servers,
    transport::{Scheme, Transport},
};
use tokio::task::JoinSet;

use super::{Netid, Rpcbind};

/// A service whose servers are registered with rpcbind on known hosts.
///
/// The server of a host whose rpcbind does not answer stays in the list, because a load balancer detects by itself that
/// a server is down. The server is removed if rpcbind on the host no longer lists this version of the program for the
/// transport.
///
/// ```no_run
/// use rpcrdma::transport::Scheme;
/// use rpcrdma_specs::rpcbind::RpcbindService;
///
/// let servers = RpcbindService::new(["one.example", "two.example"], 0x2000_0001, 1, Scheme::IWARP).servers();
/// # drop(servers);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct RpcbindService {
    hosts: Vec<(String, u16)>,
    program: u32,
    version: u32,
    scheme: Scheme,
    interval: Duration,
}

impl RpcbindService {
    /// Creates the service for one version of a program on `hosts`, over the transport of `scheme`.
    pub fn new<H: Into<String>>(
        hosts: impl IntoIterator<Item = H>,
        program: u32,
        version: u32,
        scheme: Scheme,
    ) -> Self {
        let hosts = hosts.into_iter().map(|host| (host.into(), super::RPCB_PORT as u16)).collect();
        Self { hosts, program, version, scheme, interval: Duration::from_secs(10) }
    }

    /// Sets the TCP port of rpcbind on all hosts. The default is 111.
    pub fn port(mut self, port: u16) -> Self {
        self.hosts.iter_mut().for_each(|host| host.1 = port);
        self
    }

    /// Sets the time between two queries of a host. The default is 10 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Starts a task that queries the hosts concurrently, and repeats the queries as long as the list is used. The list
    /// is unknown until a server is found, or until each host has answered or failed once.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn servers(self) -> Servers {
        let (sender, servers) = Servers::channel();
        tokio::spawn(async move {
            // Dropping the queries ends them.
            tokio::select! {
                () = sender.closed() => {}
                () = self.keep_up_to_date(|known| sender.set(known)) => {}
            }
        });
        servers
    }

    /// Queries all hosts at intervals, and publishes each change of the set of server URLs. A host that does not answer
    /// does not delay the queries of other hosts.
    async fn keep_up_to_date(self, publish: impl Fn(BTreeSet<String>)) {
        let mut known = vec![None; self.hosts.len()];
        let service = Arc::new(self);
        let mut queries = JoinSet::new();
        for index in 0..known.len() {
            queries.spawn(Arc::clone(&service).query_again(index, Duration::ZERO));
        }
        if known.is_empty() {
            publish(BTreeSet::new());
        }
        let mut published = None;
        while let Some(answer) = queries.join_next().await {
            // Queries do not panic, and nothing cancels them but the end of this task.
            let Ok((index, answer)) = answer else { continue };
            match answer {
                Some(found) => known[index] = Some(found),
                None => drop(known[index].get_or_insert_with(BTreeSet::new)),
            }
            queries.spawn(Arc::clone(&service).query_again(index, service.interval));
            let list: BTreeSet<String> = known.iter().flatten().flatten().cloned().collect();
            let is_known = !list.is_empty() || known.iter().all(Option::is_some);
            if is_known && published.as_ref() != Some(&list) {
                publish(list.clone());
                published = Some(list);
            }
        }
    }

    /// Waits for `delay`, and then queries the host at `index`. Returns the index and the answer.
    async fn query_again(self: Arc<Self>, index: usize, delay: Duration) -> (usize, Option<BTreeSet<String>>) {
        tokio::time::sleep(delay).await;
        let (host, port) = &self.hosts[index];
        (index, self.query(host, *port).await)
    }

    /// Returns the URL of the server on a host, or an empty set if rpcbind does not list the server. Returns `None` if
    /// the connection to rpcbind or a call fails.
    async fn query(&self, host: &str, port: u16) -> Option<BTreeSet<String>> {
        let rpcbind = Rpcbind::connect_to_port(host, port).await.ok()?;
        let netids = match self.scheme.transport() {
            Transport::Tcp => [Netid::Tcp, Netid::Tcp6],
            _ => [Netid::Rdma, Netid::Rdma6],
        };
        let mut urls = BTreeSet::new();
        for netid in netids {
            // One address is enough: both lead to the same server.
            if let Some(addr) = rpcbind.lookup(self.program, self.version, netid).await.ok()?
                && urls.is_empty()
            {
                urls.insert(format!("{}://{addr}", self.scheme.as_str()));
            }
        }
        Some(urls)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures_util::StreamExt as _;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    use super::*;

    /// A time limit that is shorter than the time limits of a query.
    const SOON: Duration = Duration::from_secs(5);

    async fn listeners<const N: usize>() -> ([TcpListener; N], RpcbindService) {
        let mut service = RpcbindService::new(["127.0.0.1"; N], 0x2000_0001, 1, Scheme::IWARP);
        let mut listeners = Vec::new();
        for (_, port) in &mut service.hosts {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            *port = listener.local_addr().unwrap().port();
            listeners.push(listener);
        }
        (listeners.try_into().unwrap(), service)
    }

    /// Accepts the connection of a query, and reads the call.
    async fn accept(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let call = read(&mut stream).await;
        (stream, call)
    }

    async fn read(stream: &mut TcpStream) -> Vec<u8> {
        let mark = stream.read_u32().await.unwrap();
        let mut call = vec![0; (mark & 0x7FFF_FFFF) as usize];
        stream.read_exact(&mut call).await.unwrap();
        call
    }

    async fn next(servers: &mut Servers) -> BTreeSet<String> {
        timeout(SOON, servers.next()).await.unwrap().unwrap()
    }

    /// Returns the reply to an RPCBPROC_DUMP call, with one registration.
    fn reply(call: &[u8], netid: &str, addr: &str) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let mut reply = call[..4].to_vec();
        reply.extend(words(&[1, 0, 0, 0, 0, 1, 0x2000_0001, 1]));
        for text in [netid, addr, "root"] {
            reply.extend(words(&[text.len() as u32]));
            reply.extend(text.as_bytes());
            reply.resize(reply.len().next_multiple_of(4), 0);
        }
        reply.extend(words(&[0]));
        [words(&[0x8000_0000 | reply.len() as u32]), reply].concat()
    }

    #[test]
    fn queries_use_the_well_known_port() {
        let service = RpcbindService::new(["one.example", "192.0.2.1"], 0x2000_0001, 1, Scheme::IWARP);
        assert_eq!(service.hosts, [("one.example".to_owned(), 111), ("192.0.2.1".to_owned(), 111)]);
        assert!(service.port(7).hosts.iter().all(|host| host.1 == 7));
    }

    #[tokio::test]
    async fn hosts_are_queried_at_the_same_time() {
        let ([silent, other, live], service) = listeners().await;
        let mut servers = service.servers();
        let answered = async {
            let silent = (accept(&silent).await, accept(&other).await);
            let (mut stream, mut call) = accept(&live).await;
            stream.write_all(&reply(&call, "rdma", "192.0.2.1.78.132")).await.unwrap();
            // The service asks for rdma6 as well.
            call = read(&mut stream).await;
            stream.write_all(&reply(&call, "rdma", "192.0.2.1.78.132")).await.unwrap();
            (silent, stream)
        };
        let _silent = timeout(SOON, answered).await.unwrap();
        assert_eq!(next(&mut servers).await, BTreeSet::from(["iwarp://192.0.2.1:20100".to_owned()]));
    }

    #[tokio::test]
    async fn queries_end_with_the_list() {
        let ([silent], service) = listeners().await;
        let servers = service.servers();
        let (mut stream, _) = timeout(SOON, accept(&silent)).await.unwrap();
        drop(servers);
        // The service closes its connection.
        assert!(timeout(SOON, stream.read_u8()).await.unwrap().is_err());
    }
}

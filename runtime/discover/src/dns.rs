//! Servers listed in DNS.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::RData,
};
use rpcrdma::{client::discover::Servers, error::UrlError, transport::Url};
use rpcrdma_proto::ErrorChain;
use tokio::time::Instant;

/// A service whose servers are listed in DNS.
///
/// The names are resolved again when the time to live (TTL) of their records ends, at the earliest after 1 s and at the
/// latest after 5 min. If a query fails, the servers stay as they are, and the query is repeated after 1 s to 30 s. If
/// only the addresses of some targets of SRV records cannot be resolved, the servers of these targets stay as they are,
/// and the query is repeated within 30 s. If the name has no more records, there are no more servers.
///
/// DNS can be forged. With TLS, the certificate of each server must therefore have the name that was asked for: the
/// host, or the domain of the SRV records, `example.com` for `_blobs._tcp.example.com` (RFC 9525 §6). The name of a
/// target that DNS returned does not count. The URL of each server has the [option `name`](Url) for that, if its scheme
/// has the option and the name is not an IP address.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma_discover::DnsService;
///
/// // One server for each A and AAAA record.
/// let servers = DnsService::addresses("iwarp://blobs.example.com:20100")?.servers().await?;
/// // One server for each address of the targets of the SRV records.
/// let servers = DnsService::srv("iwarp", "_blobs._tcp.example.com")?.servers().await?;
/// # drop(servers); Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DnsService {
    /// The URL of a server, with its options. Host and port are replaced by those of each server.
    url: Url,
    /// The name of the SRV records. `None` to use the addresses of the host in `url`.
    srv: Option<String>,
    name_servers: Vec<SocketAddr>,
}

/// An error of a [`DnsService`]: an invalid setting, or a failed query.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DnsError {
    /// The URL is invalid.
    Url(UrlError),
    /// The configuration of the system's resolver cannot be read, or is invalid.
    Resolver(Arc<dyn Error + Send + Sync>),
    /// A query failed.
    Query {
        /// The host, or the name of the SRV records.
        name: String,
        /// The error of the query.
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Resolver(_) => f.write_str("cannot configure the DNS resolver, check resolv.conf"),
            Self::Query { name, .. } => write!(f, "cannot query DNS for {name}"),
        }
    }
}

impl Error for DnsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Url(error) => error.source(),
            Self::Resolver(source) | Self::Query { source, .. } => Some(&**source),
        }
    }
}

/// The minimum and the maximum time between a successful query and the next query.
const TTLS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// The minimum and the maximum pause after failed queries. The pause doubles with each failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl DnsService {
    /// Creates a service with one server for each A and AAAA record of the host in `url`. All servers have the port and
    /// the options of `url`.
    ///
    /// # Errors
    /// Returns [`DnsError::Url`] if the URL is invalid.
    pub fn addresses(url: &str) -> Result<Self, DnsError> {
        let url = url.parse().map_err(DnsError::Url)?;
        Ok(Self { url, srv: None, name_servers: Vec::new() })
    }

    /// Creates a service with one server for each address of the targets of the SRV records (RFC 2782) of `name`, for
    /// example `_blobs._tcp.example.com`. `scheme` is the scheme of the servers' URLs. It may be followed by options,
    /// as in `iwarp?crc=off`.
    ///
    /// Priority and weight of a record become the options `priority` and `weight` of its URLs, which
    /// [`ServiceCaller::balanced`](rpcrdma::client::ServiceCaller::balanced) obeys. If a target has several addresses,
    /// they share its weight. The weights of all records are then multiplied by a number, at most 840, that makes the
    /// shares integers if possible.
    ///
    /// # Errors
    /// Returns [`DnsError::Url`] if the scheme or an option is invalid.
    pub fn srv(scheme: &str, name: impl Into<String>) -> Result<Self, DnsError> {
        let (scheme, options) = scheme.split_once('?').unwrap_or((scheme, ""));
        let url = format!("{scheme}://srv:0?{options}").parse().map_err(DnsError::Url)?;
        Ok(Self { url, srv: Some(name.into()), name_servers: Vec::new() })
    }

    /// Adds a DNS server to query, by UDP and TCP. Without this, the DNS servers of the system are queried.
    pub fn name_server(mut self, addr: SocketAddr) -> Self {
        self.name_servers.push(addr);
        self
    }

    /// Queries DNS for the servers, and repeats the queries as long as the returned list is used.
    ///
    /// # Errors
    /// Returns [`DnsError::Resolver`] if the configuration of the resolver is missing or invalid, and
    /// [`DnsError::Query`] if the first query fails. A name without records is not an error.
    pub async fn servers(self) -> Result<Servers, DnsError> {
        let resolver = self.resolver().map_err(|error| DnsError::Resolver(Arc::new(error)))?;
        let name = self.srv.as_deref().unwrap_or(self.url.host()).to_owned();
        let first = self.query(&resolver, &Answer::nothing()).await;
        let mut answer = first.map_err(|error| DnsError::Query { name: name.clone(), source: Arc::new(error) })?;
        let (sender, servers) = Servers::channel();
        tokio::spawn(async move {
            let mut pause = PAUSES.0;
            loop {
                let now = Instant::now();
                sender.set(self.urls(&answer));
                let mut next = answer.valid_until.clamp(now + TTLS.0, now + TTLS.1);
                answer = loop {
                    tokio::select! {
                        () = sender.closed() => return,
                        () = tokio::time::sleep_until(next) => {}
                    }
                    match self.query(&resolver, &answer).await {
                        Ok(answer) => break answer,
                        Err(error) => {
                            tracing::warn!(target: "rpcrdma", %name, error = %ErrorChain(&error), ?pause, "DNS query failed");
                            sender.fail(DnsError::Query { name: name.clone(), source: Arc::new(error) });
                            next = Instant::now() + pause;
                            pause = pause.saturating_mul(2).min(PAUSES.1);
                        }
                    }
                };
                pause = PAUSES.0;
            }
        });
        Ok(servers)
    }

    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let mut builder = if self.name_servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let server = |addr: &SocketAddr| {
                let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                    connection.port = addr.port();
                    connection
                });
                NameServerConfig::new(addr.ip(), true, connections.into())
            };
            let config = ResolverConfig::from_name_servers(self.name_servers.iter().map(server).collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
        // The time of the next query is that of the records. A cache could only delay the change.
        options.cache_size = 0;
        builder.build()
    }

    /// Queries DNS. Targets whose addresses cannot be resolved keep their addresses from `last`, the previous answer.
    async fn query(&self, resolver: &TokioResolver, last: &Answer) -> Result<Answer, NetError> {
        let mut answer = Answer { valid_until: Instant::now() + TTLS.1, ..Answer::nothing() };
        let Some(name) = &self.srv else {
            let target = (self.url.host().to_owned(), self.url.port());
            Self::add_addresses(resolver, &target, &mut answer).await?;
            answer.records.insert(SrvRecord { target, share: None });
            return Ok(answer);
        };
        let Some(found) = existing(resolver.srv_lookup(name.as_str()).await)? else { return Ok(Answer::nothing()) };
        answer.valid_until = answer.valid_until.min(found.valid_until().into());
        let records = found.answers().iter().filter_map(|record| match &record.data {
            // RFC 2782: the root as the target means that the service is decidedly not available.
            RData::SRV(srv) if !srv.target.is_root() => {
                Some(SrvRecord { target: (srv.target.to_ascii(), srv.port), share: Some((srv.priority, srv.weight)) })
            }
            _ => None,
        });
        answer.records = first_of(records.collect());
        let targets: BTreeSet<Target> = answer.records.iter().map(|record| record.target.clone()).collect();
        let (mut resolved, mut failed) = (targets.is_empty(), None);
        for target in targets {
            let Err(error) = Self::add_addresses(resolver, &target, &mut answer).await else {
                resolved = true;
                continue;
            };
            tracing::warn!(target: "rpcrdma", %name, host = %target.0, error = %ErrorChain(&error), "DNS query failed");
            if let Some(known) = last.addresses.get(&target) {
                answer.addresses.insert(target, known.clone());
            }
            answer.valid_until = answer.valid_until.min(Instant::now() + PAUSES.1);
            failed = Some(error);
        }
        match failed {
            Some(error) if !resolved => Err(error),
            _ => Ok(answer),
        }
    }

    /// Returns the name that the certificates of the servers must have: the host, or the domain of the SRV records. The
    /// whole name of the records is the domain if it does not begin with a service and a protocol.
    fn certified_name(&self) -> &str {
        let Some(srv) = &self.srv else { return self.url.host() };
        let mut labels = srv.splitn(3, '.');
        match (labels.next(), labels.next(), labels.next()) {
            (Some(service), Some(protocol), Some(domain)) if service.starts_with('_') && protocol.starts_with('_') => {
                domain
            }
            _ => srv,
        }
    }

    async fn add_addresses(resolver: &TokioResolver, target: &Target, answer: &mut Answer) -> Result<(), NetError> {
        let Some(found) = existing(resolver.lookup_ip(target.0.as_str()).await)? else {
            answer.valid_until = Instant::now();
            return Ok(());
        };
        answer.valid_until = answer.valid_until.min(found.valid_until().into());
        let addresses = found.iter().map(|ip| SocketAddr::new(ip, target.1)).collect();
        answer.addresses.insert(target.clone(), addresses);
        Ok(())
    }

    /// Returns the URLs of the servers in `answer`.
    fn urls(&self, answer: &Answer) -> BTreeSet<String> {
        let addresses = |record: &SrvRecord| answer.addresses.get(&record.target).into_iter().flatten();
        let counts = answer.records.iter().map(|record| addresses(record).count() as u32);
        let scale = counts.filter(|count| *count > 0).fold(1, least_common_multiple).min(MAX_SCALE);
        let urls = answer.records.iter().flat_map(|record| {
            let count = addresses(record).count() as u32;
            addresses(record).map(move |addr| {
                let url = self.url.with_found_addr(*addr, self.certified_name());
                match record.share {
                    None => url.to_string(),
                    Some((priority, weight)) => {
                        // A weight that is not 0 stays so.
                        let weight = u32::from(weight) * scale / count.max(1);
                        let part = weight.max(u32::from(record.has_weight()));
                        url.with_priority(priority, part).to_string()
                    }
                }
            })
        });
        urls.collect()
    }
}

/// A host and its port.
type Target = (String, u16);

/// Maximum number of SRV records that are used.
const MAX_TARGETS: usize = 1000;
/// Maximum number by which weights are multiplied: the least common multiple of 1 to 8.
const MAX_SCALE: u32 = 840;

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor.max(1)).saturating_mul(b)
}

/// A target of a service: the target of an SRV record, or the host of the URL.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SrvRecord {
    target: Target,
    /// The priority and the weight of an SRV record. `None` for the host of the URL.
    share: Option<(u16, u16)>,
}

impl SrvRecord {
    fn has_weight(&self) -> bool {
        self.share.is_some_and(|(_, weight)| weight > 0)
    }
}

/// Returns the first records in the order of priority, at most [`MAX_TARGETS`], because each target costs queries.
fn first_of(mut records: Vec<SrvRecord>) -> BTreeSet<SrvRecord> {
    records.sort_by_key(|record| record.share);
    if records.len() > MAX_TARGETS {
        tracing::warn!(target: "rpcrdma", records = records.len(), "DNS lists more than {MAX_TARGETS} SRV records, the last ones are skipped");
        records.truncate(MAX_TARGETS);
    }
    records.into_iter().collect()
}

/// The servers that DNS lists.
#[derive(Debug)]
struct Answer {
    records: BTreeSet<SrvRecord>,
    /// The addresses of each target, with the port of the target.
    addresses: BTreeMap<Target, BTreeSet<SocketAddr>>,
    valid_until: Instant,
}

impl Answer {
    /// Returns the answer for a name without records, which is queried again soon.
    fn nothing() -> Self {
        Self { records: BTreeSet::new(), addresses: BTreeMap::new(), valid_until: Instant::now() }
    }
}

/// Returns the answer to a query, or `None` for a name without records, which is not an error.
fn existing<T>(result: Result<T, NetError>) -> Result<Option<T>, NetError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_nx_domain() || error.is_no_records_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{net::Ipv4Addr, sync::Mutex};

    use hickory_resolver::proto::{
        op::{Message, ResponseCode},
        rr::{Name, Record, RecordType, rdata::SRV},
    };
    use tokio::net::UdpSocket;

    use super::*;
    use crate::failing_calls::fails_with;

    /// Serves the SRV records of `_test._tcp.test.` with the targets `a.test.` and `b.test.`. Queries for the names in
    /// `failing` fail.
    async fn name_server(failing: Arc<Mutex<Vec<&'static str>>>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            loop {
                let (len, client) = socket.recv_from(&mut buffer).await.unwrap();
                let query = Message::from_vec(&buffer[..len]).unwrap();
                let question = query.queries[0].clone();
                let (name, kind) = (question.name().to_ascii(), question.query_type());
                let mut response = Message::response(query.metadata.id, query.metadata.op_code);
                let target = |port, host: &str| RData::SRV(SRV::new(port, 7, port, Name::from_ascii(host).unwrap()));
                let records = match (name.as_str(), kind) {
                    (name, _) if failing.lock().unwrap().contains(&name) => {
                        response.metadata.response_code = ResponseCode::ServFail;
                        Vec::new()
                    }
                    ("_test._tcp.test.", RecordType::SRV) => vec![target(1, "a.test."), target(2, "b.test.")],
                    ("a.test.", RecordType::A) => vec![RData::A(Ipv4Addr::new(192, 0, 2, 1).into())],
                    ("b.test.", RecordType::A) => vec![RData::A(Ipv4Addr::new(192, 0, 2, 2).into())],
                    _ => Vec::new(),
                };
                for record in records {
                    response.add_answer(Record::from_rdata(question.name().clone(), 60, record));
                }
                response.add_query(question);
                socket.send_to(&response.to_vec().unwrap(), client).await.unwrap();
            }
        });
        addr
    }

    /// A target whose addresses cannot be resolved keeps its known servers, and does not affect other targets.
    #[tokio::test]
    async fn one_target_fails() {
        let failing = Arc::new(Mutex::new(vec!["b.test."]));
        let service = DnsService::srv("tcp", "_test._tcp.test.").unwrap();
        let service = service.name_server(name_server(Arc::clone(&failing)).await);
        let resolver = service.resolver().unwrap();
        let (a, b) = (
            "tcp://192.0.2.1:1?name=test&priority=1&weight=7".to_owned(),
            "tcp://192.0.2.2:2?name=test&priority=2&weight=7".to_owned(),
        );
        let only_a = service.query(&resolver, &Answer::nothing()).await.unwrap();
        assert_eq!(service.urls(&only_a), BTreeSet::from([a.clone()]));
        assert!(only_a.valid_until <= Instant::now() + PAUSES.1, "the query is repeated before the records expire");
        failing.lock().unwrap().clear();
        let both = service.query(&resolver, &only_a).await.unwrap();
        assert_eq!(service.urls(&both), BTreeSet::from([a.clone(), b.clone()]));
        failing.lock().unwrap().push("b.test.");
        let known = service.query(&resolver, &both).await.unwrap();
        assert_eq!(service.urls(&known), BTreeSet::from([a, b]));
        failing.lock().unwrap().push("a.test.");
        assert!(service.query(&resolver, &known).await.is_err(), "no target could be resolved");
    }

    /// The URLs of servers over TCP have the name that was asked for, so that TLS does not trust names from DNS.
    #[tokio::test]
    async fn certificates_have_the_name_that_was_asked_for() {
        let server = name_server(Arc::default()).await;
        for (service, urls) in [
            (DnsService::addresses("tcp://a.test.:7?tls=off"), &["tcp://192.0.2.1:7?tls=off&name=a.test"][..]),
            (DnsService::addresses("tcp://a.test.:7?name=other"), &["tcp://192.0.2.1:7?name=other"]),
            (DnsService::addresses("iwarp://a.test.:7"), &["iwarp://192.0.2.1:7"]),
            (DnsService::addresses("tcp://192.0.2.9:7"), &["tcp://192.0.2.9:7"]),
            (
                DnsService::srv("tcp", "_test._tcp.test."),
                &["tcp://192.0.2.1:1?name=test&priority=1&weight=7", "tcp://192.0.2.2:2?name=test&priority=2&weight=7"],
            ),
        ] {
            let service = service.unwrap().name_server(server);
            let answer = service.query(&service.resolver().unwrap(), &Answer::nothing()).await.unwrap();
            assert_eq!(Vec::from_iter(service.urls(&answer)), urls);
        }
    }

    #[test]
    fn the_number_of_records_has_a_bound() {
        let record = |n: u16| SrvRecord { target: (format!("{n}.test"), n), share: Some((9999 - n, 1)) };
        let used = first_of((0..3000).map(record).collect());
        assert!(used.len() == MAX_TARGETS && used.iter().all(|record| record.target.1 >= 2000), "{used:?}");
    }

    /// The error of a call contains the error of DNS.
    #[tokio::test]
    async fn errors_of_calls_have_the_error_of_dns() {
        let failing = Arc::default();
        let service = DnsService::srv("tcp", "_none._tcp.test.").unwrap();
        let servers = service.name_server(name_server(Arc::clone(&failing)).await).servers().await.unwrap();
        failing.lock().unwrap().push("_none._tcp.test.");
        fails_with(servers, "cannot query DNS for _none._tcp.test.").await;
    }

    /// The addresses of a target share its weight, and the proportions between the weights of the targets do not
    /// change.
    #[test]
    fn addresses_share_a_weight() {
        let service = DnsService::srv("tcp", "_test._tcp.test").unwrap();
        let urls = |records: &[(&str, u16, u8)]| {
            let mut answer = Answer::nothing();
            for (number, &(host, weight, count)) in (1..).zip(records) {
                let target = (host.to_owned(), number);
                let addresses = (1..=count).map(|n| SocketAddr::new(Ipv4Addr::new(192, 0, 2, n).into(), number));
                answer.addresses.insert(target.clone(), addresses.collect());
                answer.records.insert(SrvRecord { target, share: Some((4, weight)) });
            }
            let weight = |url: &String| {
                let url: Url = url.parse().unwrap();
                assert_eq!(url.priority(), 4);
                (url.port(), url.weight())
            };
            let mut weights: Vec<_> = service.urls(&answer).iter().map(weight).collect();
            weights.sort_unstable();
            weights
        };
        assert_eq!(urls(&[("a", 10, 1), ("b", 0, 1)]), [(1, 10), (2, 0)]);
        assert_eq!(urls(&[("a", 10, 2), ("b", 5, 1), ("c", 0, 3)])[..3], [(1, 30), (1, 30), (2, 30)]);
        // No sum overflows, and no weight becomes 0.
        let many = urls(&[("a", u16::MAX, 251), ("b", 1, 250), ("c", u16::MAX, 1)]);
        assert_eq!((many[0].1, many[251].1, many[501].1), (219_320, 3, 55_049_400));
    }
}

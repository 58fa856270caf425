//! EndpointSlices, and the servers in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use rpcrdma::{client::discover::ServersSender, transport::Url};
use serde::Deserialize;

/// Maximum number of EndpointSlices of a Service. Each has up to 1000 endpoints, and 100 by default.
const MAX_SLICES: usize = 1000;
/// Maximum number of servers in one EndpointSlice, which is also the limit of Kubernetes.
const MAX_ENDPOINTS: usize = 1000;
/// Maximum number of servers in all EndpointSlices of a Service.
const MAX_SERVERS: usize = ServersSender::MAX_SERVERS;
/// Maximum length of the name and of the identifier of an object, in bytes.
const MAX_NAME: usize = 253;

/// The fields of an EndpointSlice that this crate uses. The API server may send `null` for a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EndpointSlice {
    pub(super) metadata: Metadata,
    endpoints: Option<Vec<PodEndpoint>>,
    ports: Option<Vec<SlicePort>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodEndpoint {
    addresses: Option<Vec<String>>,
    conditions: Option<Conditions>,
    target_ref: Option<TargetRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TargetRef {
    uid: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlicePort {
    name: Option<String>,
    port: Option<u32>,
    app_protocol: Option<String>,
}

/// The rule that selects the port of a pod.
#[derive(Debug, Clone)]
pub(super) enum PortChoice {
    /// The preferred port among those whose `appProtocol`, or whose name up to the first `-`, is a URL scheme.
    ByScheme,
    /// The port with this name. `url` has the scheme and the options of the servers' URLs.
    Named { name: String, url: Url },
}

impl PortChoice {
    /// Returns the preference of a port, and its URL with placeholders for the host and the port number. The port with
    /// the lowest preference value is chosen. Returns `None` for a port that is not used.
    fn url(&self, port: &SlicePort) -> Option<(u8, Url)> {
        match self {
            Self::Named { name, url } => (port.name.as_deref().unwrap_or("") == name).then(|| (0, url.clone())),
            Self::ByScheme => {
                let name = port.name.as_deref().unwrap_or("");
                let name = name.split_once('-').map_or(name, |(scheme, _)| scheme);
                let url = |scheme: &str| {
                    let preference = match scheme {
                        "rdma" => 0,
                        "iwarp" => 1,
                        "tcp" => 3,
                        _ => 2,
                    };
                    format!("{scheme}://pod:0").parse().ok().map(|url| (preference, url))
                };
                port.app_protocol.as_deref().and_then(url).or_else(|| url(name))
            }
        }
    }
}

/// A server in an EndpointSlice.
#[derive(Debug)]
struct PodServer {
    /// The identifier of the pod, which is the same in the slices of both address families.
    uid: Option<String>,
    addr: SocketAddr,
    url: Url,
}

/// The EndpointSlices of a Service, by name.
#[derive(Debug)]
pub(super) struct Slices {
    port: PortChoice,
    /// The name that the servers' certificates must have.
    certified: String,
    servers: BTreeMap<String, Vec<PodServer>>,
}

impl Slices {
    pub(super) fn new(port: PortChoice, certified: String) -> Self {
        Self { port, certified, servers: BTreeMap::new() }
    }

    /// Creates an empty set of slices for the Service of `self`.
    pub(super) fn empty(&self) -> Self {
        Self::new(self.port.clone(), self.certified.clone())
    }

    /// Adds or replaces a slice. Skips a slice if its name is too long or there are [`MAX_SLICES`] others. Skips
    /// servers beyond a total of [`MAX_SERVERS`].
    pub(super) fn set(&mut self, slice: EndpointSlice) {
        let name = &slice.metadata.name;
        if name.len() > MAX_NAME || (self.servers.len() >= MAX_SLICES && !self.servers.contains_key(name)) {
            tracing::warn!(target: "rpcrdma", "skipped an EndpointSlice: its name is too long, or there are more than {MAX_SLICES}");
            return;
        }
        self.servers.remove(name);
        let mut servers = self.servers_of(&slice);
        let room = MAX_SERVERS.saturating_sub(self.servers.values().map(Vec::len).sum());
        if servers.len() > room {
            tracing::warn!(target: "rpcrdma", "the EndpointSlices have more than {MAX_SERVERS} servers, the others are skipped");
            servers.truncate(room);
        }
        self.servers.insert(slice.metadata.name, servers);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.servers.remove(name);
    }

    /// Returns the servers in a slice: its endpoints that are ready and not terminating, at most [`MAX_ENDPOINTS`],
    /// each with the preferred port. Invalid ports and endpoints are skipped.
    fn servers_of(&self, slice: &EndpointSlice) -> Vec<PodServer> {
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let number = u16::try_from(port.port?).ok().filter(|number| *number > 0)?;
            let (preference, url) = self.port.url(port)?;
            Some((preference, number, url))
        });
        let Some((_, port, url)) = ports.min_by_key(|(preference, number, _)| (*preference, *number)) else {
            return Vec::new();
        };
        let is_used = |endpoint: &&PodEndpoint| {
            // An unknown state counts as ready.
            let (ready, terminating) = endpoint.conditions.as_ref().map_or((None, None), |c| (c.ready, c.terminating));
            ready != Some(false) && terminating != Some(true)
        };
        let server = |endpoint: &PodEndpoint| {
            // All addresses of an endpoint lead to the same server, and clients use the first one.
            let ip: IpAddr = endpoint.addresses.iter().flatten().next()?.parse().ok()?;
            let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
            let uid = uid.filter(|uid| (1..=MAX_NAME).contains(&uid.len()));
            Some(PodServer { uid, addr: SocketAddr::new(ip, port), url: url.clone() })
        };
        let used = slice.endpoints.iter().flatten().filter(is_used);
        used.filter_map(server).take(MAX_ENDPOINTS).collect()
    }

    /// Returns the URLs of all servers. A pod with an identifier and addresses of both families has its IPv4 URL only.
    pub(super) fn urls(&self) -> BTreeSet<String> {
        let servers = || self.servers.values().flatten();
        let with_ipv4: BTreeSet<_> =
            servers().filter(|server| server.addr.is_ipv4()).filter_map(|server| server.uid.as_deref()).collect();
        let has_other = |server: &&PodServer| {
            server.addr.is_ipv6() && server.uid.as_deref().is_some_and(|uid| with_ipv4.contains(uid))
        };
        let url = |server: &PodServer| server.url.with_found_addr(server.addr, &self.certified).to_string();
        servers().filter(|server| !has_other(server)).map(url).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The numbers of servers and of slices are bounded, however many the API server sends.
    #[test]
    fn the_number_of_servers_has_a_bound() {
        let slice = |n: usize, count: usize| -> EndpointSlice {
            let endpoint = |m: usize| format!(r#"{{"addresses":["10.{n}.{}.{}"]}}"#, m / 256, m % 256);
            let endpoints = (0..count).map(endpoint).collect::<Vec<_>>().join(",");
            let text = format!(
                r#"{{"metadata":{{"name":"{n}"}},"ports":[{{"name":"tcp","port":1}}],"endpoints":[{endpoints}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let mut slices = Slices::new(PortChoice::ByScheme, "a.b.svc".to_owned());
        let count = |slices: &Slices| slices.servers.values().map(Vec::len).sum::<usize>();
        for n in 0..12 {
            slices.set(slice(n, 1001));
        }
        assert_eq!(count(&slices), MAX_SERVERS);
        // A slice that is replaced makes room for its successor.
        slices.set(slice(0, 900));
        slices.set(slice(11, 1000));
        assert_eq!((count(&slices), slices.servers["11"].len()), (MAX_SERVERS, 100));
        for n in 0..2 * MAX_SLICES {
            slices.set(slice(n, 0));
        }
        assert_eq!(slices.servers.len(), MAX_SLICES);
    }
}

//! The schemes of this crate, and their options.

use std::{io, net::SocketAddr, ops::RangeInclusive, time::Duration};

use super::{
    options::{UrlOption, UrlOptions},
    scheme::{Scheme, SchemeEntry, SchemeKind, SchemeProvider},
    url::TlsPolicy,
};
use crate::provider::iwarp::{IwarpConfig, IwarpConnector, IwarpListener, socket};
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
use crate::provider::verbs::{VerbsConfig, VerbsConnector, VerbsListener};

impl Scheme {
    /// `iwarp`: iWARP in user space over TCP.
    pub const IWARP: Self = Self(&SchemeEntry { name: "iwarp", kind: SchemeKind::Rdma(&IwarpScheme) });

    /// `rdma`: an RDMA device, accessed through verbs.
    #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
    pub const RDMA: Self = Self(&SchemeEntry { name: "rdma", kind: SchemeKind::Rdma(&VerbsScheme) });

    /// `tcp`: ONC RPC over TCP with record marking (RFC 5531 §11), without RDMA.
    pub const TCP: Self = Self(&SchemeEntry { name: "tcp", kind: SchemeKind::Tcp(&[UrlOption::LOCAL, TLS, NAME]) });

    pub(super) const BUILT_IN: &'static [Self] = &[
        Self::IWARP,
        #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
        Self::RDMA,
        Self::TCP,
    ];
}

/// The option `name` of `tcp`: the name that the server's certificate must have.
const NAME: UrlOption = UrlOption::new("name", "NAME", |value| {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte))
});
/// The option `tls` of `tcp`: the policy for TLS.
const TLS: UrlOption = UrlOption::new("tls", "off|opportunistic|required", |value| value.parse::<TlsPolicy>().is_ok());

/// The option `crc` of `iwarp`: the use of the CRC of RFC 5044.
const CRC: UrlOption = UrlOption::new("crc", "on|off", |value| matches!(value, "on" | "off"));

/// The option `busy` of `iwarp` and `rdma`: the time of busy polling, in microseconds.
const BUSY: UrlOption = UrlOption::new("busy", "MICROSECONDS", |value| microseconds(value).is_some());

/// The option `tclass` of `iwarp` and `rdma`: the traffic class of the packets.
const TRAFFIC_CLASS: UrlOption = UrlOption::new("tclass", "0-255", |value| number(value, 0..=255).is_some());

/// The option `ack_timeout` of `rdma`: the exponent of the acknowledgment time-out.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
const ACK_TIMEOUT: UrlOption = UrlOption::new("ack_timeout", "1-31", |value| number(value, 1..=31).is_some());
/// The option `retries` of `rdma`: the number of retries without an acknowledgment.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
const RETRIES: UrlOption = UrlOption::new("retries", "0-7", |value| number(value, 0..=7).is_some());
/// The option `rnr_retries` of `rdma`: the number of retries of a Send that finds no Receive. 7 means no limit.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
const RNR_RETRIES: UrlOption = UrlOption::new("rnr_retries", "0-7", |value| number(value, 0..=7).is_some());
/// The option `relaxed` of `rdma`: the use of relaxed ordering for memory regions.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
const RELAXED: UrlOption = UrlOption::new("relaxed", "on|off", |value| matches!(value, "on" | "off"));

/// The option `srq` of `rdma`: the maximum number of Receives that the connections of a server share on a device.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
const SHARED_RECEIVES: UrlOption = UrlOption::new("srq", "RECEIVES", |value| shared_receives(value).is_some());

/// Maximum value of the option `busy`.
const MAX_BUSY_POLL: Duration = Duration::from_secs(1);

/// Maximum value of the option `srq`.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
const MAX_SHARED_RECEIVES: u32 = 1 << 16;

fn microseconds(value: &str) -> Option<Duration> {
    value.parse().ok().map(Duration::from_micros).filter(|time| *time <= MAX_BUSY_POLL)
}

fn number(value: &str, bounds: RangeInclusive<u8>) -> Option<u8> {
    value.parse().ok().filter(|number| bounds.contains(number))
}

fn busy_poll(options: &UrlOptions) -> Duration {
    options.get("busy").and_then(microseconds).unwrap_or_default()
}

#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
fn shared_receives(value: &str) -> Option<u32> {
    value.parse().ok().filter(|receives| *receives <= MAX_SHARED_RECEIVES)
}

/// The provider of `iwarp`.
struct IwarpScheme;

impl IwarpScheme {
    fn config(options: &UrlOptions) -> IwarpConfig {
        let mut config = IwarpConfig::default();
        config.crc = options.get("crc") != Some("off");
        config.traffic_class = options.parsed("tclass");
        (config.local, config.busy_poll) = (options.local(), busy_poll(options));
        config
    }

    fn bind(options: &UrlOptions, addr: SocketAddr, shares_port: bool) -> io::Result<IwarpListener> {
        IwarpListener::from_tcp(socket::listen(addr, shares_port)?, Self::config(options))
    }
}

impl SchemeProvider for IwarpScheme {
    type Connector = IwarpConnector;
    type Listener = IwarpListener;

    fn options(&self) -> &'static [UrlOption] {
        &[UrlOption::LOCAL, CRC, BUSY, TRAFFIC_CLASS]
    }

    fn connector(&self, options: &UrlOptions) -> IwarpConnector {
        IwarpConnector::new(Self::config(options))
    }

    fn listen(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<IwarpListener> {
        Self::bind(options, addr, false)
    }

    fn listen_on_shared_port(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<IwarpListener> {
        Self::bind(options, addr, true)
    }
}

/// The provider of `rdma`.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
struct VerbsScheme;

#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
impl VerbsScheme {
    fn config(options: &UrlOptions) -> VerbsConfig {
        let mut config = VerbsConfig::default();
        config.shared_receives = options.get("srq").and_then(shared_receives).unwrap_or_default();
        config.traffic_class = options.parsed("tclass");
        config.ack_timeout = options.parsed("ack_timeout");
        config.retries = options.parsed("retries").unwrap_or(config.retries);
        config.rnr_retries = options.parsed("rnr_retries");
        config.relaxed_ordering = options.get("relaxed") == Some("on");
        (config.local, config.busy_poll) = (options.local(), busy_poll(options));
        config
    }
}

#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
impl SchemeProvider for VerbsScheme {
    type Connector = VerbsConnector;
    type Listener = VerbsListener;

    fn options(&self) -> &'static [UrlOption] {
        &[UrlOption::LOCAL, BUSY, SHARED_RECEIVES, TRAFFIC_CLASS, ACK_TIMEOUT, RETRIES, RNR_RETRIES, RELAXED]
    }

    fn connector(&self, options: &UrlOptions) -> VerbsConnector {
        VerbsConnector::new(Self::config(options))
    }

    fn listen(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<VerbsListener> {
        VerbsListener::bind(addr, Self::config(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Url;

    #[test]
    fn iwarp_options_reach_the_configuration() {
        for (text, crc, microseconds, local) in [
            ("iwarp://host:1", true, 0, None),
            ("iwarp://host:1?busy=50", true, 50, None),
            ("iwarp://host:1?crc=off&busy=1000000&version=2&local=::1", false, 1_000_000, Some("::1")),
        ] {
            let config = IwarpScheme::config(text.parse::<Url>().unwrap().options());
            let local = local.map(|local| local.parse().unwrap());
            assert_eq!((config.crc, config.busy_poll.as_micros(), config.local), (crc, microseconds, local), "{text}");
            assert_eq!(config.traffic_class, None, "{text}");
        }
        let url: Url = "iwarp://host:1?tclass=104".parse().unwrap();
        assert_eq!(IwarpScheme::config(url.options()).traffic_class, Some(104));
    }

    #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
    #[test]
    fn rdma_options_reach_the_configuration() {
        for (text, microseconds, receives, local) in [
            ("rdma://10.0.0.1:20049", 0, 0, None),
            ("rdma://[fd09::1]:7?busy=50", 50, 0, None),
            ("rdma://10.0.0.1:20049?busy=50&srq=65536&version=1&local=10.0.0.2", 50, 65_536, Some("10.0.0.2")),
        ] {
            let url: Url = text.parse().unwrap();
            let config = VerbsScheme::config(url.options());
            let local = local.map(|local| local.parse().unwrap());
            assert_eq!((url.scheme(), url.to_string().as_str()), (Scheme::RDMA, text));
            let found = (config.busy_poll.as_micros(), config.shared_receives, config.local);
            assert_eq!(found, (microseconds, receives, local), "{text}");
        }
        let default = VerbsConfig::default();
        for (text, class, timeout, retries, rnr_retries, relaxed) in [
            ("rdma://host:1", None, None, default.retries, None, false),
            (
                "rdma://host:1?tclass=0&ack_timeout=1&retries=0&rnr_retries=0&relaxed=off",
                Some(0),
                Some(1),
                0,
                Some(0),
                false,
            ),
            (
                "rdma://host:1?relaxed=on&rnr_retries=7&retries=3&ack_timeout=31&tclass=255",
                Some(255),
                Some(31),
                3,
                Some(7),
                true,
            ),
        ] {
            let config = VerbsScheme::config(text.parse::<Url>().unwrap().options());
            let found = (config.traffic_class, config.ack_timeout, config.retries, config.rnr_retries);
            assert_eq!(found, (class, timeout, retries, rnr_retries), "{text}");
            assert_eq!(config.relaxed_ordering, relaxed, "{text}");
        }
    }
}

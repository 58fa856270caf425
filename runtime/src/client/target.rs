//! The target of a channel: one URL, or several URLs of one service.

#[cfg(feature = "tls")]
use crate::transport::{Scheme, TlsPolicy};
use std::fmt;

use crate::transport::{Url, UrlError};

/// The URLs of one service, the best first.
#[derive(Debug)]
pub(super) struct Target(Vec<Url>);

impl Target {
    /// Parses URLs that are separated by commas. A part without an address is another scheme for the URL that follows.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        let mut urls = Vec::new();
        let mut schemes = Vec::new();
        for part in text.split(',') {
            let Some((_, address)) = part.split_once("://") else {
                schemes.push(part);
                continue;
            };
            for scheme in schemes.drain(..) {
                urls.push(format!("{scheme}://{address}").parse()?);
            }
            urls.push(part.parse()?);
        }
        match schemes.first() {
            Some(_) => Err(UrlError::NoScheme { url: text.to_owned() }),
            None => Ok(Self(urls)),
        }
    }

    /// Returns the best URL. There is always one.
    pub(super) fn best(&self) -> Option<&Url> {
        self.0.first()
    }

    /// Raises the TLS policies of several URLs to the strongest policy, which may be `configured`, so that no path is
    /// less protected than another. If this policy requires TLS, removes the URLs of transports without TLS, unless
    /// there are no others.
    #[cfg(feature = "tls")]
    pub(super) fn evenly_protected(self, configured: Option<TlsPolicy>) -> Self {
        let strongest = self.0.iter().filter_map(Url::tls).max().max(configured);
        match strongest {
            Some(strongest) if self.0.len() > 1 => {
                // Without the option, the policy is the configured one.
                let is_weaker = |url: &Url| url.tls().or(configured).unwrap_or(TlsPolicy::Off) < strongest;
                let protect = |url: Url| {
                    if url.scheme() == Scheme::TCP && is_weaker(&url) { url.with_tls(strongest) } else { url }
                };
                // Other transports have no TLS. If there is no TCP, the configuration demands TLS, and the builder says
                // that.
                let has_tcp = self.0.iter().any(|url| url.scheme() == Scheme::TCP);
                let may = |url: &Url| url.scheme() == Scheme::TCP || strongest < TlsPolicy::Required || !has_tcp;
                Self(self.0.into_iter().filter(may).map(protect).collect())
            }
            _ => self,
        }
    }

    /// Returns the priority and the weight of the service, as given in the first URL.
    #[cfg(feature = "discover")]
    pub(super) fn share(&self) -> (u16, u32) {
        self.0.first().map_or((0, 1), |url| (url.priority(), url.weight()))
    }

    /// Returns the target without priority and weight.
    #[cfg(feature = "discover")]
    pub(super) fn without_priority(self) -> Self {
        Self(self.0.into_iter().map(Url::without_priority).collect())
    }

    /// Raises TLS policies that are weaker than `configured` to `configured`, and logs a warning for each.
    #[cfg(all(feature = "tls", feature = "discover"))]
    pub(super) fn with_least_tls(self, configured: TlsPolicy) -> Self {
        let raise = |url: Url| {
            if url.tls().is_none_or(|listed| listed >= configured) {
                return url;
            }
            tracing::warn!(target: "rpcrdma", server = %url, %configured, "a listed URL asks for less TLS than configured");
            url.with_tls(configured)
        };
        Self(self.0.into_iter().map(raise).collect())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, url) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            url.fmt(f)?;
        }
        Ok(())
    }
}

impl IntoIterator for Target {
    type Item = Url;
    type IntoIter = std::vec::IntoIter<Url>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn urls(text: &str) -> Vec<String> {
        let target = Target::parse(text).unwrap();
        let shown = target.to_string();
        let urls: Vec<_> = target.into_iter().map(|url| url.to_string()).collect();
        assert_eq!(shown, urls.join(","));
        urls
    }

    #[cfg(feature = "tls")]
    #[test]
    fn no_path_is_less_protected() {
        for (configured, text, expected) in [
            (None, "iwarp://a:1,tcp://b:2", "iwarp://a:1,tcp://b:2"),
            (None, "iwarp://a:1,tcp://b:2?tls=required", "tcp://b:2?tls=required"),
            (
                None,
                "iwarp://a:1,tcp://b:2?tls=off,tcp://c:3?tls=opportunistic",
                "iwarp://a:1,tcp://b:2?tls=opportunistic,tcp://c:3?tls=opportunistic",
            ),
            (None, "tcp://a:1?tls=off,tcp://b:2?tls=required", "tcp://a:1?tls=required,tcp://b:2?tls=required"),
            (Some(TlsPolicy::Required), "tcp://a:1?tls=off,iwarp://b:2", "tcp://a:1?tls=required"),
            (Some(TlsPolicy::Required), "iwarp://a:1,iwarp://b:2", "iwarp://a:1,iwarp://b:2"),
            // A URL without the option has the configured policy.
            (None, "tcp://a:1,tcp://b:2?tls=required", "tcp://a:1?tls=required,tcp://b:2?tls=required"),
            (
                Some(TlsPolicy::Opportunistic),
                "tcp://a:1?priority=1,tcp://b:2?tls=required",
                "tcp://a:1?priority=1&tls=required,tcp://b:2?tls=required",
            ),
            (Some(TlsPolicy::Required), "tcp://a:1,tcp://b:2?tls=off", "tcp://a:1,tcp://b:2?tls=required"),
            (None, "tcp://a:1,tcp://b:2?tls=off", "tcp://a:1,tcp://b:2?tls=off"),
            // One URL may say what it likes.
            (Some(TlsPolicy::Required), "tcp://a:1?tls=off", "tcp://a:1?tls=off"),
        ] {
            let target = Target::parse(text).unwrap().evenly_protected(configured);
            assert_eq!(target.to_string(), expected, "{configured:?} and {text}");
        }
    }

    /// A URL that asks for less protection than configured gets the configured protection and is reported. Any other
    /// URL stays as it is.
    #[cfg(all(feature = "tls", feature = "discover"))]
    #[test]
    fn listed_urls_do_not_weaken_the_configuration() {
        crate::trace::log::Log::of(|log| {
            for (text, is_raised) in [
                ("tcp://a:1?tls=off", true),
                ("tcp://a:1?tls=opportunistic", false),
                ("tcp://a:1?tls=required", false),
                ("tcp://a:1", false),
            ] {
                let target = Target::parse(text).unwrap().with_least_tls(TlsPolicy::Opportunistic);
                let expected = if is_raised { "tcp://a:1?tls=opportunistic" } else { text };
                assert_eq!((target.to_string(), log.take_messages().len()), (expected.to_owned(), is_raised.into()));
            }
        });
    }

    #[test]
    fn lists() {
        assert_eq!(urls("iwarp://one:1"), ["iwarp://one:1"]);
        assert_eq!(urls("iwarp://one:1,tcp://two:2"), ["iwarp://one:1", "tcp://two:2"]);
        assert_eq!(urls("iwarp,tcp://[::1]:2"), ["iwarp://[::1]:2", "tcp://[::1]:2"]);
        assert_eq!(urls("tcp://a:1,iwarp,tcp://b:2"), ["tcp://a:1", "iwarp://b:2", "tcp://b:2"]);
        for bad in
            ["", ",", "iwarp", "iwarp://one:1,", "iwarp://one:1,tcp", ",tcp://one:1", "iwarp://one:1,,tcp://two:2"]
        {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }
}

//! The options of transport URLs, as a scheme declares them and as a URL sets them.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::engine::Versions;

/// An option that the URLs of a scheme may have, written `name=value`.
#[derive(Debug, Clone, Copy)]
pub struct UrlOption {
    name: &'static str,
    values: &'static str,
    is_valid: fn(&str) -> bool,
}

impl UrlOption {
    /// The option `local=ADDRESS`: the IP address from which a client connects, without a port.
    pub const LOCAL: Self = Self::new("local", "ADDRESS", |value| value.parse::<IpAddr>().is_ok());

    /// The option `version` of every RDMA scheme: the versions of RPC-over-RDMA that a client offers.
    pub(super) const VERSION: Self = Self::new("version", "1|2|both", |value| value.parse::<Versions>().is_ok());

    /// The option `priority` of every scheme.
    pub(super) const PRIORITY: Self =
        Self::new("priority", "0-65535", |value| is_number(value) && value.parse::<u16>().is_ok());
    /// The option `weight` of every scheme.
    pub(super) const WEIGHT: Self =
        Self::new("weight", "NUMBER", |value| is_number(value) && value.parse::<u32>().is_ok());

    /// Creates an option. `values` describes its values in error messages, as in `on|off` or `MICROSECONDS`. `is_valid`
    /// checks a value when a URL is parsed.
    #[must_use]
    pub const fn new(name: &'static str, values: &'static str, is_valid: fn(&str) -> bool) -> Self {
        Self { name, values, is_valid }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is_valid(&self, value: &str) -> bool {
        (self.is_valid)(value)
    }
}

/// Returns `true` if `value` contains only digits, and no sign.
fn is_number(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for UrlOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.values)
    }
}

/// The options that a URL has. Each was checked when the URL was parsed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UrlOptions(Vec<(&'static str, String)>);

impl UrlOptions {
    /// Returns the value of an option as it was written, or `None` if the URL does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(option, _)| *option == name).map(|(_, value)| value.as_str())
    }

    /// Returns the local address of a client (`local=ADDRESS`), or `None` if the system chooses it.
    #[must_use]
    pub fn local(&self) -> Option<IpAddr> {
        self.parsed("local")
    }

    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// Sets an option, and replaces its value if the URL has it already. `value` must be valid.
    #[cfg(feature = "tls")]
    pub(super) fn set(&mut self, name: &'static str, value: &str) {
        match self.0.iter_mut().find(|(option, _)| *option == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name, value.to_owned())),
        }
    }

    /// Removes an option if the URL has it.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(option, _)| *option != name);
    }

    /// Adds an option that the URL does not have yet. `value` must be valid.
    pub(super) fn add(&mut self, option: &UrlOption, value: &str) {
        self.0.push((option.name, value.to_owned()));
    }
}

/// Displays the options as they follow the port in a URL: `?name=value&name=value`, or nothing.
impl fmt::Display for UrlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

//! The decision about the use of TLS on a connection.

use super::TlsPolicy;

/// The reason why TLS cannot be used although the policy asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsUnavailable {
    /// There is no TLS configuration.
    NoConfig,
    /// TLS is required, but the transport does not support it.
    NoTransport,
}

/// Returns the policy for one connection or listener. `configured` is the policy of the TLS configuration, if there is
/// one. `requested` is the policy in the URL, which takes precedence. `is_tcp` is `true` for `tcp://`, the only
/// transport that supports TLS. Fails if another transport requires TLS, or if `tcp://` needs a TLS configuration and
/// there is none. Other transports ignore [`TlsPolicy::Opportunistic`].
pub(crate) fn effective_policy(
    configured: Option<TlsPolicy>,
    requested: Option<TlsPolicy>,
    is_tcp: bool,
) -> Result<TlsPolicy, TlsUnavailable> {
    match requested.or(configured).unwrap_or(TlsPolicy::Off) {
        TlsPolicy::Off => Ok(TlsPolicy::Off),
        TlsPolicy::Opportunistic if !is_tcp => Ok(TlsPolicy::Off),
        TlsPolicy::Required if !is_tcp => Err(TlsUnavailable::NoTransport),
        policy if configured.is_some() => Ok(policy),
        TlsPolicy::Opportunistic | TlsPolicy::Required => Err(TlsUnavailable::NoConfig),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every policy of the configuration, or none, is combined with every policy of the URL, or none, for TCP and for
    /// another transport.
    #[test]
    fn policies_of_configuration_and_url() {
        use TlsPolicy::{Off, Opportunistic, Required};
        use TlsUnavailable::{NoConfig, NoTransport};
        let all = [None, Some(Off), Some(Opportunistic), Some(Required)];
        // By the policy of the configuration. A row has the results for the policies of the URL.
        let tcp = [
            [Ok(Off), Ok(Off), Err(NoConfig), Err(NoConfig)],
            [Ok(Off), Ok(Off), Ok(Opportunistic), Ok(Required)],
            [Ok(Opportunistic), Ok(Off), Ok(Opportunistic), Ok(Required)],
            [Ok(Required), Ok(Off), Ok(Opportunistic), Ok(Required)],
        ];
        let other = [
            [Ok(Off), Ok(Off), Ok(Off), Err(NoTransport)],
            [Ok(Off), Ok(Off), Ok(Off), Err(NoTransport)],
            [Ok(Off), Ok(Off), Ok(Off), Err(NoTransport)],
            [Err(NoTransport), Ok(Off), Ok(Off), Err(NoTransport)],
        ];
        for (wanted, is_tcp) in [(tcp, true), (other, false)] {
            let got = all.map(|configured| all.map(|requested| effective_policy(configured, requested, is_tcp)));
            assert_eq!(got, wanted, "is_tcp: {is_tcp}");
        }
    }
}

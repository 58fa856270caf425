//! The options `--sec` and `--service` of clients and servers, which select security flavors and the Kerberos service.

use std::{fmt, str::FromStr};

use rpcrdma::{
    client::ChannelBuilder,
    rpc::{AuthStat, Credential},
    security::{Authentication, Authenticator, Principal, ProtectionLevel, ReceivedCall},
    server::ServerBuilder,
};

/// A security flavor of RPC. Its name on the command line is the one in `exports(5)` and `nfs(5)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// AUTH_SYS. The client claims to be a user, without proof.
    Sys,
    /// Kerberos authentication of the user.
    Krb5,
    /// Kerberos authentication of the user, and integrity protection of arguments and results.
    Krb5i,
    /// Kerberos authentication of the user, and encryption of arguments and results.
    Krb5p,
}

impl Flavor {
    const ALL: [Self; 4] = [Self::Sys, Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// Returns the number of the flavor in the reply of MOUNT. It is the number of AUTH_SYS or of a pseudo flavor (RFC
    /// 2623 §4).
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Sys => 1,
            Self::Krb5 => 390_003,
            Self::Krb5i => 390_004,
            Self::Krb5p => 390_005,
        }
    }

    /// Returns the flavor whose [number](Self::number) is `number`, or `None` if there is no such flavor.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|flavor| flavor.number() == number)
    }

    /// Returns the flavor of a call, or `None` for AUTH_NONE and unknown flavors.
    #[must_use]
    pub fn of(credential: &Credential, principal: Option<&Principal>) -> Option<Self> {
        match (principal.map(|principal| principal.level), credential) {
            (Some(ProtectionLevel::Authentication), _) => Some(Self::Krb5),
            (Some(ProtectionLevel::Integrity), _) => Some(Self::Krb5i),
            (Some(ProtectionLevel::Privacy), _) => Some(Self::Krb5p),
            (None, Credential::Sys(_)) => Some(Self::Sys),
            _ => None,
        }
    }

    /// Returns `true` if this program supports the flavor. Kerberos needs the feature `gss`.
    #[must_use]
    pub fn is_supported(self) -> bool {
        self == Self::Sys || cfg!(feature = "gss")
    }

    /// Returns the protection level of Kerberos. Returns `None` for AUTH_SYS.
    #[must_use]
    pub fn level(self) -> Option<ProtectionLevel> {
        match self {
            Self::Sys => None,
            Self::Krb5 => Some(ProtectionLevel::Authentication),
            Self::Krb5i => Some(ProtectionLevel::Integrity),
            Self::Krb5p => Some(ProtectionLevel::Privacy),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl clap::ValueEnum for Flavor {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

/// The flavors that a server accepts, in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flavors(Vec<Flavor>);

impl Default for Flavors {
    /// Returns a list that contains only AUTH_SYS.
    fn default() -> Self {
        Self(vec![Flavor::Sys])
    }
}

impl Flavors {
    /// Returns the flavors in order of preference.
    pub fn iter(&self) -> impl Iterator<Item = Flavor> + '_ {
        self.0.iter().copied()
    }

    /// Returns `true` if the flavor is accepted.
    #[must_use]
    pub fn contains(&self, flavor: Flavor) -> bool {
        self.0.contains(&flavor)
    }

    /// Returns `true` if a Kerberos flavor is accepted.
    #[must_use]
    pub fn has_kerberos(&self) -> bool {
        self.iter().any(|flavor| flavor.level().is_some())
    }
}

impl FromStr for Flavors {
    type Err = String;

    /// Parses a list such as `krb5:krb5i:krb5p:sys`. Commas separate flavors as well. Unknown and repeated flavors are
    /// errors.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut flavors = Vec::new();
        for name in text.split([':', ',']) {
            let flavor = Flavor::ALL.into_iter().find(|flavor| flavor.name() == name);
            let flavor = flavor.ok_or_else(|| format!("{name:?} is none of sys, krb5, krb5i and krb5p"))?;
            if flavors.contains(&flavor) {
                return Err(format!("{name} is repeated"));
            }
            flavors.push(flavor);
        }
        Ok(Self(flavors))
    }
}

impl fmt::Display for Flavors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Flavor::name).collect();
        f.write_str(&names.join(":"))
    }
}

/// The reason why Kerberos cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecError {
    /// The program was built without the feature `gss`.
    #[error("--sec {0}: this program was built without Kerberos, build it with `--features gss`")]
    NotBuilt(Flavor),
    /// The server cannot accept Kerberos calls, usually because its keytab has no usable key.
    #[error("cannot accept Kerberos calls, check the keytab ($KRB5_KTNAME) and --service")]
    #[cfg(feature = "gss")]
    NoKey(#[source] rpcrdma::gss::GssError),
}

/// The Kerberos settings for the calls of a client: a flavor and the service to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kerberos {
    flavor: Flavor,
    service: String,
}

impl Kerberos {
    /// Creates the settings for calls to a Kerberos service, such as `nfs@server.example.com`. Returns `None` for
    /// AUTH_SYS.
    ///
    /// # Errors
    /// Fails if the program was built without Kerberos.
    pub fn new(flavor: Flavor, service: String) -> Result<Option<Self>, SecError> {
        match flavor {
            Flavor::Sys => Ok(None),
            flavor if !flavor.is_supported() => Err(SecError::NotBuilt(flavor)),
            flavor => Ok(Some(Self { flavor, service })),
        }
    }

    /// Secures the calls of a channel with the credentials from the credential cache of the user that runs the process.
    pub fn secure(&self, builder: ChannelBuilder) -> ChannelBuilder {
        #[cfg(feature = "gss")]
        if let Some(level) = self.flavor.level() {
            let mechanism = rpcrdma::gss::KerberosClient::new(self.service.clone());
            return builder.security(rpcrdma::gss::GssSecurity::new(mechanism, level));
        }
        builder
    }
}

/// Security options of a client.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClientSec {
    /// Security flavor. Kerberos (krb5: authentication, krb5i: and integrity, krb5p: and encryption) uses the ticket
    /// that kinit obtained
    #[arg(long, value_name = "FLAVOR", value_enum)]
    pub sec: Option<Flavor>,
    /// Kerberos service of the server, e.g. nfs@server.example.com; default: the service of the protocol on the host of
    /// the URL
    #[arg(long, value_name = "SERVICE@HOST")]
    pub service: Option<String>,
}

impl ClientSec {
    /// Returns the name of the server's Kerberos service: the value of `--service`, or by default `service` on `host`.
    #[must_use]
    pub fn service(&self, service: &str, host: &str) -> String {
        self.service.clone().unwrap_or_else(|| format!("{service}@{}", host.trim_matches(['[', ']'])))
    }

    /// Secures the calls of a channel to `url` according to the options. The Kerberos service is `service`, unless the
    /// options name another. Without `--sec`, returns `builder` unchanged.
    ///
    /// # Errors
    /// Fails if the flavor needs Kerberos and the program was built without it, or if the AUTH_SYS credential cannot be
    /// created.
    pub fn secure(&self, builder: ChannelBuilder, service: &str, url: &str) -> anyhow::Result<ChannelBuilder> {
        let Some(flavor) = self.sec else { return Ok(builder) };
        // An invalid URL is reported when the channel connects.
        let host = url.parse::<rpcrdma::transport::Url>().map(|url| url.host().to_owned()).unwrap_or_default();
        Ok(match Kerberos::new(flavor, self.service(service, &host))? {
            Some(kerberos) => kerberos.secure(builder),
            None => builder.credential(own_credential()?),
        })
    }
}

/// Returns an AUTH_SYS credential with the effective user and group IDs of the process, or with the ID 65534 on systems
/// other than Unix.
fn own_credential() -> anyhow::Result<rpcrdma::rpc::OpaqueAuth> {
    #[cfg(unix)]
    let (host, uid, gid) = (
        rustix::system::uname().nodename().to_string_lossy().into_owned(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    #[cfg(not(unix))]
    let (host, uid, gid) = (String::new(), 65534, 65534);
    Ok(Credential::sys(host, uid, gid, []).to_opaque()?)
}

/// Security options of a server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServerSec {
    /// Accepted security flavors, the preferred one first: sys, krb5, krb5i and krb5p, separated by colons. Kerberos
    /// uses the default keytab ($KRB5_KTNAME)
    #[arg(long, value_name = "FLAVORS")]
    pub sec: Option<Flavors>,
    /// Kerberos service whose clients are accepted, e.g. nfs@server.example.com; default: every service in the keytab
    #[arg(long, value_name = "SERVICE@HOST", requires = "sec")]
    pub service: Option<String>,
}

impl ServerSec {
    /// Returns a function that sets the authenticator of a server. The server accepts AUTH_NONE and AUTH_SYS, and also
    /// Kerberos if the options name a Kerberos flavor. If `only` is `true` and the options name flavors, the server
    /// refuses all other flavors.
    ///
    /// # Errors
    /// Fails if the options name a Kerberos flavor, and the program was built without Kerberos or the server has no
    /// key.
    pub fn authenticator(
        &self,
        only: bool,
    ) -> Result<impl Fn(ServerBuilder) -> ServerBuilder + Clone + 'static, SecError> {
        let flavors = self.sec.clone().unwrap_or_default();
        let kerberos = flavors.iter().find(|flavor| flavor.level().is_some());
        if let Some(flavor) = kerberos
            && !flavor.is_supported()
        {
            return Err(SecError::NotBuilt(flavor));
        }
        let flavors = if only { self.sec.clone() } else { None };
        #[cfg(feature = "gss")]
        let kerberos = kerberos.map(|_| self.kerberos()).transpose()?;
        Ok(move |builder: ServerBuilder| {
            #[cfg(feature = "gss")]
            if let Some(kerberos) = &kerberos {
                return builder.authenticator(Only { flavors: flavors.clone(), inner: kerberos.clone() });
            }
            builder.authenticator(Only { flavors: flavors.clone(), inner: rpcrdma::security::StandardAuthenticator })
        })
    }

    /// Returns an authenticator that accepts Kerberos, AUTH_SYS and AUTH_NONE. Fails if the keytab has no usable key.
    #[cfg(feature = "gss")]
    fn kerberos(&self) -> Result<rpcrdma::gss::GssAuthenticator<rpcrdma::gss::KerberosServer>, SecError> {
        use rpcrdma::gss::{GssAuthenticator, KerberosServer, ServerMechanism as _};
        let mut mechanism = KerberosServer::new();
        if let Some(service) = &self.service {
            mechanism = mechanism.service(service);
        }
        drop(mechanism.begin().map_err(SecError::NoKey)?);
        Ok(GssAuthenticator::new(mechanism).or(rpcrdma::security::StandardAuthenticator))
    }
}

/// An authenticator that rejects calls whose flavor is not in a list.
#[derive(Debug)]
struct Only<A> {
    /// The accepted flavors. `None` means all.
    flavors: Option<Flavors>,
    inner: A,
}

impl<A: Authenticator> Authenticator for Only<A> {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        let decision = self.inner.authenticate(call);
        let Some(flavors) = self.flavors.clone() else { return decision };
        decision.filter(move |caller| match Flavor::of(&caller.credential, caller.principal.as_deref()) {
            Some(flavor) if flavors.contains(flavor) => Ok(()),
            _ => Err(AuthStat::AuthTooweak.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rpcrdma::security::AuthenticatedCaller;

    use super::*;

    #[test]
    fn lists_of_flavors() {
        let parse = |text: &str| text.parse::<Flavors>();
        assert_eq!(parse("krb5p:sys").unwrap().iter().collect::<Vec<_>>(), [Flavor::Krb5p, Flavor::Sys]);
        assert_eq!(parse("krb5,krb5i,krb5p").unwrap().to_string(), "krb5:krb5i:krb5p");
        assert!(!parse("sys").unwrap().has_kerberos() && parse("sys:krb5").unwrap().has_kerberos());
        for bad in ["", "none", "sys:", "sys:sys", "krb5:SYS"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    /// The flavors have the numbers of RFC 2623 §4.2 and of the IANA registry. A flavor is found by its number.
    #[test]
    fn numbers_of_flavors() {
        assert_eq!(Flavor::ALL.map(Flavor::number), [1, 390_003, 390_004, 390_005]);
        assert_eq!(Flavor::from_number(390_004), Some(Flavor::Krb5i));
        assert_eq!(Flavor::from_number(0), None);
    }

    #[test]
    fn flavor_of_a_call() {
        let sys = Credential::sys("", 1, 1, []);
        let of = |level| Flavor::of(&Credential::None, Some(&Principal::new("alice@REALM", level)));
        assert_eq!(Flavor::of(&sys, None), Some(Flavor::Sys));
        assert_eq!(Flavor::of(&Credential::None, None), None);
        assert_eq!(of(ProtectionLevel::Authentication), Some(Flavor::Krb5));
        assert_eq!(of(ProtectionLevel::Privacy), Some(Flavor::Krb5p));
    }

    /// An authenticator that accepts all callers as a principal with integrity protection, at once or asynchronously.
    #[derive(Debug)]
    struct Principals {
        is_late: bool,
    }

    impl Authenticator for Principals {
        fn authenticate(&self, _call: &ReceivedCall<'_>) -> Authentication {
            let principal = Principal::new("alice@REALM", ProtectionLevel::Integrity);
            let caller = AuthenticatedCaller::new(Credential::None).with_principal(principal.into());
            if self.is_late {
                return Authentication::Pending(Box::pin(async { Authentication::Accepted(caller) }));
            }
            Authentication::Accepted(caller)
        }
    }

    /// Callers whose flavor is not in the list are rejected with AUTH_TOOWEAK, by immediate and by asynchronous
    /// decisions.
    #[tokio::test]
    async fn only_listed_flavors_pass() {
        let header = rpcrdma::rpc::CallHeader::new(1, 1, 1, 1);
        for (list, passes) in [(None, true), (Some("krb5p"), false), (Some("krb5i:krb5p"), true), (Some("sys"), false)]
        {
            for is_late in [false, true] {
                let only = Only { flavors: list.map(|list| list.parse().unwrap()), inner: Principals { is_late } };
                let mut decision = only.authenticate(&ReceivedCall::new(&header, ([127, 0, 0, 1], 1).into()));
                if let Authentication::Pending(later) = decision {
                    decision = later.await;
                }
                match decision {
                    Authentication::Accepted(_) => assert!(passes, "{list:?}, {is_late}"),
                    Authentication::Rejected(failure) => {
                        assert_eq!(
                            (failure.stat(), passes),
                            (Some(AuthStat::AuthTooweak), false),
                            "{list:?}, {is_late}"
                        );
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn kerberos_needs_the_feature() {
        let made = Kerberos::new(Flavor::Krb5i, "nfs@server".to_owned());
        assert_eq!(made.is_ok(), cfg!(feature = "gss"));
        if let Err(error) = made {
            assert!(error.to_string().contains("`--features gss`"), "{error}");
        }
        assert_eq!(Kerberos::new(Flavor::Sys, String::new()).unwrap(), None);
    }

    #[test]
    fn service_of_the_server() {
        let mut options = ClientSec::default();
        assert_eq!(options.service("nfs", "server"), "nfs@server");
        assert_eq!(options.service("nfs", "[::1]"), "nfs@::1");
        options.service = Some("host@other".to_owned());
        assert_eq!(options.service("nfs", "server"), "host@other");
    }
}

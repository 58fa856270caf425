//! Cases, with their rules, verdicts and findings.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use serde::Serialize;

/// The verdict of a case on the implementation under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The implementation does what the specification requires.
    Conforming,
    /// The specification allows the behaviour, but recommends or expects another.
    Unusual,
    /// The implementation violates a requirement.
    Wrong,
    /// The implementation does not have the optional feature, or the connection does not permit the case.
    NotSupported,
    /// The case could not run, for example because nothing listens at the address.
    NotRun,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Conforming => "conforming",
            Self::Unusual => "unusual",
            Self::Wrong => "wrong",
            Self::NotSupported => "not supported",
            Self::NotRun => "not run",
        })
    }
}

/// A group of cases: a protocol, and the role of the implementation under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A server of version 1.
    V1Server,
    /// A server of version 1 that serves NFS 3.
    V1Nfs,
    /// A server of version 2.
    V2Server,
    /// A listener of iWARP over TCP.
    IwarpServer,
    /// A client of version 1.
    V1Client,
    /// A client of version 2.
    V2Client,
    /// A connector of iWARP over TCP.
    IwarpClient,
}

impl Part {
    /// All parts, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::V1Server,
        Self::V1Nfs,
        Self::V2Server,
        Self::IwarpServer,
        Self::V1Client,
        Self::V2Client,
        Self::IwarpClient,
    ];

    /// Creates a case of this part that runs `steps`.
    pub(crate) fn steps<S: Clone + 'static, F: Future<Output = Steps> + Send + 'static>(
        self,
        id: &'static str,
        rules: &'static [&'static str],
        sent: &'static str,
        expected: impl Into<String>,
        steps: fn(S) -> F,
    ) -> Case<S> {
        Case::new((self, id), rules, sent, expected, move |subject: &S| steps(subject.clone()))
    }

    /// Returns the name of the part on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1Server => "v1-server",
            Self::V1Nfs => "v1-nfs",
            Self::V2Server => "v2-server",
            Self::IwarpServer => "iwarp-server",
            Self::V1Client => "v1-client",
            Self::V2Client => "v2-client",
            Self::IwarpClient => "iwarp-client",
        }
    }

    /// Returns the title of the part in reports.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::V1Server => "RPC-over-RDMA version 1, server",
            Self::V1Nfs => "RPC-over-RDMA version 1, NFS 3 server",
            Self::V2Server => "RPC-over-RDMA version 2, server",
            Self::IwarpServer => "iWARP, listener",
            Self::V1Client => "RPC-over-RDMA version 1, client",
            Self::V2Client => "RPC-over-RDMA version 2, client",
            Self::IwarpClient => "iWARP, connector",
        }
    }
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The verdict on what the implementation did.
    pub verdict: Verdict,
    /// A description of what the implementation did.
    pub came: String,
}

impl Finding {
    /// Creates a finding. `came` describes what the implementation did.
    #[must_use]
    pub fn new(verdict: Verdict, came: impl Into<String>) -> Self {
        Self { verdict, came: came.into() }
    }

    pub(crate) fn conforming(came: impl Into<String>) -> Self {
        Self::new(Verdict::Conforming, came)
    }

    pub(crate) fn unusual(came: impl Into<String>) -> Self {
        Self::new(Verdict::Unusual, came)
    }

    pub(crate) fn wrong(came: impl Into<String>) -> Self {
        Self::new(Verdict::Wrong, came)
    }

    pub(crate) fn not_supported(came: impl Into<String>) -> Self {
        Self::new(Verdict::NotSupported, came)
    }
}

/// The finding of a case that ended before its last step.
#[derive(Debug)]
pub(crate) struct Early(pub(crate) Finding);

impl Early {
    pub(crate) fn not_run(why: impl Into<String>) -> Self {
        Self(Finding::new(Verdict::NotRun, why))
    }
}

impl From<Finding> for Early {
    fn from(finding: Finding) -> Self {
        Self(finding)
    }
}

/// The result of the steps of a case. The error is the finding of a case that ended before its last step.
pub(crate) type Steps<T = Finding> = Result<T, Early>;

/// The future of a running case.
pub(crate) type Running = Pin<Box<dyn Future<Output = Steps> + Send>>;

/// Time limits of a case.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum time to wait for an answer.
    pub patience: Duration,
    /// Time to wait for a message that should not come, or that need not come.
    pub settle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5), settle: Duration::from_millis(100) }
    }
}

/// A test of one or several requirements, on connections of its own.
pub struct Case<S> {
    /// The unique name, such as `v1/server/version-0`.
    pub id: &'static str,
    /// The protocol and the role of the implementation under test.
    pub part: Part,
    /// The rules that the case checks: a document, a section, and the number or letter of the requirement in the tables
    /// of `tests/conformance`.
    pub rules: &'static [&'static str],
    /// A description of what the case sends.
    pub sent: &'static str,
    /// A description of the accepted answers.
    pub expected: String,
    /// The reason why the case runs only on request: it has crashed an implementation. `None` for most cases.
    pub dangerous: Option<&'static str>,
    pub(crate) steps: Box<dyn Fn(&S) -> Running + Send + Sync>,
}

impl<S> fmt::Debug for Case<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<S> Case<S> {
    /// Creates a case that runs `steps`.
    pub(crate) fn new<F: Future<Output = Steps> + Send + 'static>(
        (part, id): (Part, &'static str),
        rules: &'static [&'static str],
        sent: &'static str,
        expected: impl Into<String>,
        steps: impl Fn(&S) -> F + Send + Sync + 'static,
    ) -> Self {
        let steps = Box::new(move |subject: &S| -> Running { Box::pin(steps(subject)) });
        Self { id, part, rules, sent, expected: expected.into(), dangerous: None, steps }
    }

    pub(crate) fn dangerous(mut self, why: &'static str) -> Self {
        self.dangerous = Some(why);
        self
    }
}

//! Kinds of answers, and the verdict that a case gives to each.

use std::fmt;

use crate::case::{Finding, Verdict};

/// The response to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    /// An RPC reply with this status, such as `SUCCESS`.
    Reply(&'static str),
    /// A transport error of this name, such as `ERR_CHUNK`.
    Error(&'static str),
    /// Any other message, such as a malformed one.
    Other(String),
    /// No message, although the connection still served a later call.
    Nothing,
    /// The connection ended, for this reason.
    Ended(String),
    /// No message, and no reply to a later call either.
    Hung,
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(status) => write!(f, "an RPC reply with the status {status}"),
            Self::Error(name) => write!(f, "{name}"),
            Self::Other(text) => write!(f, "{text}"),
            Self::Nothing => write!(f, "nothing, and the connection serves the next call"),
            Self::Ended(reason) => write!(f, "the connection ended: {reason}"),
            Self::Hung => write!(f, "nothing, and the next call is not served either"),
        }
    }
}

/// A kind of answer that a case accepts or names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An RPC reply with the status SUCCESS.
    Success,
    /// An RPC reply with this status.
    Status(&'static str),
    /// A transport error of this name.
    Error(&'static str),
    /// Any transport error.
    AnyError,
    /// No answer, on a connection that still works.
    Nothing,
    /// The end of the connection.
    Ended,
}

impl Kind {
    fn matches(self, came: &Came) -> bool {
        match (self, came) {
            (Self::Success, Came::Reply(status)) => *status == "SUCCESS",
            (Self::Status(name), Came::Reply(found)) | (Self::Error(name), Came::Error(found)) => name == *found,
            (Self::AnyError, Came::Error(_)) | (Self::Nothing, Came::Nothing) | (Self::Ended, Came::Ended(_)) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => write!(f, "a successful RPC reply"),
            Self::Status(name) => write!(f, "an RPC reply with {name}"),
            Self::Error(name) => write!(f, "{name}"),
            Self::AnyError => write!(f, "any transport error"),
            Self::Nothing => write!(f, "no answer"),
            Self::Ended => write!(f, "the end of the connection"),
        }
    }
}

/// The kinds of answers that a case accepts, as conforming or as unusual. Any other answer is wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) conforming: &'static [Kind],
    pub(crate) unusual: &'static [Kind],
}

impl Accepted {
    pub(crate) const fn only(conforming: &'static [Kind]) -> Self {
        Self { conforming, unusual: &[] }
    }

    pub(crate) const fn or_unusually(self, unusual: &'static [Kind]) -> Self {
        Self { unusual, ..self }
    }

    pub(crate) fn judge(&self, came: &Came) -> Finding {
        let has = |kinds: &[Kind]| kinds.iter().any(|kind| kind.matches(came));
        let verdict = match () {
            () if has(self.conforming) => Verdict::Conforming,
            () if has(self.unusual) => Verdict::Unusual,
            () => Verdict::Wrong,
        };
        Finding::new(verdict, came.to_string())
    }

    /// Returns `true` if the case expects an answer, so that silence is not enough.
    pub(crate) fn waits(&self) -> bool {
        !self.conforming.contains(&Kind::Nothing)
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |kinds: &[Kind]| kinds.iter().map(Kind::to_string).collect::<Vec<_>>().join(", or ");
        write!(f, "{}", list(self.conforming))?;
        if !self.unusual.is_empty() {
            write!(f, " (unusual: {})", list(self.unusual))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_verdicts() {
        let accepted =
            Accepted::only(&[Kind::Error("ERR_CHUNK"), Kind::Status("GARBAGE_ARGS")]).or_unusually(&[Kind::Ended]);
        for (came, verdict) in [
            (Came::Error("ERR_CHUNK"), Verdict::Conforming),
            (Came::Reply("GARBAGE_ARGS"), Verdict::Conforming),
            (Came::Ended("reset".into()), Verdict::Unusual),
            (Came::Error("ERR_VERS"), Verdict::Wrong),
            (Came::Reply("SUCCESS"), Verdict::Wrong),
            (Came::Nothing, Verdict::Wrong),
            (Came::Hung, Verdict::Wrong),
            (Came::Other("a reply without an end".into()), Verdict::Wrong),
        ] {
            assert_eq!(accepted.judge(&came).verdict, verdict, "{came}");
        }
        let text = "ERR_CHUNK, or an RPC reply with GARBAGE_ARGS (unusual: the end of the connection)";
        assert_eq!(accepted.to_string(), text);
    }
}

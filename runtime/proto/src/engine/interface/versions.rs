//! The versions of RPC-over-RDMA that a connection may use.

use std::{fmt, str::FromStr};

/// The versions of RPC-over-RDMA to offer or to accept.
///
/// A client that offers both begins with version 2, which it prefers. It falls back to version 1 if the server does not
/// support version 2. A server uses the version of the client's first message.
///
/// The text of a selection is `1`, `2` or `both`.
///
/// ```
/// use rpcrdma_proto::engine::Versions;
///
/// assert_eq!("2".parse(), Ok(Versions::V2));
/// assert_eq!(Versions::try_from(1), Ok(Versions::V1));
/// assert!("3".parse::<Versions>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Versions {
    /// Version 1 only (RFC 8166).
    V1,
    /// Version 2 only (draft-ietf-nfsv4-rpcrdma-version-two-01).
    V2,
    /// Versions 2 and 1, in this order of preference.
    #[default]
    Both,
}

impl Versions {
    /// Returns `true` if version 1 is among the versions.
    #[must_use]
    pub const fn allows_v1(self) -> bool {
        matches!(self, Self::V1 | Self::Both)
    }

    /// Returns `true` if version 2 is among the versions.
    #[must_use]
    pub const fn allows_v2(self) -> bool {
        matches!(self, Self::V2 | Self::Both)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "1",
            Self::V2 => "2",
            Self::Both => "both",
        })
    }
}

impl TryFrom<u32> for Versions {
    type Error = UnknownVersion;

    /// Selects the version with this number only. Fails for numbers other than 1 and 2.
    fn try_from(number: u32) -> Result<Self, UnknownVersion> {
        match number {
            1 => Ok(Self::V1),
            2 => Ok(Self::V2),
            _ => Err(UnknownVersion(number.to_string())),
        }
    }
}

impl FromStr for Versions {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        [Self::V1, Self::V2, Self::Both]
            .into_iter()
            .find(|versions| versions.to_string() == text)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

/// The error for a number or a text that selects no supported version of RPC-over-RDMA.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown version `{0}` of RPC-over-RDMA, expected 1, 2 or both")]
pub struct UnknownVersion(String);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each selection has a text, and allows the versions that the text names. Any other text or number is an error.
    #[test]
    fn texts_and_numbers() {
        for (text, versions, allowed) in [
            ("1", Versions::V1, (true, false)),
            ("2", Versions::V2, (false, true)),
            ("both", Versions::Both, (true, true)),
        ] {
            assert_eq!((text.parse(), versions.to_string()), (Ok(versions), text.to_owned()));
            assert_eq!((versions.allows_v1(), versions.allows_v2()), allowed);
        }
        for text in ["", "0", "3", "01", "+1", "1..=2", "2..=1", "1-2", "Both"] {
            assert_eq!(text.parse::<Versions>(), Err(UnknownVersion(text.into())));
        }
        assert_eq!([1, 2].map(Versions::try_from), [Ok(Versions::V1), Ok(Versions::V2)]);
        for number in [0, 3, u32::MAX] {
            assert_eq!(Versions::try_from(number), Err(UnknownVersion(number.to_string())));
        }
        assert_eq!(Versions::default(), Versions::Both);
        assert_eq!(
            Versions::try_from(3).unwrap_err().to_string(),
            "unknown version `3` of RPC-over-RDMA, expected 1, 2 or both"
        );
    }
}

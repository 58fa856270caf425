//! The codes of diagnostics. A code keeps its meaning for good; `ERRORS.md` explains each to a user.

use std::fmt;

use super::Severity;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        /// Which rule a diagnostic is about. `E` is an error, `W` a warning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As printed.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

codes! {
    /// A file cannot be read, or is not UTF-8.
    Unreadable = "E0001";
    /// The text does not follow the grammar.
    Syntax = "E0002";
    /// A brace, comment or string is never closed.
    Unclosed = "E0003";
    /// Braces or parentheses nest deeper than the compiler goes.
    TooDeep = "E0004";
    /// A number does not fit where it stands.
    OutOfRange = "E0005";
    /// Other compilers take it, the RFCs do not: only where strictness is asked for.
    Dialect = "E0006";
    /// No type has this name.
    UnknownType = "E0101";
    /// No constant has this name.
    UnknownConstant = "E0102";
    /// A name or number is used twice where it must be unique.
    Duplicate = "E0103";
    /// A constant or typedef is defined by itself.
    Cycle = "E0104";
    /// A type contains itself in every value, so none is finite.
    Infinite = "E0105";
    /// A type cannot stand here.
    WrongType = "E0106";
    /// A case label is no value of the discriminant.
    BadCase = "E0107";
    /// A constant of another kind is needed.
    WrongConstant = "E0108";
    /// An annotation or statement is unknown, or cannot stand here.
    BadAnnotation = "E0201";
    /// An annotation's or statement's arguments are wrong.
    BadArguments = "E0202";
    /// The same is stated twice.
    StatedTwice = "E0203";
    /// A statement of a `.ulb` file names what is not there.
    UnknownItem = "E0204";
    /// The item cannot be eligible for direct data placement.
    NotEligible = "E0205";
    /// An eligible item holds an eligible item.
    NestedEligible = "E0206";
    /// An eligible result has no maximum that the requester can compute.
    UnboundedResult = "E0207";
    /// A reply has no maximum.
    UnboundedReply = "E0208";
    /// A call or reply has more eligible items than its limit.
    TooManyItems = "E0209";
    /// An expression does not name an item of the arguments that it can be computed from.
    BadExpression = "E0210";
    /// An enumerator has no usable name without the prefix of its enumeration.
    BadShortName = "E0301";
    /// A line for a preprocessor is left out.
    Preprocessor = "W0001";
    /// A statement has no effect.
    NoEffect = "W0002";
    /// A constant that nothing uses is left out.
    LeftOut = "W0003";
}

impl Code {
    /// Error or warning.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Preprocessor | Self::NoEffect | Self::LeftOut => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

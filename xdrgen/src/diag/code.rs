//! Diagnostic codes. The meaning of a code never changes. `ERRORS.md` explains each code to users.

use std::fmt;

use super::Severity;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        /// The rule behind a diagnostic. Codes that start with `E` are errors, and codes that start with `W` are
        /// warnings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the code as it is printed, such as `E0101`.
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
    /// A file cannot be read.
    Unreadable = "E0001";
    /// The text does not follow the grammar.
    Syntax = "E0002";
    /// A brace, comment, string or preprocessor condition is never closed.
    Unclosed = "E0003";
    /// Brackets, included files, types, versions or an expression exceed a limit on nesting or size.
    TooDeep = "E0004";
    /// A number is out of range for its position, or an expression or a character constant has no value.
    OutOfRange = "E0005";
    /// Other compilers accept the construct, but the RFCs do not define it. Reported in strict mode only.
    Dialect = "E0006";
    /// No type has this name.
    UnknownType = "E0101";
    /// No constant has this name, or several enumerations have an enumerator with this name.
    UnknownConstant = "E0102";
    /// A name or number is used twice where it must be unique.
    Duplicate = "E0103";
    /// A constant, typedef or version is defined in terms of itself.
    Cycle = "E0104";
    /// Every value of a type contains another value of that type, so no value is finite.
    Infinite = "E0105";
    /// A type is not allowed in this position, or an enumeration or union is empty.
    WrongType = "E0106";
    /// A case label is not a value of the discriminant.
    BadCase = "E0107";
    /// A string constant is used where a number is needed.
    WrongConstant = "E0108";
    /// A version takes over the procedures of a version that the program does not have.
    UnknownBase = "E0109";
    /// An annotation, statement or pragma is unknown, or is not allowed in this position.
    BadAnnotation = "E0201";
    /// The arguments of an annotation, statement or pragma are wrong.
    BadArguments = "E0202";
    /// Two annotations or statements state the same fact.
    StatedTwice = "E0203";
    /// A statement in a `.ulb` file or an option names an item that does not exist, or that the procedure does not
    /// return.
    UnknownItem = "E0204";
    /// An item is marked as eligible for direct data placement, but cannot be eligible.
    NotEligible = "E0205";
    /// An eligible item contains another eligible item.
    NestedEligible = "E0206";
    /// An eligible result has no maximum that the requester can compute.
    UnboundedResult = "E0207";
    /// A reply has no maximum size.
    UnboundedReply = "E0208";
    /// A call or reply has more eligible items than its limit.
    TooManyItems = "E0209";
    /// An expression in a binding is invalid, or cannot be computed from the arguments of the call.
    BadExpression = "E0210";
    /// Without the prefix of its enumeration, the name of an enumerator begins with a digit or is not unique.
    BadShortName = "E0301";
    /// A preprocessor line is ignored, or its condition cannot be evaluated and counts as false.
    Preprocessor = "W0001";
    /// An annotation, a statement or a hint of eligibility has no effect.
    NoEffect = "W0002";
    /// An unused constant of more than 64 bits is omitted.
    LeftOut = "W0003";
    /// A reply or an eligible result has no maximum, and gets the default.
    AssumedMaximum = "W0004";
    /// A name is not declared in the input. The declaration in another file of the directory is used.
    FoundElsewhere = "W0005";
    /// An eligible item is too small for direct data placement.
    SmallEligible = "W0006";
    /// Two programs have the same number and a version in common.
    SameProgram = "W0007";
}

/// The documentation of the codes. A heading begins the page of each code.
const PAGES: &str = include_str!("../../ERRORS.md");

impl Code {
    /// Returns the page that explains the code to users, in Markdown. `xdrgen explain CODE` prints it.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        let pages = PAGES.split("\n## ").skip(1);
        let mut pages =
            pages.filter(|page| page.strip_prefix(self.as_str()).is_some_and(|rest| rest.starts_with(": ")));
        pages.next().unwrap_or_default().trim_end()
    }

    /// Returns the code with this text, such as `E0101`, in upper or lower case. Returns `None` if there is no such
    /// code.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text))
    }

    /// Returns the severity of the code.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Preprocessor
            | Self::NoEffect
            | Self::LeftOut
            | Self::AssumedMaximum
            | Self::FoundElsewhere
            | Self::SmallEligible
            | Self::SameProgram => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

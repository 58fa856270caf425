//! The names that generated code imports.
//!
//! A generated file imports all names of this module, except those that its protocol defines itself.

pub use alloc::{boxed::Box, sync::Arc, vec::Vec};

pub use super::{Bytes, NonEmpty, Quadruple, UnknownEnumValue, XdrStr, XdrString};

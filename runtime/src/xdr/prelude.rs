//! Names of what generated types are made of.
//!
//! Files that the compiler writes import all of them, except those that a protocol gives to types of its own.

pub use alloc::{boxed::Box, sync::Arc, vec::Vec};

pub use super::{Bytes, NonEmpty, Quadruple, UnknownEnumValue, XdrStr, XdrString};

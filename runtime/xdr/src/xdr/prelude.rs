//! Imports of generated code.
//!
//! Generated files import all of these names, except those that the protocol defines itself.

pub use alloc::{boxed::Box, sync::Arc, vec::Vec};

pub use super::{Bytes, NonEmpty, Quadruple, UnknownEnumValue, XdrStr, XdrString};

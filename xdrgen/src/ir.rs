//! Typed IR.

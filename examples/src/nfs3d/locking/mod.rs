//! Locks.
mod limits;
mod owner;
mod range;
mod table;
#[cfg(test)]
mod table_tests;

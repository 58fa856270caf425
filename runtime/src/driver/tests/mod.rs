//! Tests of the driver.

mod core;
mod port;
mod threads;

mod attempts;
mod call;
mod channel;
mod error;
pub(super) mod fakes;
mod link;
mod pool;
mod silence;
mod threads;

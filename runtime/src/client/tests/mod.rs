mod call;
mod channel;
mod error;
mod link;
mod silence;
mod threads;

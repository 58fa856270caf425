mod call;
mod error;
mod link;
mod silence;
mod threads;

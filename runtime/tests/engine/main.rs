//! The engine: two of them against each other, and one against peers of every kind, over `sim`.

mod deadlines;
mod faulty;
mod pair;
mod props;
mod replies;
mod requester;
mod responder;
mod reverse;
mod support;
mod untaken;
mod v2;
mod wire;

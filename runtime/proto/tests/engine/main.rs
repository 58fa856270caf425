//! Tests of the protocol engine: pairs of engines, and one engine against a scripted peer, mostly over the `sim`
//! provider. `wire` tests the encoding of version 1 headers without an engine.

mod deadlines;
mod ending;
mod failed_calls;
mod faulty;
mod order;
mod pair;
mod props;
mod replies;
mod reply_timeout;
mod requester;
mod responder;
mod reverse;
mod sent;
mod support;
mod v2;
mod wire;

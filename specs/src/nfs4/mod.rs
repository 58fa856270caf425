//! NFS version 4, minor versions 0 to 2, and its callbacks (RFC 7863) with its upper-layer binding (RFC 8267): generated
//! from [`source::NFS4`](crate::source::NFS4) and [`binding::NFS4`](crate::binding::NFS4).
//!
//! A COMPOUND has a Write chunk for each READ and READLINK in it. A client that does not know its server's limits sends
//! at most one of them in a call, and one WRITE or CREATE of a link (RFC 8267 §6.4.2).
//!
//! What a session's peer returns at most, `ca_maxresponsesize`, is given to a call with
//! [`CallOptions::reply_limit`](rpcrdma::client::CallOptions::reply_limit) (§6.2.2). A COMPOUND with an ACL or the like
//! whose reply did not fit may be sent again with more room,
//! [`CallOptions::reply_bounds`](rpcrdma::client::CallOptions::reply_bounds) (§3.1, §6.2.1): by itself, as nothing tells
//! whether it has been carried out.
//!
//! An operation of a number that is not known ends a COMPOUND's arguments, as `NfsArgop4::Unknown`: a server carries out
//! those before it, and answers with OP_ILLEGAL (RFC 8881 §15.1.3.4).

mod attributes;
mod bounds;

pub use bounds::{LINK, UNKNOWN};

specification!("xdr/nfs4.x", ulb = "xdr/nfs4.ulb", open(nfs_argop4, nfs_cb_argop4));

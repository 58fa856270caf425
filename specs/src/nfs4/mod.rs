//! NFS version 4, minor versions 0 to 2, and its callbacks (RFC 7863), with its Upper-Layer Binding (RFC 8267).
//!
//! Generated from [`source::NFS4`](crate::source::NFS4) and [`binding::NFS4`](crate::binding::NFS4).
//!
//! A COMPOUND has a Write chunk for each READ and READLINK in it. A client that does not know the limits of the server
//! should send at most one READ or READLINK in a call, and at most one WRITE or CREATE of a symbolic link (RFC 8267
//! §6.4.2).
//!
//! # Reply sizes
//!
//! Within a session, pass `ca_maxresponsesize` to
//! [`CallOptions::reply_limit`](rpcrdma::client::CallOptions::reply_limit) (RFC 8267 §6.2.2). If the reply to a
//! COMPOUND did not fit, for example because of an ACL, the caller can repeat the call with more room through
//! [`CallOptions::reply_bounds`](rpcrdma::client::CallOptions::reply_bounds) (RFC 8267 §3.1, §6.2.1). The client does
//! not repeat the call by itself, because it cannot tell whether the server executed the first one. A GETATTR of
//! attributes without a maximum size is best sent in a separate COMPOUND, without operations that modify the file
//! system.
//!
//! # Unknown operations
//!
//! Decoding of a COMPOUND's arguments stops at an unknown operation number, which becomes `NfsArgop4::Unknown`. The
//! server executes the operations before it, and returns OP_ILLEGAL for the unknown one (RFC 8881 §15.1.3.4).

mod attributes;
mod bounds;

pub use bounds::{MAX_LINK_LEN, UNKNOWN_RESULT_LEN};

specification!("xdr/nfs4.x", ulb = "xdr/nfs4.ulb", open(nfs_argop4, nfs_cb_argop4));

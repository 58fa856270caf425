//! XDR specifications of ONC RPC, of RPC-over-RDMA, and of protocols that use them, with the types, codecs, clients and
//! servers generated from them.
//!
//! [`source`] has the XDR files as text. [`binding`] has the Upper-Layer Bindings of the programs. This crate's README
//! and the header of each file name the document that the file comes from, if there is one.
//!
//! The runtime generates its own copy of the RPC and RPC-over-RDMA header types. The copies here are for tools and
//! tests that work with messages without the runtime.
//!
//! The feature `std` is on by default. Without it, the crate is `no_std` with `alloc`, and has no clients or servers.
//! The feature `discover` adds the discovery of servers through rpcbind.
#![cfg_attr(not(feature = "std"), no_std)]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

// Generated code refers to the runtime as `rpcrdma`. Without clients and servers, the codec takes its place.
#[cfg(not(feature = "std"))]
extern crate rpcrdma_xdr as rpcrdma;

/// Expands to `include_xdr!` for an XDR file. Clients and servers are generated only with the feature `std`.
macro_rules! specification {
    ($file:literal $($options:tt)*) => {
        #[cfg(feature = "std")]
        rpcrdma::include_xdr!($file $($options)*, strip_enum_prefix);
        #[cfg(not(feature = "std"))]
        rpcrdma::include_xdr!($file $($options)*, strip_enum_prefix, types_only);
    };
}

pub mod nfs4;

/// The XDR files of the folder `xdr`, as text.
pub mod source {
    /// `rpc.x`: ONC RPC version 2 (RFC 5531).
    pub const RPC: &str = include_str!("../xdr/rpc.x");
    /// `rpcrdma1.x`: the header of RPC-over-RDMA version 1 (RFC 8166).
    pub const RPCRDMA1: &str = include_str!("../xdr/rpcrdma1.x");
    /// `rpcrdma2.x`: the headers of RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).
    pub const RPCRDMA2: &str = include_str!("../xdr/rpcrdma2.x");
    /// `rpcsec_gss.x`: RPCSEC_GSS version 1 (RFC 2203).
    pub const RPCSEC_GSS: &str = include_str!("../xdr/rpcsec_gss.x");
    /// `rpcbind.x`: rpcbind versions 3 and 4, and version 2, the port mapper (RFC 1833 §2.1, §3.1).
    pub const RPCBIND: &str = include_str!("../xdr/rpcbind.x");
    /// `mount3.x`: MOUNT version 3 (RFC 1813, appendix I).
    pub const MOUNT3: &str = include_str!("../xdr/mount3.x");
    /// `nlm4.x`: NLM version 4, the lock manager (RFC 1813, appendix II).
    pub const NLM4: &str = include_str!("../xdr/nlm4.x");
    /// `nsm1.x`: NSM version 1, the status monitor (XNFS).
    pub const NSM1: &str = include_str!("../xdr/nsm1.x");
    /// `nfs3.x`: NFS version 3 (RFC 1813).
    pub const NFS3: &str = include_str!("../xdr/nfs3.x");
    /// `nfsacl3.x`: NFSACL version 3, access control lists for files of NFS version 3.
    pub const NFSACL3: &str = include_str!("../xdr/nfsacl3.x");
    /// `nfs4.x`: NFS version 4, minor versions 0 to 2, and its callbacks (RFC 7863).
    pub const NFS4: &str = include_str!("../xdr/nfs4.x");
}

/// The Upper-Layer Bindings (`.ulb` files) of the folder `xdr`, as text.
pub mod binding {
    /// `rpcbind.ulb`: maximum sizes of replies. No RFC specifies a binding of rpcbind to RPC-over-RDMA.
    pub const RPCBIND: &str = include_str!("../xdr/rpcbind.ulb");
    /// `mount3.ulb`: the binding of MOUNT version 3 (RFC 8267 §5.1), with maximum sizes of replies.
    pub const MOUNT3: &str = include_str!("../xdr/mount3.ulb");
    /// `nlm4.ulb`: the binding of NLM version 4 (RFC 8267 §5.1).
    pub const NLM4: &str = include_str!("../xdr/nlm4.ulb");
    /// `nsm1.ulb`: the binding of NSM version 1 (RFC 8267 §5.1).
    pub const NSM1: &str = include_str!("../xdr/nsm1.ulb");
    /// `nfs3.ulb`: the binding of NFS version 3 (RFC 8267 §4).
    pub const NFS3: &str = include_str!("../xdr/nfs3.ulb");
    /// `nfsacl3.ulb`: the binding of NFSACL version 3 (RFC 8267 §5.2), with maximum sizes of replies.
    pub const NFSACL3: &str = include_str!("../xdr/nfsacl3.ulb");
    /// `nfs4.ulb`: the binding of NFS version 4 (RFC 8267 §6).
    pub const NFS4: &str = include_str!("../xdr/nfs4.ulb");
}

/// ONC RPC version 2 (RFC 5531), generated from [`source::RPC`].
pub mod rpc {
    specification!("xdr/rpc.x");
}

/// The header of RPC-over-RDMA version 1 (RFC 8166), generated from [`source::RPCRDMA1`].
pub mod rpcrdma1 {
    specification!("xdr/rpcrdma1.x");
}

/// The headers of RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01), generated from
/// [`source::RPCRDMA2`].
pub mod rpcrdma2 {
    specification!("xdr/rpcrdma2.x");
}

/// RPCSEC_GSS version 1 (RFC 2203), generated from [`source::RPCSEC_GSS`].
pub mod rpcsec_gss {
    specification!("xdr/rpcsec_gss.x");
}

pub mod rpcbind;

/// MOUNT version 3 (RFC 1813, appendix I), generated from [`source::MOUNT3`] and [`binding::MOUNT3`].
pub mod mount3 {
    specification!("xdr/mount3.x", ulb = "xdr/mount3.ulb");
}

/// NLM version 4 (RFC 1813, appendix II), generated from [`source::NLM4`] and [`binding::NLM4`].
pub mod nlm4 {
    specification!("xdr/nlm4.x", ulb = "xdr/nlm4.ulb");
}

/// NSM version 1 (XNFS), generated from [`source::NSM1`] and [`binding::NSM1`].
pub mod nsm1 {
    specification!("xdr/nsm1.x", ulb = "xdr/nsm1.ulb");
}

/// NFS version 3 (RFC 1813) with its Upper-Layer Binding (RFC 8267), generated from [`source::NFS3`] and
/// [`binding::NFS3`].
///
/// Each type that contains file handles, names or data also has a borrowed form, whose name ends in `Ref`.
pub mod nfs3 {
    specification!("xdr/nfs3.x", ulb = "xdr/nfs3.ulb", borrowed);
}

/// NFSACL version 3, generated from [`source::NFSACL3`] and [`binding::NFSACL3`]. The types of handles and attributes
/// are those of [`nfs3`].
pub mod nfsacl3 {
    specification!(
        "xdr/nfsacl3.x",
        ulb = "xdr/nfsacl3.ulb",
        extern nfs_fh3 = crate::nfs3::NfsFh3,
        extern post_op_attr = crate::nfs3::PostOpAttr
    );
}

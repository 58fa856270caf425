//! ONC RPC version 2 (RFC 5531).

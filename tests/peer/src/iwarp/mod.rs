//! Cases below RPC: MPA, DDP and RDMAP.

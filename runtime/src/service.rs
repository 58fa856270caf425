//! What generated stubs implement and use: procedures, services, and their bounds.

use smallvec::SmallVec;

use crate::xdr::{XdrDecode, XdrEncode, XdrType as _};

/// One procedure of a program version: a marker type that the compiler generates.
pub trait Procedure: Send + Sync + 'static {
    /// The RPC program number.
    const PROGRAM: u32;
    /// The program version.
    const VERSION: u32;
    /// The procedure number.
    const NUMBER: u32;
    /// `PROGRAM.PROCEDURE`, as the XDR names them: for messages and traces.
    const NAME: &'static str;
    /// Whether carrying it out twice is as good as once (`@idempotent`).
    const IDEMPOTENT: bool = false;
    /// The arguments.
    type Args: XdrEncode + XdrDecode + Send + 'static;
    /// The result.
    type Reply: XdrEncode + XdrDecode + Send + 'static;

    /// What the reply to these arguments takes at most (RFC 8166 §6.2).
    fn reply_bounds(args: &Self::Args) -> ReplyBounds;
}

/// Most eligible items of the arguments or of the result of `P`, whichever has more; 0 where their types do not say.
#[must_use]
pub fn max_chunks<P: Procedure>() -> u32 {
    [P::Args::MAX_DDP_ITEMS, P::Reply::MAX_DDP_ITEMS].into_iter().flatten().fold(0, u32::max)
}

/// Arguments that tell what their reply takes at most: of procedures whose binding says `reply_max = computed`, since
/// no formula over named arguments does. Those of NFS version 4's COMPOUND are the model: each operation adds its own.
pub trait BoundsReply {
    /// What the reply to these arguments takes at most (RFC 8166 §6.2).
    fn reply_bounds(&self) -> ReplyBounds;
}

/// Most that a procedure's result takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyBounds {
    /// Octets of the result's encoding that stay in the payload stream when every eligible item is reduced; the RPC
    /// reply header is not counted.
    pub inline: u64,
    /// Octets of each eligible item, without count and padding, in the order of the encoding. An item of which
    /// this call can return nothing may be given as 0.
    pub chunks: SmallVec<[u64; 2]>,
}

impl ReplyBounds {
    /// Of a result that keeps at most `inline` octets in the payload stream, and has `chunks` to be placed.
    #[must_use]
    pub fn new(inline: u64, chunks: &[u64]) -> Self {
        Self { inline, chunks: SmallVec::from_slice(chunks) }
    }

    /// Most octets of the result's encoding when nothing of it is reduced.
    #[must_use]
    pub fn whole(&self) -> u64 {
        let padded = |len: &u64| len.checked_next_multiple_of(4).unwrap_or(u64::MAX);
        self.chunks.iter().map(padded).fold(self.inline, u64::saturating_add)
    }
}

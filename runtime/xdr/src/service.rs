//! The description of procedures that generated code implements: their numbers, types and reply bounds.

use smallvec::SmallVec;

use crate::xdr::{XdrDecode, XdrEncode, XdrType};

/// One procedure of a program version. For each procedure, the XDR compiler generates a marker type that implements
/// this trait.
pub trait Procedure: Send + Sync + 'static {
    /// The RPC program number.
    const PROGRAM: u32;
    /// The program version.
    const VERSION: u32;
    /// The procedure number.
    const NUMBER: u32;
    /// `VERSION.PROCEDURE` as named in XDR, such as `NFS_V3.NFSPROC3_READ`, for messages and traces.
    const NAME: &'static str;
    /// `true` if executing the procedure twice has the same effect as executing it once (`@idempotent`).
    const IDEMPOTENT: bool = false;
    /// The type of the arguments.
    type Args: XdrEncode + XdrDecode + Send + 'static;
    /// The type of the result.
    type Reply: XdrEncode + XdrDecode + Send + 'static;

    /// Returns the maximum size of the reply to these arguments (RFC 8166 §6.2).
    fn reply_bounds(args: &Self::Args) -> ReplyBounds;
}

/// The name and the properties of a procedure, for spans, metrics, middleware and duplicate request caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcedureInfo {
    /// `VERSION.PROCEDURE` as named in XDR, such as `NFS_V3.NFSPROC3_READ`.
    pub name: &'static str,
    /// `true` if executing the procedure twice has the same effect as executing it once (`@idempotent`).
    pub idempotent: bool,
    /// Bounds of the arguments.
    pub arguments: MessageBounds,
    /// Bounds of the result.
    pub results: MessageBounds,
}

/// Bounds of the arguments or of the result of a procedure, as the Upper-Layer Binding declares them (RFC 8166 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageBounds {
    /// Maximum length in the payload stream when every eligible item is reduced, in bytes. `None` if there is no bound.
    pub max_inline: Option<u64>,
    /// Maximum number of eligible items. `None` if there is no bound.
    pub max_eligible: Option<u32>,
}

impl MessageBounds {
    /// Returns the bounds of the type `T`.
    #[must_use]
    pub const fn of<T: XdrType>() -> Self {
        Self { max_inline: T::MAX_INLINE, max_eligible: T::MAX_DDP_ITEMS }
    }
}

impl ProcedureInfo {
    /// Returns the name and the properties of the procedure `P`.
    #[must_use]
    pub const fn of<P: Procedure>() -> Self {
        Self {
            name: P::NAME,
            idempotent: P::IDEMPOTENT,
            arguments: MessageBounds::of::<P::Args>(),
            results: MessageBounds::of::<P::Reply>(),
        }
    }
}

/// The numbers that identify a procedure: those of the program, its version and the procedure.
///
/// ```
/// # extern crate rpcrdma_xdr as rpcrdma;
/// use rpcrdma::service::ProcedureId;
///
/// mod counters {
///     rpcrdma::xdr! {
///         #![types_only]
///         program COUNTERS { version COUNTERS_V1 { unsigned hyper ADD(unsigned int) = 1; } = 1; } = 0x20000009;
///     }
/// }
/// assert_eq!(ProcedureId::of::<counters::counters_v1::Add>(), ProcedureId::new(0x2000_0009, 1, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ProcedureId {
    /// The program number.
    pub program: u32,
    /// The program version.
    pub version: u32,
    /// The procedure number.
    pub procedure: u32,
}

impl ProcedureId {
    /// Creates an ID from its numbers.
    #[must_use]
    pub const fn new(program: u32, version: u32, procedure: u32) -> Self {
        Self { program, version, procedure }
    }

    /// Returns the ID of the procedure `P`.
    #[must_use]
    pub const fn of<P: Procedure>() -> Self {
        Self::new(P::PROGRAM, P::VERSION, P::NUMBER)
    }
}

/// Returns the maximum number of eligible items in the arguments or in the result of `P`, whichever is larger. A type
/// without a bound counts as 0.
#[must_use]
pub fn max_chunks<P: Procedure>() -> u32 {
    [P::Args::MAX_DDP_ITEMS, P::Reply::MAX_DDP_ITEMS].into_iter().flatten().fold(0, u32::max)
}

/// Arguments that compute the bounds of their reply, for procedures whose binding declares `reply_max = computed`.
/// Implement this trait if no formula over named arguments suffices. An example is COMPOUND of NFS version 4, where
/// each operation adds to the reply.
///
/// ```
/// # extern crate rpcrdma_xdr as rpcrdma;
/// use rpcrdma::service::{BoundsReply, ReplyBounds};
///
/// mod store {
///     rpcrdma::xdr! {
///         #![types_only]
///         struct want { string name<255>; unsigned int count; };
///         struct want_many { want all<16>; };
///         struct piece { @ddp opaque data<>; };
///         struct pieces { piece all<16>; };
///         program STORE {
///             version STORE_V1 { @reply_max(computed) pieces GET_MANY(want_many) = 1; } = 1;
///         } = 0x20000010;
///     }
/// }
///
/// impl BoundsReply for store::WantMany {
///     fn reply_bounds(&self) -> ReplyBounds {
///         // The number of pieces, then for each its length and its data.
///         let lens: Vec<u64> = self.all.iter().map(|want| u64::from(want.count)).collect();
///         ReplyBounds::new(4 + 4 * lens.len() as u64, &lens)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not compute the bounds of their reply",
    label = "`BoundsReply` is not implemented",
    note = "the binding of a procedure with these arguments says `@reply_max(computed)`, or `#[reply_max(computed)]`",
    note = "implement it beside the module of the protocol: `impl rpcrdma::service::BoundsReply for {Self}`, with \
            `fn reply_bounds(&self) -> ReplyBounds`, which returns `ReplyBounds::new(BYTES_IN_THE_MESSAGE, &[BYTES_OF_EACH_ELIGIBLE_ITEM])`"
)]
pub trait BoundsReply {
    /// Returns the maximum size of the reply to these arguments (RFC 8166 §6.2).
    fn reply_bounds(&self) -> ReplyBounds;
}

/// The maximum size of a procedure's result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyBounds {
    /// Maximum length of the payload stream when every eligible item is reduced, in bytes. The RPC reply header is not
    /// included.
    pub inline: u64,
    /// Maximum length of each eligible item in bytes, without count and padding, in the order of the encoding. An item
    /// that this call cannot return may have length 0.
    ///
    /// An item that may be missing leaves its place to the items after it (RFC 8166 §4.3.2.2). Its length must then be
    /// the maximum of its own length and theirs.
    pub chunks: SmallVec<[u64; 2]>,
    /// Maximum length of all eligible items together in bytes, with padding. `None` if it is the sum of `chunks`.
    pub total: Option<u64>,
    /// `true` if the protocol allows longer results. The server then checks no result against these bounds. A caller
    /// whose memory does not suffice can call again with more (RFC 8267 §3.1).
    pub is_estimate: bool,
}

impl ReplyBounds {
    /// Creates the bounds of a result with at most `inline` bytes in the payload stream, and with eligible items of at
    /// most these lengths in bytes.
    #[must_use]
    pub fn new(inline: u64, chunks: &[u64]) -> Self {
        Self { inline, chunks: SmallVec::from_slice(chunks), total: None, is_estimate: false }
    }

    /// Appends eligible items of at most these lengths in bytes, `count` times.
    ///
    /// ```
    /// # extern crate rpcrdma_xdr as rpcrdma;
    /// use rpcrdma::service::ReplyBounds;
    ///
    /// let bounds = ReplyBounds::new(8, &[10]).and_chunks(2, &[20, 30]);
    /// assert_eq!(bounds.chunks.as_slice(), [10, 20, 30, 20, 30]);
    /// ```
    #[must_use]
    pub fn and_chunks(mut self, count: u64, chunks: &[u64]) -> Self {
        (0..count).for_each(|_| self.chunks.extend_from_slice(chunks));
        self
    }

    /// Sets the maximum length of all eligible items together, in bytes with padding.
    ///
    /// ```
    /// # extern crate rpcrdma_xdr as rpcrdma;
    /// use rpcrdma::service::ReplyBounds;
    ///
    /// // An item of 100 bytes that may be missing, and one of 1000, which takes its place.
    /// let bounds = ReplyBounds::new(8, &[1000, 1000]).within(100 + 1000);
    /// assert_eq!(bounds.whole(), 8 + 1100);
    /// ```
    #[must_use]
    pub fn within(mut self, total: u64) -> Self {
        self.total = Some(total);
        self
    }

    /// Returns these bounds as an estimate, because the protocol does not bound the results.
    #[must_use]
    pub fn estimated(mut self) -> Self {
        self.is_estimate = true;
        self
    }

    /// Returns the maximum length of the encoded result in bytes when no item is reduced.
    #[must_use]
    pub fn whole(&self) -> u64 {
        let padded = |len: &u64| len.checked_next_multiple_of(4).unwrap_or(u64::MAX);
        let items = self.chunks.iter().map(padded).fold(0, u64::saturating_add);
        self.inline.saturating_add(self.total.map_or(items, |total| total.min(items)))
    }
}

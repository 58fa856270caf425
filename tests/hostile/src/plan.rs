//! Plans of hostile peers, decoded from a fuzzer's bytes.

use arbitrary::{Arbitrary, Unstructured};

/// Maximum number of steps of a run.
pub(crate) const MAX_STEPS: usize = 48;

/// The plan of a hostile peer: the options of its connections, and its steps.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The options of the peer's connections.
    pub setup: Setup,
    /// The steps, of which at most 48 are carried out.
    pub steps: Vec<Step>,
}

/// Decodes the options, and then steps until the bytes are used up or `MAX_STEPS` is reached. A list of the crate
/// `arbitrary` would have two elements on average.
impl<'a> Arbitrary<'a> for Plan {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut plan = Self { setup: bytes.arbitrary()?, steps: Vec::new() };
        while !bytes.is_empty() && plan.steps.len() < MAX_STEPS {
            plan.steps.push(bytes.arbitrary()?);
        }
        Ok(plan)
    }
}

/// The options of the connections of a hostile peer: their set-up, and what the peer does on them besides its steps.
#[derive(Debug, Clone, Copy, Default, Arbitrary)]
pub struct Setup {
    /// Bit 0: version 2 over iWARP. Bit 1: the peer has no private data. Bit 2: it has arbitrary private data. Bit 3:
    /// it sends no properties in version 2. Bit 4: it receives nothing until a step says so. Bit 5: small buffers. Bit
    /// 6: CRCs. Bit 7: over the simulated provider, a hostile server refuses the first connection; over iWARP, `number`
    /// selects a variant of the set-up.
    pub flags: u8,
    /// A number that determines what the flags leave open, the inline size of the product, and the security of healthy
    /// clients.
    pub number: u8,
}

/// One step of a hostile peer.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    /// Calls a procedure, correctly or with mistakes.
    Call(Exchange),
    /// Answers a call, correctly or with mistakes.
    Answer(Exchange),
    /// Begins a call of the client under attack. Has no effect if a server is under attack.
    Begin(Exchange),
    /// Sends a message with an arbitrary header.
    Message(Message),
    /// Sends an earlier message again, with one byte changed.
    Again {
        /// Index of the message, counted back from the latest one.
        nth: u8,
        /// Offset of the byte.
        at: u16,
        /// Bits to invert.
        mask: u8,
    },
    /// Writes to memory of the product by RDMA.
    Write(Span),
    /// Reads memory of the product by RDMA.
    Read(Span),
    /// Sends a segment of iWARP, or a fragment of TCP.
    Segment(Segment),
    /// Sends arbitrary bytes, without a frame.
    Bytes(Vec<u8>),
    /// Sends properties of version 2.
    Properties(Vec<(u8, Field)>),
    /// Lets time pass. The number selects the duration.
    Wait(u8),
    /// Resumes receiving if `true`. Otherwise, stops receiving.
    Receive(bool),
    /// Resumes responding to RDMA Reads of iWARP if `true`. Otherwise, stops responding to them.
    Respond(bool),
    /// Closes the connection, in an orderly way if `true`.
    Close(bool),
    /// Opens or accepts a new connection. The current connection stays open if `true`.
    Connect(bool),
}

/// A call or a reply, possibly with mistakes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exchange {
    /// The procedure, or the number of the call to answer.
    pub number: u8,
    /// Length of the data, in bytes or in words.
    pub len: u16,
    /// Bits that select how the call or reply is sent, such as the data that goes into chunks.
    pub shape: u8,
    /// The credential of a call, or the status of a reply.
    pub identity: u8,
    /// A bit for each mistake.
    pub faults: u16,
    /// A number that determines what the faults leave open.
    pub amount: u8,
}

/// Decodes an exchange. Half of all exchanges have no mistake, and most others have one or two.
impl<'a> Arbitrary<'a> for Exchange {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let [number, shape, identity, first, second, amount] = bytes.arbitrary()?;
        let faults = match first {
            0..128 => 0,
            128..192 => 1 << (first % 16),
            192..248 => 1 << (first % 16) | 1 << (second % 16),
            _ => u16::from(first) << 8 | u16::from(second),
        };
        Ok(Self { number, len: bytes.arbitrary()?, shape, identity, faults, amount })
    }
}

/// A number in a message.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Field {
    /// A small number.
    Small(u8),
    /// A number that the product has sent, such as an XID, a handle or a length, plus an amount. The index counts from
    /// the latest number.
    Seen(u8, i8),
    /// Any number.
    Any(u32),
}

/// Memory that a message names.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Place {
    /// Memory of the hostile peer, of this length.
    Own(u16),
    /// Memory that the product has named, with another offset and length. The index counts from the latest memory.
    Seen(u8, i8, i8),
    /// Any handle, length and offset.
    Any(Field, Field, Field),
}

/// A message with an arbitrary header.
#[derive(Debug, Clone, Arbitrary)]
pub struct Message {
    /// The XID of the header.
    pub xid: Field,
    /// Bit 0: another version. Bit 1: Send with Invalidate. Bit 2: the last byte is missing. Bits 4 to 7: the header's
    /// type.
    pub form: u8,
    /// The credits in the header.
    pub credits: Field,
    /// The flags of version 2, the version if bit 0 of `form` is set, and the number of fragments over TCP.
    pub flags: u8,
    /// The handle to invalidate.
    pub invalidate: Field,
    /// Segments of the Read list.
    pub reads: Vec<(Field, Place)>,
    /// The Write list.
    pub writes: Vec<Vec<Place>>,
    /// The Reply chunk.
    pub reply: Option<Vec<Place>>,
    /// The message behind the header.
    pub body: Body,
}

/// The contents that follow the header of a [`Message`], or the payload of a [`Segment`].
#[derive(Debug, Clone, Arbitrary)]
pub enum Body {
    /// Nothing.
    Nothing,
    /// A call, with or without mistakes.
    Call(Exchange),
    /// A reply, with or without mistakes.
    Reply(Exchange),
    /// Any words.
    Words(Vec<Field>),
    /// Any bytes.
    Bytes(Vec<u8>),
}

/// Memory to write or read by RDMA.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Span {
    /// The handle and the offset of the memory.
    pub place: Place,
    /// Length in bytes.
    pub len: u16,
}

/// A segment of iWARP, or a fragment of TCP.
#[derive(Debug, Clone, Arbitrary)]
pub struct Segment {
    /// The control bytes of DDP and RDMAP. Over TCP, bit 0 of the first byte marks a fragment that is not the last one.
    pub control: (u8, u8),
    /// The STag of a tagged segment, or the Invalidate STag of an untagged segment.
    pub word: Field,
    /// The queue of an untagged segment, and an amount to add to the expected message number.
    pub number: (u8, i8),
    /// The tagged offset, or the offset in the message of an untagged segment.
    pub offset: Field,
    /// The payload.
    pub body: Body,
    /// A number that is added to the length of the frame or fragment.
    pub skew: i8,
}

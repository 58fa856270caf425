//! A fast handwritten codec for the three benchmark messages, in safe Rust. The benchmark compares `rpcrdma, borrowed`
//! with it. The codec checks every length, boolean and enumeration, and the padding. Decoded names, handles and data
//! are borrowed from the message. Errors do not name the field.

/// The reason for a decoding or encoding error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    Truncated,
    Boolean,
    Enumeration,
    Length,
    Padding,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) seconds: u32,
    pub(crate) nseconds: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Kind {
    Regular = 1,
    Directory = 2,
    Block = 3,
    Character = 4,
    Link = 5,
    Socket = 6,
    Fifo = 7,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) used: u64,
    pub(crate) device: [u32; 2],
    pub(crate) fsid: u64,
    pub(crate) fileid: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) fileid: u64,
    pub(crate) name: &'a [u8],
    pub(crate) cookie: u64,
    pub(crate) attributes: Option<Attributes>,
    pub(crate) handle: Option<&'a [u8]>,
}

/// An NFS 3 reply. The codec supports failures only without the attributes that may follow the status.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    Ok(T),
    Failed(u32),
}

#[derive(Debug)]
pub(crate) struct Readdirplus<'a> {
    pub(crate) attributes: Option<Attributes>,
    pub(crate) verifier: [u8; 8],
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) eof: bool,
}

#[derive(Debug)]
pub(crate) struct Read<'a> {
    pub(crate) attributes: Option<Attributes>,
    pub(crate) count: u32,
    pub(crate) eof: bool,
    pub(crate) data: &'a [u8],
}

/// Maximum length of a handle, in bytes (RFC 1813 §2.4).
const HANDLE: usize = 64;

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Bad> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Bad::Truncated)?;
        self.0 = rest;
        Ok(array)
    }

    #[inline]
    fn word(&mut self) -> Result<u32, Bad> {
        self.array().map(|word| u32::from_be_bytes(*word))
    }

    #[inline]
    fn boolean(&mut self) -> Result<bool, Bad> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Bad::Boolean),
        }
    }

    #[inline]
    fn opaque(&mut self, max: usize) -> Result<&'a [u8], Bad> {
        let len = self.word()? as usize;
        if len > max {
            return Err(Bad::Length);
        }
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Bad::Truncated)?;
        let (padding, rest) = rest.split_at_checked(len.wrapping_neg() & 3).ok_or(Bad::Truncated)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Bad::Padding);
        }
        self.0 = rest;
        Ok(bytes)
    }

    #[inline]
    fn attributes(&mut self) -> Result<Attributes, Bad> {
        let bytes = self.array::<84>()?;
        let kind = match word(bytes, 0) {
            1 => Kind::Regular,
            2 => Kind::Directory,
            3 => Kind::Block,
            4 => Kind::Character,
            5 => Kind::Link,
            6 => Kind::Socket,
            7 => Kind::Fifo,
            _ => return Err(Bad::Enumeration),
        };
        let time = |at| Time { seconds: word(bytes, at), nseconds: word(bytes, at + 4) };
        Ok(Attributes {
            kind,
            mode: word(bytes, 4),
            links: word(bytes, 8),
            uid: word(bytes, 12),
            gid: word(bytes, 16),
            size: hyper(bytes, 20),
            used: hyper(bytes, 28),
            device: [word(bytes, 36), word(bytes, 40)],
            fsid: hyper(bytes, 44),
            fileid: hyper(bytes, 52),
            atime: time(60),
            mtime: time(68),
            ctime: time(76),
        })
    }

    #[inline]
    fn maybe_attributes(&mut self) -> Result<Option<Attributes>, Bad> {
        Ok(if self.boolean()? { Some(self.attributes()?) } else { None })
    }

    fn end<T>(self, value: T) -> Result<T, Bad> {
        if self.0.is_empty() { Ok(value) } else { Err(Bad::Length) }
    }
}

#[inline]
fn word(bytes: &[u8; 84], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn hyper(bytes: &[u8; 84], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

pub(crate) fn decode_getattr(bytes: &[u8]) -> Result<Reply<Attributes>, Bad> {
    let mut cursor = Cursor(bytes);
    let reply = match cursor.word()? {
        0 => Reply::Ok(cursor.attributes()?),
        status => Reply::Failed(status),
    };
    cursor.end(reply)
}

pub(crate) fn decode_readdirplus(bytes: &[u8]) -> Result<Reply<Readdirplus<'_>>, Bad> {
    let mut cursor = Cursor(bytes);
    let reply = match cursor.word()? {
        0 => {
            let attributes = cursor.maybe_attributes()?;
            let verifier = *cursor.array()?;
            let mut entries = Vec::new();
            while cursor.boolean()? {
                let fileid = u64::from_be_bytes(*cursor.array()?);
                let name = cursor.opaque(usize::MAX)?;
                let cookie = u64::from_be_bytes(*cursor.array()?);
                let attributes = cursor.maybe_attributes()?;
                let handle = if cursor.boolean()? { Some(cursor.opaque(HANDLE)?) } else { None };
                entries.push(Entry { fileid, name, cookie, attributes, handle });
            }
            Reply::Ok(Readdirplus { attributes, verifier, entries, eof: cursor.boolean()? })
        }
        status => Reply::Failed(status),
    };
    cursor.end(reply)
}

pub(crate) fn decode_read(bytes: &[u8]) -> Result<Reply<Read<'_>>, Bad> {
    let mut cursor = Cursor(bytes);
    let reply = match cursor.word()? {
        0 => {
            let attributes = cursor.maybe_attributes()?;
            let (count, eof) = (cursor.word()?, cursor.boolean()?);
            Reply::Ok(Read { attributes, count, eof, data: cursor.opaque(usize::MAX)? })
        }
        status => Reply::Failed(status),
    };
    cursor.end(reply)
}

#[inline]
fn put_word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

#[inline]
fn put_hyper(out: &mut Vec<u8>, hyper: u64) {
    out.extend_from_slice(&hyper.to_be_bytes());
}

#[inline]
fn put_opaque(out: &mut Vec<u8>, bytes: &[u8], max: usize) -> Result<(), Bad> {
    let len = u32::try_from(bytes.len()).map_err(|_| Bad::Length)?;
    if bytes.len() > max {
        return Err(Bad::Length);
    }
    put_word(out, len);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..bytes.len().wrapping_neg() & 3]);
    Ok(())
}

#[inline]
fn attribute_bytes(value: &Attributes) -> [u8; 84] {
    let mut bytes = [0; 84];
    let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    for (at, word) in [value.kind as u32, value.mode, value.links, value.uid, value.gid].into_iter().enumerate() {
        put(4 * at, word);
    }
    let mut hyper = |at: usize, hyper: u64| {
        put(at, (hyper >> 32) as u32);
        put(at + 4, hyper as u32);
    };
    hyper(20, value.size);
    hyper(28, value.used);
    hyper(44, value.fsid);
    hyper(52, value.fileid);
    put(36, value.device[0]);
    put(40, value.device[1]);
    for (at, time) in [value.atime, value.mtime, value.ctime].into_iter().enumerate() {
        put(60 + 8 * at, time.seconds);
        put(64 + 8 * at, time.nseconds);
    }
    bytes
}

/// Encodes optional attributes. The discriminator and the attributes are appended in one piece.
#[inline]
fn put_maybe_attributes(out: &mut Vec<u8>, value: Option<&Attributes>) {
    match value {
        Some(value) => {
            let mut bytes = [0; 88];
            bytes[3] = 1;
            bytes[4..].copy_from_slice(&attribute_bytes(value));
            out.extend_from_slice(&bytes);
        }
        None => put_word(out, 0),
    }
}

pub(crate) fn encode_getattr(out: &mut Vec<u8>, reply: &Reply<Attributes>) {
    match reply {
        Reply::Ok(attributes) => {
            put_word(out, 0);
            out.extend_from_slice(&attribute_bytes(attributes));
        }
        Reply::Failed(status) => put_word(out, *status),
    }
}

pub(crate) fn encode_readdirplus(out: &mut Vec<u8>, reply: &Reply<Readdirplus<'_>>) -> Result<(), Bad> {
    let page = match reply {
        Reply::Ok(page) => page,
        Reply::Failed(status) => {
            put_word(out, *status);
            return Ok(());
        }
    };
    put_word(out, 0);
    put_maybe_attributes(out, page.attributes.as_ref());
    out.extend_from_slice(&page.verifier);
    for entry in &page.entries {
        put_word(out, 1);
        put_hyper(out, entry.fileid);
        put_opaque(out, entry.name, usize::MAX)?;
        put_hyper(out, entry.cookie);
        put_maybe_attributes(out, entry.attributes.as_ref());
        put_word(out, u32::from(entry.handle.is_some()));
        if let Some(handle) = entry.handle {
            put_opaque(out, handle, HANDLE)?;
        }
    }
    put_word(out, 0);
    put_word(out, u32::from(page.eof));
    Ok(())
}

pub(crate) fn encode_read(out: &mut Vec<u8>, reply: &Reply<Read<'_>>) -> Result<(), Bad> {
    let read = match reply {
        Reply::Ok(read) => read,
        Reply::Failed(status) => {
            put_word(out, *status);
            return Ok(());
        }
    };
    put_word(out, 0);
    put_maybe_attributes(out, read.attributes.as_ref());
    put_word(out, read.count);
    put_word(out, u32::from(read.eof));
    put_opaque(out, read.data, usize::MAX)
}

//! Handwritten decoders of two replies of NFS 3, for comparison with the generated decoders. They check every length,
//! boolean and enumeration, except the status of a failure. File handles are borrowed from the message. Errors do not
//! name the field.

/// The reason for a decoding error.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Malformed {
    Truncated,
    Boolean,
    Enumeration,
    Length,
}

#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "decoded, not read")]
pub(crate) struct Attributes {
    kind: u32,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    used: u64,
    device: [u32; 2],
    fsid: u64,
    fileid: u64,
    atime: [u32; 2],
    mtime: [u32; 2],
    ctime: [u32; 2],
}

#[derive(Debug)]
#[allow(dead_code, reason = "decoded, not read")]
pub(crate) struct Lookup<'a> {
    object: &'a [u8],
    object_attributes: Option<Attributes>,
    directory_attributes: Option<Attributes>,
}

/// A reply of NFS 3. A failure has only a status here.
#[derive(Debug)]
#[allow(dead_code, reason = "decoded, not read")]
pub(crate) enum Reply<T> {
    Ok(T),
    Failed(u32),
}

/// Maximum length of a file handle, in bytes (RFC 1813 §2.4).
const MAX_HANDLE: usize = 64;

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(array)
    }

    #[inline]
    fn word(&mut self) -> Result<u32, Malformed> {
        self.array().map(|word| u32::from_be_bytes(*word))
    }

    #[inline]
    fn handle(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.word()? as usize;
        if len > MAX_HANDLE {
            return Err(Malformed::Length);
        }
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.0 = rest.get(len.wrapping_neg() & 3..).ok_or(Malformed::Truncated)?;
        Ok(bytes)
    }

    #[inline]
    fn attributes(&mut self) -> Result<Attributes, Malformed> {
        let bytes = self.array::<84>()?;
        let kind = word(bytes, 0);
        if !(1..=7).contains(&kind) {
            return Err(Malformed::Enumeration);
        }
        let pair = |at| [word(bytes, at), word(bytes, at + 4)];
        Ok(Attributes {
            kind,
            mode: word(bytes, 4),
            links: word(bytes, 8),
            uid: word(bytes, 12),
            gid: word(bytes, 16),
            size: hyper(bytes, 20),
            used: hyper(bytes, 28),
            device: pair(36),
            fsid: hyper(bytes, 44),
            fileid: hyper(bytes, 52),
            atime: pair(60),
            mtime: pair(68),
            ctime: pair(76),
        })
    }

    #[inline]
    fn maybe_attributes(&mut self) -> Result<Option<Attributes>, Malformed> {
        match self.word()? {
            0 => Ok(None),
            1 => self.attributes().map(Some),
            _ => Err(Malformed::Boolean),
        }
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

#[inline]
pub(crate) fn getattr(bytes: &[u8]) -> Result<Reply<Attributes>, Malformed> {
    let mut cursor = Cursor(bytes);
    Ok(match cursor.word()? {
        0 => Reply::Ok(cursor.attributes()?),
        status => Reply::Failed(status),
    })
}

#[inline]
pub(crate) fn lookup(bytes: &[u8]) -> Result<Reply<Lookup<'_>>, Malformed> {
    let mut cursor = Cursor(bytes);
    Ok(match cursor.word()? {
        0 => Reply::Ok(Lookup {
            object: cursor.handle()?,
            object_attributes: cursor.maybe_attributes()?,
            directory_attributes: cursor.maybe_attributes()?,
        }),
        status => Reply::Failed(status),
    })
}

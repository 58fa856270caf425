//! The message types for crates without an XDR compiler, defined once for all of them.
/// Calls `$codec!` for each struct. A struct is encoded as its fields, in the order of their declaration.
macro_rules! messages {
    ($codec:ident) => {
        $codec! { struct Device { major: u32, minor: u32, } }
        $codec! { struct Time { seconds: u32, nseconds: u32, } }
        $codec! { struct Attributes {
            kind: Kind, mode: u32, links: u32, uid: u32, gid: u32, size: u64, used: u64, device: Device, fsid: u64,
            fileid: u64, atime: Time, mtime: Time, ctime: Time,
        } }
        $codec! { struct Getattr { attributes: Attributes, } }
        $codec! { struct Entry {
            fileid: u64, name: Name, cookie: u64, attributes: Maybe<Attributes>, handle: Maybe<Handle>,
        } }
        $codec! { struct Readdirplus { attributes: Maybe<Attributes>, verifier: Verifier, entries: Entries, eof: bool, } }
        $codec! { struct Read { attributes: Maybe<Attributes>, count: u32, eof: bool, data: Data, } }
    };
}
pub(crate) use messages;

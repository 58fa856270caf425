//! NFS version 3 values that both the client and the server create.

use rpcrdma_specs::nfs3::{Nfstime3, Sattr3, SetAtime, SetGid3, SetMode3, SetMtime, SetSize3, SetUid3, TimeHow};

/// Returns an attribute set that changes nothing (`sattr3`, RFC 1813 §2.6).
#[must_use]
pub fn no_changes() -> Sattr3 {
    Sattr3 {
        mode: SetMode3::False,
        uid: SetUid3::False,
        gid: SetGid3::False,
        size: SetSize3::False,
        atime: SetAtime::Default(TimeHow::DontChange),
        mtime: SetMtime::Default(TimeHow::DontChange),
    }
}

/// Converts a time since 1970 to `nfstime3`, whose seconds are an unsigned 32-bit number (RFC 1813 §2.6).
///
/// Times before 1970 or after 2106 become the nearest representable time.
#[must_use]
pub fn time(seconds: i64, nanoseconds: u32) -> Nfstime3 {
    match u32::try_from(seconds) {
        Ok(seconds) => Nfstime3 { seconds, nseconds: nanoseconds },
        Err(_) if seconds < 0 => Nfstime3 { seconds: 0, nseconds: 0 },
        Err(_) => Nfstime3 { seconds: u32::MAX, nseconds: 999_999_999 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_in_their_range() {
        let of = |seconds| {
            let time = time(seconds, 5);
            (time.seconds, time.nseconds)
        };
        assert_eq!((of(-1), of(i64::MIN)), ((0, 0), (0, 0)));
        assert_eq!((of(0), of(1_700_000_000)), ((0, 5), (1_700_000_000, 5)));
        assert_eq!(of(u32::MAX.into()), (u32::MAX, 5));
        assert_eq!(of(1 << 32), (u32::MAX, 999_999_999));
    }
}

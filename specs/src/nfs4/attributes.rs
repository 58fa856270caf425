//! Maximum sizes of file attributes, by attribute number, where their types have a maximum (RFC 8267 §6.2).

use rpcrdma::xdr::XdrType;

use super::*;

/// Returns the maximum size, in bytes, of the `fattr4` with the attributes in `request`. The size includes the mask and
/// the values.
///
/// Returns `None` if one of the attributes is unknown, has no maximum size, or has a maximum above
/// [`UNKNOWN_RESULT_LEN`]. Examples of such attributes are ACLs, owner names, locations, and data that is opaque to the
/// protocol.
pub(super) fn most(request: &Bitmap4) -> Option<u64> {
    let mut bytes = 4 + 4 * request.0.len() as u64 + 4;
    for (word, bits) in (0_u32..).zip(&request.0) {
        for bit in (0..32).filter(|bit| bits >> bit & 1 == 1) {
            bytes = bytes.checked_add(value(word.checked_mul(32)? + bit)?)?;
        }
    }
    Some(bytes)
}

/// Defines `value`, which returns the maximum size of an attribute's value in bytes. `value` returns `None` if the
/// attribute is unknown, or if the size is unbounded or above [`UNKNOWN_RESULT_LEN`].
macro_rules! values {
    ($($number:ident: $ty:ident,)*) => {
        fn value(number: u32) -> Option<u64> {
            match number {
                $($number => <$ty as XdrType>::MAX_LEN,)*
                _ => None,
            }
            // The protocol does not limit the words of a mask; their type gives 2^32 of them.
            .filter(|most| *most <= UNKNOWN_RESULT_LEN)
        }
    };
}

values! {
    FATTR4_SUPPORTED_ATTRS: Fattr4SupportedAttrs,
    FATTR4_TYPE: Fattr4Type,
    FATTR4_FH_EXPIRE_TYPE: Fattr4FhExpireType,
    FATTR4_CHANGE: Fattr4Change,
    FATTR4_SIZE: Fattr4Size,
    FATTR4_LINK_SUPPORT: Fattr4LinkSupport,
    FATTR4_SYMLINK_SUPPORT: Fattr4SymlinkSupport,
    FATTR4_NAMED_ATTR: Fattr4NamedAttr,
    FATTR4_FSID: Fattr4Fsid,
    FATTR4_UNIQUE_HANDLES: Fattr4UniqueHandles,
    FATTR4_LEASE_TIME: Fattr4LeaseTime,
    FATTR4_RDATTR_ERROR: Fattr4RdattrError,
    FATTR4_ACL: Fattr4Acl,
    FATTR4_ACLSUPPORT: Fattr4Aclsupport,
    FATTR4_ARCHIVE: Fattr4Archive,
    FATTR4_CANSETTIME: Fattr4Cansettime,
    FATTR4_CASE_INSENSITIVE: Fattr4CaseInsensitive,
    FATTR4_CASE_PRESERVING: Fattr4CasePreserving,
    FATTR4_CHOWN_RESTRICTED: Fattr4ChownRestricted,
    FATTR4_FILEHANDLE: Fattr4Filehandle,
    FATTR4_FILEID: Fattr4Fileid,
    FATTR4_FILES_AVAIL: Fattr4FilesAvail,
    FATTR4_FILES_FREE: Fattr4FilesFree,
    FATTR4_FILES_TOTAL: Fattr4FilesTotal,
    FATTR4_FS_LOCATIONS: Fattr4FsLocations,
    FATTR4_HIDDEN: Fattr4Hidden,
    FATTR4_HOMOGENEOUS: Fattr4Homogeneous,
    FATTR4_MAXFILESIZE: Fattr4Maxfilesize,
    FATTR4_MAXLINK: Fattr4Maxlink,
    FATTR4_MAXNAME: Fattr4Maxname,
    FATTR4_MAXREAD: Fattr4Maxread,
    FATTR4_MAXWRITE: Fattr4Maxwrite,
    FATTR4_MIMETYPE: Fattr4Mimetype,
    FATTR4_MODE: Fattr4Mode,
    FATTR4_NO_TRUNC: Fattr4NoTrunc,
    FATTR4_NUMLINKS: Fattr4Numlinks,
    FATTR4_OWNER: Fattr4Owner,
    FATTR4_OWNER_GROUP: Fattr4OwnerGroup,
    FATTR4_QUOTA_AVAIL_HARD: Fattr4QuotaAvailHard,
    FATTR4_QUOTA_AVAIL_SOFT: Fattr4QuotaAvailSoft,
    FATTR4_QUOTA_USED: Fattr4QuotaUsed,
    FATTR4_RAWDEV: Fattr4Rawdev,
    FATTR4_SPACE_AVAIL: Fattr4SpaceAvail,
    FATTR4_SPACE_FREE: Fattr4SpaceFree,
    FATTR4_SPACE_TOTAL: Fattr4SpaceTotal,
    FATTR4_SPACE_USED: Fattr4SpaceUsed,
    FATTR4_SYSTEM: Fattr4System,
    FATTR4_TIME_ACCESS: Fattr4TimeAccess,
    FATTR4_TIME_ACCESS_SET: Fattr4TimeAccessSet,
    FATTR4_TIME_BACKUP: Fattr4TimeBackup,
    FATTR4_TIME_CREATE: Fattr4TimeCreate,
    FATTR4_TIME_DELTA: Fattr4TimeDelta,
    FATTR4_TIME_METADATA: Fattr4TimeMetadata,
    FATTR4_TIME_MODIFY: Fattr4TimeModify,
    FATTR4_TIME_MODIFY_SET: Fattr4TimeModifySet,
    FATTR4_MOUNTED_ON_FILEID: Fattr4MountedOnFileid,
    FATTR4_DIR_NOTIF_DELAY: Fattr4DirNotifDelay,
    FATTR4_DIRENT_NOTIF_DELAY: Fattr4DirentNotifDelay,
    FATTR4_DACL: Fattr4Dacl,
    FATTR4_SACL: Fattr4Sacl,
    FATTR4_CHANGE_POLICY: Fattr4ChangePolicy,
    FATTR4_FS_STATUS: Fattr4FsStatus,
    FATTR4_FS_LAYOUT_TYPES: Fattr4FsLayoutTypes,
    FATTR4_LAYOUT_HINT: Fattr4LayoutHint,
    FATTR4_LAYOUT_TYPES: Fattr4LayoutTypes,
    FATTR4_LAYOUT_BLKSIZE: Fattr4LayoutBlksize,
    FATTR4_LAYOUT_ALIGNMENT: Fattr4LayoutAlignment,
    FATTR4_FS_LOCATIONS_INFO: Fattr4FsLocationsInfo,
    FATTR4_MDSTHRESHOLD: Fattr4Mdsthreshold,
    FATTR4_RETENTION_GET: Fattr4RetentionGet,
    FATTR4_RETENTION_SET: Fattr4RetentionSet,
    FATTR4_RETENTEVT_GET: Fattr4RetentevtGet,
    FATTR4_RETENTEVT_SET: Fattr4RetentevtSet,
    FATTR4_RETENTION_HOLD: Fattr4RetentionHold,
    FATTR4_MODE_SET_MASKED: Fattr4ModeSetMasked,
    FATTR4_SUPPATTR_EXCLCREAT: Fattr4SuppattrExclcreat,
    FATTR4_FS_CHARSET_CAP: Fattr4FsCharsetCap,
    FATTR4_CLONE_BLKSIZE: Fattr4CloneBlksize,
    FATTR4_SPACE_FREED: Fattr4SpaceFreed,
    FATTR4_CHANGE_ATTR_TYPE: Fattr4ChangeAttrType,
    FATTR4_SEC_LABEL: Fattr4SecLabel,
}

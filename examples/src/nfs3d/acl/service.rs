//! The NFSACL version 3 service.

use rpcrdma::server::{Context, HandlerError};
use rpcrdma_specs::nfsacl3::{Getacl3args, Getacl3res, Setacl3args, Setacl3res, nfs_acl_v3::NfsAclV3};

use crate::nfs3d::{counters::Procedure, prompt::CallWork, service::NfsService};

/// The NFSACL service for the export of an [`NfsService`]. Add both to the same server, because clients call NFSACL on
/// the connection of NFS (RFC 8267 §5.2).
#[derive(Debug, Clone)]
pub struct AclService(NfsService);

impl AclService {
    /// Creates a service for the export of `nfs`. Its calls are counted with those of `nfs`.
    #[must_use]
    pub fn new(nfs: NfsService) -> Self {
        Self(nfs)
    }
}

impl NfsAclV3 for AclService {
    async fn aclproc3_getacl(&self, cx: &Context, args: Getacl3args) -> Result<Getacl3res, HandlerError> {
        self.0.run(cx, Procedure::Getacl, CallWork::Change, move |export, _| export.getacl(&args)).await
    }

    async fn aclproc3_setacl(&self, cx: &Context, args: Setacl3args) -> Result<Setacl3res, HandlerError> {
        self.0.run(cx, Procedure::Setacl, CallWork::Change, move |export, who| export.setacl(who, &args)).await
    }
}

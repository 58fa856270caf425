//! The registration of servers with rpcbind and etcd.

#[cfg(feature = "discover-etcd")]
use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use rpcrdma::server::ServerHandle;
#[cfg(feature = "discover-etcd")]
use rpcrdma_discover::EtcdService;
use rpcrdma_specs::rpcbind::Registration;
use tokio::task::JoinSet;

/// Options for the registration of a server.
#[derive(Debug, Clone, Default, Args)]
pub struct RegisterArgs {
    /// Register with rpcbind on this host while the server runs, also after rpcbind has restarted
    #[arg(long)]
    pub rpcbind: bool,
    /// Register in etcd at this URL while the server runs, also after etcd has restarted. May be repeated
    #[cfg(feature = "discover-etcd")]
    #[arg(long, value_name = "URL", requires = "etcd_key")]
    pub etcd: Vec<String>,
    /// Key of the server in etcd, e.g. /services/blobs/one. Its value is the first URL of the server
    #[cfg(feature = "discover-etcd")]
    #[arg(long, value_name = "KEY", requires = "etcd")]
    pub etcd_key: Option<String>,
    /// Name of a user of etcd
    #[cfg(feature = "discover-etcd")]
    #[arg(long, value_name = "NAME", requires_all = ["etcd", "etcd_password_file"])]
    pub etcd_user: Option<String>,
    /// File with the password of the user of etcd. Line breaks at its end do not count
    #[cfg(feature = "discover-etcd")]
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
    /// CA certificates for etcd, in PEM. Needed for https URLs
    #[cfg(feature = "discover-etcd")]
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// Certificates with which the server proves its identity to etcd, in PEM
    #[cfg(feature = "discover-etcd")]
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_certificate_key"])]
    pub etcd_certificate: Option<PathBuf>,
    /// Key of the certificate in --etcd-certificate, in PEM
    #[cfg(feature = "discover-etcd")]
    #[arg(long, value_name = "FILE", requires = "etcd_certificate")]
    pub etcd_certificate_key: Option<PathBuf>,
}

/// Maximum time for which the registration of a crashed server stays in etcd.
#[cfg(feature = "discover-etcd")]
const LEASE: Duration = Duration::from_secs(5);

/// The registrations of a server, which are removed when its shutdown begins.
#[derive(Debug)]
pub struct Registered(JoinSet<()>);

impl Registered {
    /// Waits until the registrations are removed.
    pub async fn removed(self) {
        self.0.join_all().await;
    }
}

impl RegisterArgs {
    /// Registers the server of `handle` until its shutdown begins: with rpcbind, all `programs` at the first of `urls`
    /// for each transport and IP version, and in etcd, the first of `urls`. Each program is a pair of a program number
    /// and a version. While a registry is down, the server is not registered there, and a warning is logged. Registries
    /// that the options do not select are left out.
    ///
    /// # Errors
    /// Fails if a registry refuses the registration, or if the settings are wrong.
    pub async fn register(
        &self,
        programs: &[(u32, u32)],
        urls: &[String],
        handle: &ServerHandle,
    ) -> anyhow::Result<Registered> {
        #[cfg_attr(not(feature = "discover-etcd"), expect(unused_mut))]
        let mut registered = self.register_with_rpcbind(programs, urls, handle).await?;
        #[cfg(feature = "discover-etcd")]
        if let (Some(key), Some(url)) = (&self.etcd_key, urls.first()) {
            let service = self.etcd_service(key)?;
            let registration = service.register("", url, LEASE).await.context("--etcd")?;
            let handle = handle.clone();
            registered.0.spawn(async move {
                handle.unready().await;
                registration.unregister().await;
            });
        }
        Ok(registered)
    }

    #[cfg(feature = "discover-etcd")]
    fn etcd_service(&self, key: &str) -> anyhow::Result<EtcdService> {
        let mut service = EtcdService::new(self.etcd.iter().cloned(), key);
        if let (Some(user), Some(path)) = (&self.etcd_user, &self.etcd_password_file) {
            let password = std::fs::read_to_string(path);
            let password = password.with_context(|| format!("--etcd-password-file: cannot read {}", path.display()))?;
            service = service.user(user, password.trim_end_matches(['\r', '\n']));
        }
        if let Some(ca) = &self.etcd_ca {
            service = service.ca(ca);
        }
        if let (Some(certificate), Some(key)) = (&self.etcd_certificate, &self.etcd_certificate_key) {
            service = service.certificate(certificate, key);
        }
        Ok(service)
    }

    /// Registers like [`register`](Self::register), but only with rpcbind. Use it for the other servers of a process,
    /// because the key in etcd has only one value.
    ///
    /// # Errors
    /// Fails if rpcbind refuses the registration.
    pub async fn register_with_rpcbind(
        &self,
        programs: &[(u32, u32)],
        urls: &[String],
        handle: &ServerHandle,
    ) -> anyhow::Result<Registered> {
        let mut registered = JoinSet::new();
        if self.rpcbind {
            let registration = Registration::keep(programs, urls).await.context("--rpcbind")?;
            let handle = handle.clone();
            registered.spawn(async move {
                handle.unready().await;
                registration.unregister().await;
            });
        }
        Ok(Registered(registered))
    }
}

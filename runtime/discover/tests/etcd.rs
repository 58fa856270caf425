//! Tests with a real etcd, with TLS and users. If etcd is not installed, the tests that need it are skipped, or fail if
//! `RPCRDMA_REQUIRE_TOOLS` is set.
#![allow(clippy::unwrap_used, missing_docs)]

mod failing_calls;

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_client::{Certificate, Client, ConnectOptions, PermissionType, TlsOptions};
use failing_calls::fails_with;
use futures_util::StreamExt as _;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rpcrdma_discover::{EtcdError, EtcdService};
use rpcrdma_proto::ErrorChain;

const PREFIX: &str = "/test/blobs/";

struct Etcd {
    url: String,
    process: Child,
    folder: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the path of `program`, or `None` if it is not installed.
///
/// # Panics
/// Panics if it is not installed and `RPCRDMA_REQUIRE_TOOLS` is set.
fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.exists());
    if found.is_none() {
        assert!(env::var_os("RPCRDMA_REQUIRE_TOOLS").is_none(), "{program} is not installed");
        eprintln!("NOT RUN: {program} is not installed");
    }
    found
}

/// Writes to `folder` the certificate of a new CA, and the certificates that it issues for `server` and `client`, with
/// their keys.
fn certificates(folder: &Path) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new([]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fs::write(folder.join("ca.pem"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    for (name, host) in [("server", "127.0.0.1"), ("client", "client.example")] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        fs::write(folder.join(format!("{name}.pem")), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

impl Etcd {
    /// Starts etcd with TLS on free ports. Clients need a certificate if `asks_for_certificates` is `true`. Returns
    /// `None` if etcd is not installed.
    async fn start(asks_for_certificates: bool) -> Option<Self> {
        let program = installed("etcd")?;
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let [client, peer] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = [client, peer].map(|socket| socket.local_addr().unwrap());
        let (url, peers) = (format!("https://{client}"), format!("http://{peer}"));
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(folder.path().join("data"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peers]);
        command.args(["--initial-advertise-peer-urls", &peers, "--initial-cluster", &format!("default={peers}")]);
        command.arg("--cert-file").arg(folder.path().join("server.pem"));
        command.arg("--key-file").arg(folder.path().join("server.key"));
        if asks_for_certificates {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(folder.path().join("ca.pem"));
        }
        // etcd runs on some processors only if it is told to.
        command.env("ETCD_UNSUPPORTED_ARCH", env::consts::ARCH.replace("aarch64", "arm64"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let etcd = Self { url, process, folder };
        let deadline = Instant::now() + Duration::from_secs(60);
        while etcd.service().certificate(etcd.file("client.pem"), etcd.file("client.key")).servers().await.is_err() {
            assert!(Instant::now() < deadline, "etcd does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(etcd)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn service(&self) -> EtcdService {
        EtcdService::new([&self.url], PREFIX).ca(self.file("ca.pem"))
    }

    /// Creates the user `blobs`, who may read and write the keys with the prefix, and turns authentication on.
    async fn add_user(&self, password: &str) {
        let ca = Certificate::from_pem(fs::read(self.file("ca.pem")).unwrap());
        let options = ConnectOptions::new().with_tls(TlsOptions::new().ca_certificate(ca));
        let mut client = Client::connect([&self.url], Some(options)).await.unwrap();
        client.user_add("root", "of etcd", None).await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.role_add("blobs").await.unwrap();
        let keys = etcd_client::Permission::new(PermissionType::Readwrite, PREFIX).with_prefix();
        client.role_grant_permission("blobs", keys).await.unwrap();
        client.user_add("blobs", password, None).await.unwrap();
        client.user_grant_role("blobs", "blobs").await.unwrap();
        client.auth_enable().await.unwrap();
    }
}

/// After etcd has stopped, the error of a call says that service discovery has failed.
#[tokio::test]
async fn errors_of_calls_have_the_error_of_etcd() {
    let Some(mut etcd) = Etcd::start(false).await else { return };
    let servers = etcd.service().servers().await.unwrap();
    etcd.process.kill().unwrap();
    fails_with(servers, "service discovery listed no server before it failed").await;
}

async fn refused(service: EtcdService) -> String {
    let of_list = ErrorChain(&service.clone().servers().await.unwrap_err()).to_string();
    let of_registration =
        ErrorChain(&service.register("one", "tcp://[::1]:1", Duration::from_secs(5)).await.unwrap_err()).to_string();
    assert_eq!(of_list.split(':').next(), of_registration.split(':').next());
    of_list
}

/// Checks that a registered server appears in the list.
async fn works(service: EtcdService) {
    let registration = service.register("one", "tcp://[::1]:1", Duration::from_secs(5)).await.unwrap();
    let mut servers = service.clone().servers().await.unwrap();
    assert_eq!(Vec::from_iter(servers.next().await.unwrap()), ["tcp://[::1]:1"]);
    registration.unregister().await;
}

#[tokio::test]
async fn users_have_passwords() {
    let Some(etcd) = Etcd::start(false).await else { return };
    works(etcd.service()).await;
    etcd.add_user("secret").await;
    works(etcd.service().user("blobs", "secret")).await;
    let error = refused(etcd.service().user("blobs", "wrong")).await;
    assert!(error.contains("authentication failed"), "{error}");
    let error = refused(etcd.service()).await;
    assert!(error.contains("user name is empty"), "{error}");
    let other = EtcdService::new([&etcd.url], "/other/").ca(etcd.file("ca.pem"));
    let error = refused(other.user("blobs", "secret")).await;
    assert!(error.contains("permission denied"), "{error}");
    let shown = format!("{:?}", etcd.service().user("blobs", "secret"));
    assert!(shown.contains("blobs") && !shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn clients_have_certificates() {
    let Some(etcd) = Etcd::start(true).await else { return };
    let certified = |service: EtcdService| service.certificate(etcd.file("client.pem"), etcd.file("client.key"));
    works(certified(etcd.service())).await;
    refused(etcd.service()).await;
    // Another CA with the same names.
    let other = tempfile::tempdir().unwrap();
    certificates(other.path());
    refused(certified(EtcdService::new([&etcd.url], PREFIX).ca(other.path().join("ca.pem")))).await;
    refused(etcd.service().certificate(other.path().join("client.pem"), other.path().join("client.key"))).await;
}

/// TLS settings that are missing or contradict each other are errors, and so is a file that does not exist. The errors
/// need no server.
#[tokio::test]
async fn tls_needs_settings() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let ca = folder.path().join("ca.pem");
    let certificate = ("client.pem", "client.key");
    for service in [
        EtcdService::new(["https://127.0.0.1:1"], PREFIX),
        EtcdService::new(["http://127.0.0.1:1"], PREFIX).ca(&ca),
        EtcdService::new(["https://127.0.0.1:1", "http://127.0.0.1:1"], PREFIX).ca(&ca),
        EtcdService::new(["http://127.0.0.1:1"], PREFIX).certificate(certificate.0, certificate.1),
    ] {
        let error = service.servers().await.unwrap_err();
        assert!(matches!(error, EtcdError::Tls { .. }), "{error:?}");
    }
    let missing = EtcdService::new(["https://127.0.0.1:1"], PREFIX).ca(folder.path().join("missing.pem"));
    let error = missing.servers().await.unwrap_err();
    assert!(matches!(&error, EtcdError::File { path, .. } if path.ends_with("missing.pem")), "{error:?}");
}

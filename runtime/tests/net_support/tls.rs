//! Certificates for tests, in a temporary directory.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rpcrdma::{
    CallError,
    rpc::{AuthStat, RpcError},
    tls::{TlsClientBuilder, TlsClientConfig, TlsServerBuilder, TlsServerConfig},
};

/// A certification authority with a directory for its files, which is removed on drop.
pub struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The paths of a certificate and its key.
#[derive(Debug, Clone)]
pub struct Issued {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("rpcrdma-tls-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("test authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    pub fn issuer(&self) -> &CertifiedIssuer<'static, KeyPair> {
        &self.issuer
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Issues a certificate with these names. Writes the certificate to `<file>.pem`, and its private key to
    /// `<file>.key`.
    pub fn issue(&self, file: &str, names: &[&str]) -> Issued {
        self.issue_with(file, names, |_| ())
    }

    pub fn issue_expired(&self, file: &str, names: &[&str]) -> Issued {
        self.issue_with(file, names, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    pub fn issue_with(&self, file: &str, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, file);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let issued = Issued { certificate: self.path(&format!("{file}.pem")), key: self.path(&format!("{file}.key")) };
        fs::write(&issued.certificate, certificate.pem()).unwrap();
        fs::write(&issued.key, key.serialize_pem()).unwrap();
        issued
    }

    /// Returns the builder of a server configuration with a certificate for `localhost` and 127.0.0.1.
    pub fn server(&self) -> TlsServerBuilder {
        let Issued { certificate, key } = self.issue("server", &["localhost", "127.0.0.1"]);
        TlsServerConfig::builder().certificate(certificate, key)
    }

    /// Returns the builder of a client configuration that trusts this authority.
    pub fn client(&self) -> TlsClientBuilder {
        TlsClientConfig::builder().ca(self.ca())
    }

    /// Returns the builder of a client configuration that trusts this authority and presents the certificate `issued`.
    pub fn client_with(&self, issued: &Issued) -> TlsClientBuilder {
        self.client().certificate(&issued.certificate, &issued.key)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.dir));
    }
}

#[track_caller]
pub fn assert_denied(error: &CallError, reason: AuthStat) {
    let CallError::Rpc { source: RpcError::Authentication(failure), .. } = error else { panic!("{error:?}") };
    assert_eq!(failure.stat(), Some(reason), "{error}");
}

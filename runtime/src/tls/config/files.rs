//! Certificates and keys in PEM files.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};

use super::TlsConfigError;

/// The paths of a certificate chain and its key.
#[derive(Debug, Clone)]
pub(super) struct CertificateFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl CertificateFiles {
    /// Reads the certificate chain and the key.
    pub(super) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsConfigError> {
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| read_error(&self.key, error))?;
        Ok((certificates(&self.certificate)?, key))
    }

    /// Returns the error for certificates or a key that the TLS library rejects.
    pub(super) fn rejected(&self, error: rustls::Error) -> TlsConfigError {
        rejected(&self.certificate, error)
    }
}

/// Reads the trust anchors: the certificates of authorities, with which certification paths begin (RFC 9289 §5.2.1).
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| rejected(path, error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = certificates.map_err(|error| read_error(path, error))?;
    if certificates.is_empty() {
        return Err(TlsConfigError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

fn read_error(path: &Path, error: pem::Error) -> TlsConfigError {
    let source = match error {
        pem::Error::Io(error) => error,
        // The errors of the PEM format contain parts of the file, which may be those of a key.
        pem::Error::NoItemsFound => io::Error::new(io::ErrorKind::InvalidData, "no certificate or key found"),
        _ => io::Error::new(io::ErrorKind::InvalidData, "not in PEM format"),
    };
    TlsConfigError::Read { path: path.to_owned(), source: source.into() }
}

pub(super) fn rejected(path: &Path, error: rustls::Error) -> TlsConfigError {
    TlsConfigError::Rejected { path: path.to_owned(), source: io::Error::other(error).into() }
}

//! Self-signed certificate for a gateway whose configuration names no certificate. The gateway
//! creates it once, and stores it next to the identity key.
//!
//! A client asks its user only once whether to trust the certificate. The certificate therefore
//! stays the same as long as its file exists.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256,
    date_time_ymd,
};
use tracing::info;

use super::certificate::{CertError, CertSource};

/// Creates the missing files of `source`. If the key is missing, replaces the certificate, too.
///
/// # Errors
/// [`CertError`] if a file cannot be written, or the existing key is unusable.
pub(super) fn ensure(source: &CertSource) -> Result<(), CertError> {
    let (cert_file, key_file) = (&source.cert_file, &source.key_file);
    let key_is_there = exists(key_file)?;
    if key_is_there && exists(cert_file)? {
        return Ok(());
    }
    let key = if key_is_there {
        let text = fs::read_to_string(key_file).map_err(|source| io_error(key_file, source))?;
        KeyPair::from_pem(&text).map_err(|error| CertError::NotAKey {
            path: key_file.clone(),
            why: error.to_string(),
        })?
    } else {
        let key =
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("the system's randomness works");
        write(key_file, 0o600, &key.serialize_pem())?;
        key
    };
    write(cert_file, 0o644, &certificate(&key))?;
    info!(cert_file = %cert_file.display(), "self-signed certificate made");
    Ok(())
}

/// Creates a self-signed certificate for `key`, in PEM form.
fn certificate(key: &KeyPair) -> String {
    let mut params =
        CertificateParams::new([NAME.to_owned()]).expect("the name is a well-formed DNS name");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Users trust this certificate directly, so its validity does not depend on the clock of a
    // machine.
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    let certificate = params.self_signed(key).expect("the key can sign");
    certificate.pem()
}

/// Writes a file atomically, so that it is never incomplete.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), CertError> {
    let part = path.with_added_extension("new");
    let written = || {
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    written().map_err(|source| io_error(path, source))
}

fn exists(path: &Path) -> Result<bool, CertError> {
    path.try_exists().map_err(|source| io_error(path, source))
}

fn io_error(path: &Path, source: io::Error) -> CertError {
    CertError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Name in every self-signed certificate. All gateways use the same name, since their users choose
/// the host names.
const NAME: &str = "longhaul";

//! Checks of the TLS keys of an `[[ftp]]` section: certificates that can be read, and keys without
//! contradictions.

use std::path::{Path, PathBuf};

use toml::Spanned;

use super::{
    DoorTls,
    file::{FtpSection, ServerTlsSection, TlsSection},
    problem::{Problem, problem},
};
use crate::tls::{self, CertError, CertSource, ENCODED_MAX, Fingerprint, Mode, ServerTls, Verify};

/// TLS with clients. Without `cert_file` the certificate is kept beside the identity `key_file`.
pub(super) fn door(
    section: &FtpSection,
    folder: &Path,
    key_file: &Path,
) -> Result<DoorTls, Problem> {
    let Some(tls) = &section.tls else {
        return Ok(DoorTls::Off);
    };
    match tls.mode.get_ref().as_str() {
        "explicit" => Ok(DoorTls::Explicit(certificate(tls, folder, key_file)?)),
        "implicit" => Ok(DoorTls::Implicit(certificate(tls, folder, key_file)?)),
        "off" => no_certificate(tls).map(|()| DoorTls::Off),
        other => Err(problem(
            &tls.mode,
            format!(
                "unknown tls mode {other:?}, expected \"off\", \"explicit\", \"implicit\" or \
                 \"pass-through\""
            ),
        )),
    }
}

/// Reads the settings of TLS towards the server.
pub(super) fn server(section: &FtpSection, folder: &Path) -> Result<Option<ServerTls>, Problem> {
    let Some(tls) = &section.server_tls else {
        return Ok(None);
    };
    let mode = match tls.mode.get_ref().as_str() {
        "explicit" => Mode::Explicit,
        "implicit" => Mode::Implicit,
        "off" => return no_verification(tls).map(|()| None),
        other => {
            let message = format!(
                "unknown server_tls mode {other:?}, expected \"off\", \"explicit\" or \"implicit\""
            );
            return Err(problem(&tls.mode, message));
        }
    };
    let verify = verify(tls, folder)?;
    Ok(Some(ServerTls { mode, verify }))
}

fn certificate(tls: &TlsSection, folder: &Path, key_file: &Path) -> Result<CertSource, Problem> {
    match (&tls.cert_file, &tls.key_file) {
        (None, None) => Ok(CertSource {
            cert_file: key_file.with_added_extension("ftps.pem"),
            key_file: key_file.with_added_extension("ftps.key"),
            self_signed: true,
        }),
        (Some(cert), Some(key)) => {
            let source = CertSource {
                cert_file: folder.join(cert.get_ref()),
                key_file: folder.join(key.get_ref()),
                self_signed: false,
            };
            source.check().map_err(|error| {
                let of_key = match &error {
                    CertError::NotAKey { .. } | CertError::Mismatch { .. } => true,
                    // One file may hold both.
                    other => other.path() != source.cert_file,
                };
                file_problem(if of_key { key } else { cert }, &error)
            })?;
            Ok(source)
        }
        (Some(cert), None) => Err(problem(cert, "cert_file needs key_file")),
        (None, Some(key)) => Err(problem(key, "key_file needs cert_file")),
    }
}

pub(super) fn no_certificate(tls: &TlsSection) -> Result<(), Problem> {
    match tls.cert_file.as_ref().or(tls.key_file.as_ref()) {
        Some(file) => Err(problem(
            file,
            "a certificate needs tls mode \"explicit\" or \"implicit\"",
        )),
        None => Ok(()),
    }
}

fn verify(tls: &ServerTlsSection, folder: &Path) -> Result<Verify, Problem> {
    let off = tls.verify.as_ref().is_some_and(|verify| !verify.get_ref());
    match (&tls.roots_file, &tls.pin) {
        (Some(file), _) if off => Err(problem(
            file,
            "roots_file contradicts verify = false, expected one of them",
        )),
        (_, Some(pin)) if off => Err(problem(
            pin,
            "pin contradicts verify = false, expected one of them",
        )),
        (Some(_), Some(pin)) => Err(problem(
            pin,
            "a certificate is verified by pin or by roots_file, expected one of them",
        )),
        (None, None) if off => Ok(Verify::Off),
        (None, None) => Ok(Verify::Roots(None)),
        (None, Some(pin)) => match pin.get_ref().parse::<Fingerprint>() {
            Ok(fingerprint) => Ok(Verify::Pin(fingerprint)),
            Err(error) => Err(problem(pin, error.to_string())),
        },
        (Some(file), None) => roots(file, folder),
    }
}

fn roots(file: &Spanned<PathBuf>, folder: &Path) -> Result<Verify, Problem> {
    let path = folder.join(file.get_ref());
    let roots = tls::read_roots(&path).map_err(|error| file_problem(file, &error))?;
    let tls = ServerTls {
        mode: Mode::Explicit,
        verify: Verify::Roots(Some(roots)),
    };
    let bytes = tls.encoded_bytes();
    if bytes > ENCODED_MAX {
        let message = format!(
            "the certificates in it have {bytes} bytes, expected at most {ENCODED_MAX}: without \
             roots_file those of the far gateway's system are used"
        );
        return Err(problem(file, message));
    }
    Ok(tls.verify)
}

fn no_verification(tls: &ServerTlsSection) -> Result<(), Problem> {
    let message = "there is nothing to verify with server_tls mode \"off\"";
    if let Some(file) = &tls.roots_file {
        return Err(problem(file, message));
    }
    match &tls.pin {
        Some(pin) => Err(problem(pin, message)),
        None => Ok(()),
    }
}

fn file_problem(file: &Spanned<PathBuf>, error: &CertError) -> Problem {
    problem(file, error.to_string())
}

#[cfg(test)]
#[path = "check_tls_tests.rs"]
mod tests;

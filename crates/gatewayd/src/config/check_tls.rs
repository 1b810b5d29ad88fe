//! Checks of the TLS keys of an `[[ftp]]` section. Certificates must be readable, and keys must not
//! contradict each other.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use toml::Spanned;

use super::{
    ListenerTls,
    file::{FtpSection, ServerTlsSection, TlsSection},
    problem::{Problem, problem},
};
use net::tls::{
    self, CertError, CertSource, CertificateCheck, ENCODED_MAX, Fingerprint, ServerTls, TlsRules,
    TlsStart, TlsVersion,
};

/// Returns the settings of TLS between clients and this gateway.
pub(super) fn listener(
    section: &FtpSection,
    folder: &Path,
    key_file: &Path,
) -> Result<ListenerTls, Problem> {
    let Some(tls) = &section.tls else {
        return Ok(ListenerTls::Off);
    };
    match tls.mode.get_ref().as_str() {
        "explicit" => Ok(ListenerTls::Explicit(
            listener_certificate(tls).source(folder, key_file)?,
        )),
        "implicit" => Ok(ListenerTls::Implicit(
            listener_certificate(tls).source(folder, key_file)?,
        )),
        "off" => no_tls_keys(tls).map(|()| ListenerTls::Off),
        other => Err(problem(
            &tls.mode,
            format!(
                "unknown tls mode {other:?}, expected \"off\", \"explicit\", \"implicit\" or \
                 \"pass-through\""
            ),
        )),
    }
}

/// Reads the requirements for TLS connections from clients.
pub(super) fn rules(section: &FtpSection, folder: &Path) -> Result<TlsRules, Problem> {
    let default = TlsRules::default();
    let Some(tls) = &section.tls else {
        return Ok(default);
    };
    let version_min = match &tls.min_version {
        None => default.version_min,
        Some(version) => match version.get_ref().as_str() {
            "1.2" => TlsVersion::Tls12,
            "1.3" => TlsVersion::Tls13,
            other => {
                let message = format!("unknown TLS version {other:?}, expected \"1.2\" or \"1.3\"");
                return Err(problem(version, message));
            }
        },
    };
    let client_roots = match &tls.client_roots_file {
        None => None,
        Some(file) => Some(client_roots(file, folder)?),
    };
    let set = |key: &Option<Spanned<bool>>, default| key.as_ref().map_or(default, |k| *k.get_ref());
    Ok(TlsRules {
        is_required: set(&tls.required, default.is_required),
        version_min,
        client_roots,
        must_resume: set(&tls.require_reuse, default.must_resume),
    })
}

/// Reads the root certificates that sign client certificates.
pub(super) fn client_roots(
    file: &Spanned<PathBuf>,
    folder: &Path,
) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let roots = tls::read_cas(&folder.join(file.get_ref()));
    roots.map_err(|error| file_problem(file, &error))
}

/// Reads the settings of TLS between the far gateway and the server.
pub(super) fn server(section: &FtpSection, folder: &Path) -> Result<Option<ServerTls>, Problem> {
    let Some(tls) = &section.server_tls else {
        return Ok(None);
    };
    let mode = match tls.mode.get_ref().as_str() {
        "explicit" => TlsStart::Explicit,
        "implicit" => TlsStart::Implicit,
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

fn listener_certificate(tls: &TlsSection) -> Certificate<'_> {
    Certificate {
        cert: ("cert_file", tls.cert_file.as_ref()),
        key: ("key_file", tls.key_file.as_ref()),
        kept_as: "ftps",
    }
}

/// Configuration keys with which a section names a certificate and its private key.
pub(super) struct Certificate<'a> {
    pub(super) cert: (&'static str, Option<&'a Spanned<PathBuf>>),
    pub(super) key: (&'static str, Option<&'a Spanned<PathBuf>>),
    /// Part of the file name of a self-signed certificate, which the gateway creates if no
    /// certificate is configured. The file name consists of the name of `key_file`, a dot, this
    /// part and an extension.
    pub(super) kept_as: &'static str,
}

impl Certificate<'_> {
    pub(super) fn source(&self, folder: &Path, key_file: &Path) -> Result<CertSource, Problem> {
        let ((cert_name, cert), (key_name, key)) = (self.cert, self.key);
        let kept = |kind: &str| key_file.with_added_extension(format!("{}.{kind}", self.kept_as));
        match (cert, key) {
            (None, None) => Ok(CertSource {
                cert_file: kept("pem"),
                key_file: kept("key"),
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
                        CertError::NotAKey { .. }
                        | CertError::Exposed { .. }
                        | CertError::Mismatch { .. } => true,
                        // One file may contain the certificate and the private key.
                        other => other.path() != source.cert_file,
                    };
                    file_problem(if of_key { key } else { cert }, &error)
                })?;
                Ok(source)
            }
            (Some(cert), None) => Err(problem(cert, format!("{cert_name} needs {key_name}"))),
            (None, Some(key)) => Err(problem(key, format!("{key_name} needs {cert_name}"))),
        }
    }
}

/// Refuses TLS keys that have no effect because TLS with clients is off.
pub(super) fn no_tls_keys(tls: &TlsSection) -> Result<(), Problem> {
    fn refuse<T>(value: Option<&Spanned<T>>, what: &str) -> Result<(), Problem> {
        value.map_or(Ok(()), |value| {
            let message = format!("{what} needs tls mode \"explicit\" or \"implicit\"");
            Err(problem(value, message))
        })
    }
    refuse(
        tls.cert_file.as_ref().or(tls.key_file.as_ref()),
        "a certificate",
    )?;
    let is_required = tls.required.as_ref().filter(|required| *required.get_ref());
    refuse(is_required, "required = true")?;
    refuse(tls.min_version.as_ref(), "min_version")?;
    refuse(tls.client_roots_file.as_ref(), "client_roots_file")?;
    let must_resume = tls.require_reuse.as_ref().filter(|reuse| *reuse.get_ref());
    refuse(must_resume, "require_reuse = true")
}

fn verify(tls: &ServerTlsSection, folder: &Path) -> Result<CertificateCheck, Problem> {
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
        (None, None) if off => Ok(CertificateCheck::Off),
        (None, None) => Ok(CertificateCheck::Roots(None)),
        (None, Some(pin)) => match pin.get_ref().parse::<Fingerprint>() {
            Ok(fingerprint) => Ok(CertificateCheck::Pin(fingerprint)),
            Err(error) => Err(problem(pin, error.to_string())),
        },
        (Some(file), None) => roots(file, folder),
    }
}

fn roots(file: &Spanned<PathBuf>, folder: &Path) -> Result<CertificateCheck, Problem> {
    let path = folder.join(file.get_ref());
    let roots = tls::read_roots(&path).map_err(|error| file_problem(file, &error))?;
    let tls = ServerTls {
        mode: TlsStart::Explicit,
        verify: CertificateCheck::Roots(Some(roots)),
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

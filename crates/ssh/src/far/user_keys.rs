//! Keys with which the far gateway logs in for users: a key for each user, and certificates of the
//! gateway's own authority.
#![allow(
    clippy::disallowed_methods,
    reason = "the validity of certificates starts at the present time"
)]

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use russh::keys::{
    Algorithm, Certificate, HashAlg, PrivateKey, PublicKey,
    ssh_key::certificate::{Builder, CertType},
};

use crate::settings::FarSsh;

/// Private key, and its certificate if there is one.
pub(super) struct Credential {
    pub(super) key: Arc<PrivateKey>,
    pub(super) certificate: Option<Certificate>,
}

/// Loads the key of a user from the folder `user_keys`.
///
/// # Errors
/// The reason why there is no key.
pub(super) async fn key_of(settings: &FarSsh, user: &str) -> Result<Credential, String> {
    let folder = settings.user_keys.as_ref();
    let folder = folder.ok_or("user_keys is not configured at the far gateway")?;
    if !is_file_name(user) {
        return Err("the user name is not a file name".to_owned());
    }
    let key = load(folder.join(user)).await?;
    Ok(Credential {
        key: Arc::new(key),
        certificate: None,
    })
}

/// Issues a certificate for a new key of `user`. The near gateway has verified that the client has
/// the private key of `proved`.
///
/// # Errors
/// The reason why there is no certificate.
pub(super) async fn certificate_for(
    settings: &FarSsh,
    user: &str,
    proved: &PublicKey,
    client: &str,
) -> Result<Credential, String> {
    let path = settings.user_ca.clone();
    let authority = load(path.ok_or("user_ca is not configured at the far gateway")?).await?;
    let force_command = settings.user_ca_force_command.as_deref();
    let issued = issue(&authority, user, proved, client, force_command);
    issued.map_err(|error| format!("no certificate: {error}"))
}

fn issue(
    authority: &PrivateKey,
    user: &str,
    proved: &PublicKey,
    client: &str,
    force_command: Option<&str>,
) -> Result<Credential, russh::keys::ssh_key::Error> {
    let mut random = russh::keys::key::safe_rng();
    let key = PrivateKey::random(&mut random, Algorithm::Ed25519)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let mut certificate = Builder::new_with_random_nonce(
        &mut random,
        key.public_key().key_data().clone(),
        now.saturating_sub(CLOCK_DIFFERENCE.as_secs()),
        now + VALIDITY.as_secs(),
    )?;
    certificate.cert_type(CertType::User)?;
    // The server logs the identifier.
    let fingerprint = proved.fingerprint(HashAlg::Sha256);
    let identifier = format!("longhaul {client} {fingerprint}");
    certificate.key_id(identifier.escape_debug().to_string())?;
    certificate.valid_principal(user)?;
    if let Some(command) = force_command {
        certificate.critical_option("force-command", command)?;
    }
    certificate.extension("permit-pty", "")?;
    let certificate = certificate.sign(authority)?;
    Ok(Credential {
        key: Arc::new(key),
        certificate: Some(certificate),
    })
}

async fn load(path: impl AsRef<Path>) -> Result<PrivateKey, String> {
    let path = path.as_ref().to_owned();
    let loaded = tokio::task::spawn_blocking(move || {
        read(&path).map_err(|error| format!("{}: {error}", path.display()))
    });
    loaded.await.map_err(|error| error.to_string())?
}

fn read(path: &Path) -> Result<PrivateKey, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a file".to_owned());
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(format!("its mode {mode:04o} lets other users read it"));
    }
    let mut text = String::new();
    let read = file.take(FILE_MAX).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    let key = PrivateKey::from_openssh(&text).map_err(|error| error.to_string())?;
    if key.is_encrypted() {
        return Err("a passphrase protects the key".to_owned());
    }
    if matches!(key.algorithm(), Algorithm::Rsa { .. }) {
        // RUSTSEC-2023-0071: the time of the library's operations with private RSA keys leaks
        // information about the key.
        return Err("an RSA key; use an Ed25519 key".to_owned());
    }
    Ok(key)
}

/// Whether a user name is the name of a file in a folder, and nothing else.
fn is_file_name(user: &str) -> bool {
    let has_separator = user.contains(['/', '\\', '\0']);
    !user.is_empty() && !has_separator && !user.starts_with('.')
}

/// Time for which a certificate is valid. The log-in takes a few seconds.
const VALIDITY: Duration = Duration::from_secs(120);

/// Maximum difference between the clocks of gateway and server.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// Maximum length of a file with a private key, in bytes.
const FILE_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_cannot_leave_the_folder() {
        for user in ["", ".", "..", "../root", "a/b", ".ssh", "a\0"] {
            assert!(!is_file_name(user), "{user:?}");
        }
        assert!(is_file_name("me@example.com"));
    }

    #[test]
    fn a_certificate_is_valid_for_one_user_and_two_minutes() {
        let mut random = russh::keys::key::safe_rng();
        let authority = PrivateKey::random(&mut random, Algorithm::Ed25519).expect("a key");
        let proved = authority.public_key();
        let credential = issue(&authority, "me", proved, "10.0.0.1:1", None).expect("issued");
        let certificate = credential.certificate.expect("a certificate");
        assert_eq!(certificate.valid_principals(), ["me"]);
        let seconds = certificate.valid_before() - certificate.valid_after();
        assert_eq!(seconds, (VALIDITY + CLOCK_DIFFERENCE).as_secs());
        certificate.verify_signature().expect("signed");
        assert!(certificate.key_id().contains("10.0.0.1:1"));
        assert!(certificate.critical_options().is_empty());
        let forced = issue(
            &authority,
            "me",
            proved,
            "10.0.0.1:1",
            Some("internal-sftp"),
        );
        let certificate = forced.expect("issued").certificate.expect("a certificate");
        let options: Vec<_> = certificate.critical_options().iter().collect();
        let expected = ("force-command".to_owned(), "internal-sftp".to_owned());
        assert_eq!(options, [(&expected.0, &expected.1)]);
        certificate.verify_signature().expect("signed");
    }
}

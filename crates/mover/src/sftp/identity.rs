//! Keys for the log-in, from the agent and from files of the user.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use russh::{
    Signer,
    keys::{
        Algorithm, HashAlg, PrivateKey, PublicKey,
        agent::{AgentIdentity, AgentSessionBinding, client::AgentClient},
        decode_secret_key,
        signature::Signer as _,
    },
};
use tokio::{net::UnixStream, time::timeout};

use super::SshIdentity;

/// Key with which the mover can log in.
#[derive(Debug, Clone)]
pub(super) enum LogInKey {
    /// Private key from a file.
    File(Arc<PrivateKey>),
    /// Key of the agent with this socket.
    Agent {
        socket: PathBuf,
        key: Box<PublicKey>,
        /// Connection for which the agent signs. For keys with restrictions, the agent must know
        /// this connection.
        binding: Option<AgentSessionBinding>,
    },
}

/// Keys for a log-in, in the order of preference.
#[derive(Debug, Default)]
pub(super) struct UsableKeys {
    pub(super) keys: Vec<LogInKey>,
    /// Sentences about keys that cannot be used.
    pub(super) skipped: Vec<String>,
}

/// Key file of the user.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    /// Public key, if it is readable.
    public: Option<PublicKey>,
    /// Private key, or the reason why it cannot be used.
    private: Result<PrivateKey, String>,
}

impl UsableKeys {
    /// Reads the key files, and asks the agent for its keys. If the agent also has the key of a
    /// file, the agent signs.
    pub(super) async fn find(
        identity: &SshIdentity,
        binding: Option<&AgentSessionBinding>,
    ) -> Self {
        let mut usable = Self::default();
        let paths = identity.key_files.clone();
        let files = tokio::task::spawn_blocking(move || {
            let files = paths.iter().filter_map(|path| read_file(path));
            files.collect::<Vec<_>>()
        });
        let files = files.await.expect("reading keys does not panic");
        let mut of_agent = match &identity.agent {
            None => Vec::new(),
            Some(socket) => match keys_of_agent(socket).await {
                Ok(keys) => keys,
                Err(error) => {
                    let text = format!("the agent {} does not answer: {error}", socket.display());
                    usable.skipped.push(text);
                    Vec::new()
                }
            },
        };
        let agent_key = |key: PublicKey| LogInKey::Agent {
            socket: identity.agent.clone().unwrap_or_default(),
            key: Box::new(key),
            binding: binding.cloned(),
        };
        for file in files {
            let in_agent = of_agent.iter().position(|it| {
                let public = file.public.as_ref();
                public.is_some_and(|public| public.key_data() == it.key_data())
            });
            match (in_agent, file.private) {
                (Some(at), _) => usable.keys.push(agent_key(of_agent.remove(at))),
                (None, Ok(key)) => usable.keys.push(LogInKey::File(Arc::new(key))),
                (None, Err(reason)) => {
                    usable
                        .skipped
                        .push(format!("{}: {reason}", file.path.display()));
                }
            }
        }
        if !identity.has_only_key_files {
            usable.keys.extend(of_agent.into_iter().map(agent_key));
        }
        usable
    }
}

impl LogInKey {
    pub(super) fn public_key(&self) -> &PublicKey {
        match self {
            Self::File(key) => key.public_key(),
            Self::Agent { key, .. } => key,
        }
    }

    /// Signs data. Returns the signature in the form of SSH.
    ///
    /// # Errors
    /// The reason why there is no signature.
    pub(super) async fn sign(
        &self,
        data: &[u8],
        hash: Option<HashAlg>,
    ) -> Result<Vec<u8>, NoSignature> {
        match self {
            Self::File(key) => {
                let signature = key.try_sign(data);
                let signature = signature.map_err(|error| NoSignature(error.to_string()))?;
                let signature = Vec::try_from(signature);
                signature.map_err(|error| NoSignature(error.to_string()))
            }
            Self::Agent {
                socket,
                key,
                binding,
            } => {
                let signed = async {
                    let mut agent = connect(socket).await?;
                    if let Some(binding) = binding {
                        // A failure is ignored, because agents that do not support restrictions do
                        // not know this request.
                        let _ = agent.bind_session(binding, false).await;
                    }
                    let identity = AgentIdentity::from(PublicKey::clone(key));
                    agent.sign_request(&identity, hash, data.to_vec()).await
                };
                let signed = timeout(SIGNATURE_TIMEOUT, signed).await;
                let signed = signed.map_err(|_| NoSignature("no answer in time".to_owned()))?;
                let signed = signed.map_err(|error| NoSignature(error.to_string()))?;
                // The answer contains the data, a length of four bytes, and then the signature.
                let signature = signed.get(data.len() + 4..).map(<[u8]>::to_vec);
                signature.ok_or_else(|| NoSignature("a malformed answer".to_owned()))
            }
        }
    }
}

/// Reason why there is no signature.
#[derive(Debug, thiserror::Error)]
#[error("no signature: {0}")]
pub(super) struct NoSignature(pub(super) String);

impl From<russh::SendError> for NoSignature {
    fn from(_: russh::SendError) -> Self {
        Self("the connection has ended".to_owned())
    }
}

impl Signer for &LogInKey {
    type Error = NoSignature;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        hash: Option<HashAlg>,
        mut to_sign: Vec<u8>,
    ) -> Result<Vec<u8>, NoSignature> {
        let signature = self.sign(&to_sign, hash).await?;
        let length = u32::try_from(signature.len());
        let length = length.map_err(|_| NoSignature("a long signature".to_owned()))?;
        to_sign.extend_from_slice(&length.to_be_bytes());
        to_sign.extend_from_slice(&signature);
        Ok(to_sign)
    }
}

async fn connect(socket: &Path) -> Result<AgentClient<UnixStream>, russh::keys::Error> {
    let stream = UnixStream::connect(socket).await?;
    Ok(AgentClient::connect(stream))
}

async fn keys_of_agent(socket: &Path) -> Result<Vec<PublicKey>, String> {
    let listed = async {
        let mut agent = connect(socket).await?;
        agent.request_identities().await
    };
    let listed = timeout(AGENT_TIMEOUT, listed).await;
    let listed = listed.map_err(|_| "no answer in time".to_owned())?;
    let listed = listed.map_err(|error| error.to_string())?;
    let keys = listed.into_iter().filter_map(|identity| match identity {
        AgentIdentity::PublicKey { key, .. } => Some(key),
        // A certificate is left out, because the agent lists its key separately.
        AgentIdentity::Certificate { .. } => None,
    });
    Ok(keys.collect())
}

/// Reads a key file and its public key. Returns `None` if the file does not exist.
fn read_file(path: &Path) -> Option<KeyFile> {
    let text = read_private(path)?;
    let public = std::fs::read_to_string(format!("{}.pub", path.display())).ok();
    let public = public.and_then(|it| PublicKey::from_openssh(it.trim()).ok());
    let embedded = || {
        let text = text.as_deref().ok()?;
        let key = PrivateKey::from_openssh(text).ok()?;
        Some(key.public_key().clone())
    };
    let public = embedded().or(public);
    let private = text.and_then(|text| usable(&text));
    Some(KeyFile {
        path: path.to_owned(),
        public,
        private,
    })
}

fn read_private(path: &Path) -> Option<Result<String, String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(error.to_string())),
    };
    let read = || {
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Err("not a file".to_owned());
        }
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(format!(
                "its mode {mode:04o} lets other users read it: run chmod 600"
            ));
        }
        let mut text = String::new();
        let read = file.take(FILE_MAX_BYTES).read_to_string(&mut text);
        read.map_err(|error| error.to_string())?;
        Ok(text)
    };
    Some(read())
}

fn usable(text: &str) -> Result<PrivateKey, String> {
    let key = match decode_secret_key(text, None) {
        Ok(key) if !key.is_encrypted() => key,
        Ok(_) | Err(russh::keys::Error::KeyIsEncrypted) => {
            return Err(
                "a passphrase protects the key: add it to the agent with ssh-add".to_owned(),
            );
        }
        Err(error) => return Err(error.to_string()),
    };
    if matches!(key.algorithm(), Algorithm::Rsa { .. }) {
        // RUSTSEC-2023-0071: the duration of the library's operations with a private RSA key leaks
        // information about the key.
        return Err(
            "an RSA key: add it to the agent with ssh-add, or use an Ed25519 key".to_owned(),
        );
    }
    Ok(key)
}

/// Time limit for the agent to list its keys.
const AGENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for a signature. Agents may ask their users, or wait for a touch.
const SIGNATURE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of a file with a private key, in bytes.
const FILE_MAX_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use russh::keys::{key::safe_rng, ssh_key::LineEnding};

    use super::*;

    #[tokio::test]
    async fn key_files_that_cannot_be_used_are_skipped_with_a_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
        let encrypted = key
            .encrypt(&mut safe_rng(), "passphrase")
            .expect("encrypted");
        for (name, key, mode) in [
            ("good", &key, 0o600),
            ("open", &key, 0o644),
            ("locked", &encrypted, 0o600),
        ] {
            let text = key.to_openssh(LineEnding::LF).expect("text");
            std::fs::write(path(name), text.as_bytes()).expect("written");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path(name), permissions).expect("set");
        }
        let identity = SshIdentity {
            key_files: ["missing", "open", "locked", "good"].map(path).to_vec(),
            agent: Some(path("no_agent")),
            has_only_key_files: false,
        };
        let found = UsableKeys::find(&identity, None).await;
        assert_eq!(found.keys.len(), 1);
        assert_eq!(
            found.keys[0].public_key().key_data(),
            key.public_key().key_data()
        );
        let skipped = found.skipped.join("\n");
        for words in [
            "open: its mode 0644",
            "locked: a passphrase",
            "no_agent does not answer",
        ] {
            assert!(skipped.contains(words), "{skipped}");
        }
        assert!(!skipped.contains("missing"), "{skipped}");
    }
}

//! Files that the gateway's user cannot read. Root reads every file, so a check by root tests
//! access as the gateway's user.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
};

use net::tls::{CertError, CertSource};
use nix::unistd::{Uid, User, geteuid, getgrouplist};
use rustix::thread::{Gid, Uid as ThreadUid, set_thread_gid, set_thread_groups, set_thread_uid};

use super::{Config, ListenerTls};
use crate::admin_socket;

/// A file that the gateway's user cannot read. The text contains the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", self.observation(), self.cure())]
pub struct UnreadableFile {
    path: PathBuf,
    /// Name of the gateway's user.
    user: String,
    obstacle: Obstacle,
}

/// Reason why a user cannot read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The file belongs to another user. It contains a secret, so only one user may read it.
    SecretOfOther,
    /// The mode of the file excludes the user. The file contains no secret.
    Mode,
    /// The user may not enter a folder of the path.
    Folder,
}

impl UnreadableFile {
    /// Returns the fault of a certificate that this process has no permission to read. This process
    /// has already read the gateway's private key, so it is the gateway or runs as the gateway's
    /// user.
    pub(super) fn from_error(error: &CertError, source: &CertSource) -> Option<Self> {
        let CertError::Io {
            path,
            source: cause,
        } = error
        else {
            return None;
        };
        if cause.kind() != io::ErrorKind::PermissionDenied {
            return None;
        }
        let uid = geteuid();
        Some(Self {
            path: path.clone(),
            user: User::from_uid(uid)
                .ok()
                .flatten()
                .map_or(uid.to_string(), |it| it.name),
            obstacle: obstacle(path, *path == source.key_file)?,
        })
    }

    /// Returns the fault without the next step.
    pub fn observation(&self) -> String {
        let Self { path, user, .. } = self;
        let path = path.display();
        match self.obstacle {
            Obstacle::Folder => {
                format!("{path}: the gateway's user {user} may not enter a folder of this path")
            }
            _ => format!("{path}: the gateway's user {user} cannot read it"),
        }
    }

    /// Returns the next step.
    pub fn cure(&self) -> String {
        let Self { path, user, .. } = self;
        match self.obstacle {
            Obstacle::SecretOfOther => format!("chown {user} {}", path.display()),
            Obstacle::Mode => format!("chmod 644 {}", path.display()),
            Obstacle::Folder => "copy the file to /etc/longhaul, or permit access".to_owned(),
        }
    }
}

impl Config {
    /// Returns a file that the gateway's user cannot read. The function tests `file`, which
    /// contains this configuration, and the files that the configuration names. Only root can make
    /// this test. For any other user, the function returns `None`.
    pub fn find_unreadable(&self, file: &Path) -> Option<UnreadableFile> {
        let user = self.gateway_user().filter(|_| geteuid().is_root())?;
        let mut files = vec![(file.to_owned(), false)];
        let listeners = self.ftp.iter().filter_map(|it| match &it.tls {
            ListenerTls::Explicit(source) | ListenerTls::Implicit(source) => Some(source),
            ListenerTls::Off => None,
        });
        let https = self.admin_https.iter().map(|it| &it.certificate);
        for source in listeners.chain(https).filter(|it| !it.self_signed) {
            files.push((source.cert_file.clone(), false));
            files.push((source.key_file.clone(), true));
        }
        files.extend(self.admin_token_file.iter().map(|it| (it.clone(), true)));
        let name = user.name.clone();
        // Users and groups belong to a thread. The other threads keep theirs.
        let tested = thread::spawn(move || -> io::Result<_> {
            become_user(&user)?;
            let mut files = files.into_iter();
            Ok(files.find_map(|(path, is_secret)| Some((obstacle(&path, is_secret)?, path))))
        });
        // A container may forbid the change of the user.
        let tested = tested.join().unwrap_or(Ok(None));
        let (obstacle, path) = tested.ok().flatten()?;
        Some(UnreadableFile {
            path,
            user: name,
            obstacle,
        })
    }

    /// Returns the user of the running gateway. If no gateway runs, returns the owner of the
    /// private key, because only its owner can read it.
    fn gateway_user(&self) -> Option<User> {
        let owner = || Some(fs::metadata(&self.key_file).ok()?.uid());
        let uid = admin_socket::running_user(&self.admin_socket).or_else(owner)?;
        User::from_uid(Uid::from_raw(uid)).ok()?
    }
}

/// Changes the user and the groups of this thread.
fn become_user(user: &User) -> io::Result<()> {
    let name = std::ffi::CString::new(user.name.as_str())?;
    let groups: Vec<_> = getgrouplist(&name, user.gid)?
        .into_iter()
        .map(|it| Gid::from_raw(it.as_raw()))
        .collect();
    set_thread_groups(&groups)?;
    set_thread_gid(Gid::from_raw(user.gid.as_raw()))?;
    set_thread_uid(ThreadUid::from_raw(user.uid.as_raw()))?;
    Ok(())
}

/// Returns the reason why this thread cannot read a file. A missing file is not such a reason.
fn obstacle(path: &Path, is_secret: bool) -> Option<Obstacle> {
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    if fs::metadata(path).is_err_and(|it| is_denied(&it)) {
        return Some(Obstacle::Folder);
    }
    let is_closed = File::open(path).is_err_and(|it| is_denied(&it));
    is_closed.then_some(match is_secret {
        true => Obstacle::SecretOfOther,
        false => Obstacle::Mode,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A configuration whose private key belongs to the user `nobody`, and whose certificate
    /// belongs to root. Only root can create these files.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Option<(Self, User)> {
            let user = User::from_name("nobody").ok().flatten();
            let user = user.filter(|_| geteuid().is_root())?;
            let name = format!("longhaul-unreadable-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).expect("room");
            let files = Self(folder);
            set_mode(&files.0, 0o755);
            let identity = files.0.join("site-a.key");
            let _ = fs::remove_file(&identity);
            link::Identity::generate()
                .write_new(&identity)
                .expect("room");
            chown(&identity, Some(user.uid.as_raw()), None).expect("root may");
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
            let certificate = params.self_signed(&key).expect("a certificate");
            files.write("ftp.crt", &certificate.pem(), 0o644);
            files.write("ftp.key", &key.serialize_pem(), 0o600);
            let text = "[identity]\nkey_file = \"site-a.key\"\n[[peer]]\nname = \"far\"\n\
                        public_key = \"nh7OVLNEtkTFbvVFCzWZLDEuU/+BTK0Lr/yUuXQAxHU=\"\n\
                        endpoint = \"127.0.0.1:1\"\n[[ftp]]\nlisten = \"127.0.0.1:2121\"\n\
                        target = \"127.0.0.1:21\"\n\
                        tls = { mode = \"explicit\", cert_file = \"ftp.crt\", key_file = \"ftp.key\" }\n";
            files.write("gateway.toml", text, 0o644);
            Some((files, user))
        }

        fn write(&self, name: &str, text: &str, mode: u32) {
            fs::write(self.0.join(name), text).expect("room");
            set_mode(&self.0.join(name), mode);
        }

        fn path(&self, name: &str) -> String {
            self.0.join(name).display().to_string()
        }

        /// Returns the fault that a check by root finds.
        fn check(&self) -> Option<String> {
            let file = self.0.join("gateway.toml");
            let config = Config::load(&file).expect("root reads every file");
            config.find_unreadable(&file).map(|it| it.to_string())
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root may");
    }

    #[test]
    fn a_check_by_root_finds_files_that_the_gateway_s_user_cannot_read() {
        let Some((files, user)) = Files::new("check") else {
            return;
        };
        let key = files.path("ftp.key");
        let message =
            format!("{key}: the gateway's user nobody cannot read it: chown nobody {key}");
        assert_eq!(files.check(), Some(message.clone()));
        // Root's group is not a group of the gateway's user.
        set_mode(Path::new(&key), 0o640);
        assert_eq!(files.check(), Some(message));
        chown(&key, None, Some(user.gid.as_raw())).expect("root may");
        assert_eq!(files.check(), None, "the user's group may read it");
        chown(&key, Some(user.uid.as_raw()), Some(0)).expect("root may");
        assert_eq!(files.check(), None, "its owner may read it");
        let certificate = files.path("ftp.crt");
        set_mode(Path::new(&certificate), 0o600);
        let message = format!(
            "{certificate}: the gateway's user nobody cannot read it: chmod 644 {certificate}"
        );
        assert_eq!(files.check(), Some(message));
        set_mode(&files.0, 0o700);
        let message = files.check().expect("a closed folder");
        let seen = "the gateway's user nobody may not enter a folder of this path: copy the file";
        assert!(message.contains(seen), "{message}");
    }

    #[test]
    fn a_gateway_names_its_user_and_the_next_step_for_a_key_that_it_cannot_read() {
        let Some((files, user)) = Files::new("reload") else {
            return;
        };
        let file = files.0.join("gateway.toml");
        let loaded = thread::spawn(move || {
            become_user(&user).expect("root may");
            Config::load(&file)
        });
        let error = loaded.join().expect("no panic").expect_err("root's key");
        let key = files.path("ftp.key");
        let message =
            format!("{key}: the gateway's user nobody cannot read it: chown nobody {key}");
        assert!(error.to_string().ends_with(&message), "{error}");
    }
}

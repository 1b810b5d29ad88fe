//! The user that runs a gateway. Root can read every file. If root checks a configuration, the
//! check must therefore search for files that the gateway's user cannot use.

use std::{ffi::CString, fs, os::unix::fs::MetadataExt as _, path::Path};

use gatewayd::config::Config;
use nix::{
    errno::Errno,
    unistd::{
        AccessFlags, Gid, Uid, User, access, geteuid, initgroups, setgroups, setresgid, setresuid,
    },
};

use crate::service;

/// The user that runs a gateway.
struct GatewayUser {
    uid: Uid,
    gid: Gid,
    /// `None` if the user has no name.
    name: Option<CString>,
}

/// Checks a configuration that root has read. Returns an error if the gateway's user cannot use a
/// file or a folder of this configuration.
///
/// The function can permanently reduce the rights of this process to the rights of the gateway's
/// user. The caller must therefore only print the result and end. If this process does not run as
/// root, the function checks nothing.
pub(crate) fn find_denied(config: &Config, file: &Path) -> Option<String> {
    if !geteuid().is_root() {
        return None;
    }
    let user = GatewayUser::of(config, file).filter(|it| !it.uid.is_root())?;
    // If the process cannot change its user, for example in a container, nothing is checked.
    user.assume().ok()?;
    if let Err(error) = Config::load(file) {
        return Some(error.with_gateway_user().to_string());
    }
    let store = config.store.as_ref().map(|it| ("[store]", &it.folder));
    let spool = config.spool.as_ref().map(|it| ("[spool]", &it.folder));
    let all = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
    let mut folders = store.into_iter().chain(spool);
    // A missing folder, for example on a missing disk, does not prevent the start of the gateway.
    let (section, folder) = folders.find(|(_, it)| access(*it, all) == Err(Errno::EACCES))?;
    let (file, folder) = (file.display(), folder.display());
    let name = user.shown();
    Some(format!(
        "{file}: {section} folder {folder}: Permission denied: the gateway runs as user {name}, who must be able to \
         write there: sudo chown {name} {folder}"
    ))
}

impl GatewayUser {
    /// Returns the user of the service if the service reads this file. Otherwise, returns the owner
    /// of the key file.
    fn of(config: &Config, file: &Path) -> Option<Self> {
        if let Some(name) = service::user(file) {
            let user = User::from_name(&name).ok().flatten()?;
            return Some(Self::named(user));
        }
        let key = fs::metadata(&config.key_file).ok()?;
        let uid = Uid::from_raw(key.uid());
        Some(match User::from_uid(uid).ok().flatten() {
            Some(user) => Self::named(user),
            None => Self {
                uid,
                gid: Gid::from_raw(key.gid()),
                name: None,
            },
        })
    }

    fn named(user: User) -> Self {
        Self {
            uid: user.uid,
            gid: user.gid,
            name: CString::new(user.name).ok(),
        }
    }

    fn shown(&self) -> String {
        let name = self.name.as_ref();
        name.map_or_else(
            || self.uid.to_string(),
            |it| it.to_string_lossy().into_owned(),
        )
    }

    /// Gives this process the rights of the user, and no others, until the process ends.
    fn assume(&self) -> nix::Result<()> {
        match &self.name {
            Some(name) => initgroups(name, self.gid)?,
            None => setgroups(&[self.gid])?,
        }
        setresgid(self.gid, self.gid, self.gid)?;
        setresuid(self.uid, self.uid, self.uid)
    }
}

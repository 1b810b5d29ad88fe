//! Findings about the folders of the chunk stores and of the spool: whether they exist, are
//! writable and have free space.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use gatewayd::config::Config;
use nix::sys::statvfs::{FsFlags, statvfs};
use relay::status::GatewaySnapshot;
use units::ByteCount;

use super::Findings;

pub(super) fn examine(
    config: &Config,
    snapshot: Option<&GatewaySnapshot>,
    findings: &mut Findings,
) {
    if let Some(store) = &config.store {
        let is_good = folder("store", &store.folder, &config.key_file, findings);
        let stores = snapshot.map_or(&[][..], |it| &it.stores);
        let troubled = stores
            .iter()
            .find_map(|it| Some((it, it.trouble.as_ref()?)));
        if let Some((store, trouble)) = troubled.filter(|_| is_good) {
            findings.wrong(
                "store",
                format!("{} keeps nothing new: {trouble}", store.store),
                "journalctl -u longhaul has the first error; the gateway tries again every 30 s",
            );
        }
    }
    if let Some(spool) = &config.spool {
        folder("spool", &spool.folder, &config.key_file, findings);
    }
}

/// Checks a folder in which the gateway stores files. Returns false if a fault can prevent the use
/// of the folder.
fn folder(what: &str, folder: &Path, key_file: &Path, findings: &mut Findings) -> bool {
    let place = folder.display();
    let found = match fs::metadata(folder) {
        Ok(found) if found.is_dir() => found,
        Ok(_) => {
            let cure = format!("give [{what}] folder the path of a folder");
            findings.wrong(
                what,
                format!("{place} is no folder, so files move without it"),
                cure,
            );
            return false;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = folder.parent().unwrap_or(Path::new("/"));
            let cure = match above.is_dir() {
                true => format!(
                    "the gateway makes it if its user may write in {}: longhaul reload, or move a file",
                    above.display()
                ),
                false => format!(
                    "mount its disk, or mkdir -p {}; the gateway then makes the folder",
                    above.display()
                ),
            };
            findings.wrong(
                what,
                format!("{place} is not there, so files move without it"),
                cure,
            );
            return false;
        }
        Err(error) => {
            let cure = "run it as root: sudo longhaul doctor";
            findings.doubtful(what, format!("{place} cannot be examined: {error}"), cure);
            return false;
        }
    };
    let Ok(system) = statvfs(folder) else {
        return true;
    };
    if system.flags().contains(FsFlags::ST_RDONLY) {
        let cure =
            format!("mount -o remount,rw the file system of {place}; dmesg shows the reason");
        findings.wrong(
            what,
            format!("{place} is on a file system that takes no writes"),
            cure,
        );
        return false;
    }
    let owner = fs::metadata(key_file).map_or(0, |it| it.uid());
    if owner != 0 && found.uid() != owner {
        let cure = format!("chown --reference={} {place}", key_file.display());
        findings.doubtful(what, format!("{place} belongs to another user than the key, so the gateway may not be able to write there"), cure);
        return false;
    }
    let free = ByteCount::new(system.blocks_available() * system.fragment_size());
    if free < ROOM_FEW {
        let cure = format!("make room on the disk of {place}, or give [{what}] a smaller size_max");
        findings.doubtful(
            what,
            format!("the disk of {place} is full: {} are free", free.measured()),
            cure,
        );
        return true;
    }
    findings.good(what, format!("{place}, {} free", free.measured()));
    true
}

/// Free space below which a disk counts as full. A segment of a store needs more than this space.
const ROOM_FEW: ByteCount = ByteCount::mebibytes(16);

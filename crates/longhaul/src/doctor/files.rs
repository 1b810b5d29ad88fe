//! Findings about the key, the folder with the gateway's state, and the clock.
#![allow(clippy::disallowed_methods, reason = "reads the clock of the machine")]

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, SystemTime},
};

use gatewayd::{config::Config, register::Register};

use super::Findings;

pub(super) fn examine(config: &Config, findings: &mut Findings) {
    let key_file = &config.key_file;
    owner(key_file, findings);
    let kept = [
        key_file.clone(),
        key_file.with_added_extension("replay"),
        Register::path(key_file),
    ];
    clock(&kept, findings);
}

/// Returns the recommended action for an invalid configuration.
pub(super) fn cure(error: &str) -> String {
    let cure = if error.contains("group or others can read") {
        "run the chmod that it names: the key was open to others, so consider a new one (docs/operating.md)"
    } else if error.contains("Permission denied") {
        "run it as root: sudo longhaul doctor"
    } else if error.contains("key file") {
        "longhaul keygen makes a key, and longhaul setup makes all"
    } else {
        "change the line that it names; docs/configuration.md has every key"
    };
    cure.to_owned()
}

/// Checks that the key and its folder have the same owner, because the gateway writes files in this
/// folder.
fn owner(key_file: &Path, findings: &mut Findings) {
    let folder = key_file.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let (Ok(of_key), Ok(of_folder)) = (fs::metadata(key_file), fs::metadata(folder)) else {
        return;
    };
    let (what, place) = ("key", key_file.display());
    if of_key.uid() == of_folder.uid() || of_key.uid() == 0 {
        findings.good(what, format!("{place} belongs to the gateway alone"));
    } else {
        findings.doubtful(
            what,
            format!("{place} and its folder belong to different users, so the gateway may not be able to write beside it"),
            format!("chown --reference={place} {}", folder.display()),
        );
    }
}

/// Compares the clock with the modification times of the gateway's files. If the clock is slow,
/// peers refuse this gateway's handshakes as replays.
fn clock(kept: &[std::path::PathBuf], findings: &mut Findings) {
    let now = SystemTime::now();
    let changed = kept
        .iter()
        .filter_map(|it| fs::metadata(it).ok()?.modified().ok());
    let ahead = changed.filter_map(|it| it.duration_since(now).ok()).max();
    match ahead {
        Some(ahead) if ahead > CLOCK_AHEAD => findings.wrong(
            "clock",
            format!(
                "the gateway's files are {} min younger than now: the clock is behind, or was ahead once",
                ahead.as_secs() / 60
            ),
            "set the clock: timedatectl set-ntp true",
        ),
        _ => findings.good("clock", "not behind the gateway's files"),
    }
}

/// Tolerated difference if a file is newer than the clock. Network file systems may have a slightly
/// different clock.
const CLOCK_AHEAD: Duration = Duration::from_secs(300);

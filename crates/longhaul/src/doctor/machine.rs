//! Findings about security policies of the machine (SELinux and AppArmor) that may restrict the
//! gateway.

use std::fs;

use super::Findings;

pub(super) fn examine(findings: &mut Findings) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if read("/sys/fs/selinux/enforce").trim() == "1" {
        findings.doubtful(
            "SELinux",
            "it is enforcing, and may forbid the gateway a port or a file",
            "ausearch -m avc -c longhaul lists the refusals; an empty list is good",
        );
    }
    let profiles = read("/sys/kernel/security/apparmor/profiles");
    if profiles
        .lines()
        .any(|it| it.contains("longhaul") && it.contains("(enforce)"))
    {
        findings.doubtful(
            "AppArmor",
            "a profile for longhaul is enforced",
            "journalctl -k -g apparmor lists the refusals; an empty list is good",
        );
    }
}

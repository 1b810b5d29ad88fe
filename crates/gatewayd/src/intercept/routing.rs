//! Policy routing: delivers the packets that the rules have marked to this machine, whatever their
//! address.

use super::{
    program::{InterceptError, ip, ip_says},
    ruleset::Ruleset,
};

/// Installs a rule and a table for each family that is intercepted.
pub(super) fn install(rules: &Ruleset) -> Result<(), InterceptError> {
    let number = rules.mark();
    for ipv4 in [true, false] {
        remove_family(rules, ipv4)?;
        if rules.has_family(ipv4) {
            ip(
                ipv4,
                &format!("route replace local default dev lo table {number}"),
            )?;
            ip(ipv4, &format!("rule add {}", selector(number)))?;
        }
    }
    Ok(())
}

/// Whether all that [`install`] makes is still there. Others remove it: systemd-networkd takes away rules that are not
/// its own when it starts (`ManageForeignRoutingPolicyRules`), and a link that goes down takes its routes along.
///
/// # Errors
/// [`InterceptError`] if that cannot be asked.
pub(super) fn is_installed(rules: &Ruleset) -> Result<bool, InterceptError> {
    let number = rules.mark();
    for ipv4 in [true, false] {
        if !rules.has_family(ipv4) {
            continue;
        }
        let rule = ip_says(ipv4, &format!("rule show priority {PRIORITY}"))?;
        let selector = format!("fwmark {number:#x} lookup {number}");
        // A table without routes may not even exist.
        let route = match ip_says(ipv4, &format!("route show table {number}")) {
            Err(InterceptError::Failed { said, .. }) if said.contains("does not exist") => {
                String::new()
            }
            said => said?,
        };
        if !rule.contains(&selector) || !route.contains("default dev lo") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes both, or does nothing if they are not there.
pub(super) fn remove(rules: &Ruleset) -> Result<(), InterceptError> {
    remove_family(rules, true)?;
    remove_family(rules, false)
}

fn remove_family(rules: &Ruleset, ipv4: bool) -> Result<(), InterceptError> {
    let number = rules.mark();
    for command in [
        format!("rule del {}", selector(number)),
        format!("route flush table {number}"),
    ] {
        match ip(ipv4, &command) {
            // Not there, or not even the family.
            Err(InterceptError::Unsupported { .. }) => {}
            Err(InterceptError::Failed { said, .. }) if said.contains("does not exist") => {}
            result => result?,
        }
    }
    Ok(())
}

fn selector(number: u32) -> String {
    format!("priority {PRIORITY} fwmark {number:#x} lookup {number}")
}

/// Ahead of the main table (32766) and of what people usually add to it; behind the machine's own
/// addresses (0).
const PRIORITY: u32 = 481;

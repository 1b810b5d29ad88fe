//! Policy routing for intercepted packets. The kernel delivers marked packets to this machine,
//! although their destination is a server's address.

use super::{
    program::{InterceptError, ip, ip_output},
    ruleset::Ruleset,
};

/// Installs a routing rule and a routing table for each address family with intercepted servers.
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

/// Whether all entries that [`install`] created still exist. At its start, systemd-networkd removes
/// rules of other programs (`ManageForeignRoutingPolicyRules`). A network interface that goes down
/// loses its routes.
///
/// # Errors
/// [`InterceptError`] if the check fails.
pub(super) fn is_installed(rules: &Ruleset) -> Result<bool, InterceptError> {
    let number = rules.mark();
    for ipv4 in [true, false] {
        if !rules.has_family(ipv4) {
            continue;
        }
        let rule = ip_output(ipv4, &format!("rule show priority {PRIORITY}"))?;
        let selector = format!("fwmark {number:#x} lookup {number}");
        // If a table has no routes, the kernel may report that the table does not exist.
        let route = match ip_output(ipv4, &format!("route show table {number}")) {
            Err(InterceptError::Failed { message, .. }) if message.contains("does not exist") => {
                String::new()
            }
            message => message?,
        };
        if !rule.contains(&selector) || !route.contains("default dev lo") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the routing rules and routing tables. Succeeds if none exist.
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
            // The entry or the address family does not exist.
            Err(InterceptError::Unsupported { .. }) => {}
            Err(InterceptError::Failed { message, .. }) if message.contains("does not exist") => {}
            result => result?,
        }
    }
    Ok(())
}

fn selector(number: u32) -> String {
    format!("priority {PRIORITY} fwmark {number:#x} lookup {number}")
}

/// Priority of the routing rule. The rule for the machine's own addresses has priority 0 and
/// applies earlier. The rule for the main table has priority 32766 and applies later.
const PRIORITY: u32 = 481;

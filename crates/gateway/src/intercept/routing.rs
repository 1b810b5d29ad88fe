//! Policy routing: delivers the packets that the rules have marked to this machine, whatever their
//! address.

use super::{
    program::{InterceptError, ip},
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

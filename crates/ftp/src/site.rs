//! `SITE LONGHAUL`: commands to which the far gateway itself replies. No server receives these
//! commands.

use std::str::SplitAsciiWhitespace;

use crate::command::Command;

/// Returns the arguments of the command, without `SITE` and without the words of `name`. Returns
/// `None` if the command has another name.
pub(crate) fn words_after<'a>(
    name: &str,
    command: &'a Command<'_>,
) -> Option<SplitAsciiWhitespace<'a>> {
    if command.verb() != "SITE" {
        return None;
    }
    let text = std::str::from_utf8(command.argument()).ok()?;
    let mut words = text.split_ascii_whitespace();
    let is_ours = name.split(' ').all(|name| {
        let word = words.next();
        word.is_some_and(|word| word.eq_ignore_ascii_case(name))
    });
    is_ours.then_some(words)
}

/// Parses a number that consists of digits only, without a sign.
pub(crate) fn number(text: &str, radix: u32) -> Option<u128> {
    let is_number = !text.is_empty() && text.chars().all(|it| it.is_digit(radix));
    is_number.then(|| u128::from_str_radix(text, radix).ok())?
}

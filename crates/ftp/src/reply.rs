//! Replies as raw lines: the first and last line of each reply, and the meaning of its code.
//!
//! The gateways relay lines unchanged, and the tracker reads only a copy. In a multi-line reply,
//! the first line starts with `ddd-` (RFC 959 section 4.2). The last line starts with the same code
//! and a space.

/// Position of a line within its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinePosition {
    /// Code of the reply. `None` for a line that has no code and lies outside any reply.
    pub code: Option<ReplyCode>,
    /// Whether the line is the first line of a reply.
    pub first: bool,
    /// Whether the line is the last line of a reply.
    pub last: bool,
    /// Whether the code of the line differs from the code of the reply that contains the line. Some
    /// servers end a reply with such a line. Other servers use such a line as text. The following
    /// line shows which case applies.
    pub in_doubt: bool,
}

/// A three-digit reply code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyCode(pub u16);

/// The first digit of a code, which determines the client's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyClass {
    /// `1yz`: another reply to the same command follows.
    Preliminary,
    /// `2yz`: the server has carried out the command.
    Completed,
    /// `3yz`: the server needs another command.
    Intermediate,
    /// `4yz`, `5yz` and all other codes: the command was refused or has failed.
    Failed,
}

impl ReplyCode {
    /// Returns the class of the code, given by its first digit.
    pub fn class(self) -> ReplyClass {
        match self.0 / 100 {
            1 => ReplyClass::Preliminary,
            2 => ReplyClass::Completed,
            3 => ReplyClass::Intermediate,
            _ => ReplyClass::Failed,
        }
    }
}

/// Tracks the first and last lines of the replies on one control connection.
#[derive(Debug, Default)]
pub struct ReplyTracker {
    open: Option<ReplyCode>,
}

impl ReplyTracker {
    /// Returns the position of `line` within its reply. `line` has no line terminator.
    pub fn locate(&mut self, line: &[u8]) -> LinePosition {
        let code = leading_code(line);
        let separator = line.get(3).copied();
        if let Some(open) = self.open {
            let is_end = code.is_some() && separator != Some(b'-');
            let last = is_end && code == Some(open);
            if last {
                self.open = None;
            }
            return LinePosition {
                code: Some(open),
                first: false,
                last,
                in_doubt: is_end && !last,
            };
        }
        match (code, separator) {
            (Some(code), Some(b'-')) => {
                self.open = Some(code);
                LinePosition {
                    code: Some(code),
                    first: true,
                    last: false,
                    in_doubt: false,
                }
            }
            (Some(code), _) => LinePosition {
                code: Some(code),
                first: true,
                last: true,
                in_doubt: false,
            },
            (None, _) => LinePosition {
                code: None,
                first: false,
                last: false,
                in_doubt: false,
            },
        }
    }

    /// Records that the last line ended its reply, although [`in_doubt`](LinePosition::in_doubt)
    /// was set for that line.
    pub fn end_in_doubt(&mut self) {
        self.open = None;
    }
}

/// Returns the code at the start of `line`. The code has three digits. A space, a hyphen or the end
/// of the line follows the digits.
pub fn leading_code(line: &[u8]) -> Option<ReplyCode> {
    let digits = line.get(..3)?;
    let separated = matches!(line.get(3), None | Some(b' ' | b'-'));
    if !separated || !(b'1'..=b'6').contains(&digits[0]) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(ReplyCode(
        digits
            .iter()
            .fold(0, |code, d| code * 10 + u16::from(d - b'0')),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn positions(lines: &[&str]) -> Vec<(Option<u16>, bool)> {
        let mut tracker = ReplyTracker::default();
        lines
            .iter()
            .map(|line| tracker.locate(line.as_bytes()))
            .map(|position| (position.code.map(|c| c.0), position.last))
            .collect()
    }

    #[test]
    fn a_multi_line_reply_ends_at_its_own_code_and_a_space() {
        let lines = [
            "211-Features:",
            " MDTM",
            "",
            "226 foo",
            "211-more",
            "211 End",
        ];
        let expected = [false, false, false, false, false, true].map(|last| (Some(211), last));
        assert_eq!(positions(&lines), expected);
    }

    #[test]
    fn single_lines_end_at_once() {
        assert_eq!(
            positions(&["220", "331 x", "150"]),
            [(Some(220), true), (Some(331), true), (Some(150), true)]
        );
        assert_eq!(
            positions(&["", "hello", "2200 x", "99 x"]),
            [(None, false); 4]
        );
    }

    #[test]
    fn a_line_with_another_code_may_end_its_reply() {
        let mut tracker = ReplyTracker::default();
        assert!(!tracker.locate(b"234-AUTH").in_doubt);
        assert!(!tracker.locate(b" 200 done").in_doubt);
        assert!(!tracker.locate(b"200-done").in_doubt);
        let position = tracker.locate(b"200 done");
        assert_eq!(
            (position.code, position.last, position.in_doubt),
            (Some(ReplyCode(234)), false, true)
        );
        tracker.end_in_doubt();
        assert!(tracker.locate(b"331 next").last);
    }

    proptest! {
        #[test]
        fn any_lines_can_be_located(lines in proptest::collection::vec("[0-9 -]{0,6}", 0..20)) {
            let mut tracker = ReplyTracker::default();
            for line in &lines {
                let position = tracker.locate(line.as_bytes());
                prop_assert!(!position.first || position.code.is_some());
            }
        }
    }
}

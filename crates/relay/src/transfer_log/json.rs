//! Formats a record of the transfer log as one line of JSON.

use super::TransferRecord;

/// Returns the line, including its newline. Characters that some programs interpret as a line end
/// are escaped.
pub(super) fn line(record: &TransferRecord) -> String {
    let json = serde_json::to_string(record).expect("strings and numbers can be written");
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // JSON itself escapes characters below 0x20. All characters that this code escapes are
        // inside strings.
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            line += &format!("\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::{super::xferlog::tests::record, *};

    #[test]
    fn a_path_cannot_forge_a_line_and_comes_back_as_it_was() {
        let mut record = record();
        record.path = "a\"b\\\r\n{\"schema\":1}\u{7f}\u{85}\u{2028}\u{2029}\t".to_owned();
        let line = line(&record);
        assert_eq!(line.matches(['\n', '\r', '\u{85}', '\u{2028}']).count(), 1);
        assert!(line.ends_with("}\n"));
        let back: TransferRecord = serde_json::from_str(&line).expect("JSON");
        assert_eq!(back, record);
    }
}

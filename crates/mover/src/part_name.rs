//! What files are called until they are whole, and how such names are recognised.

use xxhash_rust::xxh3::xxh3_64;

/// A path for the part of a file: the path, eight digits and the suffix. A long name is cut at a character.
pub(crate) fn part_path(path: &[u8], digits: u32, suffix: &[u8]) -> Vec<u8> {
    with_room(path, digits, suffix, NAME_BYTES_MAX)
}

/// The same for a server or a disk that takes no long names.
pub(crate) fn short_part_path(path: &[u8], digits: u32, suffix: &[u8]) -> Vec<u8> {
    with_room(path, digits, suffix, SHORT_NAME_BYTES_MAX)
}

/// Whether a part has a name that a shorter one may do for.
pub(crate) fn is_long(part: &[u8]) -> bool {
    name_of(part).len() > SHORT_NAME_BYTES_MAX
}

/// Digits that stand for a source.
pub(crate) fn digits_of(source: &[u8]) -> u32 {
    xxh3_64(source) as u32
}

/// Digits that nobody can foretell.
pub(crate) fn random_digits() -> u32 {
    let mut bytes = [0; 4];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    u32::from_le_bytes(bytes)
}

fn with_room(path: &[u8], digits: u32, suffix: &[u8], name_bytes_max: usize) -> Vec<u8> {
    let added = [format!(".{digits:08x}").as_bytes(), suffix].concat();
    let name_at = path.len() - name_of(path).len();
    let room = name_bytes_max.saturating_sub(added.len());
    let mut end = path.len().min(name_at + room);
    if end < path.len() {
        // Behind a cut character a server takes the name for no text. A character has four bytes at most.
        let is_inside = |at: usize| path[at] & 0b1100_0000 == 0b1000_0000;
        let begin = (end.saturating_sub(3).max(name_at)..=end)
            .rev()
            .find(|it| !is_inside(*it));
        end = begin.unwrap_or(end);
    }
    [&path[..end], &added].concat()
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|it| *it == b'/').next().unwrap_or_default()
}

/// What stands behind a part that several connections fetch.
pub(crate) const PIECES: &[u8] = b".pieces";

/// Longest name of a file on Linux, and on most servers.
const NAME_BYTES_MAX: usize = 255;

/// A name that also old servers and encrypting file systems take.
const SHORT_NAME_BYTES_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let name = "漢".repeat(84);
        let part = part_path(format!("d/{name}").as_bytes(), 7, b".part");
        let text = String::from_utf8(part).expect("text");
        assert!(text.ends_with("漢.00000007.part"), "{text}");
        assert!(text.len() - 2 <= NAME_BYTES_MAX && text.len() > 240);
        // A name that is no text is cut anywhere.
        let part = part_path(&[0xbf; 300], 7, b".part");
        assert_eq!(part.len(), NAME_BYTES_MAX);
        let short = short_part_path(b"a/film", 7, b".part");
        assert_eq!(short, b"a/film.00000007.part");
    }
}

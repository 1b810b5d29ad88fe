//! Names of parts (incomplete files), and recognition of such names.

use xxhash_rust::xxh3::xxh3_64;

/// Returns the path of the part file for `path`: the path, eight digits and the suffix. If the name
/// is too long, it is shortened at a character boundary.
pub(crate) fn part_path(path: &[u8], digits: u32, suffix: &[u8]) -> Vec<u8> {
    with_room(path, digits, suffix, NAME_BYTES_MAX)
}

/// Returns the shorter path of the part file for `path`. The function is used for a server or a
/// disk that refuses long names.
pub(crate) fn short_part_path(path: &[u8], digits: u32, suffix: &[u8]) -> Vec<u8> {
    with_room(path, digits, suffix, SHORT_NAME_BYTES_MAX)
}

/// Returns whether the name of a part file is long. If it is, a shorter form of the name exists.
pub(crate) fn is_long(part: &[u8]) -> bool {
    name_of(part).len() > SHORT_NAME_BYTES_MAX
}

/// Returns the paths that the part file with this journal key may have. `digits` are the digits in
/// the part's name. If `None`, the key contains these digits.
///
/// The first path is the usual path. The second path, if any, is for destinations that refuse long
/// names.
pub(crate) fn names_of_key(key: &[u8], digits: Option<u32>) -> Vec<Vec<u8>> {
    let Some((stem, known, suffix)) = parts_of_key(key) else {
        return vec![key.to_vec()];
    };
    if digits.is_none() && suffix.starts_with(PIECES) {
        // An earlier version used the journal key as the path of the part.
        return vec![key.to_vec()];
    }
    let digits = digits.unwrap_or(known);
    let mut names = vec![part_path(stem, digits, suffix)];
    if is_long(&names[0]) {
        names.push(short_part_path(stem, digits, suffix));
    }
    names
}

/// Returns the path of the final file for the part file with this journal key. Returns `None` if
/// the file's name may be shortened in the key.
pub(crate) fn path_of_key(key: &[u8]) -> Option<&[u8]> {
    let is_whole = name_of(key).len() < NAME_BYTES_MAX - 3;
    let (path, ..) = parts_of_key(key).filter(|_| is_whole)?;
    Some(path)
}

/// Splits a journal key into the path of the file, the digits, and the suffix. The key of a file
/// that is moved in pieces contains two groups of digits. The first group represents the source,
/// and the second group represents the job.
fn parts_of_key(key: &[u8]) -> Option<(&[u8], u32, &[u8])> {
    let name_at = key.len() - name_of(key).len();
    let mut places = (name_at..key.len()).rev();
    let at = places.find(|at| without_digits(&key[name_at..*at], 8).is_some())?;
    let suffix = &key[at..];
    let mut end = at;
    if suffix.starts_with(PIECES) && without_digits(&key[name_at..at - 9], 8).is_some() {
        end = at - 9;
    }
    let digits = std::str::from_utf8(&key[end - 8..end]).ok()?;
    Some((
        &key[..end - 9],
        u32::from_str_radix(digits, 16).ok()?,
        suffix,
    ))
}

/// Returns digits that represent a source: a hash of the source's path.
pub(crate) fn digits_of(source: &[u8]) -> u32 {
    xxh3_64(source) as u32
}

/// Returns unpredictable digits.
pub(crate) fn random_digits() -> u32 {
    let mut bytes = [0; 4];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    u32::from_le_bytes(bytes)
}

/// Returns whether a name belongs to a part file of Longhaul. Such a name ends in digits and
/// `.part`, or in digits and the job's own suffix.
pub(crate) fn is_part(name: &[u8], suffix: Option<&[u8]>) -> bool {
    let own = suffix.filter(|it| !it.is_empty());
    let stems = [Some(SUFFIX), own].into_iter().flatten();
    let mut stems = stems.filter_map(|it| name.strip_suffix(it));
    stems.any(|stem| {
        let stem = stem.strip_suffix(PIECES).unwrap_or(stem);
        // Workers append a mark of ten digits to the eight digits.
        let stem = without_digits(stem, 10).unwrap_or(stem);
        without_digits(stem, 8).is_some_and(|it| !it.is_empty())
    })
}

/// Splits a part file's name into the text before the digits, and the digits. The suffix is
/// removed.
pub(crate) fn stem_and_digits<'a>(name: &'a [u8], suffix: &[u8]) -> Option<(&'a [u8], u32)> {
    let named = name.strip_suffix(suffix)?;
    let stem = without_digits(named, 8).filter(|it| !it.is_empty())?;
    let digits = std::str::from_utf8(&named[stem.len() + 1..]).ok()?;
    Some((stem, u32::from_str_radix(digits, 16).ok()?))
}

/// Returns whether the end of a file's name may be missing in the name of its part file.
pub(crate) fn may_be_cut(name: &[u8]) -> bool {
    // Shortening removes up to three more bytes, so that no character is split.
    let is_near = |most: usize| (most - 3..=most).contains(&name.len());
    is_near(NAME_BYTES_MAX) || is_near(SHORT_NAME_BYTES_MAX)
}

/// Returns the text before a dot and `count` hexadecimal digits. Returns `None` if the name has
/// another end.
fn without_digits(name: &[u8], count: usize) -> Option<&[u8]> {
    let (rest, digits) = name.split_at_checked(name.len().checked_sub(count)?)?;
    let is_digit = |it: &u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
    rest.strip_suffix(b".")
        .filter(|_| digits.iter().all(is_digit))
}

/// Returns whether another program would use this form of name for an incomplete file or for its
/// own copy of a file.
pub(crate) fn is_partial_of_others(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_marked = OTHERS
        .iter()
        .any(|it| lower.ends_with(it) && lower.len() > it.len());
    is_marked || name.ends_with(b"~") || lower.starts_with(b".syncthing.")
}

fn with_room(path: &[u8], digits: u32, suffix: &[u8], name_bytes_max: usize) -> Vec<u8> {
    let added = [format!(".{digits:08x}").as_bytes(), suffix].concat();
    let name_at = path.len() - name_of(path).len();
    let room = name_bytes_max.saturating_sub(added.len());
    let mut end = path.len().min(name_at + room);
    if end < path.len() {
        // If a character were split, a server would find invalid text in the name. A character has
        // at most four bytes.
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

/// Suffix of a part (incomplete file) that several lanes write in pieces.
pub(crate) const PIECES: &[u8] = b".pieces";

const SUFFIX: &[u8] = b".part";

/// Suffixes by which other programs mark incomplete files: WinSCP, browsers, torrent programs,
/// aria2, lftp, rclone and editors.
const OTHERS: [&[u8]; 14] = [
    b".filepart",
    b".crdownload",
    b".part",
    b".partial",
    b".download",
    b".opdownload",
    b".!ut",
    b".!qb",
    b".!bt",
    b".bc!",
    b".aria2",
    b".xltd",
    b".swp",
    b".lftp-pget-status",
];

/// Maximum length of a file name on Linux and on most servers, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Maximum length of a short file name, in bytes. Even old servers and encrypting file systems
/// accept a name of this length.
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
        // A name that is not valid UTF-8 can be shortened at any byte.
        let part = part_path(&[0xbf; 300], 7, b".part");
        assert_eq!(part.len(), NAME_BYTES_MAX);
        let short = short_part_path(b"a/film", 7, b".part");
        assert_eq!(short, b"a/film.00000007.part");
    }

    #[test]
    fn a_key_and_digits_give_the_names_of_a_part() {
        let key = part_path(b"d.0123abcd/film", 7, b".part");
        assert_eq!(names_of_key(&key, None), std::slice::from_ref(&key));
        let other = b"d.0123abcd/film.00000009.part".to_vec();
        assert_eq!(names_of_key(&key, Some(9)), [other]);
        assert_eq!(names_of_key(b"x.part", Some(9)), [b"x.part".to_vec()]);
        assert_eq!(path_of_key(&key), Some(&b"d.0123abcd/film"[..]));
        assert_eq!(path_of_key(b"x.part"), None);
        // The key of a file that is moved in pieces has two groups of digits.
        let key = b"d/film.00000007.0123abcd.pieces.part";
        let part = b"d/film.00000009.pieces.part".to_vec();
        assert_eq!(names_of_key(key, Some(9)), [part]);
        assert_eq!(names_of_key(key, None), [key.to_vec()]);
        assert_eq!(path_of_key(key), Some(&b"d/film"[..]));
        let path = [&b"d/"[..], &[b'x'; 300]].concat();
        let names = names_of_key(&part_path(&path, 7, b".part"), Some(9));
        assert_eq!(names[0], part_path(&path, 9, b".part"));
        assert_eq!(names[1], short_part_path(&path, 9, b".part"));
        assert_eq!(path_of_key(&part_path(&path, 7, b".part")), None);
    }

    #[test]
    fn parts_are_recognised_by_their_form() {
        for (name, is_ours) in [
            ("film.0123abcd.part", true),
            ("film.0123abcd.pieces.part", true),
            ("film.89abcdef.0123abcd.pieces.part", true),
            ("film.0123abcd.0123456789.part", true),
            ("film.0123abcd.x", true),
            ("film.part", false),
            ("film.0123abc.part", false),
            ("film.0123ABCD.part", false),
            (".0123abcd.part", false),
            ("film.0123abcd.party", false),
        ] {
            assert_eq!(is_part(name.as_bytes(), Some(b".x")), is_ours, "{name}");
        }
    }
}

//! Parser of one line of `MLSD` (RFC 3659 section 7.2): facts, a space, the name.

use super::{EntryKind, ListingEntry, ParsedLine, read_time};

/// Parses one line of an `MLSD` or `MLST` reply. `MLST` puts a space before the facts. The caller
/// must remove that space.
pub(super) fn read(line: &[u8]) -> ParsedLine {
    if line.is_empty() {
        return ParsedLine::Nothing;
    }
    let Some(space) = line.iter().position(|b| *b == b' ') else {
        return ParsedLine::Unknown;
    };
    let (facts, name) = (&line[..space], &line[space + 1..]);
    let mut kind = None;
    let mut size_bytes = None;
    let mut modified = None;
    for fact in facts.split(|b| *b == b';').filter(|it| !it.is_empty()) {
        let Some(equals) = fact.iter().position(|b| *b == b'=') else {
            return ParsedLine::Unknown;
        };
        let (fact, value) = (&fact[..equals], &fact[equals + 1..]);
        if fact.eq_ignore_ascii_case(b"type") {
            kind = Some(match read_kind(value) {
                Some(kind) => kind,
                None => return ParsedLine::Nothing,
            });
        } else if fact.eq_ignore_ascii_case(b"size") {
            size_bytes = std::str::from_utf8(value)
                .ok()
                .and_then(|it| it.parse().ok());
        } else if fact.eq_ignore_ascii_case(b"modify") {
            modified = read_time(value);
        }
    }
    let Some(kind) = kind else {
        return ParsedLine::Unknown;
    };
    #[cfg(fuzz_canary)]
    assert!(size_bytes != Some(77), "canary: in the reader of facts");
    let size_bytes = size_bytes.filter(|_| kind != EntryKind::Directory);
    ParsedLine::Entry(ListingEntry {
        name: name.to_vec(),
        kind,
        size_bytes,
        modified,
    })
}

/// Returns the entry's kind from the value of the fact `type`. Returns `None` for the directory
/// itself and for its parent.
fn read_kind(value: &[u8]) -> Option<EntryKind> {
    let is = |name: &[u8]| value.eq_ignore_ascii_case(name);
    if is(b"cdir") || is(b"pdir") {
        return None;
    }
    if is(b"file") {
        return Some(EntryKind::File);
    }
    if is(b"dir") {
        return Some(EntryKind::Directory);
    }
    // Servers report a link as "OS.unix=slink:target" (ProFTPD, Pure-FTPd) or "OS.unix=symlink".
    let lower = value.to_ascii_lowercase();
    for prefix in [&b"os.unix=slink"[..], b"os.unix=symlink"] {
        if lower.starts_with(prefix) {
            let target = value[prefix.len()..].strip_prefix(b":");
            return Some(EntryKind::Symlink {
                target: target.filter(|it| !it.is_empty()).map(<[u8]>::to_vec),
            });
        }
    }
    Some(EntryKind::Other)
}

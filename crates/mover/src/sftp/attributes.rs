//! Conversion of file attributes between the form of SFTP and the forms of the mover.

use ftp::listing::{EntryKind, ListingEntry, ModifiedTime, TimePrecision};
use sftp::packet::{Attrs, Name, Times};

use crate::server::Stat;

/// Returns the size and the modification time.
pub(super) fn stat(attrs: &Attrs) -> Stat {
    Stat {
        size_bytes: attrs.size,
        modified: attrs.times.map(|times| ModifiedTime {
            unix_s: times.modified_s.into(),
            precision: TimePrecision::Second,
        }),
    }
}

/// Returns the entry of a path. The entry has no name.
pub(super) fn entry(attrs: &Attrs) -> ListingEntry {
    named_entry(Vec::new(), b"", attrs)
}

/// Returns the entry of a listing. Returns `None` for the folder itself and for its parent.
///
/// # Errors
/// A sentence about the name, if it cannot be the name of a file.
pub(super) fn listed_entry(name: &Name) -> Result<Option<ListingEntry>, &'static str> {
    match &name.name[..] {
        b"." | b".." => Ok(None),
        b"" => Err("the listing has an empty name"),
        bytes if bytes.contains(&b'/') => Err("the listing has a name with a slash"),
        bytes if bytes.contains(&0) => Err("the listing has a name with a zero byte"),
        bytes => Ok(Some(named_entry(
            bytes.to_vec(),
            &name.long_name,
            &name.attrs,
        ))),
    }
}

fn named_entry(name: Vec<u8>, long_name: &[u8], attrs: &Attrs) -> ListingEntry {
    let Stat {
        size_bytes,
        modified,
    } = stat(attrs);
    let kind = kind(attrs, long_name);
    #[cfg(fuzz_canary)]
    assert!(
        size_bytes.is_none_or(|it| it % 64 != 37),
        "canary: in the attributes of an entry"
    );
    ListingEntry {
        size_bytes: size_bytes.filter(|_| kind == EntryKind::File),
        name,
        kind,
        modified,
    }
}

/// Returns the type of a file by its mode. Some servers send no type in the mode. In this case, the
/// first letter of the entry's listing line decides.
fn kind(attrs: &Attrs, long_name: &[u8]) -> EntryKind {
    let link = EntryKind::Symlink { target: None };
    match attrs.permissions.map_or(0, |it| it & TYPE_MASK) {
        REGULAR => EntryKind::File,
        DIRECTORY => EntryKind::Directory,
        LINK => link,
        0 => match long_name.first() {
            Some(b'd') => EntryKind::Directory,
            Some(b'l') => link,
            Some(b'b' | b'c' | b'p' | b's') => EntryKind::Other,
            _ => EntryKind::File,
        },
        _ => EntryKind::Other,
    }
}

/// Returns the permissions of a file, without its type.
pub(super) fn permissions(attrs: &Attrs) -> Option<u32> {
    attrs.permissions.map(|it| it & PERMISSION_MASK)
}

/// Returns attributes that set the modification time. Returns `None` for a time that SFTP cannot
/// represent.
pub(super) fn of_modified(unix_s: i64) -> Option<Attrs> {
    let modified_s = u32::try_from(unix_s).ok()?;
    Some(Attrs {
        // SFTP sets the access time and the modification time together.
        times: Some(Times {
            accessed_s: modified_s,
            modified_s,
        }),
        ..Attrs::default()
    })
}

/// Returns attributes that set the size.
pub(super) fn of_size(bytes: u64) -> Attrs {
    Attrs {
        size: Some(bytes),
        ..Attrs::default()
    }
}

const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
/// Permission bits, without the bits that make a program run as another user.
const PERMISSION_MASK: u32 = 0o777;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn listed(name: &[u8], long_name: &'static str, mode: Option<u32>) -> ListingEntry {
        let name = Name {
            name: Bytes::copy_from_slice(name),
            long_name: Bytes::from_static(long_name.as_bytes()),
            attrs: Attrs {
                size: Some(6 << 30),
                permissions: mode,
                times: Some(Times {
                    accessed_s: 1,
                    modified_s: 4_000_000_000,
                }),
                ..Attrs::default()
            },
        };
        listed_entry(&name).expect("valid").expect("a file")
    }

    #[test]
    fn entries_have_kind_size_and_time() {
        let file = listed(b"caf\xe9\n", "", Some(0o100_644));
        assert_eq!(file.name, b"caf\xe9\n");
        assert_eq!(
            (file.kind, file.size_bytes),
            (EntryKind::File, Some(6 << 30))
        );
        assert_eq!(file.modified.map(|it| it.unix_s), Some(4_000_000_000));
        let link = EntryKind::Symlink { target: None };
        for (line, mode, kind) in [
            ("", Some(0o040_755), EntryKind::Directory),
            ("", Some(0o120_777), link.clone()),
            ("", Some(0o010_644), EntryKind::Other),
            ("drwxr-xr-x 1 a", None, EntryKind::Directory),
            ("lrwxrwxrwx 1 a", Some(0o777), link),
            ("-rw-r--r-- 1 a", None, EntryKind::File),
            ("", None, EntryKind::File),
        ] {
            assert_eq!(listed(b"a", line, mode).kind, kind, "{line} {mode:?}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let name = |bytes: &'static [u8]| Name {
            name: Bytes::from_static(bytes),
            long_name: Bytes::new(),
            attrs: Attrs::default(),
        };
        for bytes in [&b""[..], b"a/b", b"../x", b"/", b"a\0"] {
            assert!(listed_entry(&name(bytes)).is_err(), "{bytes:?}");
        }
        for bytes in [&b"."[..], b".."] {
            assert_eq!(listed_entry(&name(bytes)), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn times_are_set_as_they_are_read(unix_s: i64) {
            let read = of_modified(unix_s).and_then(|it| stat(&it).modified);
            let is_possible = u32::try_from(unix_s).is_ok();
            prop_assert_eq!(read.map(|it| it.unix_s), is_possible.then_some(unix_s));
        }
    }
}

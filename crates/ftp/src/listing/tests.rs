use proptest::prelude::*;

use super::*;

/// Present time in these tests: 2026-11-23 12:00:00 UTC.
const NOW: i64 = 1_795_435_200;

fn entries(form: ListingForm, lines: &[&[u8]]) -> (Vec<ListingEntry>, u64) {
    let mut listing = ListingParser::new(form);
    let mut entries = Vec::new();
    for line in lines {
        listing.push(line);
        listing.push(b"\r\n");
        entries.extend(std::iter::from_fn(|| listing.next_entry()));
    }
    (entries, listing.unparsed_lines())
}

fn human(line: &str) -> ListingEntry {
    let form = ListingForm::Human { now_unix_s: NOW };
    let (mut entries, unknown) = entries(form, &[line.as_bytes()]);
    assert_eq!((entries.len(), unknown), (1, 0), "{line}");
    entries.remove(0)
}

fn time(text: &str) -> i64 {
    let found = read_time(text.as_bytes()).expect("a time");
    found.unix_s
}

#[test]
fn facts_of_real_servers_are_read() {
    let lines: [&[u8]; 7] = [
        b"modify=20240102030405;perm=flcdmpe;type=cdir;unique=FD02U1;UNIX.mode=0755; .",
        b"modify=20240102030405;type=pdir;unique=FD02U1; ..",
        b"modify=20240102030405.123;perm=adfrw;size=1024;type=file;unique=FD02U2; a  b; c",
        b"Type=dir;Modify=20240102030405;Perm=el; caf\xe9",
        b"type=OS.unix=slink:/to/there;size=9; link",
        b"type=OS.unix=chr-1/3; null",
        b"Size=5;Modify=19240102030405;Type=file;  leading space",
    ];
    let (found, unknown) = entries(ListingForm::Machine, &lines);
    assert_eq!(unknown, 0);
    let names: Vec<&[u8]> = found.iter().map(|it| it.name.as_slice()).collect();
    let expected: [&[u8]; 5] = [b"a  b; c", b"caf\xe9", b"link", b"null", b" leading space"];
    assert_eq!(names, expected);
    assert_eq!(found[0].kind, EntryKind::File);
    assert_eq!(found[0].size_bytes, Some(1024));
    assert_eq!(found[0].modified.map(|it| it.unix_s), Some(1_704_164_645));
    assert_eq!(found[1].kind, EntryKind::Directory);
    let target = Some(b"/to/there".to_vec());
    assert_eq!(found[2].kind, EntryKind::Symlink { target });
    assert_eq!(found[3].kind, EntryKind::Other);
    assert!(found[4].modified.is_some_and(|it| it.unix_s < 0));
}

#[test]
fn long_lines_of_real_servers_are_read() {
    let file = human("-rw-r--r--    1 1000     1000         1024 Jan 02  2024 a  b ");
    assert_eq!(file.name, b"a  b ");
    assert_eq!((file.kind, file.size_bytes), (EntryKind::File, Some(1024)));
    let modified = file.modified.expect("a date");
    assert_eq!(modified.unix_s, time("20240102000000"));
    assert_eq!(modified.precision, TimePrecision::Day);

    let recent = human("drwxr-xr-x   2 owner with spaces group 4096 Nov 23 11:59 sub");
    assert_eq!(recent.kind, EntryKind::Directory);
    let modified = recent.modified.expect("a date");
    assert_eq!(modified.unix_s, time("20261123115900"));
    assert_eq!(modified.precision, TimePrecision::Minute);

    let last_year = human("-rw-r--r-- 1 u g 5 Dec 31 23:59 x").modified;
    assert_eq!(last_year.map(|it| it.unix_s), Some(time("20251231235900")));

    let link = human("lrwxrwxrwx   1 u g   9 Jan 02  2024 here -> ../there -> x");
    assert_eq!(link.name, b"here");
    let target = Some(b"../there -> x".to_vec());
    assert_eq!(link.kind, EntryKind::Symlink { target });

    let no_group = human("-rw-r--r-- 1 owner 77 Jan 02 2024 May 05 2020 x");
    assert_eq!(no_group.size_bytes, Some(77));
    assert_eq!(no_group.name, b"May 05 2020 x");

    let device = human("crw-rw-rw- 1 root root 1, 3 Jan 02 2024 null");
    assert_eq!(
        (device.kind, device.name),
        (EntryKind::Other, b"null".to_vec())
    );
}

#[test]
fn lines_of_dos_are_read() {
    let directory = human("01-02-24  03:04PM       <DIR>          My Documents");
    assert_eq!(directory.name, b"My Documents");
    assert_eq!(directory.kind, EntryKind::Directory);
    let at = directory.modified.map(|it| it.unix_s);
    assert_eq!(at, Some(time("20240102150400")));
    let file = human("12-31-1999  12:00AM              1,024 a b");
    assert_eq!((file.size_bytes, file.name), (Some(1024), b"a b".to_vec()));
    let at = file.modified.map(|it| it.unix_s);
    assert_eq!(at, Some(time("19991231000000")));
}

#[test]
fn what_is_not_understood_is_counted_and_leads_nowhere() {
    let lines: [&[u8]; 5] = [
        b"type=file;size=1; ../../etc/passwd",
        b"type=file;size=1; ",
        b"no facts at all",
        b"size=1; no type",
        b"type=file",
    ];
    let (found, unknown) = entries(ListingForm::Machine, &lines);
    assert!(found.is_empty());
    assert_eq!(unknown, 5);
    let lines: [&[u8]; 4] = [
        b"total 5",
        b"",
        b"ls: cannot open directory",
        b"-rw-r--r-- 1 u g 5 Foo 31 23:59 x",
    ];
    let (found, unknown) = entries(ListingForm::Human { now_unix_s: NOW }, &lines);
    assert!(found.is_empty());
    assert_eq!(unknown, 2);
}

#[test]
fn a_last_line_without_its_end_is_read() {
    let mut listing = ListingParser::new(ListingForm::Machine);
    listing.push(b"type=file;size=1; a");
    assert_eq!(listing.next_entry(), None);
    listing.end();
    let last = listing.next_entry().expect("the last line");
    assert_eq!(last.name, b"a");
}

#[test]
fn times_are_read_and_written() {
    assert_eq!(time("19700101000000"), 0);
    assert_eq!(time("20240229120000.5"), 1_709_208_000);
    assert_eq!(time("191240229120000"), 1_709_208_000);
    assert_eq!(time("20161231235960"), time("20161231235959"));
    assert_eq!(write_time(1_709_208_000).as_deref(), Some("20240229120000"));
    assert_eq!(write_time(i64::MAX), None);
    for wrong in [
        "",
        "2024",
        "20240230120000",
        "20240229120000Z",
        "2024022912000",
        "x",
    ] {
        assert_eq!(read_time(wrong.as_bytes()), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_lines_are_entries_or_counted(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        lines in proptest::collection::vec("[-dlc0-9 =;:>.A-Za-z]{0,60}", 0..10),
    ) {
        for form in [ListingForm::Machine, ListingForm::Human { now_unix_s: NOW }] {
            let mut listing = ListingParser::new(form);
            listing.push(&bytes);
            for line in &lines {
                listing.push(line.as_bytes());
                listing.push(b"\n");
            }
            listing.end();
            while let Some(entry) = listing.next_entry() {
                prop_assert!(is_name(&entry.name));
            }
        }
    }

    #[test]
    fn a_listing_is_the_same_in_any_pieces_and_no_longer_than_what_was_sent(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        lines in proptest::collection::vec("[-dlc0-9 =;:>.A-Za-z]{0,60}", 0..10),
        piece_bytes in 1..80_usize,
    ) {
        let sent = [lines.join("\r\n").into_bytes(), bytes].concat();
        for form in [ListingForm::Machine, ListingForm::Human { now_unix_s: NOW }] {
            let read = |piece_bytes| {
                let mut listing = ListingParser::new(form);
                let mut entries = Vec::new();
                for piece in sent.chunks(piece_bytes) {
                    listing.push(piece);
                    entries.extend(std::iter::from_fn(|| listing.next_entry()));
                }
                listing.end();
                entries.extend(std::iter::from_fn(|| listing.next_entry()));
                (entries, listing.unparsed_lines())
            };
            let (entries, unparsed_lines) = read(piece_bytes);
            let whole = read(usize::MAX);
            prop_assert_eq!((&entries, unparsed_lines), (&whole.0, whole.1));
            let names: usize = entries.iter().map(|it| it.name.len()).sum();
            prop_assert!(names <= sent.len());
        }
    }

    #[test]
    fn facts_are_read_as_they_were_written(
        name in "[^/\\x00\r\n]{1,60}",
        size_bytes in proptest::option::of(any::<u64>()),
        unix_s in proptest::option::of(0..200_000_000_000_i64),
        is_directory in any::<bool>(),
    ) {
        prop_assume!(name != "." && name != "..");
        let kind = if is_directory { "dir" } else { "file" };
        let size = size_bytes.map(|it| format!("size={it};")).unwrap_or_default();
        let time = unix_s.and_then(write_time);
        let time = time.map(|it| format!("modify={it};")).unwrap_or_default();
        let line = format!("type={kind};{size}{time} {name}");
        let (found, unknown) = entries(ListingForm::Machine, &[line.as_bytes()]);
        prop_assert_eq!(unknown, 0);
        let precision = TimePrecision::Second;
        let expected = ListingEntry {
            name: name.into_bytes(),
            kind: if is_directory { EntryKind::Directory } else { EntryKind::File },
            size_bytes: size_bytes.filter(|_| !is_directory),
            modified: unix_s.map(|unix_s| ModifiedTime { unix_s, precision }),
        };
        prop_assert_eq!(found, [expected]);
    }

    #[test]
    fn a_written_time_is_read_again(unix_s in -2_000_000_000_i64..200_000_000_000) {
        let text = write_time(unix_s).expect("a year of four digits");
        prop_assert_eq!(read_time(text.as_bytes()).map(|it| it.unix_s), Some(unix_s));
    }
}

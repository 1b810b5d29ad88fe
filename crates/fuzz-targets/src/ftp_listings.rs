//! Fuzz target: listings of FTP servers, in pieces of any size.
//!
//! Each line must either yield an entry or be counted as unreadable. The name of an entry must not
//! lead to another folder.

use ftp::listing::{ListingEntry, ListingForm, ListingParser};

use crate::Tape;

/// Present time of the tests: 2026-11-23 12:00:00 UTC.
const NOW_UNIX_S: i64 = 1_795_435_200;

/// Runs one input, which contains the form of the listing, the size of the pieces and the bytes.
pub fn run(data: &[u8]) {
    let mut tape = Tape::new(data);
    let setup = tape.byte();
    let form = match setup & 1 {
        0 => ListingForm::Machine,
        _ => ListingForm::Human {
            now_unix_s: NOW_UNIX_S,
        },
    };
    let piece_bytes = usize::from(setup >> 1).max(1);
    let bytes = data.get(1..).unwrap_or_default();
    let read = read(form, bytes, piece_bytes);
    assert_eq!(
        read,
        self::read(form, bytes, usize::MAX),
        "pieces make no difference"
    );
    let (entries, unparsed_lines, _) = read;
    let lines = bytes.split(|it| *it == b'\n').count() as u64;
    assert!(entries.len() as u64 + unparsed_lines <= lines);
    for entry in &entries {
        let name = &entry.name[..];
        assert!(!matches!(name, b"" | b"." | b".."));
        assert!(!name.iter().any(|it| matches!(it, b'/' | 0 | b'\n')));
    }
    let names: usize = entries.iter().map(|it| it.name.len()).sum();
    assert!(names <= bytes.len(), "names are what the server sends");
}

fn read(form: ListingForm, bytes: &[u8], piece_bytes: usize) -> (Vec<ListingEntry>, u64, bool) {
    let mut listing = ListingParser::new(form);
    let mut entries = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        listing.push(piece);
        entries.extend(std::iter::from_fn(|| listing.next_entry()));
    }
    listing.end();
    entries.extend(std::iter::from_fn(|| listing.next_entry()));
    (entries, listing.unparsed_lines(), listing.lists_itself())
}

/// Returns first inputs for the fuzzer: listings of servers, in both forms.
pub fn seeds() -> Vec<Vec<u8>> {
    let machine: [&[u8]; 4] = [
        b"modify=20240102030405.123;perm=adfrw;size=1024;type=file;unique=FD02U2; a  b; c\r\n",
        b"type=cdir; .\r\ntype=pdir; ..\r\nType=dir;Modify=19124010203045; caf\xe9\r\n",
        b"type=OS.unix=slink:/to/there;size=9; link\r\ntype=OS.unix=chr-1/3; null",
        b"Size=18446744073709551615;Type=file;  blank\r\n\r\nno facts\r\n",
    ];
    let human: [&[u8]; 4] = [
        b"total 8\r\n-rw-r--r--    1 1000     1000         1024 Jan 02  2024 a  b \r\n",
        b"drwxr-xr-x 2 joe users 4096 Nov 23 11:59 d\r\nlrwxrwxrwx 1 0 0 3 Feb 29 2024 l -> d\r\n",
        b"11-23-26  11:59AM       <DIR>          folder\r\n01-02-2024  12:00PM  1,024 file",
        b"crw-rw-rw- 1 root root 1, 3 Jan 1 00:00 null\r\n-rw------- 1 0 0 99999999999999999999 x y z\n",
    ];
    let with_form = |form: u8, lines: &[&[u8]; 4]| lines.map(|it| [&[form], it].concat());
    [with_form(0x0e, &machine), with_form(0x0f, &human)].concat()
}

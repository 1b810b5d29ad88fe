//! Comparison of a source file with the file at the destination.

use ftp::listing::{EntryKind, ListingEntry, ModifiedTime, TimePrecision};

use super::{options::PlanOptions, task::File};

/// Decision about a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileDecision {
    /// Move the file, because the destination lacks it or has another version.
    Move,
    /// Skip the file, because the destination already has it.
    Skip,
    /// Skip the file, because the destination has a newer file and the user has set `--update`.
    KeepNewer,
    /// Compare the content. The sizes are equal, and the user has requested a comparison by
    /// content.
    Compare,
    /// Fail, because the destination has an entry of another kind with this name.
    Conflict(EntryKind),
}

/// Result of comparing the listings in a check of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// The listings show no difference.
    None,
    /// The listings show a difference. The text names the difference.
    In(&'static str),
    /// The listings show no difference, but the content must also be compared.
    InContentPerhaps,
}

/// Decides about a source file by comparing it with the destination's entry of the same name.
pub(super) fn decide(
    file: &File,
    there: Option<&ListingEntry>,
    options: &PlanOptions,
) -> FileDecision {
    let Some(there) = there else {
        return FileDecision::Move;
    };
    match (&file.link, &there.kind) {
        (Some(ours), EntryKind::Symlink { target }) if target.as_ref() == Some(ours) => {
            return FileDecision::Skip;
        }
        (Some(_), EntryKind::Symlink { .. }) => return FileDecision::Move,
        (None, EntryKind::File) => {}
        (_, kind) => return FileDecision::Conflict(kind.clone()),
    }
    let age = compare_times(file.modified, there.modified);
    if options.keeps_newer && age == Some(RelativeAge::Older) {
        return FileDecision::KeepNewer;
    }
    let is_size_equal = file.size_bytes.is_some() && file.size_bytes == there.size_bytes;
    if is_size_equal && options.compares_content {
        FileDecision::Compare
    } else if is_size_equal && age == Some(RelativeAge::Equal) {
        FileDecision::Skip
    } else {
        FileDecision::Move
    }
}

/// Compares a source file with the destination's entry of the same name. The function is used when
/// a job only checks the destination.
pub(super) fn compare(file: &File, there: &ListingEntry, compares_content: bool) -> Difference {
    if there.kind != EntryKind::File {
        return Difference::In(what_is_there(&there.kind));
    }
    if let (Some(ours), Some(theirs)) = (file.size_bytes, there.size_bytes)
        && ours != theirs
    {
        return Difference::In("the size");
    }
    if compares_content {
        return Difference::InContentPerhaps;
    }
    if file.size_bytes.is_none() || there.size_bytes.is_none() {
        return Difference::In("the size, which is not known: --checksum reads the content");
    }
    match compare_times(file.modified, there.modified) {
        Some(RelativeAge::Equal) => Difference::None,
        Some(RelativeAge::Older | RelativeAge::Newer) => Difference::In("the time"),
        None => Difference::In("the time, which is not known: --checksum reads the content"),
    }
}

/// Returns the text that names the kind of an unexpected entry.
pub(super) fn what_is_there(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "a file",
        EntryKind::Directory => "a directory",
        EntryKind::Symlink { .. } => "a symbolic link",
        EntryKind::Other => "a device or a socket",
    }
}

/// Age of the source file relative to the destination's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelativeAge {
    Older,
    Equal,
    Newer,
}

/// Compares two modification times. Returns `None` if a time is missing or is less precise than one
/// second.
fn compare_times(
    source: Option<ModifiedTime>,
    destination: Option<ModifiedTime>,
) -> Option<RelativeAge> {
    let (source, destination) = (source?, destination?);
    if source.precision.max(destination.precision) > TimePrecision::Second {
        return None;
    }
    let difference_s = source.unix_s - destination.unix_s;
    Some(if difference_s.abs() <= TIME_UNIT_S {
        RelativeAge::Equal
    } else if difference_s < 0 {
        RelativeAge::Older
    } else {
        RelativeAge::Newer
    })
}

/// Maximum difference in seconds between two times that count as equal. Servers truncate or round
/// fractions of a second.
const TIME_UNIT_S: i64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::task::RelativePath;

    fn at(unix_s: i64) -> Option<ModifiedTime> {
        let precision = TimePrecision::Second;
        Some(ModifiedTime { unix_s, precision })
    }

    fn decide_for(
        source: (u64, Option<ModifiedTime>),
        there: (u64, Option<ModifiedTime>),
        keeps_newer: bool,
    ) -> FileDecision {
        let file = File {
            root: 0,
            path: RelativePath::default(),
            size_bytes: Some(source.0),
            modified: source.1,
            link: None,
        };
        let there = ListingEntry {
            name: b"a".to_vec(),
            kind: EntryKind::File,
            size_bytes: Some(there.0),
            modified: there.1,
        };
        let options = PlanOptions {
            keeps_newer,
            ..PlanOptions::default()
        };
        decide(&file, Some(&there), &options)
    }

    #[test]
    fn a_file_of_the_same_size_and_time_is_skipped() {
        assert_eq!(
            decide_for((5, at(10)), (5, at(10)), false),
            FileDecision::Skip
        );
        assert_eq!(
            decide_for((5, at(10)), (5, at(11)), false),
            FileDecision::Skip
        );
        assert_eq!(
            decide_for((5, at(10)), (5, at(12)), false),
            FileDecision::Move
        );
        assert_eq!(
            decide_for((5, at(10)), (6, at(10)), false),
            FileDecision::Move
        );
    }

    #[test]
    fn without_a_time_nothing_is_known_to_be_equal() {
        assert_eq!(
            decide_for((5, None), (5, at(10)), false),
            FileDecision::Move
        );
        let day = Some(ModifiedTime {
            unix_s: 10,
            precision: TimePrecision::Day,
        });
        assert_eq!(decide_for((5, at(10)), (5, day), false), FileDecision::Move);
    }

    #[test]
    fn the_content_decides_where_that_is_wanted() {
        let options = PlanOptions {
            compares_content: true,
            ..PlanOptions::default()
        };
        let file = |size_bytes| File {
            root: 0,
            path: RelativePath::default(),
            size_bytes: Some(size_bytes),
            modified: at(10),
            link: None,
        };
        let there = ListingEntry {
            name: b"a".to_vec(),
            kind: EntryKind::File,
            size_bytes: Some(5),
            modified: at(10),
        };
        assert_eq!(
            decide(&file(5), Some(&there), &options),
            FileDecision::Compare
        );
        assert_eq!(decide(&file(6), Some(&there), &options), FileDecision::Move);
    }

    #[test]
    fn a_link_is_compared_by_what_it_leads_to() {
        let link = |to: &[u8]| File {
            root: 0,
            path: RelativePath::default(),
            size_bytes: None,
            modified: at(10),
            link: Some(to.to_vec()),
        };
        let there = |kind| ListingEntry {
            name: b"a".to_vec(),
            kind,
            size_bytes: None,
            modified: at(20),
        };
        let target = Some(b"x".to_vec());
        let linked = there(EntryKind::Symlink { target });
        let decide =
            |file: &File, there: &ListingEntry| decide(file, Some(there), &PlanOptions::default());
        assert_eq!(decide(&link(b"x"), &linked), FileDecision::Skip);
        assert_eq!(decide(&link(b"y"), &linked), FileDecision::Move);
        let file = there(EntryKind::File);
        assert_eq!(
            decide(&link(b"x"), &file),
            FileDecision::Conflict(EntryKind::File)
        );
    }

    #[test]
    fn what_is_newer_is_kept_if_that_is_wanted() {
        assert_eq!(
            decide_for((5, at(10)), (6, at(20)), true),
            FileDecision::KeepNewer
        );
        assert_eq!(
            decide_for((5, at(20)), (6, at(10)), true),
            FileDecision::Move
        );
        assert_eq!(
            decide_for((5, at(10)), (6, at(20)), false),
            FileDecision::Move
        );
    }
}

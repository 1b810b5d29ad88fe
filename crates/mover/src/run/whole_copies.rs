//! Tests of small files between two folders of an in-memory disk. Each file is copied in one call.

use std::{collections::BTreeMap, sync::Arc};

use super::{JobProgress, JobSummary, job_context::JobContext, run_with};
use crate::{
    disk::faulty::FaultyDisk,
    fence::Fence,
    job::{CopyOptions, CopyVerification, Job, JobSite, Root, RootTarget},
    plan::{ContentProof, FileEvent, FileOutcome, PlanOptions},
};

/// Creates a disk with a file `/from/a`, and the job that copies the folder `/from`.
fn world(verify: CopyVerification) -> (FaultyDisk, Job) {
    let disk = FaultyDisk::new(1);
    disk.put_folder("/there/to");
    disk.put("/from/a", b"content", 7);
    let target = RootTarget::new(b"/there/to".to_vec(), b"from".to_vec());
    let job = Job {
        source: JobSite::Local,
        destination: JobSite::Local,
        roots: vec![Root {
            source: b"/from".to_vec(),
            destination: target,
        }],
        files: None,
        plan: PlanOptions {
            retries: 0,
            ..PlanOptions::default()
        },
        moving: CopyOptions {
            verify,
            ..CopyOptions::default()
        },
        sharing: None,
        session_pool: None,
        fence: None,
    };
    (disk, job)
}

/// Runs a job. Returns the job's summary and the evidence of equality for each copy.
fn run(disk: &FaultyDisk, job: Job) -> (JobSummary, Vec<ContentProof>) {
    let progress = Arc::new(JobProgress::new(None));
    let shared = JobContext::new(Arc::new(job), None, progress, Arc::new(disk.clone()));
    let mut proofs = Vec::new();
    let tell = |note: Option<FileEvent>, _| {
        if let Some(FileEvent {
            result: FileOutcome::Moved(_, proof),
            ..
        }) = note
        {
            proofs.push(proof);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let summary = runtime.block_on(run_with(shared, std::future::pending(), tell));
    (summary, proofs)
}

fn only(path: &str, content: &[u8]) -> BTreeMap<String, Vec<u8>> {
    [(path.to_owned(), content.to_vec())].into()
}

#[test]
fn a_source_that_changes_during_its_copy_is_copied_again() {
    let (disk, job) = world(CopyVerification::Size);
    disk.change_after_write("/from/a", b"changed content");
    let (summary, proofs) = run(&disk, job);
    assert_eq!(
        (summary.tally.failed, proofs),
        (0, vec![ContentProof::Size])
    );
    assert_eq!(disk.files("/there/to"), only("/a", b"changed content"));
}

#[test]
fn a_source_that_changes_during_an_unverified_copy_is_not_removed() {
    let (disk, mut job) = world(CopyVerification::None);
    job.plan.removes_source = true;
    disk.change_after_write("/from/a", b"changed content");
    let (_, proofs) = run(&disk, job);
    assert_eq!(proofs, [ContentProof::None]);
    assert_eq!(disk.files("/there/to"), only("/a", b"content"));
    assert_eq!(disk.files("/from"), only("/a", b"changed content"));
}

#[test]
fn a_copy_without_verification_has_no_proof() {
    let (disk, job) = world(CopyVerification::None);
    let (summary, proofs) = run(&disk, job);
    assert_eq!(
        (summary.tally.failed, proofs),
        (0, vec![ContentProof::None])
    );
    assert_eq!(disk.files("/there/to"), only("/a", b"content"));
}

#[test]
fn a_refused_fence_leaves_neither_a_name_nor_a_part() {
    for verify in [CopyVerification::None, CopyVerification::Size] {
        let (disk, mut job) = world(verify);
        job.plan.removes_source = true;
        job.fence = Some(Fence::new(|| Box::pin(async { false })));
        let (summary, proofs) = run(&disk, job);
        assert_eq!((summary.tally.failed, proofs), (1, vec![]));
        assert_eq!(disk.files("/there/to"), BTreeMap::new());
        assert_eq!(disk.files("/from"), only("/a", b"content"));
    }
}

#[test]
fn a_copy_whose_part_has_a_taken_name_uses_another_name() {
    let (disk, job) = world(CopyVerification::Size);
    // Without locks, a process may be writing to any existing part.
    disk.lack_locks();
    let part = job.moving.partial(b"/from/a", b"/there/to/a");
    let part = String::from_utf8(part).expect("a name of ours");
    disk.put(&part, b"of another process", 7);
    let (summary, _) = run(&disk, job);
    assert_eq!(summary.tally.failed, 0);
    let mut files = disk.files("/there");
    let taken = files.remove(part.strip_prefix("/there").expect("it is below"));
    assert_eq!(taken.as_deref(), Some(&b"of another process"[..]));
    assert_eq!(files, only("/to/a", b"content"));
}

#[test]
fn a_copy_replaces_an_older_file() {
    let (disk, job) = world(CopyVerification::Size);
    disk.put("/there/to/a", b"old", 5);
    let (summary, _) = run(&disk, job);
    assert_eq!(summary.tally.failed, 0);
    assert_eq!(disk.files("/there/to"), only("/a", b"content"));
}

#[test]
fn a_move_leaves_a_source_that_a_process_writes_to() {
    let (disk, mut job) = world(CopyVerification::Size);
    job.plan.removes_source = true;
    disk.open_elsewhere("/from/a");
    let (summary, proofs) = run(&disk, job);
    let tally = summary.tally;
    assert_eq!((tally.failed, tally.unsettled, proofs), (0, 1, vec![]));
    assert_eq!(disk.files("/there/to"), BTreeMap::new());
    assert_eq!(disk.files("/from"), only("/a", b"content"));
}

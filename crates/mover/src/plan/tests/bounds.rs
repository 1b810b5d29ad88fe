//! Tests of the limits that protect a job from a misbehaving server. Such a server refuses some
//! connections, sends endless listings, or hides its directories.

use super::*;

/// A plan with its pending actions.
struct PlannerHarness {
    planner: Planner,
    now: Instant,
    opening: Vec<usize>,
    work: Vec<(usize, TaskId, Task)>,
}

impl PlannerHarness {
    fn new(roots: usize, options: PlanOptions) -> Self {
        let mut desk = Self {
            planner: Planner::new(roots, options),
            now: Instant::now(),
            opening: Vec::new(),
            work: Vec::new(),
        };
        desk.ask();
        desk
    }

    fn ask(&mut self) {
        while let Some(action) = self.planner.poll(self.now) {
            match action {
                PlannerAction::Open { lane } => self.opening.push(lane),
                PlannerAction::Work { lane, id, task } => self.work.push((lane, id, task)),
            }
        }
    }

    /// Selects the lane that has been opening for the longest time. Reports that this lane is open.
    fn open(&mut self) {
        let lane = self.opening.remove(0);
        self.planner
            .handle(lane, LaneEvent::Opened { depth: 1 }, self.now);
        self.ask();
    }

    fn refuse(&mut self, retry_action: RetryAction) {
        let lane = self.opening.remove(0);
        let event = LaneEvent::Refused(failure(retry_action));
        self.planner.handle(lane, event, self.now);
        self.ask();
    }

    /// Reports that the first running task has ended with this result.
    fn done(&mut self, outcome: TaskResult) -> Task {
        let (lane, id, task) = self.work.remove(0);
        self.planner
            .handle(lane, LaneEvent::Done(id, outcome), self.now);
        self.ask();
        task
    }

    fn fail(&mut self, retry_action: RetryAction) -> Task {
        let (lane, id, task) = self.work.remove(0);
        let event = LaneEvent::Failed(id, failure(retry_action));
        self.planner.handle(lane, event, self.now);
        self.ask();
        task
    }

    fn found(&mut self, entries: Vec<ListingEntry>) {
        let (lane, id, _) = self.work[0];
        self.planner
            .handle(lane, LaneEvent::Found(id, entries), self.now);
        self.ask();
    }

    fn failures(&mut self) -> Vec<String> {
        let notes = std::iter::from_fn(|| self.planner.next_file_event());
        let failures = notes.filter_map(|note| match note.result {
            FileOutcome::Failed(reason) => Some(format!("{}: {reason}", note.path)),
            _ => None,
        });
        failures.collect()
    }

    /// Makes the plan enter the root, a directory. `is_there` states whether the destination has
    /// it.
    fn enter(&mut self, is_there: bool) {
        self.open();
        self.done(TaskResult::Probed(RootKind::Directory { is_there }));
    }
}

fn lanes(lanes_max: usize) -> PlanOptions {
    PlanOptions {
        lanes_max,
        ..PlanOptions::default()
    }
}

fn directory(name: &str) -> ListingEntry {
    entry(name.as_bytes(), EntryKind::Directory, None, 0)
}

fn file(name: &str) -> ListingEntry {
    entry(name.as_bytes(), EntryKind::File, Some(1), 0)
}

const ENDED: TaskResult = TaskResult::Ended { not_understood: 0 };

#[test]
fn one_lane_logs_in_before_the_others_try() {
    let mut desk = PlannerHarness::new(4, lanes(4));
    assert_eq!(desk.opening, [0]);
    desk.open();
    assert_eq!(desk.opening, [1, 2, 3]);
}

#[test]
fn a_log_in_that_is_refused_leaves_lanes_that_still_connect_their_chance() {
    let mut desk = PlannerHarness::new(5, lanes(4));
    desk.open();
    assert_eq!(desk.opening, [1, 2, 3]);
    // The only connected lane fails, and the next lane is refused. Two lanes are still connecting.
    desk.fail(RetryAction::Reconnect);
    desk.refuse(RetryAction::GiveUpServer);
    assert!(!desk.planner.is_finished());
    assert_eq!(desk.failures(), [""; 0]);
    desk.open();
    assert!(!desk.work.is_empty(), "what waits is done");
}

/// A server may refuse a log-in while it still counts connections that a network outage has ended.
#[test]
fn a_log_in_refused_after_one_has_worked_is_repeated_within_bounds() {
    let mut desk = PlannerHarness::new(5, lanes(3));
    desk.open();
    desk.fail(RetryAction::Reconnect);
    let mut alone = 0;
    while !desk.planner.is_finished() {
        assert!(alone < 100, "the attempts are bounded");
        if desk.opening.is_empty() {
            desk.now += Duration::from_secs(60);
            desk.ask();
        } else {
            desk.refuse(RetryAction::LogInAgain);
            alone += 1;
        }
    }
    assert!(alone > 5, "{alone} attempts");
    assert_eq!(desk.failures().len(), 5);
}

#[test]
fn a_job_goes_on_once_a_refused_log_in_works_again() {
    let mut desk = PlannerHarness::new(2, lanes(1));
    desk.open();
    desk.fail(RetryAction::Reconnect);
    for _ in 0..3 {
        desk.refuse(RetryAction::LogInAgain);
        assert!(!desk.planner.is_finished());
        desk.now += Duration::from_secs(60);
        desk.ask();
    }
    desk.open();
    assert!(!desk.work.is_empty(), "what waits is done");
    assert_eq!(desk.failures(), [""; 0]);
}

/// A missing or changed certificate does not mean that the server is full.
#[test]
fn a_server_that_fails_for_good_ends_the_job_also_after_a_log_in() {
    let mut desk = PlannerHarness::new(5, lanes(3));
    desk.open();
    desk.fail(RetryAction::Reconnect);
    while !desk.opening.is_empty() {
        desk.refuse(RetryAction::GiveUpServer);
    }
    assert!(desk.planner.is_finished());
    assert_eq!(desk.failures().len(), 5);
}

#[test]
fn the_first_log_in_refused_ends_the_job() {
    let mut desk = PlannerHarness::new(5, lanes(3));
    desk.refuse(RetryAction::LogInAgain);
    assert!(desk.planner.is_finished());
    assert_eq!(desk.failures().len(), 5);
}

#[test]
fn a_server_that_was_full_is_asked_again_after_a_while() {
    let mut desk = PlannerHarness::new(100, lanes(4));
    desk.open();
    assert_eq!(desk.opening.len(), 3);
    desk.open();
    desk.refuse(RetryAction::FewerConnections);
    desk.open();
    assert_eq!(desk.opening, [0; 0], "three are up, and no more may be");
    for _ in 0..40 {
        desk.done(TaskResult::Probed(RootKind::Missing));
    }
    assert_eq!(desk.opening, [0; 0]);
    desk.now += Duration::from_secs(180);
    desk.done(TaskResult::Probed(RootKind::Missing));
    assert_eq!(desk.opening.len(), 1, "one more");
    desk.refuse(RetryAction::FewerConnections);
    desk.now += Duration::from_secs(60);
    desk.done(TaskResult::Probed(RootKind::Missing));
    assert_eq!(desk.opening, [0; 0], "not so soon");
    assert_eq!(desk.work.len(), 3, "none of those that were up is lost");
}

#[test]
fn directories_end_at_a_depth_and_paths_at_a_length() {
    let mut desk = PlannerHarness::new(1, lanes(1));
    desk.enter(true);
    let mut depth = 0;
    while let Some((_, _, task)) = desk.work.first() {
        match task {
            Task::ListDestination(_) => drop(desk.done(TaskResult::Listed(vec![directory("d")]))),
            Task::ListSource(_) => {
                desk.found(vec![directory("d")]);
                desk.done(ENDED);
                depth += 1;
            }
            other => panic!("{other:?}"),
        }
        assert!(depth <= DEPTH_MAX + 1, "without end");
    }
    assert_eq!(depth, DEPTH_MAX + 1, "the root, and those below it");
    let failures = desk.failures();
    assert!(
        failures[0].ends_with("deeper than 256 directories"),
        "{failures:?}"
    );

    let mut desk = PlannerHarness::new(1, lanes(1));
    desk.enter(false);
    for _ in 0..17 {
        desk.found(vec![directory(&"d".repeat(250))]);
        desk.done(ENDED);
    }
    let failures = desk.failures();
    assert!(
        failures[0].ends_with("its path is longer than 4096 bytes"),
        "{failures:?}"
    );
    assert!(desk.planner.is_finished());
}

#[test]
fn a_directory_with_too_many_entries_fails_and_the_rest_goes_on() {
    let mut desk = PlannerHarness::new(1, lanes(1));
    desk.planner.limits.entries_there_max = 3;
    desk.planner.limits.entries_max = 3;
    desk.enter(true);
    let names = ["a", "b", "c", "d"];
    desk.done(TaskResult::Listed(names.map(file).to_vec()));
    let failures = desk.failures();
    assert_eq!(
        failures,
        [": the destination's directory has more than 3 entries"]
    );
    assert!(desk.planner.is_finished());

    let mut desk = PlannerHarness::new(1, lanes(1));
    desk.planner.limits.entries_max = 3;
    desk.enter(true);
    desk.done(TaskResult::Listed(Vec::new()));
    desk.found(names[..2].iter().map(|it| file(it)).collect());
    desk.found(["c", "d", "e"].map(file).to_vec());
    desk.found(["f", "g"].map(file).to_vec());
    assert_eq!(desk.failures(), [": the directory has more than 3 entries"]);
    desk.done(ENDED);
    let mut moved = 0;
    while !desk.planner.is_finished() {
        desk.done(TaskResult::Moved {
            bytes: 1,
            modified_unix_s: None,
            proof: ContentProof::Size,
        });
        moved += 1;
    }
    assert_eq!(moved, 3);
}

#[test]
fn directories_that_wait_have_a_bound() {
    let mut desk = PlannerHarness::new(1, lanes(1));
    desk.planner.limits.directories_waiting_max = 2;
    desk.enter(false);
    desk.found(["a", "b", "c"].map(directory).to_vec());
    assert_eq!(
        desk.failures(),
        ["c: more than 2 directories wait to be listed"]
    );
}

#[test]
fn files_that_wait_for_directories_hold_listings_up() {
    let mut desk = PlannerHarness::new(1, lanes(2));
    desk.enter(false);
    desk.found(vec![file("a")]);
    desk.open();
    desk.found(vec![directory("more")]);
    for at in 1..FILES_AHEAD {
        desk.found(vec![file(&format!("file {at}"))]);
    }
    let made = desk
        .work
        .iter()
        .position(|(_, _, it)| matches!(it, Task::Make(_)));
    assert_eq!(made, Some(1), "the other lane makes the directory");
    desk.done(ENDED);
    assert_eq!(
        desk.work.len(),
        1,
        "10,000 files wait, and nothing more is listed"
    );
    desk.done(TaskResult::Made);
    assert!(
        desk.work
            .iter()
            .any(|(_, _, it)| matches!(it, Task::Move(_)))
    );
}

#[test]
fn a_root_that_is_a_file_wants_its_directory_made_first() {
    let mut desk = PlannerHarness::new(3, lanes(1));
    desk.open();
    let probe = |above: Option<&[u8]>| {
        TaskResult::Probed(RootKind::File {
            size_bytes: Some(1),
            modified: None,
            there: None,
            above: above.map(<[u8]>::to_vec),
        })
    };
    desk.done(probe(Some(b"new")));
    desk.done(probe(Some(b"new")));
    desk.done(probe(None));
    let made = desk.done(TaskResult::Made);
    assert!(
        matches!(made, Task::MakeParents { root: 0, .. }),
        "{made:?}"
    );
    for _ in 0..3 {
        let moved = desk.done(TaskResult::Moved {
            bytes: 1,
            modified_unix_s: None,
            proof: ContentProof::Size,
        });
        assert!(matches!(moved, Task::Move(_)), "{moved:?}");
    }
    assert!(desk.planner.is_finished());

    let mut desk = PlannerHarness::new(2, lanes(1));
    desk.open();
    desk.done(probe(Some(b"new")));
    desk.done(probe(Some(b"new")));
    desk.fail(RetryAction::GiveUpFile);
    assert!(desk.planner.is_finished());
    assert_eq!(desk.planner.tally().failed, 2);
    let failure = ": its directory cannot be made: it was not to be";
    assert_eq!(desk.failures(), [failure; 2]);
}

#[test]
fn a_destination_that_does_not_list_takes_everything() {
    let mut desk = PlannerHarness::new(1, lanes(1));
    desk.enter(true);
    desk.fail(RetryAction::GiveUpFile);
    desk.found(vec![file("a"), directory("d")]);
    desk.done(ENDED);
    // The plan does not know whether the directory exists.
    desk.found(vec![file("b")]);
    desk.done(ENDED);
    let tasks: Vec<Task> = std::iter::from_fn(|| {
        let (_, _, task) = desk.work.first()?;
        let outcome = match task {
            Task::Make(_) => TaskResult::Made,
            _ => TaskResult::Moved {
                bytes: 1,
                modified_unix_s: None,
                proof: ContentProof::Size,
            },
        };
        Some(desk.done(outcome))
    })
    .collect();
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    let tally = desk.planner.tally();
    assert_eq!((tally.moved, tally.failed), (2, 0));
    let notes: Vec<FileEvent> = std::iter::from_fn(|| desk.planner.next_file_event()).collect();
    let told = notes
        .iter()
        .filter(|it| matches!(it.result, FileOutcome::Unknown(_)));
    assert_eq!(told.count(), 1, "{notes:?}");
}

#[test]
fn an_entry_with_the_name_of_a_file_or_directory_is_reported() {
    let mut desk = PlannerHarness::new(1, lanes(1));
    desk.enter(true);
    let there = |name: &str, kind| entry(name.as_bytes(), kind, None, 0);
    let link = || EntryKind::Symlink { target: None };
    desk.done(TaskResult::Listed(vec![
        there("a", EntryKind::Directory),
        there("b", link()),
        there("c", EntryKind::Other),
        there("d", EntryKind::File),
        there("e", link()),
    ]));
    desk.found(vec![
        file("a"),
        file("b"),
        file("c"),
        directory("d"),
        directory("e"),
    ]);
    assert_eq!(
        desk.failures(),
        [
            "a: the destination has a directory with this name",
            "b: the destination has a symbolic link with this name",
            "c: the destination has a device or a socket with this name",
            "d: the destination has a file with this name",
            "e: the destination has a symbolic link with this name",
        ]
    );
}

/// Creates a harness with three lanes. One lane is connected and has the task to move a file.
fn with_a_file() -> PlannerHarness {
    let mut desk = PlannerHarness::new(1, lanes(3));
    desk.open();
    desk.done(TaskResult::Probed(RootKind::File {
        size_bytes: Some(300),
        modified: None,
        there: None,
        above: None,
    }));
    desk
}

/// Assigns all bytes of a file to the first lane as one piece. Also returns the file.
fn with_a_piece() -> (PlannerHarness, File) {
    let mut desk = with_a_file();
    let Task::Move(file) = desk.done(TaskResult::Split(vec![Piece { begin: 0, end: 300 }])) else {
        panic!("the file is moved first");
    };
    (desk, file)
}

/// Creates a harness whose first lane moves a file in pieces. Requests the help of `count` further
/// lanes.
fn with_helpers(count: usize) -> (PlannerHarness, File) {
    let (mut desk, file) = with_a_piece();
    desk.planner.help(&file, count);
    desk.ask();
    (desk, file)
}

fn is_help(task: &Task) -> bool {
    matches!(task, Task::Help(_))
}

#[test]
fn a_file_in_pieces_opens_one_connection_until_more_are_asked_for() {
    let (mut desk, file) = with_a_piece();
    assert_eq!((desk.opening.len(), desk.work.len()), (0, 1));
    desk.planner.help(&file, 1);
    desk.ask();
    assert_eq!(desk.opening.len(), 1);
    desk.open();
    assert!(is_help(&desk.work[1].2));
}

#[test]
fn helpers_of_a_file_have_a_bound() {
    let (mut desk, file) = with_helpers(9);
    desk.planner.help(&file, 9);
    assert_eq!(desk.planner.queue.helpers(&file), 2);
    desk.ask();
    desk.open();
    desk.open();
    desk.planner.help(&file, 9);
    assert_eq!(desk.planner.queue.waiting(), 0, "two of three lanes help");
}

#[test]
fn a_file_in_pieces_is_whole_once_its_pieces_are() {
    let (mut desk, file) = with_helpers(2);
    desk.open();
    assert!(is_help(&desk.work[1].2));
    desk.done(TaskResult::Arrived);
    assert!(desk.work.iter().any(|it| matches!(it.2, Task::Join(_))));
    assert_eq!(desk.planner.queue.helpers(&file), 0);
    desk.planner.help(&file, 2);
    assert_eq!(desk.planner.queue.helpers(&file), 0, "it is whole");
}

#[test]
fn a_file_has_its_name_before_the_next_one_begins() {
    let mut desk = PlannerHarness::new(2, lanes(1));
    desk.open();
    for _ in 0..2 {
        desk.done(TaskResult::Probed(RootKind::File {
            size_bytes: Some(300),
            modified: None,
            there: None,
            above: None,
        }));
    }
    desk.done(TaskResult::Split(vec![Piece { begin: 0, end: 300 }]));
    let Task::MovePiece(file, _) = &desk.work[0].2 else {
        panic!("the piece is first: {:?}", desk.work);
    };
    desk.planner.help(&file.clone(), 1);
    desk.done(TaskResult::Arrived);
    assert!(matches!(desk.work[0].2, Task::Join(_)), "{:?}", desk.work);
    let moved = TaskResult::Moved {
        bytes: 300,
        modified_unix_s: None,
        proof: ContentProof::Size,
    };
    desk.done(moved);
    assert!(matches!(desk.work[0].2, Task::Move(_)), "{:?}", desk.work);
}

#[test]
fn a_helper_that_fails_fails_no_file() {
    for retry_action in [
        RetryAction::Retry,
        RetryAction::Reconnect,
        RetryAction::FewerTransfers,
        RetryAction::FewerConnections,
        RetryAction::GiveUpFile,
        RetryAction::LogInAgain,
        RetryAction::GiveUpServer,
    ] {
        let (mut desk, _) = with_helpers(1);
        desk.open();
        let (lane, id, task) = desk.work.pop().expect("a lane helps");
        assert!(is_help(&task));
        let failure = TaskFailure {
            is_anew: retry_action == RetryAction::Retry,
            ..failure(retry_action)
        };
        desk.planner
            .handle(lane, LaneEvent::Failed(id, failure), desk.now);
        desk.ask();
        assert_eq!(desk.failures(), [""; 0], "{retry_action:?}");
        assert!(desk.opening.is_empty(), "{retry_action:?}");
        desk.done(TaskResult::Arrived);
        assert!(matches!(desk.work[0].2, Task::Join(_)), "{retry_action:?}");
    }
}

#[test]
fn other_files_come_before_help_with_one_in_pieces() {
    let (mut desk, file) = with_helpers(2);
    desk.planner.queue.push(QueuedTask::new(Task::Move(file)));
    desk.open();
    assert!(matches!(desk.work[1].2, Task::Move(_)));
    desk.open();
    assert!(is_help(&desk.work[2].2));
}

#[test]
fn no_connection_is_opened_for_help_after_a_refusal() {
    let (mut desk, file) = with_helpers(2);
    assert_eq!(desk.opening.len(), 2);
    desk.refuse(RetryAction::FewerConnections);
    desk.refuse(RetryAction::Reconnect);
    for _ in 0..100 {
        desk.now += Duration::from_secs(60);
        desk.ask();
    }
    assert_eq!(desk.opening, [0; 0]);
    desk.planner.help(&file, 2);
    desk.ask();
    assert_eq!(desk.opening.len(), 1, "one at a time is tried");
}

/// In this test, the server accepts only two connections.
#[test]
fn a_connection_for_help_that_opens_after_the_refusal_of_others_helps() {
    let (mut desk, _) = with_helpers(2);
    assert_eq!(desk.opening.len(), 2);
    desk.refuse(RetryAction::FewerConnections);
    desk.open();
    assert!(desk.work.iter().any(|it| is_help(&it.2)));
}

/// In this test, a server repeatedly refuses a second connection while the first connection
/// transfers a file.
#[test]
fn refusals_beside_an_open_connection_do_not_end_the_job() {
    let (mut desk, file) = with_a_piece();
    for _ in 0..20 {
        desk.planner.help(&file, 1);
        desk.now += Duration::from_secs(300);
        desk.ask();
        if !desk.opening.is_empty() {
            desk.refuse(RetryAction::FewerConnections);
        }
    }
    desk.fail(RetryAction::Reconnect);
    desk.now += Duration::from_secs(60);
    desk.ask();
    desk.refuse(RetryAction::FewerConnections);
    assert_eq!(desk.failures(), [""; 0]);
    desk.now += Duration::from_secs(60);
    desk.ask();
    desk.open();
    desk.done(TaskResult::Arrived);
    assert!(desk.work.iter().any(|it| matches!(it.2, Task::Join(_))));
}

//! Tests of jobs with a real OpenSSH server on loopback.

mod installed {
    use std::{
        fs,
        os::unix::{
            ffi::OsStrExt as _,
            fs::{MetadataExt as _, PermissionsExt as _},
        },
        path::Path,
        time::{Duration, SystemTime},
    };

    use mover::{
        job::{CopyVerification, JobSite, RootTarget},
        plan::{ContentProof, Deletion, FileOutcome, JobPurpose},
        run::{Browser, clean},
        sftp::HostKeyRule,
    };

    use crate::common::{
        CopyResult, World, content, job, name, openssh::OpenSshServer, tree, write,
    };

    fn set_time(path: &Path, unix_s: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s);
        let file = fs::File::options().write(true).open(path).expect("a file");
        file.set_modified(time).expect("set");
    }

    fn times(folder: &Path) -> Vec<(Vec<u8>, i64)> {
        let found = tree(folder);
        let files = found.into_iter().filter(|(_, content)| content.is_some());
        let with_time = files.map(|(path, _)| {
            let at = folder.join(name(&path));
            let time = fs::metadata(at).expect("a file").mtime();
            (path, time)
        });
        with_time.collect()
    }

    fn assert_moved(copied: &CopyResult, moved: u64, same: u64) {
        let tally = copied.summary.tally;
        let found = (tally.moved, tally.same, tally.failed);
        assert_eq!(found, (moved, same, 0), "{:?}", copied.failures());
    }

    /// Writes a tree with small files, a large file, and names with every byte that a file system
    /// permits. Returns the number of files.
    fn write_tree(folder: &Path) -> u64 {
        let every_byte: Vec<u8> = (1..=255).filter(|it| *it != b'/').collect();
        let mut count = 0;
        let mut add = |path: &Path, bytes: &[u8]| {
            write(path, bytes);
            set_time(path, 1_000_000_000 + count);
            count += 1;
        };
        for number in 0..150 {
            let path = format!("{}/file {number}", number % 7);
            add(&folder.join(path), &content(number * 37));
        }
        for part in every_byte.chunks(100) {
            add(&folder.join(name(part)), part);
        }
        add(&folder.join("deep/er/large"), &content(3_000_000));
        add(&folder.join("empty"), b"");
        count
    }

    #[test]
    fn a_tree_goes_up_and_down_with_its_times_and_is_not_moved_twice() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        let (here, back) = (world.here("tree"), world.here("back"));
        let count = write_tree(&here);
        assert_moved(&world.run(server.upload(&here, "tree")), count, 0);
        let there = server.at_server("tree");
        assert!(tree(&there) == tree(&here));
        assert_eq!(times(&there), times(&here));
        assert_moved(&world.run(server.upload(&here, "tree")), 0, count);
        assert_moved(&world.run(server.download("tree", &back)), count, 0);
        assert!(tree(&back) == tree(&here));
        assert_eq!(times(&back), times(&here));
        assert_moved(&world.run(server.download("tree", &back)), 0, count);
    }

    #[test]
    fn an_interrupted_upload_is_resumed() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        let film = content(SIZE);
        write(&world.here("film"), &film);
        set_time(&world.here("film"), 1_500_000_000);
        let slow = |mut job: mover::job::Job| {
            job.moving.rate_max = Some("40M".parse().expect("a rate"));
            job
        };
        let first = slow(server.upload(&world.here("film"), "film"));
        let first = world.run_until(first, SIZE as u64 / 2);
        assert!(first.summary.is_interrupted);
        assert!(!server.at_server("film").exists());
        let parts = tree(&server.at_server(""));
        let part = parts.values().next().and_then(Option::as_ref);
        assert!(part.is_some_and(|it| it.len() > 1_000_000), "a part stays");
        let second = world.run(server.upload(&world.here("film"), "film"));
        assert_moved(&second, 1, 0);
        assert!(second.moved_bytes < SIZE as u64, "{}", second.moved_bytes);
        assert!(fs::read(server.at_server("film")).expect("it is there") == film);
        assert_eq!(tree(&server.at_server("")).len(), 1, "no part is left");
        let time = fs::metadata(server.at_server("film"));
        assert_eq!(time.expect("a file").mtime(), 1_500_000_000);
    }

    #[test]
    fn an_interrupted_download_is_resumed() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        let film = content(SIZE);
        write(&server.at_server("film"), &film);
        let mut slow = server.download("film", &world.here("film"));
        slow.moving.rate_max = Some("40M".parse().expect("a rate"));
        let first = world.run_until(slow, SIZE as u64 / 2);
        assert!(first.summary.is_interrupted);
        let second = world.run(server.download("film", &world.here("film")));
        assert_moved(&second, 1, 0);
        assert!(second.moved_bytes < SIZE as u64, "{}", second.moved_bytes);
        assert!(fs::read(world.here("film")).expect("it is there") == film);
        assert_eq!(tree(&world.here("")).len(), 1, "no part is left");
    }

    #[test]
    fn the_parts_of_an_interrupted_upload_are_cleaned() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        write(&world.here("film"), &content(SIZE));
        let mut slow = server.upload(&world.here("film"), "film");
        slow.moving.rate_max = Some("40M".parse().expect("a rate"));
        world.run_until(slow, SIZE as u64 / 2);
        assert_eq!(tree(&server.at_server("")).len(), 1);
        let job = server.upload(&world.here("film"), "film");
        let journal = world.journal();
        let cleaned = world.block_on(clean(&job, Some(&journal)));
        assert_eq!(cleaned.expect("a server").removed, 1);
        assert_eq!(tree(&server.at_server("")).len(), 0);
    }

    #[test]
    fn a_sync_deletes_and_replaces_and_a_check_agrees() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        let (here, there) = (world.here("tree"), server.at_server("tree"));
        for path in ["a", "sub/b", "file or folder", "folder or file/x"] {
            write(&here.join(path), path.as_bytes());
        }
        fs::create_dir_all(here.join("empty/inside")).expect("room");
        for path in ["a", "extra", "old/x/y", "file or folder/was/here"] {
            write(&there.join(path), b"other");
        }
        write(&there.join("folder or file"), b"a file");
        let purpose = |purpose: JobPurpose| {
            let mut job = server.upload(&here, "tree");
            job.plan.purpose = purpose;
            job
        };
        let deletion = Deletion {
            max: "100%".parse().expect("a limit"),
            takes_excluded: false,
            trusts_empty: false,
        };
        let check = || JobPurpose::Check {
            compares_content: true,
        };
        let differs = world.run(purpose(check())).summary.tally;
        assert!(differs.differing > 0 && differs.missing > 0 && differs.surplus > 0);
        let synced = world.run(purpose(JobPurpose::Sync {
            deletion: Some(deletion),
        }));
        assert_eq!(synced.summary.tally.failed, 0, "{:?}", synced.failures());
        assert!(tree(&there) == tree(&here));
        let agrees = world.run(purpose(check())).summary.tally;
        let others = agrees.differing + agrees.missing + agrees.surplus;
        assert_eq!((agrees.failed, others), (0, 0));
    }

    #[test]
    fn files_go_between_sftp_and_ftp_servers_and_between_sftp_servers() {
        let (world, one, other) = (
            World::new(),
            OpenSshServer::start(""),
            OpenSshServer::start(""),
        );
        let from = one.at_server("tree");
        for number in 0..20 {
            write(&from.join(format!("{number}")), &content(number * 100));
        }
        write(&from.join("large"), &content(2_000_000));
        let ftp = || JobSite::Server(Box::new(world.dial()));
        let target = |path: &[u8]| RootTarget::new(path.to_vec(), b"tree".to_vec());
        let by_sftp = job(
            one.site(),
            other.site(),
            (one.place("tree"), target(&other.place("t"))),
        );
        assert_moved(&world.run(by_sftp), 21, 0);
        assert!(tree(&other.at_server("t")) == tree(&from));
        let to_ftp = job(one.site(), ftp(), (one.place("tree"), target(b"t")));
        assert_moved(&world.run(to_ftp), 21, 0);
        assert!(tree(&world.at_server("t")) == tree(&from));
        let to_sftp = job(
            ftp(),
            other.site(),
            (b"t".to_vec(), target(&other.place("u"))),
        );
        assert_moved(&world.run(to_sftp), 21, 0);
        assert!(tree(&other.at_server("u")) == tree(&from));
    }

    #[test]
    fn a_copy_is_read_back_where_the_server_makes_no_hashes() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        write(&world.here("film"), &content(2_000_000));
        for verify in [CopyVerification::Hash, CopyVerification::ReadBack] {
            let mut job = server.upload(&world.here("film"), "film");
            job.moving.verify = verify;
            job.plan.purpose = JobPurpose::Copy;
            let _ = fs::remove_file(server.at_server("film"));
            let copied = world.run(job);
            assert_moved(&copied, 1, 0);
            let is_read = |note: &mover::plan::FileEvent| {
                matches!(note.result, FileOutcome::Moved(_, ContentProof::Content))
            };
            assert!(copied.notes.iter().any(is_read), "{:?}", copied.notes);
        }
    }

    #[test]
    fn a_file_that_the_server_refuses_fails_alone_with_its_reason() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        for name in ["a", "b", "c"] {
            write(&world.here("tree").join(name), name.as_bytes());
        }
        // The final name is a directory, so it cannot be replaced.
        write(&server.at_server("tree/b/inside"), b"x");
        let mut job = server.upload(&world.here("tree"), "tree");
        job.plan.retries = 0;
        let copied = world.run(job);
        let tally = copied.summary.tally;
        assert_eq!((tally.moved, tally.failed), (2, 1), "{:?}", copied.notes);
        assert!(server.at_server("tree/c").is_file());
    }

    #[test]
    fn links_are_skipped_or_followed() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        write(&server.at_server("tree/file"), b"content");
        for (target, link) in [("file", "link"), ("nowhere", "dangling"), (".", "loop")] {
            let link = server.at_server("tree").join(link);
            std::os::unix::fs::symlink(target, link).expect("room");
        }
        let copied = world.run(server.download("tree", &world.here("skipped")));
        assert_eq!(copied.summary.tally.moved, 1, "{:?}", copied.notes);
        let mut job = server.download("tree", &world.here("followed"));
        job.plan.links = mover::plan::Links::Follow;
        world.run(job);
        let found = fs::read(world.here("followed/link")).expect("followed");
        assert_eq!(found, b"content");
    }

    #[test]
    fn the_mode_of_a_replaced_file_stays() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        write(&world.here("script"), b"#!/bin/sh\n");
        write(&server.at_server("script"), b"old");
        let mode = fs::Permissions::from_mode(0o750);
        fs::set_permissions(server.at_server("script"), mode).expect("set");
        assert_moved(
            &world.run(server.upload(&world.here("script"), "script")),
            1,
            0,
        );
        let metadata = fs::metadata(server.at_server("script")).expect("a file");
        assert_eq!(metadata.mode() & 0o777, 0o750);
        assert_eq!(metadata.len(), 10);
    }

    #[test]
    fn a_browser_lists_looks_and_deletes() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        write(&server.at_server("tree/file"), b"content");
        world.block_on(async {
            let mut browser = Browser::open(&server.site(), None)
                .await
                .expect("a session");
            let path = server.place("tree");
            let mut names = Vec::new();
            let take = |entries: Vec<ftp::listing::ListingEntry>| {
                names.extend(entries.into_iter().map(|it| it.name));
            };
            let listed = browser.list(&path, take).await;
            assert_eq!(
                (listed.expect("a folder"), names),
                (0, vec![b"file".to_vec()])
            );
            let place = browser.place(&[&path[..], b"/../tree/new"].concat()).await;
            let real = fs::canonicalize(server.at_server("tree")).expect("a folder");
            let real = [real.as_os_str().as_bytes(), b"/new"].concat();
            assert_eq!(place.expect("a place"), real);
            browser
                .delete(&server.place("tree/file"))
                .await
                .expect("deleted");
            let gone = browser.look(&server.place("tree/file")).await;
            assert_eq!(gone.expect("an answer"), None);
            browser.remove_directory(&path).await.expect("removed");
            browser.close().await;
        });
        assert!(!server.at_server("tree").exists());
    }

    #[test]
    fn a_host_key_that_is_unknown_or_has_changed_ends_the_job_with_its_fingerprint() {
        let (world, server) = (World::new(), OpenSshServer::start(""));
        write(&world.here("file"), b"content");
        let known_hosts = server.path("known_hosts");
        let other = fs::read_to_string(server.path("id.pub")).expect("a key");
        let changed = format!("[127.0.0.1]:{} {other}", server.dial().server.port);
        for known in [String::new(), changed] {
            fs::write(&known_hosts, known).expect("room");
            let mut job = server.upload(&world.here("file"), "file");
            job.plan.retries = 0;
            let copied = world.run(job);
            assert_eq!(copied.summary.tally.failed, 1, "{:?}", copied.notes);
            let failures = copied.failures().join("\n");
            assert!(failures.contains("SHA256:"), "{failures}");
        }
        let mut dial = server.dial();
        dial.host_keys = HostKeyRule::Pinned(fingerprint(&server.path("host_key.pub")));
        let target = RootTarget::new(server.place("file"), b"file".to_vec());
        let source = world.here("file").as_os_str().as_bytes().to_vec();
        let pinned = job(
            JobSite::Local,
            JobSite::Sftp(Box::new(dial)),
            (source, target),
        );
        assert_moved(&world.run(pinned), 1, 0);
    }

    fn fingerprint(public_key: &Path) -> String {
        let mut keygen = std::process::Command::new("ssh-keygen");
        let told = keygen.arg("-lf").arg(public_key).output();
        let told = String::from_utf8(told.expect("it is installed").stdout).expect("text");
        told.split(' ').nth(1).expect("a fingerprint").to_owned()
    }

    const SIZE: usize = 12_000_000;
}

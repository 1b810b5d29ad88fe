//! Tests of listings without a job, with a real FTP server on loopback.

use ftp::listing::EntryKind;
use mover::{
    job::JobSite,
    run::{BrowseError, Browser},
};

use crate::common::{World, write};

#[test]
fn a_server_tells_what_it_has() {
    let world = World::new();
    write(&world.at_server("folder/a"), b"content");
    write(&world.at_server("folder/below/b"), b"");
    let site = JobSite::Server(Box::new(world.dial()));
    let looking = async {
        let mut browser = Browser::open(&site, None).await?;
        let mut found = Vec::new();
        let not_understood = browser
            .list(b"folder", |entries| found.extend(entries))
            .await?;
        assert_eq!(not_understood, 0);
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.name.as_slice(), &it.kind, it.size_bytes))
            .collect();
        assert_eq!(
            found,
            [
                (&b"a"[..], &EntryKind::File, Some(7)),
                (b"below", &EntryKind::Directory, None)
            ]
        );
        let file = browser.look(b"folder/a").await?.expect("a file");
        assert_eq!((file.kind, file.size_bytes), (EntryKind::File, Some(7)));
        assert_eq!(browser.look(b"folder/nothing").await?, None);
        let refused = browser.list(b"folder/nothing", |_| {}).await;
        assert!(matches!(refused, Err(BrowseError::Server(_))));
        let directory = browser.look(b"folder").await?.expect("a directory");
        assert_eq!(
            directory.kind,
            EntryKind::Directory,
            "the refusal harms nothing"
        );
        browser.close().await;
        Ok::<(), BrowseError>(())
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(looking).expect("the server answers");
}

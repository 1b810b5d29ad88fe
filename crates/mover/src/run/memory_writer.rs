//! Records of a run in the job's memory file: files that are about to move, and files that the
//! destination has.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::plan::{
    FileEvent, FileOutcome, JobCounts, Planner, RunMemory, StateStoreError, TakenFile, Task, TaskId,
};

/// Writer of records to a job's memory file. Does nothing if the job has no such file.
pub(super) struct MemoryWriter {
    memory: Option<Arc<dyn RunMemory>>,
}

impl MemoryWriter {
    pub(super) fn new(memory: Option<Arc<dyn RunMemory>>) -> Self {
        Self { memory }
    }

    /// Records the files of a task that are about to move. The function is called before a lane
    /// receives the task.
    pub(super) async fn begin(
        &self,
        work: &[(usize, TaskId, Task)],
    ) -> Result<(), StateStoreError> {
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        let moves = work.iter().filter_map(|(_, _, task)| match task {
            Task::Move(file) => Some(file.clone()),
            _ => None,
        });
        let files: Vec<_> = moves.collect();
        if files.is_empty() {
            return Ok(());
        }
        let memory = memory.clone();
        on_disk(move || memory.begin(&files)).await
    }

    /// Reports results after the job's memory file has recorded them. Therefore no source file is
    /// removed before its record exists.
    pub(super) async fn drain(
        &self,
        planner: &mut Planner,
        tell: &mut impl FnMut(Option<FileEvent>, JobCounts),
    ) -> Result<(), StateStoreError> {
        let mut notes = Vec::new();
        while let Some(note) = planner.next_file_event() {
            notes.push(note);
        }
        if let Some(memory) = &self.memory {
            let taken: Vec<TakenFile> = notes.iter().filter_map(taken).collect();
            if !taken.is_empty() {
                let memory = memory.clone();
                on_disk(move || memory.took(&taken)).await?;
            }
            let is_removed = |it: &&FileEvent| it.result == FileOutcome::Removed;
            let removed = notes.iter().filter(is_removed);
            let removed: Vec<_> = removed.map(|it| it.path.clone()).collect();
            if !removed.is_empty() {
                let memory = memory.clone();
                on_disk(move || memory.removed(&removed)).await?;
            }
        }
        for note in notes {
            tell(Some(note), planner.tally());
        }
        tell(None, planner.tally());
        Ok(())
    }
}

fn taken(note: &FileEvent) -> Option<TakenFile> {
    let (version, is_moved) = match note.result {
        FileOutcome::Moved(version, _) => (version, true),
        FileOutcome::Same(version) => (version, false),
        _ => return None,
    };
    Some(TakenFile {
        path: note.path.clone(),
        version,
        is_moved,
    })
}

async fn on_disk(
    work: impl FnOnce() -> Result<(), StateStoreError> + Send + 'static,
) -> Result<(), StateStoreError> {
    spawn_blocking(work)
        .await
        .expect("disk work does not panic")
}

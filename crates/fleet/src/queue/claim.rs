//! Who works on what. A claim counts attempts, also those whose worker was lost, and ends the work of a worker whose message
//! was given to another one.

use serde::{Deserialize, Serialize};

use super::{Queue, QueueError, random_name, table::Written};

/// A claim to some work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Who has it, or had it last.
    pub worker: String,
    /// Which attempt it is, from one on.
    pub attempt: u32,
    /// Since when, in seconds since 1970.
    pub since_unix_s: i64,
    /// How the attempt before ended, if it did.
    pub last_failure: Option<String>,
    /// Whether somebody works on it. Else it waits for its next attempt.
    pub is_held: bool,
    /// What is in the names of the parts of each attempt, the last one's at the end.
    pub marks: Vec<String>,
}

/// A claim that this worker has.
#[derive(Debug, Clone)]
pub struct Held {
    /// Tells the work from all other work.
    pub key: String,
    /// The claim.
    pub claim: Claim,
    revision: u64,
}

impl Held {
    /// Tells the claim from all others. Later claims have higher numbers.
    pub fn number(&self) -> u64 {
        self.revision
    }
}

impl Queue {
    /// Claims some work, whoever had it before. `None` if another worker claims it at the same moment.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn claim(
        &self,
        key: &str,
        worker: &str,
        now_unix_s: i64,
    ) -> Result<Option<Held>, QueueError> {
        let known = self.claims.get::<Claim>(key).await?;
        let revision = known.as_ref().map_or(0, |it| it.revision);
        let before = known.and_then(|it| it.value);
        let mut marks = before.as_ref().map_or_else(Vec::new, |it| it.marks.clone());
        marks.push(random_name());
        let first = marks.len().saturating_sub(MARKS_MAX);
        let claim = Claim {
            worker: worker.to_owned(),
            attempt: before.as_ref().map_or(1, |it| it.attempt.saturating_add(1)),
            since_unix_s: now_unix_s,
            last_failure: before.and_then(|it| match it.is_held {
                true => Some(format!("the worker {} was lost", it.worker)),
                false => it.last_failure,
            }),
            is_held: true,
            marks: marks.split_off(first),
        };
        match self.claims.put(key, &claim, revision).await? {
            Written::Outrun => Ok(None),
            Written::Done(revision) => Ok(Some(Held {
                key: key.to_owned(),
                claim,
                revision,
            })),
        }
    }

    /// Whether the work is still this worker's.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn holds(&self, held: &Held) -> Result<bool, QueueError> {
        let known = self.claims.get::<Claim>(&held.key).await?;
        Ok(known.is_some_and(|it| it.revision == held.revision))
    }

    /// The attempt has failed, and another follows. A worker that was told to end has made none. Returns whether the work was
    /// still this worker's.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn let_go(&self, held: &Held, failure: Option<String>) -> Result<bool, QueueError> {
        let mut claim = held.claim.clone();
        claim.is_held = false;
        match failure {
            None => claim.attempt = claim.attempt.saturating_sub(1),
            Some(_) => claim.last_failure = failure,
        }
        let put = self.claims.put(&held.key, &claim, held.revision).await?;
        Ok(put != Written::Outrun)
    }

    /// The work is done, or given up. A claim that another worker has stays. Returns whether the claim was this worker's.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn release(&self, held: &Held) -> Result<bool, QueueError> {
        self.claims.delete(held.revision).await
    }

    /// Attempts at some work begin anew.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn forget_attempts(&self, key: &str) -> Result<(), QueueError> {
        match self.claims.get::<Claim>(key).await? {
            Some(known) => self.claims.delete(known.revision).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The claims of a job, by their keys.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn claims(&self, job: &str) -> Result<Vec<(String, Claim)>, QueueError> {
        let found = self.claims.list::<Claim>(Some(job)).await?;
        let claims = found.into_iter();
        let claims = claims.filter_map(|(key, it)| Some((key, it.value?)));
        let mut claims: Vec<_> = claims.collect();
        claims.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(claims)
    }
}

/// Attempts whose parts are known; those of workers that were told to end do not count for what is given up.
const MARKS_MAX: usize = 100;

//! Claims of running work. A claim counts attempts, including attempts of lost workers. It ends the
//! work of a worker whose message was delivered to another one.

use serde::{Deserialize, Serialize};

use super::{PoolQueue, QueueError, random_name, table::WriteOutcome};

/// A claim to some work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Worker that has the claim, or had it last.
    pub worker: String,
    /// Number of the attempt, from one on.
    pub attempt: u32,
    /// Start of the attempt, in seconds since 1970.
    pub since_unix_s: i64,
    /// Reason why the attempt before has failed.
    pub last_failure: Option<String>,
    /// Whether a worker works on it. Otherwise the work waits for its next attempt.
    pub is_held: bool,
    /// Marks in the names of the parts of each attempt, the last one's at the end.
    pub marks: Vec<String>,
}

/// A claim of this worker.
#[derive(Debug, Clone)]
pub struct HeldClaim {
    /// Key of the work.
    pub key: String,
    /// The claim.
    pub claim: Claim,
    revision: u64,
}

impl HeldClaim {
    /// Returns the number of the claim. Later claims have higher numbers.
    pub fn number(&self) -> u64 {
        self.revision
    }
}

impl PoolQueue {
    /// Claims some work, from any earlier owner. `None` if another worker claims it at the same
    /// moment.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn claim(
        &self,
        key: &str,
        worker: &str,
        now_unix_s: i64,
    ) -> Result<Option<HeldClaim>, QueueError> {
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
            WriteOutcome::Conflict => Ok(None),
            WriteOutcome::Stored(revision) => Ok(Some(HeldClaim {
                key: key.to_owned(),
                claim,
                revision,
            })),
        }
    }

    /// Whether this worker still has the work.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn holds(&self, held: &HeldClaim) -> Result<bool, QueueError> {
        let known = self.claims.get::<Claim>(&held.key).await?;
        Ok(known.is_some_and(|it| it.revision == held.revision))
    }

    /// Records a failed attempt that another one follows. An interrupted worker has made no
    /// attempt. Returns whether this worker still had the work.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn release_for_retry(
        &self,
        held: &HeldClaim,
        failure: Option<String>,
    ) -> Result<bool, QueueError> {
        let mut claim = held.claim.clone();
        claim.is_held = false;
        match failure {
            None => claim.attempt = claim.attempt.saturating_sub(1),
            Some(_) => claim.last_failure = failure,
        }
        let put = self.claims.put(&held.key, &claim, held.revision).await?;
        Ok(put != WriteOutcome::Conflict)
    }

    /// Removes the claim of finished or failed work. A claim of another worker stays. Returns
    /// whether this worker had the claim.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn release(&self, held: &HeldClaim) -> Result<bool, QueueError> {
        self.claims.delete(held.revision).await
    }

    /// Resets the number of attempts at some work.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn forget_attempts(&self, key: &str) -> Result<(), QueueError> {
        match self.claims.get::<Claim>(key).await? {
            Some(known) => self.claims.delete(known.revision).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Returns the claims of a job with their keys.
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

/// Maximum number of attempts with known parts. Attempts of interrupted workers do not count as
/// failed.
const MARKS_MAX: usize = 100;

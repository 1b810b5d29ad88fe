//! Claims of batches and listings.
//!
//! A claim records which worker is working on a batch or a listing, and counts the attempts. The
//! count includes attempts of workers that were lost. If the queue delivers a message to a second
//! worker, the second worker's claim ends the work of the first.

use serde::{Deserialize, Serialize};

use super::{PoolQueue, QueueError, random_name, table::WriteOutcome};

/// A worker's claim to one batch or listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Name of the worker that made the claim.
    pub worker: String,
    /// Number of the attempt. The first attempt is 1.
    pub attempt: u32,
    /// Time at which the attempt started, in seconds of Unix time.
    pub since_unix_s: i64,
    /// Reason why the previous attempt failed.
    pub last_failure: Option<String>,
    /// Whether the worker is still working. If false, the batch or listing waits for its next
    /// attempt.
    pub is_held: bool,
    /// Random marks in the names of part files, one for each attempt. The mark of the last attempt
    /// is at the end.
    pub marks: Vec<String>,
}

/// A claim that this worker has made.
#[derive(Debug, Clone)]
pub struct HeldClaim {
    /// Key of the claimed batch or listing.
    pub key: String,
    /// The claim as it is stored at the server.
    pub claim: Claim,
    revision: u64,
}

impl HeldClaim {
    /// Returns the revision of the claim. A later claim has a higher revision.
    pub fn number(&self) -> u64 {
        self.revision
    }
}

impl PoolQueue {
    /// Claims a batch or a listing, even if another worker has claimed it before. Returns `None` if
    /// another worker claims it at the same moment.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
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

    /// Whether this worker's claim is still the latest claim.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn holds(&self, held: &HeldClaim) -> Result<bool, QueueError> {
        let known = self.claims.get::<Claim>(&held.key).await?;
        Ok(known.is_some_and(|it| it.revision == held.revision))
    }

    /// Marks the claim as waiting for another attempt. `failure` is the reason why this attempt
    /// failed. `None` means that this worker was interrupted. An interrupted attempt does not
    /// count. Returns whether this worker still had the claim.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
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

    /// Removes this worker's claim after the batch or listing has finished or failed. Removes
    /// nothing if another worker has claimed the work meanwhile. Returns whether this worker still
    /// had the claim.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn release(&self, held: &HeldClaim) -> Result<bool, QueueError> {
        self.claims.delete(held.revision).await
    }

    /// Removes the claim with this key, so that the count of attempts starts again.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn forget_attempts(&self, key: &str) -> Result<(), QueueError> {
        match self.claims.get::<Claim>(key).await? {
            Some(known) => self.claims.delete(known.revision).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Returns all claims of a job with their keys.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn claims(&self, job: &str) -> Result<Vec<(String, Claim)>, QueueError> {
        let found = self.claims.list::<Claim>(Some(job)).await?;
        let claims = found.into_iter();
        let claims = claims.filter_map(|(key, it)| Some((key, it.value?)));
        let mut claims: Vec<_> = claims.collect();
        claims.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(claims)
    }
}

/// Maximum number of marks in a claim. A claim can have more attempts than the limit on failed
/// attempts, because interrupted attempts do not count as failed.
const MARKS_MAX: usize = 100;

//! The pool of a fleet at a NATS server. A pool consists of four streams:
//!
//! - `LONGHAUL_JOBS_<pool>`, subjects `job.<pool>.<job>.order` and `job.<pool>.<job>.batch`: the
//!   queue. Each message is delivered to one worker at a time. All workers of the pool share one
//!   consumer.
//! - `LONGHAUL_DEAD_<pool>`, subjects `dead.<pool>.<job>.<work>`: the dead letters.
//! - `LONGHAUL_RECORDS_<pool>`, subjects `record.<pool>.<job>`: one [`JobRecord`] for each job.
//! - `LONGHAUL_CLAIMS_<pool>`, subjects `claim.<pool>.<job>.<work>`: the claims of running work.

mod claim;
mod error;
mod server;
mod table;

use std::time::Duration;

use async_nats::jetstream::{
    self, ErrorCode,
    consumer::{AckPolicy, PullConsumer, pull},
    context::{ConsumerInfoErrorKind, Context, GetStreamErrorKind},
    message::PublishMessage,
    stream::{self, DiscardPolicy, RetentionPolicy, Stream},
};
use futures_util::StreamExt as _;
use tokio::time::timeout;

use self::table::{ValueTable, WriteOutcome};
pub use self::{
    claim::{Claim, HeldClaim},
    error::QueueError,
    server::{NatsError, NatsServer},
};
use crate::{
    dead_letter::DeadLetter,
    message::{Message, is_name},
    record::JobRecord,
};

/// A message that the queue has delivered to a worker. Unless the worker acknowledges the message,
/// the queue delivers it again.
pub type QueueDelivery = jetstream::Message;

/// A connection to the pool at a NATS server.
#[derive(Debug, Clone)]
pub struct PoolQueue {
    context: Context,
    pool: String,
    /// Number of replicas of each stream that this process creates.
    replicas: usize,
    work: Stream,
    dead_letters: ValueTable,
    records: ValueTable,
    claims: ValueTable,
}

impl PoolQueue {
    /// Connects to a pool. If the pool does not exist, creates it with `replicas` replicas of each
    /// stream. If `replicas` is `None`, a missing pool is an error.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached, refuses a request, or has no JetStream. The
    /// same error type reports a missing pool.
    pub async fn open(
        server: &NatsServer,
        pool: &str,
        replicas: Option<usize>,
    ) -> Result<Self, QueueError> {
        if !is_name(pool) {
            return Err(QueueError::Pool(pool.to_owned()));
        }
        let context = jetstream::new(server.connect().await?);
        let mut streams = Vec::new();
        for config in configs(pool, replicas.unwrap_or(1)) {
            let opened = open_stream(&context, config, pool, replicas.is_some()).await;
            streams.push(opened.map_err(|error| name_jetstream(error, server))?);
        }
        let mut streams = streams.into_iter();
        let work = streams.next().expect("four streams");
        let mut table = |subject: &str| {
            let stream = streams.next().expect("four streams");
            ValueTable::new(&context, stream, &format!("{subject}.{pool}"))
        };
        let [dead_letters, records, claims] = ["dead", "record", "claim"].map(&mut table);
        Ok(Self {
            pool: pool.to_owned(),
            replicas: replicas.unwrap_or(1),
            context,
            work,
            dead_letters,
            records,
            claims,
        })
    }

    /// Returns the JetStream consumer that all workers share. Creates the consumer if it does not
    /// exist.
    ///
    /// # Errors
    /// [`QueueError`] if the server refuses the request or cannot be reached.
    pub async fn consumer(&self) -> Result<PullConsumer, QueueError> {
        let config = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            // The server must not limit the deliveries, because claims count the attempts. The
            // server's own count is wrong after a crash. A message beyond the server's limit would
            // stay in the queue for ever.
            max_deliver: -1,
            max_ack_pending: ACK_PENDING_MAX,
            max_waiting: WAITING_MAX,
            ..pull::Config::default()
        };
        let made = self.work.get_or_create_consumer(CONSUMER, config).await;
        made.map_err(QueueError::refused("make the consumer"))
    }

    /// Re-creates streams that the server has lost, for example in a restart with an empty disk.
    /// Returns the consumer, and whether a stream or the consumer was missing.
    ///
    /// # Errors
    /// [`QueueError`] if the server refuses a request or cannot be reached.
    pub async fn restore(&self) -> Result<(PullConsumer, bool), QueueError> {
        let mut is_made = false;
        for config in configs(&self.pool, self.replicas) {
            let found = open_stream(&self.context, config.clone(), &self.pool, false).await;
            if let Err(QueueError::NoPool(_)) = found {
                is_made = true;
                open_stream(&self.context, config, &self.pool, true).await?;
            } else {
                found?;
            }
        }
        is_made |= !self.has_consumer().await?;
        Ok((self.consumer().await?, is_made))
    }

    /// Whether the server has the JetStream consumer that all workers share. If not, the server
    /// does not reply to requests for messages.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn has_consumer(&self) -> Result<bool, QueueError> {
        match self.work.consumer_info(CONSUMER).await {
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                ConsumerInfoErrorKind::NotFound | ConsumerInfoErrorKind::StreamNotFound => {
                    Ok(false)
                }
                _ => Err(QueueError::refused("ask for the consumer")(error)),
            },
        }
    }

    /// Receives one message from the queue. Returns `None` if no message arrives within ten
    /// seconds.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn take(&self, consumer: &PullConsumer) -> Result<Option<QueueDelivery>, QueueError> {
        // The request uses no heartbeats, because the client library (0.51) does not wake up for
        // the next message after a heartbeat.
        let batch = consumer.batch().max_messages(1).expires(TAKE_TIMEOUT);
        let batch = batch.messages();
        let mut batch = batch.await.map_err(QueueError::refused("ask for work"))?;
        match batch.next().await {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(message)),
            Some(Err(source)) => Err(QueueError::Refused {
                what: "take work",
                source,
            }),
        }
    }

    /// Puts a message into the queue. If a recent message had the same key and the same `attempt`,
    /// the server drops the new message.
    ///
    /// # Errors
    /// [`QueueError`] if the server does not confirm the message.
    pub async fn put(&self, message: &Message, attempt: &str) -> Result<(), QueueError> {
        let (job, kind) = (checked(message.job())?, message.kind());
        let subject = format!("job.{}.{job}.{kind}", self.pool);
        let id = format!("{}.{attempt}", message.key());
        let sent = PublishMessage::build()
            .payload(message.write().into())
            .message_id(id);
        let what = "put a message into the queue";
        let sent = self.context.send_publish(subject, sent).await;
        let confirmed = sent.map_err(QueueError::refused(what))?.await;
        confirmed.map_err(QueueError::refused(what))?;
        Ok(())
    }

    /// Stores a dead letter. `key` is the unique key of the failed batch or listing.
    ///
    /// # Errors
    /// [`QueueError`] if the server does not confirm the dead letter.
    pub async fn dead_letter(&self, key: &str, letter: &DeadLetter) -> Result<(), QueueError> {
        self.dead_letters.set(key, letter).await
    }

    /// Stores the record of a new job.
    ///
    /// # Errors
    /// [`QueueError`] if the server does not confirm the record.
    pub async fn create(&self, record: &JobRecord) -> Result<(), QueueError> {
        // With the revision 0, the write fails if another job has this name.
        self.records.put(checked(&record.job)?, record, 0).await?;
        Ok(())
    }

    /// Returns the record of a job. Returns `None` if the job does not exist.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached, or the record is unreadable.
    pub async fn record(&self, job: &str) -> Result<Option<JobRecord>, QueueError> {
        Ok(self.entry(job).await?.map(|(record, _)| record))
    }

    async fn entry(&self, job: &str) -> Result<Option<(JobRecord, u64)>, QueueError> {
        let Some(entry) = self.records.get::<JobRecord>(checked(job)?).await? else {
            return Ok(None);
        };
        let unreadable = || QueueError::Unreadable(job.to_owned());
        let record = entry.value.ok_or_else(unreadable)?;
        Ok(Some((record, entry.revision)))
    }

    /// Changes the record of a job atomically. If another worker changes the record at the same
    /// time, applies `change` again to the newer record. Returns the new record, or `None` if the
    /// job does not exist.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached, or the record is unreadable.
    pub async fn change(
        &self,
        job: &str,
        change: impl Fn(&mut JobRecord),
    ) -> Result<Option<JobRecord>, QueueError> {
        loop {
            let Some((before, revision)) = self.entry(job).await? else {
                return Ok(None);
            };
            let mut record = before.clone();
            change(&mut record);
            if record == before {
                return Ok(Some(record));
            }
            match self.records.put(job, &record, revision).await? {
                WriteOutcome::Stored(_) => return Ok(Some(record)),
                // Another worker has changed the record first, so `change` is applied to the newer
                // record.
                WriteOutcome::Conflict => {}
            }
        }
    }

    /// Returns all records, the oldest first. The second list has the names of jobs with unreadable
    /// records.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn records(&self) -> Result<(Vec<JobRecord>, Vec<String>), QueueError> {
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        for (job, entry) in self.records.list::<JobRecord>(None).await? {
            match entry.value {
                Some(record) => records.push(record),
                None => unreadable.push(job),
            }
        }
        records.sort_by(|a, b| (a.submitted_unix_s, &a.job).cmp(&(b.submitted_unix_s, &b.job)));
        Ok((records, unreadable))
    }

    /// Returns the dead letters with their numbers, the oldest first. If `job` is given, returns
    /// only the dead letters of this job.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn dead_letters(
        &self,
        job: Option<&str>,
    ) -> Result<Vec<(u64, DeadLetter)>, QueueError> {
        let job = job.map(checked).transpose()?;
        let found = self.dead_letters.list::<DeadLetter>(job).await?;
        let letters = found.into_iter();
        Ok(letters
            .filter_map(|(_, it)| Some((it.revision, it.value?)))
            .collect())
    }

    /// Removes the dead letter with this number.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn remove_dead_letter(&self, number: u64) -> Result<(), QueueError> {
        self.dead_letters.delete(number).await?;
        Ok(())
    }

    /// Removes all messages of a job from the queue.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn drop_waiting(&self, job: &str) -> Result<(), QueueError> {
        let subject = format!("job.{}.{}.>", self.pool, checked(job)?);
        let purged = self.work.purge().filter(subject).await;
        purged.map_err(QueueError::refused("take the job out of the queue"))?;
        Ok(())
    }

    /// Waits until all messages have been sent to the server, or a timeout expires.
    pub async fn flush(&self) {
        // If the server cannot be reached, the messages stay unsent.
        let _ = timeout(FLUSH_TIMEOUT, self.context.client().flush()).await;
    }

    /// Returns the number of a job's messages in the queue. The number includes messages that
    /// workers have received but not yet acknowledged.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached.
    pub async fn waiting(&self, job: &str) -> Result<usize, QueueError> {
        let subject = format!("job.{}.{}.>", self.pool, checked(job)?);
        let found = self.work.info_with_subjects(subject).await;
        let mut found = found.map_err(QueueError::refused("count the waiting messages"))?;
        let mut count = 0;
        while let Some(subject) = found.next().await {
            let (_, messages) =
                subject.map_err(QueueError::refused("count the waiting messages"))?;
            count += messages;
        }
        Ok(count)
    }
}

/// Returns the configurations of a pool's streams: queue, dead letters, records and claims.
fn configs(pool: &str, replicas: usize) -> [stream::Config; 4] {
    let config = |kind: &str| stream::Config {
        name: format!("LONGHAUL_{kind}_{pool}"),
        num_replicas: replicas,
        duplicate_window: DUPLICATE_WINDOW,
        max_messages_per_subject: 1,
        ..stream::Config::default()
    };
    [
        stream::Config {
            subjects: vec![format!("job.{pool}.>")],
            retention: RetentionPolicy::WorkQueue,
            // A full queue refuses new messages, and discards no stored message.
            discard: DiscardPolicy::New,
            max_bytes: WORK_BYTES_MAX,
            max_messages_per_subject: -1,
            ..config("JOBS")
        },
        stream::Config {
            subjects: vec![format!("dead.{pool}.>")],
            max_bytes: DEAD_BYTES_MAX,
            max_age: RECORD_AGE_MAX,
            ..config("DEAD")
        },
        stream::Config {
            subjects: vec![format!("record.{pool}.>")],
            max_age: RECORD_AGE_MAX,
            ..config("RECORDS")
        },
        stream::Config {
            subjects: vec![format!("claim.{pool}.>")],
            max_age: CLAIM_AGE_MAX,
            ..config("CLAIMS")
        },
    ]
}

/// Converts an error to [`QueueError::NoJetStream`] if the error shows that the server has no
/// JetStream. The client library has several errors for a missing JetStream. Any other error is
/// returned unchanged.
fn name_jetstream(error: QueueError, server: &NatsServer) -> QueueError {
    let text = mover::run::chain(&error).to_ascii_lowercase();
    let signs = [
        "jetstream resource does not exist",
        "jetstream unavailable",
        "jetstream not enabled",
    ];
    match signs.iter().any(|it| text.contains(it)) {
        true => QueueError::NoJetStream(server.url.clone()),
        false => error,
    }
}

async fn open_stream(
    context: &Context,
    config: stream::Config,
    pool: &str,
    makes: bool,
) -> Result<Stream, QueueError> {
    if makes {
        let made = context.get_or_create_stream(config).await;
        return made.map_err(QueueError::refused("make a stream"));
    }
    match context.get_stream(&config.name).await {
        Ok(stream) => Ok(stream),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(said)
                if said.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Err(QueueError::NoPool(pool.to_owned()))
            }
            _ => Err(QueueError::refused("open a stream")(error)),
        },
    }
}

/// Checks a job's name before it becomes part of a NATS subject. A name with a dot or a wildcard
/// could match the messages of other jobs.
fn checked(job: &str) -> Result<&str, QueueError> {
    match is_name(job) {
        true => Ok(job),
        false => Err(QueueError::Job(job.to_owned())),
    }
}

/// Acknowledgement timeout. If a worker sends no progress message for this time, the server
/// delivers the worker's message to another worker.
const ACK_WAIT: Duration = Duration::from_secs(60);

const CONSUMER: &str = "workers";

/// Maximum number of messages that workers have received but not acknowledged. It exceeds the
/// number of slots of any fleet.
const ACK_PENDING_MAX: i64 = 100_000;

const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of slots that wait for a message at the same time.
const WAITING_MAX: i64 = 100_000;

/// Time for which a request waits for a message. An idle worker then sends the next request.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time within which the server drops a repeated message.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// Maximum size of the queue in bytes: 1 GiB, which suffices for 300,000 batches of 32 files. The
/// server reserves this space.
const WORK_BYTES_MAX: i64 = 1 << 30;

/// Maximum size of all dead letters in bytes: 256 MiB. When it is exceeded, the server removes the
/// oldest dead letters.
const DEAD_BYTES_MAX: i64 = 256 << 20;

/// Time after which the server removes a record that does not change.
const RECORD_AGE_MAX: Duration = Duration::from_secs(90 * 86_400);

/// Time after which the server removes a claim that does not change.
const CLAIM_AGE_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Returns a random name of 40 bits. Two names are equal with a probability of about 1 in 10^12.
pub fn random_name() -> String {
    let mut random = [0; 5];
    aws_lc_rs::rand::fill(&mut random).expect("the system has randomness");
    random.iter().map(|it| format!("{it:02x}")).collect()
}

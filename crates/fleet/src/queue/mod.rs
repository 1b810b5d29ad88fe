//! The fleet's place at a NATS server: four streams of a pool.
//!
//! - `LONGHAUL_<POOL>`, subjects `job.<pool>.<job>.order` and `job.<pool>.<job>.batch`: work, each message once. All
//!   workers of the pool share one consumer.
//! - `LONGHAUL_<POOL>_DEAD`, subjects `dead.<pool>.<job>`: what was given up.
//! - `LONGHAUL_<POOL>_RECORDS`, subjects `record.<pool>.<job>`: a [`Record`] for each job.
//! - `LONGHAUL_<POOL>_CLAIMS`, subjects `claim.<pool>.<job>.<work>`: who works on what, while somebody does.

mod claim;
mod error;
mod server;
mod table;

use std::time::Duration;

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, PullConsumer, pull},
    context::Context,
    message::PublishMessage,
    stream::{self, DiscardPolicy, RetentionPolicy, Stream},
};
use futures_util::StreamExt as _;

use self::table::{Table, Written};
pub use self::{
    claim::{Claim, Held},
    error::QueueError,
    server::{Server, ServerError},
};
use crate::{
    dead::Letter,
    message::{Message, is_name},
    record::Record,
};

/// A message that a worker has taken. It comes again unless the worker says that it is done.
pub type Taken = jetstream::Message;

/// A pool's place at a NATS server.
#[derive(Debug, Clone)]
pub struct Queue {
    context: Context,
    pool: String,
    work: Stream,
    dead: Stream,
    records: Table,
    claims: Table,
}

impl Queue {
    /// Connects, and makes what is missing there: `replicas` copies of each.
    ///
    /// # Errors
    /// [`QueueError`] if the server cannot be reached, refuses, or has no JetStream.
    pub async fn open(server: &Server, pool: &str, replicas: usize) -> Result<Self, QueueError> {
        if !is_name(pool) {
            return Err(QueueError::Pool(pool.to_owned()));
        }
        let client = server.connect().await?;
        let context = jetstream::new(client);
        let upper = pool.to_uppercase();
        let stream = |name: &str| stream::Config {
            name: format!("LONGHAUL_{upper}{name}"),
            num_replicas: replicas,
            duplicate_window: DUPLICATE_WINDOW,
            ..stream::Config::default()
        };
        let work = stream::Config {
            subjects: vec![format!("job.{pool}.>")],
            retention: RetentionPolicy::WorkQueue,
            // A full queue refuses work, and forgets none.
            discard: DiscardPolicy::New,
            max_bytes: WORK_BYTES_MAX,
            ..stream("")
        };
        let dead = stream::Config {
            subjects: vec![format!("dead.{pool}.>")],
            max_bytes: DEAD_BYTES_MAX,
            ..stream("_DEAD")
        };
        let records = stream::Config {
            max_age: RECORD_AGE_MAX,
            ..stream("_RECORDS")
        };
        let claims = stream::Config {
            max_age: CLAIM_AGE_MAX,
            ..stream("_CLAIMS")
        };
        let work = context.get_or_create_stream(work).await;
        let work = work.map_err(QueueError::of("make the stream of jobs"))?;
        let dead = context.get_or_create_stream(dead).await;
        let dead = dead.map_err(QueueError::of("make the stream of dead letters"))?;
        Ok(Self {
            records: Table::open(&context, records, &format!("record.{pool}")).await?,
            claims: Table::open(&context, claims, &format!("claim.{pool}")).await?,
            pool: pool.to_owned(),
            context,
            work,
            dead,
        })
    }

    /// The consumer that all workers share, made where it is missing.
    ///
    /// # Errors
    /// [`QueueError`] if the server refuses, or is away.
    pub async fn consumer(&self) -> Result<PullConsumer, QueueError> {
        let config = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            // Attempts are counted by claims: the server's count is wrong after a crash, and what exceeds it stays for ever.
            max_deliver: -1,
            max_ack_pending: ACK_PENDING_MAX,
            ..pull::Config::default()
        };
        let made = self.work.get_or_create_consumer(CONSUMER, config).await;
        made.map_err(QueueError::of("make the consumer"))
    }

    /// Takes one message; `None` if there is none for a while.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn take(&self, consumer: &PullConsumer) -> Result<Option<Taken>, QueueError> {
        // Without heartbeats: after one the client library (0.51) does not wake up for the message behind it.
        let batch = consumer.batch().max_messages(1).expires(TAKE_PATIENCE);
        let batch = batch.messages();
        let mut batch = batch.await.map_err(QueueError::of("ask for work"))?;
        match batch.next().await {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(message)),
            Some(Err(source)) => Err(QueueError::Refused {
                what: "take work",
                source,
            }),
        }
    }

    /// Puts a message into the queue. `attempt` tells it from an earlier one of the same work.
    ///
    /// # Errors
    /// [`QueueError`] if the server does not confirm that it has it.
    pub async fn put(&self, message: &Message, attempt: &str) -> Result<(), QueueError> {
        let kind = match message {
            Message::Order(_) => "order",
            Message::Batch(_) => "batch",
        };
        let subject = format!("job.{}.{}.{kind}", self.pool, message.job());
        let id = format!("{}.{attempt}", message.key());
        self.publish(subject, message.write(), &id).await
    }

    /// Puts a dead letter where people find it.
    ///
    /// # Errors
    /// [`QueueError`] if the server does not confirm that it has it.
    pub async fn bury(&self, letter: &Letter) -> Result<(), QueueError> {
        let job = letter.job.as_deref().unwrap_or(UNREADABLE);
        let subject = format!("dead.{}.{job}", self.pool);
        let key = letter.key.as_deref().unwrap_or(UNREADABLE);
        let id = format!("{key}.{}", letter.given_up_unix_s);
        let payload = serde_json::to_vec(letter).expect("plain texts and numbers");
        self.publish(subject, payload, &id).await
    }

    async fn publish(&self, subject: String, payload: Vec<u8>, id: &str) -> Result<(), QueueError> {
        let message = PublishMessage::build()
            .payload(payload.into())
            .message_id(id);
        let what = QueueError::of("put a message into the queue");
        let sent = self
            .context
            .send_publish(subject, message)
            .await
            .map_err(QueueError::of("send a message"))?;
        sent.await.map_err(what)?;
        Ok(())
    }

    /// Writes down a new job.
    ///
    /// # Errors
    /// [`QueueError`] if the server does not confirm that it has it.
    pub async fn create(&self, record: &Record) -> Result<(), QueueError> {
        // No other job has its name.
        self.records.put(&record.order.job, record, 0).await?;
        Ok(())
    }

    /// What is known of a job.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn record(&self, job: &str) -> Result<Option<Record>, QueueError> {
        Ok(self.records.get(job).await?.map(|it| it.value))
    }

    /// Changes what is known of a job, whoever else does at the same time. Returns what is known now; `None` for a job that is
    /// not known any more.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn change(
        &self,
        job: &str,
        change: impl Fn(&mut Record),
    ) -> Result<Option<Record>, QueueError> {
        loop {
            let Some(entry) = self.records.get::<Record>(job).await? else {
                return Ok(None);
            };
            let mut record = entry.value.clone();
            change(&mut record);
            if record == entry.value {
                return Ok(Some(record));
            }
            match self.records.put(job, &record, entry.revision).await? {
                Written::Done(_) => return Ok(Some(record)),
                // Another worker was faster.
                Written::Outrun => {}
            }
        }
    }

    /// All jobs, the oldest first.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn records(&self) -> Result<Vec<Record>, QueueError> {
        let found = self.records.list::<Record>(None).await?;
        let mut records: Vec<_> = found.into_iter().map(|(_, it)| it.value).collect();
        records.sort_by(|a, b| {
            (a.submitted_unix_s, &a.order.job).cmp(&(b.submitted_unix_s, &b.order.job))
        });
        Ok(records)
    }

    /// Dead letters of a job, or of all, with their numbers: the oldest first.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn letters(&self, job: Option<&str>) -> Result<Vec<(u64, Letter)>, QueueError> {
        let subject = format!("dead.{}.{}", self.pool, job.unwrap_or("*"));
        let found = table::list::<Letter>(&self.dead, subject, LETTERS_MAX).await?;
        let letters = found.into_iter();
        Ok(letters.map(|(_, it)| (it.revision, it.value)).collect())
    }

    /// Takes a dead letter away.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn unbury(&self, number: u64) -> Result<(), QueueError> {
        let deleted = self.dead.delete_message(number).await;
        deleted.map_err(QueueError::of("take the dead letter away"))?;
        Ok(())
    }

    /// Takes what waits of a job out of the queue.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn drop_all(&self, job: &str) -> Result<(), QueueError> {
        self.drop_waiting(job, ">").await
    }

    /// Takes the batches that wait of a job out of the queue.
    ///
    /// # Errors
    /// [`QueueError`] if the server is away.
    pub async fn drop_batches(&self, job: &str) -> Result<(), QueueError> {
        self.drop_waiting(job, "batch").await
    }

    async fn drop_waiting(&self, job: &str, kind: &str) -> Result<(), QueueError> {
        let subject = format!("job.{}.{job}.{kind}", self.pool);
        let purged = self.work.purge().filter(subject).await;
        purged.map_err(QueueError::of("take the job out of the queue"))?;
        Ok(())
    }
}

/// A worker that says nothing for so long has lost its work to another one.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(60);

const CONSUMER: &str = "workers";

/// Work that workers have at a time: more than any fleet has slots.
const ACK_PENDING_MAX: i64 = 100_000;

/// How long an idle worker waits for work before it asks again.
const TAKE_PATIENCE: Duration = Duration::from_secs(10);

/// A message that is sent twice within this time is one.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// 4 GiB: two million batches of 32 files with short names.
const WORK_BYTES_MAX: i64 = 4 << 30;

/// 1 GiB; the oldest go then.
const DEAD_BYTES_MAX: i64 = 1 << 30;

/// What is known of a job is forgotten so long after its last change.
const RECORD_AGE_MAX: Duration = Duration::from_secs(90 * 86_400);

/// Attempts are forgotten so long after the last one.
const CLAIM_AGE_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Most dead letters that are shown.
const LETTERS_MAX: usize = 10_000;

/// In the place of a job where a message cannot be read.
const UNREADABLE: &str = "unreadable";

/// A name for a new job, which no other one has.
pub fn new_job_name() -> String {
    let mut random = [0; 5];
    aws_lc_rs::rand::fill(&mut random).expect("the system has randomness");
    random.iter().map(|it| format!("{it:02x}")).collect()
}

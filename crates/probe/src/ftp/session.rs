//! One session: says its script, and notes when what happened.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use ::ftp::{
    address::{ActiveForm, PassiveForm, active_line, announced_port},
    reply::Class,
};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::{
    DataMode, FtpProbe,
    control::{Control, Reply, connect, shortened},
    files::{self, Files, Strangers},
    record::{Data, Exchange, Session},
    script::{Command, Job, Step, Values},
};
use crate::{Failure, FailureKind, arrivals, clock, failure::within};
use bench_kit::content::Content;

/// What the sessions of a run have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) content: Content,
    pub(super) strangers: Strangers,
}

/// A session under way.
struct Run<'a> {
    probe: &'a FtpProbe,
    common: &'a Common,
    name: String,
    began: Instant,
    record: Session,
    random: Pcg64,
    files: Files,
    data: Option<Prepared>,
    /// Where the next transfer begins.
    restart: u64,
    rename: Option<String>,
    is_binary: bool,
}

/// A data connection that is to be used next.
enum Prepared {
    Connected(TcpStream, u64),
    Awaited(TcpListener),
}

/// Which way bytes go.
enum Flow {
    In(Vec<u8>),
    Out { name: String, from: u64, size: u64 },
}

/// Runs the session with this number to its end.
pub(super) async fn run(probe: &FtpProbe, common: &Common, number: u64) -> Session {
    let mut run = Run {
        probe,
        common,
        name: format!("{}-{}-{number}", probe.name, probe.label),
        began: Instant::now(),
        record: Session {
            side: probe.label.clone(),
            number,
            begun_unix_us: clock::unix_us(),
            connected_us: None,
            greeted_us: None,
            commands: Vec::new(),
            commands_planned: probe.script.commands(),
            transfers_planned: probe.script.transfers(),
            ended_us: 0,
            failure: None,
        },
        random: Pcg64::seed_from_u64(probe.arrivals.seed ^ number.rotate_left(32)),
        files: Files::default(),
        data: None,
        restart: 0,
        rename: None,
        is_binary: false,
    };
    run.record.failure = run.all().await.err();
    run.record.ended_us = run.now_us();
    run.record
}

impl Run<'_> {
    async fn all(&mut self) -> Result<(), Failure> {
        let patience = self.probe.timeout;
        let mut control = Control::connect(self.probe.server, patience).await?;
        self.record.connected_us = Some(self.now_us());
        let greeting = control.reply("greeting").await?;
        self.record.greeted_us = Some(self.now_us());
        if greeting.code.class() != Class::Completed {
            return Err(unexpected("greeting", &greeting));
        }
        let probe = self.probe;
        for step in &probe.script.steps {
            match step {
                Step::Sleep(mean) => self.rest(*mean).await,
                Step::Command(command) => {
                    if let Some(mean) = probe.pause {
                        self.rest(mean).await;
                    }
                    self.command(&mut control, command).await?;
                }
            }
        }
        Ok(())
    }

    async fn rest(&mut self, mean: Duration) {
        sleep(mean.mul_f64(arrivals::exponential(&mut self.random))).await;
    }

    async fn command(&mut self, control: &mut Control, command: &Command) -> Result<(), Failure> {
        let values = Values {
            user: &self.probe.user,
            password: &self.probe.password.0,
            folder: &self.probe.folder,
            session: &self.name,
            number: self.record.number,
        };
        let argument = command.argument(&values);
        match (command.job, self.probe.data) {
            (Job::Passive(form), DataMode::Scripted | DataMode::Passive) => {
                self.passive(control, form).await
            }
            (Job::Passive(_), DataMode::Active) => self.active(control, ActiveForm::Port).await,
            (Job::Active(form), DataMode::Scripted | DataMode::Active) => {
                self.active(control, form).await
            }
            (Job::Active(_), DataMode::Passive) => self.passive(control, PassiveForm::Epsv).await,
            (Job::Ask, _) => self.ask(control, command, &argument).await,
            (Job::Retrieve | Job::Store | Job::Append | Job::List, _) => {
                if self.data.is_none() {
                    match self.probe.data {
                        DataMode::Active => self.active(control, ActiveForm::Port).await?,
                        _ => self.passive(control, PassiveForm::Epsv).await?,
                    }
                }
                self.transfer(control, command, argument).await
            }
        }
    }

    /// Sends a line and waits for its first reply.
    async fn exchange(
        &mut self,
        control: &mut Control,
        verb: &str,
        line: &str,
    ) -> Result<Reply, Failure> {
        self.send(control, verb, line).await?;
        let reply = control.reply(verb).await?;
        let now = self.now_us();
        let exchange = self.last();
        exchange.replied_us = Some(now);
        exchange.code = Some(reply.code.0);
        Ok(reply)
    }

    async fn send(&mut self, control: &mut Control, verb: &str, line: &str) -> Result<(), Failure> {
        self.record.commands.push(Exchange {
            verb: verb.to_owned(),
            sent_us: self.now_us(),
            replied_us: None,
            code: None,
            data: None,
        });
        control.send(verb, line).await
    }

    /// A command that is answered by a reply alone.
    async fn ask(
        &mut self,
        control: &mut Control,
        command: &Command,
        argument: &str,
    ) -> Result<(), Failure> {
        let verb = &command.verb;
        let line = line(verb, argument);
        let reply = self.exchange(control, verb, &line).await?;
        let was_logged_in = verb == "PASS" && reply.code.0 == 503;
        if !command.expected.is(reply.code, verb) && !was_logged_in {
            return Err(unexpected(verb, &reply));
        }
        if !matches!(reply.code.class(), Class::Completed | Class::Intermediate) {
            return Ok(());
        }
        match verb.as_str() {
            "CWD" => self.files.enter(argument),
            "CDUP" => self.files.enter(".."),
            "TYPE" => self.is_binary = argument.starts_with(['I', 'i', 'L', 'l']),
            "REST" => self.restart = argument.trim().parse().unwrap_or_default(),
            "RNFR" => self.rename = Some(self.files.path(argument)),
            "RNTO" => {
                if let Some(from) = self.rename.take() {
                    let to = self.files.path(argument);
                    self.files.rename(&from, to);
                }
            }
            "DELE" => {
                let path = self.files.path(argument);
                self.files.forget(&path);
            }
            "SIZE" if self.is_binary => {
                let known = self.files.get(&self.files.path(argument));
                let told = reply
                    .line
                    .get(4..)
                    .and_then(|text| text.trim().parse().ok());
                if known.is_some_and(|(size, _)| told != Some(size)) {
                    return Err(unexpected(verb, &reply));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks where to connect to, and connects, to the server's address whatever the reply says.
    async fn passive(&mut self, control: &mut Control, form: PassiveForm) -> Result<(), Failure> {
        self.data = None;
        let server = control.peer()?;
        let form = if server.is_ipv6() {
            PassiveForm::Epsv
        } else {
            form
        };
        let verb = match form {
            PassiveForm::Pasv => "PASV",
            PassiveForm::Epsv | PassiveForm::Lpsv => "EPSV",
        };
        let reply = self.exchange(control, verb, verb).await?;
        let port = (reply.code.class() == Class::Completed)
            .then(|| announced_port(form, reply.line.as_bytes()))
            .flatten();
        let Some(port) = port else {
            return Err(unexpected(verb, &reply));
        };
        let to = SocketAddr::new(server.ip(), port);
        let during = format!("{verb}: data connection");
        let stream = connect(&during, to, self.probe.timeout).await?;
        self.data = Some(Prepared::Connected(stream, self.now_us()));
        Ok(())
    }

    /// Listens beside the control connection, and tells the server so.
    async fn active(&mut self, control: &mut Control, form: ActiveForm) -> Result<(), Failure> {
        self.data = None;
        let own = control.local()?;
        let form = if own.is_ipv6() {
            ActiveForm::Eprt
        } else {
            form
        };
        let verb = match form {
            ActiveForm::Port => "PORT",
            ActiveForm::Eprt | ActiveForm::Lprt => "EPRT",
        };
        let local = |error| Failure::io(verb, &error);
        let listener = TcpListener::bind((own.ip(), 0)).await.map_err(local)?;
        let at = listener.local_addr().map_err(local)?;
        let line = active_line(form, at).expect("the form carries this address family");
        let reply = self.exchange(control, verb, &line).await?;
        if reply.code.class() != Class::Completed {
            return Err(unexpected(verb, &reply));
        }
        self.data = Some(Prepared::Awaited(listener));
        Ok(())
    }

    async fn transfer(
        &mut self,
        control: &mut Control,
        command: &Command,
        argument: String,
    ) -> Result<(), Failure> {
        let verb = command.verb.as_str();
        let prepared = self.data.take().expect("it was prepared");
        let from = std::mem::take(&mut self.restart);
        let path = self.files.path(&argument);
        let mut flow = match command.job {
            Job::Store => Flow::Out {
                name: path.clone(),
                from,
                size: self.probe.file_size.bytes(),
            },
            Job::Append => Flow::Out {
                name: path.clone(),
                from: 0,
                size: self.probe.file_size.bytes(),
            },
            _ => Flow::In(Vec::new()),
        };
        self.send(control, verb, &line(verb, &argument)).await?;
        let server = control.peer()?;
        let moving = Moving {
            began: self.began,
            patience: self.probe.timeout,
            during: verb,
        };
        let mut data = Data {
            is_file: command.job != Job::List,
            ..Data::default()
        };
        let exchange = self.record.commands.last_mut().expect("it was sent");
        let replied = &mut exchange.replied_us;
        let code = &mut exchange.code;
        let (started, go) = tokio::sync::oneshot::channel();
        let (all_moved, moved) = tokio::sync::oneshot::channel::<()>();
        let replies = async {
            let first = control.reply(verb).await?;
            *replied = Some(moving.now_us());
            *code = Some(first.code.0);
            if first.code.class() != Class::Preliminary {
                return Ok((first, None));
            }
            // A transfer that has failed does not listen any more.
            let _ = started.send(());
            // While bytes move, silence is in order here; the data connection has a limit of its own.
            let moved = async {
                let _ = moved.await;
            };
            let last = control.reply_after(verb, moved).await?;
            *code = Some(last.code.0);
            Ok((last, Some(moving.now_us())))
        };
        let bytes = moving.run(
            prepared,
            server,
            &mut flow,
            &mut data,
            go,
            &self.common.content,
            &self.name,
        );
        let bytes = async {
            let _all_moved = all_moved;
            bytes.await
        };
        let joined = both(replies, bytes).await;
        let (reply, final_us) = match joined {
            Ok(ended) => ended,
            Err(failure) => {
                exchange.data = Some(data);
                return Err(failure);
            }
        };
        data.final_us = final_us;
        let (is_file, moved) = (data.is_file, data.bytes);
        // A refusal that was expected moved nothing, and is a command like others.
        exchange.data = final_us.is_some().then_some(data);
        if !command.expected.is(reply.code, verb) {
            return Err(unexpected(verb, &reply));
        }
        if reply.code.class() != Class::Completed {
            return Ok(());
        }
        match flow {
            Flow::In(bytes) if is_file => self.judge(verb, path, from, &bytes),
            Flow::In(bytes) => self.judge_listing(verb, &argument, &bytes),
            Flow::Out { size, from, .. } => {
                debug_assert_eq!(moved, size.saturating_sub(from), "all was sent");
                match command.job {
                    Job::Append => self.files.forget(&path),
                    _ => self.files.stored(path, size),
                }
                Ok(())
            }
        }
    }

    /// Compares a file that came with what was stored.
    fn judge(&self, verb: &str, path: String, from: u64, bytes: &[u8]) -> Result<(), Failure> {
        if !self.is_binary {
            return Ok(());
        }
        let wrong = |kind, detail: String| Err(Failure::new(kind, verb, detail));
        let got = bytes.len() as u64;
        let Some((size, made_from)) = self.files.get(&path) else {
            if from == 0 && !self.common.strangers.is_same(path, bytes) {
                let detail = format!("{got} bytes that are not what an earlier session got");
                return wrong(FailureKind::WrongData, detail);
            }
            return Ok(());
        };
        let wanted = size.saturating_sub(from);
        if got < wanted {
            return wrong(FailureKind::TooShort, format!("{got} of {wanted} bytes"));
        }
        let pieces = files::content(&self.common.content, &self.name, made_from, from, size);
        if !files::is_content(bytes, pieces) {
            let detail = format!("{got} bytes, other ones than were stored");
            return wrong(FailureKind::WrongData, detail);
        }
        Ok(())
    }

    /// A list of the folder must have the session's files.
    fn judge_listing(&self, verb: &str, argument: &str, bytes: &[u8]) -> Result<(), Failure> {
        if !argument.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(bytes);
        for name in self.files.names_here() {
            let has = |line: &str| line.trim_end().ends_with(name);
            if !text.lines().any(has) {
                let detail = format!("{name} is missing among {} names", text.lines().count());
                return Err(Failure::new(FailureKind::WrongData, verb, detail));
            }
        }
        Ok(())
    }

    fn last(&mut self) -> &mut Exchange {
        self.record.commands.last_mut().expect("a command was sent")
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

/// The bytes of one transfer.
#[derive(Clone, Copy)]
struct Moving<'a> {
    began: Instant,
    patience: Duration,
    during: &'a str,
}

impl Moving<'_> {
    #[expect(
        clippy::too_many_arguments,
        reason = "borrowed from the session one by one"
    )]
    async fn run(
        &self,
        prepared: Prepared,
        server: SocketAddr,
        flow: &mut Flow,
        data: &mut Data,
        go: tokio::sync::oneshot::Receiver<()>,
        content: &Content,
        session: &str,
    ) -> Result<(), Failure> {
        let mut stream = match prepared {
            Prepared::Connected(stream, at) => {
                data.connected_us = Some(at);
                stream
            }
            Prepared::Awaited(listener) => {
                let stream = self.within(accept_from(&listener, server)).await?;
                data.connected_us = Some(self.now_us());
                stream
            }
        };
        match flow {
            Flow::In(bytes) => loop {
                let count = self.within(stream.read_buf(bytes)).await?;
                if count == 0 {
                    data.ended_us = Some(self.now_us());
                    return Ok(());
                }
                data.first_byte_us.get_or_insert(self.now_us());
                data.bytes += count as u64;
                if data.bytes > RETRIEVED_MAX {
                    let detail = format!("more than {RETRIEVED_MAX} bytes");
                    return Err(Failure::new(FailureKind::WrongData, self.during, detail));
                }
            },
            Flow::Out { name, from, size } => {
                // The preliminary reply; where none comes, neither does the transfer.
                let Ok(()) = go.await else {
                    return Ok(());
                };
                for piece in files::content(content, session, name, *from, *size) {
                    for part in piece.chunks(STEP_BYTES) {
                        self.within(stream.write_all(part)).await?;
                        data.first_byte_us.get_or_insert(self.now_us());
                        data.bytes += part.len() as u64;
                    }
                }
                self.within(stream.shutdown()).await?;
                data.ended_us = Some(self.now_us());
                Ok(())
            }
        }
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = std::io::Result<T>>,
    ) -> Result<T, Failure> {
        let during = format!("{}: data connection", self.during);
        within(&during, self.patience, work).await
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

/// Waits for replies and bytes; a refusal ends the waiting for bytes.
async fn both(
    replies: impl Future<Output = Result<(Reply, Option<u64>), Failure>>,
    bytes: impl Future<Output = Result<(), Failure>>,
) -> Result<(Reply, Option<u64>), Failure> {
    tokio::pin!(replies, bytes);
    tokio::select! {
        replied = &mut replies => {
            let (reply, final_us) = replied?;
            if reply.code.class() == Class::Completed {
                bytes.await?;
            }
            Ok((reply, final_us))
        }
        moved = &mut bytes => {
            moved?;
            replies.await
        }
    }
}

/// A connection from the server; others are turned away.
async fn accept_from(listener: &TcpListener, server: SocketAddr) -> std::io::Result<TcpStream> {
    loop {
        let (stream, from) = listener.accept().await?;
        if from.ip() == server.ip() {
            return Ok(stream);
        }
    }
}

fn unexpected(verb: &str, reply: &Reply) -> Failure {
    Failure::new(FailureKind::UnexpectedReply, verb, shortened(&reply.line))
}

fn line(verb: &str, argument: &str) -> String {
    if argument.is_empty() {
        return verb.to_owned();
    }
    format!("{verb} {argument}")
}

const STEP_BYTES: usize = 64 * 1024;
/// Of one file, in memory.
const RETRIEVED_MAX: u64 = 1 << 30;

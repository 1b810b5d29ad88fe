//! One FTP session of the probe.
//!
//! The input is the script, the server's address and the session's number. The output is a
//! [`SessionRecord`] with the time of each command, reply and data connection. If a failure ended
//! the session, the record contains the failure. If the session retrieves a file that it has
//! stored, the content is checked.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use ::ftp::{
    address::{ActiveForm, PassiveForm, active_line, announced_port},
    reply::ReplyClass,
};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use tokio::{net::TcpListener, time::sleep};

use super::{
    DataMode, FtpProbe,
    control::{FtpControl, FtpReply, connect, shortened},
    files::{self, ForeignFiles, SessionFiles},
    record::{CommandRecord, DataRecord, SessionRecord},
    script::{ClientAction, PlaceholderValues, ScriptCommand, ScriptStep},
    transfer::{FtpTransfer, PreparedDataConnection, TransferEnd, TransferFlow},
};
use crate::{Failure, FailureKind, arrivals, clock};

/// State that all sessions of a run share.
#[derive(Debug, Clone)]
pub(super) struct RunContext {
    pub(super) foreign_files: ForeignFiles,
}

/// A session in progress.
struct RunningSession<'a> {
    probe: &'a FtpProbe,
    common: &'a RunContext,
    name: String,
    began: Instant,
    record: SessionRecord,
    random: Pcg64,
    files: SessionFiles,
    data: Option<PreparedDataConnection>,
    /// Offset of the next transfer in bytes, as set by `REST`.
    restart: u64,
    /// Path of the last accepted `RNFR`. `None` after the following `RNTO`.
    rename: Option<String>,
    is_binary: bool,
}

/// Runs the session with this number until it ends. If the session fails, the record contains the
/// failure.
pub(super) async fn run(probe: &FtpProbe, common: &RunContext, number: u64) -> SessionRecord {
    let mut run = RunningSession {
        probe,
        common,
        name: format!("{}-{}-{number}", probe.name, probe.label),
        began: Instant::now(),
        record: SessionRecord {
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
        files: SessionFiles::default(),
        data: None,
        restart: 0,
        rename: None,
        is_binary: false,
    };
    run.record.failure = run.all().await.err();
    run.record.ended_us = run.now_us();
    run.record
}

impl RunningSession<'_> {
    async fn all(&mut self) -> Result<(), Failure> {
        let reply_timeout = self.probe.timeout;
        let mut control = FtpControl::connect(self.probe.server, reply_timeout).await?;
        self.record.connected_us = Some(self.now_us());
        let greeting = control.reply("greeting").await?;
        self.record.greeted_us = Some(self.now_us());
        if greeting.code.class() != ReplyClass::Completed {
            return Err(unexpected("greeting", &greeting));
        }
        let probe = self.probe;
        for step in &probe.script.steps {
            match step {
                ScriptStep::Sleep(mean) => self.rest(*mean).await,
                ScriptStep::Command(command) => {
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

    async fn command(
        &mut self,
        control: &mut FtpControl,
        command: &ScriptCommand,
    ) -> Result<(), Failure> {
        let values = PlaceholderValues {
            user: &self.probe.user,
            password: &self.probe.password.0,
            folder: &self.probe.folder,
            session: &self.name,
            number: self.record.number,
        };
        let argument = command.argument(&values);
        match (command.job, self.probe.data) {
            (ClientAction::Passive(form), DataMode::Scripted | DataMode::Passive) => {
                self.passive(control, form).await
            }
            (ClientAction::Passive(_), DataMode::Active) => {
                self.active(control, ActiveForm::Port).await
            }
            (ClientAction::Active(form), DataMode::Scripted | DataMode::Active) => {
                self.active(control, form).await
            }
            (ClientAction::Active(_), DataMode::Passive) => {
                self.passive(control, PassiveForm::Epsv).await
            }
            (ClientAction::Ask, _) => self.ask(control, command, &argument).await,
            (
                ClientAction::Retrieve
                | ClientAction::Store
                | ClientAction::Append
                | ClientAction::List,
                _,
            ) => {
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

    /// Sends a command and waits for its first reply.
    async fn exchange(
        &mut self,
        control: &mut FtpControl,
        verb: &str,
        line: &str,
    ) -> Result<FtpReply, Failure> {
        self.send(control, verb, line).await?;
        let reply = control.reply(verb).await?;
        let now = self.now_us();
        let exchange = self.last();
        exchange.replied_us = Some(now);
        exchange.code = Some(reply.code.0);
        Ok(reply)
    }

    async fn send(
        &mut self,
        control: &mut FtpControl,
        verb: &str,
        line: &str,
    ) -> Result<(), Failure> {
        self.record.commands.push(CommandRecord {
            verb: verb.to_owned(),
            sent_us: self.now_us(),
            replied_us: None,
            code: None,
            data: None,
        });
        control.send(verb, line).await
    }

    /// Carries out a command that needs no data connection.
    async fn ask(
        &mut self,
        control: &mut FtpControl,
        command: &ScriptCommand,
        argument: &str,
    ) -> Result<(), Failure> {
        let verb = &command.verb;
        let line = line(verb, argument);
        let reply = self.exchange(control, verb, &line).await?;
        let was_logged_in = verb == "PASS" && reply.code.0 == 503;
        if !command.expected.is(reply.code, verb) && !was_logged_in {
            return Err(unexpected(verb, &reply));
        }
        if !matches!(
            reply.code.class(),
            ReplyClass::Completed | ReplyClass::Intermediate
        ) {
            return Ok(());
        }
        self.follow(verb, argument, &reply)
    }

    /// Updates the stored state of folders, files and modes after the server has accepted a
    /// command.
    fn follow(&mut self, verb: &str, argument: &str, reply: &FtpReply) -> Result<(), Failure> {
        match verb {
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
                let announced = reply
                    .line
                    .get(4..)
                    .and_then(|text| text.trim().parse().ok());
                if known.is_some_and(|(size, _)| announced != Some(size)) {
                    return Err(unexpected(verb, reply));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Opens a passive data connection. The probe uses only the port from the reply. The IP address
    /// is the server's address on the control connection.
    async fn passive(
        &mut self,
        control: &mut FtpControl,
        form: PassiveForm,
    ) -> Result<(), Failure> {
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
        let port = (reply.code.class() == ReplyClass::Completed)
            .then(|| announced_port(form, reply.line.as_bytes()))
            .flatten();
        let Some(port) = port else {
            return Err(unexpected(verb, &reply));
        };
        let to = SocketAddr::new(server.ip(), port);
        let during = format!("{verb}: data connection");
        let stream = connect(&during, to, self.probe.timeout).await?;
        self.data = Some(PreparedDataConnection::Connected(stream, self.now_us()));
        Ok(())
    }

    /// Prepares an active data connection. The probe listens at its own address on the control
    /// connection, and announces the port to the server.
    async fn active(&mut self, control: &mut FtpControl, form: ActiveForm) -> Result<(), Failure> {
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
        if reply.code.class() != ReplyClass::Completed {
            return Err(unexpected(verb, &reply));
        }
        self.data = Some(PreparedDataConnection::Awaited(listener));
        Ok(())
    }

    /// Carries out one transfer: sends its command, moves the bytes, waits for the replies, and
    /// checks received bytes.
    async fn transfer(
        &mut self,
        control: &mut FtpControl,
        command: &ScriptCommand,
        argument: String,
    ) -> Result<(), Failure> {
        let verb = command.verb.as_str();
        let prepared = self.data.take().expect("it was prepared");
        let from = std::mem::take(&mut self.restart);
        let path = self.files.path(&argument);
        let mut flow = self.flow(command.job, &path, from);
        self.send(control, verb, &line(verb, &argument)).await?;
        let transfer = FtpTransfer {
            began: self.began,
            reply_timeout: self.probe.timeout,
            verb,
            server: control.peer()?,
            payload: self.probe.payload,
            session: &self.name,
        };
        let mut data = DataRecord {
            is_file: command.job != ClientAction::List,
            ..DataRecord::default()
        };
        let exchange = self.record.commands.last_mut().expect("it was sent");
        let ended = transfer
            .run(control, exchange, prepared, &mut flow, &mut data)
            .await;
        let TransferEnd { reply, final_us } = match ended {
            Ok(ended) => ended,
            Err(failure) => {
                exchange.data = Some(data);
                return Err(failure);
            }
        };
        data.final_us = final_us;
        let (is_file, moved) = (data.is_file, data.bytes);
        // If the server refused the transfer, no byte was moved, and the record has no data
        // connection.
        exchange.data = final_us.is_some().then_some(data);
        if !command.expected.is(reply.code, verb) {
            return Err(unexpected(verb, &reply));
        }
        if reply.code.class() != ReplyClass::Completed {
            return Ok(());
        }
        match flow {
            TransferFlow::In(bytes) if is_file => self.judge(verb, path, from, &bytes),
            TransferFlow::In(bytes) => self.judge_listing(verb, &argument, &bytes),
            TransferFlow::Out { size, from, .. } => {
                debug_assert_eq!(moved, size.saturating_sub(from), "all was sent");
                match command.job {
                    ClientAction::Append => self.files.forget(&path),
                    _ => self.files.stored(path, size),
                }
                Ok(())
            }
        }
    }

    /// Returns the bytes that a transfer command moves. For `APPE`, the offset of `REST` is
    /// ignored.
    fn flow(&self, job: ClientAction, path: &str, from: u64) -> TransferFlow {
        let upload = |from| TransferFlow::Out {
            name: path.to_owned(),
            from,
            size: self.probe.file_size.bytes(),
        };
        match job {
            ClientAction::Store => upload(from),
            ClientAction::Append => upload(0),
            _ => TransferFlow::In(Vec::new()),
        }
    }

    /// Compares a retrieved file with the file that this session stored.
    ///
    /// If another client stored the file, all sessions of the run must receive the same content.
    /// Files that were transferred in ASCII mode are not compared, because the server may change
    /// line ends.
    fn judge(&self, verb: &str, path: String, from: u64, bytes: &[u8]) -> Result<(), Failure> {
        if !self.is_binary {
            return Ok(());
        }
        let wrong = |kind, detail: String| Err(Failure::new(kind, verb, detail));
        let got = bytes.len() as u64;
        let Some((size, made_from)) = self.files.get(&path) else {
            if from == 0 && !self.common.foreign_files.is_same(path, bytes) {
                let detail = format!("{got} bytes that are not what an earlier session got");
                return wrong(FailureKind::WrongData, detail);
            }
            return Ok(());
        };
        let wanted = size.saturating_sub(from);
        if got < wanted {
            return wrong(FailureKind::TooShort, format!("{got} of {wanted} bytes"));
        }
        let pieces = files::content(self.probe.payload, &self.name, made_from, from, size);
        if !files::is_content(bytes, pieces) {
            let detail = format!("{got} bytes, other ones than were stored");
            return wrong(FailureKind::WrongData, detail);
        }
        Ok(())
    }

    /// Checks that a listing of the current folder contains all files that this session stored in
    /// that folder.
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

    fn last(&mut self) -> &mut CommandRecord {
        self.record.commands.last_mut().expect("a command was sent")
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

fn unexpected(verb: &str, reply: &FtpReply) -> Failure {
    Failure::new(FailureKind::UnexpectedReply, verb, shortened(&reply.line))
}

fn line(verb: &str, argument: &str) -> String {
    if argument.is_empty() {
        return verb.to_owned();
    }
    format!("{verb} {argument}")
}

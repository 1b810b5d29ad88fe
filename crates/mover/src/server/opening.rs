//! Start of a session: the log-in, and the settings that apply to all transfers.
//!
//! Without a gateway, each step up to the log-in takes one round trip. If the server accepts
//! pipelined commands, the mover then sends all further commands together. A gateway receives all
//! commands at once, and forwards them to the server one by one.

use std::time::Duration;

use ftp::{
    client::{Features, Reply},
    reply::ReplyClass,
    wait,
};

use super::{ServerError, Session, control::PendingReply, stat::quoted};

/// Commands that were sent to make the settings for all transfers.
struct SessionSettings {
    protection: Option<(PendingReply, PendingReply)>,
    features: PendingReply,
    binary: PendingReply,
}

/// Optional commands that were sent. If the server does not support one of them, the session
/// continues.
struct OptionalCommands {
    /// Command that enables UTF-8 on old servers.
    utf8: Option<PendingReply>,
    /// Query for the name of a server behind a gateway. The gateway's own greeting does not contain
    /// that name.
    status: Option<PendingReply>,
    home: Option<PendingReply>,
}

impl Session {
    /// Logs in, and sends the commands for the settings that apply to all transfers.
    pub(super) async fn begin(&mut self) -> Result<(), ServerError> {
        match self.takes_any_ahead() {
            true => self.begin_at_once().await,
            false => self.begin_by_steps().await,
        }
    }

    async fn begin_by_steps(&mut self) -> Result<(), ServerError> {
        let mut reply = self.control.ask("USER", &self.dial.logon()).await?;
        if reply.class() == ReplyClass::Intermediate {
            reply = self.control.ask("PASS", self.dial.pass()?).await?;
        }
        let_in(reply)?;
        let settings = self.ask_settings()?;
        if self.control.pipelines() {
            // All commands together take one round trip. STAT is omitted, because vsftpd answers
            // STAT one round trip late, and the greeting already names vsftpd. The request for
            // UTF-8 follows later, because the mover does not know yet whether the request is
            // necessary.
            let extras = self.ask_extras(false, !self.lists_hidden_by_option)?;
            return self.settled_at_once(settings, extras).await;
        }
        self.settled(settings).await?;
        let (utf8, status) = (self.features.utf8, !self.features.machine_listings);
        let extras = self.ask_extras(utf8, status)?;
        self.read_optional_replies(extras).await
    }

    async fn begin_at_once(&mut self) -> Result<(), ServerError> {
        let user = self.control.send("USER", &self.dial.logon())?;
        let mut answered = None;
        if !self.dial.may_hurry_password() {
            // A server that requires TLS refuses the user name. The password follows only after the
            // reply, so it is not sent unencrypted.
            let reply = self.control.last(user).await?;
            if reply.class() != ReplyClass::Intermediate {
                let_in(reply.clone())?;
            }
            answered = Some(reply);
        }
        let wants_password = |reply: &Reply| reply.class() == ReplyClass::Intermediate;
        let pass = match answered.as_ref().is_none_or(wants_password) {
            true => Some(self.control.send("PASS", self.dial.pass()?)?),
            false => None,
        };
        let settings = self.ask_settings()?;
        // An older gateway forwards the command to a server. The server refuses the command.
        let wait = wait::argument(self.dial.reply_timeout.max(WAIT_LEAST));
        let wait = self.control.send("SITE", wait.as_bytes())?;
        self.control.disregard(wait);
        // The mover does not know yet whether it must request UTF-8.
        let extras = self.ask_extras(false, true)?;
        let mut reply = match answered {
            Some(reply) => reply,
            None => self.control.last(user).await?,
        };
        match pass {
            Some(pass) if wants_password(&reply) => reply = self.control.last(pass).await?,
            Some(pass) => self.control.disregard(pass),
            None => {}
        }
        let_in(reply)?;
        self.settled_at_once(settings, extras).await
    }

    /// Processes the replies to the settings and to the optional commands, which were sent
    /// together.
    async fn settled_at_once(
        &mut self,
        settings: SessionSettings,
        extras: OptionalCommands,
    ) -> Result<(), ServerError> {
        self.settled(settings).await?;
        if self.features.utf8 {
            let utf8 = self.control.send("OPTS", b"UTF8 ON")?;
            self.control.disregard(utf8);
        }
        self.read_optional_replies(extras).await?;
        if self.features.utf8 && !self.home.as_ref().is_none_or(|it| it.is_ascii()) {
            // With UTF-8 enabled, the server may report another name for the login directory.
            self.home = None;
        }
        Ok(())
    }

    fn ask_settings(&mut self) -> Result<SessionSettings, ServerError> {
        let control = &mut self.control;
        let protection = match &self.connector {
            Some(_) => Some((control.send("PBSZ", b"0")?, control.send("PROT", b"P")?)),
            None => None,
        };
        Ok(SessionSettings {
            protection,
            features: control.send("FEAT", b"")?,
            binary: control.send("TYPE", b"I")?,
        })
    }

    async fn settled(&mut self, settings: SessionSettings) -> Result<(), ServerError> {
        let control = &mut self.control;
        if let Some((size, protect)) = settings.protection {
            control.last(size).await?;
            control.done(protect).await?;
            self.data_is_plain = false;
        }
        let reply = control.last(settings.features).await?;
        self.features = Features::from_reply(&reply);
        control.done(settings.binary).await?;
        // vsftpd sets times by `MDTM TIME NAME`. Any other server looks for a file with the odd
        // name `TIME NAME`.
        self.sets_time_by_mdtm = self.features.modified && !self.features.set_modified;
        Ok(())
    }

    fn ask_extras(&mut self, utf8: bool, status: bool) -> Result<OptionalCommands, ServerError> {
        let control = &mut self.control;
        let utf8 = match utf8 {
            true => Some(control.send("OPTS", b"UTF8 ON")?),
            false => None,
        };
        let status = match status {
            true => Some(control.send("STAT", b"")?),
            false => None,
        };
        // Without pipelining, the query would cost a round trip, so it is sent only when required.
        let home = match control.pipelines() {
            true => Some(control.send("PWD", b"")?),
            false => None,
        };
        Ok(OptionalCommands { utf8, status, home })
    }

    async fn read_optional_replies(&mut self, extras: OptionalCommands) -> Result<(), ServerError> {
        if let Some(utf8) = extras.utf8 {
            self.control.last(utf8).await?;
        }
        if let Some(status) = extras.status {
            let reply = self.control.last(status).await?;
            let mut lines = reply.lines().iter();
            self.lists_hidden_by_option |= !self.features.machine_listings
                && lines.any(|line| String::from_utf8_lossy(line).contains("vsFTPd"));
        }
        if let Some(home) = extras.home {
            let reply = self.control.last(home).await?;
            self.home = match reply.is_completed() {
                true => quoted(reply.text()),
                false => None,
            };
        }
        Ok(())
    }
}

/// Shortest reply timeout that `SITE` announces to a gateway. The timeout applies to the reply to
/// an upload, which takes longer than other replies.
const WAIT_LEAST: Duration = Duration::from_secs(60);

fn let_in(reply: Reply) -> Result<(), ServerError> {
    match reply.is_completed() {
        true => Ok(()),
        false => Err(ServerError::LogIn(reply)),
    }
}

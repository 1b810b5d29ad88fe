//! How a session begins: the log-in, and what holds for all transfers.
//!
//! With a server each step takes a round trip, up to the log-in; one that takes commands ahead is given the rest at once. A
//! gateway is given all commands at once, and passes them on one by one.

use std::time::Duration;

use ftp::{
    client::{Features, Reply},
    reply::Class,
    wait,
};

use super::{ServerError, Session, control::Sent, look::quoted};

/// Commands that settle what holds for all transfers.
struct Settings {
    protection: Option<(Sent, Sent)>,
    features: Sent,
    binary: Sent,
}

/// Commands that are of use with some servers. Others refuse them, to no harm.
struct Extras {
    /// Servers that have UTF-8 only after this are old ones.
    utf8: Option<Sent>,
    /// Names a server behind a gateway that greets in its own name.
    status: Option<Sent>,
    home: Option<Sent>,
}

impl Session {
    /// Logs in, and settles what holds for all transfers.
    pub(super) async fn begin(&mut self) -> Result<(), ServerError> {
        match self.takes_any_ahead() {
            true => self.begin_at_once().await,
            false => self.begin_by_steps().await,
        }
    }

    async fn begin_by_steps(&mut self) -> Result<(), ServerError> {
        let mut reply = self.control.ask("USER", &self.dial.logon()).await?;
        if reply.class() == Class::Intermediate {
            reply = self.control.ask("PASS", &self.dial.password.0).await?;
        }
        let_in(reply)?;
        let settings = self.ask_settings()?;
        if self.control.pipelines() {
            // One round trip for all, except STAT, which vsftpd answers a round trip late. Its greeting names it in any case.
            // Whether UTF-8 has to be asked for is not known yet.
            let extras = self.ask_extras(false, !self.lists_hidden_by_option)?;
            return self.settled_at_once(settings, extras).await;
        }
        self.settled(settings).await?;
        let (utf8, status) = (self.features.utf8, !self.features.machine_listings);
        let extras = self.ask_extras(utf8, status)?;
        self.told(extras).await
    }

    async fn begin_at_once(&mut self) -> Result<(), ServerError> {
        let user = self.control.send("USER", &self.dial.logon())?;
        let mut answered = None;
        if !self.dial.may_hurry_password() {
            // A server that insists on TLS refuses the name, and the password has not been sent in the clear.
            let reply = self.control.last(user).await?;
            if reply.class() != Class::Intermediate {
                let_in(reply.clone())?;
            }
            answered = Some(reply);
        }
        let wants_password = |reply: &Reply| reply.class() == Class::Intermediate;
        let pass = match answered.as_ref().is_none_or(wants_password) {
            true => Some(self.control.send("PASS", &self.dial.password.0)?),
            false => None,
        };
        let settings = self.ask_settings()?;
        // An older gateway passes it on to a server that knows it not.
        let wait = wait::argument(self.dial.patience.max(WAIT_LEAST));
        let wait = self.control.send("SITE", wait.as_bytes())?;
        self.control.disregard(wait);
        // Whether UTF-8 has to be asked for is not known yet.
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

    /// Takes the answers to what was asked together.
    async fn settled_at_once(
        &mut self,
        settings: Settings,
        extras: Extras,
    ) -> Result<(), ServerError> {
        self.settled(settings).await?;
        if self.features.utf8 {
            let utf8 = self.control.send("OPTS", b"UTF8 ON")?;
            self.control.disregard(utf8);
        }
        self.told(extras).await?;
        if self.features.utf8 && !self.home.as_ref().is_none_or(|it| it.is_ascii()) {
            // It may have another name since.
            self.home = None;
        }
        Ok(())
    }

    fn ask_settings(&mut self) -> Result<Settings, ServerError> {
        let control = &mut self.control;
        let protection = match &self.connector {
            Some(_) => Some((control.send("PBSZ", b"0")?, control.send("PROT", b"P")?)),
            None => None,
        };
        Ok(Settings {
            protection,
            features: control.send("FEAT", b"")?,
            binary: control.send("TYPE", b"I")?,
        })
    }

    async fn settled(&mut self, settings: Settings) -> Result<(), ServerError> {
        let control = &mut self.control;
        if let Some((size, protect)) = settings.protection {
            control.last(size).await?;
            control.done(protect).await?;
            self.data_is_plain = false;
        }
        let reply = control.last(settings.features).await?;
        self.features = Features::of(&reply);
        control.done(settings.binary).await?;
        // vsftpd sets times by MDTM; who does not looks for a file with an odd name.
        self.sets_time_by_mdtm = self.features.modified && !self.features.set_modified;
        Ok(())
    }

    fn ask_extras(&mut self, utf8: bool, status: bool) -> Result<Extras, ServerError> {
        let control = &mut self.control;
        let utf8 = match utf8 {
            true => Some(control.send("OPTS", b"UTF8 ON")?),
            false => None,
        };
        let status = match status {
            true => Some(control.send("STAT", b"")?),
            false => None,
        };
        // By itself it would cost a round trip, so it is asked when it is needed.
        let home = match control.pipelines() {
            true => Some(control.send("PWD", b"")?),
            false => None,
        };
        Ok(Extras { utf8, status, home })
    }

    async fn told(&mut self, extras: Extras) -> Result<(), ServerError> {
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

/// The reply to an upload is awaited for longer than other replies.
const WAIT_LEAST: Duration = Duration::from_secs(60);

fn let_in(reply: Reply) -> Result<(), ServerError> {
    match reply.is_completed() {
        true => Ok(()),
        false => Err(ServerError::LogIn(reply)),
    }
}

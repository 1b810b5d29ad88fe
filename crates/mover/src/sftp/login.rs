//! Log-in at an SSH server: without a credential, by keys, and by the password.

use std::{future::Future, time::Duration};

use russh::{
    MethodKind, MethodSet,
    client::{AuthResult, Handle, KeyboardInteractiveAuthResponse},
    keys::{Algorithm, HashAlg},
};
use tokio::time::timeout;

use super::{
    SftpDial,
    identity::{LogInKey, UsableKeys},
    messages::{ServerMessages, SshState},
};
use crate::server::ServerError;

/// Log-in in progress.
struct LogIn<'a> {
    handle: &'a mut Handle<ServerMessages>,
    state: &'a SshState,
    dial: &'a SftpDial,
    /// User name for the server or the gateway.
    name: String,
    /// Methods that the server still accepts.
    methods: MethodSet,
    has_used_password: bool,
    /// Texts that together state the reason of a failure.
    reasons: Vec<String>,
}

/// Result of an attempt.
enum Attempt {
    Success,
    /// The server accepts the credential, and requires a further credential.
    Partial,
    Rejected,
}

/// Logs in. Returns the key of the log-in, if a key was used.
///
/// # Errors
/// [`ServerError`] if the server rejects the log-in, or if the connection is lost.
pub(super) async fn log_in(
    handle: &mut Handle<ServerMessages>,
    state: &SshState,
    dial: &SftpDial,
) -> Result<Option<LogInKey>, ServerError> {
    let mut log_in = LogIn {
        handle,
        state,
        dial,
        name: dial.log_in_name(),
        methods: MethodSet::empty(),
        has_used_password: false,
        reasons: Vec::new(),
    };
    let answer = log_in.handle.authenticate_none(log_in.name.clone());
    let answer = wait(dial, answer).await?;
    let answer = log_in.received(answer).await?;
    if let Attempt::Success = log_in.attempt(answer).await? {
        return Ok(None);
    }
    let binding = log_in.handle.agent_session_binding().cloned();
    let usable = UsableKeys::find(&dial.identity, binding.as_ref()).await;
    let keys_max = match dial.password {
        Some(_) => KEYS_MAX - 2,
        None => KEYS_MAX,
    };
    let mut keys = usable.keys.into_iter().take(keys_max);
    let mut accepted = None;
    let mut rejected_keys = 0;
    for _ in 0..STAGES_MAX {
        let mut is_partial = false;
        while log_in.takes(MethodKind::PublicKey)
            && let Some(key) = keys.next()
        {
            match log_in.by_key(&key).await? {
                Attempt::Success => return Ok(Some(key)),
                Attempt::Partial => {
                    accepted = Some(key);
                    is_partial = true;
                    break;
                }
                Attempt::Rejected => rejected_keys += 1,
            }
        }
        if !is_partial {
            match log_in.by_password().await? {
                Attempt::Success => return Ok(accepted),
                Attempt::Partial => {}
                Attempt::Rejected => break,
            }
        }
    }
    if rejected_keys > 0 {
        let text = format!("it rejected {rejected_keys} of your keys");
        log_in.reasons.push(text);
    }
    log_in.reasons.extend(usable.skipped);
    Err(log_in.failure().await)
}

impl LogIn<'_> {
    fn takes(&self, method: MethodKind) -> bool {
        self.methods.contains(&method)
    }

    /// Evaluates the answer to an attempt.
    async fn attempt(&mut self, answer: AuthResult) -> Result<Attempt, ServerError> {
        match answer {
            AuthResult::Success => Ok(Attempt::Success),
            AuthResult::Failure {
                remaining_methods,
                partial_success,
            } => self.failed(remaining_methods, partial_success).await,
        }
    }

    async fn failed(
        &mut self,
        methods: MethodSet,
        is_partial: bool,
    ) -> Result<Attempt, ServerError> {
        // The library reports the end of the connection as a rejection without methods.
        if methods.is_empty() && self.handle.is_closed() {
            return Err(self.failure().await);
        }
        self.methods = methods;
        Ok(match is_partial {
            true => Attempt::Partial,
            false => Attempt::Rejected,
        })
    }

    async fn by_key(&mut self, key: &LogInKey) -> Result<Attempt, ServerError> {
        let public = key.public_key().clone();
        let hash = match public.algorithm() {
            Algorithm::Rsa { .. } => match self.handle.best_supported_rsa_hash().await {
                // Signatures with SHA-1 are not safe.
                Ok(Some(None)) => {
                    let text = "it takes RSA keys only with SHA-1, which is not safe".to_owned();
                    self.reasons.push(text);
                    return Ok(Attempt::Rejected);
                }
                Ok(Some(hash)) => hash,
                _ => Some(HashAlg::Sha512),
            },
            _ => None,
        };
        let mut signer = key;
        let name = self.name.clone();
        let answer = self
            .handle
            .authenticate_publickey_with(name, public, hash, &mut signer);
        match wait(self.dial, answer).await? {
            Ok(answer) => self.attempt(answer).await,
            Err(error) if !self.handle.is_closed() => {
                self.reasons.push(error.to_string());
                Ok(Attempt::Rejected)
            }
            Err(_) => Err(self.failure().await),
        }
    }

    /// Logs in with the password. Uses the method `password`, or else sends the password as the
    /// answer to a question.
    async fn by_password(&mut self) -> Result<Attempt, ServerError> {
        let takes_password = self.takes(MethodKind::Password);
        let takes_answers = self.takes(MethodKind::KeyboardInteractive);
        if self.has_used_password || !(takes_password || takes_answers) {
            return Ok(Attempt::Rejected);
        }
        let Some(password) = &self.dial.password else {
            return Ok(Attempt::Rejected);
        };
        let Ok(password) = String::from_utf8(password.0.clone()) else {
            self.reasons
                .push("the password is not valid UTF-8".to_owned());
            return Ok(Attempt::Rejected);
        };
        self.has_used_password = true;
        if takes_password {
            let name = self.name.clone();
            let answer = self.handle.authenticate_password(name, password.clone());
            let answer = wait(self.dial, answer).await?;
            let answer = self.received(answer).await?;
            match self.attempt(answer).await? {
                Attempt::Rejected => self.reasons.push("it rejected the password".to_owned()),
                attempt => return Ok(attempt),
            }
            return Ok(Attempt::Rejected);
        }
        self.by_question(password).await
    }

    /// Answers one question of the server with the password.
    async fn by_question(&mut self, password: String) -> Result<Attempt, ServerError> {
        let mut password = Some(password);
        let name = self.name.clone();
        let answer = self
            .handle
            .authenticate_keyboard_interactive_start(name, None);
        let mut answer = wait(self.dial, answer).await?;
        for _ in 0..QUESTIONS_MAX {
            let prompts = match self.received(answer).await? {
                KeyboardInteractiveAuthResponse::Success => return Ok(Attempt::Success),
                KeyboardInteractiveAuthResponse::Failure {
                    remaining_methods,
                    partial_success,
                } => {
                    let attempt = self.failed(remaining_methods, partial_success).await?;
                    if let (Attempt::Rejected, None) = (&attempt, &password) {
                        self.reasons.push("it rejected the password".to_owned());
                    }
                    return Ok(attempt);
                }
                KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => prompts,
            };
            let answers = match &prompts[..] {
                [] => Vec::new(),
                [prompt] if !prompt.echo && password.is_some() => {
                    vec![password.take().unwrap_or_default()]
                }
                prompts => {
                    let asked: String = prompts[0].prompt.chars().take(PROMPT_MAX).collect();
                    let asked = asked.trim().escape_debug().to_string();
                    self.reasons.push(format!(
                        "it asks {asked:?}, and the mover answers only one question for a password"
                    ));
                    vec![String::new(); prompts.len()]
                }
            };
            let next = self
                .handle
                .authenticate_keyboard_interactive_respond(answers);
            answer = wait(self.dial, next).await?;
        }
        self.reasons.push("it asks too many questions".to_owned());
        Err(self.failure().await)
    }

    /// Returns an answer of the server. If the connection was lost, the error contains the reason
    /// in the server's disconnect message.
    async fn received<T>(&self, answer: Result<T, russh::Error>) -> Result<T, ServerError> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let reason = self.state.reason().await;
        let text = match (reason, self.state.has_ended()) {
            (Some(reason), true) => reason,
            (Some(banner), false) => format!("{error}; {banner}"),
            (None, _) => error.to_string(),
        };
        Err(ServerError::Ssh {
            peer: self.dial.describe(),
            source: std::io::Error::new(std::io::ErrorKind::ConnectionReset, text),
        })
    }

    /// Returns the error of a log-in that was rejected.
    async fn failure(&mut self) -> ServerError {
        let takes_password =
            self.takes(MethodKind::Password) || self.takes(MethodKind::KeyboardInteractive);
        let wants_password = takes_password && self.dial.password.is_none();
        let mut reasons = std::mem::take(&mut self.reasons);
        if wants_password {
            reasons.push("no password is known".to_owned());
        }
        if !self.methods.is_empty() {
            let methods = self.methods.iter().map(<&str>::from);
            let methods: Vec<&str> = methods.collect();
            reasons.push(format!("it accepts {}", methods.join(", ")));
        }
        let said = match self.handle.is_closed() {
            true => self.state.reason().await,
            false => Some(self.state.banner()).filter(|it| !it.is_empty()),
        };
        reasons.extend(said);
        ServerError::SshLogIn {
            peer: self.dial.describe(),
            user: self.dial.user.clone(),
            reason: reasons.join("; "),
            wants_password,
        }
    }
}

/// Waits for an answer of the server.
///
/// # Errors
/// [`ServerError::Silent`] if the server does not answer in time.
async fn wait<T>(dial: &SftpDial, answer: impl Future<Output = T>) -> Result<T, ServerError> {
    let limit = dial.reply_timeout.max(ANSWER_TIMEOUT);
    let answer = timeout(limit, answer).await;
    answer.map_err(|_| ServerError::Silent {
        peer: dial.describe(),
        command: "the log-in",
        reply_timeout: limit,
    })
}

/// Maximum number of keys that are offered. Servers usually end the connection after six failed
/// attempts.
const KEYS_MAX: usize = 6;

/// Maximum number of credentials that a server may require one after the other.
const STAGES_MAX: usize = 4;

/// Maximum number of questions of a server.
const QUESTIONS_MAX: usize = 8;

/// Maximum number of characters of a question in a message.
const PROMPT_MAX: usize = 80;

/// Minimum of the time limit for an answer. Servers delay answers to wrong credentials, and agents
/// ask their users.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

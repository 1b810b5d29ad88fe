//! Log-in at a server with the credentials of the client.

use std::{future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use russh::{
    Signer,
    client::{AuthResult, Handle, KeyboardInteractiveAuthResponse},
    keys::{
        Algorithm, HashAlg, PrivateKeyWithHashAlg, PublicKey, agent::AgentIdentity,
        key::parse_public_key,
    },
};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tracing::{info, warn};

use super::{
    connection::{ServerHandler, ServerState},
    near_half::NearHalf,
    user_keys,
};
use crate::{
    settings::{FarSsh, PublicKeyWay},
    wire::session::{Method, ToFar, ToNear},
};

/// Pending log-in at a server.
pub(super) struct Login {
    pub(super) handle: Handle<ServerHandler>,
    pub(super) banners: mpsc::Receiver<String>,
    pub(super) state: Arc<ServerState>,
    pub(super) settings: Arc<FarSsh>,
    /// Address of the client, for the identifier of certificates.
    pub(super) client: String,
}

/// Result of one request of the near half.
enum Step {
    /// Reply for the near half.
    Reply(ToNear),
    /// The near half has sent another message in place of the expected one.
    Next(Option<ToFar>),
}

impl Login {
    /// Relays requests until the server accepts a log-in. Returns the handle of the connection, or
    /// `None` if the client has left.
    ///
    /// # Errors
    /// The reason why the session has ended, as a sentence for the user.
    pub(super) async fn run(
        mut self,
        near: &mut NearHalf,
    ) -> Result<Option<Handle<ServerHandler>>, String> {
        let state = self.state.clone();
        let mut next = None;
        // Number of answers that the server awaits.
        let mut awaited_answers = None;
        loop {
            let request = match next.take() {
                Some(request) => request,
                None => tokio::select! {
                    request = near.next() => match request {
                        Ok(Some(request)) => request,
                        Ok(None) => return Ok(None),
                        Err(error) => return Err(error.to_string()),
                    },
                    text = state.wait_for_end() => return Err(text),
                },
            };
            if let Some(count) = awaited_answers.take()
                && !matches!(request, ToFar::Answers { .. })
            {
                // The library accepts no other request before the answers.
                let _ = self.answer(near, vec![String::new(); count]).await?;
            }
            let step = match request {
                ToFar::Open { .. } => return Err("unexpected message".to_owned()),
                ToFar::Methods { user } => {
                    let answer = self.handle.authenticate_none(user);
                    let answer = wait(near, &state, answer).await?;
                    Step::Reply(self.outcome(answer.map(|it| reply(&it)))?)
                }
                ToFar::Password { user, password } => {
                    let answer = self.handle.authenticate_password(user, password);
                    let answer = wait(near, &state, answer).await?;
                    Step::Reply(self.outcome(answer.map(|it| reply(&it)))?)
                }
                ToFar::Interactive { user, submethods } => {
                    let handle = &mut self.handle;
                    let answer =
                        handle.authenticate_keyboard_interactive_start(user, Some(submethods));
                    let answer = wait(near, &state, answer).await?;
                    Step::Reply(self.outcome(answer.map(interactive_reply))?)
                }
                ToFar::Answers { answers } => Step::Reply(self.answer(near, answers).await?),
                ToFar::Offered {
                    user,
                    key,
                    algorithm,
                } => self.offer(near, &user, &key, &algorithm).await?,
                // These messages are valid only after an offer.
                ToFar::Proved { .. } | ToFar::Signature { .. } => Step::Reply(rejected()),
            };
            let reply = match step {
                Step::Reply(reply) => reply,
                Step::Next(Some(request)) => {
                    next = Some(request);
                    continue;
                }
                Step::Next(None) => return Ok(None),
            };
            if let ToNear::Prompts { prompts, .. } = &reply {
                awaited_answers = Some(prompts.len());
            }
            while let Ok(text) = self.banners.try_recv() {
                let sent = near.send(&ToNear::Banner { text }).await;
                sent.map_err(|error| error.to_string())?;
            }
            near.send(&reply).await.map_err(|error| error.to_string())?;
            if reply == ToNear::Authenticated {
                info!("logged in");
                return Ok(Some(self.handle));
            }
        }
    }

    async fn answer(
        &mut self,
        near: &mut NearHalf,
        answers: Vec<String>,
    ) -> Result<ToNear, String> {
        let handle = &mut self.handle;
        let answer = handle.authenticate_keyboard_interactive_respond(answers);
        let answer = wait(near, &self.state, answer).await?;
        self.outcome(answer.map(interactive_reply))
    }

    /// Returns the reply that the near half receives after a log-in attempt. The library reports
    /// the end of the connection as a rejection without methods.
    ///
    /// # Errors
    /// The reason why the connection was lost, as a sentence for the user. If the server has sent a
    /// disconnect message, the attempt counts as rejected, and there is no error.
    fn outcome<E: ToString>(&self, answer: Result<ToNear, E>) -> Result<ToNear, String> {
        let is_lost = match &answer {
            Ok(ToNear::Rejected { methods, .. }) => methods.is_empty() && self.handle.is_closed(),
            Ok(_) => false,
            Err(_) => self.handle.is_closed(),
        };
        match answer {
            _ if is_lost && self.state.has_disconnected() => Ok(ToNear::Rejected {
                methods: Vec::new(),
                is_partial: false,
            }),
            _ if is_lost => {
                let text = self.state.end.borrow().clone();
                Err(text.unwrap_or_else(|| "the connection to the server was lost".to_owned()))
            }
            answer => answer.map_err(|error| error.to_string()),
        }
    }

    /// Asks the server whether it accepts a key. If it does, the function waits for the client's
    /// proof or signature.
    async fn offer(
        &mut self,
        near: &mut NearHalf,
        user: &str,
        key: &[u8],
        algorithm: &str,
    ) -> Result<Step, String> {
        let Ok(key) = parse_public_key(key) else {
            return Ok(Step::Reply(rejected()));
        };
        let hash = match algorithm {
            "rsa-sha2-256" => Some(HashAlg::Sha256),
            "rsa-sha2-512" => Some(HashAlg::Sha512),
            _ => None,
        };
        if matches!(key.algorithm(), Algorithm::Rsa { .. }) && hash.is_none() {
            // SHA-1 is not safe.
            return Ok(Step::Reply(rejected()));
        }
        let (known, mut is_known) = oneshot::channel();
        let (signature, signed) = oneshot::channel();
        let mut signer = AwaitedSignature {
            known: Some(known),
            signature: Some(signed),
        };
        let state = self.state.clone();
        let next = {
            let handle = &mut self.handle;
            let offered = handle.authenticate_publickey_with(user, key.clone(), hash, &mut signer);
            // The future borrows the handle.
            let mut offered = Box::pin(offered);
            let first = async {
                tokio::select! {
                    result = &mut offered => Err(result),
                    Ok(to_sign) = &mut is_known => Ok(Bytes::from(to_sign)),
                }
            };
            let to_sign = match wait(near, &state, first).await? {
                Ok(to_sign) => to_sign,
                Err(result) => {
                    drop(offered);
                    return Ok(Step::Reply(self.outcome(offer_reply(result))?));
                }
            };
            let sent = near.send(&ToNear::KeyKnown { to_sign }).await;
            sent.map_err(|error| error.to_string())?;
            let next = tokio::select! {
                next = near.next() => next.map_err(|error| error.to_string())?,
                text = state.wait_for_end() => return Err(text),
                // The signer waits for the signature.
                _ = &mut offered => return Err("the server has ended the log-in".to_owned()),
            };
            if let Some(ToFar::Signature { signature: bytes }) = next {
                let _ = signature.send(bytes);
                let result = wait(near, &state, &mut offered).await?;
                drop(offered);
                return Ok(Step::Reply(self.outcome(offer_reply(result))?));
            }
            // Without a signature, the attempt ends.
            drop(signature);
            let _ = wait(near, &state, offered).await?;
            next
        };
        match next {
            Some(ToFar::Proved { ways }) => {
                Ok(Step::Reply(self.log_in_by(near, &ways, user, &key).await?))
            }
            next => Ok(Step::Next(next)),
        }
    }

    /// Logs in as `user` by the first method that the server accepts. The near gateway has verified
    /// that the client has the private key of `key`.
    async fn log_in_by(
        &mut self,
        near: &mut NearHalf,
        ways: &[PublicKeyWay],
        user: &str,
        key: &PublicKey,
    ) -> Result<ToNear, String> {
        let mut last = rejected();
        for way in ways {
            let credential = match way {
                PublicKeyWay::Agent => continue,
                PublicKeyWay::Key => user_keys::key_of(&self.settings, user).await,
                PublicKeyWay::Certificate => {
                    user_keys::certificate_for(&self.settings, user, key, &self.client).await
                }
            };
            let credential = match credential {
                Ok(credential) => credential,
                Err(error) => {
                    warn!(?way, user = %user.escape_debug(), %error, "no key for the log-in");
                    continue;
                }
            };
            let handle = &mut self.handle;
            let answer = async {
                match credential.certificate {
                    None => {
                        let key = PrivateKeyWithHashAlg::new(credential.key, None);
                        handle.authenticate_publickey(user, key).await
                    }
                    Some(certificate) => {
                        let key = credential.key;
                        handle
                            .authenticate_openssh_cert(user, key, certificate)
                            .await
                    }
                }
            };
            let answer = wait(near, &self.state, answer).await?;
            last = self.outcome(answer.map(|it| reply(&it)))?;
            if !matches!(
                last,
                ToNear::Rejected {
                    is_partial: false,
                    ..
                }
            ) {
                return Ok(last);
            }
            warn!(?way, user = %user.escape_debug(), "the server rejected the gateway's key");
        }
        Ok(last)
    }
}

/// Waits for an answer of the server.
///
/// # Errors
/// A sentence for the user. The wait fails if the near half has ended the session, the connection
/// to the server has ended, or no answer arrives in time.
async fn wait<T>(
    near: &mut NearHalf,
    state: &ServerState,
    answer: impl Future<Output = T>,
) -> Result<T, String> {
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        error = near.frames.failed() => Err(format!("the client left during the log-in: {error}")),
        // When the connection ends, the library returns an answer, but possibly a little later.
        () = async { state.wait_for_end().await; sleep(END_TIMEOUT).await } => {
            Err(state.end_text().await)
        }
        () = sleep(ANSWER_TIMEOUT) => Err("the server does not answer the log-in in time".to_owned()),
    }
}

/// Signer that waits for the signature of the client's agent.
struct AwaitedSignature {
    /// Receives the data to sign when the server accepts the key.
    known: Option<oneshot::Sender<Vec<u8>>>,
    signature: Option<oneshot::Receiver<Bytes>>,
}

/// The client has not signed.
#[derive(Debug)]
struct NoSignature;

impl From<russh::SendError> for NoSignature {
    fn from(_: russh::SendError) -> Self {
        Self
    }
}

impl Signer for AwaitedSignature {
    type Error = NoSignature;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        _: Option<HashAlg>,
        mut to_sign: Vec<u8>,
    ) -> Result<Vec<u8>, NoSignature> {
        let known = self.known.take().ok_or(NoSignature)?;
        known.send(to_sign.clone()).map_err(|_| NoSignature)?;
        let signature = match self.signature.take() {
            Some(signature) => signature.await.map_err(|_| NoSignature)?,
            None => pending().await,
        };
        let length = u32::try_from(signature.len()).map_err(|_| NoSignature)?;
        to_sign.extend_from_slice(&length.to_be_bytes());
        to_sign.extend_from_slice(&signature);
        Ok(to_sign)
    }
}

fn reply(result: &AuthResult) -> ToNear {
    match result {
        AuthResult::Success => ToNear::Authenticated,
        AuthResult::Failure {
            remaining_methods,
            partial_success,
        } => ToNear::Rejected {
            methods: Method::of_set(remaining_methods),
            is_partial: *partial_success,
        },
    }
}

fn offer_reply(result: Result<AuthResult, NoSignature>) -> Result<ToNear, String> {
    Ok(match result {
        Ok(result) => reply(&result),
        Err(NoSignature) => rejected(),
    })
}

fn interactive_reply(response: KeyboardInteractiveAuthResponse) -> ToNear {
    match response {
        KeyboardInteractiveAuthResponse::Success => ToNear::Authenticated,
        KeyboardInteractiveAuthResponse::Failure {
            remaining_methods,
            partial_success,
        } => ToNear::Rejected {
            methods: Method::of_set(&remaining_methods),
            is_partial: partial_success,
        },
        KeyboardInteractiveAuthResponse::InfoRequest {
            name,
            instructions,
            prompts,
        } => ToNear::Prompts {
            name,
            instructions,
            prompts: prompts.into_iter().map(|it| (it.prompt, it.echo)).collect(),
        },
    }
}

/// Rejection after which the client may still use all methods.
fn rejected() -> ToNear {
    ToNear::Rejected {
        methods: vec![Method::PublicKey, Method::Interactive, Method::Password],
        is_partial: false,
    }
}

/// Time limit for an answer of the server. Servers delay answers to wrong passwords, and second
/// factors wait for people.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);

/// Time limit for the library's answer. The time starts when the connection has ended.
const END_TIMEOUT: Duration = Duration::from_secs(1);

//! Log-in of a client. The server decides on each log-in; the gateway relays requests and replies.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use relay::limits::ReachedLimit;
use russh::{
    MethodSet,
    keys::{PublicKey, PublicKeyBase64 as _},
    server::{Auth, Handle},
};
use tokio::sync::Notify;
use tracing::info;

use super::{
    agent,
    client::Client,
    far_half::{FarHalf, SessionEnd},
    login_state::KnownKey,
};
use crate::{
    settings::PublicKeyWay,
    target::{NamedTarget, user_at},
    wire::session::{EndReason, Method, ToFar, ToNear},
};

/// Answers the request for the methods of a user. Clients request the methods first, so a stored
/// answer of the server saves a round trip.
pub(super) async fn methods(client: &Client, name: &str) -> Auth {
    let (far, user) = match far_half(client, name).await {
        Ok(found) => found,
        Err(end) => return refuse(client, end),
    };
    if let Some(methods) = client.memory.find(&far.target, &user) {
        // After a refusal, all clients continue with a credential, and then show the reason.
        if let Err(end) = far.wait_for_server().await {
            return refuse(client, end);
        }
        let is_partial = false;
        let stored = ToNear::Rejected {
            methods,
            is_partial,
        };
        return conclude(client, &far, Ok(stored), false);
    }
    start_attempt(client, &user).await;
    let reply = far.request(&ToFar::Methods { user: user.clone() }).await;
    if let Ok(ToNear::Rejected { methods, .. }) = &reply {
        client.memory.store(&far.target, &user, methods);
    }
    conclude(client, &far, reply, false)
}

/// Relays a log-in by a password.
pub(super) async fn password(client: &Client, name: &str, password: &str) -> Auth {
    let (far, user) = match far_half(client, name).await {
        Ok(found) => found,
        Err(end) => return refuse(client, end),
    };
    start_attempt(client, &user).await;
    let password = password.to_owned();
    let reply = far.request(&ToFar::Password { user, password }).await;
    conclude_attempt(client, &far, reply, None).await
}

/// Relays a log-in in which the server asks questions. `answers` are the answers to the last
/// questions. `None` starts the log-in.
pub(super) async fn interactive(
    client: &Client,
    name: &str,
    submethods: &str,
    answers: Option<Vec<String>>,
) -> Auth {
    let (far, user) = match far_half(client, name).await {
        Ok(found) => found,
        Err(end) => return refuse(client, end),
    };
    start_attempt(client, &user).await;
    let request = match answers {
        Some(answers) => ToFar::Answers { answers },
        None => ToFar::Interactive {
            user,
            submethods: submethods.to_owned(),
        },
    };
    match far.request(&request).await {
        Ok(ToNear::Prompts {
            name,
            instructions,
            prompts,
        }) => Auth::Partial {
            name: name.into(),
            // Clients print the instructions before the questions.
            instructions: format!("{}{instructions}", far.take_banner()).into(),
            prompts: prompts
                .into_iter()
                .map(|(text, is_visible)| (Cow::Owned(text), is_visible))
                .collect(),
        },
        reply => conclude_attempt(client, &far, reply, None).await,
    }
}

/// Stores the user of an attempt without a public key. The attempt ends the earlier offer of a key.
async fn start_attempt(client: &Client, user: &str) {
    let mut login = client.login.lock().await;
    user.clone_into(&mut login.user);
    login.known_key = None;
}

/// Asks the server whether it accepts a public key. The client has not proved yet that it has the
/// private key.
///
/// If the gateway remembers the key, the client does not wait for the answer. The server still
/// decides on the log-in.
pub(super) async fn key_offered(
    client: &Client,
    name: &str,
    key: &PublicKey,
    algorithm: String,
) -> Auth {
    let (far, user) = match far_half(client, name).await {
        Ok(found) => found,
        Err(end) => return refuse(client, end),
    };
    if client.listener.public_key.is_empty() {
        return Auth::reject();
    }
    let key = Bytes::from(key.public_key_bytes());
    let mut login = client.login.lock().await;
    login.user.clone_from(&user);
    login.known_key = None;
    let offered = ToFar::Offered {
        user,
        key: key.clone(),
        algorithm: algorithm.clone(),
    };
    let known = KnownKey {
        user: name.to_owned(),
        key: key.clone(),
        algorithm,
        to_sign: None,
    };
    let is_remembered = client
        .memory
        .has_key(&far.target, &login.user, known.digest());
    if is_remembered && far.is_idle().await {
        if let Err(end) = far.send_request(&offered).await {
            return refuse(client, end);
        }
        login.known_key = Some(known);
        return Auth::Accept;
    }
    match far.request(&offered).await {
        Ok(ToNear::KeyKnown { to_sign }) if agent::is_login(&to_sign, &login.user, &key) => {
            let to_sign = Some(to_sign);
            login.known_key = Some(KnownKey { to_sign, ..known });
            Auth::Accept
        }
        reply => conclude(client, &far, reply, true),
    }
}

/// Logs in a client that has proved that it has the private key of an offered key.
///
/// If only the client's agent can sign, the log-in at the server waits for the first channel,
/// because clients forward their agents on channels.
pub(super) async fn key_proved(client: &Client, name: &str, key: &PublicKey) -> Auth {
    if let Some(end) = client.refused() {
        return refuse(client, end);
    }
    let Some(far) = client.far_half() else {
        return Auth::reject();
    };
    let mut login = client.login.lock().await;
    let bytes = key.public_key_bytes();
    let known = login.known_key.clone();
    let Some(known) = known.filter(|it| it.user == name && it.key == bytes) else {
        return Auth::reject();
    };
    let ways = &client.listener.public_key;
    let agent = ways.iter().position(|it| *it == PublicKeyWay::Agent);
    let at_once = &ways[..agent.unwrap_or(ways.len())];
    if !at_once.is_empty() {
        let proof = prove(&far, &known, at_once.to_vec()).await;
        // The proof has ended the offer.
        login.known_key = None;
        let may_retry = matches!(&proof, Ok(proof) if proof.is_key_accepted && proof.is_rejected());
        if agent.is_none() || !may_retry {
            drop(login);
            let reply = proof.map(|it| it.reply);
            return conclude_attempt(client, &far, reply, Some(&known)).await;
        }
        // The rejected attempt has ended the earlier offer, so the key is offered again.
        let offered = ToFar::Offered {
            user: login.user.clone(),
            key: known.key.clone(),
            algorithm: known.algorithm.clone(),
        };
        match far.request(&offered).await {
            Ok(ToNear::KeyKnown { to_sign })
                if agent::is_login(&to_sign, &login.user, &known.key) =>
            {
                let to_sign = Some(to_sign);
                login.known_key = Some(KnownKey { to_sign, ..known });
            }
            reply => return conclude(client, &far, reply, true),
        }
    }
    login.deferred = ways[agent.unwrap_or(ways.len())..].to_vec();
    Auth::Accept
}

/// Completes the log-in at the server before the first program starts. `has_agent` states whether
/// the client forwards its agent. The function notifies `may_open` if the far half may receive the
/// program before the log-in is complete.
///
/// # Errors
/// The reason why the log-in is impossible, as a sentence for the user.
pub(super) async fn complete(
    client: &Client,
    has_agent: bool,
    handle: &Handle,
    may_open: &Notify,
) -> Result<(), String> {
    if let Some(end) = client.refused() {
        return Err(end.text);
    }
    let far = client.far_half().ok_or("the session has no server")?;
    let mut login = client.login.lock().await;
    if login.deferred.is_empty() {
        return Ok(());
    }
    if let Some(failure) = &login.failure {
        return Err(failure.clone());
    }
    let later = login.deferred.iter().copied();
    let ways: Vec<_> = later.filter(|it| *it != PublicKeyWay::Agent).collect();
    let mut why = "the gateway can log in only with your agent, which you do not forward; \
                   run ssh, sftp or scp with -A"
        .to_owned();
    let mut is_rejected = false;
    if has_agent && let Some(mut known) = login.known_key.take() {
        match sign(&far, &login.user, &mut known, handle).await {
            Ok(signature) => {
                if ways.is_empty() {
                    // If the server rejects the signature, the session has no other way to log in,
                    // and the far half never starts the program.
                    may_open.notify_one();
                }
                let reply = far.request(&ToFar::Signature { signature }).await;
                if let Err(end) = &reply {
                    login.failure = Some(end.text.clone());
                }
                match reply.map_err(|end| end.text)? {
                    ToNear::Authenticated => {
                        login.deferred.clear();
                        log_success(client, &far, &login.user, Some(&known));
                        return Ok(());
                    }
                    ToNear::Rejected {
                        is_partial: true, ..
                    } => {
                        why = "the server requires a further log-in step after the public key, \
                               which is impossible with an agent"
                            .to_owned();
                    }
                    _ => {
                        why = "the server rejected the signature of your agent".to_owned();
                        is_rejected = true;
                    }
                }
            }
            Err(SigningFailure::KeyRejected) => {
                why = KEY_REJECTED.to_owned();
                is_rejected = true;
            }
            Err(SigningFailure::NoAnswer(text)) => why = text,
            Err(SigningFailure::NoSignature(text)) => {
                why = text;
                login.known_key = Some(known);
            }
        }
    }
    if !ways.is_empty()
        && let Some(known) = login.known_key.take()
    {
        let proof = prove(&far, &known, ways).await;
        if let Err(end) = &proof {
            login.failure = Some(end.text.clone());
        }
        let proof = proof.map_err(|end| end.text)?;
        if proof.reply == ToNear::Authenticated {
            login.deferred.clear();
            log_success(client, &far, &login.user, Some(&known));
            return Ok(());
        }
        if !proof.is_key_accepted {
            why = KEY_REJECTED.to_owned();
        }
        is_rejected = true;
    }
    if is_rejected {
        client.memory.forget(&far.target, &login.user);
        let user = login.user.escape_debug().to_string();
        let server = far.target.to_string();
        // The limit applies to the next connection of the client.
        let _ = client
            .relay
            .record_failed_login(client.address, &server, &user);
    }
    if login.known_key.is_none() {
        login.failure = Some(why.clone());
    }
    Err(why)
}

/// Returns the user name at the server, for logs.
pub(super) async fn user(client: &Client) -> String {
    client.login.lock().await.user.escape_debug().to_string()
}

/// Result of a log-in by a key of the far gateway.
struct Proof {
    /// Whether the server accepts the client's key.
    is_key_accepted: bool,
    /// Reply to the log-in, or the rejection of the client's key.
    reply: ToNear,
}

impl Proof {
    /// Returns whether the server has accepted nothing.
    fn is_rejected(&self) -> bool {
        matches!(
            self.reply,
            ToNear::Rejected {
                is_partial: false,
                ..
            }
        )
    }
}

/// Lets the far half log in by one of `ways`. The client has proved that it has the private key of
/// `known`.
///
/// # Errors
/// The reason why the session has ended.
async fn prove(
    far: &FarHalf,
    known: &KnownKey,
    ways: Vec<PublicKeyWay>,
) -> Result<Proof, SessionEnd> {
    let proved = ToFar::Proved { ways };
    if known.to_sign.is_some() {
        return Ok(Proof {
            is_key_accepted: true,
            reply: far.request(&proved).await?,
        });
    }
    far.send_request(&proved).await?;
    let offered = offer_reply(far).await?;
    let reply = far.reply().await?;
    Ok(match offered {
        ToNear::KeyKnown { .. } => Proof {
            is_key_accepted: true,
            reply,
        },
        rejection => Proof {
            is_key_accepted: false,
            reply: rejection,
        },
    })
}

/// Returns the reply to the offer of a remembered key.
///
/// # Errors
/// The reason why the session has ended. The far half reports a disconnect by the server as a
/// rejection without methods.
async fn offer_reply(far: &FarHalf) -> Result<ToNear, SessionEnd> {
    match far.reply().await? {
        ToNear::Rejected { methods, .. } if methods.is_empty() => Err(SessionEnd {
            reason: EndReason::Closed,
            text: format!("{} permits no further log-in", far.target),
        }),
        reply => Ok(reply),
    }
}

/// Reason why there is no signature for a log-in.
enum SigningFailure {
    /// The server does not accept the key.
    KeyRejected,
    /// The server's answer to the offer of the key is missing. The text is a sentence for the user.
    NoAnswer(String),
    /// The client's agent does not sign. The text is a sentence for the user.
    NoSignature(String),
}

/// Requests the signature for the log-in of `user` from the client's agent.
async fn sign(
    far: &FarHalf,
    user: &str,
    known: &mut KnownKey,
    handle: &Handle,
) -> Result<Bytes, SigningFailure> {
    let to_sign = match &known.to_sign {
        Some(to_sign) => to_sign.clone(),
        None => match offer_reply(far).await {
            Ok(ToNear::KeyKnown { to_sign }) if agent::is_login(&to_sign, user, &known.key) => {
                known.to_sign.insert(to_sign).clone()
            }
            Ok(ToNear::Rejected { .. }) => return Err(SigningFailure::KeyRejected),
            Ok(_) => {
                let text = "unexpected reply of the far gateway".to_owned();
                return Err(SigningFailure::NoAnswer(text));
            }
            Err(end) => return Err(SigningFailure::NoAnswer(end.text)),
        },
    };
    let signed = agent::sign(handle, &known.key, &to_sign, &known.algorithm).await;
    signed.map_err(SigningFailure::NoSignature)
}

/// Returns the far half of the session and the user name at the server. If the client names its
/// server, the first call opens the session.
async fn far_half(client: &Client, name: &str) -> Result<(Arc<FarHalf>, String), SessionEnd> {
    if let Some(end) = client.refused() {
        return Err(end);
    }
    // Log-ins on other connections of the client may have failed since the gateway admitted this
    // connection.
    let permitted = client.relay.check_failed_logins(client.address);
    permitted.map_err(limit_end)?;
    let unavailable = |text: &str| SessionEnd {
        reason: EndReason::Unavailable,
        text: text.to_owned(),
    };
    if let Some(end) = client.far_half().and_then(|far| far.ended()) {
        return Err(end);
    }
    if let Some(target) = &client.listener.target {
        let far = client.far_half();
        let far = far.ok_or_else(|| unavailable("the session has no server"))?;
        return match user_at(name, target) {
            Ok(user) => Ok((far, user.to_owned())),
            Err(other) => Err(unavailable(&format!(
                "this listener leads only to {target}, and not to {other}: name {target} as the \
                 server, or use a listener without a target"
            ))),
        };
    }
    let named = NamedTarget::parse(name);
    let named = named.ok_or_else(|| {
        unavailable("name the server in the user name: user%host, user%host:port or user+host")
    })?;
    if let Some(far) = client.far_half() {
        return match far.target == named.server {
            true => Ok((far, named.user.to_owned())),
            false => Err(unavailable("a connection has one server")),
        };
    }
    let names = (client.address, client.session);
    let (relay, listener) = (&client.relay, &client.listener);
    let opened = FarHalf::open(relay, &named.server, listener, names).await?;
    let far = Arc::new(opened);
    client.far.send_replace(Some(far.clone()));
    Ok((far, named.user.to_owned()))
}

/// Refuses a client with a sentence.
///
/// The task of the connection then sends a disconnect message with the sentence.
fn refuse(client: &Client, end: SessionEnd) -> Auth {
    client.refuse(end);
    Auth::reject()
}

/// Returns the end of a session whose client has reached a limit.
fn limit_end(reached: ReachedLimit) -> SessionEnd {
    SessionEnd {
        reason: EndReason::Unavailable,
        text: reached.to_string(),
    }
}

/// Translates the reply to an attempt to log in, and counts a failure. `key` is the client's key if
/// the attempt used a key.
async fn conclude_attempt(
    client: &Client,
    far: &FarHalf,
    reply: Result<ToNear, SessionEnd>,
    key: Option<&KnownKey>,
) -> Auth {
    let user = client.login.lock().await.user.clone();
    if !matches!(reply, Ok(ToNear::Authenticated)) {
        // After a failure, the server may offer other methods.
        client.memory.forget(&far.target, &user);
    }
    match &reply {
        Ok(ToNear::Authenticated) => log_success(client, far, &user, key),
        Ok(ToNear::Rejected {
            is_partial: false, ..
        }) => {
            let server = far.target.to_string();
            let user = user.escape_debug().to_string();
            let recorded = client
                .relay
                .record_failed_login(client.address, &server, &user);
            if let Err(reached) = recorded {
                return refuse(client, limit_end(reached));
            }
        }
        _ => {}
    }
    conclude(client, far, reply, false)
}

/// Translates a reply of the far half. `is_offer` states whether the request only offered a key.
fn conclude(
    client: &Client,
    far: &FarHalf,
    reply: Result<ToNear, SessionEnd>,
    is_offer: bool,
) -> Auth {
    match reply {
        Ok(ToNear::Authenticated) if !is_offer => Auth::Accept,
        Ok(ToNear::Rejected {
            methods,
            is_partial,
        }) => {
            let mut permitted = MethodSet::empty();
            for method in methods {
                if method != Method::PublicKey || !client.listener.public_key.is_empty() {
                    permitted.push(method.kind());
                }
            }
            Auth::Reject {
                proceed_with_methods: Some(permitted),
                partial_success: is_partial,
            }
        }
        Ok(_) => {
            let text = format!("unexpected reply of the far gateway of {}", far.target);
            refuse(
                client,
                SessionEnd {
                    reason: EndReason::Unavailable,
                    text,
                },
            )
        }
        Err(end) => refuse(client, end),
    }
}

/// Logs a log-in, and remembers its key.
fn log_success(client: &Client, far: &FarHalf, user: &str, key: Option<&KnownKey>) {
    if let Some(key) = key {
        client.memory.store_key(&far.target, user, key.digest());
    }
    let peer = client.relay.peer_name(far.peer);
    info!(user = %user.escape_debug(), server = %far.target, peer, "logged in");
}

/// Reason of a refusal if the server has accepted the key before.
const KEY_REJECTED: &str = "the server no longer accepts your key";

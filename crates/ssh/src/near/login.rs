//! Log-in of a client. The server decides on each log-in; the gateway relays requests and replies.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use relay::limits::ReachedLimit;
use russh::{
    MethodSet,
    keys::{PublicKey, PublicKeyBase64 as _},
    server::{Auth, Handle},
};
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

/// Answers the request for the methods of a user.
pub(super) async fn methods(client: &Client, name: &str) -> Auth {
    let (far, user, has_requested) = match find_or_open(client, name, true).await {
        Ok(found) => found,
        Err(end) => return refuse(client, end),
    };
    let reply = if has_requested {
        far.first_reply().await
    } else if let Some(methods) = client.memory.find(&far.target, &user) {
        // Clients request the methods first. A stored answer of the server saves a round trip.
        let is_partial = false;
        let stored = ToNear::Rejected {
            methods,
            is_partial,
        };
        return conclude(client, &far, Ok(stored), false);
    } else {
        far.request(&ToFar::Methods { user: user.clone() }).await
    };
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
    client.login.lock().await.user.clone_from(&user);
    let password = password.to_owned();
    let reply = far.request(&ToFar::Password { user, password }).await;
    conclude_attempt(client, &far, reply).await
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
    client.login.lock().await.user.clone_from(&user);
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
        reply => conclude_attempt(client, &far, reply).await,
    }
}

/// Asks the server whether it accepts a public key. The client has not proved yet that it has the
/// private key.
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
    match far.request(&offered).await {
        Ok(ToNear::KeyKnown { to_sign }) if agent::is_login(&to_sign, &login.user, &key) => {
            login.known_key = Some(KnownKey {
                user: name.to_owned(),
                key,
                algorithm,
                to_sign,
            });
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
        let ways = at_once.to_vec();
        let reply = far.request(&ToFar::Proved { ways }).await;
        match (&reply, agent) {
            (
                Ok(ToNear::Rejected {
                    is_partial: false, ..
                }),
                Some(_),
            ) => {}
            _ => {
                drop(login);
                return conclude_attempt(client, &far, reply).await;
            }
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
                login.known_key = Some(KnownKey { to_sign, ..known });
            }
            reply => return conclude(client, &far, reply, true),
        }
    }
    login.deferred = ways[agent.unwrap_or(ways.len())..].to_vec();
    Auth::Accept
}

/// Completes the log-in at the server before the first program starts. `has_agent` states whether
/// the client forwards its agent.
///
/// # Errors
/// The reason why the log-in is impossible, as a sentence for the user.
pub(super) async fn complete(
    client: &Client,
    has_agent: bool,
    handle: &Handle,
) -> Result<Arc<FarHalf>, String> {
    if let Some(end) = client.refused() {
        return Err(end.text);
    }
    let far = client.far_half().ok_or("the session has no server")?;
    let mut login = client.login.lock().await;
    if login.deferred.is_empty() {
        return Ok(far);
    }
    let mut why = "the gateway can log in only with your agent, which you do not forward; \
                   run ssh, sftp or scp with -A"
        .to_owned();
    let mut is_rejected = false;
    if has_agent && let Some(known) = login.known_key.take() {
        match agent::sign(handle, &known.key, &known.to_sign, &known.algorithm).await {
            Ok(signature) => {
                let reply = far.request(&ToFar::Signature { signature }).await;
                match reply.map_err(|end| end.text)? {
                    ToNear::Authenticated => {
                        login.deferred.clear();
                        log_success(client, &far, &login.user);
                        return Ok(far);
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
            Err(error) => {
                why = error;
                login.known_key = Some(known);
            }
        }
    }
    let later = login.deferred.iter().copied();
    let ways: Vec<_> = later.filter(|it| *it != PublicKeyWay::Agent).collect();
    if !ways.is_empty() {
        let reply = far.request(&ToFar::Proved { ways }).await;
        if reply.map_err(|end| end.text)? == ToNear::Authenticated {
            login.deferred.clear();
            log_success(client, &far, &login.user);
            return Ok(far);
        }
        login.known_key = None;
        is_rejected = true;
    }
    if is_rejected {
        let user = login.user.escape_debug().to_string();
        let server = far.target.to_string();
        // The limit applies to the next connection of the client.
        let _ = client
            .relay
            .record_failed_login(client.address, &server, &user);
    }
    Err(why)
}

/// Returns the user name at the server, for logs.
pub(super) async fn user(client: &Client) -> String {
    client.login.lock().await.user.escape_debug().to_string()
}

/// Returns the far half of the session and the user name at the server. If the client names its
/// server, the first call opens the session.
async fn far_half(client: &Client, name: &str) -> Result<(Arc<FarHalf>, String), SessionEnd> {
    let (far, user, _) = find_or_open(client, name, false).await?;
    Ok((far, user))
}

/// Does the same as [`far_half`]. If `requests_methods` is true and the methods of the user are not
/// stored, the opening carries the request for them. The last value states whether it does.
async fn find_or_open(
    client: &Client,
    name: &str,
    requests_methods: bool,
) -> Result<(Arc<FarHalf>, String, bool), SessionEnd> {
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
    if let Some(target) = &client.listener.target {
        let far = client.far_half();
        let far = far.ok_or_else(|| unavailable("the session has no server"))?;
        return match user_at(name, target) {
            Ok(user) => Ok((far, user.to_owned(), false)),
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
            true => Ok((far, named.user.to_owned(), false)),
            false => Err(unavailable("a connection has one server")),
        };
    }
    let (server, user) = (&named.server, named.user.to_owned());
    let requests = requests_methods && client.memory.find(server, &user).is_none();
    let request = requests.then(|| ToFar::Methods { user: user.clone() });
    let names = (client.address, client.session);
    let (relay, listener) = (&client.relay, &client.listener);
    let opened = FarHalf::open(relay, server, listener, names, request.as_ref()).await?;
    let far = Arc::new(opened);
    client.far.send_replace(Some(far.clone()));
    Ok((far, user, requests))
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

/// Translates the reply to an attempt to log in, and counts a failure.
async fn conclude_attempt(
    client: &Client,
    far: &FarHalf,
    reply: Result<ToNear, SessionEnd>,
) -> Auth {
    let user = client.login.lock().await.user.clone();
    if !matches!(reply, Ok(ToNear::Authenticated)) {
        // After a failure, the server may offer other methods.
        client.memory.forget(&far.target, &user);
    }
    match &reply {
        Ok(ToNear::Authenticated) => log_success(client, far, &user),
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

fn log_success(client: &Client, far: &FarHalf, user: &str) {
    let peer = client.relay.peer_name(far.peer);
    info!(user = %user.escape_debug(), server = %far.target, peer, "logged in");
}

//! Repeated log-ins by the same key. The near gateway accepts the offer of the key before the
//! server does.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use russh::{
    Signer,
    client::AuthResult,
    keys::{
        HashAlg, PrivateKey, PrivateKeyWithHashAlg,
        agent::{AgentIdentity, client::AgentClient},
        load_secret_key,
    },
    server::{Auth, Handler, PublicKeyOffer, VerifiedPublicKey},
};
use ssh::PublicKeyWay;
use tokio::{net::UnixStream, sync::watch, time::timeout};

use crate::{
    agent::Agent,
    common::{TIMEOUT, World, assert_success, errors, read, run, run_async},
    own_server,
};

/// Returns a world in which the user has logged in by a key.
async fn world_after_log_in(ways: Vec<PublicKeyWay>) -> (World, Agent) {
    let world = World::with(|it| it.listener.public_key = ways).await;
    let agent = Agent::start(&world);
    assert_success(&run_async(command(&world, &agent)).await);
    (world, agent)
}

/// Returns a command that runs `true` through the gateways with a forwarded agent.
fn command(world: &World, agent: &Agent) -> Command {
    command_with(world, agent, &[], "true")
}

/// Returns a command that runs `program` through the gateways with a forwarded agent.
fn command_with(world: &World, agent: &Agent, options: &[&str], program: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(world.options()).arg("-A").args(options);
    command.args(["-p", &world.listener.port().to_string()]);
    command.arg(world.destination()).arg(program);
    command.env("SSH_AUTH_SOCK", &agent.socket);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_decides_on_each_log_in() {
    let (by_agent, by_key) = (PublicKeyWay::Agent, PublicKeyWay::Key);
    let reasons = [
        (vec![by_key], "Permission denied (publickey)"),
        (vec![by_key, by_agent], "Permission denied (publickey)"),
        (vec![by_agent], "the server no longer accepts your key"),
        (
            vec![by_agent, by_key],
            "the server no longer accepts your key",
        ),
    ];
    for (ways, reason) in reasons {
        let (world, agent) = world_after_log_in(ways.clone()).await;
        assert_success(&run_async(command(&world, &agent)).await);
        let path = world.path("authorized_keys");
        let authorized = read(&path);
        std::fs::write(&path, read(&world.path("gateway_key.pub"))).expect("written");
        for reason in [reason, "Permission denied (publickey)"] {
            let output = run_async(command(&world, &agent)).await;
            assert_eq!(output.status.code(), Some(255), "{ways:?}");
            let text = errors(&output);
            assert!(text.contains(reason), "{ways:?}: {text}");
        }
        std::fs::write(&path, authorized).expect("written");
        for _ in 0..2 {
            assert_success(&run_async(command(&world, &agent)).await);
        }
    }
}

/// Server that accepts all keys. Each log-in offers the client's key and the far gateway's key. The
/// server answers the third offer only after the client has signed for the second time.
#[derive(Clone)]
struct SlowServer {
    offers: Arc<AtomicUsize>,
    signatures: watch::Receiver<usize>,
}

impl Handler for SlowServer {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        _: &str,
        _: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        if self.offers.fetch_add(1, Ordering::Relaxed) == 2 {
            let signed = self.signatures.wait_for(|count| *count == 2).await;
            assert!(signed.is_ok(), "the signer is part of the test");
        }
        Ok(Auth::Accept)
    }

    async fn auth_publickey(
        &mut self,
        _: &str,
        _: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        Ok(Auth::Accept)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_signs_before_the_server_answers() {
    let (signatures, counted) = watch::channel(0);
    let offers = Arc::<AtomicUsize>::default();
    let server = SlowServer {
        offers: offers.clone(),
        signatures: counted,
    };
    let world = own_server::world(server, |_| {}).await;
    let agent = Agent::start(&world);
    let user = world.user.clone();
    let public = key(&world.path("id")).public_key().clone();
    let mut signer = NotifyingSigner {
        agent: agent.socket.clone(),
        signatures,
    };
    for _ in 0..2 {
        let mut client = own_server::connect(&world).await;
        let none = client.authenticate_none(user.clone()).await;
        assert!(!none.expect("an answer").success());
        let (user, public) = (user.clone(), public.clone());
        let log_in = client.authenticate_publickey_with(user, public, None, &mut signer);
        let accepted = timeout(TIMEOUT, log_in).await.expect("an answer in time");
        assert!(accepted.expect("a signature").success());
    }
    assert_eq!(offers.load(Ordering::Relaxed), 4);
}

/// Signer that reports each signature.
struct NotifyingSigner {
    agent: PathBuf,
    signatures: watch::Sender<usize>,
}

impl Signer for NotifyingSigner {
    type Error = Refused;

    async fn auth_sign(
        &mut self,
        identity: &AgentIdentity,
        hash: Option<HashAlg>,
        to_sign: Vec<u8>,
    ) -> Result<Vec<u8>, Refused> {
        let stream = UnixStream::connect(&self.agent).await.expect("an agent");
        let mut agent = AgentClient::connect(stream);
        let signed = agent.sign_request(identity, hash, to_sign).await;
        self.signatures.send_modify(|count| *count += 1);
        signed.map_err(|_| Refused)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_offer_two_remembered_keys() {
    let (world, agent) = world_after_log_in(vec![PublicKeyWay::Agent]).await;
    let second = world.path("second");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    assert_success(&run(keygen.arg(&second)));
    let path = world.path("authorized_keys");
    let authorized = [read(&path), read(&world.path("second.pub"))].concat();
    std::fs::write(&path, authorized).expect("written");
    agent.add(&second);
    let mut by_second = Command::new("ssh");
    let options = world.options().into_iter();
    by_second.args(options.map(|it| it.replace("/id", "/second")));
    by_second.args(["-A", "-p", &world.listener.port().to_string()]);
    by_second.arg(world.destination()).arg("true");
    by_second.env("SSH_AUTH_SOCK", &agent.socket);
    assert_success(&run_async(by_second).await);
    // The agent refuses to sign with the first key.
    let refusing = agent.refuse_once(&world, true);
    let second = second.display().to_string();
    let mut both = command_with(&world, &agent, &["-v", "-i", &second], "true");
    both.env("SSH_AUTH_SOCK", refusing);
    let output = run_async(both).await;
    assert_success(&output);
    let text = errors(&output);
    assert_eq!(text.matches("Server accepts key").count(), 2, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_signature_the_server_rejects_does_not_run() {
    let (world, agent) = world_after_log_in(vec![PublicKeyWay::Agent]).await;
    let wrong = agent.sign_wrongly(&world);
    let marker = world.path("marker");
    let touch = format!("touch {}", marker.display());
    let mut command = command_with(&world, &agent, &[], &touch);
    command.env("SSH_AUTH_SOCK", wrong);
    let output = run_async(command).await;
    assert_eq!(output.status.code(), Some(255));
    let text = errors(&output);
    assert!(
        text.contains("rejected the signature of your agent"),
        "{text}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!marker.exists(), "the refused command ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_now_is_named() {
    let (mut world, agent) = world_after_log_in(vec![PublicKeyWay::Key]).await;
    world.server = None;
    for _ in 0..2 {
        let output = run_async(command(&world, &agent)).await;
        assert_eq!(output.status.code(), Some(255));
        let text = errors(&output);
        assert!(text.contains("Connection refused"), "{text}");
        assert!(text.contains("longhaul doctor at the far"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_use_another_key_after_the_offer() {
    for ways in [PublicKeyWay::Key, PublicKeyWay::Agent] {
        let (world, _agent) = world_after_log_in(vec![ways]).await;
        let user = world.user.clone();
        let [known, stranger] = ["id", "stranger"]
            .map(|it| world.path(it))
            .map(|it| key(&it));
        let mut client = own_server::connect(&world).await;
        let none = client.authenticate_none(user.clone()).await;
        assert!(!none.expect("an answer").success());
        let public = known.public_key().clone();
        let refused = client
            .authenticate_publickey_with(user.clone(), public, None, &mut NoSigner)
            .await;
        assert!(refused.is_err());
        let rejected = client
            .authenticate_publickey(user.clone(), with_hash(stranger))
            .await;
        assert!(matches!(rejected, Ok(AuthResult::Failure { .. })));
        let accepted = client.authenticate_publickey(user, with_hash(known)).await;
        assert!(accepted.expect("an answer").success());
    }
}

fn key(path: &Path) -> PrivateKey {
    load_secret_key(path, None).expect("a key")
}

fn with_hash(key: PrivateKey) -> PrivateKeyWithHashAlg {
    PrivateKeyWithHashAlg::new(Arc::new(key), None)
}

/// Signer that refuses to sign.
struct NoSigner;

#[derive(Debug)]
struct Refused;

impl From<russh::SendError> for Refused {
    fn from(_: russh::SendError) -> Self {
        Self
    }
}

impl Signer for NoSigner {
    type Error = Refused;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        _: Option<HashAlg>,
        _: Vec<u8>,
    ) -> Result<Vec<u8>, Refused> {
        Err(Refused)
    }
}

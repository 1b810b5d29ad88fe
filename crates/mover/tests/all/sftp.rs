//! The SFTP client with OpenSSH's server.

use std::{
    error::Error as _,
    net::SocketAddr,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, OnceLock},
    time::Duration,
};

use ftp::listing::EntryKind;
use mover::{
    location::{Scheme, Server},
    server::{HostKeyRejection, Password, ServerError},
    sftp::{HostKeyRule, SftpDial, SftpSession, SshIdentity, SshRoute},
};
use russh::{
    Disconnect, MethodKind, MethodSet,
    keys::{PrivateKey, ssh_key::private::Ed25519Keypair},
    server::{self, Auth},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::common::{content, openssh::OpenSshServer};

async fn read(session: &SftpSession, path: &Path, offset_bytes: u64) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let mut reader = session.read(path, offset_bytes).await.expect("a file");
    let (mut all, mut bytes) = (Vec::new(), vec![0; 256 * 1024]);
    loop {
        let count = reader.read(&mut bytes).await.expect("read");
        if count == 0 {
            let result = reader.finish().await.expect("the end");
            assert!(result.is_sure);
            return all;
        }
        all.extend_from_slice(&bytes[..count]);
    }
}

async fn write(session: &SftpSession, path: &Path, bytes: &[u8]) {
    let path = path.as_os_str().as_bytes();
    let mut writer = session.write(path, 0, true).await.expect("a file");
    for piece in bytes.chunks(256 * 1024) {
        writer.write(piece).await.expect("written");
    }
    writer.set_modified(1_700_000_000);
    let stat = writer
        .finish()
        .await
        .expect("confirmed")
        .expect("attributes");
    assert_eq!(stat.size_bytes, Some(bytes.len() as u64));
    assert_eq!(stat.modified.map(|it| it.unix_s), Some(1_700_000_000));
}

async fn refused(dial: &SftpDial) -> ServerError {
    SftpSession::open(dial).await.expect_err("refused")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_and_named() {
    let server = OpenSshServer::start("");
    let session = SftpSession::open(&server.dial()).await.expect("a session");
    let folder = server.path("files \u{e4}");
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    session.make_directory(&bytes(&folder)).await.expect("made");
    let content = content(20_000_003);
    let part = folder.join("film.part");
    write(&session, &part, &content).await;
    assert!(std::fs::read(&part).expect("a file") == content);
    assert!(read(&session, &part, 0).await == content);
    assert!(read(&session, &part, 19_000_000).await == content[19_000_000..]);
    let film = folder.join("film");
    std::fs::write(&film, "old").expect("written");
    std::fs::set_permissions(&film, std::fs::Permissions::from_mode(0o640)).expect("set");
    let is_set = session
        .name(&bytes(&part), &bytes(&film), Some(1_600_000_000))
        .await;
    assert!(is_set.expect("named"));
    let metadata = std::fs::metadata(&film).expect("a file");
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o640);
    let found = session
        .look(&[&bytes(&film), &bytes(&part), &bytes(&folder)])
        .await;
    let found = found.expect("found");
    let film_entry = found[0].as_ref().expect("the film");
    assert_eq!(film_entry.size_bytes, Some(content.len() as u64));
    assert_eq!(film_entry.modified.map(|it| it.unix_s), Some(1_600_000_000));
    assert_eq!(found[1], None);
    assert_eq!(
        found[2].as_ref().map(|it| it.kind.clone()),
        Some(EntryKind::Directory)
    );
    let full = session
        .remove_directory(&bytes(&folder))
        .await
        .expect_err("not empty");
    assert!(matches!(full, ServerError::SftpRefused(_)), "{full}");
    session.delete(&bytes(&film)).await.expect("deleted");
    session
        .remove_directory(&bytes(&folder))
        .await
        .expect("removed");
    assert!(session.is_alive().await);
    session.hang_up().await;
    assert!(!session.is_usable());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sessions_write_ranges_of_one_file() {
    let server = OpenSshServer::start("");
    let content = content(9_000_001);
    let path = server.path("ranges");
    let middle = 4_321_000;
    let write = async |offset: usize, bytes: &[u8]| {
        let session = SftpSession::open(&server.dial()).await.expect("a session");
        let path = path.as_os_str().as_bytes();
        let writer = session.write_range(path, offset as u64).await;
        let mut writer = writer.expect("a file");
        writer.write(bytes).await.expect("written");
        writer.finish().await.expect("confirmed");
    };
    tokio::join!(
        write(middle, &content[middle..]),
        write(0, &content[..middle])
    );
    assert!(std::fs::read(&path).expect("a file") == content);
    let sparse = server.path("sparse");
    let file = std::fs::File::create(&sparse).expect("a file");
    file.set_len(6 << 30).expect("room");
    let session = SftpSession::open(&server.dial()).await.expect("a session");
    let end = read(&session, &sparse, (6 << 30) - 5).await;
    assert_eq!(end, [0; 5]);
    let stat = session
        .stat(sparse.as_os_str().as_bytes())
        .await
        .expect("a file");
    assert_eq!(stat.size_bytes, Some(6 << 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_have_all_names_and_links_are_followed() {
    let server = OpenSshServer::start("");
    let folder = server.path("listed");
    std::fs::create_dir(&folder).expect("a folder");
    for number in 0..1_000 {
        std::fs::write(folder.join(format!("{number}")), "x").expect("written");
    }
    let odd = folder.join(std::ffi::OsStr::from_bytes(b"caf\xe9\n -l"));
    std::fs::write(&odd, "12345").expect("written");
    std::os::unix::fs::symlink(&odd, folder.join("link")).expect("a link");
    std::os::unix::fs::symlink(&folder, folder.join("loop")).expect("a link");
    std::os::unix::fs::symlink("nowhere", folder.join("broken")).expect("a link");
    let session = SftpSession::open(&server.dial()).await.expect("a session");
    let path = folder.as_os_str().as_bytes();
    let mut listing = session.list(path).await.expect("a listing");
    let mut entries = Vec::new();
    loop {
        let next = listing.next().await.expect("entries");
        if next.is_empty() {
            break;
        }
        entries.extend(next);
    }
    assert_eq!(listing.finish().await.expect("the end"), 0);
    assert_eq!(entries.len(), 1_004);
    let is_odd = |it: &&ftp::listing::ListingEntry| it.name == b"caf\xe9\n -l";
    let odd = entries.iter().find(is_odd).expect("the name").clone();
    assert_eq!(
        (odd.kind.clone(), odd.size_bytes),
        (EntryKind::File, Some(5))
    );
    for (name, is_followed) in [("link", true), ("loop", false), ("broken", false)] {
        let link = entries.iter().find(|it| it.name == name.as_bytes());
        let mut link = link.expect("a link").clone();
        assert!(matches!(link.kind, EntryKind::Symlink { .. }));
        session.follow(path, &mut link).await.expect("an answer");
        let expected = is_followed.then_some((EntryKind::File, Some(5)));
        let is_file = link.kind == EntryKind::File;
        assert_eq!(
            is_file.then_some((link.kind, link.size_bytes)),
            expected,
            "{name}"
        );
    }
    let target = session
        .read_link(folder.join("broken").as_os_str().as_bytes())
        .await;
    assert_eq!(target.expect("a link"), b"nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_another_host_key_gets_no_credential() {
    let server = OpenSshServer::start("LogLevel DEBUG1");
    let dial = server.dial();
    let is_asked = || {
        let log = std::fs::read_to_string(server.path("sshd.log")).expect("a log");
        log.contains("userauth-request")
    };
    server.trust("stranger.pub");
    let changed = refused(&dial).await;
    let is_changed = matches!(
        changed,
        ServerError::HostKey(HostKeyRejection::Changed { line: 1, .. })
    );
    assert!(is_changed, "{changed}");
    std::fs::write(server.path("known_hosts"), "").expect("written");
    let unknown = refused(&dial).await;
    assert!(unknown.to_string().contains("SHA256:"), "{unknown}");
    let mut pinned = dial.clone();
    pinned.host_keys = HostKeyRule::Pinned("SHA256:other".to_owned());
    let other = refused(&pinned).await;
    assert!(
        matches!(
            other,
            ServerError::HostKey(HostKeyRejection::NotPinned { .. })
        ),
        "{other}"
    );
    assert!(!is_asked());
    let ServerError::HostKey(HostKeyRejection::Unknown { fingerprint, .. }) = unknown else {
        panic!("{unknown}");
    };
    pinned.host_keys = HostKeyRule::Pinned(fingerprint);
    SftpSession::open(&pinned).await.expect("pinned");
    assert!(is_asked());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_log_in_names_the_reasons() {
    let server = OpenSshServer::start("");
    let mut dial = server.dial();
    dial.identity.key_files = vec![server.path("stranger"), server.path("locked")];
    dial.password = Some(Password(b"x".to_vec()));
    let error = refused(&dial).await.to_string();
    for words in [
        "rejected 1 of your keys",
        "a passphrase protects the key",
        "accepts publickey",
    ] {
        assert!(error.contains(words), "{error}");
    }
}

/// SSH server that rejects each log-in, and then disconnects the client with a sentence, as a
/// gateway does.
struct RefusingServer {
    method: MethodKind,
    handle: Arc<OnceLock<server::Handle>>,
}

impl server::Handler for RefusingServer {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, Self::Error> {
        let handle = self.handle.wait().clone();
        let (code, text) = (Disconnect::ServiceNotAvailable, REFUSAL.to_owned());
        // The message enters the queue of the connection before the rejection.
        let _ = handle.disconnect(code, text, String::new()).await;
        Ok(Auth::Reject {
            proceed_with_methods: Some(MethodSet::from(&[self.method][..])),
            partial_success: false,
        })
    }
}

/// Serves one client with a [`RefusingServer`].
async fn serve_refusal(listener: TcpListener, method: MethodKind) {
    let (stream, _) = listener.accept().await.expect("a client");
    let config = server::Config {
        keys: vec![PrivateKey::from(Ed25519Keypair::from_seed(&[7; 32]))],
        auth_rejection_time_initial: Some(Duration::ZERO),
        ..server::Config::default()
    };
    let handle = Arc::new(OnceLock::new());
    let handler = RefusingServer {
        method,
        handle: handle.clone(),
    };
    let session = server::run_stream(Arc::new(config), stream, handler).await;
    let session = session.expect("an SSH client");
    let _ = handle.set(session.handle());
    let _ = session.await;
}

/// Refuses one client before the key exchange. A gateway without a connection to the server does
/// the same.
async fn refuse_before_key_exchange(listener: TcpListener, sentence: &str) {
    let (mut stream, _) = listener.accept().await.expect("a client");
    let mut identification = [0; 64];
    let count = stream.read(&mut identification).await.expect("bytes");
    assert!(identification[..count].starts_with(b"SSH-2.0-"));
    let mut payload = vec![1, 0, 0, 0, 7];
    for text in [sentence, ""] {
        payload.extend_from_slice(&(text.len() as u32).to_be_bytes());
        payload.extend_from_slice(text.as_bytes());
    }
    // The padding has at least four bytes, and completes a block of eight bytes.
    let padding = 4 + (8 - (payload.len() + 9) % 8) % 8;
    let length = (payload.len() + padding + 1) as u32;
    let start = [&length.to_be_bytes()[..], &[padding as u8]].concat();
    let packet = [&start[..], &payload, &vec![0; padding]].concat();
    let greeting = [&b"SSH-2.0-gateway\r\n"[..], &packet].concat();
    stream.write_all(&greeting).await.expect("sent");
    stream.shutdown().await.expect("sent");
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

fn dial_with_password(address: SocketAddr) -> SftpDial {
    SftpDial {
        server: Server {
            scheme: Scheme::Sftp,
            user: None,
            host: address.ip().to_string(),
            port: address.port(),
        },
        user: "joe".to_owned(),
        password: Some(Password(b"secret".to_vec())),
        route: SshRoute::Direct,
        identity: SshIdentity::default(),
        host_keys: HostKeyRule::Trusted,
        reply_timeout: Duration::from_secs(10),
        stall_max: Duration::from_secs(10),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_before_the_session_is_reported_with_its_reason() {
    for (method, sentence, expected) in [
        (Some(MethodKind::Password), REFUSAL, REFUSAL),
        (Some(MethodKind::KeyboardInteractive), REFUSAL, REFUSAL),
        (None, REFUSAL, REFUSAL),
        (None, "", "the server has disconnected"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = match method {
            None => tokio::spawn(refuse_before_key_exchange(listener, sentence)),
            Some(method) => tokio::spawn(serve_refusal(listener, method)),
        };
        let error = refused(&dial_with_password(address)).await;
        let text = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        assert!(text.contains(expected), "{method:?}: {text}");
        server.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_signs_for_an_encrypted_key() {
    let server = OpenSshServer::start("");
    let socket = server.path("agent");
    let agent = tokio::process::Command::new("ssh-agent")
        .args(["-D", "-a"])
        .arg(&socket)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let _agent = agent.expect("ssh-agent is installed");
    // The agent creates the socket before it listens on it.
    while UnixStream::connect(&socket).is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let askpass = server.path("askpass");
    std::fs::write(&askpass, "#!/bin/sh\necho passphrase\n").expect("written");
    std::fs::set_permissions(&askpass, std::fs::Permissions::from_mode(0o700)).expect("set");
    let added = Command::new("ssh-add")
        .arg(server.path("locked"))
        .env("SSH_AUTH_SOCK", &socket)
        .env("SSH_ASKPASS", &askpass)
        .env("SSH_ASKPASS_REQUIRE", "force")
        .output();
    let added = added.expect("ssh-add is installed");
    assert!(added.status.success(), "{added:?}");
    let mut dial = server.dial();
    dial.identity.agent = Some(socket);
    for (key_files, has_only_key_files) in [
        (vec![server.path("locked")], true),
        (vec![server.path("stranger")], false),
    ] {
        dial.identity.key_files = key_files;
        dial.identity.has_only_key_files = has_only_key_files;
        let session = SftpSession::open(&dial).await.expect("a session");
        session.close().await;
    }
    dial.identity.key_files = vec![server.path("stranger")];
    dial.identity.has_only_key_files = true;
    refused(&dial).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_sftp_is_reported() {
    let server = OpenSshServer::start("ForceCommand echo no files here\nDisableForwarding yes");
    let mut dial = server.dial();
    dial.reply_timeout = Duration::from_secs(5);
    let error = refused(&dial).await;
    assert!(
        matches!(error, ServerError::Lost { .. } | ServerError::NoSftp { .. }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_hangs_up_is_lost() {
    let server = OpenSshServer::start("");
    let session = SftpSession::open(&server.dial()).await.expect("a session");
    let lost = session.until_lost();
    let closing = session.hang_up();
    tokio::join!(lost, closing);
    assert!(session.look(&[b"x"]).await.is_err());
}

/// Sentence of the refusing server.
const REFUSAL: &str = "this listener leads to another server";

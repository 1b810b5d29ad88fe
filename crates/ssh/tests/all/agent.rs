//! Agents of clients.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{TIMEOUT, World, assert_success, run};

/// An agent with the client's key. Dropping the value ends the agent.
pub(crate) struct Agent {
    process: Child,
    pub(crate) socket: PathBuf,
}

impl Agent {
    pub(crate) fn start(world: &World) -> Self {
        let socket = world.path("agent");
        let process = Command::new("ssh-agent")
            .arg("-D")
            .arg("-a")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("ssh-agent is installed");
        let deadline = Instant::now() + TIMEOUT;
        // The agent creates the socket before it listens on it.
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < deadline, "no agent");
            thread::sleep(Duration::from_millis(10));
        }
        let agent = Self { process, socket };
        agent.add(&world.path("id"));
        agent
    }

    /// Adds the key in a file.
    pub(crate) fn add(&self, key: &Path) {
        let mut add = Command::new("ssh-add");
        add.arg("-q").arg(key).env("SSH_AUTH_SOCK", &self.socket);
        assert_success(&run(&mut add));
    }

    /// Starts an agent that refuses the first signature after half a second, and passes on further
    /// requests for signatures. It lists the keys of this agent if `lists_keys` is true. Returns
    /// its socket.
    pub(crate) fn refuse_once(&self, world: &World, lists_keys: bool) -> PathBuf {
        let signatures = AtomicUsize::new(0);
        self.relay(world, move |kind, reply| match kind {
            REQUEST_IDENTITIES if !lists_keys => NO_KEYS.to_vec(),
            SIGN_REQUEST if signatures.fetch_add(1, Ordering::Relaxed) == 0 => {
                thread::sleep(Duration::from_millis(500));
                vec![FAILURE]
            }
            _ => reply,
        })
    }

    /// Starts an agent that lists no keys, and whose signatures are wrong. Returns its socket.
    pub(crate) fn sign_wrongly(&self, world: &World) -> PathBuf {
        self.relay(world, |kind, mut reply| match kind {
            REQUEST_IDENTITIES => NO_KEYS.to_vec(),
            _ => {
                if let Some(last) = reply.last_mut() {
                    *last ^= 1;
                }
                reply
            }
        })
    }

    /// Starts an agent that passes on requests to this agent. `change` receives the type of each
    /// request, and changes the reply. Returns the socket of the new agent.
    fn relay(
        &self,
        world: &World,
        change: impl Fn(u8, Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> PathBuf {
        let path = world.path("relaying_agent");
        let listener = UnixListener::bind(&path).expect("a new socket");
        let agent = self.socket.clone();
        let change = Arc::new(change);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (agent, change) = (agent.clone(), change.clone());
                thread::spawn(move || relay_requests(client, &agent, &*change));
            }
        });
        path
    }
}

/// Relays the requests of one connection, and changes the replies.
fn relay_requests(
    mut client: UnixStream,
    agent: &Path,
    change: &dyn Fn(u8, Vec<u8>) -> Vec<u8>,
) -> io::Result<()> {
    loop {
        let request = read_message(&mut client)?;
        let mut agent = UnixStream::connect(agent)?;
        write_message(&mut agent, &request)?;
        let reply = change(request[0], read_message(&mut agent)?);
        write_message(&mut client, &reply)?;
    }
}

fn read_message(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn write_message(stream: &mut UnixStream, message: &[u8]) -> io::Result<()> {
    stream.write_all(&(message.len() as u32).to_be_bytes())?;
    stream.write_all(message)
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// Types of messages (draft-miller-ssh-agent).
const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const SIGN_REQUEST: u8 = 13;

/// Answer of an agent that lists no keys.
const NO_KEYS: [u8; 5] = [12, 0, 0, 0, 0];

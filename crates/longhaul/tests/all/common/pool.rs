//! A pool of workers that use a real NATS server.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Maximum time to wait until a job has the expected state.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A NATS server, the running workers, and a temporary folder.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) running: BTreeMap<String, Child>,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("room");
        let mut world = Self {
            folder,
            url: String::new(),
            running: BTreeMap::new(),
        };
        world.start_nats("-1");
        world
    }

    pub(crate) fn start_nats(&mut self, port: &str) {
        let ports = self.path("ports");
        // A killed server has left its file of ports.
        let _ = fs::remove_dir_all(&ports);
        fs::create_dir(&ports).expect("room");
        let nats = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", port, "-js", "-sd"])
            .arg(self.path("nats"))
            .arg("--ports_file_dir")
            .arg(&ports)
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server: cargo xtask test installs it");
        self.running.insert("nats".to_owned(), nats);
        let written = || {
            let file = fs::read_dir(&ports).ok()?.next()?.ok()?.path();
            fs::read_to_string(file)
                .ok()
                .filter(|it| it.contains("nats://"))
        };
        wait("the server of NATS listens", || written().is_some());
        let text = written().expect("it listens");
        let begin = text.find("nats://").expect("a URL");
        let end = text[begin..].find('"').expect("a quote") + begin;
        self.url = text[begin..end].to_owned();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn jobs(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .arg("jobs")
            .args(arguments)
            .env("LONGHAUL_NATS", &self.url)
            .env("HOME", self.folder.path())
            .env_remove("XDG_STATE_HOME");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.jobs(arguments).output().expect("the program")
    }

    /// Runs a command that must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    pub(crate) fn submit(&self, arguments: &[&str]) -> String {
        let arguments = [&["submit"], arguments].concat();
        self.printed(&arguments).trim().to_owned()
    }

    pub(crate) fn start_worker(&mut self, name: &str, more: &[&str]) {
        let url = self.url.clone();
        self.start_worker_at(&url, name, more);
    }

    /// Starts a worker that connects to the NATS server at `url`.
    pub(crate) fn start_worker_at(&mut self, url: &str, name: &str, more: &[&str]) {
        let mut log = fs::OpenOptions::new();
        let log = log.create(true).append(true);
        let log = log.open(self.path(&format!("{name}.log"))).expect("room");
        let mut command = self.jobs(&[&["worker", "--name", name], more].concat());
        command.env("LONGHAUL_NATS", url);
        let worker = command.stderr(log).spawn().expect("the program");
        self.running.insert(name.to_owned(), worker);
    }

    pub(crate) fn kill(&mut self, name: &str) {
        let mut child = self.running.remove(name).expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }

    pub(crate) fn show(&self, job: &str) -> String {
        self.printed(&["show", "--json", job])
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, job: &str, state: &str) {
        let wanted = format!("\"state\":\"{state}\"");
        wait(state, || self.show(job).contains(&wanted));
    }

    /// Returns the log of the worker with this name.
    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Creates the JetStream consumer of the pool, whose streams already exist. If a worker sends
    /// nothing for `ack_wait`, NATS delivers its work to another worker.
    pub(crate) fn make_consumer(&self, ack_wait: Duration) {
        make_consumer(&self.url, ack_wait);
    }

    /// Creates `count` files in a folder.
    pub(crate) fn write(&self, folder: &str, count: usize) {
        for number in 0..count {
            let path = self.path(folder).join(format!("{}/f{number}", number % 7));
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            fs::write(path, format!("{number}").repeat(number)).expect("room");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            // The child may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
pub(crate) fn wait(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "{what} in {TIMEOUT:?}");
        sleep(Duration::from_millis(50));
    }
}

/// Returns all files below a folder. The map's key is the path, and the value is the content.
pub(crate) fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let below = path.strip_prefix(folder).expect("it is below").to_owned();
                files.insert(below, fs::read(&path).expect("it is there"));
            }
        }
    }
    files
}

/// Creates the JetStream consumer of the pool at the NATS server `url`, like
/// [`World::make_consumer`].
pub(crate) fn make_consumer(url: &str, ack_wait: Duration) {
    let ns = ack_wait.as_nanos();
    let stream = "LONGHAUL_JOBS_default";
    let config = format!(
        "{{\"durable_name\":\"workers\",\"ack_policy\":\"explicit\",\"ack_wait\":{ns},\"max_deliver\":-1,\
         \"max_ack_pending\":100000,\"max_waiting\":100000}}"
    );
    let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.workers");
    let body = format!("{{\"stream_name\":\"{stream}\",\"config\":{config}}}");
    let answer = ask(url, &subject, &body);
    assert!(answer.contains("\"num_pending\""), "{answer}");
}

/// Sends a JetStream request to the NATS server at `url`. Returns the reply.
pub(crate) fn ask(url: &str, subject: &str, body: &str) -> String {
    let address = url.trim_start_matches("nats://");
    let mut nats = TcpStream::connect(address).expect("it listens");
    let timeout = Some(Duration::from_secs(10));
    nats.set_read_timeout(timeout).expect("a socket");
    let length = body.len();
    write!(
        nats,
        "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {length}\r\n{body}\r\nPING\r\n"
    )
    .expect("it listens");
    let (mut heard, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let parts = heard.split_once("MSG answer 1 ");
        let answer = parts.and_then(|(_, rest)| rest.split_once("\r\n"));
        if let Some((length, answer)) = answer
            && let Ok(length) = length.parse::<usize>()
            && answer.len() >= length
        {
            return answer[..length].to_owned();
        }
        match nats.read(&mut buffer) {
            Ok(count @ 1..) => heard += &String::from_utf8_lossy(&buffer[..count]),
            ended => return format!("no answer: {ended:?} {heard}"),
        }
    }
}

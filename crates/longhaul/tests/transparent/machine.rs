//! Simulated machines, which are network namespaces, and virtual Ethernet links between them.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Output},
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, setns};

/// A network namespace. An idle process keeps it alive.
pub(crate) struct Machine {
    keeper: Child,
}

impl Machine {
    /// Creates a machine whose only interface is loopback.
    pub(crate) fn new() -> Self {
        let ours = fs::read_link("/proc/self/ns/net").expect("procfs");
        let keeper = Command::new("unshare")
            .args(["--net", "sleep", "infinity"])
            .spawn()
            .expect("util-linux");
        let machine = Self { keeper };
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::read_link(machine.namespace()).is_ok_and(|theirs| theirs == ours) {
            assert!(Instant::now() < deadline, "no namespace");
            thread::sleep(Duration::from_millis(5));
        }
        machine.ip("link set lo up");
        machine
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.keeper.id()).into()
    }

    /// Connects two machines by a link. Each entry has a machine, the name of its interface, and
    /// addresses.
    pub(crate) fn join(ends: [(&Self, &str, &[&str]); 2]) {
        let [(near, near_name, _), (far, far_name, _)] = ends;
        near.ip(&format!(
            "link add {near_name} type veth peer name {far_name} netns {}",
            far.keeper.id()
        ));
        for (machine, name, addresses) in ends {
            for address in addresses {
                // Duplicate address detection is disabled, since it would take a second.
                let nodad = if address.contains(':') { "nodad" } else { "" };
                machine.ip(&format!("address add {address} dev {name} {nodad}"));
            }
            machine.ip(&format!("link set {name} up"));
        }
    }

    /// Makes the machine forward packets between its interfaces.
    pub(crate) fn forward(&self) {
        self.shell(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        );
    }

    /// Runs the command `ip` on this machine. Panics if it fails.
    pub(crate) fn ip(&self, arguments: &str) {
        self.shell(&format!("ip {arguments}"));
    }

    /// Runs a shell command on this machine, and returns its output. Panics if the command fails.
    pub(crate) fn shell(&self, line: &str) -> String {
        let output = self.command("sh").args(["-c", line]).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{line}: {}", errors(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Creates a command that runs `program` on this machine. The program keeps the process ID of
    /// the command.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .env("PATH", path())
            .arg(format!("--net={}", self.namespace().display()))
            .args(["--", program]);
        command
    }

    /// Runs `work` on a thread in this machine's network namespace, and returns its result.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(self.namespace()).expect("the keeper runs");
        let inside = || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).expect("may enter");
            work()
        };
        let result = thread::scope(|scope| scope.spawn(inside).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Starts `work` on a thread in this machine's network namespace, and returns immediately.
    pub(crate) fn start(&self, work: impl FnOnce() + Send + 'static) {
        let namespace = File::open(self.namespace()).expect("the keeper runs");
        thread::spawn(move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).expect("may enter");
            work();
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Returns a search path for programs. It includes the folders of system programs, which a user's
/// PATH may lack.
pub(crate) fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin")
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

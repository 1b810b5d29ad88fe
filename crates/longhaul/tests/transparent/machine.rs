//! Machines: network namespaces of the test, and wires between them.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Output},
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, setns};

/// A network namespace, kept by an idle process.
pub(crate) struct Machine {
    keeper: Child,
}

impl Machine {
    /// Creates a machine with only its loopback interface.
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

    /// Joins two machines, each with an interface name and addresses.
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

    /// Forwards packets between the interfaces.
    pub(crate) fn forward(&self) {
        self.shell(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        );
    }

    /// Runs `ip`, which must succeed.
    pub(crate) fn ip(&self, arguments: &str) {
        self.shell(&format!("ip {arguments}"));
    }

    /// Runs a line of shell, which must succeed. Returns its output.
    pub(crate) fn shell(&self, line: &str) -> String {
        let output = self.command("sh").args(["-c", line]).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{line}: {}", errors(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns a command that will run `program` on this machine, with the same process id.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .env("PATH", path())
            .arg(format!("--net={}", self.namespace().display()))
            .args(["--", program]);
        command
    }

    /// Runs `work` on a thread of this machine.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(self.namespace()).expect("the keeper runs");
        let inside = || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).expect("may enter");
            work()
        };
        let result = thread::scope(|scope| scope.spawn(inside).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs `work` on a thread of this machine, and does not wait for it.
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

/// Returns the search path of programs. The user's PATH may lack the folders of daemons.
pub(crate) fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin")
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#!/usr/bin/env python3
"""The gateway as a service: a systemd of its own boots site a from a bare root folder, and starts the gateway by
`examples/longhaul.service`.

Client and gateway share one machine, and so do server and gateway: the client connects to 127.0.0.1:21, and
so does the far gateway, which lists it in `allow`. Killed, the gateway is back; a changed rate is taken on at
`systemctl reload`; a wrong configuration fails with its message and is not tried over and over.
"""

import glob
import os
import re
import subprocess
import time

from world import ROOT, Failure, check, digest, main, make_file

SIZE = 20_000_000
UID = 998

# A root of symbolic links into this machine's /usr, and nothing of its /etc; then systemd as process 1.
BOOT = r"""
set -e
root=$1 folder=$2 program=$3 unit=$4
mount --make-rprivate /
mount -t tmpfs tmpfs $root
cd $root
mkdir -p usr etc/systemd/system etc/longhaul var run tmp proc sys dev root old
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mount --bind /usr usr
mount -o remount,bind,ro usr
mount -t tmpfs tmpfs usr/local
install -D -m 755 $program usr/local/bin/longhaul
cp -r /etc/ld.so.cache /etc/nsswitch.conf etc/
printf 'root:x:0:0::/root:/bin/sh\nmessagebus:x:100:100::/:/bin/false\n' > etc/passwd
printf 'root:x:0:\nmessagebus:x:100:\nlonghaul:x:UID:\n' > etc/group
echo 'longhaul:x:UID:UID::/etc/longhaul:/usr/sbin/nologin' >> etc/passwd
touch etc/machine-id etc/fstab
install -m 600 $folder/a.key etc/longhaul/a.key
install -m 644 $folder/a.toml etc/longhaul/gateway.toml
chown -R UID:UID etc/longhaul
install -m 644 $unit etc/systemd/system/longhaul.service
systemctl --quiet --root=$root enable longhaul
ln -s /usr/lib/systemd/system/multi-user.target etc/systemd/system/default.target
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs dev
mkdir dev/pts dev/shm
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs run
pivot_root . old
umount -l old
exec env -i container=unshare SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=1 \
    PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --system --show-status=0
""".replace("UID", str(UID))


class Machine:
    """Site a with systemd as its first process, in a control group of its own."""

    def __init__(self, world):
        self.world = world
        with open("/proc/mounts") as mounts:
            cgroup2 = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
        if not cgroup2:
            raise Failure("there is no cgroup2 to give systemd a part of")
        self.group = os.path.join(cgroup2[0], world.name)

    def __enter__(self):
        os.mkdir(self.group)
        root, boot = self.world.path("root"), self.world.path("boot.sh")
        os.mkdir(root)
        with open(boot, "w") as script:
            script.write(BOOT)
        self.world.start(
            "systemd", "a", "bash", "-c", f'echo $$ > {self.group}/cgroup.procs; exec unshare --pid '
            '--fork --kill-child --mount --uts --ipc --cgroup bash "$@"', "bash", boot, root,
            self.world.folder, self.world.longhaul, os.path.join(ROOT, "examples/longhaul.service"))
        self.world.wait(lambda: self.systemctl("is-system-running").strip() in ("running", "degraded"),
                        "systemd is up", 30)
        return self

    def __exit__(self, *error):
        self.world.processes["systemd"].kill()
        self.world.processes["systemd"].wait()
        for _ in range(50):
            for folder in sorted(glob.glob(f"{self.group}/**/", recursive=True), reverse=True):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass
            if not os.path.exists(self.group):
                return
            time.sleep(0.1)

    def first(self):
        """The process id, seen from outside, of the child of `unshare`."""
        pid = self.world.processes["systemd"].pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return children.read().split()[0]

    def run(self, *command):
        enter = ["nsenter", "-t", self.first(), "-p", "-m", "-n", "-u", "-i", "-C"]
        done = subprocess.run([*enter, "env", "-i", "PATH=/usr/bin:/usr/sbin", *command],
                              capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def systemctl(self, *arguments):
        try:
            return self.run("systemctl", "--no-pager", *arguments)
        except (OSError, IndexError):
            return "not up yet"

    def show(self, what):
        return self.systemctl("show", "longhaul", "-P", what).strip()

    def log(self):
        return self.run("journalctl", "--no-pager", "-u", "longhaul", "-o", "cat")

    def write(self, text):
        path = f"/proc/{self.first()}/root/etc/longhaul/gateway.toml"
        with open(path, "w") as config:
            config.write(text)


def vsftpd(world):
    """A server that only its own machine reaches."""
    config = world.path("vsftpd-loopback.conf")
    with open(world.path("vsftpd.conf")) as plain, open(config, "w") as file:
        file.write(re.sub(r"listen_address=.*", "listen_address=127.0.0.1", plain.read()))
    world.start("vsftpd-loopback", "b", "/usr/sbin/vsftpd", config)


def transfer(world, what):
    local, back, name = world.path("local"), world.path("back"), what.split()[0]
    curl = ["curl", "-sS", "--max-time", "60", "--user", "anonymous:x"]
    world.run(*curl, "-T", local, f"ftp://127.0.0.1/files/{name}", check=True)
    world.run(*curl, "-o", back, f"ftp://127.0.0.1/files/{name}", check=True)
    check(digest(world.server_file(name)) == digest(back) == digest(local),
          f"{what}: a file up and down by 127.0.0.1 on both machines")


def up(world):
    status = world.status("a")
    return status is not None and status["peers"][0]["state"] == "up"


def job(world, args):
    vsftpd(world)
    world.far_allow += ', "127.0.0.1:21"'
    world.gateway("b")
    world.write_config("a", '[[ftp]]\nlisten = "127.0.0.1:21"\ntarget = "127.0.0.1:21"\n')
    make_file(world.path("local"), SIZE)
    with Machine(world) as machine:
        check(machine.show("ActiveState") == "active", "the gateway runs after the boot")
        check(machine.show("UnitFileState") == "enabled", "the unit is enabled")
        world.wait(lambda: up(world), "link up", 30)
        main_pid = machine.show("MainPID")
        uid = machine.run("ps", "-o", "uid=", "-p", main_pid).strip()
        check(uid == str(UID), "it runs as a user of its own, on port 21")
        transfer(world, "booted")

        begun = time.monotonic()
        machine.systemctl("kill", "-s", "KILL", "longhaul")
        world.wait(lambda: machine.show("MainPID") not in ("0", main_pid) and up(world),
                   "back after kill -9", 30)
        print(f"  back {time.monotonic() - begun:.1f} s after kill -9", flush=True)
        transfer(world, "killed and back")

        with open(world.path("a.toml")) as file:
            config = file.read()
        machine.write(config.replace("[link]\n", '[link]\nrate_max = "50 Mbit/s"\n', 1))
        machine.systemctl("reload", "longhaul")
        world.wait(lambda: "configuration read again" in machine.log(), "the new rate is taken on")
        check(machine.show("ActiveState") == "active", "reload: a changed rate is taken on")

        machine.write(config.replace("[link]", "[lnik]", 1))
        machine.systemctl("restart", "longhaul")
        world.wait(lambda: machine.show("ActiveState") == "failed", "a wrong configuration fails")
        time.sleep(5)
        check(machine.show("ActiveState") == "failed", "a wrong configuration is not tried again")
        check("gateway.toml:3:2" in machine.log(), "the log has its line and column")

        machine.write(config)
        machine.systemctl("reset-failed", "longhaul")
        machine.systemctl("start", "longhaul")
        world.wait(lambda: up(world), "link up", 30)
        begun = time.monotonic()
        machine.systemctl("stop", "longhaul")
        check(machine.show("Result") == "success", f"stopped in {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main(job, __doc__, "curl", "systemctl", "unshare", "nsenter")

"""Site a as a machine of its own: systemd as process 1 in a bare root folder, with the gateway's unit installed.
"""

import glob
import os
import subprocess
import time

from world import ROOT, Missing

UID = 998
UNIT = os.path.join(ROOT, "packaging", "longhaul.service")

# A root of symbolic links into this machine's /usr, and nothing of its /etc; then systemd as process 1.
BOOT = r"""
set -e
root=$1 folder=$2 program=$3 unit=$4
mount --make-rprivate /
mount -t tmpfs tmpfs $root
cd $root
mkdir -p usr etc/systemd/system etc/longhaul var/lib/longhaul run tmp proc sys dev root old
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mount --bind /usr usr
mount -o remount,bind,ro usr
mount -t tmpfs tmpfs usr/local
install -D -m 755 $program usr/local/bin/longhaul
cp -r /etc/ld.so.cache /etc/nsswitch.conf etc/
printf 'root:x:0:0::/root:/bin/sh\nmessagebus:x:100:100::/:/bin/false\n' > etc/passwd
printf 'root:x:0:\nmessagebus:x:100:\nlonghaul:x:UID:\n' > etc/group
echo 'longhaul:x:UID:UID::/var/lib/longhaul:/usr/sbin/nologin' >> etc/passwd
touch etc/machine-id etc/fstab
install -m 600 $folder/a.key var/lib/longhaul/a.key
chown -R UID:UID var/lib/longhaul
sed 's|"a.key"|"/var/lib/longhaul/a.key"|' $folder/a.toml > etc/longhaul/gateway.toml
chmod 644 etc/longhaul/gateway.toml
sed 's|/usr/bin/longhaul|/usr/local/bin/longhaul|' $unit > etc/systemd/system/longhaul.service
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
            raise Missing("a cgroup2 to give systemd a part of")
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
            self.world.folder, self.world.longhaul, UNIT)
        self.world.wait(lambda: self.systemctl("is-system-running").strip() in ("running", "degraded"),
                        "systemd is up", 30)
        return self

    def __exit__(self, *error):
        self.world.kill("systemd")
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
            config.write(text.replace('"a.key"', '"/var/lib/longhaul/a.key"'))

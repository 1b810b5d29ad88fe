"""Sites that act as separate machines with systemd as process 1.

`Machine` has a bare root folder with the gateway's unit. `Installed` is a fresh Debian 12 on which tests install
packages.
"""

import glob
import os
import re
import shutil
import subprocess
import time

from world import ROOT, Failure, Missing

UID = 998
UNIT = os.path.join(ROOT, "packaging", "longhaul.service")

# Commands that mount the kernel's file systems and the devices in a root folder.
MOUNTS = r"""
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs dev
mkdir dev/pts dev/shm
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs run
"""

# Script that makes a root folder with this machine's /usr, read-only, and symbolic links into it. Only two files come
# from the machine's /etc. Then the script starts systemd as process 1.
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
MOUNTS
pivot_root . old
umount -l old
exec env -i container=unshare SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=1 \
    PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --system --show-status=0
""".replace("UID", str(UID)).replace("MOUNTS", MOUNTS)


# Script that enters a complete root folder, and starts systemd as process 1.
BOOT_INSTALLED = r"""
set -e
root=$1
mount --make-rprivate /
mount --bind $root $root
cd $root
MOUNTS
mkdir -p old
pivot_root . old
umount -l old
rmdir old
exec env -i container=unshare SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=1 \
    PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --system --show-status=0
""".replace("MOUNTS", MOUNTS)
# Archive of the root folder that debootstrap makes once.
ARCHIVE = os.path.join(ROOT, "target", "debian-12.tar")
INCLUDED = "systemd,systemd-sysv,dbus,iproute2,procps"
# Paths that `Installed.paths` ignores, because they change all the time or keep records of the package manager.
UNSTEADY = re.compile("(proc|sys|dev|run|tmp|old|var/(cache|log/journal|lib/(dpkg|apt|systemd)|log/(dpkg|apt|alternatives))|"
                      "etc/(ld.so.cache|passwd|group|shadow|gshadow|subuid|subgid|.pwd.lock|machine-id))")


class Booted:
    """A site with systemd as its first process, in a separate control group."""

    def __init__(self, world, site):
        self.world, self.site, self.name = world, site, f"systemd-{site}"
        with open("/proc/mounts") as mounts:
            cgroup2 = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
        if not cgroup2:
            raise Missing("cgroup2 file system for systemd")
        self.group = os.path.join(cgroup2[0], f"{world.name}-{site}")
        self.root = self.world.path(f"root-{site}")

    def boot(self, script, *arguments):
        os.mkdir(self.group)
        path = self.world.path(f"boot-{self.site}.sh")
        with open(path, "w") as file:
            file.write(script)
        self.world.start(
            self.name, self.site, "bash", "-c", f'echo $$ > {self.group}/cgroup.procs; exec unshare --pid '
            '--fork --kill-child --mount --uts --ipc --cgroup bash "$@"', "bash", path, self.root, *arguments)
        self.world.wait(lambda: self.systemctl("is-system-running").strip() in ("running", "degraded"),
                        "systemd is up", 60)

    def __exit__(self, *error):
        self.world.kill(self.name)
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
        """Returns the process id, outside the machine, of the child of `unshare`."""
        pid = self.world.processes[self.name].pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return children.read().split()[0]

    def run(self, *command, told=None):
        enter = ["nsenter", "-t", self.first(), "-p", "-m", "-n", "-u", "-i", "-C"]
        done = subprocess.run([*enter, "env", "-i", "PATH=/usr/bin:/usr/sbin", "LC_ALL=C.UTF-8", *command],
                              input=told, capture_output=True, text=True, timeout=120)
        return done.stderr + done.stdout

    def systemctl(self, *arguments):
        try:
            return self.run("systemctl", "--no-pager", *arguments)
        except (OSError, IndexError):
            return "not up yet"

    def show(self, what):
        return self.systemctl("show", "longhaul", "-P", what).strip()

    def log(self):
        return self.run("journalctl", "--no-pager", "-u", "longhaul", "-o", "cat")


class Machine(Booted):
    """Site a as a machine that has the gateway's unit and little else."""

    def __init__(self, world):
        super().__init__(world, "a")

    def __enter__(self):
        os.mkdir(self.root)
        self.boot(BOOT, self.world.folder, self.world.longhaul, UNIT)
        return self

    def write(self, text):
        path = f"/proc/{self.first()}/root/etc/longhaul/gateway.toml"
        with open(path, "w") as config:
            config.write(text.replace('"a.key"', '"/var/lib/longhaul/a.key"'))


class Installed(Booted):
    """A fresh Debian 12 on which tests install packages."""

    def __enter__(self):
        if not os.path.exists(ARCHIVE):
            self.bootstrap()
        os.mkdir(self.root)
        subprocess.run(["tar", "-xf", ARCHIVE, "-C", self.root], check=True)
        self.boot(BOOT_INSTALLED)
        self.before = self.paths()
        return self

    def bootstrap(self):
        folder, new = self.world.path("bootstrap"), f"{ARCHIVE}.{self.world.name}"
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={INCLUDED}", "bookworm", folder,
                        "http://deb.debian.org/debian"], check=True, stdin=subprocess.DEVNULL)
        subprocess.run(["tar", "-cf", new, "--one-file-system", "-C", folder, "."], check=True)
        os.rename(new, ARCHIVE)
        shutil.rmtree(folder)

    def file(self, path):
        return os.path.join(self.root, path)

    def read(self, path):
        with open(self.file(path)) as file:
            return file.read()

    def install(self, packages, *options):
        for package in packages:
            shutil.copy(package, self.file("tmp"))
        names = [f"/tmp/{os.path.basename(package)}" for package in packages]
        told = self.run("apt-get", "install", "-y", "--no-install-recommends", *options, *names)
        if "Setting up longhaul-lab" not in told:
            raise Failure(f"not installed: {told}")

    def purge(self):
        told = self.run("apt-get", "purge", "-y", "longhaul", "longhaul-lab")
        if "Purging configuration files for longhaul" not in told:
            raise Failure(f"not purged: {told}")

    def paths(self):
        found = set()
        for folder, folders, files in os.walk(self.root):
            for name in folders + files:
                path = os.path.relpath(os.path.join(folder, name), self.root)
                if not UNSTEADY.match(path):
                    found.add(path)
            folders[:] = [name for name in folders
                          if not UNSTEADY.match(os.path.relpath(os.path.join(folder, name), self.root))]
        return found

    def changes(self):
        """Returns the paths that did not exist before the first installation."""
        return sorted(self.paths() - self.before)

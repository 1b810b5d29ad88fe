"""Files with contents that do not compress and do not repeat, and whether two are the same."""

import hashlib
import os
import subprocess


def make_file(path, size):
    """A file of `size` bytes; the same name has the same contents."""
    with open(path, "wb") as out:
        subprocess.run(
            f"openssl enc -aes-128-ctr -nosalt -pass pass:{os.path.basename(path)} -pbkdf2 "
            f"-iter 1 < /dev/zero 2>/dev/null | head -c {size}",
            shell=True, stdout=out, check=True)
    os.chmod(path, 0o644)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def assert_same(one, other):
    sizes = os.path.getsize(one), os.path.getsize(other)
    assert sizes[0] == sizes[1], f"{other}: {sizes[1]} bytes, not {sizes[0]}"
    assert digest(one) == digest(other), f"{other}: other contents of the same size"

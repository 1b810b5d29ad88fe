"""Test files whose contents neither compress nor repeat, and comparisons of files."""

import hashlib
import os
import subprocess


def make_file(path, size):
    """Makes a file of `size` bytes. Files with the same name have the same contents."""
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

"""An SFTP client with the library paramiko or asyncssh.

Usage: ssh_library_client.py LIBRARY. The input is a JSON object with the host, the account and the steps.

A step is a list of a verb and its arguments. The names of files are hexadecimal, because they may contain any bytes.
"""

import asyncio
import json
import os
import stat
import sys

BLOCK = 1 << 20


def path_of(text):
    return bytes.fromhex(text)


def by_paramiko(job):
    import paramiko
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(job["host"], job["port"], job["user"], job["password"], allow_agent=False, look_for_keys=False,
                   timeout=30, banner_timeout=30, auth_timeout=30)
    sftp = client.open_sftp()

    def each(call, names_in, source, target):
        """Moves files one by one. A name that the library refuses does not stop the other files.

        `names_in` is a local folder, because the library's own listing decodes names.
        """
        for name in os.listdir(names_in):
            try:
                call(source + b"/" + name, target + b"/" + name)
            except (OSError, ValueError, paramiko.SFTPError) as error:
                print(name, repr(error))

    def tree_put(here, there):
        sftp.mkdir(there)
        each(sftp.put, here, here, there)

    def tree_get(there, here, names_in):
        os.mkdir(here)
        each(sftp.get, names_in, there, here)

    def resume_put(here, there):
        done = sftp.stat(there).st_size
        with open(here, "rb") as source, sftp.open(there, "r+") as target:
            source.seek(done)
            target.seek(done)
            target.set_pipelined(True)
            while block := source.read(BLOCK):
                target.write(block)

    def resume_get(there, here):
        done = os.path.getsize(here)
        with sftp.open(there, "r") as source, open(here, "ab") as target:
            source.seek(done)
            source.prefetch()
            source.seek(done)
            while block := source.read(BLOCK):
                target.write(block)

    def large_get(there, here):
        """Resumes a download like `resume_get`, but without the prefetch, which starts at the beginning of the file."""
        done = os.path.getsize(here)
        with sftp.open(there, "r") as source, open(here, "ab") as target:
            source.seek(done)
            while block := source.read(BLOCK):
                target.write(block)

    def put_attributes(here, there):
        sftp.put(here, there)
        status = os.stat(here)
        sftp.chmod(there, stat.S_IMODE(status.st_mode))
        sftp.utime(there, (status.st_atime, status.st_mtime))

    def get_attributes(there, here):
        sftp.get(there, here)
        status = sftp.stat(there)
        os.chmod(here, stat.S_IMODE(status.st_mode))
        os.utime(here, (status.st_atime, status.st_mtime))

    verbs = {"put": sftp.put, "get": sftp.get, "rename": sftp.posix_rename, "delete": sftp.remove,
             "list": lambda there: print("\n".join(sftp.listdir(there))), "tree_put": tree_put, "tree_get": tree_get,
             "resume_put": resume_put, "resume_get": large_get if job.get("large") else resume_get,
             "put_attributes": put_attributes, "get_attributes": get_attributes}
    for verb, *arguments in job["steps"]:
        verbs[verb](*map(path_of, arguments))
    client.close()


async def by_asyncssh(job):
    import asyncssh
    async with asyncssh.connect(job["host"], job["port"], username=job["user"], password=job["password"],
                                known_hosts=None, config=None, client_keys=None, agent_path=None) as connection:
        async with connection.start_sftp_client(path_encoding=None) as sftp:
            async def show(there):
                sys.stdout.buffer.write(b"\n".join(await sftp.listdir(there)) + b"\n")

            async def resume_put(here, there):
                done = await sftp.getsize(there)
                with open(here, "rb") as source:
                    source.seek(done)
                    async with sftp.open(there, "r+b") as target:
                        await target.seek(done)
                        while block := source.read(BLOCK):
                            await target.write(block)

            async def resume_get(there, here):
                done = os.path.getsize(here)
                async with sftp.open(there, "rb") as source:
                    with open(here, "ab") as target:
                        await source.seek(done)
                        while block := await source.read(BLOCK):
                            target.write(block)

            async def each(call, names_in, source, target):
                """Moves files one by one. A name that the library refuses does not stop the other files."""
                for name in os.listdir(names_in):
                    try:
                        await call(source + b"/" + name, target + b"/" + name)
                    except (OSError, asyncssh.SFTPError) as error:
                        print(name, repr(error))

            async def tree_put(here, there):
                await sftp.mkdir(there)
                await each(sftp.put, here, here, there)

            async def tree_get(there, here, names_in):
                os.mkdir(here)
                await each(sftp.get, names_in, there, here)

            verbs = {"put": lambda here, there: sftp.put(here, there), "get": lambda there, here: sftp.get(there, here),
                     "rename": sftp.posix_rename, "delete": sftp.remove, "list": show,
                     "tree_put": tree_put, "tree_get": tree_get, "resume_put": resume_put, "resume_get": resume_get,
                     "put_attributes": lambda here, there: sftp.put(here, there, preserve=True),
                     "get_attributes": lambda there, here: sftp.get(there, here, preserve=True)}
            for verb, *arguments in job["steps"]:
                await verbs[verb](*map(path_of, arguments))


def main():
    job = json.load(sys.stdin)
    if sys.argv[1] == "paramiko":
        by_paramiko(job)
    else:
        asyncio.run(by_asyncssh(job))


main()

"""A client that keeps COUNT idle SSH sessions open, each with an SFTP channel.

Usage: ssh_idle_client.py HOST PORT USER PASSWORD COUNT.

The client prints `ready` when all sessions have logged in. For each line of its input, the client requests the
attributes of a folder in every session. Then it prints the time of the slowest answer in ms.
"""

import asyncio
import sys
import time

import asyncssh

TOGETHER = 20


async def main():
    host, port, user, password, count = sys.argv[1:]
    gate = asyncio.Semaphore(TOGETHER)

    async def open_one():
        async with gate:
            connection = await asyncssh.connect(host, int(port), username=user, password=password, known_hosts=None, config=None,
                                                client_keys=None, agent_path=None, login_timeout=120)
            sftp = await connection.start_sftp_client()
            await sftp.stat(".")
            return connection, sftp

    sessions = await asyncio.gather(*(open_one() for _ in range(int(count))))
    print("ready", flush=True)

    async def ask(sftp):
        begun = time.monotonic()
        await sftp.stat(".")
        return time.monotonic() - begun

    while await asyncio.to_thread(sys.stdin.readline):
        took = await asyncio.gather(*(ask(sftp) for _, sftp in sessions))
        print(f"{1000 * max(took):.0f}", flush=True)
    for connection, _ in sessions:
        connection.close()


asyncio.run(main())

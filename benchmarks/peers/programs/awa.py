"""awa-pg: its queue storage, COPY for bulk, as many workers as measured best."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from peers.programs.program import Program

CHUNK = 10_000

program = Program()


@dataclass
class Noop:
    number: int


async def main() -> None:
    client = AsyncClient(program.url, max_connections=program.settings.get("pool", 20))
    match program.asked["do"]:
        case "prepare":
            await client.migrate()
            await client.install_queue_storage()
        case "enqueue":
            await enqueue(client)
        case "work":
            await work(client)
    await client.close()


async def enqueue(client: AsyncClient) -> None:
    await client.storage_status()  # connects
    match program.asked["how"]:
        case "bulk":
            with program.clock():
                for first in range(0, program.jobs, CHUNK):
                    numbers = range(first, min(first + CHUNK, program.jobs))
                    await client.enqueue_many_copy([Noop(number) for number in numbers])
        case "single":
            with program.clock():
                for number in range(program.jobs):
                    await client.insert(Noop(number))
        case "paced":
            await program.apaced(lambda number: client.insert(Noop(number)))


async def work(client: AsyncClient) -> None:
    @client.task(Noop)
    async def noop(job: Any) -> None:
        program.run(job.args.number)

    await asyncio.to_thread(program.ready)
    await client.start([("default", program.settings.get("workers", 500))])
    await asyncio.to_thread(program.stop.wait)
    await client.shutdown()
    program.end()


asyncio.run(main())

"""honker on SQLite, `synchronous=NORMAL` as it sets it: batches claimed and acknowledged by hand, as its docs advise."""

from __future__ import annotations

import asyncio

import honker

from peers.programs.program import Program

program = Program()
database = honker.open(program.url)
queue = database.queue("jobs")


def enqueue() -> None:
    match program.asked["how"]:
        case "bulk":
            with program.clock(), database.transaction() as transaction:
                for number in range(program.jobs):
                    queue.enqueue({"number": number}, tx=transaction)
        case "single":
            with program.clock():
                for number in range(program.jobs):
                    queue.enqueue({"number": number})
        case "paced":
            program.paced(lambda number: queue.enqueue({"number": number}))


async def work() -> None:
    batch = program.settings.get("batch", 500)
    await asyncio.to_thread(program.ready)
    updates = database.update_events()
    while not program.stop.is_set():
        jobs = queue.claim_batch("worker", batch)
        for job in jobs:
            program.run(job.payload["number"])
        if jobs:
            queue.ack_batch([job.id for job in jobs], "worker")
            continue
        try:
            await asyncio.wait_for(updates.__anext__(), timeout=0.2)
        except TimeoutError:
            continue
    program.end()


match program.asked["do"]:
    case "enqueue":
        enqueue()
    case "work":
        asyncio.run(work())

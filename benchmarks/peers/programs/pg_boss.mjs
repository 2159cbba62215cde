// pg-boss: batches of 500, fetched without a pause while they come back full, by four workers; LISTEN on.

import { asked, chunks, clock, end, load, numbers, paced, ready, run as called, settings, stop } from "./program.mjs";

const { PgBoss } = await load("pg-boss");
const QUEUE = "jobs";
const working = asked.do === "work";
const boss = new PgBoss({
  connectionString: asked.url,
  max: 10,
  useListenNotify: working,
  // What enqueues starts no upkeep of its own.
  supervise: working,
  schedule: false,
});
boss.on("error", (error) => console.error(String(error)));
await boss.start();

if (asked.do === "prepare") {
  await boss.createQueue(QUEUE, { notify: true });
  await boss.stop();
  process.exit(0);
}

const one = (number) => boss.send(QUEUE, { number });

if (working) {
  await ready();
  await boss.work(
    QUEUE,
    {
      batchSize: settings.batch ?? 500,
      burstWhenBatchFull: true,
      localConcurrency: settings.workers ?? 4,
      pollingIntervalSeconds: 0.5,
    },
    async (jobs) => {
      for (const job of jobs) called(job.data.number);
    },
  );
  await stop();
  await boss.stop({ graceful: true, timeout: 2000 });
  end();
} else if (asked.how === "bulk") {
  await clock(async () => {
    for (const chunk of chunks(5000)) {
      await boss.insert(QUEUE, chunk.map((number) => ({ data: { number } })));
    }
  });
  process.exit(0);
} else if (asked.how === "single") {
  await clock(async () => {
    for (const number of numbers()) await one(number);
  });
  process.exit(0);
} else {
  await paced(one);
  process.exit(0);
}

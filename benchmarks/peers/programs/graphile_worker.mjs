// graphile-worker: a local queue and batched completion, as its page on performance advises. It deletes its rows.

import { asked, chunks, clock, end, load, numbers, paced, ready, run as called, settings, stop } from "./program.mjs";

const { Logger, makeWorkerUtils, run } = await load("graphile-worker");
const connectionString = asked.url;
const logger = new Logger(() => () => {});

async function enqueue() {
  const utils = await makeWorkerUtils({ connectionString, logger });
  const one = (number) => utils.addJob("job", { number });
  await utils.withPgClient((client) => client.query("select 1"));
  if (asked.how === "bulk") {
    await clock(async () => {
      for (const chunk of chunks(5000)) {
        await utils.addJobs(chunk.map((number) => ({ identifier: "job", payload: { number } })));
      }
    });
  } else if (asked.how === "single") {
    await clock(async () => {
      for (const number of numbers()) await one(number);
    });
  } else {
    await paced(one);
  }
  process.exit(0);
}

async function work() {
  await ready();
  const runner = await run({
    connectionString,
    logger,
    noHandleSignals: true,
    taskList: { job: ({ number }) => called(number) },
    preset: {
      worker: {
        concurrentJobs: settings.concurrency ?? 24,
        maxPoolSize: 10,
        localQueue: { size: settings.localQueue ?? 2000 },
        completeJobBatchDelay: settings.batchDelay ?? 0,
        failJobBatchDelay: settings.batchDelay ?? 0,
      },
    },
  });
  await stop();
  await runner.stop();
  end();
}

if (asked.do === "prepare") {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await utils.release();
  process.exit(0);
}
await (asked.do === "enqueue" ? enqueue() : work());

// What the programs in Node share: the same lines as program.py, see there.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

export const asked = JSON.parse(process.argv[2]);
export const settings = asked.settings ?? {};
const jobs = asked.jobs ?? 0;

const require = createRequire(`${asked.modules}/node_modules/`);
export const load = (name) => import(pathToFileURL(require.resolve(name)).href);

export const say = (told) => process.stdout.write(JSON.stringify(told) + "\n");
// As Python's time.monotonic() and perf_counter(): this machine's monotonic clock, in seconds.
export const now = () => Number(process.hrtime.bigint()) / 1e9;

const words = { go: [], stop: [] };
const heard = new Set();
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  heard.add(line.trim());
  for (const resolve of words[line.trim()] ?? []) resolve();
});
lines.on("close", () => process.exit(1)); // the run is gone
const word = (which) => (heard.has(which) ? Promise.resolve() : new Promise((resolve) => words[which].push(resolve)));

export const ready = () => {
  say({ event: "ready" });
  return word("go");
};
export const stop = () => word("stop");

export async function clock(work) {
  await ready();
  const start = now();
  await work();
  say({ event: "enqueued", seconds: now() - start });
}

export async function paced(enqueue) {
  await ready();
  const sent = [];
  for (let number = 0; number < jobs; number++) {
    await new Promise((resolve) => setTimeout(resolve, 20 + 40 * Math.random()));
    sent.push(now());
    await enqueue(number);
  }
  say({ event: "sent", times: sent });
}

export function* chunks(size) {
  for (let first = 0; first < jobs; first += size) {
    yield Array.from({ length: Math.min(size, jobs - first) }, (_, place) => first + place);
  }
}

export const numbers = () => Array.from({ length: jobs }, (_, number) => number);

const runs = new Uint8Array(Math.max(jobs, 1));
const began = asked.timed ? new Array(jobs).fill(0) : null;
let calls = 0;

export function run(number) {
  if (began) began[number] = now();
  runs[number]++;
  if (++calls === jobs) say({ event: "called" });
}

export function end() {
  const done = runs.subarray(0, jobs);
  const missed = done.reduce((sum, times) => sum + (times === 0), 0);
  const repeated = done.reduce((sum, times) => sum + (times > 1), 0);
  process.stdout.write(JSON.stringify({ event: "account", missed, repeated, began }) + "\n", () => process.exit(0));
}

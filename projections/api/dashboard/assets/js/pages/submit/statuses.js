// The statuses of a kernel run, folded into what the page shows: the same list always gives the same view.

export const STEPS = [
  { key: "IN_QUEUE", label: "In the queue" },
  { key: "PROVISIONING", label: "Getting a machine" },
  { key: "COMPILING", label: "Compiling" },
  { key: "CHECKING", label: "Checking" },
  { key: "BENCHMARKING", label: "Benchmarking" },
];
const KEYS = STEPS.map((step) => step.key);

const STEP_OF = { TEST_RESULT: "CHECKING", CHECKED: "CHECKING", BENCHMARK_RESULT: "BENCHMARKING", BENCHMARKED: "BENCHMARKING" };
const FAILS = {
  COMPILE_ERROR: ["COMPILING", "The source does not compile"],
  WRONG_ANSWER: ["CHECKING", "Wrong answer"],
  RUNTIME_ERROR: [null, "The kernel failed while it ran"],
  ERROR: [null, "The run came to no answer"],
};
const SUCCEEDS = { CHECKED: "All tests passed", BENCHMARKED: "Benchmark completed successfully" };

// {status, run, name, steps: [{key, label, state, from, to}], end, message, output, vmState, elapsed, cost, tests, benchmarks}
//   of frames, oldest first. CHECKED is an end only where no benchmark follows: `closed` says that the stream has ended.
export function folded(frames, closed) {
  const view = { status: null, run: null, name: null, end: null, message: null, output: null, vmState: null, elapsed: null, cost: null, tests: [], benchmarks: [], compiler: null };
  const reached = new Map();
  let failed = null;
  for (const frame of frames) {
    view.status = frame.status;
    view.run = frame.run_id ?? view.run;
    view.name = frame.name ?? frame.run_name ?? view.name;
    view.vmState = frame.vm_state ?? view.vmState;
    view.elapsed = figure(frame.elapsed ?? frame.elapsed_seconds) ?? view.elapsed;
    view.cost = frame.cost_usd ?? frame.cost ?? view.cost;
    view.compiler = frame.compiler ?? view.compiler;
    const step = STEP_OF[frame.status] ?? frame.status;
    if (KEYS.includes(step) && !reached.has(step)) reached.set(step, view.elapsed);
    if (frame.status === "TEST_RESULT") view.tests.push(frame);
    if (frame.status === "BENCHMARK_RESULT") view.benchmarks.push(frame);
    if (FAILS[frame.status]) {
      failed = FAILS[frame.status][0] ?? KEYS.filter((key) => reached.has(key)).at(-1) ?? null;
      if (failed && !reached.has(failed)) reached.set(failed, view.elapsed);
      Object.assign(view, { end: { good: false, said: FAILS[frame.status][1] }, message: frame.message ?? frame.error ?? null, output: frame.output ?? frame.details ?? null });
    }
    if (frame.status === "BENCHMARKED" || (frame.status === "CHECKED" && (closed || ends(frame)))) {
      Object.assign(view, { end: { good: true, said: SUCCEEDS[frame.status] }, message: null });
    } else if (view.end?.good) view.end = null;
  }
  view.steps = stepsOf(reached, view, failed);
  return view;
}

const ends = (frame) => frame.endpoint === "checker" || frame.final === true;
const figure = (value) => (value === undefined || value === null ? null : Number(value));

// Whether nothing comes after a frame, whatever was asked for.
export const isOver = (frame) => frame.status === "BENCHMARKED" || Object.hasOwn(FAILS, frame.status) || (frame.status === "CHECKED" && ends(frame));

function stepsOf(reached, view, failed) {
  const at = KEYS.findLastIndex((key) => reached.has(key));
  const times = KEYS.filter((key) => reached.has(key)).map((key) => reached.get(key));
  return STEPS.map((step, index) => {
    const from = reached.get(step.key) ?? null;
    const state = step.key === failed ? "failed" : index < at || (index === at && view.end) ? "done" : index === at ? "now" : "ahead";
    const to = from === null ? null : times.filter((time) => time !== null && time > from)[0] ?? (state === "now" ? null : view.elapsed);
    return { ...step, state, from, to };
  }).filter((step) => reached.has(step.key) || (!view.end && step.state === "ahead"));
}

// The statuses of a kernel, folded into what the page shows: the same list always gives the same view.

export const STEPS = [
  { key: "IN_QUEUE", label: "In the queue" },
  { key: "PROVISIONING", label: "Getting a machine" },
  { key: "COMPILING", label: "Compiling" },
  { key: "CHECKING", label: "Checking" },
  { key: "BENCHMARKING", label: "Benchmarking" },
];
const KEYS = STEPS.map((step) => step.key);

const STEP_OF = {
  TEST_RESULT: "CHECKING", CHECKED: "CHECKING", BENCHMARK_RESULT: "BENCHMARKING", BENCHMARKED: "BENCHMARKING", COMPILE_ERROR: "COMPILING", WRONG_ANSWER: "CHECKING",
};
const ENDS = {
  CHECKED: { good: true, said: "All tests passed" },
  BENCHMARKED: { good: true, said: "Benchmark completed successfully" },
  COMPILE_ERROR: { good: false, said: "Compilation failed" },
  WRONG_ANSWER: { good: false, said: "Wrong answer" },
  RUNTIME_ERROR: { good: false, said: "Runtime error" },
  CHEATING_SUSPECTED: { good: false, said: "Cheating suspected: no times" },
  ERROR: { good: false, said: "No result" },
};

// {status, message, run, name, steps: [{key, label, state, from, to}], end, output, vmState, elapsed, began, cost, tests, benchmarks}
//   of frames, oldest first; times are seconds since the submission, `began` is milliseconds.
export function folded(frames) {
  const view = { status: null, message: "", run: null, name: null, end: null, output: null, vmState: null, elapsed: null, began: null, cost: null, tests: [], benchmarks: [] };
  const reached = new Map();
  for (const frame of frames) {
    Object.assign(view, { status: frame.status, message: frame.message, run: frame.run_id, name: frame.name, elapsed: frame.elapsed_seconds });
    view.began ??= Date.parse(frame.at) - frame.elapsed_seconds * 1000;
    view.vmState = frame.vm_state ?? view.vmState;
    view.cost = frame.cost_usd ?? view.cost;
    const step = STEP_OF[frame.status] ?? frame.status;
    if (KEYS.includes(step)) reach(reached, step, view);
    if (frame.status === "TEST_RESULT" || (frame.status === "WRONG_ANSWER" && !view.tests.some((row) => row.test === frame.test))) view.tests.push(frame);
    if (frame.status === "BENCHMARK_RESULT") view.benchmarks.push(frame);
    if (frame.final) Object.assign(view, { end: ENDS[frame.status] ?? ENDS.ERROR, output: frame.output ?? null });
  }
  view.steps = stepsOf(reached, view);
  return view;
}

// After a return to a queue, all later steps are pending.
function reach(reached, step, view) {
  const later = KEYS.slice(KEYS.indexOf(step) + 1);
  if ((step === "IN_QUEUE" || step === "PROVISIONING") && later.some((key) => reached.has(key))) {
    for (const key of later) reached.delete(key);
    Object.assign(view, { tests: [], benchmarks: [] });
  }
  if (!reached.has(step)) reached.set(step, view.elapsed);
}

// Leaves out steps that cannot happen any more: the run ended, or a warm one needed no machine.
function stepsOf(reached, view) {
  const at = KEYS.findLastIndex((key) => reached.has(key));
  const failed = view.end !== null && !view.end.good;
  return STEPS.map((step, index) => {
    const from = reached.get(step.key) ?? null;
    const state = index < at || (index === at && view.end?.good) ? "done" : index > at ? "ahead" : failed ? "failed" : "now";
    const next = KEYS.slice(index + 1).find((key) => reached.has(key));
    const to = from === null ? null : next ? reached.get(next) : state === "now" ? null : view.elapsed;
    return { ...step, state, from, to };
  }).filter((step) => step.from !== null || (step.state === "ahead" && !view.end));
}

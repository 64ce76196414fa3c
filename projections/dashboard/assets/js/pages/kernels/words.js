// The words of a kernel's result and its figures, equal to the command line's.

export const SAID = {
  IN_QUEUE: "in the queue", PROVISIONING: "getting a machine", COMPILING: "compiling", CHECKING: "checking", TEST_RESULT: "test", CHECKED: "tests passed",
  BENCHMARKING: "benchmarking", BENCHMARK_RESULT: "benchmark", BENCHMARKED: "timed", COMPILE_ERROR: "compile error", WRONG_ANSWER: "wrong answer",
  RUNTIME_ERROR: "runtime error", CHEATING_SUSPECTED: "cheating suspected", UNPROVEN: "not proven", ERROR: "no result",
};
// The state whose colour and shape a result has.
export const LOOKS = { BENCHMARKED: "succeeded", CHECKED: "succeeded", UNPROVEN: "stopped" };

// Four significant places: `0.5217 ms`
export const time = (value) => (value === undefined || value === null ? "–" : `${Number(value.toPrecision(4))} ms`);
export const percent = (share) => (share === undefined || share === null ? "–" : `${(100 * share).toFixed(1)} %`);
export const sizes = (row) => Object.entries(row.sizes ?? {}).map(([name, value]) => `${name}=${value}`).join(" ") || "–";

// `0.51–0.53 ms`: times whose intervals overlap tie. Older results have none.
export const interval = (found) => (found.low_ms === undefined ? "–" : `${Number(found.low_ms.toPrecision(4))}–${time(found.high_ms)}`);

// `0.0024 ms (5.3 %)`: the least time on this GPU, and its share of the median.
export const floor = (found) => (found.floor_ms ? `${time(found.floor_ms)} (${percent(found.floor_ms / found.median_ms)})` : time(found.floor_ms));

export const boardOf = (problem, gpu, dtype) => `/kernels?${new URLSearchParams({ problem, gpu, dtype })}`;

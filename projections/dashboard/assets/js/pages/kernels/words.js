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

// By the judge's clock, the way there and back included.
export function outer(found) {
  const walls = [...(found.walls_ms ?? [])].sort((a, b) => a - b);
  const half = walls.length / 2;
  return walls.length ? (walls[Math.ceil(half) - 1] + walls[Math.floor(half)]) / 2 : null;
}

export const boardOf = (problem, gpu, dtype) => `/kernels?${new URLSearchParams({ problem, gpu, dtype })}`;

// One kernel run as its statuses come: begun here, or taken up again after a reload.
import { ApiProblem, postStream, sse } from "../../core/api.js";
import { useEffect, useReducer, useRef, useState } from "../../core/dom.js";
import { folded, isOver } from "./statuses.js";

const NONE = { title: "No statuses", detail: "The server has no statuses of this run. Its own page tells how it went." };

// {view, frames, busy, lost, error, submit(payload), forget()} of the run whose id is in the page's address.
export function useKernelRun(runId, onRun) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const [error, setError] = useState(null);
  const job = useRef({ frames: [], seen: new Set(), run: null, busy: false, lost: false, closed: false, control: null }).current;

  const reset = () => {
    job.control?.abort();
    Object.assign(job, { frames: [], seen: new Set(), run: null, busy: false, lost: false, closed: false, control: new AbortController() });
    setError(null);
    return job.control.signal;
  };
  const settle = (part) => { Object.assign(job, part); redraw(); };
  const take = (frame, id) => {
    if (typeof frame?.status !== "string" || (id && job.seen.has(id))) return;
    if (id) job.seen.add(id);
    job.frames.push({ ...frame, heard: Date.now() });
    if (frame.run_id && job.run !== frame.run_id) {
      job.run = frame.run_id;
      onRun(frame.run_id);
    }
    settle({ lost: false, ...(isOver(frame) ? { busy: false, closed: true } : {}) });
    if (isOver(frame)) job.control.abort();
  };
  // A stream that ends in a check is over; the browser would ask for more.
  const atEnd = () => job.frames.at(-1)?.status === "CHECKED" || job.closed;

  const follow = (id, signal) => {
    settle({ busy: true, run: id });
    sse(`/api/amd/runs/${encodeURIComponent(id)}/stream`, {
      signal,
      onMessage: take,
      onOpen: () => settle({ lost: false }),
      onError: (source) => {
        if (atEnd()) {
          source.close();
          settle({ busy: false, closed: true });
        } else if (source.readyState === EventSource.CLOSED) {
          settle({ busy: false, lost: false });
          setError(new ApiProblem(NONE));
        } else settle({ lost: true });
      },
    });
  };
  const submit = async (payload) => {
    const signal = reset();
    settle({ busy: true });
    try {
      await postStream("/api/amd/submit", payload, { signal, onEvent: ({ data, id }) => take(data, id) });
    } catch (problem) {
      if (signal.aborted) return;
      if (job.run === null) {
        settle({ busy: false });
        setError(problem);
        return;
      }
    }
    if (signal.aborted) return;
    if (atEnd() || job.run === null) settle({ busy: false, closed: true });
    else follow(job.run, signal);
  };
  const forget = () => { reset(); redraw(); };

  useEffect(() => {
    if (runId !== null && job.run !== runId) follow(runId, reset());
  }, [runId]);
  useEffect(() => () => job.control?.abort(), []);
  return { view: folded(job.frames, job.closed), frames: job.frames, busy: job.busy, lost: job.lost, error, submit, forget };
}

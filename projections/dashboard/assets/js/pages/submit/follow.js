// The statuses of one kernel, submitted here or resumed after a reload.
import { ApiProblem, postStream, sse } from "../../core/api.js";
import { useEffect, useMemo, useReducer, useRef, useState } from "../../core/dom.js";
import { folded } from "./statuses.js";

const NONE = { title: "No statuses", detail: "The server has no statuses of this run. See the page of the run." };
const fresh = () => ({ frames: [], seen: new Set(), run: null, busy: false, lost: false, control: new AbortController() });

// {view, busy, lost, error, submit(payload), forget()} of the kernel whose run is in the page's address.
export function useKernelRun(runId, onRun) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const [error, setError] = useState(null);
  const job = useRef(fresh());
  const now = job.current;

  const reset = () => {
    job.current.control.abort();
    job.current = fresh();
    setError(null);
    return job.current;
  };
  const settle = (one, part) => {
    Object.assign(one, part);
    if (one === job.current) redraw();
  };
  const take = (one, frame, id) => {
    if (typeof frame?.status !== "string" || one.seen.has(id)) return;
    one.seen.add(id);
    one.frames = [...one.frames, frame];
    if (one.run !== frame.run_id) {
      one.run = frame.run_id;
      onRun(frame.run_id);
    }
    settle(one, { lost: false, busy: !frame.final });
    if (frame.final) one.control.abort(); // the browser would ask for more
  };

  const follow = (one, id) => {
    settle(one, { busy: true, run: id });
    sse(`/api/amd/runs/${encodeURIComponent(id)}/stream`, {
      signal: one.control.signal,
      onMessage: (frame, position) => take(one, frame, position),
      onOpen: () => settle(one, { lost: false }),
      onError: (source) => {
        const refused = source.readyState === EventSource.CLOSED;
        settle(one, { lost: !refused, busy: !refused });
        if (refused && one === job.current) setError(new ApiProblem(NONE));
      },
    });
  };
  const submit = async (payload) => {
    const one = reset();
    settle(one, { busy: true });
    try {
      await postStream("/api/amd/submit", payload, { signal: one.control.signal, onEvent: ({ data, id }) => take(one, data, id) });
    } catch (problem) {
      if (!one.control.signal.aborted && one.run === null) {
        settle(one, { busy: false });
        setError(problem);
      }
    }
    if (!one.control.signal.aborted && one.run !== null) follow(one, one.run); // the server went away before the end
  };
  const forget = () => { reset(); redraw(); };

  useEffect(() => {
    if (runId !== null && job.current.run !== runId) follow(reset(), runId);
  }, [runId]);
  useEffect(() => () => job.current.control.abort(), []);
  const view = useMemo(() => folded(now.frames), [now.frames]);
  return { view, busy: now.busy, lost: now.lost, error, submit, forget };
}

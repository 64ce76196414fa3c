// A streamed output: of a long one only its end.
import { stream } from "../../core/api.js";
import { useEffect, useRef, useState } from "../../core/dom.js";
import { Terminal } from "./terminal.js";

const REST = 4; // times as long as a drawing took, until the next
const NOTHING = { lines: [], dropped: 0, long: false, state: "asking", error: null };

// {lines, dropped, long, state: asking | reading | done | failed, error, again}; `frames`: reports of a kernel are left out.
export function useOutput(path, open, frames) {
  const [seen, see] = useState(NOTHING);
  const [round, setRound] = useState(0);
  const follows = useRef(open);
  follows.current = open;
  useEffect(() => {
    const control = new AbortController();
    const terminal = new Terminal({ frames });
    let timer = null;
    let pause = 100;
    const show = (part) => {
      clearTimeout(timer);
      timer = null;
      if (control.signal.aborted) return;
      const began = performance.now();
      const lines = terminal.shown();
      see((before) => ({ ...before, lines, dropped: terminal.dropped, long: lines.some((line) => line.long > 0), ...part }));
      requestAnimationFrame(() => { pause = Math.max(100, REST * (performance.now() - began)); });
    };
    const onText = (piece) => {
      terminal.write(piece);
      timer ??= setTimeout(show, pause, { state: "reading" });
    };
    see(NOTHING);
    stream(follows.current ? `${path}?follow=true` : path, { signal: control.signal, onText })
      .then(() => show({ state: "done" }), (error) => show({ state: "failed", error }));
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [path, round]);
  return { ...seen, again: () => setRound(round + 1) };
}

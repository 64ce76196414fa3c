// A streamed text; of a long one only its end.
import { stream } from "../../core/api.js";
import { useEffect, useRef, useState } from "../../core/dom.js";

const MOST = 400_000; // characters that are kept on the page
const NOTHING = { text: "", cut: false, state: "asking", error: null };

// {text, cut, state: asking | reading | done | failed, error, again}
export function useOutput(path, open) {
  const [seen, see] = useState(NOTHING);
  const [round, setRound] = useState(0);
  const follows = useRef(open);
  follows.current = open;
  useEffect(() => {
    const control = new AbortController();
    const got = { text: "", cut: false };
    let timer = null;
    const show = (part) => {
      clearTimeout(timer);
      timer = null;
      if (!control.signal.aborted) see((before) => ({ ...before, ...got, ...part }));
    };
    const onText = (piece) => {
      got.text += piece;
      if (got.text.length > MOST) {
        got.text = got.text.slice(got.text.indexOf("\n", got.text.length - MOST * 0.9) + 1);
        got.cut = true;
      }
      timer ??= setTimeout(show, 100, { state: "reading" });
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

// A text field whose value goes into the address when the typing pauses.
import { useEffect, useRef, useState } from "../../core/dom.js";

export function useTyped(value, commit) {
  const [typed, setTyped] = useState(value);
  const sent = useRef(value);
  useEffect(() => {
    if (value !== sent.current) { sent.current = value; setTyped(value); }
  }, [value]);
  useEffect(() => {
    if (typed === sent.current) return undefined;
    const timer = setTimeout(() => { sent.current = typed.trim(); commit(typed); }, 300);
    return () => clearTimeout(timer);
  }, [typed]);
  return [typed, setTyped];
}

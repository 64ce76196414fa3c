// What every module draws with: preact, its hooks, and htm's tagged templates.
import { Fragment, createContext, h, render } from "../../vendor/preact.js";
import htm from "../../vendor/htm.js";

export {
  useCallback, useContext, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "../../vendor/hooks.js";
export { Fragment, createContext, h, render };
export const html = htm.bind(h);

// Classes as one string, without false, null and empty values.
export const classes = (...names) => names.filter(Boolean).join(" ");

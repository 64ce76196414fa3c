// How far the server is with the read models of a long record: {done, total}, done null where nobody knows; null: they are there.
import { store } from "./store.js";

export const building = store(null);

// Progress of the server's read models of a long record: {done, total}, done null if unknown; null: complete.
import { store } from "./store.js";

export const building = store(null);

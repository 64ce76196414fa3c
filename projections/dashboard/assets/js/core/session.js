// The caller and its role.
import { get } from "./api.js";
import { store, useStore } from "./store.js";

const RANK = { read: 0, submit: 1, admin: 2 };
export const session = store(null); // {name, role, via}; null: not known yet, or nobody

export async function readSession() {
  try { session.set(await get("/api/session")); } catch { session.set(null); }
}
// Whether the caller has at least a role: `useMay("admin")`.
export const useMay = (role) => useStore(session, (who) => who !== null && (RANK[who.role] ?? -1) >= RANK[role]);
export const useSession = () => useStore(session);

// A JSON value as the rows of a tree: pure, so that a big answer costs only the rows that are open.

// The path by which `jq` finds a value: `.[0].jobs[2].status`.
export const pathOf = (parent, key) => {
  if (typeof key === "number") return `${parent || "."}[${key}]`;
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(key)) return parent === "." ? `.${key}` : `${parent}.${key}`;
  return `${parent || "."}[${JSON.stringify(key)}]`;
};

const isBranch = (value) => value !== null && typeof value === "object";

const entries = (value) =>
  Array.isArray(value) ? value.map((one, index) => [index, one]) : Object.entries(value);

// Every open row, top to bottom: {path, key, value, depth, branch, size, at, of}.
export function rowsOf(value, open) {
  const rows = [];
  const walk = (key, one, path, depth, at, of) => {
    const branch = isBranch(one);
    const inside = branch ? entries(one) : [];
    rows.push({ path, key, value: one, depth, branch, array: Array.isArray(one), size: inside.length, at, of });
    if (branch && open.has(path)) {
      inside.forEach(([name, child], index) => walk(name, child, pathOf(path, name), depth + 1, index + 1, inside.length));
    }
  };
  walk(null, value, ".", 0, 1, 1);
  return rows;
}

// The paths that are open at first: to that depth, and no list of more than `most` things but the first.
export function openedTo(value, depth, most = 60) {
  const open = new Set();
  const walk = (one, path, left) => {
    if (!isBranch(one) || left === 0) return;
    const inside = entries(one);
    if (inside.length > most && path !== ".") return;
    open.add(path);
    inside.slice(0, most).forEach(([name, child]) => walk(child, pathOf(path, name), left - 1));
  };
  walk(value, ".", depth);
  return open;
}

// Every path there is, for "open all"; at most `most` branches.
export function everyPath(value, most = 5000) {
  const open = new Set();
  const walk = (one, path) => {
    if (!isBranch(one) || open.size >= most) return;
    open.add(path);
    entries(one).forEach(([name, child]) => walk(child, pathOf(path, name)));
  };
  walk(value, ".");
  return open;
}

// Paths whose key or plain value holds the words, in order, and the branches that must be open to see them.
export function found(value, words, most = 500) {
  const wanted = words.trim().toLowerCase();
  const paths = [];
  const open = new Set();
  if (!wanted) return { paths, open };
  const walk = (key, one, path, above) => {
    if (paths.length >= most) return;
    const branch = isBranch(one);
    const text = branch ? "" : String(one).toLowerCase();
    if ((key !== null && String(key).toLowerCase().includes(wanted)) || (!branch && text.includes(wanted))) {
      paths.push(path);
      above.forEach((each) => open.add(each));
    }
    if (branch) entries(one).forEach(([name, child]) => walk(name, child, pathOf(path, name), [...above, path]));
  };
  walk(null, value, ".", []);
  return { paths, open };
}

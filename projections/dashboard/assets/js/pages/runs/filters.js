// The filters of the runs page: parameters of its address, and of the API.

// [parameter, label, key of /api/filters]
export const CHOICES = [
  ["state", "State", "states"], ["reason", "Reason", "reasons"], ["user", "User", "users"], ["project", "Project", "projects"],
  ["gpu", "GPU", "gpus"], ["source", "Source", "sources"],
];
export const FILTERS = ["search", ...CHOICES.map(([name]) => name), "machine", "name", "since", "until"];

// The `order` of the address → its words; "" is the default.
export const ORDERS = {
  "": "newest first", oldest: "oldest first", name: "name, A to Z", "name-back": "name, Z to A", duration: "longest first", "duration-back": "shortest first",
  cost: "most expensive first", "cost-back": "cheapest first",
};

// What the address asks for; an unknown order is the default.
export function given(query) {
  const all = new URLSearchParams(query);
  const found = Object.fromEntries([...FILTERS, "cursor"].map((name) => [name, all.get(name)]).filter(([, value]) => value));
  const order = all.get("order");
  return { ...found, order: Object.hasOwn(ORDERS, order ?? "") ? order ?? "" : "" };
}

// The parameters of GET /api/runs for that; a day is whole.
export function asked({ order, ...found }) {
  const asked = new URLSearchParams({ limit: "50", ...found });
  if (/^\d{4}-\d{2}-\d{2}$/.test(found.until ?? "")) asked.set("until", `${found.until}T23:59:59.999999Z`);
  const [sort, back] = order === "oldest" ? ["", true] : order.split("-");
  if (sort) asked.set("sort", sort);
  if (back) asked.set("order", "oldest");
  return asked;
}

// The names that occur more than once.
export function several(names) {
  return new Set(names.filter((name, place) => names.indexOf(name) !== place));
}

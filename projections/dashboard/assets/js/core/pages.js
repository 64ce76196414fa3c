// The pages of the header: [address, name, the letter after `g`].
export const PAGES = [
  ["/", "Overview", "o"], ["/changes", "Changes", "h"], ["/runs", "Runs", "r"], ["/machines", "Machines", "m"], ["/costs", "Costs", "c"], ["/kernels", "Kernels", "k"],
  ["/submit", "Submit", "s"], ["/record", "Record", "e"], ["/incidents", "Incidents", "i"], ["/admin", "Admin", "a"],
];

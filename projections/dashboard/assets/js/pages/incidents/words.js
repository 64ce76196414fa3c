// What each anomaly means and what to do about it: one sentence each, in the glossary's words.

export const ANOMALIES = {
  contradiction: {
    title: "The provider took back an end",
    means: "It had said that this was over and later said that it goes on.",
    todo: "The verdict follows the newest decisive answer. Compare the two polls before you trust either.",
  },
  illegal_transition: {
    title: "It went backwards",
    means: "A newer answer shows it behind where an earlier one had shown it.",
    todo: "Usually a late answer of the provider's. Nothing was undone; look at the poll if it happens often.",
  },
  schema_drift: {
    title: "An unknown word or type",
    means: "The provider's answer holds a word that this version does not know. It was kept and decided nothing.",
    todo: "Read the answer. If the provider was updated, update Steno and replay the record.",
  },
  orphan: {
    title: "A machine that nobody asked for",
    means: "The provider lists a machine that no run we know of was ever on, and it is billed.",
    todo: "Find out who made it; end it if it is nobody's.",
  },
  orphan_suspected: {
    title: "A machine that may still be billed",
    means: "It was told to go and nobody has seen it go.",
    todo: "Look for it in the cloud's own console; it is billed until it is seen gone.",
  },
  ambiguous_vm: {
    title: "Two machines fit one run",
    means: "Two machines with the same host name lived while it ran, so it is linked to neither.",
    todo: "The cost of this run is not known; the machines' bills still hold.",
  },
  ambiguous_submission: {
    title: "A run that may not be ours",
    means: "A run carries the mark of one of our requests and does not fit it, or the answer to a call was lost and it cannot be proved which run came of it.",
    todo: "Compare the two. It is followed as somebody else's run; the text says which command gives the request up or ends the run.",
  },
  clock_skew: {
    title: "The provider's clock is off",
    means: "Its clock is more than two seconds off ours; its times are shifted by that much.",
    todo: "Check the time service on both ends if the figure grows.",
  },
  cost_divergence: {
    title: "A cost that does not add up",
    means: "The provider's figure cannot be explained by its own answers.",
    todo: "Open the run's cost: every part that can be explained stands there as a line.",
  },
  gpu_mismatch: {
    title: "Another GPU than was asked for",
    means: "The machine has another GPU than the task asked for.",
    todo: "Do not compare this run's measurements with others.",
  },
};

export const explained = (kind) =>
  ANOMALIES[kind] ?? {
    title: String(kind).replaceAll("_", " "),
    means: "Something that should not be.",
    todo: "Read the poll it rests on.",
  };


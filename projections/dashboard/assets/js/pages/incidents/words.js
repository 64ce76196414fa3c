// What each anomaly means and what to do about it.

export const ANOMALIES = {
  contradiction: {
    title: "Contradiction",
    means: "The provider took back an end, or says two things of one thing: a run is running, and its machine is idle.",
    todo: "A verdict follows the newest decisive answer; a machine under a running run counts as busy. Compare the polls.",
  },
  unreachable: {
    title: "Machine vanished",
    means: "The provider has not reached it for a minute or more, or ended it without having reached it again.",
    todo: "Check the cloud's console: it may still be billed. What ran on it is lost unless it was saved elsewhere.",
  },
  illegal_transition: {
    title: "State moved backwards",
    means: "A newer answer shows an earlier state than an older answer did.",
    todo: "Usually a delayed answer. No state was reverted; look at the poll if it happens often.",
  },
  schema_drift: {
    title: "Unknown value in an answer",
    means: "The answer contains a value that this version does not know. It is recorded and ignored.",
    todo: "Read the answer. If the provider was updated, update Steno and replay the record.",
  },
  orphan: {
    title: "Orphan machine",
    means: "The provider lists a machine that no known run has used, and bills it.",
    todo: "Find out who created it; stop it if nobody needs it.",
  },
  orphan_suspected: {
    title: "Machine may still be billed",
    means: "It was stopped, and no answer has confirmed that it is gone.",
    todo: "Check the cloud's console; the machine is billed until it is seen gone.",
  },
  ambiguous_vm: {
    title: "Two machines match one run",
    means: "Two machines with the same host name existed while the run was active, so it is linked to neither.",
    todo: "The cost of this run is unknown; the machines' bills are unaffected.",
  },
  ambiguous_submission: {
    title: "Run may not be ours",
    means: "A run carries the mark of one of our requests but does not match it, or the answer to a submission was lost and no run can be proved to belong to it.",
    todo: "Compare the two. Steno treats it as another user's run; the text below names the command that abandons the request or stops the run.",
  },
  clock_skew: {
    title: "The provider's clock differs",
    means: "Its clock differs from ours by more than two seconds; its times are corrected by the difference.",
    todo: "Check time synchronisation on both sides if the difference grows.",
  },
  clock_jump: {
    title: "The wall clock was set",
    means: "The clock of Steno's machine jumped while its boot time went on. Times, bills and timers follow boot time.",
    todo: "Set the clock right and keep it synchronised. Only times of events as read keep the wrong clock.",
  },
  cost_divergence: {
    title: "Unexplained cost difference",
    means: "The provider's cost does not follow from its own answers.",
    todo: "Open the run's cost: each explained part is a line there.",
  },
  new_transition: {
    title: "Move that nothing made before",
    means: "A run or machine went from one state to another as none of its provider had done in this record.",
    todo: "Usual after an update of the provider. Read the answer, and check the verdict of that run.",
  },
  gpu_idle: {
    title: "Idle GPUs",
    means: "The GPUs of a run have been idle for so long that a policy is about to stop it.",
    todo: "Read the run's output. If its GPUs work before the stop, it goes on.",
  },
  unhealthy: {
    title: "Unhealthy machine",
    means: "The provider's health check of the machine's GPUs found a warning or a failure.",
    todo: "Suspect the hardware if runs fail on it: read the machine's page at the provider, and stop it if you can spare it.",
  },
  gpu_mismatch: {
    title: "GPU mismatch",
    means: "The machine has a different GPU than the task requested.",
    todo: "Do not compare this run's measurements with those of other runs.",
  },
};

export const explained = (kind) =>
  ANOMALIES[kind] ?? {
    title: String(kind).replaceAll("_", " "),
    means: "Unexpected behaviour of the provider.",
    todo: "Read the poll it is based on.",
  };


// A record's events in one line each: kind and summary.

const SAYS = ["name", "error", "why", "reason", "detail", "intent", "kind", "ended_at"];

// The shortest summary of an event.
export function gist({ data }) {
  const parts = SAYS.map((name) => data[name]).filter((value) => typeof value === "string" && value);
  if (data.poll) parts.push(`in poll #${data.poll}`);
  if (data.submitter) parts.push(`asked for by ${data.submitter}`);
  return parts.join(", ").slice(0, 160);
}

// The stream's own page: a run's, a machine's; null where it has none.
export function streamPage(stream) {
  const cut = stream.indexOf("/");
  const [kind, id] = [stream.slice(0, cut), stream.slice(cut + 1)];
  if (kind === "run") return `/runs/${encodeURIComponent(id)}`;
  if (kind === "vm") return `/machines/${encodeURIComponent(id)}`;
  return null;
}

export const TYPES = [
  ["What the provider said", ["PollRecorded", "PollFailed", "RunObserved", "VmObserved", "ProviderEventSeen"]],
  ["What was asked for", ["RunRequested", "StopRequested", "VmStopRequested", "LeverPulled", "LeverReleased"]],
  ["What we did", [
    "SubmitIntended", "SubmitSucceeded", "SubmitFailed", "StopIntended", "StopSucceeded", "StopFailed", "FleetIntended",
    "FleetEnsured", "FleetFailed", "VmStopIntended", "VmStopSucceeded", "VmStopFailed", "IntentAbandoned",
  ]],
  ["What we decided", [
    "PolicyAdopted", "RunHeld", "RunPlaced", "RunRequeued", "VmDrainStarted", "VmDrainCancelled", "VmGoneConfirmed", "BudgetCrossed", "BudgetMoved", "RulesAdopted",
  ]],
  ["What the task said", ["TaskReported"]],
  ["Ourselves", [
    "RecorderStarted", "RecorderStopped", "AlertsAdopted", "NoticeIntended", "NoticeDelivered", "NoticeFailed", "TokenCreated", "TokenRevoked",
    "SourceHidden", "SourceShown", "RecordRestored",
  ]],
];

const MEANINGS = {
  PollRecorded: "A provider was asked and answered.",
  PollFailed: "A provider was asked and gave no usable answer.",
  RunObserved: "What one poll said about one run, where that was new.",
  VmObserved: "What one poll said about one machine, where that was new.",
  ProviderEventSeen: "An entry of the provider's own log.",
  RunRequested: "Somebody asked for a run.",
  StopRequested: "Somebody asked to stop a run.",
  VmStopRequested: "Somebody asked to stop a machine.",
  LeverPulled: "Somebody paused, drained or stopped many runs at once, or keeps a machine.",
  LeverReleased: "A lever holds nothing back from here on.",
  SubmitIntended: "We are about to hand a run to the provider.",
  SubmitSucceeded: "The provider accepted the run.",
  SubmitFailed: "The provider refused the run.",
  StopIntended: "We are about to ask the provider to stop a run.",
  StopSucceeded: "The provider accepted the stop of a run.",
  StopFailed: "The provider did not accept the stop of a run.",
  FleetIntended: "We are about to ask for a fleet.",
  FleetEnsured: "The fleet is there.",
  FleetFailed: "The fleet could not be made.",
  IntentAbandoned: "The intent was abandoned; nothing was done.",
  RecorderStarted: "Recording began.",
  RecorderStopped: "Recording ended.",
  RecordRestored: "A copy took the place of the record; what followed the common position is lost.",
  PolicyAdopted: "Decisions use these settings from here on.",
  RulesAdopted: "Answers are judged by these rules from here on.",
  RunHeld: "A run waits in Steno's queue.",
  RunPlaced: "A place was reserved for a run; without a slot the provider chooses the machine.",
  RunRequeued: "A run went back to Steno's queue.",
  VmDrainStarted: "The machine takes no further runs.",
  VmDrainCancelled: "A run came to a machine that was to be stopped; the machine stays.",
  VmStopIntended: "We are about to ask the provider to stop a machine.",
  VmStopSucceeded: "The provider accepted the stop of a machine.",
  VmStopFailed: "The provider did not accept the stop of a machine.",
  VmGoneConfirmed: "Somebody confirmed that the machine is gone.",
  BudgetCrossed: "Spending crossed a threshold of the budget.",
  BudgetMoved: "A part of one owner's budget became another's.",
  AlertsAdopted: "These kinds of news are reported from here on.",
  NoticeIntended: "A notice is about to be sent to the webhook.",
  NoticeDelivered: "The webhook accepted the notice.",
  NoticeFailed: "The webhook did not accept the notice.",
  TaskReported: "What a task said about itself in its output.",
  TokenCreated: "A token was made.",
  TokenRevoked: "A token was revoked.",
  SourceHidden: "Lists leave out an archive from here on.",
  SourceShown: "Lists show a hidden archive again.",
};

export const meaning = (type) => MEANINGS[type] ?? "";

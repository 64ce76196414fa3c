// Everything a page needs:
//
//   import { html, useState } from "../core/dom.js";
//   import { useData, about } from "../core/data.js";
//   import { Await, PageHead, Table, StateBadge, Time, Money, RunLink } from "../ui/all.js";
//   export const title = ({ id }) => `Run ${id}`;
//   export default function Page({ params }) {
//     const read = useData(`/api/runs/${params.id}`, { on: about.run(params.id) });
//     return html`<${PageHead} title=${read.data?.name ?? "Run"} /><${Await} read=${read} height="4">${(run) => html`…`}<//>`;
//   }
//
// A page holds exactly one h1 (PageHead). `[data-filter]` marks the field that `/` focuses. Commands: `post`, `del` of
// core/api.js, offered by `useMay("submit"|"admin")` and only while `useAt() === null`. Styles: every css/*.css is served
// in one file, base, shell and ui first; no style attribute in markup (the CSP forbids it), `style=${{…}}` objects are set
// through the CSSOM and are fine.
export { ArchiveMark, Glyph, StartMark, StateBadge } from "./badge.js";
export { Code, Json } from "./code.js";
export { Sheet, confirm, toast } from "./dialog.js";
export { PollLink, RunLink, SubjectLink, VmLink } from "./links.js";
export { Await, Empty, Loading, Missing, PageHead, Panel, Problem, withCode } from "./notes.js";
export { Table } from "./table.js";
export { Fresh, useSteady } from "./steady.js";
export { Tabs } from "./tabs.js";
export { tip } from "./tip.js";
export { Duration, Elapsed, Money, Time } from "./values.js";

// Submitting: a kernel for a problem, followed to its end, or any command.
import { html } from "../core/dom.js";
import { goTo, useAt } from "../core/moment.js";
import { useQuery } from "../core/router.js";
import { useMay, useSession } from "../core/session.js";
import { Empty, Loading, PageHead, Tabs } from "../ui/all.js";
import { CommandForm } from "./submit/command.js";
import { useKernelRun } from "./submit/follow.js";
import { KernelForm, useOffered } from "./submit/kernel.js";
import { Progress } from "./submit/progress.js";

export const title = () => "Submit";

const TABS = [{ key: "kernel", label: "A kernel" }, { key: "command", label: "A command" }];

export default function Page() {
  const at = useAt();
  const who = useSession();
  const may = useMay("submit");
  const [offered, unknown] = useOffered();
  if (at !== null) {
    return html`<${PageHead} title="Submit" /><section class="panel"><${Empty} title="Nothing can be submitted in the past">
      <button type="button" class="button" onClick=${() => goTo(null)}>Back to live</button><//></section>`;
  }
  if (who && !may) {
    return html`<${PageHead} title="Submit" /><section class="panel"><${Empty} title="Your role cannot submit">Your token has the role <code>${who.role}</code>;
      submitting needs the role <code>submit</code>.<//></section>`;
  }
  if (!offered && !unknown) return html`<${PageHead} title="Submit" /><${Loading} height="5" />`;
  return html`<${PageHead} title="Submit" /><${Tabs} name="what" label="What to submit" tabs=${offered?.refused ? [...TABS].reverse() : TABS}>${(tab) => (tab === "command" ? html`<${CommandForm} />` : html`<${Kernel} may=${may} offered=${offered} unknown=${unknown} />`)}<//>`;
}

function Kernel({ may, offered, unknown }) {
  const [run, setRun] = useQuery("run");
  const job = useKernelRun(run, (id) => setRun(id));
  const again = () => {
    job.forget();
    setRun(null, { replace: false });
  };
  const begun = job.view.status !== null || run !== null;
  return html`${begun && html`<${Progress} job=${job} run=${run} may=${may} onAgain=${again} />`}
    <div hidden=${begun}><${KernelForm} offered=${offered} unknown=${unknown} busy=${job.busy} error=${job.error} onSubmit=${job.submit} /></div>`;
}

// The head of a run's page: provider, name, verdict and actions.
import { html } from "../../core/dom.js";
import { Link } from "../../core/router.js";
import { called } from "../../core/words.js";
import { ArchiveMark, StateBadge } from "../../ui/all.js";

export const Head = ({ run, children }) => html`<header class="run-head">
  <div><p class="crumbs"><${Link} to="/runs">Runs<//> <span aria-hidden="true">/</span> ${run.provider}</p>
    <h1 tabindex="-1">${called(run)}</h1></div>
  <p class="run-verdict"><${StateBadge} of=${run} large /><${ArchiveMark} of=${run} /></p>
  <div class="run-actions">${children}</div>
</header>`;

// Notices to the webhook, who did what, and the tokens of the service.
import { html } from "../core/dom.js";
import { PageHead, Tabs } from "../ui/all.js";
import { Notices } from "./admin/notices.js";
import { Actions } from "./admin/actions.js";
import { Tokens } from "./admin/tokens.js";

export const title = () => "Admin";

const TABS = [{ key: "notices", label: "Notices" }, { key: "audit", label: "Who did what" }, { key: "tokens", label: "Tokens" }];
const PAGES = { notices: Notices, audit: Actions, tokens: Tokens };

export default function Page() {
  return html`<${PageHead} title="Admin" /><${Tabs} name="show" label="What to administer" tabs=${TABS}>${(tab) => html`<${PAGES[tab]} key=${tab} />`}<//>`;
}

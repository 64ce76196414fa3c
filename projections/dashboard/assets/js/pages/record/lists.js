// The record's events and its polls, newest first.
import { html } from "../../core/dom.js";
import { Link } from "../../core/router.js";
import { PageHead, Tabs } from "../../ui/all.js";
import { Events } from "./events.js";
import { Head } from "./head.js";
import { Polls } from "./polls.js";

const TABS = [{ key: "events", label: "Events" }, { key: "polls", label: "Polls" }];

export const Lists = () => html`<${PageHead} title="Record"><span class="grow"></span><${Link} class="button small" to="/cases">Cases<//><//><${Head} />
  <${Tabs} name="show" label="What to list" tabs=${TABS}>${(tab) => (tab === "polls" ? html`<${Polls} />` : html`<${Events} />`)}<//>`;

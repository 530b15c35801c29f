// The page: a header, a menu, and the parts for which there is something to show.

import { live, report, runs } from "./context.ts";
import { button, h, own, visible } from "./dom.ts";
import { scrollTo } from "./go.ts";
import { attentionPart } from "./parts/attention.ts";
import { diffPart } from "./parts/diff.ts";
import { livePart } from "./parts/live.ts";
import { masksPart } from "./parts/masks.ts";
import { modelPart } from "./parts/model.ts";
import { tensorsPart } from "./parts/tensors.ts";
import { trainingPart } from "./parts/training.ts";
import { verdictPart } from "./parts/verdict.ts";
import { label, watchSelection } from "./selection.ts";
import { on, Scope, set, state } from "./state.ts";
import type { Run } from "./types.ts";

const main = document.getElementById("parts") as HTMLElement;
const top = document.getElementById("top") as HTMLElement;
const menu = h("nav", { "aria-label": "parts of the page" });
const scope = new Scope();

/** What was read and generated, in a line a run. */
function inputOf(run: Run, index: number): HTMLElement {
  const { source, target, generated, recording } = run.trace.tokens;
  const text = (tokens: { piece: string | null; id: number; padding: boolean }[] | undefined) => {
    const shown = (tokens ?? []).filter((token) => !token.padding).map(label);
    return shown.length > 60 ? `${shown.slice(0, 60).join(" ")} … (${shown.length} tokens)` : shown.join(" ");
  };
  const said = run.generation?.text ?? run.generation?.outputs[run.row]?.hypotheses[0]?.text;
  const parts: [string, string | null | undefined][] = [
    [
      "source",
      source ? text(source[run.row]) : recording ? `a recording of ${recording.seconds.toFixed(1)} s` : null,
    ],
    [generated ? "generated" : "target", target ? text(target[run.row]) : null],
    ["as text", said],
  ];
  const facts = parts
    .filter(([, value]) => value)
    .flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, own(value as string))]);
  return h(
    "dl",
    { class: "input" },
    runs.length > 1 ? h("dt", { class: "run-number" }, `run ${index + 1}`) : null,
    runs.length > 1 ? h("dd", {}, "") : null,
    ...facts,
  );
}

function theme(): HTMLElement {
  const next = { "": "dark", dark: "light", light: "" } as const;
  const change = button("", () => set({ theme: next[state.theme] }), { class: "small" });
  on(["theme"], () => {
    if (state.theme) document.documentElement.dataset["theme"] = state.theme;
    else delete document.documentElement.dataset["theme"];
    change.textContent = `colours: ${state.theme || "as the system"}`;
  });
  return change;
}

const model = modelPart();
const verdict = verdictPart();
const others = h("div", {});
const inputs = h("div", {});

/** The parts that are about runs. */
function show(): void {
  scope.draw(() => {
    inputs.replaceChildren(...runs.map(inputOf));
    model.ofRun();
    const parts = [attentionPart(), masksPart(), tensorsPart(), leftOut()];
    others.replaceChildren(...parts.filter((part): part is HTMLElement => part !== null));
    watchSelection();
  });
  links();
}

/** What the report, and each run, does without. */
function leftOut(): HTMLElement | null {
  const all = [...(report.left_out ?? []), ...runs.flatMap((run) => run.left_out)];
  const lines = [...new Set(all.map((part) => `${part.part}: ${visible(part.why)}`))];
  return lines.length > 0
    ? h(
        "section",
        { id: "left-out" },
        h("h2", {}, "Left out"),
        h("ul", {}, ...lines.map((line) => h("li", {}, line))),
      )
    : null;
}

function links(): void {
  const sections = [...main.querySelectorAll<HTMLElement>("section")];
  menu.replaceChildren(
    ...sections.map((section) =>
      button(
        section.querySelector("h2")?.textContent ?? "",
        () => {
          set({ part: section.id });
          scrollTo(section.id);
        },
        { class: "link" },
      ),
    ),
  );
  for (const heading of main.querySelectorAll<HTMLElement>("h2")) heading.tabIndex = -1;
}

top.append(h("div", { class: "row" }, menu, theme()));
main.prepend(h("a", { class: "skip", href: "#part=model" }, "to the model"));
if (live) main.append(livePart(show));
main.append(
  inputs,
  ...[verdict, model.section, others, diffPart(), trainingPart()].filter(
    (part): part is HTMLElement => part !== null,
  ),
);
if (report.made_by)
  main.append(
    h(
      "footer",
      { class: "muted" },
      `Made by ${report.made_by}.${live ? "" : " Nothing in this page was fetched."}`,
    ),
  );
show();
document.documentElement.dataset["ready"] = "";
if (state.part) scrollTo(state.part);

// The page: a header, a menu, and the parts for which there is something to show.

import { commands, live, onVerdict, report, runs } from "./context.ts";
import { apart, button, copyButton, h, number, own, visible } from "./dom.ts";
import { scrollTo } from "./go.ts";
import { attentionPart } from "./parts/attention.ts";
import { diffPart } from "./parts/diff.ts";
import { isOfOtherRun, livePart, waitForVerdict } from "./parts/live.ts";
import { masksPart } from "./parts/masks.ts";
import { modelPart } from "./parts/model.ts";
import { tensorsPart } from "./parts/tensors.ts";
import { trainingPart } from "./parts/training.ts";
import { verdictPart, waitingPart } from "./parts/verdict.ts";
import { label, sideName, watchSelection } from "./selection.ts";
import { closeByEscape } from "./escape.ts";
import { followParts } from "./follow.ts";
import { misread, on, Scope, set, state } from "./state.ts";
import type { Commands, Run, Token } from "./types.ts";

const main = document.getElementById("parts") as HTMLElement;
const top = document.getElementById("top") as HTMLElement;
const menu = h("nav", { "aria-label": "parts of the page" });
const scope = new Scope();

/** Tokens of a line of the header; the others are in the strips of the attentions. */
const MOST = 60;

/** What was read, generated or answered, in a line a run. */
function inputOf(run: Run, index: number): HTMLElement {
  const { source, target, generated, recording } = run.trace.tokens;
  const text = (tokens: Token[] | undefined) => {
    const shown = (tokens ?? []).filter((token) => !token.padding).map(label);
    const rest = shown.length > MOST ? [` … (${shown.length} tokens)`] : [];
    return [...apart(shown.slice(0, MOST)), ...rest];
  };
  const said = run.generation?.text ?? run.generation?.outputs[run.row]?.hypotheses[0]?.text;
  const heard = recording ? [`a recording of ${recording.seconds.toFixed(1)} s`] : [];
  const [sourceText, targetText] = [run.source_text, run.target_text].map((one) => (one ? [own(one)] : []));
  const parts: [string, (Node | string)[]][] = [
    ["text", sourceText ?? []],
    [sideName("source"), source ? text(source[run.row]) : heard],
    [generated ? "generated" : sideName("target"), target ? text(target[run.row]) : []],
    ["as text", said ? [own(said)] : (targetText ?? [])],
    ["answer", answer(run)],
  ];
  const facts = parts
    .filter(([, value]) => value.length > 0)
    .flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, ...value)]);
  const title =
    runs.length > 1 ? [h("dt", { class: "run-number" }, `run ${index + 1}`), h("dd", {}, "")] : [];
  return h("dl", { class: "input" }, ...title, ...facts);
}

/** The classes of a classifier, the most probable first. */
function answer({ classes }: Run): (Node | string)[] {
  const shown = (classes ?? []).slice(0, 5).flatMap((one, i) => {
    const name = one.name ?? `class ${one.class}`;
    const share = one.probability === null ? "" : `${number(100 * one.probability, 3)} %, `;
    const words = ` (${share}logit ${number(one.score)})`;
    return [i > 0 ? ", " : "", i === 0 ? h("strong", {}, own(name)) : own(name), words];
  });
  const rest = (classes?.length ?? 0) - 5;
  return rest > 0 ? [...shown, `, and ${rest} more`] : shown;
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
const verdict = h("div", {});
const others = h("div", {});
const absent = h("div", {});
const inputs = h("div", {});

/** The parts that are about runs. */
function show(): void {
  scope.draw(() => {
    inputs.replaceChildren(...runs.map(inputOf));
    model.ofRun();
    const parts = [attentionPart(), masksPart(), tensorsPart()];
    others.replaceChildren(...parts.filter((part): part is HTMLElement => part !== null));
    watchSelection();
  });
  absent.replaceChildren(leftOut() ?? "");
  if (report.doctor) judge();
  links();
}

/** The command that shows what a page has no room for. */
const shows: Partial<Record<string, keyof Commands>> = {
  alignment: "align",
  pictures: "save",
  proofs: "masks",
  values: "save",
};

/** What the report, and each run, does without. */
function leftOut(): HTMLElement | null {
  const all = [...(report.left_out ?? []), ...runs.flatMap((run) => run.left_out)];
  const told = new Map(all.map((part) => [`${part.part}: ${visible(part.why)}`, part.part]));
  const lines = [...told].map(([words, part]) => {
    const key = shows[part];
    const line = key && commands[key];
    return [words, ...(line ? [". ", h("code", {}, own(line)), " ", copyButton(line)] : [])];
  });
  return lines.length > 0
    ? h(
        "section",
        { id: "left-out" },
        h("h2", {}, "Left out"),
        h("ul", {}, ...lines.map((line) => h("li", {}, ...line))),
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

const skip = (event: Event) => {
  event.preventDefault();
  main.focus();
};
main.tabIndex = -1;
top.prepend(h("a", { class: "skip", href: "#parts", onclick: skip }, "to the content"));
top.append(h("div", { class: "row" }, menu, theme()));
/** What a link names and the page does not know. */
const unread = h("div", { role: "status" });
const tellUnread = () =>
  unread.replaceChildren(
    ...misread(location.hash).map(({ key, value, known }) => {
      const words = known
        ? `${visible(key)} is one of ${known.join(", ")}, not ${visible(value)}.`
        : `it names ${visible(key)}, which this page does not know.`;
      return h("p", { class: "warning" }, `The address: ${words}`);
    }),
  );
addEventListener("hashchange", tellUnread);
tellUnread();
main.append(unread);
// Until the run of a link is there, none is shown.
if (isOfOtherRun()) runs.splice(0);
if (live) main.append(livePart(show));
main.append(
  inputs,
  ...[verdict, model.section, others, absent, diffPart(), trainingPart()].filter(
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
/** The doctor's part: what it says, or that it still looks at the model. */
function judge(): void {
  verdict.replaceChildren(verdictPart() ?? "");
  absent.replaceChildren(leftOut() ?? "");
  links();
}

show();
judge();
onVerdict(judge);
if (live && !report.doctor && !report.left_out?.some((part) => part.part === "doctor")) {
  const waiting = waitingPart();
  verdict.replaceChildren(waiting.section);
  links();
  void waitForVerdict(waiting.tell);
}
closeByEscape();
// Paper has all that the doctor says, the checks that found nothing included.
const folded = () => document.querySelectorAll<HTMLDetailsElement>("#verdict details:not([open])");
let unfolded: HTMLDetailsElement[] = [];
addEventListener("beforeprint", () => {
  unfolded = [...folded()];
  for (const details of unfolded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of unfolded) details.open = false;
});
document.documentElement.dataset["ready"] = "";
if (state.part) scrollTo(state.part);
followParts(main);

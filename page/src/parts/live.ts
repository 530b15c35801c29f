// What a server answers: runs of other inputs, and the arithmetic of any cell.

import { hasSource, live, report, runs, takeVerdict } from "../context.ts";
import { button, h, visible } from "../dom.ts";
import { scrollTo } from "../go.ts";
import { on, set, state } from "../state.ts";
import { sideName } from "../selection.ts";
import type { CellPage, Report, Run } from "../types.ts";

interface Given {
  source: string;
  target: string;
  audio: File | null;
}

interface Line {
  id?: string;
  queued?: number;
  progress?: { of: string; done: number; total: number };
  run?: Run;
  error?: string;
  help?: string;
}

/** What each run was asked with, so that its cells can be asked for. */
const asked = new WeakMap<Run, Given>();

/** A custom header: another site cannot send it without being asked first. */
const HEADERS = { "X-Attnscope": "1" };

async function post(
  path: string,
  given: Given,
  more: Record<string, unknown>,
  signal?: AbortSignal,
): Promise<Response> {
  if (given.audio) {
    const query = new URLSearchParams(
      Object.fromEntries(Object.entries(more).map(([k, v]) => [k, String(v)])),
    );
    if (given.target) query.set("target", given.target);
    return fetch(`${path}?${query}`, {
      method: "POST",
      headers: { ...HEADERS, "Content-Type": "application/octet-stream" },
      body: given.audio,
      signal,
    });
  }
  const body: Record<string, unknown> = { ...more };
  if (given.source) body["source"] = given.source;
  if (given.target) body["target"] = given.target;
  return fetch(path, {
    method: "POST",
    headers: { ...HEADERS, "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
}

/** The lines of an answer, as they come. */
async function* lines(response: Response): AsyncGenerator<Line> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const parts = rest.split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part.trim()) yield JSON.parse(part) as Line;
    if (done) return;
  }
}

async function ask(given: Given, tell: (text: string) => void, signal: AbortSignal): Promise<Run> {
  const response = await post("/api/v1/runs", given, {}, signal).catch((error: unknown) => {
    throw signal.aborted ? error : new Error("the server did not answer; it may have ended");
  });
  if (!response.ok) {
    const { error, help } = (await response.json().catch(() => ({}))) as Line;
    throw new Error(`${error ?? `the server answered ${response.status}`}${help ? `; ${help}` : ""}`);
  }
  for await (const line of lines(response)) {
    if (line.error) throw new Error(`${line.error}${line.help ? `; ${line.help}` : ""}`);
    if (line.queued) tell(`waiting: ${line.queued} before`);
    if (line.progress) tell(`${line.progress.of}: ${line.progress.done} of ${line.progress.total}`);
    if (line.run) {
      asked.set(line.run, given);
      return line.run;
    }
  }
  throw new Error("the server ended the answer early");
}

/** The source of the run that the page came with. */
function ownSource(): string {
  const read = report.run?.generation?.outputs[report.run.row]?.source;
  return read && "text" in read ? (read.text ?? "") : "";
}

/** The form: a source, a target, a recording; and a second source to compare. What was run stands in the address. */
export function livePart(show: () => void): HTMLElement {
  const box = (id: string, name: string, rows: number) =>
    h("label", { for: id }, name, h("textarea", { id, rows, spellcheck: "false" }));
  const audio = h("input", { type: "file", id: "audio", accept: "audio/*,.wav,.flac,.mp3" });
  const status = h("p", { role: "status", class: "muted" });
  const trouble = h("p", { role: "alert", class: "warning", hidden: true });
  let stop: AbortController | null = null;
  const cancel = button("cancel", () => stop?.abort(), { disabled: true });
  const start = button("run", () => void go(), { class: "primary" });
  const readsAudio = report.flow.nodes.some((node) => node.part === "audio");
  const hasTarget = hasSource && report.flow.nodes.some((node) => node.stack === "decoder");
  const first = sideName(hasSource ? "source" : "target");
  const recording = h("label", { for: "audio" }, "recording: wav, flac or mp3", audio);
  const field = (id: string) => form.querySelector<HTMLTextAreaElement>(`textarea#${id}`)?.value.trim() ?? "";
  const fill = (id: string, text: string) => {
    const box = form.querySelector<HTMLTextAreaElement>(`textarea#${id}`);
    if (box) box.value = text;
  };
  const fields = [
    readsAudio ? recording : box("source", first, 2),
    hasTarget ? box("target", "target (else the model generates it)", 2) : null,
    readsAudio ? null : box("second", `second ${first}, to see side by side`, 2),
  ];
  const form = h(
    "section",
    { id: "live" },
    h("h2", {}, "Input"),
    h("div", { class: "form" }, ...fields),
    h("div", { class: "row" }, start, cancel, status),
    trouble,
  );
  const refuse = (words: string) => {
    status.textContent = "";
    trouble.textContent = visible(words);
    trouble.hidden = words === "";
  };
  /** What is shown, as the address has it. */
  let shown = "";
  const asked = () => JSON.stringify([state.source, state.target, state.second, state.recording]);
  const go = async (isFromLink = false) => {
    const given = { source: field("source"), target: field("target"), audio: audio.files?.[0] ?? null };
    const second = field("second");
    refuse("");
    if (readsAudio && !given.audio) return refuse("There is no recording: choose a file.");
    if (!readsAudio && !given.source) return refuse(`The ${first} is empty: type a text.`);
    stop?.abort();
    const own = new AbortController();
    stop = own;
    const { signal } = own;
    start.disabled = true;
    cancel.disabled = false;
    const tell = (text: string) => (status.textContent = visible(text));
    tell("asking …");
    try {
      const made = [await ask(given, tell, signal)];
      if (second) made.push(await ask({ source: second, target: "", audio: null }, tell, signal));
      runs.splice(0, runs.length, ...made);
      const ran = { source: given.source, target: given.target, second, recording: given.audio?.name ?? "" };
      shown = JSON.stringify(Object.values(ran));
      // A link says what is seen of its run; another run begins anew.
      set(isFromLink ? ran : { ...ran, cell: "", src: [], tgt: [], stop: 0, zoom: "" });
      show();
      tell(
        given.audio ? "done; a link to this page has the name of the recording, not the recording" : "done",
      );
      if (isFromLink && state.part) scrollTo(state.part);
    } catch (error) {
      if (signal.aborted) tell("cancelled");
      else refuse(String(error instanceof Error ? error.message : error));
    }
    if (stop !== own) return;
    start.disabled = false;
    cancel.disabled = true;
  };
  on(["source", "target", "second", "recording"], () => {
    if (shown === asked()) return;
    shown = asked();
    fill("source", state.source || ownSource());
    fill("target", state.target);
    fill("second", state.second);
    if (state.recording)
      refuse(`The link is of a run of the recording ${state.recording}: choose that file, and run it.`);
    else if (state.source) void go(true);
  });
  return form;
}

/** Whether the address names a run that the page did not come with. */
export function isOfOtherRun(): boolean {
  return live && (state.source !== "" || state.recording !== "");
}

/** Asks for the verdict, which the server gives when the doctor is done. */
export async function waitForVerdict(tell: (words: string) => void): Promise<void> {
  try {
    const response = await fetch("/api/v1/verdict", { headers: HEADERS });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    takeVerdict((await response.json()) as Report);
  } catch {
    tell("The server ended before the doctor was done.");
  }
}

/** The page of a cell, or why there is none. */
export async function explainLive(run: Run, node: string, at: number[]): Promise<CellPage | string | null> {
  try {
    const response = await post(
      "/api/v1/explain",
      asked.get(run) ?? { source: "", target: "", audio: null },
      { node, at: at.join(",") },
    );
    const answer = (await response.json()) as { pages?: CellPage[]; error?: string; help?: string };
    if (answer.error) return `${answer.error}${answer.help ? `; ${answer.help}` : ""}`;
    return answer.pages?.[0] ?? null;
  } catch {
    return "the server did not answer; it may have ended";
  }
}

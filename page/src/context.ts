// What the page was given, and what its parts share.

import { Scope } from "./state.ts";
import type { Commands, Report, Run } from "./types.ts";

function json<T>(id: string): T {
  return JSON.parse(document.getElementById(id)?.textContent ?? "{}") as T;
}

export const report = json<Report>("data");
export const commands = json<Commands>("commands");

/** Whether a server answers questions. */
export const live = document.documentElement.hasAttribute("data-live");

/** The runs that are shown: one, or two side by side. */
export const runs: Run[] = report.run ? [report.run] : [];

/** Whether the model reads a source: a decoder alone reads a prompt. */
export const hasSource = report.flow.nodes.some((node) => node.stack === "encoder");

const listeners = new Set<() => void>();

/** Acts when the doctor's verdict arrives, which a server gives later than the page. */
export function onVerdict(act: () => void): void {
  listeners.add(act);
  Scope.atEnd(() => listeners.delete(act));
}

/** Takes what a server knows of the model once the doctor is done. */
export function takeVerdict({ doctor, badges, left_out }: Report): void {
  Object.assign(report, { doctor, badges, left_out });
  for (const act of [...listeners]) act();
}

/** A command with a node and a cell in it, or nothing where the page has none. */
export function command(template: string | undefined, node: string, at = ""): string | null {
  return template ? template.replace("{node}", () => node).replace("{at}", () => at) : null;
}

// What the page was given, and what its parts share.

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

/** A command with a node and a cell in it, or nothing where the page has none. */
export function command(template: string | undefined, node: string, at = ""): string | null {
  return template ? template.replace("{node}", () => node).replace("{at}", () => at) : null;
}

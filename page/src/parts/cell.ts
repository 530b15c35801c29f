// One cell: its arithmetic, the same lines as `explain --at` gives.

import { inflated } from "../bytes.ts";
import { command, commands, live } from "../context.ts";
import { button, copyButton, h, own, visible } from "../dom.ts";
import { set, state, on } from "../state.ts";
import type { Attention, CellPage, Run } from "../types.ts";

/** Texts that are alike: what they share is there once, what differs stands in columns. */
interface Packed {
  groups: { between: string[]; columns: string[] }[];
  places: [number, number][];
}

const packs = new WeakMap<object, Promise<Packed>>();

function unpacked({ groups, places }: Packed, at: number): string | null {
  const place = places[at];
  const group = place && groups[place[0]];
  if (!group) return null;
  const word = (column: string) => {
    const words = column.split("\n");
    return words.length === 1 ? column : words[place[1]];
  };
  return group.between.reduce((text, signs, i) => text + word(group.columns[i - 1] ?? "") + signs);
}

/** A page of an explanation: headings, sentences, formulas, tables. */
export function explained(page: CellPage): HTMLElement {
  const box = h("div", { class: "explained" }, h("h4", {}, own(page.title)));
  for (const part of page.parts) {
    if (part.heading) box.append(h("h5", {}, visible(part.heading)));
    else if (part.words) box.append(h("p", {}, visible(part.words)));
    else if (part.formula) box.append(h("p", { class: "formula" }, visible(part.formula)));
    else if (part.drawing) box.append(h("pre", {}, visible(part.drawing)));
    else if (part.facts) {
      box.append(
        h(
          "dl",
          {},
          ...Object.entries(part.facts).flatMap(([name, value]) => [
            h("dt", {}, visible(name)),
            h("dd", {}, own(value)),
          ]),
        ),
      );
    } else if (part.rows) {
      const head = h(
        "tr",
        {},
        ...(part.columns ?? []).map((column) => h("th", { scope: "col" }, visible(column))),
      );
      const rows = part.rows.map((row) =>
        h("tr", {}, ...row.map((cell, i) => h("td", { class: i > 0 ? "number" : null }, visible(cell)))),
      );
      box.append(
        h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows))),
      );
    }
  }
  return box;
}

/** What the picture shows of a cell, where that is not the number that is explained. */
type NotExplained = (head: number, query: number, key: number) => string | null;

/** The cell that is open, of one attention. */
export function showCell(run: Run, attention: Attention, notExplained: NotExplained): HTMLElement {
  const box = h("div", {
    class: "cell",
    role: "region",
    "aria-label": "arithmetic of a cell",
    "aria-live": "polite",
  });
  on(["cell"], () => void draw());
  return box;

  async function draw(): Promise<void> {
    const parts = state.cell.split(".").map(Number);
    const [head, query, key] = parts as [number, number, number];
    const isThere =
      parts.length === 3 &&
      parts.every((n) => Number.isSafeInteger(n) && n >= 0) &&
      head < attention.heads &&
      query < attention.queries &&
      key < attention.keys;
    if (state.cell && !isThere) {
      const sizes = `${attention.heads} heads, ${attention.queries} queries and ${attention.keys} keys`;
      const words = `There is no cell ${visible(state.cell)} in ${attention.path}, which has ${sizes}, counted from 0.`;
      box.replaceChildren(h("p", { class: "warning" }, words));
      return;
    }
    if (!state.cell) {
      // Links have no cells.
      const words = state.view === "links" ? "" : "Click a cell, or press Enter on it, for its arithmetic.";
      box.replaceChildren(words ? h("p", { class: "muted hint" }, words) : "");
      return;
    }
    const node = `${attention.path}.${state.show === "scores" ? "scores" : "weights"}`;
    const at = [run.row, head, query, key].join(",");
    const close = button("close", () => set({ cell: "" }), { class: "small" });
    const words = notExplained(head, query, key);
    const apart = words ? h("p", { class: "note" }, words) : "";
    const asked = state.cell;
    const shown = await pageOf(run, node, [head, query, key]);
    // Another cell may have been opened meanwhile.
    if (state.cell !== asked) return;
    if (typeof shown === "object" && shown) {
      box.replaceChildren(close, apart, explained(shown));
      return;
    }
    const line = command(commands.explain, node, at);
    box.replaceChildren(
      close,
      apart,
      h(
        "p",
        live ? { class: "warning", role: "alert" } : {},
        live
          ? `There is no arithmetic of ${node}[${at}]: ${visible(shown ?? "the server did not answer")}. Open the cell again.`
          : `The arithmetic of ${node}[${at}] is not in this page${whyNot(run, attention)}.`,
      ),
      line ? h("p", {}, "This shows it: ", h("code", {}, own(line)), " ", copyButton(line)) : "",
    );
  }
}

/** Why a file has no arithmetic of a cell. */
function whyNot(run: Run, attention: Attention): string {
  if (state.show === "scores") return ", which holds that of the weights";
  const heads = run.cells[`${attention.path}.weights`]?.shape[0] ?? 0;
  const room = "there is room for so many cells only";
  return heads > 0 && heads < attention.heads
    ? `, which holds the first ${heads} heads': ${room}`
    : `: ${room}`;
}

/** The page of a cell; why there is none, where a server says so. */
async function pageOf(
  run: Run,
  node: string,
  [head, query, key]: number[],
): Promise<CellPage | string | null> {
  const held = run.cells[node];
  if (held && (head as number) < held.shape[0]) {
    try {
      let all = packs.get(held);
      if (!all) packs.set(held, (all = inflated(held.pages) as Promise<Packed>));
      const [, queries, keys] = held.shape;
      const text = unpacked(
        await all,
        ((head as number) * queries + (query as number)) * keys + (key as number),
      );
      return text === null ? null : (JSON.parse(text) as CellPage);
    } catch {
      // A browser that cannot decompress shows the command.
      return null;
    }
  }
  if (!live) return null;
  const { explainLive } = await import("./live.ts");
  return explainLive(run, node, [run.row, head as number, query as number, key as number]);
}

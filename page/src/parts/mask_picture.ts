// The picture of one mask: cells with tokens beside them, or, where it is large, its runs. Both are exact.

import { h, isolated, s, visible } from "../dom.ts";
import { short } from "../heatmap.ts";
import { labels } from "../selection.ts";
import type { MaskRuns, Run, Side } from "../types.ts";

/** What the letters of a mask mean, and their colours. */
export const LETTERS: Record<string, [string, string]> = {
  o: ["visible", "#35b779"],
  f: ["masked: future", "#3e4a89"],
  p: ["masked: padding", "#c44600"],
  b: ["masked: future and padding", "#440154"],
  w: ["masked: outside the window", "#777777"],
  x: ["masked: outside the window, and padding", "#aa6633"],
};

const SIDES: Record<string, [Side, Side]> = {
  M_e: ["source", "source"],
  M_d: ["target", "target"],
  M_x: ["target", "source"],
};

/** Pixels along the longer side, and the most cells there that get tokens of their own. */
const [SIZE, MOST] = [360, 40];

/** A run of a row: its letter, its first query and key, and how many of each. */
export interface Rectangle {
  letter: string;
  query: number;
  key: number;
  queries: number;
  keys: number;
}

export function rectangles(mask: MaskRuns): Rectangle[] {
  const all: Rectangle[] = [];
  let query = 0;
  for (const row of mask.rows) {
    let key = 0;
    for (const [letter, keys] of row.keys) {
      all.push({ letter, query, key, queries: row.queries, keys });
      key += keys;
    }
    query += row.queries;
  }
  return all;
}

/** The name of a token, or its place where the side has no tokens. */
export function tokenName(run: Run, mask: MaskRuns, axis: 0 | 1, at: number): string {
  const side = SIDES[mask.name]?.[axis] ?? "target";
  return labels(run, side)?.[at] ?? String(at);
}

/** The drawing, and a line that says what is pointed at, where cells are too small for titles. */
export function maskPicture(
  run: Run,
  mask: MaskRuns,
  words: string,
): { svg: SVGSVGElement; told: HTMLElement | null } {
  const isLarge = Math.max(mask.queries, mask.keys) > MOST;
  const attributes = {
    class: "mask",
    role: "img",
    "aria-label": words,
    "font-size": 11,
    "font-family": "sans-serif",
  };
  return isLarge ? large(run, mask, attributes) : { svg: small(run, mask, attributes), told: null };
}

type Attributes = Parameters<typeof s>[1];

function small(run: Run, mask: MaskRuns, attributes: Attributes): SVGSVGElement {
  const each = Math.max(9, Math.min(18, Math.floor(SIZE / Math.max(1, mask.keys, mask.queries))));
  const [left, top] = [110, 84];
  const [width, height] = [left + mask.keys * each + 70, top + mask.queries * each + 8];
  const name = (axis: 0 | 1, at: number) => tokenName(run, mask, axis, at);
  const cell = (letter: string, query: number, key: number) => {
    const [words, fill] = LETTERS[letter] ?? ["", "#888"];
    const place = { x: left + key * each, y: top + query * each, width: each - 1, height: each - 1, fill };
    const ends = [name(0, query), name(1, key)].map((token) => isolated(visible(token)));
    return s("rect", place, s("title", {}, `${ends.join(" → ")}: ${words}`));
  };
  const cells = rectangles(mask).flatMap(({ letter, query, key, queries, keys }) =>
    Array.from({ length: queries * keys }, (_, i) =>
      cell(letter, query + Math.floor(i / keys), key + (i % keys)),
    ),
  );
  const [querySide, keySide] = SIDES[mask.name] ?? ["target", "target"];
  const rows = Array.from({ length: mask.queries }, (_, r) => {
    const place = { x: left - 4, y: top + (r + 0.5) * each + 4, "text-anchor": "end" };
    return s("text", { ...place, "data-side": querySide, "data-at": r }, short([name(0, r)]));
  });
  const columns = Array.from({ length: mask.keys }, (_, c) => {
    const place = { transform: `translate(${left + (c + 0.5) * each + 3} ${top - 4}) rotate(-50)` };
    return s("text", { ...place, "data-side": keySide, "data-at": c }, short([name(1, c)]));
  });
  return s(
    "svg",
    { ...attributes, width, height, viewBox: `0 0 ${width} ${height}` },
    ...rows,
    ...columns,
    ...cells,
  );
}

/** A path for each letter, in units of cells: every run is in it, and a saved picture can be enlarged to any cell. */
function large(run: Run, mask: MaskRuns, attributes: Attributes): { svg: SVGSVGElement; told: HTMLElement } {
  const runs = rectangles(mask);
  const paths = Object.entries(LETTERS).map(([letter, [words, fill]]) => {
    const own = runs.filter((one) => one.letter === letter);
    const d = own
      .map(({ query, key, queries, keys }) => `M${key} ${query}h${keys}v${queries}h${-keys}z`)
      .join("");
    return d ? s("path", { d, fill, "data-letter": letter }, s("title", {}, words)) : null;
  });
  const scale = SIZE / Math.max(mask.queries, mask.keys);
  // A mask of a few queries is not drawn as a line.
  const [width, height] = [mask.keys, mask.queries].map((cells) => Math.max(24, Math.round(cells * scale)));
  const viewBox = `0 0 ${mask.keys} ${mask.queries}`;
  const svg = s("svg", { ...attributes, width, height, viewBox, preserveAspectRatio: "none" }, ...paths);
  const told = h("p", { class: "told", role: "status" });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const place = (at: number, size: number, count: number) =>
      Math.max(0, Math.min(count - 1, Math.floor((at / Math.max(1, size)) * count)));
    const query = place(event.clientY - box.top, box.height, mask.queries);
    const key = place(event.clientX - box.left, box.width, mask.keys);
    told.textContent = sentence(run, mask, runs, query, key);
  });
  return { svg, told };
}

/** What a query sees of a key, and the whole run of keys for which that holds. */
function sentence(run: Run, mask: MaskRuns, runs: Rectangle[], query: number, key: number): string {
  const found = runs.find(
    (one) =>
      one.query <= query && query < one.query + one.queries && one.key <= key && key < one.key + one.keys,
  );
  const ends = [tokenName(run, mask, 0, query), tokenName(run, mask, 1, key)].map((token) =>
    isolated(visible(token)),
  );
  const words = LETTERS[found?.letter ?? ""]?.[0] ?? "";
  const all = found ? `, as keys ${found.key} to ${found.key + found.keys - 1}` : "";
  return `query ${query} ${ends[0]} → key ${key} ${ends[1]}: ${words}${all}`;
}

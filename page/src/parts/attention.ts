// Attention: a grid of layers and heads, and one of them enlarged, as a matrix or as links between tokens.

import { BADGES, badgesOf, badgeWords } from "../badges.ts";
import { floats, integers } from "../bytes.ts";
import { legend, maskLegend } from "../colour.ts";
import { command, commands, onVerdict, runs } from "../context.ts";
import { apart, button, choice, copyButton, counted, h, number, own, visible } from "../dom.ts";
import { type Axes, baked, Heatmap, type Label, type Options } from "../heatmap.ts";
import { has, hasHead, isLeftOut, isMasked, type Matrix, matrix, pictureOf, positionsOf } from "../matrix.ts";
import { csvButton, pictureButtons } from "../save.ts";
import { labels, sideName, tokenStrip } from "../selection.ts";
import { on, Scope, set, state } from "../state.ts";
import type { Attention, Run, Side } from "../types.ts";
import { showCell } from "./cell.ts";
import { frames } from "./audio.ts";
import { linkView, printable } from "./links.ts";

const KINDS = [
  { value: "encoder", label: "encoder", of: (a: Attention) => a.stack === "encoder" },
  {
    value: "decoder",
    label: "decoder",
    of: (a: Attention) => a.stack === "decoder" && a.kind === "self_attn",
  },
  { value: "cross", label: "cross", of: (a: Attention) => a.kind === "cross_attn" },
];

function kindOf(attention: Attention): string {
  return KINDS.find((kind) => kind.of(attention))?.value ?? "";
}

export function attentionPart(): HTMLElement | null {
  const first = runs[0];
  if (!first || first.attentions.length === 0) return null;
  const present = KINDS.filter((kind) => first.attentions.some(kind.of));
  // Cross-attention is what an encoder-decoder is about.
  const usual = present.at(-1)?.value ?? "";
  const kind = () => (present.some((p) => p.value === state.attn) ? state.attn : usual);
  const shown = () => first.attentions.filter((attention) => kindOf(attention) === kind());
  const current = () => shown().find((attention) => attention.path === state.map) ?? shown()[0];

  const grid = h("div", { class: "grid-box" });
  const large = h("div", { class: "large" });
  const scope = new Scope();
  const tools = h("div", { class: "tools" });
  const section = h("section", { id: "attention" }, h("h2", {}, "Attention"), tools, grid, large);

  const any = (of: Parameters<typeof has>[1]) => first.attentions.some((attention) => has(attention, of));
  const controls = [
    choice("which attention", present, kind, (attn) => set({ attn, map: "", cell: "", zoom: "" })),
    choice(
      "what is shown",
      [
        { value: "scores" as const, label: "scores" },
        { value: "mask" as const, label: "mask", disabled: !first.masks && first.mask_runs.length === 0 },
        { value: "weights" as const, label: "weights" },
      ],
      () => state.show,
      (show) => set({ show, measure: "attention" }),
    ),
    choice(
      "measure",
      [
        { value: "attention" as const, label: "attention" },
        {
          value: "values" as const,
          label: "‖A·V‖",
          title: "each weight times the norm of its value vector",
          disabled: !any("weighted_values"),
        },
        {
          value: "contribution" as const,
          label: "contribution",
          title: "the share of each key in the sum with the stream, all heads together (ALTI)",
          disabled: !any("contribution"),
        },
      ],
      () => state.measure,
      (measure) => set({ measure, show: "weights" }),
    ),
    choice(
      "end token",
      [
        { value: "raw" as const, label: "raw" },
        {
          value: "without" as const,
          label: "without the end token",
          disabled: !first.attentions.some((a) => a.ends.length > 0),
        },
      ],
      () => state.ends,
      (ends) => set({ ends }),
    ),
    choice(
      "scale of colours",
      [
        { value: "linear" as const, label: "linear" },
        { value: "log" as const, label: "log" },
      ],
      () => state.scale,
      (scale) => set({ scale }),
    ),
    choice(
      "view",
      [
        { value: "matrix" as const, label: "matrix" },
        { value: "links" as const, label: "links" },
      ],
      () => state.view,
      (view) => set({ view }),
    ),
  ];
  tools.append(...controls.map((control) => control.element));

  on(["attn", "map", "head", "show", "measure", "ends", "scale", "view"], () =>
    controls.forEach((control) => control.refresh()),
  );
  const press = () => {
    const attention = current();
    for (const thumbnail of grid.querySelectorAll<HTMLElement>("[data-map]")) {
      const { map, head } = thumbnail.dataset;
      const isOpen = map === attention?.path && attention !== undefined && head === shownHead(attention);
      thumbnail.setAttribute("aria-pressed", String(isOpen));
    }
  };
  const drawAll = () => {
    drawGrid(grid, first, shown());
    press();
  };
  const enlarge = () => {
    const attention = current();
    scope.draw(() =>
      large.replaceChildren(...(attention ? runs.map((run, i) => enlarged(run, attention, i)) : [])),
    );
  };
  on(["attn", "show", "measure", "ends", "scale"], drawAll);
  on(["map", "head"], press);
  on(["attn", "map", "head", "show", "measure", "ends", "scale", "view"], enlarge);
  // The doctor gives heads their badges.
  onVerdict(() => {
    drawAll();
    enlarge();
  });
  return section;
}

/** Thumbnails: a row for each layer, a column for each head. */
function drawGrid(grid: HTMLElement, run: Run, shown: Attention[]): void {
  const heads = Math.max(...shown.map((attention) => attention.heads));
  const together = pictureOf(state) === "contribution" && state.show === "weights" ? 1 : heads;
  const columns = Array.from({ length: together }, (_, head) =>
    together === 1 && heads > 1 ? "mean" : String(head),
  );
  if (together > 1) columns.push("mean", "max");
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "layer"),
    ...columns.map((c) => h("th", { scope: "col" }, columnName(c, together === 1 && heads > 1))),
  );
  const rows = shown.map((attention) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, String(attention.layer)),
      ...columns.map((c) => h("td", {}, thumbnail(run, attention, c))),
    ),
  );
  const caption = h("caption", { class: "hidden" }, "heads of every layer; press one to enlarge it");
  grid.replaceChildren(
    runs.length > 1 ? h("p", { class: "muted" }, "Thumbnails of run 1; both runs are enlarged below.") : "",
    h(
      "div",
      { class: "scroll" },
      h("table", { class: "grid" }, caption, h("thead", {}, head), h("tbody", {}, ...rows)),
    ),
  );
}

function columnName(column: string, together: boolean): string {
  if (together) return "all heads";
  return Number.isNaN(Number(column)) ? `${column} of heads` : `head ${column}`;
}

function thumbnail(run: Run, attention: Attention, head: string): HTMLElement {
  const drawn = matrix(run, attention, head, state);
  const badges = badgesOf(attention, Number(head));
  const picture = drawn ? baked(drawn, state.scale === "log") : null;
  if (picture) picture.className = "thumb";
  const measures = attention.measures[Number(head)];
  const words = [
    `${attention.path}, ${Number.isNaN(Number(head)) ? `${head} of heads` : `head ${head}`}`,
    measures?.entropy != null ? `entropy ${number(measures.entropy, 2)}` : "",
    ...badges.map(badgeWords),
  ].filter(Boolean);
  const element = h(
    "button",
    {
      type: "button",
      class: "thumbnail",
      "data-map": attention.path,
      "data-head": head,
      "aria-pressed": "false",
      title: words.join("\n"),
      "aria-label": words.join("; "),
      onclick: () => {
        // Another head of the same attention is seen as this one was.
        const zoom = state.map === attention.path ? state.zoom : "";
        set({ map: attention.path, head, attn: kindOf(attention), cell: "", zoom });
      },
    },
    picture ?? h("span", { class: "muted" }, drawn ? "no canvas" : "not held"),
    ...badges.map((badge) => h("span", { class: `badge ${badge.badge}` }, BADGES[badge.badge][0])),
  );
  return element;
}

/** The labels of so many positions from the first on. */
function positions(run: Run, side: Side, first: number, count: number, each: number): Label[] {
  const known = each === 1 ? labels(run, side) : null;
  if (known) return known.slice(first, first + count).map((token) => [token]);
  const seconds = secondsOf(run, side);
  return Array.from({ length: count }, (_, i) => {
    const at = first + i * each;
    return [seconds ? `${(at * seconds).toFixed(2)} s` : String(at)];
  });
}

/** Seconds from one position of a recording to the next; 0 of a text. */
function secondsOf(run: Run, side: Side): number {
  return run.spectrogram && side === "source" ? run.spectrogram.seconds_a_column : 0;
}

/** What stands along a side of a picture, and in what unit. */
function axisTitle(run: Run, what: string, side: Side, isOfDecoder: boolean): string {
  const unit = secondsOf(run, side)
    ? "time in the recording, s"
    : labels(run, side)
      ? `${sideName(side)} tokens${isOfDecoder ? ", each read ⇒ the next" : ""}`
      : "positions from 0";
  return `${what}: ${unit}`;
}

/** `head 3`, `mean of heads`. */
function headWords(head: string): string {
  return head === "mean" || head === "max" ? `${head} of heads` : `head ${head}`;
}

/** The head that is shown: the mean, where a link names one that the attention does not have. */
function shownHead(attention: Attention): string {
  return hasHead(attention, state.head) ? state.head : "mean";
}

/** Cells from here to there, as a reader counts them: `3` or `3–7`. */
function span(from: number, each: number, count: number): string {
  const to = Math.min(count, from + each) - 1;
  return to > from ? `${from}–${to}` : String(from);
}

/** What is drawn of a head. Of runs side by side the colours mean the same. */
function onOneScale(run: Run, attention: Attention, head: string): Matrix | null {
  const drawn = matrix(run, attention, head, state);
  if (!drawn || runs.length === 1) return drawn;
  const all = runs.flatMap((other) => {
    const same = other.attentions.find((one) => one.path === attention.path);
    const beside = same ? matrix(other, same, head, state) : null;
    return beside ? [beside] : [];
  });
  const [low, high] = [Math.min(...all.map((one) => one.low)), Math.max(...all.map((one) => one.high))];
  return { ...drawn, low, high };
}

/** One head of one run. */
function enlarged(run: Run, first: Attention, index: number): HTMLElement {
  const attention = run.attentions.find((other) => other.path === first.path);
  const head = attention ? shownHead(attention) : "mean";
  const drawn = attention ? onOneScale(run, attention, head) : null;
  if (!attention || !drawn) return h("p", { class: "warning" }, "The report does not hold this picture.");
  const what =
    state.show === "weights"
      ? { attention: "weights", values: "‖A·V‖", contribution: "contribution" }[state.measure]
      : state.show;
  const isOfAll = pictureOf(state) === "contribution" && state.show === "weights";
  const name = `${attention.path}, ${isOfAll ? "all heads" : headWords(head)}, ${what}${runs.length > 1 ? `, run ${index + 1}` : ""}`;
  const axes = {
    rows: queryLabels(run, attention, drawn),
    columns: positions(run, attention.key_side, drawn.firstKey, drawn.columns, drawn.keysAColumn),
    rowSide: drawn.queriesARow === 1 && labels(run, attention.query_side) ? attention.query_side : null,
    columnSide: drawn.keysAColumn === 1 && labels(run, attention.key_side) ? attention.key_side : null,
    rowTitle: axisTitle(run, "queries", attention.query_side, attention.query_side === "target"),
    columnTitle: axisTitle(run, "keys", attention.key_side, false),
  };
  const open = (row: number, column: number) => {
    const cell = drawn.cell(row, column);
    set({ cell: `${cell.head}.${cell.query}.${cell.key}` });
  };
  const missed = h("div", {});
  on(["src", "tgt"], () => missed.replaceChildren(...misses(run, attention, index)));
  const box = h("article", { class: "enlarged" }, h("h3", {}, own(name)), missed);
  const tokens = [...new Set([attention.query_side, attention.key_side])].map((side) =>
    tokenStrip(run, side),
  );
  box.append(...tokens.filter((strip): strip is HTMLElement => strip !== null));
  const table = () => [
    ["query", ...axes.columns.map((label) => `key ${label.join(" ⇒ ")}`)],
    ...axes.rows.map((row, r) => [
      row.join(" ⇒ "),
      ...axes.columns.map((_, c) => {
        const at = r * drawn.columns + c;
        return isLeftOut(drawn, at) ? "left out" : drawn.values[at];
      }),
    ]),
  ];
  const log = state.scale === "log";
  if (
    state.view === "links" &&
    drawn.queriesARow === 1 &&
    drawn.keysAColumn === 1 &&
    drawn.rows <= 200 &&
    drawn.columns <= 200
  ) {
    const links = linkView(name, drawn, axes.rows, axes.columns, attention);
    box.append(
      links,
      h(
        "div",
        { class: "row" },
        pictureButtons(name, () => printable(links)),
        csvButton(name, table),
      ),
    );
  } else {
    const tell = teller(attention, head, drawn, axes);
    const audio = attention.key_side === "source" ? frames(run) : null;
    const heatmap = new Heatmap(drawn, { name, axes, log, tell, open, seen: audio?.see });
    box.append(
      heatmap.element,
      h(
        "div",
        { class: "row" },
        button("+", () => heatmap.zoom(1.5), { "aria-label": "zoom in" }),
        button("−", () => heatmap.zoom(1 / 1.5), { "aria-label": "zoom out" }),
        button("whole", () => heatmap.whole()),
        pictureButtons(name, () => heatmap.svg()),
        csvButton(name, table),
      ),
    );
    if (audio) {
      audio.place(heatmap.columns);
      box.append(audio.element);
    }
  }
  box.append(
    legendOf(drawn, log),
    ...facts(run, attention, drawn, head),
    valuesTable(name, axes.rows, axes.columns, drawn),
    showCell(run, attention, (head, query, key) => notExplained(attention, drawn, head, query, key)),
  );
  return box;
}

function legendOf(drawn: Matrix, log: boolean): HTMLElement {
  if (state.show === "mask") return maskLegend();
  const masked = drawn.values.some((_, i) => isMasked(drawn, i));
  const leftOut = drawn.leftOut?.some((isOut) => isOut === 1) ?? false;
  const notFinite = drawn.values.some(
    (value, i) => !Number.isFinite(value) && !isMasked(drawn, i) && !isLeftOut(drawn, i),
  );
  return legend(drawn.low, drawn.high, log, { masked, leftOut, notFinite });
}

/** What the picture shows of a cell where that is not the number that its arithmetic explains. */
function notExplained(
  attention: Attention,
  drawn: Matrix,
  head: number,
  query: number,
  key: number,
): string | null {
  const [row, column] = [
    Math.floor((query - drawn.firstQuery) / drawn.queriesARow),
    Math.floor((key - drawn.firstKey) / drawn.keysAColumn),
  ];
  const isDrawn = 0 <= row && row < drawn.rows && 0 <= column && column < drawn.columns;
  const at = row * drawn.columns + column;
  const value = !isDrawn
    ? ""
    : isLeftOut(drawn, at)
      ? ", left out here"
      : `, ${number(drawn.values[at], 6)} here`;
  const explained = `head ${head}'s ${state.show === "scores" ? "score" : "weight after the softmax"}`;
  if (state.show === "mask") return `The picture shows the mask. Below is the arithmetic of ${explained}.`;
  const shown = [
    state.show === "scores" ? "the scores" : "",
    state.show === "weights" && state.measure === "attention" ? "the weights" : "",
    state.measure === "values" ? "‖A·V‖, the weight times the norm of its value vector" : "",
    state.measure === "contribution" ? "the contribution of the key, all heads together" : "",
  ].find(Boolean);
  const isRenormalised = state.show === "weights" && state.ends === "without" && attention.ends.length > 0;
  const isHead = state.measure !== "contribution" && shownHead(attention) === String(head);
  if (isHead && state.measure === "attention" && !isRenormalised) return null;
  const together = state.measure === "contribution" || isHead ? "" : `, ${headWords(shownHead(attention))}`;
  const without = isRenormalised ? ", renormalised without the end token" : "";
  return `The picture shows ${shown}${together}${without}${value}. Below is the arithmetic of ${explained}.`;
}

/** What a link names and the run does not have; something else is shown in its place. */
function misses(run: Run, attention: Attention, index: number): HTMLElement[] {
  const lines: string[] = [];
  if (index === 0 && state.map && !run.attentions.some((other) => other.path === state.map)) {
    lines.push(`There is no attention ${visible(state.map)} in this run: ${attention.path} is shown.`);
  }
  if (!hasHead(attention, state.head)) {
    lines.push(
      `There is no head ${visible(state.head)} in ${attention.path}, which has ${counted(attention.heads, "head")}, counted from 0: the mean of them is shown.`,
    );
  }
  for (const [side, locked] of [["source", state.src] as const, ["target", state.tgt] as const]) {
    const count = labels(run, side)?.length ?? 0;
    const missing = locked.filter((at) => at >= count);
    if (missing.length > 0) {
      const words = `There is no ${sideName(side)} token ${missing.join(", ")}`;
      lines.push(`${words}: this run has ${counted(count, "token")} there, counted from 0.`);
    }
  }
  return lines.map((line) => h("p", { class: "warning" }, line));
}

/** Says what a cell of the picture is. */
function teller(attention: Attention, head: string, drawn: Matrix, axes: Axes): Options["tell"] {
  const isReduced = drawn.queriesARow > 1 || drawn.keysAColumn > 1;
  return (row, column, value) => {
    const eightBits = drawn.exact ? "" : " (from 8 bits)";
    const at = row * drawn.columns + column;
    const word = isMasked(drawn, at)
      ? "masked"
      : isLeftOut(drawn, at)
        ? "left out"
        : state.show === "mask"
          ? "visible"
          : `${number(value, 6)}${eightBits}`;
    const ends = [...apart(axes.rows[row] ?? [], " ⇒ "), " → ", ...apart(axes.columns[column] ?? [])];
    if (!isReduced) return [...ends, `: ${word}`];
    const { query, key } = drawn.cell(row, column);
    const queries = span(drawn.firstQuery + row * drawn.queriesARow, drawn.queriesARow, attention.queries);
    const keys = span(drawn.firstKey + column * drawn.keysAColumn, drawn.keysAColumn, attention.keys);
    const which =
      state.show === "mask" || isMasked(drawn, at)
        ? ""
        : `, the largest of them, at query ${query}, key ${key}`;
    return [`queries ${queries} → keys ${keys}: ${word}${which}${largestOf(attention, head, query)}`];
  };
}

/** At each step a decoder reads a token and predicts the next: weights of a row belong to the prediction. */
function queryLabels(run: Run, attention: Attention, drawn: Matrix): Label[] {
  const plain = positions(run, attention.query_side, drawn.firstQuery, drawn.rows, drawn.queriesARow);
  if (attention.query_side !== "target" || drawn.queriesARow !== 1 || !labels(run, "target")) return plain;
  return plain.map((label, i) => [...label, ...(plain[i + 1] ?? ["…"])]);
}

const maxima = new WeakMap<Attention, { weights: Float32Array; keys: Uint32Array }>();

function largestOf(attention: Attention, head: string, query: number): string {
  const isOfWeights = state.show === "weights" && state.measure === "attention";
  if (!attention.largest || Number.isNaN(Number(head)) || !isOfWeights) return "";
  let held = maxima.get(attention);
  if (!held) {
    held = { weights: floats(attention.largest.weights), keys: integers(attention.largest.keys) };
    maxima.set(attention, held);
  }
  const at = Number(head) * attention.queries + query;
  return `; the largest weight of query ${query} is ${number(held.weights[at])}, on key ${held.keys[at]}`;
}

/** What a reader must know of the picture: what was reduced, what each head does. */
function facts(run: Run, attention: Attention, drawn: Matrix, head: string): HTMLElement[] {
  const lines: HTMLElement[] = [];
  const open = (side: Side, count: number) => {
    const [from, to] = positionsOf(run, side, count);
    return to - from;
  };
  if (drawn.queriesARow > 1 || drawn.keysAColumn > 1) {
    const cells = `${open(attention.query_side, attention.queries)} × ${open(attention.key_side, attention.keys)}`;
    lines.push(
      h(
        "p",
        { class: "note" },
        `Reduced: ${cells} cells are shown as ${drawn.rows} × ${drawn.columns}. Each is the largest of ${drawn.queriesARow} × ${drawn.keysAColumn} cells, so that no peak is lost. A click opens that one.`,
        ...allCells(attention),
      ),
    );
  }
  const cut = (side: Side, count: number) => count - open(side, count);
  const [queries, keys] = [
    cut(attention.query_side, attention.queries),
    cut(attention.key_side, attention.keys),
  ];
  if (queries + keys > 0) {
    const words = `Padding is left out: ${counted(queries, "position")} of the queries, ${counted(keys, "position")} of the keys.`;
    const share =
      attention.on_padding === null
        ? ""
        : ` ${number(100 * attention.on_padding, 3)} % of a token's weight is on it, on average over heads.`;
    lines.push(h("p", { class: "note" }, words + share));
  }
  const measures = attention.measures[Number(head)];
  if (measures && state.show === "weights" && state.measure === "attention") {
    const words = [
      measures.entropy === null ? null : `normalised entropy ${number(measures.entropy, 3)}`,
      `largest weight ${number(measures.peak, 3)} × uniform`,
      measures.end_share === null ? null : `${number(100 * measures.end_share, 3)} % on the end token`,
    ].filter(Boolean);
    lines.push(h("p", { class: "muted" }, `This head, mean over queries: ${words.join(", ")}.`));
  }
  for (const badge of badgesOf(attention, Number(head)))
    lines.push(h("p", { class: "note" }, badgeWords(badge)));
  if (pictureOf(state) === "contribution" && attention.stream_share && state.show === "weights") {
    const shares = floats(attention.stream_share);
    const mean = shares.reduce((sum, x) => sum + x, 0) / Math.max(1, shares.length);
    lines.push(
      h(
        "p",
        { class: "muted" },
        `What a row lacks to 1 is the stream's own share: ${number(100 * mean, 3)} % on average.`,
      ),
    );
  }
  const absent = run.left_out.find((part) => part.part === "contribution");
  if (absent && state.measure === "contribution") lines.push(h("p", { class: "note" }, visible(absent.why)));
  return lines;
}

/** Where the cells are that a reduced picture leaves out. */
function allCells(attention: Attention): (Node | string)[] {
  const node = `${attention.path}.${state.show === "scores" ? "scores" : "weights"}`;
  const line = command(commands.keep, node);
  return line ? [" All of them: ", h("code", {}, own(line)), " ", copyButton(line)] : [];
}

/** Cells up to which a picture has its table in the page; CSV has all of them. */
const TABLE_CELLS = 4000;

/** The table behind the picture. */
function valuesTable(name: string, rows: Label[], columns: Label[], drawn: Matrix): HTMLElement {
  const details = h("details", {}, h("summary", {}, "the values as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    if (drawn.values.length > TABLE_CELLS) {
      details.append(
        h(
          "p",
          {},
          `${drawn.values.length.toLocaleString("en")} values are too many for a table: save them as CSV.`,
        ),
      );
      return;
    }
    const cell = (r: number, c: number) => {
      const at = r * drawn.columns + c;
      return h("td", { class: "number" }, isLeftOut(drawn, at) ? "left out" : number(drawn.values[at]));
    };
    const head = h(
      "tr",
      {},
      h("th", { scope: "col" }, "query ↓, key →"),
      ...columns.map((label) => h("th", { scope: "col" }, ...apart(label, " ⇒ "))),
    );
    const lines = rows.map((label, r) =>
      h("tr", {}, h("th", { scope: "row" }, ...apart(label, " ⇒ ")), ...columns.map((_, c) => cell(r, c))),
    );
    details.append(
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": name },
        h(
          "table",
          {},
          h("caption", { class: "hidden" }, visible(name)),
          h("thead", {}, head),
          h("tbody", {}, ...lines),
        ),
      ),
    );
  });
  return details;
}

// One node: what it computes, its shape, its measures, its values.

import { floats } from "../bytes.ts";
import { command, commands, report } from "../context.ts";
import { button, copyButton, h, number, own, s, select, shape, visible } from "../dom.ts";
import { openNode } from "../go.ts";
import { csvButton, pictureButtons } from "../save.ts";
import { nodeAt, SUBLAYERS } from "../places.ts";
import type { FlowNode, Measure, Run, Stats } from "../types.ts";
import { measureWords, numberWords, operationWords, unitOf } from "../words.ts";

export function statsWords(stats: Stats | null | undefined): string {
  if (!stats) return "not measured";
  const odd = [stats.nan > 0 ? `${stats.nan} NaN` : "", stats.inf > 0 ? `${stats.inf} infinite` : ""].filter(
    Boolean,
  );
  return [
    `min ${number(stats.min)}`,
    `mean ${number(stats.mean)}`,
    `max ${number(stats.max)}`,
    `std ${number(stats.std)}`,
    ...odd,
  ].join(", ");
}

/** How the values of a tensor are spread. */
export function histogram(run: Run, path: string, width = 96, height = 24): SVGSVGElement | null {
  const held = run.histograms[path];
  if (!held) return null;
  const most = Math.max(1, ...held.counts);
  const each = width / held.counts.length;
  const bars = held.counts.map((count, i) => {
    const size = count === 0 ? 0 : Math.max(1, (count / most) * height);
    return s("rect", {
      x: i * each,
      y: height - size,
      width: Math.max(1, each - 1),
      height: size,
      fill: "#31688e",
    });
  });
  const words = `histogram of ${path} from ${number(held.low)} to ${number(held.high)}`;
  return s(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      class: "histogram",
      role: "img",
      "aria-label": words,
    },
    s("title", {}, words),
    ...bars,
  );
}

/** Everything about a node; `close` closes it. */
export function nodeDetails(run: Run | undefined, path: string, close: () => void): HTMLElement | null {
  const node = nodeAt(path);
  if (!node) return null;
  const traced = run?.trace.nodes.find((n) => n.path === path);
  // What the doctor measured of it; of an attention as a whole it measured the weights.
  const isOfIt = ({ node: of, slice }: Measure) =>
    slice === null && of !== null && (of === path || (node.step === "weights" && path === `${of}.weights`));
  const measures = report.doctor?.measures.filter(isOfIt) ?? [];
  const weights = node.weights.map((weight) =>
    h(
      "li",
      {},
      h("code", {}, own(String(weight.tensor ?? weight.name ?? weight.path ?? ""))),
      " ",
      weight.shape ? shape(weight.shape) : "",
      " ",
      weight.dtype ?? "",
      " ",
      weight.state && weight.state !== "bound" ? h("strong", {}, weight.state) : "",
    ),
  );
  const inputs = node.inputs.map((input) =>
    h(
      "li",
      {},
      button(input, () => openNode(input), { class: "link" }),
    ),
  );
  const facts: [string, Node | string][] = [
    ["what", visible(node.what)],
    ["formula", h("code", {}, own(node.formula))],
    ["operation", operationWords(node.op)],
    [
      "shape",
      `${shape(
        node.dims.map(() => null),
        node.dims,
      )} = ${shape(traced?.shape ?? node.shape, node.dims)}`,
    ],
    ["role", role(node)],
  ];
  if (traced) facts.push(["measures", statsWords(traced.stats)]);
  if (traced && traced.snapshots.length > 0) facts.push(["snapshot", traced.snapshots.join(", ")]);
  for (const measure of measures)
    facts.push([
      measureWords(measure.name),
      numberWords(measure.number, measure.threshold, unitOf(measure.name)),
    ]);
  const drawn = run ? histogram(run, path, 240, 60) : null;
  return h(
    "div",
    { class: "node" },
    h(
      "h3",
      {},
      own(path),
      " ",
      copyButton(path),
      " ",
      button("close", close, { class: "small", "aria-label": `close ${path}` }),
    ),
    h("dl", {}, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    inputs.length > 0 ? h("div", {}, h("h4", {}, "reads"), h("ul", {}, ...inputs)) : null,
    weights.length > 0 ? h("div", {}, h("h4", {}, "weights"), h("ul", {}, ...weights)) : null,
    drawn
      ? h(
          "div",
          { class: "row" },
          drawn,
          pictureButtons(`${path}-histogram`, () => drawn),
          csvButton(`${path}-histogram`, () => bins(run as Run, path)),
        )
      : null,
    run ? sliceOf(run, path) : null,
  );
}

function bins(run: Run, path: string): (string | number)[][] {
  const held = run.histograms[path];
  if (!held) return [];
  const each = (held.high - held.low) / held.counts.length;
  return [
    ["from", "to", "count"],
    ...held.counts.map((count, i) => [held.low + i * each, held.low + (i + 1) * each, count]),
  ];
}

/** Where in the model a node is, in words. */
function role({ stack, layer, part }: FlowNode): string {
  if (layer !== null) return `${SUBLAYERS[part] ?? "the stream"} of layer ${layer} of the ${stack}`;
  if (part === "entry") return `entry of the ${stack}`;
  return part === "audio" ? "audio front end" : "after the layers";
}

const ROWS = 12;

/** Values of a slice: the last two dimensions, at chosen places of the others. */
export function sliceOf(run: Run, path: string): HTMLElement {
  const held = run.values[path];
  if (!held) {
    const line = command(commands.trace, path);
    return h(
      "p",
      { class: "muted" },
      "Its values are not in this page. ",
      line ? "This shows them: " : "",
      line ? h("code", {}, own(line)) : "",
      " ",
      line ? copyButton(line) : "",
    );
  }
  const all = floats(held.values);
  const dims = held.shape.length < 2 ? [1, ...held.shape] : held.shape;
  const [rows, columns] = dims.slice(-2) as [number, number];
  const outer = dims.slice(0, -2);
  const at = outer.map(() => 0);
  const from = { row: 0, column: 0 };
  const box = h("div", { class: "slice" });
  const names = run.trace.nodes.find((n) => n.path === path)?.dims ?? [];
  const draw = () => {
    const base = at.reduce((sum, n, i) => sum * (outer[i] as number) + n, 0) * rows * columns;
    const value = (r: number, c: number) => all[base + r * columns + c] as number;
    const shownRows = Array.from({ length: Math.min(ROWS, rows - from.row) }, (_, i) => from.row + i);
    const shownColumns = Array.from(
      { length: Math.min(ROWS, columns - from.column) },
      (_, i) => from.column + i,
    );
    const choose = outer.map((length, i) =>
      select(
        names[i] ?? `dimension ${i}`,
        Array.from({ length: Math.min(length, 512) }, (_, n) => [String(n), String(n)]),
        String(at[i]),
        (n) => {
          at[i] = Number(n);
          draw();
        },
      ),
    );
    const step = (label: string, key: "row" | "column", by: number, most: number) =>
      button(
        label,
        () => {
          from[key] = Math.max(0, Math.min(most - 1, from[key] + by));
          draw();
        },
        { class: "small", disabled: by < 0 ? from[key] === 0 : from[key] + ROWS >= most },
      );
    const head = h(
      "tr",
      {},
      h("td", {}),
      ...shownColumns.map((c) => h("th", { scope: "col", class: "number" }, String(c))),
    );
    const lines = shownRows.map((r) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, String(r)),
        ...shownColumns.map((c) => h("td", { class: "number" }, number(value(r, c), 6))),
      ),
    );
    box.replaceChildren(
      h(
        "div",
        { class: "row" },
        h("strong", {}, `values ${shape(held.shape)}`),
        ...choose,
        step("↑ rows", "row", -ROWS, rows),
        step("↓ rows", "row", ROWS, rows),
        step("← columns", "column", -ROWS, columns),
        step("→ columns", "column", ROWS, columns),
        csvButton(`${path}-${at.join("-")}`, () => [
          ["row", ...Array.from({ length: columns }, (_, c) => `column ${c}`)],
          ...Array.from({ length: rows }, (_, r) => [
            r,
            ...Array.from({ length: columns }, (_, c) => value(r, c)),
          ]),
        ]),
      ),
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": `values of ${path}` },
        h("table", { class: "values" }, h("thead", {}, head), h("tbody", {}, ...lines)),
      ),
    );
  };
  draw();
  return box;
}

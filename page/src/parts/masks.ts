// Masks: what each attention may see, with tokens and reasons, and whether that was proved.

import { runs } from "../context.ts";
import { h, number, own, s, visible } from "../dom.ts";
import { openNode } from "../go.ts";
import { short } from "../heatmap.ts";
import { csvButton, pictureButtons } from "../save.ts";
import { labels } from "../selection.ts";
import { table } from "../table.ts";
import type { Mask, Proof, Run, Side } from "../types.ts";

const LETTERS: Record<string, [string, string]> = {
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

export function masksPart(): HTMLElement | null {
  if (!runs.some((run) => run.masks || run.left_out.some((part) => part.part === "masks"))) return null;
  return h("section", { id: "masks" }, h("h2", {}, "Masks"), ...runs.map(ofRun));
}

function ofRun(run: Run, index: number): HTMLElement {
  const title = runs.length > 1 ? h("h3", {}, `run ${index + 1}`) : null;
  const why = run.left_out.find((part) => part.part === "masks")?.why;
  if (!run.masks)
    return h("div", {}, title, h("p", { class: "note" }, why ? visible(why) : "The model has no attention."));
  const { masks, proofs, not_finite: broken } = run.masks;
  // Most models have no window: its signs are explained where they occur.
  const occurs = (letter: string) =>
    masks.some((mask) => mask.rows.some((rows) => rows.some((row) => row.includes(letter))));
  const used = Object.entries(LETTERS).filter(([letter]) => "ofpb".includes(letter) || occurs(letter));
  const legend = used.map(([, [words, colour]]) => h("li", {}, swatch(colour), ` ${words}`));
  return h(
    "div",
    {},
    title,
    h("ul", { class: "mask-legend" }, ...legend),
    h("div", { class: "mask-row" }, ...masks.map((mask) => drawn(run, mask))),
    h("h3", {}, "Proofs"),
    broken
      ? h(
          "p",
          { class: "warning" },
          `${broken.node} is ${broken.value} at ${broken.at.join(", ")}: no proof can be run.`,
        )
      : null,
    proofs.length > 0 ? proofTable(proofs) : null,
  );
}

function swatch(colour: string): SVGSVGElement {
  return s(
    "svg",
    { width: 12, height: 12, "aria-hidden": "true" },
    s("rect", { width: 12, height: 12, fill: colour }),
  );
}

function drawn(run: Run, mask: Mask): HTMLElement {
  const rows = mask.rows[run.row] ?? [];
  const [querySide, keySide] = SIDES[mask.name] ?? ["target", "target"];
  const columns = rows[0]?.length ?? 0;
  const name = (side: Side, i: number) => labels(run, side)?.[i] ?? String(i);
  const each = Math.max(2, Math.min(18, Math.floor(360 / Math.max(1, columns, rows.length))));
  const left = each >= 9 ? 110 : 8;
  const top = each >= 9 ? 84 : 8;
  const [width, height] = [left + columns * each + 70, top + rows.length * each + 8];
  const cells: SVGElement[] = [];
  // In a large mask equal neighbours are one rectangle.
  rows.forEach((row, r) => {
    for (let c = 0; c < row.length;) {
      let end = c;
      while (end < row.length && row[end] === row[c] && (end === c || each <= 6)) end++;
      const [words, colour] = LETTERS[row[c] as string] ?? ["", "#888"];
      const gap = each > 6 ? 1 : 0;
      cells.push(
        s(
          "rect",
          {
            x: left + c * each,
            y: top + r * each,
            width: (end - c) * each - gap,
            height: each - gap,
            fill: colour,
          },
          s(
            "title",
            {},
            `${name(querySide, r)} → ${name(keySide, c)}${end - c > 1 ? ` … ${name(keySide, end - 1)}` : ""}: ${words}`,
          ),
        ),
      );
      c = end;
    }
  });
  const texts: SVGElement[] = [];
  if (each >= 9) {
    rows.forEach((_, r) =>
      texts.push(
        s(
          "text",
          {
            x: left - 4,
            y: top + (r + 0.5) * each + 4,
            "text-anchor": "end",
            "data-side": querySide,
            "data-at": r,
          },
          short(name(querySide, r)),
        ),
      ),
    );
    for (let c = 0; c < columns; c++)
      texts.push(
        s(
          "text",
          {
            transform: `translate(${left + (c + 0.5) * each + 3} ${top - 4}) rotate(-50)`,
            "data-side": keySide,
            "data-at": c,
          },
          short(name(keySide, c)),
        ),
      );
  }
  const hidden = rows.reduce((sum, row) => sum + [...row].filter((letter) => letter !== "o").length, 0);
  const words = `${mask.name}, ${mask.attention}: ${rows.length} queries, ${columns} keys, ${hidden} of ${rows.length * columns} cells masked`;
  const svg = s(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      class: "mask",
      role: "img",
      "aria-label": words,
      "font-size": 11,
      "font-family": "sans-serif",
    },
    ...texts,
    ...cells,
  );
  const blind = mask.blind[run.row] ?? [];
  return h(
    "article",
    { class: "mask-box" },
    h("h3", {}, `${mask.name}: ${mask.attention}`),
    h("div", { class: "scroll" }, svg),
    h(
      "p",
      { class: "muted" },
      `${hidden} of ${rows.length * columns} cells masked; the same for ${mask.heads} heads, ${mask.of_layers ? `in layers ${mask.of_layers.join(", ")}` : `in all ${mask.layers} layers`}.`,
    ),
    h("ul", {}, ...mask.reasons.map((reason) => h("li", {}, visible(reason)))),
    blind.length > 0
      ? h("p", { class: "warning" }, `Queries without a visible key: ${blind.join(", ")}`)
      : null,
    h(
      "div",
      { class: "row" },
      pictureButtons(mask.name, () => printable(svg)),
      csvButton(mask.name, () => [
        ["", ...Array.from({ length: columns }, (_, c) => name(keySide, c))],
        ...rows.map((row, r) => [
          name(querySide, r),
          ...[...row].map((letter) => LETTERS[letter]?.[0] ?? letter),
        ]),
      ]),
    ),
  );
}

function printable(svg: SVGSVGElement): SVGSVGElement {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.prepend(s("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
  return copy;
}

function proofTable(proofs: Proof[]): HTMLElement {
  const leak = (proof: Proof) => {
    if (!proof.leak) return proof.why ? visible(proof.why) : "";
    const { node, cause } = proof.leak;
    return h(
      "span",
      {},
      h("button", { type: "button", class: "link", onclick: () => openNode(node) }, own(node)),
      ` ${visible(cause)}`,
    );
  };
  return table<Proof>(
    "proofs of the masks",
    [
      { title: "claim", cell: (p) => p.claim.replaceAll("_", " "), head: true },
      {
        title: "verdict",
        cell: (p) =>
          h(
            "span",
            {
              class: `pill ${{ holds: "pass", fails: "fail", not_run: "not-checked", inconclusive: "warn" }[p.verdict]}`,
            },
            p.verdict.replace("_", " "),
          ),
      },
      { title: "what was changed", cell: (p) => p.perturbed },
      { title: "what must follow", cell: (p) => p.expected },
      { title: "runs", cell: (p) => String(p.runs), numeric: true },
      { title: "largest movement", cell: (p) => number(p.movement), value: (p) => p.movement, numeric: true },
      { title: "threshold", cell: (p) => number(p.threshold), value: (p) => p.threshold, numeric: true },
      { title: "leak, or why not", cell: leak },
    ],
    proofs,
  );
}

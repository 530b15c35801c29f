// Masks: what each attention may see, with tokens and reasons, and whether that was proved.

import { runs } from "../context.ts";
import { h, number, own, s, visible } from "../dom.ts";
import { openNode } from "../go.ts";
import { masksOf } from "../matrix.ts";
import { csvButton, pictureButtons } from "../save.ts";
import { table } from "../table.ts";
import type { MaskRuns, Proof, Run } from "../types.ts";
import { LETTERS, maskPicture, rectangles, tokenName } from "./mask_picture.ts";

/** Why something of the masks is not there. */
function missing(run: Run): string | undefined {
  return run.left_out.find((part) => part.part === "masks" || part.part === "proofs")?.why;
}

export function masksPart(): HTMLElement | null {
  if (!runs.some((run) => masksOf(run).length > 0 || missing(run))) return null;
  return h("section", { id: "masks" }, h("h2", {}, "Masks"), ...runs.map(ofRun));
}

function ofRun(run: Run, index: number): HTMLElement {
  const title = runs.length > 1 ? h("h3", {}, `run ${index + 1}`) : null;
  const why = missing(run);
  const masks = masksOf(run);
  if (masks.length === 0)
    return h("div", {}, title, h("p", { class: "note" }, why ? visible(why) : "The model has no attention."));
  const broken = run.masks?.not_finite;
  const proofs = run.masks?.proofs ?? [];
  // Most models have no window: its signs are explained where they occur.
  const occurs = (letter: string) =>
    masks.some((mask) => mask.rows.some((row) => row.keys.some(([own]) => own === letter)));
  const used = Object.entries(LETTERS).filter(([letter]) => "ofpb".includes(letter) || occurs(letter));
  const legend = used.map(([, [words, colour]]) => h("li", {}, swatch(colour), ` ${words}`));
  return h(
    "div",
    {},
    title,
    h("ul", { class: "mask-legend" }, ...legend),
    h("div", { class: "mask-row" }, ...masks.map((mask) => drawn(run, mask))),
    h("h3", {}, "Proofs"),
    why ? h("p", { class: "note" }, visible(why)) : null,
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

/** In which layers a mask holds. */
function layersWords(mask: MaskRuns): string {
  if (mask.of_layers) return `in layer${mask.of_layers.length === 1 ? "" : "s"} ${mask.of_layers.join(", ")}`;
  return mask.layers === 1 ? "in the one layer" : `in all ${mask.layers} layers`;
}

function drawn(run: Run, mask: MaskRuns): HTMLElement {
  const cells = mask.queries * mask.keys;
  const hidden = rectangles(mask)
    .filter((one) => one.letter !== "o")
    .reduce((sum, one) => sum + one.queries * one.keys, 0);
  const masked = `${hidden} of ${cells} cells masked`;
  const size = `${mask.queries} queries, ${mask.keys} keys`;
  const { svg, told } = maskPicture(run, mask, `${mask.name}, ${mask.attention}: ${size}, ${masked}`);
  const heads = mask.heads === 1 ? "for the one head" : `the same for ${mask.heads} heads`;
  return h(
    "article",
    { class: "mask-box" },
    h("h3", {}, `${mask.name}: ${mask.attention}`),
    h("div", { class: "scroll" }, svg),
    told,
    h("p", { class: "muted" }, `${masked}; ${heads}, ${layersWords(mask)}.`),
    h("ul", {}, ...mask.reasons.map((reason) => h("li", {}, visible(reason)))),
    mask.blind.length > 0 ? h("p", { class: "warning" }, blindWords(mask.blind)) : null,
    h(
      "div",
      { class: "row" },
      pictureButtons(mask.name, () => printable(svg)),
      csvButton(mask.name, () => runTable(run, mask)),
    ),
  );
}

function blindWords(blind: number[]): string {
  const shown = blind.slice(0, 20).join(", ");
  return `Queries without a visible key: ${shown}${blind.length > 20 ? `, and ${blind.length - 20} more` : ""}`;
}

/** The mask as a table: a line for each run. */
function runTable(run: Run, mask: MaskRuns): (string | number)[][] {
  const name = (axis: 0 | 1, at: number) => tokenName(run, mask, axis, at);
  const lines = rectangles(mask).map(({ letter, query, key, queries, keys }) => {
    const [lastQuery, lastKey] = [query + queries - 1, key + keys - 1];
    const places = [query, name(0, query), lastQuery, key, name(1, key), lastKey, name(1, lastKey)];
    return [...places, LETTERS[letter]?.[0] ?? letter];
  });
  const head = [
    "first query",
    "its token",
    "last query",
    "first key",
    "its token",
    "last key",
    "its token",
    "what",
  ];
  return [head, ...lines];
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

// Going to a tensor from wherever it is named.

import { report, runs } from "./context.ts";
import { button } from "./dom.ts";
import { layerOf, ownerOf } from "./places.ts";
import { set } from "./state.ts";

/** Opens a node: a head of an attention in its picture, a node or a weight in the model. */
export function openNode(path: string, slice: string | null = null): void {
  const attention = runs[0]?.attentions.find(
    (a) => path === a.path || path === `${a.path}.weights` || path === `${a.path}.scores`,
  );
  const head = slice?.match(/^heads? (\d+)/)?.[1];
  if (attention) {
    const attn = attention.kind === "cross_attn" ? "cross" : attention.stack;
    const show = path === `${attention.path}.scores` ? "scores" : "weights";
    set({
      attn,
      map: attention.path,
      head: head ?? "mean",
      show,
      measure: "attention",
      cell: "",
      zoom: "",
      part: "attention",
    });
    scrollTo("attention");
    return;
  }
  // A finding may be about a weight, or about a part whose nodes begin with its path.
  const node = ownerOf(path) ?? report.flow.nodes.find((n) => n.path.startsWith(`${path}.`));
  if (node) set({ node: node.path, layer: layerOf(node.path), part: "model" });
  scrollTo("model");
}

/** A tensor that can be gone to, with a part of it. */
export function tensorLink(path: string, slice: string | null = null): HTMLElement {
  const name = `${path}${slice ? ` ${slice}` : ""}`;
  return button(name, () => openNode(path, slice), { class: "link" });
}

export function scrollTo(part: string): void {
  const section = document.getElementById(part);
  section?.scrollIntoView({ behavior: "auto", block: "start" });
  section?.querySelector<HTMLElement>("h2")?.focus({ preventScroll: true });
}

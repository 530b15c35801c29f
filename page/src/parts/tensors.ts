// Tensors: all that the run measured, found by a selector.

import { runs } from "../context.ts";
import { button, copyIcon, h, number, own, shape, visible } from "../dom.ts";
import { on, Scope, set, state } from "../state.ts";
import { table } from "../table.ts";
import type { Run, TracedNode } from "../types.ts";
import { histogram, nodeDetails } from "./node.ts";

/** Whether a selector picks a path: a glob, or parts of the path that follow each other. */
export function picks(selector: string, path: string): boolean {
  const pattern = selector.trim();
  if (pattern === "") return true;
  if (!pattern.includes("*")) return `.${path}.`.includes(`.${pattern}.`);
  const escaped = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${escaped.join(".*")}$`).test(path);
}

/** Rows that are drawn at first; a button shows the rest. */
const MOST = 120;

export function tensorsPart(): HTMLElement | null {
  if (runs.length === 0) return null;
  return h("section", { id: "tensors" }, h("h2", {}, "Tensors"), ...runs.map(ofRun));
}

function ofRun(run: Run, index: number): HTMLElement {
  const nodes = run.trace.nodes.filter((node) => node.stats !== null);
  const list = h("div", {});
  const open = h("div", { class: "details", "aria-live": "polite" });
  const count = h("span", { class: "muted", role: "status" });
  const search = h("input", {
    type: "search",
    value: state.find,
    placeholder: "decoder.*.cross_attn.weights, ffn, logits",
    "aria-label": "selector of tensors",
    spellcheck: "false",
  });
  let all = () => {};
  search.addEventListener("input", () => set({ find: search.value }));
  on(["find"], () => {
    if (search.value !== state.find) search.value = state.find;
    // What is typed need not be a whole name yet.
    const exact = nodes.filter((node) => picks(state.find, node.path));
    const found = exact.length > 0 ? exact : nodes.filter((node) => node.path.includes(state.find.trim()));
    const draw = (most: number) => {
      count.textContent = `${found.length} of ${nodes.length}${found.length > most ? `, the first ${most} are shown` : ""}`;
      list.replaceChildren(
        found.length > 0
          ? listed(run, found.slice(0, most))
          : h("p", { class: "note" }, `No tensor matches ${visible(state.find)}. * stands for anything.`),
        found.length > most ? button(`show all ${found.length}`, () => draw(found.length)) : "",
      );
    };
    draw(MOST);
    all = () => draw(found.length);
  });
  // Paper has no button that shows the rest.
  const whole = () => all();
  addEventListener("beforeprint", whole);
  Scope.atEnd(() => removeEventListener("beforeprint", whole));
  on(["tensor"], () =>
    open.replaceChildren(
      state.tensor
        ? (nodeDetails(run, state.tensor, () => set({ tensor: "" })) ?? unknown(state.tensor))
        : "",
    ),
  );
  const left = run.left_out.filter((part) => part.part === "values" || part.part === "cells");
  return h(
    "div",
    {},
    runs.length > 1 ? h("h3", {}, `run ${index + 1}`) : null,
    h("div", { class: "row" }, h("label", {}, "selector ", search), count),
    list,
    open,
    ...left.map((part) =>
      h("p", { class: "muted" }, visible(part.why.charAt(0).toUpperCase() + part.why.slice(1)), "."),
    ),
  );
}

function unknown(path: string): HTMLElement {
  return h("p", { class: "warning" }, `There is no tensor ${visible(path)} in this run.`);
}

function listed(run: Run, nodes: TracedNode[]): HTMLElement {
  const stat = (title: string, key: "min" | "mean" | "max" | "std") => ({
    title,
    cell: (node: TracedNode) => number(node.stats?.[key]),
    value: (node: TracedNode) => node.stats?.[key],
    numeric: true,
  });
  return table<TracedNode>(
    "tensors",
    [
      {
        title: "path",
        head: true,
        cell: (node) =>
          h(
            "span",
            {},
            button(node.path, () => set({ tensor: state.tensor === node.path ? "" : node.path }), {
              class: "link",
            }),
            " ",
            copyIcon(node.path),
          ),
        value: (node) => node.path,
      },
      {
        title: "shape",
        cell: (node) => h("span", { title: node.dims.join(", ") }, own(shape(node.shape, node.dims))),
      },
      { title: "values", cell: (node) => histogram(run, node.path) ?? "", value: null },
      stat("min", "min"),
      stat("mean", "mean"),
      stat("max", "max"),
      stat("std", "std"),
      {
        title: "NaN, ∞",
        cell: (node) =>
          node.stats && node.stats.nan + node.stats.inf > 0 ? `${node.stats.nan}, ${node.stats.inf}` : "",
        numeric: true,
      },
    ],
    nodes,
  );
}

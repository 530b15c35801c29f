// The model: its drawing, whose blocks open; and the walk through a run.

import { report, runs } from "../context.ts";
import { button, h, own, select, shape, visible } from "../dom.ts";
import { inLayer, layerName, layerOf, layersOf, nodeAt, ownerOf, type Target, targets } from "../places.ts";
import { pictureButtons } from "../save.ts";
import { Scope, on, set, state } from "../state.ts";
import type { FlowNode } from "../types.ts";
import { nodeDetails, statsWords } from "./node.ts";
import { stacks } from "./stacks.ts";

interface Part {
  figure: HTMLElement;
  stack: string;
  first: number;
  last: number;
  part: string;
}

/** The section, and what redraws the parts of it that are about a run. */
export function modelPart(): { section: HTMLElement; ofRun: () => void } {
  const given = document.getElementById("drawings") as HTMLElement;
  const figures = [...given.querySelectorAll<HTMLElement>("figure")];
  const parts: Part[] = figures
    .filter((figure) => figure.dataset.stack)
    .map((figure) => ({
      figure,
      stack: figure.dataset.stack ?? "",
      first: Number(figure.dataset.first),
      last: Number(figure.dataset.last),
      part: figure.dataset.part ?? "",
    }));
  const isReport = report.run !== undefined;
  const sides = isReport ? stacks() : null;
  const whole = figures.filter((figure) => !figure.dataset.stack);
  const glance = sides
    ? [
        h("figure", {}, sides),
        h("details", {}, h("summary", {}, "the same with weights, as flow draws it"), ...whole),
      ]
    : whole;
  const inside = h("div", { class: "inside", id: "inside" });
  const details = h("div", { class: "details", "aria-live": "polite" });
  const stops = h("div", {});
  const section = h(
    "section",
    { id: "model" },
    h("h2", {}, "The model"),
    given.querySelector(".legend"),
    stops,
    h(
      "div",
      { class: "drawing" },
      h("div", { class: "glance" }, ...glance, ...(isReport ? [] : parts.map((part) => part.figure))),
      h("div", {}, details, inside),
    ),
  );
  given.remove();

  const boxes = targets(parts);
  for (const figure of section.querySelectorAll("figure")) prepare(figure, boxes);
  for (const part of parts) prepare(part.figure, boxes);

  const open = (layer: string) => {
    const [stack = "", n] = layer.split(".");
    const here = isReport
      ? parts.filter((part) => part.stack === stack && part.first <= Number(n) && Number(n) <= part.last)
      : [];
    if (here.length === 0) {
      const isUnknown = layer !== "" && !layersOf(stack).includes(Number(n));
      const words = `There is no layer ${visible(layer)} in this model.`;
      inside.replaceChildren(...(isUnknown ? [h("p", { class: "warning" }, words)] : []));
      return;
    }
    const drawn = parts.filter((part) => part.stack === stack);
    const layers = layersOf(stack).filter((i) => drawn.some((part) => part.first <= i && i <= part.last));
    const choose = (next: string) => {
      const node = nodeAt(state.node);
      set({ layer: next, node: (node && inLayer(node, next)?.path) ?? "" });
    };
    inside.replaceChildren(
      h(
        "div",
        { class: "row" },
        h("h3", {}, `${layer}: its steps`),
        select(
          "layer",
          layers.map((i) => [layerName(stack, i), String(i)]),
          layer,
          choose,
        ),
        button("close", () => set({ layer: "", node: "" }), { class: "small" }),
      ),
      ...here.map((part) => part.figure),
    );
  };
  on(["layer"], () => open(state.layer));
  // With a step open, only the drawing of its part stays beside it.
  on(["layer", "node"], () => {
    const part = nodeAt(state.node)?.part;
    const isDrawn = here(inside).some((figure) => figure.dataset.part === part);
    for (const figure of here(inside)) figure.hidden = isDrawn && figure.dataset.part !== part;
  });
  const ofRun = () => {
    stops.replaceChildren(walk() ?? "");
    on(["node"], showNode);
  };
  const showNode = () => {
    details.replaceChildren(
      ...(state.node
        ? [nodeDetails(runs[0], state.node, () => set({ node: "" })) ?? unknown(state.node)]
        : [
            isReport
              ? h(
                  "p",
                  { class: "muted hint" },
                  "Click a block of the drawing to open its steps, and a step to see what it computes.",
                )
              : "",
          ]),
    );
  };
  on(["node", "layer"], () => highlight(section, boxes));
  return { section, ofRun };
}

function here(inside: HTMLElement): HTMLElement[] {
  return [...inside.querySelectorAll("figure")];
}

/** Boxes can be pressed; each picture can be saved. */
function prepare(figure: HTMLElement, boxes: Map<string, Target>): void {
  const svg = figure.querySelector("svg");
  if (!svg || figure.querySelector(".save")) return;
  // Without these it is one image to a screen reader, and its boxes are not to be reached.
  svg.setAttribute("role", "group");
  for (const box of svg.querySelectorAll<SVGGElement>(".box")) {
    const path = box.dataset.path ?? "";
    box.setAttribute("tabindex", "0");
    box.setAttribute("role", "button");
    // What is to be read in it, then its whole name.
    const words = [...box.querySelectorAll("text")].map((text) => text.textContent?.trim()).join(" ");
    box.setAttribute("aria-label", `${words}, open ${path}`);
    box.addEventListener("click", () => press(boxes.get(path)));
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press(boxes.get(path));
    });
  }
  figure.append(
    pictureButtons(
      svg.querySelector("title")?.textContent ?? "drawing",
      () => svg.cloneNode(true) as SVGSVGElement,
    ),
  );
}

/** What is said of a node that a link names and the model does not have. A weight of the walk is no node. */
function unknown(path: string): HTMLElement | string {
  return ownerOf(path)
    ? ""
    : h("p", { class: "warning" }, `There is no node ${visible(path)} in this model.`);
}

/** A stack of layers opens its first; a step opens as the node of the layer that is open. */
function press(target: Target | undefined): void {
  if (!target) return;
  if ("node" in target) {
    const path = nodeOf(target)?.path;
    if (path) set({ node: path, layer: layerOf(path) || state.layer });
    return;
  }
  const { stack, first, part } = target.layers;
  const layer = layerName(stack, first);
  if (part) {
    // The layer opens, and the part is brought into view.
    set({ layer, node: "" });
    document.querySelector(`#inside figure[data-part="${part}"]`)?.scrollIntoView({ block: "nearest" });
  } else set({ layer: state.layer === layer ? "" : layer, node: "" });
}

/** The node of a box, in the layer that is open. */
function nodeOf(target: Target) {
  if (!("node" in target)) return undefined;
  const { node, anyLayer } = target;
  return (anyLayer && inLayer(node, state.layer)) || node;
}

/** Marks the box of the open node, in every drawing. */
function highlight(section: HTMLElement, boxes: Map<string, Target>): void {
  const node = ownerOf(state.node);
  const open = layerOf(state.node) || state.layer;
  for (const box of section.querySelectorAll<SVGGElement>(".box")) {
    const target = boxes.get(box.dataset.path ?? "");
    const [holds, isOpen] = target ? marks(target, node, open) : [false, false];
    box.classList.toggle("open", holds || isOpen);
    if (isOpen) box.setAttribute("aria-current", "true");
    else box.removeAttribute("aria-current");
  }
}

/** Whether a box holds the layer that is open, and whether it is that of the open node. */
function marks(target: Target, node: FlowNode | undefined, layer: string): [boolean, boolean] {
  if ("node" in target) {
    return [false, node !== undefined && (nodeOf(target) === node || joins(target.node, node))];
  }
  const { stack, first, last, part } = target.layers;
  const [openStack, n] = layer.split(".");
  const holds = stack === openStack && first <= Number(n) && Number(n) <= last;
  return part ? [false, holds && node?.part === part] : [holds, false];
}

/** Ids, embeddings and positions are drawn as one box, which has the name of the last of them. */
function joins(box: FlowNode, node: FlowNode): boolean {
  const isEntry = box.part === "entry" && node.part === "entry" && box.stack === node.stack;
  return isEntry && box.step === "embed_pos" && node.step !== "ids";
}

/** The stops of the walk, one after the other. */
function walk(): HTMLElement | null {
  const stops = runs[0]?.trace.snapshots;
  if (!stops || stops.length === 0) return null;
  const text = h("div", { class: "stop", role: "status" });
  const go = (by: number) => {
    const at = stops.findIndex((stop) => stop.number === state.stop);
    const next =
      stops[at === -1 ? (by > 0 ? 0 : stops.length - 1) : Math.max(0, Math.min(stops.length - 1, at + by))];
    if (next) set({ stop: next.number, node: next.node, layer: layerOf(next.node) });
  };
  const bar = h(
    "div",
    { class: "walk", role: "group", "aria-label": "walk through the run", tabindex: 0 },
    button("← previous", () => go(-1)),
    button("next →", () => go(1)),
    text,
  );
  // Arrow keys walk wherever they mean nothing else.
  const keys = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const isFree = target === document.body || bar.contains(target) || target.closest("#model") !== null;
    if (
      !isFree ||
      event.ctrlKey ||
      event.altKey ||
      event.metaKey ||
      ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName) ||
      target.classList.contains("scroll")
    )
      return;
    if (event.key === "ArrowRight") go(1);
    else if (event.key === "ArrowLeft") go(-1);
    else return;
    event.preventDefault();
  };
  document.addEventListener("keydown", keys);
  Scope.atEnd(() => document.removeEventListener("keydown", keys));
  on(["stop"], () => {
    const stop = stops.find((one) => one.number === state.stop);
    text.replaceChildren(
      ...(stop
        ? [
            h("strong", {}, `${stop.number} of ${stops.length}`),
            " ",
            h("code", {}, own(stop.node)),
            ` ${visible(stop.what)} `,
            h(
              "span",
              { class: "muted" },
              stop.shape ? `${shape(stop.shape)} ${statsWords(stop.stats)}` : "the model does not have it",
            ),
          ]
        : [
            state.stop > 0 ? `There is no stop ${state.stop}. ` : "",
            `A walk of ${stops.length} stops from ids to ${report.flow.nodes.at(-1)?.path ?? "the end"}: press next, or the arrow keys.`,
          ]),
    );
  });
  return bar;
}

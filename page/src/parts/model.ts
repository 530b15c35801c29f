// The model: its drawing, whose blocks open; and the walk through a run.

import { report, runs } from "../context.ts";
import { button, h, own, select, shape, visible } from "../dom.ts";
import { layerOf } from "../go.ts";
import { pictureButtons } from "../save.ts";
import { Scope, on, set, state } from "../state.ts";
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

  for (const figure of section.querySelectorAll("figure")) prepare(figure);
  for (const part of parts) prepare(part.figure);

  const open = (layer: string) => {
    const [stack, n] = layer.split(".");
    const here = isReport
      ? parts.filter((part) => part.stack === stack && part.first <= Number(n) && Number(n) <= part.last)
      : [];
    if (here.length === 0) {
      inside.replaceChildren();
      return;
    }
    const layers = new Set(
      parts
        .filter((part) => part.stack === stack)
        .flatMap((part) => Array.from({ length: part.last - part.first + 1 }, (_, i) => part.first + i)),
    );
    inside.replaceChildren(
      h(
        "div",
        { class: "row" },
        h("h3", {}, `${layer}: its steps`),
        select(
          "layer",
          [...layers].map((i) => [`${stack}.${i}`, String(i)]),
          layer,
          (next) => set({ layer: next, node: state.node.replace(/^(encoder|decoder)\.\d+/, next) }),
        ),
        button("close", () => set({ layer: "", node: "" }), { class: "small" }),
      ),
      ...here.map((part) => part.figure),
    );
  };
  on(["layer"], () => open(state.layer));
  // With a step open, only the drawing of its part stays beside it.
  on(["layer", "node"], () => {
    const part = state.node.match(/^(?:encoder|decoder)\.\d+\.(self_attn|cross_attn|ffn)\./)?.[1];
    for (const figure of inside.querySelectorAll("figure"))
      figure.hidden = part !== undefined && figure.dataset.part !== part;
  });
  const ofRun = () => {
    stops.replaceChildren(walk() ?? "");
    on(["node"], showNode);
  };
  const showNode = () => {
    details.replaceChildren(
      ...(state.node
        ? [nodeDetails(runs[0], state.node) ?? ""]
        : [
            isReport
              ? h(
                  "p",
                  { class: "muted" },
                  "Click a block of the drawing to open its steps, and a step to see what it computes.",
                )
              : "",
          ]),
    );
  };
  on(["node", "layer"], () => highlight(section));
  return { section, ofRun };
}

/** Boxes can be pressed; each picture can be saved. */
function prepare(figure: HTMLElement): void {
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
    box.addEventListener("click", () => press(path));
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press(path);
    });
  }
  figure.append(
    pictureButtons(
      svg.querySelector("title")?.textContent ?? "drawing",
      () => svg.cloneNode(true) as SVGSVGElement,
    ),
  );
}

/** A stack of layers opens its first; a step opens as the node of the layer that is open. */
function press(path: string): void {
  const layers = path.match(/^(encoder|decoder)\.(\d+)(?:–\d+)?(?:\.(self_attn|cross_attn|ffn))?$/);
  if (layers?.[3]) {
    // A part of a layer: the layer opens, and the part is brought into view.
    set({ layer: `${layers[1]}.${layers[2]}`, node: "" });
    document.querySelector(`#inside figure[data-part="${layers[3]}"]`)?.scrollIntoView({ block: "nearest" });
    return;
  }
  if (layers) {
    const layer = `${layers[1]}.${layers[2]}`;
    set({ layer: state.layer === layer ? "" : layer, node: "" });
    return;
  }
  const own = nodeOf(path);
  if (own) set({ node: own, layer: layerOf(own) || state.layer });
}

/** `decoder.N.cross_attn.q` in the layer that is open. */
function nodeOf(path: string): string | null {
  const [stack, layer] = state.layer.split(".");
  const real = path.replace(
    /^(encoder|decoder)\.N\./,
    (_, of: string) => `${of}.${of === stack ? layer : 0}.`,
  );
  return report.flow.nodes.some((node) => node.path === real) ? real : null;
}

/** Marks the box of the open node, in every drawing. */
function highlight(section: HTMLElement): void {
  const [stack, n] = (layerOf(state.node) || state.layer).split(".");
  for (const box of section.querySelectorAll<SVGGElement>(".box")) {
    const path = box.dataset.path ?? "";
    const layers = path.match(/^(encoder|decoder)\.(\d+)(?:–(\d+))?$/);
    const holds =
      layers !== null &&
      layers[1] === stack &&
      Number(layers[2]) <= Number(n) &&
      Number(n) <= Number(layers[3] ?? layers[2]);
    const isPart =
      /^(encoder|decoder)\.\d+\.(self_attn|cross_attn|ffn)$/.test(path) && state.node.startsWith(`${path}.`);
    const isOpen = state.node !== "" && (isPart || nodeOf(path) === state.node || joins(path, state.node));
    box.classList.toggle("open", holds || isOpen);
    if (isOpen) box.setAttribute("aria-current", "true");
    else box.removeAttribute("aria-current");
  }
}

/** Ids, embeddings and positions are drawn as one box, which has the name of the last of them. */
function joins(box: string, node: string): boolean {
  return (
    /^(src|tgt)\.embed_pos$/.test(box) && node.startsWith(`${box.slice(0, 3)}.`) && !node.endsWith(".ids")
  );
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
            `A walk of ${stops.length} stops from ids to ${report.flow.nodes.at(-1)?.path ?? "the end"}: press next, or the arrow keys.`,
          ]),
    );
  });
  return bar;
}

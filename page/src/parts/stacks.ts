// The stacks side by side: the encoder at the left, the decoder at the right, and what crosses between them.

import { report } from "../context.ts";
import { s } from "../dom.ts";
import { openNode } from "../go.ts";
import { layerName, layersOf, SUBLAYERS } from "../places.ts";
import type { FlowNode } from "../types.ts";

interface Block {
  path: string;
  title: string;
  kind: string;
  /** Parts of a layer, one under the other. */
  parts: string[];
}

const [WIDTH, GAP, ROW] = [210, 130, 24];

/** The steps before the layers that are drawn. */
const ENTRIES = ["mel", "ids", "embed_pos"];

/** The blocks of one column, from the input down. */
function column(stack: "encoder" | "decoder", nodes: FlowNode[]): Block[] {
  const own = nodes.filter((node) => node.stack === stack);
  const plain =
    (kind: string) =>
    (node: FlowNode): Block => ({ path: node.path, title: node.path, kind, parts: [] });
  const isEntry = (node: FlowNode) => ["entry", "audio"].includes(node.part) && ENTRIES.includes(node.step);
  const layer = (n: number): Block => ({
    path: layerName(stack, n),
    title: layerName(stack, n),
    kind: "stack",
    parts: Object.keys(SUBLAYERS).filter((part) =>
      own.some((node) => node.layer === n && node.part === part),
    ),
  });
  return [
    ...own.filter(isEntry).map((node) => plain(node.step === "embed_pos" ? "embedding" : "input")(node)),
    ...layersOf(stack).map(layer),
    ...own.filter((node) => node.part === "out").map(plain("stream")),
  ];
}

/** The drawing; nothing for a model that has not both stacks. */
export function stacks(): SVGSVGElement | null {
  const nodes = report.flow.nodes;
  const left = column("encoder", nodes);
  const right = column("decoder", nodes);
  if (!left.some((block) => block.kind === "stack") || !right.some((block) => block.kind === "stack"))
    return null;
  for (const { path } of nodes.filter((node) => node.part === "logits")) {
    right.push({ path, title: path, kind: "output", parts: [] });
  }
  const height = (block: Block) => ROW * (1 + block.parts.length) + 8;
  const tall = (blocks: Block[]) => blocks.reduce((sum, block) => sum + height(block) + 18, 20);
  const down = Math.max(tall(left), tall(right));
  const width = 2 * WIDTH + GAP + 20;
  const drawn: SVGElement[] = [];
  const lines: SVGElement[] = [];
  const places = new Map<string, number>();
  for (const [blocks, x] of [
    [left, 10],
    [right, 10 + WIDTH + GAP],
  ] as const) {
    let y = 20;
    blocks.forEach((block, i) => {
      const size = height(block);
      if (i > 0)
        lines.push(
          s("path", { d: `M${x + WIDTH / 2} ${y - 18}V${y - 1}`, "marker-end": "url(#stacks-head)" }),
        );
      drawn.push(box(block, x, y, size));
      block.parts.forEach((part, n) => places.set(`${block.path}.${part}`, y + 4 + ROW * (n + 1) + ROW / 2));
      places.set(block.path, y + size / 2);
      y += size + 18;
    });
  }
  const from = places.get(left.at(-1)?.path ?? "") ?? 0;
  for (const block of right) {
    const to = places.get(`${block.path}.cross_attn`);
    if (to === undefined) continue;
    const [x0, x1] = [10 + WIDTH, 10 + WIDTH + GAP];
    const d = `M${x0} ${from}C${x0 + 70} ${from} ${x1 - 70} ${to} ${x1 + 6} ${to}`;
    const path = `${block.path}.cross_attn`;
    const open = () => openNode(`${path}.weights`);
    const byKey = (event: Event) => {
      if (!["Enter", " "].includes((event as KeyboardEvent).key)) return;
      event.preventDefault();
      open();
    };
    const label = `cross-attention from the encoder, open ${path}`;
    lines.push(
      s(
        "g",
        {
          class: "crossing",
          "data-edge": path,
          tabindex: 0,
          role: "button",
          "aria-label": label,
          onclick: open,
          onkeydown: byKey,
        },
        s("title", {}, label),
        // A line is hard to hit: a wide one that is not seen lies on it.
        s("path", { d, stroke: "transparent", "stroke-width": 12, "pointer-events": "stroke" }),
        s("path", { d, "marker-end": "url(#stacks-head)" }),
      ),
    );
  }
  return s(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      class: "attnscope stacks",
      width,
      height: down,
      viewBox: `0 0 ${width} ${down}`,
      "font-family": "Helvetica, Arial, sans-serif",
      "font-size": 13,
    },
    s("title", {}, "encoder (left) and decoder (right)"),
    s(
      "defs",
      {},
      s(
        "marker",
        {
          id: "stacks-head",
          viewBox: "0 0 10 10",
          refX: 9,
          refY: 5,
          markerWidth: 8,
          markerHeight: 8,
          markerUnits: "userSpaceOnUse",
          orient: "auto",
        },
        s("path", { class: "head", d: "M0 1 10 5 0 9z", fill: "#555555" }),
      ),
    ),
    s("rect", { class: "page", width, height: down, fill: "#ffffff" }),
    s("g", { class: "arrows", fill: "none", stroke: "#555555", "stroke-width": 1.3 }, ...lines),
    s(
      "text",
      {
        class: "muted",
        x: 10 + WIDTH + GAP / 2,
        y: from - 8,
        "text-anchor": "middle",
        fill: "#5c5c5c",
        "font-size": 11,
      },
      "k, v",
    ),
    ...drawn,
  );
}

const FILLS: Record<string, [string, string]> = {
  stack: ["#dfe8f3", "#1f4e79"],
  embedding: ["#e3f0fa", "#2f7fb8"],
  stream: ["#e2f3ed", "#00825f"],
  input: ["#ffffff", "#404040"],
  output: ["#ffffff", "#404040"],
};

function box(block: Block, x: number, y: number, size: number): SVGElement {
  const [fill, stroke] = FILLS[block.kind] ?? ["#ffffff", "#404040"];
  const part = (name: string, n: number) =>
    s(
      "g",
      { class: "box attention", "data-path": `${block.path}.${name}` },
      s("rect", {
        x: x + 6,
        y: y + 4 + ROW * (n + 1),
        width: WIDTH - 12,
        height: ROW - 4,
        rx: 3,
        fill: "#ffffff",
        stroke,
        "stroke-width": 0.8,
      }),
      s(
        "text",
        { class: "ink", x: x + 14, y: y + 4 + ROW * (n + 1) + 14, fill: "#1a1a1a", "font-size": 12 },
        SUBLAYERS[name] ?? name,
      ),
    );
  return s(
    "g",
    {},
    s(
      "g",
      { class: `box ${block.kind}`, "data-path": block.path },
      s("rect", { x, y, width: WIDTH, height: size, rx: 5, fill, stroke, "stroke-width": 1.2 }),
      s("text", { class: "ink", x: x + 10, y: y + 18, fill: "#1a1a1a", "font-weight": 600 }, block.title),
    ),
    ...block.parts.map(part),
  );
}

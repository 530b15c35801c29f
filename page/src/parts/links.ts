// An attention as links between tokens: a line for each weight that matters.

import { css } from "../colour.ts";
import { h, s } from "../dom.ts";
import { type Label, short } from "../heatmap.ts";
import { type Matrix, tone } from "../matrix.ts";
import { hover, lock, onSelection, selected } from "../selection.ts";
import { state } from "../state.ts";
import type { Attention, Side } from "../types.ts";

/** The most lines that are drawn where nothing is selected: the strongest. */
const MOST_LINKS = 300;

/** Queries at the left, keys at the right, a line for each weight that matters. */
export function linkView(
  name: string,
  drawn: Matrix,
  rows: Label[],
  columns: Label[],
  attention: Attention,
): HTMLElement {
  const row = 22;
  const height = Math.max(rows.length, columns.length) * row + 16;
  const [left, right, width] = [190, 430, 620];
  const lines = s("g", { fill: "none" });
  const y = (i: number) => 16 + i * row;
  const token = (label: Label, i: number, first: number, side: Side, x: number, anchor: string) => {
    const at = first + i;
    return s(
      "text",
      {
        x,
        y: y(i) + 4,
        "text-anchor": anchor,
        "data-side": side,
        "data-at": at,
        class: "link-token",
        onpointerenter: () => hover({ side, at }),
        onpointerleave: () => hover(null),
        onclick: () => lock(side, at),
      },
      short(label),
    );
  };
  const svg = s(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      class: "links",
      role: "img",
      "aria-label": `${name}: links from queries (left) to keys (right); the table below has the values`,
    },
    lines,
    ...rows.map((text, i) => token(text, i, drawn.firstQuery, attention.query_side, left - 6, "end")),
    ...columns.map((text, i) => token(text, i, drawn.firstKey, attention.key_side, right + 6, "start")),
  );
  const draw = () => {
    const sameSide = attention.query_side === attention.key_side;
    const queries = selected(attention.query_side);
    const keys = sameSide ? [] : selected(attention.key_side);
    const links: { r: number; c: number; at: number }[] = [];
    for (let r = 0; r < drawn.rows; r++) {
      for (let c = 0; c < drawn.columns; c++) {
        const isWanted =
          queries.length + keys.length === 0 ||
          queries.includes(drawn.firstQuery + r) ||
          keys.includes(drawn.firstKey + c);
        const at = isWanted
          ? tone(drawn.values[r * drawn.columns + c] as number, drawn, state.scale === "log")
          : NaN;
        if (at > 0.02) links.push({ r, c, at });
      }
    }
    links.sort((a, b) => b.at - a.at);
    const line = ({ r, c, at }: { r: number; c: number; at: number }) =>
      s("path", {
        d: `M${left} ${y(r)}C${left + 90} ${y(r)} ${right - 90} ${y(c)} ${right} ${y(c)}`,
        stroke: css(0.25 + 0.35 * at),
        "stroke-width": 0.5 + 3.5 * at,
        "stroke-opacity": 0.15 + 0.85 * at,
      });
    lines.replaceChildren(...links.slice(0, MOST_LINKS).map(line));
  };
  draw();
  onSelection(draw);
  return h("div", { class: "scroll" }, svg);
}

/** The drawing as a picture of its own. */
export function printable(box: HTMLElement): SVGSVGElement | null {
  const svg = box.querySelector("svg")?.cloneNode(true) as SVGSVGElement | undefined;
  svg?.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  svg?.setAttribute("font-family", "sans-serif");
  svg?.setAttribute("font-size", "13");
  svg?.prepend(s("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
  return svg ?? null;
}

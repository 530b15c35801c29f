// Lines over steps, or over nodes.

import { counted, h, number, s, visible } from "./dom.ts";
import { csvButton, pictureButtons } from "./save.ts";

export interface Line {
  name: string;
  points: [number, number][];
  colour: string;
  dash?: string;
}

export const COLOURS = [
  "#0072b2",
  "#d55e00",
  "#009e73",
  "#cc79a7",
  "#e69f00",
  "#56b4e9",
  "#5c5c5c",
  "#8a6d00",
];

/** Dots that are drawn of a line. */
const MOST_DOTS = 2000;

/** The least and the largest; a call of `Math.min` with a hundred thousand values would fail. */
function range(values: number[]): [number, number] {
  return values.reduce<[number, number]>(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
    [Infinity, -Infinity],
  );
}

export function chart(
  name: string,
  lines: Line[],
  options: { log?: boolean; xTitle: string; yTitle: string },
): HTMLElement {
  const [width, height, left, bottom] = [640, 240, 62, 34];
  const usable = lines
    .map((line) => ({
      ...line,
      points: line.points.filter(
        ([x, y]) => Number.isFinite(x) && Number.isFinite(y) && (!options.log || y >= 0),
      ),
    }))
    .filter((line) => line.points.length > 0);
  const all = usable.flatMap((line) => line.points);
  if (all.length === 0) return h("p", { class: "muted" }, `${name}: nothing was measured.`);
  const [x0, x1] = range(all.map(([x]) => x));
  const isZero = ([, y]: [number, number]) => options.log === true && y === 0;
  const zeros = all.filter(isZero).length;
  const log = (y: number) => (options.log ? Math.log10(y) : y);
  let [y0, y1] = range(all.filter((point) => !isZero(point)).map(([, y]) => log(y)));
  if (zeros === all.length) [y0, y1] = [0, 0];
  if (y0 === y1) [y0, y1] = [y0 - 0.5, y1 + 0.5];
  // A logarithm has no place for 0: it has a line of its own under the axis.
  const lowest = y0;
  if (zeros > 0) y0 -= (y1 - y0) / 5;
  const up = (y: number) => (options.log && y === 0 ? y0 : log(y));
  const px = (x: number) => left + ((x - x0) / Math.max(1e-12, x1 - x0)) * (width - left - 12);
  const py = (y: number) => 10 + (1 - (up(y) - y0) / (y1 - y0)) * (height - bottom - 10);
  const gridLine = (y: number) => {
    const at = py(y);
    return [
      s("line", { x1: left, x2: width - 12, y1: at, y2: at, stroke: "#8886", "stroke-width": 0.6 }),
      s("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, number(y, 3)),
    ];
  };
  const marks = [0, 1, 2, 3, 4].map((i) => lowest + ((y1 - lowest) * i) / 4);
  const grid = [...marks.map((y) => (options.log ? 10 ** y : y)), ...(zeros > 0 ? [0] : [])];
  const drawn = usable.flatMap((line) => {
    const d = line.points
      .map(([x, y], i) => `${i === 0 ? "M" : "L"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`)
      .join("");
    const dotted = line.points.length <= 60 ? line.points : line.points.filter(isZero);
    const dots = dotted
      .slice(0, MOST_DOTS)
      .map(([x, y]) =>
        s(
          "circle",
          { cx: px(x), cy: py(y), r: 2, fill: line.colour, class: y === 0 ? "zero" : null },
          s("title", {}, `${visible(line.name)}: ${number(y)} at ${number(x)}`),
        ),
      );
    return [
      s("path", { d, fill: "none", stroke: line.colour, "stroke-width": 1.8, "stroke-dasharray": line.dash }),
      ...dots,
    ];
  });
  const svg = s(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      class: "chart",
      role: "img",
      "aria-label": `${name}: ${usable
        .map(
          (line) => `${line.name} from ${number(line.points[0]?.[1])} to ${number(line.points.at(-1)?.[1])}`,
        )
        .slice(0, 6)
        .join("; ")}`,
      "font-family": "sans-serif",
      "font-size": 11,
    },
    ...grid.flatMap(gridLine),
    s("text", { x: left, y: height - 16 }, number(x0)),
    s("text", { x: width - 12, y: height - 16, "text-anchor": "end" }, number(x1)),
    s("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, options.xTitle),
    ...drawn,
  );
  const key = usable.map((line) =>
    h(
      "li",
      {},
      s(
        "svg",
        { width: 22, height: 8, "aria-hidden": "true" },
        s("line", {
          x1: 0,
          x2: 22,
          y1: 4,
          y2: 4,
          stroke: line.colour,
          "stroke-width": 2.5,
          "stroke-dasharray": line.dash,
        }),
      ),
      " ",
      visible(line.name),
    ),
  );
  const rows = () => [
    [options.xTitle, "line", options.yTitle],
    ...usable.flatMap((line) => line.points.map(([x, y]) => [x, line.name, y])),
  ];
  return h(
    "figure",
    { class: "chart-box" },
    h(
      "figcaption",
      {},
      `${name}${options.log ? " (log)" : ""}${zeros > 0 ? `; the lowest line is 0: ${counted(zeros, "point")}` : ""}`,
    ),
    h("div", { class: "scroll" }, svg),
    h("ul", { class: "key" }, ...key),
    h(
      "div",
      { class: "row" },
      pictureButtons(name, () => svg),
      csvButton(name, rows),
    ),
  );
}

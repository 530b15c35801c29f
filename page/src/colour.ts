// Colours that people with any colour vision can tell apart, and that get steadily lighter.

import { h, number } from "./dom.ts";
import { logFloor } from "./matrix.ts";

/** Points of viridis, evenly spaced. */
const POINTS = [
  0x440154, 0x482878, 0x3e4a89, 0x31688e, 0x26828e, 0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b, 0xfde725,
];

/** 256 colours as they lie in an image's memory: alpha, blue, green, red from high to low bytes. */
export const MAP = new Uint32Array(256);
for (let i = 0; i < 256; i++) {
  const at = (i / 255) * (POINTS.length - 1);
  const from = Math.min(Math.floor(at), POINTS.length - 2);
  const [a, b] = [POINTS[from] as number, POINTS[from + 1] as number];
  const part = (shift: number) =>
    Math.round(((a >> shift) & 255) + (((b >> shift) & 255) - ((a >> shift) & 255)) * (at - from));
  MAP[i] = (255 << 24) | (part(0) << 16) | (part(8) << 8) | part(16);
}

/** A cell that a mask hides: no colour of the map. */
export const MASKED = (255 << 24) | (0xd0 << 16) | (0xd0 << 8) | 0xd0;
/** A cell that a reader left out. */
export const LEFT_OUT = (255 << 24) | (0x6b << 16) | (0x6b << 8) | 0x6b;
/** A cell that has no finite value. */
export const NOT_FINITE = (255 << 24) | (0x80 << 16) | (0x7f << 8) | 0xd9;

export function css(step: number): string {
  const c = MAP[Math.max(0, Math.min(255, Math.round(step * 255)))] as number;
  return `rgb(${c & 255} ${(c >> 8) & 255} ${(c >> 16) & 255})`;
}

/** What a picture has besides its colours. */
export interface Apart {
  masked: boolean;
  leftOut: boolean;
  notFinite: boolean;
}

/** The ends of the colours, and on a logarithmic scale what lies below and between them. */
export function endsOf(
  low: number,
  high: number,
  log: boolean,
): { least: string; most: string; how: string } {
  const least = log && low >= 0 && high > 0 ? `≤ ${number(logFloor({ low, high }))}` : number(low);
  const how = !log
    ? ""
    : low < 0
      ? "log of 1 + the distance from the least"
      : "log, down to 1/10,000 of the largest";
  return { least, most: number(high), how };
}

/** The legend of a picture: its colours from the least to the largest value, and what has none. */
export function legend(low: number, high: number, log: boolean, apart: Apart): HTMLElement {
  const bar = h("canvas", { width: 256, height: 1, class: "legend-bar", "aria-hidden": "true" });
  const context = bar.getContext("2d");
  if (context) {
    const image = context.createImageData(256, 1);
    new Uint32Array(image.data.buffer).set(MAP);
    context.putImageData(image, 0, 0);
  }
  const others = [
    apart.masked ? { class: "swatch masked", words: "masked" } : null,
    apart.leftOut ? { class: "swatch left-out", words: "left out" } : null,
    apart.notFinite ? { class: "swatch not-finite", words: "not finite" } : null,
  ].filter((other) => other !== null);
  const { least, most, how } = endsOf(low, high, log);
  const words = `from ${least} (dark) to ${most} (light)${how ? `, ${how}` : ""}`;
  const spoken = [words, ...others.map((other) => `apart from them: ${other.words}`)].join("; ");
  return h(
    "div",
    { class: "colour-legend", role: "img", "aria-label": `colours: ${spoken}` },
    h("span", {}, least),
    bar,
    h("span", {}, most),
    how ? h("span", { class: "muted" }, how) : null,
    ...others.flatMap((other) => [
      h("span", { class: other.class }),
      h("span", { class: "muted" }, other.words),
    ]),
  );
}

/** The legend of a mask. */
export function maskLegend(): HTMLElement {
  const visible = h("span", { class: "swatch visible" });
  return h(
    "div",
    { class: "colour-legend" },
    visible,
    h("span", { class: "muted" }, "visible"),
    h("span", { class: "swatch masked" }),
    h("span", { class: "muted" }, "masked"),
  );
}

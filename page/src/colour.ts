// Colours that people with any colour vision can tell apart, and that get steadily lighter.

import { h, number } from "./dom.ts";

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

/** A cell without a finite value, and one that a mask hides. */
export const NOT_FINITE = (255 << 24) | (0xb0 << 16) | (0xb0 << 8) | 0xb0;

export function css(step: number): string {
  const c = MAP[Math.max(0, Math.min(255, Math.round(step * 255)))] as number;
  return `rgb(${c & 255} ${(c >> 8) & 255} ${(c >> 16) & 255})`;
}

/** The legend of a picture: its colours from the least to the largest value. */
export function legend(low: number, high: number, log: boolean): HTMLElement {
  const bar = h("canvas", { width: 256, height: 1, class: "legend-bar", "aria-hidden": "true" });
  const context = bar.getContext("2d");
  if (context) {
    const image = context.createImageData(256, 1);
    new Uint32Array(image.data.buffer).set(MAP);
    context.putImageData(image, 0, 0);
  }
  const words = `from ${number(low)} (dark) to ${number(high)} (light)${log ? ", on a logarithmic scale" : ""}`;
  return h(
    "div",
    { class: "colour-legend", role: "img", "aria-label": `colours: ${words}` },
    h("span", {}, number(low)),
    bar,
    h("span", {}, number(high)),
    log ? h("span", { class: "muted" }, "log") : null,
    h("span", { class: "swatch" }),
    h("span", { class: "muted" }, "masked or not finite"),
  );
}

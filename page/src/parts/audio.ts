// Audio: the spectrogram under the frames, and the words above it at their times.

import { bytes } from "../bytes.ts";
import { legend, MAP } from "../colour.ts";
import { h, number, s, visible } from "../dom.ts";
import { csvButton, pictureButtons } from "../save.ts";
import { ticks } from "../ticks.ts";
import type { Run, TimedWord } from "../types.ts";

/** Pixels of a line of words, of the spectrogram, and about those of a letter. */
const [LINE, HEIGHT, LETTER] = [16, 90, 6.4];

export interface Frames {
  element: HTMLElement;
  /** Puts it under the columns of a picture. */
  place: (columns: { left: number; width: number }) => void;
  /** Shows the part of the recording that is in view above, from 0 to 1. */
  see: (from: number, to: number) => void;
}

export function frames(run: Run): Frames | null {
  const picture = run.spectrogram;
  if (!picture) return null;
  const { mels, columns, seconds_a_column: each } = picture;
  const seconds = columns * each;
  // Of a long recording the picture shows the first window, and the words are those of all.
  const words = (run.generation?.outputs.flatMap((output) => output.words ?? []) ?? []).filter(
    (word) => word.start < seconds,
  );
  const canvas = h("canvas", {
    width: columns,
    height: mels,
    class: "spectrogram",
    role: "img",
    "aria-label": `log-mel spectrogram of ${number(seconds)} seconds, ${mels} bands, low ones at the bottom`,
  });
  draw(canvas, picture);
  const strip = h("div", { class: "strip-of-words", "aria-hidden": "true" });
  const times = h("div", { class: "times muted", "aria-hidden": "true" });
  const inner = h("div", { class: "frames" }, strip, canvas, times);
  const list = words.map((w) =>
    h("li", {}, `${visible(w.word.trim())}: ${number(w.start)} to ${number(w.end)} s`),
  );
  const element = h(
    "div",
    { class: "audio" },
    h(
      "p",
      { class: "muted" },
      `↑ mel bands 0 to ${mels - 1}, low ones at the bottom; → time in s${words.length > 0 ? "; words from the line where they begin" : ""}`,
    ),
    h("div", { class: "frames-box" }, inner),
    h(
      "div",
      { class: "row" },
      h("span", { class: "muted" }, "log-mel energy"),
      legend(picture.low, picture.high, false, { masked: false, leftOut: false, notFinite: false }),
      pictureButtons("spectrogram", () => printable(canvas, seconds)),
      words.length > 0
        ? csvButton("words", () => [
            ["word", "begins at s", "ends at s", "probability"],
            ...words.map((w) => [w.word.trim(), w.start, w.end, w.probability]),
          ])
        : null,
    ),
    words.length > 0
      ? h("details", {}, h("summary", {}, "words and their times"), h("ol", {}, ...list))
      : null,
  );
  let [width, shown] = [720, ""];
  const see = (from: number, to: number) => {
    const view = `${from} ${to} ${width}`;
    if (view === shown || to <= from) return;
    shown = view;
    const whole = width / (to - from);
    inner.style.width = `${whole}px`;
    inner.style.marginLeft = `${-from * whole}px`;
    strip.replaceChildren(...placed(words, whole / seconds));
    times.replaceChildren(
      ...ticks(from * seconds, to * seconds).map(({ at, words }) => {
        const mark = h("span", {}, `${words} s`);
        mark.style.left = `${(100 * at) / seconds}%`;
        return mark;
      }),
    );
  };
  const place = ({ left, width: room }: { left: number; width: number }) => {
    element.style.marginLeft = `${left}px`;
    element.style.width = `${room}px`;
    const [from = 0, to = 1] = shown.split(" ").map(Number);
    width = room;
    see(from, to);
  };
  return { element, place, see };
}

function draw(canvas: HTMLCanvasElement, picture: NonNullable<Run["spectrogram"]>): void {
  const { mels, columns } = picture;
  const context = canvas.getContext("2d");
  if (!context) return;
  const codes = bytes(picture.codes);
  const image = context.createImageData(columns, mels);
  const pixels = new Uint32Array(image.data.buffer);
  for (let m = 0; m < mels; m++) {
    for (let c = 0; c < columns; c++)
      pixels[(mels - 1 - m) * columns + c] = MAP[codes[m * columns + c] as number] as number;
  }
  context.putImageData(image, 0, 0);
}

/** The spectrogram for a file, with its time axis. */
function printable(canvas: HTMLCanvasElement, seconds: number): SVGSVGElement {
  const [width, height, left] = [900, 160, 10];
  const marks = ticks(0, seconds).map(({ at, words }) => {
    const x = left + (at / seconds) * width;
    return s(
      "g",
      {},
      s("path", { d: `M${x} ${height}v6`, stroke: "#000000" }),
      s("text", { x, y: height + 20 }, words),
    );
  });
  const size = { width: width + 40, height: height + 42 };
  return s(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      ...size,
      viewBox: `0 0 ${size.width} ${size.height}`,
      "font-family": "sans-serif",
      "font-size": 11,
    },
    s("title", {}, `log-mel spectrogram of ${number(seconds)} seconds`),
    s("rect", { ...size, fill: "#ffffff" }),
    s("image", { href: canvas.toDataURL(), x: left, y: 0, width, height, preserveAspectRatio: "none" }),
    ...marks,
    s("text", { x: left, y: height + 36 }, `time, s; ${canvas.height} mel bands, low ones at the bottom`),
  );
}

/** Words at their times, each on the first line where it covers no other, with a line down to where it begins. */
function placed(words: TimedWord[], pixelsASecond: number): HTMLElement[] {
  const ends: number[] = [];
  const all = words.map((w) => {
    const text = visible(w.word.trim());
    const left = w.start * pixelsASecond;
    const free = ends.findIndex((end) => end <= left);
    const line = free === -1 ? ends.length : free;
    ends[line] = left + 8 + LETTER * [...text].length;
    const title = `${number(w.start)}–${number(w.end)} s, probability ${number(w.probability, 3)}`;
    return { word: h("span", { class: "word", title }, text), left, line };
  });
  const lines = ends.length;
  // Words lie over the lines of those above them.
  const lineOf = ({ left, line }: (typeof all)[number]) =>
    at(h("div", { class: "stem" }), { left, top: line * LINE, height: (lines - line) * LINE + HEIGHT });
  const wordOf = ({ word, left, line }: (typeof all)[number]) =>
    at(word, { left: left + 1, top: line * LINE });
  return [...all.map(lineOf), ...all.map(wordOf), at(h("div", {}), { height: lines * LINE })];
}

function at(element: HTMLElement, place: { left?: number; top?: number; height?: number }): HTMLElement {
  for (const [name, pixels] of Object.entries(place)) element.style.setProperty(name, `${pixels}px`);
  return element;
}

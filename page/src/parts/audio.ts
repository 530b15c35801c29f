// Audio: the spectrogram under the frames, and the words above it at their times.

import { bytes } from "../bytes.ts";
import { MAP } from "../colour.ts";
import { h, number, visible } from "../dom.ts";
import type { Run } from "../types.ts";

export function frames(run: Run): HTMLElement | null {
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
    "aria-label": `log-mel spectrogram of ${number(seconds)} seconds, low bands at the bottom`,
  });
  const context = canvas.getContext("2d");
  if (context) {
    const codes = bytes(picture.codes);
    const image = context.createImageData(columns, mels);
    const pixels = new Uint32Array(image.data.buffer);
    for (let m = 0; m < mels; m++) {
      for (let c = 0; c < columns; c++)
        pixels[(mels - 1 - m) * columns + c] = MAP[codes[m * columns + c] as number] as number;
    }
    context.putImageData(image, 0, 0);
  }
  const word = (w: (typeof words)[number], i: number) => {
    const element = h(
      "span",
      {
        class: "word",
        title: `${number(w.start)}–${number(w.end)} s, probability ${number(w.probability, 3)}`,
      },
      visible(w.word.trim()),
    );
    element.style.left = `${(100 * w.start) / seconds}%`;
    element.style.width = `${(100 * (w.end - w.start)) / seconds}%`;
    element.style.top = `${(i % 3) * 15}px`;
    return element;
  };
  const list = words.map((w) =>
    h("li", {}, `${visible(w.word.trim())}: ${number(w.start)} to ${number(w.end)} s`),
  );
  return h(
    "div",
    { class: "audio" },
    words.length > 0 ? h("div", { class: "words", "aria-hidden": "true" }, ...words.map(word)) : null,
    canvas,
    h("div", { class: "row spread muted" }, h("span", {}, "0 s"), h("span", {}, `${number(seconds)} s`)),
    words.length > 0
      ? h("details", {}, h("summary", {}, "words and their times"), h("ol", {}, ...list))
      : null,
  );
}

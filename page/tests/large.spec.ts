// Reports of long inputs and of large attentions: what is reduced, and how fast it moves.

import { expect } from "@playwright/test";
import { readFileSync, writeFileSync } from "node:fs";
import { bytes, file, made } from "./files.ts";
import { open, test } from "./open.ts";

test.use({ offline: true });

test("a source of thousands of tokens is reduced, and says so", async ({ page }) => {
  expect(bytes("long")).toBeLessThan(12_000_000);
  await open(page, "long", "attn=encoder&head=0");
  await expect(page.locator(".enlarged .note").first()).toContainText("Reduced: 4");
  const canvas = page.locator(".heat canvas");
  await canvas.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  const told = page.locator(".told").first();
  await expect(told).toContainText("the largest weight of query");
  // The group of cells, and the one of them that is shown and opened.
  const words = (await told.textContent())!;
  const [, q0, q1, k0, k1, query, key] = words
    .match(/^queries (\d+)–(\d+) → keys (\d+)–(\d+): .*, the largest of them, at query (\d+), key (\d+)/)!
    .map(Number) as [number, number, number, number, number, number, number];
  expect(q0 <= query && query <= q1 && k0 <= key && key <= k1, words).toBe(true);
  await page.keyboard.press("Enter");
  expect(page.url()).toContain(`cell=0.${query}.${key}`);
  const code = page.locator(".cell code");
  await expect(code).toContainText("attnscope explain encoder.0.self_attn.weights demo");
  await expect(code).toContainText(`--at 0,0,${query},${key}`);
});

test("the masks of a long input are drawn whole, in runs", async ({ page }) => {
  await open(page, "long", "attn=encoder&head=0&show=mask");
  await expect(page.locator(".mask-box")).toHaveCount(3);
  const encoder = page.locator(".mask-box").first();
  await expect(encoder).toContainText(/0 of 16\d+ cells masked/);
  await expect(encoder.locator("path")).toHaveAttribute("d", /^M0 0h(\d+)v\1h-\1z$/);
  await encoder.locator("svg.mask").hover();
  await expect(encoder.locator(".told")).toContainText(
    /^query \d+ .* → key \d+ .*: visible, as keys 0 to \d+$/,
  );
  await expect(page.locator("#masks .note")).toContainText("not proved here");
  await expect(page.locator(".enlarged h3")).toContainText("mask");
});

/** A report with one cross-attention of so many heads, queries and keys, every cell of it in the picture. */
function withLargeAttention(heads: number, queries: number, keys: number): string {
  const html = readFileSync(file("demo"), "utf8");
  const [, text] = html.match(/<script type="application\/json" id="data">(.*?)<\/script>/s)!;
  const data = JSON.parse(text!) as {
    run: Record<string, unknown> & { attentions: Record<string, unknown>[] };
  };
  const codes = Buffer.alloc(heads * queries * keys);
  for (let i = 0; i < codes.length; i++) codes[i] = (Math.imul(i, 2654435761) >>> 24) % 255;
  const attention = data.run.attentions.find((one) => one["path"] === "decoder.0.cross_attn")!;
  const picture = {
    of: "weights",
    heads,
    rows: queries,
    columns: keys,
    first_query: 0,
    first_key: 0,
    queries_a_row: 1,
    keys_a_column: 1,
    low: Array(heads).fill(0),
    high: Array(heads).fill(1),
    codes: codes.toString("base64"),
    places: null,
  };
  Object.assign(attention, {
    heads,
    queries,
    keys,
    measures: [],
    pictures: [picture],
    stream_share: null,
    ends: [],
  });
  Object.assign(data.run, { attentions: [attention], values: {}, cells: {}, masks: null });
  return html.replace(text!, () => JSON.stringify(data).replaceAll("<", "\\u003c"));
}

test("24 heads of 448 × 1500 pan and zoom without stutter", async ({ page }) => {
  test.setTimeout(120_000);
  writeFileSync(file("large"), withLargeAttention(24, 448, 1500));
  await open(page, "large", "attn=cross&head=7");
  await expect(page.locator(".thumbnail")).toHaveCount(26);
  const measured = await page.locator(".heat canvas").evaluate(async (canvas: HTMLCanvasElement) => {
    const box = canvas.getBoundingClientRect();
    const frames: number[] = [];
    const work: number[] = [];
    const at = (x: number, y: number) => ({
      clientX: box.left + x,
      clientY: box.top + y,
      bubbles: true,
      cancelable: true,
      pointerId: 1,
    });
    canvas.setPointerCapture = () => undefined;
    const frame = async (act: () => void) => {
      const start = performance.now();
      act();
      work.push(performance.now() - start);
      await new Promise(requestAnimationFrame);
      frames.push(performance.now() - start);
    };
    for (let i = 0; i < 40; i++) {
      const wheel = { ...at(200, 150), ctrlKey: true, deltaY: i < 20 ? -60 : 60 };
      await frame(() => canvas.dispatchEvent(new WheelEvent("wheel", wheel)));
      if (i !== 19) continue;
      canvas.dispatchEvent(new PointerEvent("pointerdown", at(300, 250)));
      for (let step = 0; step < 60; step++) {
        await frame(() =>
          canvas.dispatchEvent(new PointerEvent("pointermove", at(300 - 4 * step, 250 - 3 * step))),
        );
      }
      canvas.dispatchEvent(new PointerEvent("pointerup", at(60, 70)));
    }
    const sorted = (times: number[]) => times.sort((a, b) => a - b);
    const share = (times: number[], part: number) => times[Math.floor((times.length - 1) * part)] as number;
    return {
      frame: share(sorted(frames), 0.5),
      late: share(frames, 0.95),
      work: share(sorted(work), 0.95),
      count: frames.length,
    };
  });
  const [frame, late, work] = [measured.frame, measured.late, measured.work].map((time) => time.toFixed(1));
  console.log(
    `${measured.count} frames: ${frame} ms in the middle, 95 % within ${late} ms; the page's own work ${work} ms`,
  );
  // 60 frames a second leave 16.7 ms for each; a busy machine delivers frames late, whatever the page does.
  expect(measured.work).toBeLessThan(16);
  expect(measured.frame).toBeLessThan(50);
});

test("Whisper: the spectrogram, words with times, cross-attention of 1500 frames", async ({ page }) => {
  test.skip(!made("whisper"), "no such model here");
  expect(bytes("whisper")).toBeLessThanOrEqual(12_000_000);
  await open(page, "whisper", "attn=cross&map=decoder.2.cross_attn&head=5");
  await expect(page.locator(".word")).toContainText(["And"]);
  // No word covers another, each begins at its time, and both axes have units.
  const places = await page.locator(".word").evaluateAll((all) =>
    all.map((word) => {
      const range = document.createRange();
      range.selectNodeContents(word);
      const { left, right, top, bottom } = range.getBoundingClientRect();
      return { left, right, top, bottom, at: word.getBoundingClientRect().left, words: word.textContent };
    }),
  );
  expect(places.length).toBeGreaterThan(15);
  for (const [i, a] of places.entries())
    for (const b of places.slice(i + 1))
      expect(
        a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 1 || b.bottom <= a.top + 1,
        `${a.words} and ${b.words}`,
      ).toBe(true);
  const picture = (await page.locator(".spectrogram").boundingBox())!;
  const [, word, from] = (await page.locator(".audio details li").nth(3).textContent())!.match(
    /^(.*): (\S+) to /,
  )!;
  const placed = places[3]!;
  expect(placed.words).toBe(word);
  expect(Math.abs(placed.at - picture.x - (Number(from) / 30) * picture.width)).toBeLessThan(2);
  await expect(page.locator(".times span").first()).toHaveText("0 s");
  await expect(page.locator(".audio")).toContainText("mel bands 0 to 79");
  await expect(page.locator(".axis-titles")).toContainText("keys: time in the recording, s");
  for (const [name, start] of [
    ["save spectrogram as SVG", /^<svg [\s\S]*data:image\/png[\s\S]*time, s; 80 mel bands/],
    ["save words as CSV", /^word,begins at s,ends at s,probability\r\nAnd,/],
  ] as const) {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name }).click(),
    ]);
    expect(readFileSync((await download.path())!, "utf8")).toMatch(start);
  }
  // Zoomed, the recording follows the matrix.
  await page.getByRole("button", { name: "zoom in" }).click();
  await expect
    .poll(async () => (await page.locator(".spectrogram").boundingBox())!.width)
    .toBeGreaterThan(picture.width * 1.4);
  await page.getByRole("button", { name: "whole" }).click();
  await expect(page.locator(".spectrogram")).toBeVisible();
  const frame = await page.locator(".heat canvas").evaluate(async (canvas: HTMLCanvasElement) => {
    const times: number[] = [];
    canvas.focus();
    for (let i = 0; i < 20; i++) {
      const start = performance.now();
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: i % 2 ? "+" : "ArrowRight", bubbles: true }));
      times.push(performance.now() - start);
      await new Promise(requestAnimationFrame);
    }
    return times.sort((a, b) => a - b)[10]!;
  });
  console.log(`a step of moving or zooming takes ${frame.toFixed(1)} ms`);
  expect(frame).toBeLessThan(50);
});

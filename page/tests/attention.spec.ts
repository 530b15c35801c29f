// Attention in a report: heads, pictures, tokens, cells, masks.

import { expect } from "@playwright/test";
import { attnscope } from "./files.ts";
import { open, test } from "./open.ts";

test.use({ offline: true });

test("heads are enlarged, toggled, zoomed and averaged", async ({ page }) => {
  await open(page, "demo");
  await page.getByRole("button", { name: "decoder", exact: true }).click();
  await expect(page.locator(".thumbnail")).toHaveCount(12);
  await expect(page.locator(".badge.sink").first()).toBeVisible();
  await page.locator('.thumbnail[data-map="decoder.1.self_attn"][data-head="2"]').click();
  await expect(page.locator(".enlarged h3")).toContainText("decoder.1.self_attn, head 2, weights");
  const canvas = page.locator(".heat canvas");
  const pixels = () => canvas.evaluate((element: HTMLCanvasElement) => element.toDataURL());
  const before = await pixels();
  for (const [name, title] of [
    ["scores", "scores"],
    ["mask", "mask"],
    ["‖A·V‖", "‖A·V‖"],
    ["contribution", "contribution"],
  ] as const) {
    await page.getByRole("button", { name, exact: true }).click();
    await expect(page.locator(".enlarged h3")).toContainText(title);
    expect(await pixels()).not.toBe(before);
  }
  await page.getByRole("button", { name: "attention", exact: true }).click();
  await page.getByRole("button", { name: "log", exact: true }).click();
  expect(await pixels()).not.toBe(before);
  // Where the scale ends at the dark side.
  const [least, most] = await page.locator(".colour-legend > span:not([class])").allTextContents();
  expect(least).toMatch(/^≤ /);
  expect(Number(least!.slice(2).replace("−", "-"))).toBeCloseTo(Number(most) * 1e-4, 6);
  await expect(page.locator(".colour-legend")).toContainText("log, down to 1/10,000 of the largest");
  await page.getByRole("button", { name: "linear", exact: true }).click();
  for (const head of ["mean", "max"]) {
    await page.locator(`.thumbnail[data-map="decoder.1.self_attn"][data-head="${head}"]`).click();
    await expect(page.locator(".enlarged h3")).toContainText(`${head} of heads`);
  }
  await page.getByRole("button", { name: "zoom in" }).click();
  await page.getByRole("button", { name: "zoom out" }).click();
  await page.getByRole("button", { name: "whole" }).click();
});

test("pictures hold the values of the run", async ({ page }) => {
  await open(page, "demo", "attn=cross&map=decoder.1.cross_attn&head=1");
  const trace = JSON.parse(
    attnscope([
      "trace",
      "demo",
      "--src",
      "Two dogs play in the snow.",
      "--layer",
      "decoder.1.cross_attn.weights",
      "--payload",
      "--full",
      "--format",
      "json",
    ]),
  ) as { nodes: { values: number[]; shape: number[] }[] };
  const [, , queries, keys] = trace.nodes[0]!.shape as [number, number, number, number];
  await page.locator(".enlarged details summary").first().click();
  const cells = page.locator(".enlarged details table tbody td");
  await expect(cells).toHaveCount(queries * keys);
  const shown = await cells.allTextContents();
  shown.forEach((text, i) => {
    const expected = trace.nodes[0]!.values[queries * keys + i]!;
    expect(Math.abs(Number(text.replace("−", "-")) - expected)).toBeLessThanOrEqual(
      Math.max(1e-6, Math.abs(expected) * 6e-3),
    );
  });
  await page.getByRole("button", { name: "without the end token" }).click();
  const rows = page.locator(".enlarged details table tbody tr");
  await page.locator(".enlarged details summary").first().click();
  await expect(rows).toHaveCount(queries);
  const first = await rows.first().locator("td").allTextContents();
  expect(first.at(-1)).toBe("left out");
  const sum = first.slice(0, -1).reduce((total, text) => total + Number(text.replace("−", "-")), 0);
  expect(Math.abs(sum - 1)).toBeLessThan(0.01);
});

test("a token that is pointed at shows its links, and a click locks it everywhere", async ({ page }) => {
  await open(page, "demo", "attn=cross&map=decoder.0.cross_attn&head=0&view=links");
  const links = page.locator(".links path");
  const all = await links.count();
  await page.locator('.links .link-token[data-side="target"][data-at="1"]').hover();
  await expect.poll(() => links.count()).toBeLessThan(all);
  await page.locator('.token[data-side="source"][data-at="2"]').click();
  await expect(page.locator('.token[data-side="source"][data-at="2"]')).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  await expect(page.locator('.mask text[data-side="source"][data-at="2"]').first()).toHaveClass(/selected/);
  expect(page.url()).toContain("src=2");
  await page.getByRole("button", { name: "matrix", exact: true }).click();
  await expect(page.locator(".axis text.selected").first()).toBeVisible();
  await page.locator('.token[data-side="source"][data-at="2"]').click();
  expect(page.url()).not.toContain("src=");
});

test("a cell shows the lines of explain", async ({ page }) => {
  await open(page, "demo", "attn=cross&map=decoder.0.cross_attn&head=1");
  const canvas = page.locator(".heat canvas");
  const box = (await canvas.boundingBox())!;
  // Query 2 of 7, key 3 of 8.
  await canvas.click({ position: { x: (box.width * 3.5) / 8, y: (box.height * 2.5) / 7 } });
  await expect(page.locator(".cell h4")).toHaveText("decoder.0.cross_attn.weights[0, 1, 2, 3]");
  expect(page.url()).toContain("cell=1.2.3");
  const told = JSON.parse(
    attnscope([
      "explain",
      "decoder.0.cross_attn.weights",
      "demo",
      "--src",
      "Two dogs play in the snow.",
      "--at",
      "0,1,2,3",
      "--format",
      "json",
    ]),
  ) as { pages: { parts: { words?: string; formula?: string; rows?: string[][] }[] }[] };
  const text = await page.locator(".cell").innerText();
  let lines = 0;
  for (const part of told.pages[0]!.parts) {
    for (const line of [part.words, part.formula, ...(part.rows ?? []).flat()].filter(Boolean)) {
      expect(text).toContain(line);
      lines++;
    }
  }
  expect(lines).toBeGreaterThan(30);
  await page.getByRole("button", { name: "close" }).click();
  await expect(page.locator(".cell h4")).toHaveCount(0);
});

test("a cell says where its arithmetic is not that of the number in the picture", async ({ page }) => {
  await open(page, "demo", "attn=cross&map=decoder.0.cross_attn&head=1&cell=1.2.3");
  const note = page.locator(".cell .note");
  await expect(page.locator(".cell h4")).toBeVisible();
  await expect(note).toHaveCount(0);
  for (const [name, words] of [
    ["‖A·V‖", /^The picture shows ‖A·V‖, .*, 0\.\d+ here\. Below is the arithmetic of head 1's weight after/],
    ["contribution", /^The picture shows the contribution of the key, all heads together, 0\.\d+ here/],
    ["mask", /^The picture shows the mask\. Below is the arithmetic of head 1's weight/],
  ] as const) {
    await page.getByRole("button", { name, exact: true }).click();
    await expect(note).toHaveText(words);
  }
  await page.getByRole("button", { name: "attention", exact: true }).click();
  await page.getByRole("button", { name: "weights", exact: true }).click();
  await page.getByRole("button", { name: "without the end token" }).click();
  await expect(note).toContainText("renormalised without the end token");
  await page.getByRole("button", { name: "raw", exact: true }).click();
  await page.evaluate(() => (location.hash += "&head=mean"));
  await expect(note).toContainText("the weights, mean of heads");
});

test("what is seen of a matrix stands in the address", async ({ page }) => {
  await open(page, "demo", "attn=cross&map=decoder.0.cross_attn&head=0");
  const pixels = () =>
    page.locator(".heat canvas").evaluate((element: HTMLCanvasElement) => element.toDataURL());
  const whole = await pixels();
  await page.getByRole("button", { name: "zoom in" }).click();
  await expect.poll(() => page.url()).toContain("zoom=");
  const zoomed = await pixels();
  expect(zoomed).not.toBe(whole);
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-ready", "");
  expect(await pixels()).toBe(zoomed);
  await page.getByRole("button", { name: "whole" }).click();
  await expect.poll(() => page.url()).not.toContain("zoom=");
  expect(await pixels()).toBe(whole);
});

test("padding is not drawn, and how much looks at it is said", async ({ page }) => {
  await open(page, "padded", "attn=encoder&head=0");
  await expect(page.locator(".heat canvas")).toHaveAttribute("aria-label", /: 4 rows, 4 columns\./);
  await expect(page.locator(".enlarged .note").first()).toContainText(
    /^Padding is left out: 2 positions of the queries, 2 positions of the keys\. 0 % of a token's weight is on it/,
  );
  await expect(page.locator('.token[data-side="source"]')).toHaveCount(4);
  await page.locator(".heat canvas").focus();
  await page.keyboard.press("End");
  await page.keyboard.press("l");
  expect(page.url()).toContain("src=0.3");
});

test("cells that are left out, and cells that are not finite, have colours of their own", async ({
  page,
}) => {
  await open(page, "demo", "attn=cross&ends=without");
  const swatches = () =>
    page.locator(".colour-legend .swatch").evaluateAll((all) => all.map((one) => one.className));
  expect(await swatches()).toEqual(["swatch left-out"]);
  const drawn = await page
    .locator('.thumbnail[aria-pressed="true"] canvas')
    .evaluate((canvas: HTMLCanvasElement) => {
      const last = canvas.getContext("2d")!.getImageData(canvas.width - 1, 0, 1, 1).data;
      return [...last.slice(0, 3)];
    });
  expect(drawn).toEqual([0x6b, 0x6b, 0x6b]);
});

test("masks are drawn with reasons, and their proofs hold", async ({ page }) => {
  await open(page, "demo");
  await expect(page.locator(".mask-box")).toHaveCount(3);
  await expect(page.locator(".mask-box").nth(1)).toContainText("21 of 49 cells masked");
  await expect(page.locator("#masks tbody tr")).toHaveCount(8);
  await expect(page.locator("#masks .pill.pass")).toHaveCount(8);
});

test("masked cells have a colour of their own, and the legend says so", async ({ page }) => {
  await open(page, "demo", "attn=decoder&map=decoder.0.self_attn&head=0");
  await expect(page.locator(".colour-legend")).toContainText("masked");
  const thumbnail = page.locator('.thumbnail[aria-pressed="true"] canvas');
  const greys = await thumbnail.evaluate((canvas: HTMLCanvasElement) => {
    const { data, width, height } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
    const isGrey = (x: number, y: number) => [0, 1, 2].every((c) => data[4 * (y * width + x) + c] === 0xd0);
    const cells = Array.from(
      { length: width * height },
      (_, i) => [i % width, Math.floor(i / width)] as const,
    );
    return cells.filter(([x, y]) => isGrey(x, y) !== x > y).length;
  });
  expect(greys, "exactly what comes later is grey").toBe(0);
  await page.locator(".heat canvas").focus();
  await page.keyboard.press("End");
  await expect(page.locator(".told").first()).toContainText(": masked");
  // Scores are from before the mask, and in cross-attention nothing is masked.
  await page.getByRole("button", { name: "scores", exact: true }).click();
  await expect(page.locator(".colour-legend")).not.toContainText("masked");
  await page.getByRole("button", { name: "weights", exact: true }).click();
  await page.getByRole("button", { name: "cross", exact: true }).click();
  await expect(page.locator(".colour-legend")).not.toContainText("masked");
  await page.getByRole("button", { name: "mask", exact: true }).click();
  await expect(page.locator(".colour-legend")).toContainText("visible");
});

// The report as a file, opened from disk with the network off.

import { expect, type Page, test } from "@playwright/test";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { attnscope, bytes, file, made } from "./files.ts";

test.use({ offline: true });

/** Opens a report; whatever it asks for or complains of fails the test. */
async function open(page: Page, name: string, hash = ""): Promise<void> {
  const trouble: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) trouble.push(message.text());
  });
  page.on("pageerror", (error) => trouble.push(error.message));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) trouble.push(`asked for ${request.url()}`);
  });
  troubles.set(page, trouble);
  await page.goto(`file://${file(name)}#${hash}`);
  await expect(page.locator("html")).toHaveAttribute("data-ready", "");
}

const troubles = new WeakMap<Page, string[]>();

test.afterEach(async ({ page }) => {
  expect(troubles.get(page) ?? []).toEqual([]);
});

test("the demo's report is small and paints at once", async ({ page }) => {
  expect(bytes("demo")).toBeLessThanOrEqual(1_000_000);
  await open(page, "demo");
  const paint = await page.evaluate(
    () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity,
  );
  console.log(`first paint after ${Math.round(paint)} ms`);
  // The goal is 500 ms on an idle machine; this one may be busy.
  expect(paint).toBeLessThan(1500);
  await expect(page.locator("h1")).toContainText("demo · Marian");
});

test("the verdict shows every check of the doctor, with links to tensors", async ({ page }) => {
  await open(page, "demo");
  const doctor = JSON.parse(
    attnscope(["doctor", "demo", "--format", "json", "--repair-time", "20", "--fail-on", "never"]),
  ) as { checked: string[]; not_checked: unknown[] };
  await expect(page.locator(".check[data-rule]")).toHaveCount(
    doctor.checked.length + doctor.not_checked.length,
  );
  const passed = page.locator("details.passed");
  await passed.locator("summary").first().click();
  const dead = page.locator('[data-rule="dead-head"]');
  await expect(dead).toContainText("pass");
  await expect(dead).toContainText("threshold");
  await dead.locator("button.link").click();
  await expect(page.locator(".enlarged h3")).toContainText(/head \d/);
});

test("blocks open their steps, and steps their formulas", async ({ page }) => {
  await open(page, "demo");
  await page.locator('.stacks .box[data-path="decoder.1"]').click({ position: { x: 20, y: 10 } });
  await expect(page.locator("#inside figure")).toHaveCount(3);
  await page.locator('#inside .box[data-path="decoder.N.cross_attn.scores"]').click();
  const details = page.locator("#model .node");
  await expect(details.locator("h3")).toContainText("decoder.1.cross_attn.scores");
  await expect(details).toContainText("q·kᵀ × 1/√32");
  await expect(details).toContainText("(B, H, T, S) = (1, 4, 7, 8)");
  await expect(details).toContainText("cross-attention of layer 1 of the decoder");
  await expect(details).toContainText("min");
  await expect(page.locator('#inside .box[aria-current="true"]')).toHaveAttribute(
    "data-path",
    "decoder.N.cross_attn.scores",
  );
  await page.locator("#inside select").selectOption("decoder.0");
  await expect(details.locator("h3")).toContainText("decoder.0.cross_attn.scores");
  expect(page.url()).toContain("node=decoder.0.cross_attn.scores");
});

test("the walk has 43 stops, by buttons and by arrow keys", async ({ page }) => {
  await open(page, "demo");
  const stop = page.locator(".walk .stop");
  await expect(stop).toContainText("43 stops");
  await page.getByRole("button", { name: "next →" }).click();
  await expect(stop).toContainText("1 of 43 src.ids");
  for (let i = 0; i < 9; i++) await page.keyboard.press("ArrowRight");
  await expect(stop).toContainText("10 of 43 encoder.0.self_attn.scores");
  await expect(page.locator('.stacks .box[data-path="encoder.0.self_attn"]')).toHaveClass(/open/);
  await page.keyboard.press("ArrowLeft");
  await expect(stop).toContainText("9 of 43");
  for (let i = 0; i < 40; i++) await page.keyboard.press("ArrowRight");
  await expect(stop).toContainText("43 of 43");
});

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
  await expect(page.locator(".colour-legend")).toContainText("log");
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
  const shown = await page.locator(".enlarged details table tbody td").allTextContents();
  expect(shown).toHaveLength(queries * keys);
  shown.forEach((text, i) => {
    const expected = trace.nodes[0]!.values[queries * keys + i]!;
    expect(Math.abs(Number(text.replace("−", "-")) - expected)).toBeLessThanOrEqual(
      Math.max(1e-6, Math.abs(expected) * 6e-3),
    );
  });
  await page.getByRole("button", { name: "without the end token" }).click();
  const rows = page.locator(".enlarged details table tbody tr");
  await page.locator(".enlarged details summary").first().click();
  const first = await rows.first().locator("td").allTextContents();
  expect(first.at(-1)).toBe("NaN");
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

test("masks are drawn with reasons, and their proofs hold", async ({ page }) => {
  await open(page, "demo");
  await expect(page.locator(".mask-box")).toHaveCount(3);
  await expect(page.locator(".mask-box").nth(1)).toContainText("21 of 49 cells masked");
  await expect(page.locator("#masks tbody tr")).toHaveCount(8);
  await expect(page.locator("#masks .pill.pass")).toHaveCount(8);
});

test("tensors are found by a selector, opened and sliced", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-write", "clipboard-read"]).catch(() => undefined);
  await open(page, "demo");
  const search = page.getByRole("searchbox");
  await search.fill("decoder.*.cross_attn.weights");
  await expect(page.locator("#tensors tbody tr")).toHaveCount(2);
  await search.fill("cross_attn");
  await expect(page.locator("#tensors [role=status]").first()).toContainText(/^\d+ of 133/);
  await search.fill("nothing.like.it");
  await expect(page.locator("#tensors")).toContainText("No tensor matches");
  await search.fill("decoder.0.cross_attn.scores");
  await page.locator("#tensors tbody button.link").click();
  await expect(page.locator("#tensors .slice table")).toBeVisible();
  await page.locator("#tensors .slice select").nth(1).selectOption("2");
  await expect(page.locator("#tensors .histogram").first()).toBeVisible();
  // Its sign is drawn: no font is asked for a letter that it may not have.
  await expect(page.locator("#tensors tbody button.small svg.icon")).toBeVisible();
  await page.locator("#tensors tbody button.small").click();
  await expect(page.locator("#said")).toContainText("decoder.0.cross_attn.scores");
});

test("every picture and table can be saved", async ({ page }) => {
  await open(page, "demo");
  const save = async (name: string | RegExp, within: string) => {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.locator(within).getByRole("button", { name }).first().click(),
    ]);
    return { name: download.suggestedFilename(), text: readFileSync((await download.path())!) };
  };
  const csv = await save(/as CSV$/, ".enlarged");
  expect(csv.text.toString()).toContain("▁dogs");
  const svg = await save(/as SVG$/, ".enlarged");
  expect(svg.text.toString()).toMatch(/^<svg xmlns="http:\/\/www.w3.org\/2000\/svg".*data:image\/png/s);
  const png = await save(/as PNG$/, ".enlarged");
  expect(png.text.subarray(1, 4).toString()).toBe("PNG");
  for (const part of ["#verdict", "#masks", "#tensors"])
    expect((await save(/as CSV$/, part)).text.length).toBeGreaterThan(20);
  for (const part of ["#model", "#masks"])
    expect((await save(/as PNG$/, part)).text.subarray(1, 4).toString()).toBe("PNG");
});

test("a link shows what its sender saw", async ({ page }) => {
  await open(
    page,
    "demo",
    "attn=encoder&map=encoder.1.self_attn&head=3&show=scores&scale=log&src=1.4&cell=3.1.2&layer=encoder.1&node=encoder.1.ffn.act&find=ffn&theme=dark",
  );
  await expect(page.locator(".enlarged h3")).toContainText("encoder.1.self_attn, head 3, scores");
  await expect(page.getByRole("button", { name: "log", exact: true })).toHaveAttribute(
    "aria-pressed",
    "true",
  );
  await expect(page.locator('.token[data-side="source"][aria-pressed="true"]')).toHaveCount(2);
  // The file holds the arithmetic of weights; of a score it gives the command.
  await expect(page.locator(".cell")).toContainText("encoder.1.self_attn.scores[0,3,1,2]");
  await expect(page.locator(".cell code")).toContainText("--at 0,3,1,2");
  await expect(page.locator("#model .node h3")).toContainText("encoder.1.ffn.act");
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
});

test("a link that is nonsense does no harm, and is answered", async ({ page }) => {
  await open(
    page,
    "demo",
    "attn=%3Cimg%3E&map=x&head=99&show=evil&src=-1.x.999999&cell=9.9.9&stop=99&layer=decoder.9&node=no.%3Cb%3E&tensor=y&find=***&__proto__=1&constructor=2",
  );
  const enlarged = page.locator(".enlarged");
  // The mean is shown, and called that.
  await expect(enlarged.locator("h3")).toHaveText("decoder.0.cross_attn, mean of heads, weights");
  await expect(page.locator('.thumbnail[aria-pressed="true"]')).toHaveAttribute("data-head", "mean");
  await expect(enlarged.locator(".warning")).toHaveText([
    "There is no attention x in this run: decoder.0.cross_attn is shown.",
    "There is no head 99 in decoder.0.cross_attn, which has 4 heads, counted from 0: the mean of them is shown.",
    "There is no source token 999999: this run has 8 tokens there, counted from 0.",
    /^There is no cell 9\.9\.9 in decoder\.0\.cross_attn/,
  ]);
  await expect(page.locator("#model .details .warning")).toHaveText("There is no node no.<b> in this model.");
  await expect(page.locator("#inside .warning")).toHaveText("There is no layer decoder.9 in this model.");
  await expect(page.locator("#tensors .warning")).toHaveText("There is no tensor y in this run.");
  await expect(page.locator(".walk .stop")).toContainText("There is no stop 99.");
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

test("it is usable by keyboard alone", async ({ page }) => {
  await open(page, "demo");
  const focused = () =>
    page.evaluate(
      () =>
        `${document.activeElement?.tagName} ${document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent ?? ""}`,
    );
  const seen: string[] = [];
  for (let i = 0; i < 80; i++) {
    await page.keyboard.press("Tab");
    seen.push(await focused());
  }
  for (const word of ["Verdict", "next →", "open encoder.0", "scores", "decoder.0.cross_attn, head 0"]) {
    expect(
      seen.some((text) => text.includes(word)),
      `${word} among ${seen.join(" | ")}`,
    ).toBe(true);
  }
  await page.locator('.stacks .box[data-path="encoder.0"]').focus();
  await page.keyboard.press("Enter");
  await expect(page.locator("#inside figure")).toHaveCount(2);
  const canvas = page.locator(".heat canvas");
  await canvas.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  await expect(page.locator(".told").first()).toContainText("▁dogs");
  await page.keyboard.press("l");
  expect(page.url()).toContain("src=1");
  await page.keyboard.press("Enter");
  await expect(page.locator(".cell h4")).toContainText("[0, 0, 1, 1]");
});

for (const [name, hash] of [
  ["demo", "layer=decoder.0&node=decoder.0.cross_attn.q&cell=0.1.1&tensor=logits"],
  ["diff", ""],
] as const) {
  for (const theme of ["light", "dark"]) {
    test(`axe finds nothing serious in the ${name} report, ${theme}`, async ({ page }) => {
      await open(page, name, `${hash}&theme=${theme}`);
      const source = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
      // A strict policy refuses script elements, so that it is evaluated.
      await page.evaluate(source);
      const found = await page.evaluate(async () => {
        const axe = (
          window as unknown as {
            axe: {
              run: (o: unknown) => Promise<{
                violations: {
                  id: string;
                  impact: string;
                  nodes: { html: string; failureSummary: string }[];
                }[];
              }>;
            };
          }
        ).axe;
        const { violations } = await axe.run({ resultTypes: ["violations"] });
        return violations
          .filter((v) => ["serious", "critical"].includes(v.impact))
          .map(
            (v) =>
              `${v.id}: ${v.nodes
                .slice(0, 3)
                .map((n) => `${n.html.slice(0, 200)} ${n.failureSummary}`)
                .join(" | ")}`,
          );
      });
      expect(found).toEqual([]);
    });
  }
}

test("narrow screens and paper have everything", async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 800 });
  await open(page, "demo", "layer=decoder.0");
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  expect(overflow).toBeLessThanOrEqual(1);
  await page.emulateMedia({ media: "print" });
  await expect(page.locator("nav")).toBeHidden();
  await expect(page.locator(".enlarged h3")).toBeVisible();
  expect((await page.pdf()).length).toBeGreaterThan(10_000);
});

test("pictures look as they did", async ({ page }) => {
  await open(page, "demo", "attn=cross&map=decoder.0.cross_attn&head=0");
  // Fonts differ between machines; matrices do not. The canvas itself is compared: on the page it may begin between two pixels.
  const drawn = await page
    .locator(".heat canvas")
    .evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL());
  const png = Buffer.from(drawn.split(",")[1] ?? "", "base64");
  expect(png).toMatchSnapshot("cross-attention.png", { maxDiffPixelRatio: 0.02 });
  const stacks = page.locator(".stacks");
  await stacks.evaluate((svg: SVGElement) =>
    Object.assign(svg.style, { position: "fixed", left: "0", top: "0", zIndex: "9" }),
  );
  await expect(stacks).toHaveScreenshot("stacks.png", { maxDiffPixelRatio: 0.08 });
});

test("hostile texts are shown and not run", async ({ page }) => {
  await open(page, "hostile");
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
  await expect(page.locator("#parts img")).toHaveCount(0);
  const tokens = (await page.locator('.token[data-side="source"]').allInnerTexts()).join(" ");
  expect(tokens).toContain("<img");
  expect(tokens).toContain("onerror=");
  expect(tokens).toContain("</script>");
  // Control characters and marks of direction have pictures or names.
  expect(tokens).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u202a-\u202e]/);
  expect(tokens).toContain("\\u{202e}");
  expect(tokens).toContain("שלום");
  // Each token has its own direction: in the header, in the line of a cell, and where there are no elements.
  const header = page.locator("dl.input dd").first().locator("bdi");
  expect(await header.count()).toBe(await page.locator('.token[data-side="source"]').count());
  await expect(header.filter({ hasText: "שלום" })).toHaveText("שלום");
  await page.locator(".heat canvas").focus();
  await expect(page.locator(".told").first().locator("bdi")).toHaveCount(3);
  const label = page.locator(".axis text").filter({ hasText: "שלום" }).first();
  expect(await label.evaluate((text) => text.firstChild?.textContent)).toBe("\u2068שלום\u2069");
});

test("without canvas the values are still there", async ({ page }) => {
  await page.addInitScript(() => {
    HTMLCanvasElement.prototype.getContext = () => null;
  });
  await open(page, "demo");
  await expect(page.locator(".enlarged .warning")).toContainText("no canvas");
  await page.locator(".enlarged details summary").first().click();
  await expect(page.locator(".enlarged details td").first()).toBeVisible();
});

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

test("the difference marks the first divergence, training has its curves", async ({ page }) => {
  await open(page, "diff");
  await expect(page.locator("#diff .check")).toContainText("first divergence: encoder.0.self_attn.residual");
  await expect(page.locator("#diff .check")).toContainText("B adds the sublayer's output times 2");
  await expect(page.locator("#diff .check")).toContainText("A 2.3023622, B 3.4487362");
  await expect(page.locator("#diff tr.first")).toHaveCount(1);
  await expect(page.locator("#diff tr.first")).toContainText("encoder.0.self_attn.residual");
  await expect(page.locator("#training .chart")).not.toHaveCount(0);
  await expect(page.locator("#training")).toContainText("validation");
  await expect(page.locator("#training")).toContainText("attention health");
});

for (const name of ["decoder", "encoder"]) {
  test(`a model of one stack: ${name}`, async ({ page }) => {
    await open(page, name);
    await expect(page.locator(".thumbnail").first()).toBeVisible();
    await expect(page.locator("#model .glance svg").first()).toBeVisible();
    await page.getByRole("button", { name: "next →" }).click();
    await expect(page.locator(".walk .stop")).toContainText(" of ");
  });
}

test("the text of a decoder alone is its prompt", async ({ page }) => {
  await open(page, "decoder");
  await expect(page.locator("dl.input dt")).toHaveText(["prompt"]);
  await expect(page.getByRole("group", { name: "prompt tokens" })).toBeVisible();
  await expect(page.locator("dl.input")).not.toContainText("target");
  await expect(page.locator(".enlarged")).not.toContainText("target");
});

test("a classifier's answer is shown, with the logits of Hugging Face", async ({ page }) => {
  await open(page, "classifier");
  const answer = page.locator("dl.input dd").last();
  await expect(page.locator("dl.input dt").last()).toHaveText("answer");
  // fixtures/bert-classifier/scores.json: -0.26939, 0.09633, -0.23587.
  await expect(answer.locator("strong")).toHaveText("LABEL_1");
  await expect(answer).toContainText(
    /LABEL_1 \(41(\.\d+)? %, logit 0\.0963\d*\), LABEL_2 .*, LABEL_0 .*logit −0\.2694/,
  );
});

test("one layer is one layer", async ({ page }) => {
  await open(page, "one-layer");
  await expect(page.locator(".mask-box").first()).toContainText("in the one layer");
  await expect(page.locator("body")).not.toContainText(/\b1 (layers|heads|tokens|queries|keys|stops)\b/);
});

test("flow's page is the same page", async ({ page }) => {
  await open(page, "flow");
  await page.locator('.box[data-path="logits"]').first().click();
  await expect(page.locator("#model .node h3")).toContainText("logits");
});

test("Whisper: the spectrogram, words with times, cross-attention of 1500 frames", async ({ page }) => {
  test.skip(!made("whisper"), "no such model here");
  expect(bytes("whisper")).toBeLessThanOrEqual(12_000_000);
  await open(page, "whisper", "attn=cross&map=decoder.2.cross_attn&head=5");
  await expect(page.locator(".word")).toContainText(["And"]);
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

// Who reads a report, and how: links, keyboard, screen readers, narrow screens, paper, hostile texts.

import { expect } from "@playwright/test";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { open, test } from "./open.ts";

test.use({ offline: true });

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
  for (const control of ["zoom in", "next →", "colours: as the system"])
    await expect(page.getByRole("button", { name: control })).toBeHidden();
  await expect(page.locator("#model .hint")).toBeHidden();
  // The folded checks are printed, and folded again.
  const opened = await page.evaluate(() => {
    const details = document.querySelector<HTMLDetailsElement>("details.passed")!;
    dispatchEvent(new Event("beforeprint"));
    const printed = details.open;
    dispatchEvent(new Event("afterprint"));
    return [printed, details.open];
  });
  expect(opened).toEqual([true, false]);
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
  const said = page.locator("dl.input dd").first();
  await expect(said).toContainText("<img");
  await expect(said).toContainText("\\u{202e}");
  const header = page.locator("dl.input dd").nth(1).locator("bdi");
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

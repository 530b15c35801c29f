// The picture of the README: the attention part of the demo's report.
import { chromium } from "@playwright/test";

const folder = process.argv[2];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const page = await browser.newPage({ viewport: { width: 1100, height: 760 }, colorScheme: "light" });
await page.goto(`file://${folder}/demo.html#attn=cross&map=decoder.0.cross_attn&head=3&src=1&cell=3.1.1`);
await page.locator(".cell h4").waitFor();
const box = await page.locator("#attention").boundingBox();
await page.setViewportSize({ width: 1100, height: Math.ceil(box.y + box.height) });
await page.screenshot({ path: `${folder}/demo.png`, clip: { x: 0, y: box.y, width: 1100, height: 820 } });
await browser.close();

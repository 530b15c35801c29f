// Opening a report, in a test that fails on whatever the page asks for or complains of.

import { expect, type Page, test as base } from "@playwright/test";
import { file } from "./files.ts";

const troubles = new WeakMap<Page, string[]>();

export const test = base.extend<{ quiet: void }>({
  quiet: [
    async ({ page }, use) => {
      await use();
      expect(troubles.get(page) ?? []).toEqual([]);
    },
    { auto: true },
  ],
});

/** Opens a report, and notes its troubles. */
export async function open(page: Page, name: string, hash = ""): Promise<void> {
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

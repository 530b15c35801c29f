// Tests in Debian's Chromium. `scripts/check-page` runs them.

import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests",
  globalSetup: "./tests/setup.ts",
  workers: 2,
  fullyParallel: true,
  timeout: 60_000,
  // A machine that is busy with other work may be too slow for once.
  retries: 2,
  expect: { timeout: 15_000 },
  reporter: [["list"]],
  forbidOnly: true,
  snapshotPathTemplate: "tests/pictures/{arg}{ext}",
  use: {
    viewport: { width: 1280, height: 900 },
    launchOptions: {
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
      // The browser's own look-ups are stopped: whatever is asked for must be seen as a request of the page.
      args: [
        "--no-sandbox",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--disable-dev-shm-usage",
      ],
    },
  },
});

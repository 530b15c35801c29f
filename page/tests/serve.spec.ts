// The page of a server, and its API.

import { expect, test } from "@playwright/test";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { request as plain } from "node:http";
import { binary, HOSTILE, root } from "./files.ts";

let server: ChildProcess;
let address = "";

test.describe.configure({ mode: "serial" });

test.beforeAll(async () => {
  test.setTimeout(180_000);
  server = spawn(binary, ["serve", "demo", "--repair-time", "0", "--quiet"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(server.stdout!, "data")) as [Buffer];
  address = line.toString().trim();
  expect(address).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
});

test.afterAll(async () => {
  const ended = once(server, "exit");
  server.kill("SIGINT");
  const [code] = (await ended) as [number];
  expect(code).toBe(0);
});

interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

/** A request with any headers, as a browser would not let a page send them. */
function ask(
  method: string,
  path: string,
  headers: Record<string, string>,
  body: string | Buffer = "",
): Promise<Answer> {
  const { port, host } = new URL(address);
  return new Promise((resolve, reject) => {
    const sent = plain(
      { host: "127.0.0.1", port, method, path, headers: { host, ...headers } },
      (response) => {
        const parts: Buffer[] = [];
        response.on("data", (part: Buffer) => parts.push(part));
        response.on("end", () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: Buffer.concat(parts).toString(),
          }),
        );
      },
    );
    sent.on("error", reject);
    sent.end(body);
  });
}

const JSON_HEADERS = { "content-type": "application/json", "x-attnscope": "1" };

function last(answer: Answer): { run?: { attentions: unknown[] }; error?: string; help?: string } {
  return JSON.parse(answer.body.trim().split("\n").at(-1) ?? "{}");
}

test("a source is typed and its run is seen; two stand side by side", async ({ page }) => {
  const trouble: string[] = [];
  page.on("console", (message) => message.type() === "error" && trouble.push(message.text()));
  page.on("pageerror", (error) => trouble.push(error.message));
  page.on(
    "request",
    (request) =>
      !request.url().startsWith(address) &&
      !/^(data|blob):/.test(request.url()) &&
      trouble.push(request.url()),
  );
  await page.goto(address);
  await expect(page.locator("html")).toHaveAttribute("data-ready", "");
  await page.locator("#source").fill("A man is sleeping.");
  await page.getByRole("button", { name: "run", exact: true }).click();
  await expect(page.locator("#live [role=status]")).toHaveText("done");
  await expect(page.locator("dl.input")).toContainText("Ein Mann schläft.");
  await page.locator("#source").fill("Two dogs play.");
  await page.locator("#second").fill(HOSTILE);
  await page.getByRole("button", { name: "run", exact: true }).click();
  await expect(page.locator(".enlarged")).toHaveCount(2);
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
  await page.locator(".heat canvas").first().click();
  await expect(page.locator(".cell h4").first()).toContainText("cross_attn.weights[0, 0,");
  expect(trouble).toEqual([]);
});

test("the API answers with the schema of the commands", async () => {
  const model = await ask("GET", "/api/v1/model", {});
  expect(JSON.parse(model.body)).toMatchObject({ schema: 1, model: "demo" });
  const run = await ask(
    "POST",
    "/api/v1/runs",
    JSON_HEADERS,
    JSON.stringify({ source: "A dog.", target: "Ein Hund." }),
  );
  expect(run.body.split("\n")[0]).toMatch(/^\{"id":"\d+","queued":0\}$/);
  expect(last(run).run?.attentions).toHaveLength(6);
  const cell = await ask(
    "POST",
    "/api/v1/explain",
    JSON_HEADERS,
    JSON.stringify({ source: "A dog.", node: "decoder.0.cross_attn.weights", at: "0,1,0,0" }),
  );
  expect(JSON.parse(cell.body)).toMatchObject({
    schema: 1,
    pages: [{ title: "decoder.0.cross_attn.weights[0, 1, 0, 0]" }],
  });
});

test("bad requests are refused with reasons", async () => {
  const audio = readFileSync(`${root}fixtures/audio/tone.flac`);
  const bytes = { "content-type": "application/octet-stream", "x-attnscope": "1" };
  const cases: [number, Promise<Answer>][] = [
    [400, ask("POST", "/api/v1/runs", JSON_HEADERS, "{")],
    [400, ask("POST", "/api/v1/runs", JSON_HEADERS, '{"sauce": 1}')],
    [413, ask("POST", "/api/v1/runs", JSON_HEADERS, JSON.stringify({ source: "a ".repeat(4000) }))],
    [415, ask("POST", "/api/v1/runs", bytes, "Dear diary, this is no audio.")],
    [404, ask("GET", "/../../etc/passwd", {})],
    [404, ask("GET", "/etc/passwd", {})],
    [404, ask("DELETE", "/api/v1/runs/999999", { "x-attnscope": "1" })],
    [422, ask("POST", "/api/v1/explain", JSON_HEADERS, JSON.stringify({ node: "no.such.node", at: "0" }))],
    [400, ask("POST", "/api/v1/explain", JSON_HEADERS, JSON.stringify({ node: "logits", at: "x" }))],
    // What the framework refuses by itself has the same form.
    [405, ask("GET", "/api/v1/runs", {})],
    [400, ask("DELETE", "/api/v1/runs/abc", { "x-attnscope": "1" })],
    [400, ask("POST", "/api/v1/runs?x=1", JSON_HEADERS, "{}")],
  ];
  for (const [status, answer] of cases) {
    const { status: found, body } = await answer;
    expect(found, body).toBe(status);
    expect(JSON.parse(body)).toMatchObject({ error: expect.any(String), help: expect.any(String) });
  }
  // The demo reads no audio; a truncated file is refused as well, and no path is told.
  for (const body of [audio, audio.subarray(0, 200)]) {
    const answer = await ask("POST", "/api/v1/runs", bytes, body);
    expect(last(answer).error).toBeTruthy();
    expect(answer.body).not.toMatch(/\/tmp\//);
  }
});

test("other hosts and other sites are refused, and the page is locked down", async () => {
  const page = await ask("GET", "/", {});
  expect(page.headers["content-security-policy"]).toContain("default-src 'none'");
  expect(page.headers["access-control-allow-origin"]).toBeUndefined();
  expect((await ask("GET", "/", { host: "localhost:1234" })).status).toBe(200);
  expect((await ask("GET", "/", { host: "evil.example" })).status).toBe(421);
  const body = JSON.stringify({ source: "A dog." });
  expect(
    (await ask("POST", "/api/v1/runs", { ...JSON_HEADERS, origin: "http://evil.example" }, body)).status,
  ).toBe(403);
  expect((await ask("POST", "/api/v1/runs", { ...JSON_HEADERS, origin: "null" }, body)).status).toBe(403);
  expect((await ask("POST", "/api/v1/runs", { "content-type": "application/json" }, body)).status).toBe(403);
});

/** How many of so many clients at once were answered; each other one must be told when to come again. */
async function answered(clients: number): Promise<number> {
  const body = JSON.stringify({ source: "Two dogs play in the snow.", target: "Zwei Hunde." });
  const answers = await Promise.all(
    Array.from({ length: clients }, () => ask("POST", "/api/v1/runs", JSON_HEADERS, body)),
  );
  const done = answers.filter((answer) => answer.status === 200);
  for (const answer of done) expect(last(answer).run?.attentions).toHaveLength(6);
  for (const answer of answers.filter((one) => !done.includes(one))) {
    expect(answer.status).toBe(503);
    expect(answer.headers["retry-after"]).toBe("2");
  }
  return done.length;
}

test("50 clients at once all get their answer", async () => {
  test.setTimeout(240_000);
  expect(await answered(50)).toBe(50);
});

test("a queue that is full tells the others to come again", async () => {
  test.setTimeout(240_000);
  const done = await answered(100);
  // 64 places, and those that were answered while the last ones still came.
  expect(done).toBeGreaterThanOrEqual(64);
  expect(done).toBeLessThan(100);
});

test("a run is cancelled, and the next one is not delayed", async ({ page }) => {
  await page.goto(address);
  await page.locator("#source").fill("dog ".repeat(900));
  await page.getByRole("button", { name: "run", exact: true }).click();
  await page.getByRole("button", { name: "cancel" }).click();
  await expect(page.locator("#live [role=status]")).toHaveText("cancelled");
  const answer = await ask(
    "POST",
    "/api/v1/runs",
    JSON_HEADERS,
    JSON.stringify({ source: "A dog.", target: "Ein Hund." }),
  );
  expect(last(answer).run).toBeTruthy();
});

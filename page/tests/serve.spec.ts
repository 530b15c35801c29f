// The page of a server, and its API.

import { expect, test } from "@playwright/test";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { request as plain } from "node:http";
import { connect, type Socket } from "node:net";
import { attnscope, binary, HOSTILE, root, shared } from "./files.ts";

let server: ChildProcess;
let address = "";

test.describe.configure({ mode: "serial" });

/** Starts a server, and gives it with its address. */
async function start(...args: string[]): Promise<[ChildProcess, string]> {
  const server = spawn(binary, ["serve", ...args, "--repair-time", "0", "--quiet"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(server.stdout!, "data")) as [Buffer];
  const address = line.toString().trim();
  expect(address).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
  return [server, address];
}

/** Ends a server as Ctrl-C does. */
async function end(server: ChildProcess): Promise<void> {
  const ended = once(server, "exit");
  server.kill("SIGINT");
  const [code] = (await ended) as [number];
  expect(code).toBe(0);
}

test.beforeAll(async () => {
  test.setTimeout(180_000);
  [server, address] = await start("demo");
});

test.afterAll(() => end(server));

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
  at = address,
): Promise<Answer> {
  const { port, host } = new URL(at);
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

test("the page is there at once, and the verdict when the doctor is done", async ({ page }) => {
  test.setTimeout(240_000);
  const known = JSON.parse((await ask("GET", "/api/v1/model", {})).body) as { doctor: unknown; run: unknown };
  // The server was started a moment ago, and the doctor needs longer.
  expect(known.doctor).toBeNull();
  expect(known.run).toBeTruthy();
  await page.goto(address);
  await expect(page.locator("#verdict")).toContainText("The doctor looks at the model");
  await expect(page.locator(".enlarged h3")).toBeVisible();
  await expect(page.locator(".badge")).toHaveCount(0);
  const zoomed = page.getByRole("button", { name: "decoder", exact: true });
  await zoomed.click();
  await expect(page.locator("#verdict .check[data-rule]")).not.toHaveCount(0, { timeout: 200_000 });
  await expect(page.locator("#verdict")).not.toContainText("The doctor looks at the model");
  // What was chosen meanwhile stays, and heads get their badges.
  await expect(zoomed).toHaveAttribute("aria-pressed", "true");
  await expect(page.locator(".badge.sink").first()).toBeVisible();
  const examined = JSON.parse((await ask("GET", "/api/v1/verdict", {})).body) as {
    doctor: { checked: string[] };
  };
  expect(examined.doctor.checked.length).toBeGreaterThan(10);
  await page.reload();
  await expect(page.locator("#verdict .check[data-rule]").first()).toBeAttached();
});

test("a port that is taken is told before anything else", async () => {
  const { port } = new URL(address);
  const second = spawn(binary, ["serve", "demo", "--port", port], { stdio: ["ignore", "pipe", "pipe"] });
  const said: Buffer[] = [];
  second.stderr!.on("data", (part: Buffer) => said.push(part));
  const [code] = (await once(second, "exit")) as [number];
  expect(code).toBe(2);
  expect(Buffer.concat(said).toString()).toContain("choose another port");
});

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

test("what was run stands in the address: a link shows what its sender saw", async ({ page, context }) => {
  await page.goto(address);
  // The field holds what the page shows.
  await expect(page.locator("#source")).not.toHaveValue("");
  await page.locator("#source").fill("A man is sleeping.");
  await page.locator("#target").fill("Ein Mann schläft.");
  await page.locator("#second").fill("Two dogs play.");
  await page.getByRole("button", { name: "run", exact: true }).click();
  await expect(page.locator("#live [role=status]")).toHaveText("done");
  await page.locator('.thumbnail[data-map="decoder.1.cross_attn"][data-head="2"]').click();
  const hash = new URL(page.url()).hash;
  const parameters = new URLSearchParams(hash.slice(1));
  expect(parameters.get("source")).toBe("A man is sleeping.");
  expect(parameters.get("target")).toBe("Ein Mann schläft.");
  expect(parameters.get("second")).toBe("Two dogs play.");
  const other = await context.newPage();
  await other.goto(`${address}${hash}&cell=2.1.1&part=attention`);
  await expect(other.locator("#live [role=status]")).toHaveText("done");
  await expect(other.locator("#source")).toHaveValue("A man is sleeping.");
  await expect(other.locator("dl.input")).toHaveCount(2);
  await expect(other.locator("dl.input").first()).toContainText("Ein");
  await expect(other.locator(".enlarged h3").first()).toHaveText(
    "decoder.1.cross_attn, head 2, weights, run 1",
  );
  await expect(other.locator(".cell h4").first()).toContainText("weights[0, 2, 1, 1]");
  const top = await other.locator("#attention").evaluate((part) => part.getBoundingClientRect().top);
  expect(Math.abs(top)).toBeLessThan(60);
  // Another link in the same window is followed, too.
  await other.evaluate(() => (location.hash = "source=A+dog."));
  await expect(other.locator("dl.input")).toHaveCount(1);
  await expect(other.locator("#source")).toHaveValue("A dog.");
  await other.close();
});

test("an empty source is an error, and errors stand in the page until they are mended", async ({ page }) => {
  await page.goto(address);
  const asked: string[] = [];
  page.on("request", (request) => request.method() === "POST" && asked.push(request.url()));
  const alert = page.locator("#live [role=alert]");
  await expect(alert).toBeHidden();
  await page.locator("#source").fill("  ");
  await page.getByRole("button", { name: "run", exact: true }).click();
  await expect(alert).toHaveText("The source is empty: type a text.");
  expect(asked).toEqual([]);
  await page.locator("#source").fill("dog ".repeat(1100));
  await page.getByRole("button", { name: "run", exact: true }).click();
  await expect(alert).toContainText("the source has 110");
  await page.waitForTimeout(2500);
  await expect(alert).toBeVisible();
  await page.locator("#source").fill("A dog.");
  await page.getByRole("button", { name: "run", exact: true }).click();
  await expect(page.locator("#live [role=status]")).toHaveText("done");
  await expect(alert).toBeHidden();
});

test("a model without an input of its own has no run yet; what it lacks is said without flags", async ({
  page,
}) => {
  const [server, at] = await start(`${root}fixtures/marian-untied`);
  await page.goto(at);
  await expect(page.locator("#verdict")).toContainText("There is no run yet.", { timeout: 60_000 });
  await page.locator("#source").fill("A dog.");
  await page.getByRole("button", { name: "run", exact: true }).click();
  const alert = page.locator("#live [role=alert]");
  await expect(alert).toContainText("tokenizer.json");
  await expect(alert).toContainText("start the server again");
  await expect(alert).not.toContainText("--");
  await end(server);
});

test("a cell whose arithmetic does not come says why, where it would stand", async ({ page }) => {
  await page.goto(address);
  await page.locator("#source").fill("A dog sleeps.");
  await page.getByRole("button", { name: "run", exact: true }).click();
  await expect(page.locator("#live [role=status]")).toHaveText("done");
  // Scores are never in the page: they are asked for.
  await page.getByRole("button", { name: "scores", exact: true }).click();
  const refusal = { error: "too many requests wait already", help: "try again in a moment" };
  await page.route("**/api/v1/explain", (route) => route.fulfill({ status: 503, json: refusal }));
  await page.locator(".heat canvas").click();
  const alert = page.locator(".cell [role=alert]");
  await expect(alert).toContainText(
    "too many requests wait already; try again in a moment. Open the cell again.",
  );
  await page.waitForTimeout(2500);
  await expect(alert).toBeVisible();
  await page.unroute("**/api/v1/explain");
  await page.keyboard.press("Escape");
  await page.locator(".heat canvas").click();
  await expect(page.locator(".cell h4")).toContainText("cross_attn.scores[0, 0,");
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
    [413, ask("POST", "/api/v1/runs", JSON_HEADERS, JSON.stringify({ source: "a ".repeat(1 << 20) }))],
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

test("texts are bounded by tokens: what is run here, and the model's positions", async () => {
  test.setTimeout(120_000);
  const long = await ask(
    "POST",
    "/api/v1/runs",
    JSON_HEADERS,
    JSON.stringify({ source: "dog ".repeat(1100) }),
  );
  expect(long.status).toBe(413);
  const { error, help } = JSON.parse(long.body) as { error: string; help: string };
  expect(error).toMatch(
    /^the source has 110\d tokens; at most 1024 are run here, and the model's positions are computed, without a limit \(Hugging Face's table has 512\)$/,
  );
  expect(help).toContain("attnscope report");
  const target = JSON.stringify({ source: "A dog.", target: "Hund ".repeat(1100) });
  const other = await ask("POST", "/api/v1/runs", JSON_HEADERS, target);
  expect(other.status).toBe(413);
  expect(JSON.parse(other.body)).toMatchObject({
    error: expect.stringMatching(/^the target has 110\d tokens; /),
  });
  const model = `${shared}/models/gpt2-tiny-en`;
  if (!existsSync(model)) return console.log(`skipped: ${model} not found`);
  const { n_positions: most } = JSON.parse(readFileSync(`${model}/config.json`, "utf8")) as {
    n_positions: number;
  };
  const [small, at] = await start(model);
  const prompt = JSON.stringify({ source: "dog ".repeat(most + 5) });
  const past = await ask("POST", "/api/v1/runs", JSON_HEADERS, prompt, at);
  expect(past.status).toBe(413);
  const words = (JSON.parse(past.body) as { error: string }).error;
  expect(words).toMatch(
    /^the prompt has \d+ tokens; at most 1024 are run here, and the model's position table has \d+$/,
  );
  expect(words).toContain(`table has ${most}`);
  await end(small);
});

test("a recording is uploaded to an audio model; its first bytes alone and a text are refused", async ({
  page,
}) => {
  test.setTimeout(120_000);
  const [whisper, at] = await start(`${root}fixtures/whisper`);
  const tone = readFileSync(`${root}fixtures/audio/tone.wav`);
  const bytes = { "content-type": "application/octet-stream", "x-attnscope": "1" };
  await page.goto(at);
  // It reads recordings, so that there is no field for a source.
  await expect(page.locator("#source")).toHaveCount(0);
  const status = page.locator("#live [role=status]");
  const upload = async (name: string, buffer: Buffer) => {
    await page.locator("#audio").setInputFiles({ name, mimeType: "audio/wav", buffer });
    await page.getByRole("button", { name: "run", exact: true }).click();
  };
  await upload("tone.wav", tone);
  await expect(status).toContainText("done; a link to this page has the name of the recording");
  expect(page.url()).toContain("recording=tone.wav");
  await expect(page.locator("dl.input")).toContainText(/a recording of \d\.\d s/);
  await expect(page.locator(".spectrogram")).toBeVisible();
  await page.locator(".heat canvas").click();
  await expect(page.locator(".cell h4")).toContainText("cross_attn.weights[0, 0,");
  // The run is that of the command line.
  const answer = await ask("POST", "/api/v1/runs", bytes, tone, at);
  const run = last(answer).run as unknown as { trace: { nodes: { path: string; stats: unknown }[] } };
  const traced = JSON.parse(
    attnscope([
      "trace",
      `${root}fixtures/whisper`,
      "--audio",
      `${root}fixtures/audio/tone.wav`,
      "--format",
      "json",
      "--quiet",
    ]),
  ) as { snapshots: { node: string; stats: unknown }[] };
  const stop = traced.snapshots.find((one) => one.node === "logits")!;
  expect(run.trace.nodes.find((node) => node.path === "logits")?.stats).toEqual(stop.stats);
  for (const [name, body] of [
    ["30 bytes of a wav", tone.subarray(0, 30)],
    ["a header alone", readFileSync(`${root}fixtures/audio/tone.flac`).subarray(0, 60)],
  ] as const) {
    const refused = await ask("POST", "/api/v1/runs", bytes, body, at);
    expect(last(refused).error, name).toContain("the recording");
    expect(refused.body, name).not.toMatch(/\/tmp\//);
  }
  const alert = page.locator("#live [role=alert]");
  await upload("tone.wav", tone.subarray(0, 30));
  await expect(alert).toContainText("the recording");
  await upload("diary.wav", Buffer.from("Dear diary, this is no audio."));
  await expect(alert).toContainText("expected a recording (wav, flac, mp3)");
  await end(whisper);
});

/** A request whose body never comes: what was answered, and after how long. */
function askWithoutBody(length: number): Promise<{ head: string; after: number; socket: Socket }> {
  const { port, host } = new URL(address);
  const start = performance.now();
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), "127.0.0.1", () =>
      socket.write(
        `POST /api/v1/runs HTTP/1.1\r\nHost: ${host}\r\nX-Attnscope: 1\r\nContent-Type: application/octet-stream\r\nContent-Length: ${length}\r\n\r\n`,
      ),
    );
    socket.on("error", reject);
    socket.once("data", (data: Buffer) =>
      resolve({ head: data.toString(), after: performance.now() - start, socket }),
    );
  });
}

test("a body is not read where there is no place for its run, or it is too long", async () => {
  test.setTimeout(240_000);
  const large = await askWithoutBody(50 << 20);
  expect(large.head).toMatch(/^HTTP\/1\.1 413 /);
  expect(large.head).toContain("32768 KiB of a recording");
  large.socket.destroy();
  // 64 requests that begin and never go on have all places, for 30 seconds.
  const waiting = Array.from({ length: 64 }, () => askWithoutBody(30 << 20));
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const turned = await askWithoutBody(30 << 20);
  expect(turned.head).toMatch(/^HTTP\/1\.1 503 /);
  // By what runs took lately, and never at once.
  expect(turned.head.toLowerCase()).toMatch(/retry-after: [1-9]/);
  expect(turned.after).toBeLessThan(5000);
  turned.socket.destroy();
  // A client that sends all of it is told the same.
  const sent = await ask(
    "POST",
    "/api/v1/runs",
    { "content-type": "application/octet-stream", "x-attnscope": "1" },
    Buffer.alloc(30 << 20),
  );
  expect(sent.status).toBe(503);
  for (const { head, after, socket } of await Promise.all(waiting)) {
    expect(head).toMatch(/^HTTP\/1\.1 408 /);
    expect(after).toBeGreaterThan(25_000);
    socket.destroy();
  }
  const answer = await ask(
    "POST",
    "/api/v1/runs",
    JSON_HEADERS,
    JSON.stringify({ source: "A dog.", target: "Ein Hund." }),
  );
  expect(last(answer).run).toBeTruthy();
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
  // Another program's page on this machine.
  expect(
    (await ask("POST", "/api/v1/runs", { ...JSON_HEADERS, origin: "http://127.0.0.1:1" }, body)).status,
  ).toBe(403);
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
    expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0);
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

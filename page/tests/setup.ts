// Makes every report once.

import { existsSync, rmSync } from "node:fs";
import { attnscope, file, folder, prepare, REPORTS } from "./files.ts";

export default function setup(): void {
  rmSync(folder, { recursive: true, force: true });
  prepare();
  attnscope(["train", "toy", "--out", `${folder}/trained`, "--quiet", "--format", "json"]);
  attnscope(["trace", "toy", "--save", `${folder}/toy-trace`, "--quiet"]);
  for (const { name, args, needs } of REPORTS) {
    if (needs && !existsSync(needs)) {
      console.log(`skipped: ${needs} not found`);
      continue;
    }
    attnscope([...args, "--output", file(name), "--quiet"]);
  }
}

// The binary, and the reports that it makes for the tests.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));
export const folder = `${root}page/.reports`;
export const binary = process.env["ATTNSCOPE"] ?? `${root}target/debug/attnscope`;

/** Texts that a page must show and not obey. */
export const HOSTILE =
  '<img src=x onerror="window.hacked=1"> </script><script>window.hacked=1</script> שלום \u202eabc 👩‍👩‍👧 \u0007bell {{7*7}}';

export interface Made {
  name: string;
  args: string[];
  /** A file or folder without which it is not made. */
  needs?: string;
}

const tiny = `${root}fixtures/tiny-transformer`;
export const shared = process.env["ATTNSCOPE_SHARED"] ?? `${root}../shared`;

export const REPORTS: Made[] = [
  { name: "demo", args: ["report", "demo", "--src", "Two dogs play in the snow."] },
  { name: "hostile", args: ["report", "toy", "--src", HOSTILE, "--tgt", "<b>x</b> y"] },
  {
    name: "long",
    args: ["report", "demo", "--src", "a dog ".repeat(2000), "--tgt", "Ein Hund.", "--repair-time", "0"],
  },
  { name: "decoder", args: ["report", `${root}fixtures/gpt2`, "--tgt-ids", "1,2,3,4,5,6"] },
  {
    name: "classifier",
    args: [
      "report",
      `${root}fixtures/bert-classifier`,
      "--src-ids",
      "5,9,17,30,8,22,2",
      "--repair-time",
      "0",
    ],
  },
  {
    name: "one-layer",
    args: ["report", `${root}fixtures/classifiers/attention`, "--src-ids", "5,6,7,8", "--repair-time", "0"],
  },
  { name: "encoder", args: ["report", `${root}fixtures/bert`, "--src-ids", "1,2,3,4,5,6"] },
  {
    name: "diff",
    args: [
      "report",
      `${tiny}/tiny.pt`,
      "--heads",
      "4",
      "--src-ids",
      "3,2,0,1,5,4;1,1,4,0,2,5",
      "--tgt-ids",
      "4,0,1,3,2;2,2,4,1,0",
      "--diff",
      `${tiny}/trace_faulty.safetensors`,
      "--train",
      `${folder}/trained`,
    ],
  },
  {
    name: "same",
    args: ["report", "toy", "--diff", `${folder}/toy-trace`],
  },
  { name: "run-folder", args: ["report", `${folder}/trained`, "--src-ids", "1,2,3"] },
  {
    name: "padded",
    args: [
      "report",
      `${tiny}/tiny.pt`,
      "--heads",
      "4",
      "--src-ids",
      "3,2,0,1;1,1,4,0,2,5",
      "--tgt-ids",
      "4,0,1,3,2;2,2,4,1,0",
      "--repair-time",
      "0",
    ],
  },
  { name: "flow", args: ["flow", "demo", "--format", "html"] },
  {
    name: "whisper",
    needs: `${shared}/models/whisper-tiny.en/tiny.en.pt`,
    args: [
      "report",
      `${shared}/models/whisper-tiny.en/tiny.en.pt`,
      "--audio",
      `${shared}/data/audio/jfk.wav`,
      "--repair-time",
      "0",
    ],
  },
];

export function file(name: string): string {
  return `${folder}/${name}.html`;
}

export function made(name: string): boolean {
  return existsSync(file(name));
}

export function bytes(name: string): number {
  return statSync(file(name)).size;
}

export function attnscope(args: string[]): string {
  return execFileSync(binary, args, {
    encoding: "utf8",
    maxBuffer: 1 << 28,
    stdio: ["ignore", "pipe", "inherit"],
  });
}

export function prepare(): void {
  mkdirSync(folder, { recursive: true });
}

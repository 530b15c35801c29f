// Builds the page: one script and one style, minified, where the renderer embeds them.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const out = process.argv[2] ?? here("../crates/attnscope-render/page");

const common = { bundle: true, minify: true, charset: "utf8", legalComments: "none", logLevel: "warning" };
await build({
  ...common,
  entryPoints: [here("src/main.ts")],
  outfile: `${out}/page.js`,
  format: "iife",
  target: "es2022",
});

/** The rules of an `@dark` once for a system that asks for dark colours, and once for the switch. Paper stays light. */
function expandDark(css) {
  return css.replace(/^@dark \{\n(.*?)^\}\n/gms, (_, rules) => {
    const where = (root) => rules.replace(/^ {2}:root/gm, `  :root${root}`);
    const system = `@media screen and (prefers-color-scheme: dark) {\n${where(':not([data-theme="light"])')}}\n`;
    return `${system}@media screen {\n${where('[data-theme="dark"]')}}\n`;
  });
}
const style = expandDark(readFileSync(here("src/page.css"), "utf8"));
await build({ ...common, stdin: { contents: style, loader: "css" }, outfile: `${out}/page.css` });

// Builds the page: one script and one style, minified, where the renderer embeds them.
import { build } from "esbuild";
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
await build({ ...common, entryPoints: [here("src/page.css")], outfile: `${out}/page.css` });

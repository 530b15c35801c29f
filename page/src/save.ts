// Pictures and tables as files.

import { button, h, say } from "./dom.ts";

function download(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function fileName(name: string, ending: string): string {
  return `${name.replace(/[^A-Za-z0-9_.-]+/g, "-").slice(0, 80)}.${ending}`;
}

export function csv(rows: (string | number | null | undefined)[][]): string {
  const field = (x: string | number | null | undefined) => {
    let text = x === null || x === undefined ? "" : String(x);
    // A spreadsheet would take such a text for a formula.
    if (typeof x === "string" && /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)))
      text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

export function csvButton(name: string, rows: () => (string | number | null | undefined)[][]): HTMLElement {
  const save = () => download(fileName(name, "csv"), new Blob([csv(rows())], { type: "text/csv" }));
  return button("CSV", save, { class: "small", "aria-label": `save ${name} as CSV` });
}

/** A picture as SVG, and the same as PNG. */
export function pictureButtons(name: string, svg: () => SVGSVGElement | null): HTMLElement {
  const text = () => {
    const drawn = svg();
    return drawn ? new XMLSerializer().serializeToString(drawn) : null;
  };
  const saveSvg = () => {
    const drawn = text();
    if (drawn) download(fileName(name, "svg"), new Blob([drawn], { type: "image/svg+xml" }));
  };
  const savePng = () => {
    const drawn = svg();
    if (drawn) raster(drawn, (blob) => download(fileName(name, "png"), blob));
  };
  return h(
    "span",
    { class: "save" },
    button("PNG", savePng, { class: "small", "aria-label": `save ${name} as PNG` }),
    button("SVG", saveSvg, { class: "small", "aria-label": `save ${name} as SVG` }),
  );
}

function raster(svg: SVGSVGElement, give: (blob: Blob) => void): void {
  const [width, height] = [Number(svg.getAttribute("width")), Number(svg.getAttribute("height"))];
  const url = URL.createObjectURL(
    new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }),
  );
  const image = new Image();
  image.onload = () => {
    const scale = Math.min(2, 8000 / Math.max(width, height));
    const canvas = h("canvas", { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
    const context = canvas.getContext("2d");
    context?.scale(scale, scale);
    context?.drawImage(image, 0, 0, width, height);
    URL.revokeObjectURL(url);
    canvas.toBlob((blob) => (blob ? give(blob) : say("this browser cannot make a PNG: save it as SVG")));
  };
  image.onerror = () => say("this browser cannot make a PNG: save it as SVG");
  image.src = url;
}

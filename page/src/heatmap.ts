// A matrix on a canvas: baked once into an offscreen image, so that moving and zooming only copies pixels. Tokens stand along
// its sides in SVG, as many as are in view.

import { css, endsOf, LEFT_OUT, MAP, MASKED, NOT_FINITE } from "./colour.ts";
import { h, isolated, s, visible } from "./dom.ts";
import { isLeftOut, isMasked, type Matrix, tone } from "./matrix.ts";
import { hover, lock, onSelection, selected } from "./selection.ts";
import { on, set, state } from "./state.ts";
import type { Side } from "./types.ts";

/** The matrix as an image, a pixel a cell. Null in a browser without canvas. */
export function baked(matrix: Matrix, log: boolean): HTMLCanvasElement | null {
  const canvas = h("canvas", { width: Math.max(1, matrix.columns), height: Math.max(1, matrix.rows) });
  const context = canvas.getContext("2d");
  if (!context) return null;
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < matrix.rows * matrix.columns; i++) {
    const at = tone(matrix.values[i] as number, matrix, log);
    const colour = () => MAP[Math.round(Math.min(1, Math.max(0, at)) * 255)] as number;
    const apart = isMasked(matrix, i) ? MASKED : isLeftOut(matrix, i) ? LEFT_OUT : NOT_FINITE;
    pixels[i] = isMasked(matrix, i) || Number.isNaN(at) ? apart : colour();
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A token, or a token and the one that is predicted after it. */
export type Label = string[];

/** A label without elements, each token of it with its own direction. */
export function labelText(label: Label, each: (token: string) => string = visible): string {
  return label.map((token) => isolated(each(token))).join(" ⇒ ");
}

export interface Axes {
  rows: Label[];
  columns: Label[];
  rowSide: Side | null;
  columnSide: Side | null;
  rowTitle: string;
  columnTitle: string;
}

export interface Options {
  name: string;
  axes: Axes;
  log: boolean;
  /** What a cell is, in words. */
  tell: (row: number, column: number, value: number) => (Node | string)[];
  open?: (row: number, column: number) => void;
  /** Told which part of the columns is in view, from 0 to 1. */
  seen?: (from: number, to: number) => void;
}

/** How long a view must rest before it is written into the address, in milliseconds. */
const REST = 150;

export class Heatmap {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly left = s("svg", { class: "axis", "aria-hidden": "true" });
  private readonly top = s("svg", { class: "axis", "aria-hidden": "true" });
  private readonly told = h("p", { class: "told", role: "status" });
  private readonly image: HTMLCanvasElement | null;
  /** The first row and column in view, and pixels a cell. */
  private view = { x: 0, y: 0, across: 1, down: 1 };
  private cursor = { row: 0, column: 0 };
  private focused = false;
  private resting = 0;
  private readonly size: { width: number; height: number; left: number; top: number };

  constructor(
    private readonly matrix: Matrix,
    private readonly options: Options,
  ) {
    this.image = baked(matrix, options.log);
    this.size = this.room();
    const { width, height } = this.size;
    this.canvas = h("canvas", {
      width: Math.round(width * devicePixelRatio),
      height: Math.round(height * devicePixelRatio),
      tabindex: 0,
      role: "application",
      "aria-roledescription": "matrix",
      "aria-label": `${options.name}: ${matrix.rows} rows, ${matrix.columns} columns. Arrow keys move, Enter opens a cell, L locks its tokens, plus and minus zoom.`,
    });
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const grid = h("div", { class: "heat" }, h("span", {}), this.top, this.left, this.canvas);
    grid.style.gridTemplateColumns = `${this.size.left}px ${width}px`;
    const plain = this.image
      ? null
      : h("p", { class: "warning" }, "This browser has no canvas: the table below has the values.");
    const { rowTitle, columnTitle } = options.axes;
    const titles = h("p", { class: "axis-titles muted" }, `↓ ${rowTitle}, → ${columnTitle}`);
    this.element = h(
      "div",
      { class: "heatmap" },
      plain ?? titles,
      plain ? null : grid,
      plain ? null : this.told,
    );
    on(["zoom"], () => this.restore());
    this.listen();
    onSelection(() => this.draw());
  }

  /** Pixels for the matrix and its labels. */
  private room(): { width: number; height: number; left: number; top: number } {
    const longest = (labels: Label[]) => {
      const lengths = labels.slice(0, 400).map((label) => Math.min(20, label.join(" ⇒ ").length));
      return Math.min(130, 14 + 7 * Math.max(1, ...lengths));
    };
    const { rows, columns } = this.matrix;
    const across = Math.min(720, Math.max(160, innerWidth - 2 * 24 - longest(this.options.axes.rows)));
    const each = Math.max(1, Math.min(34, across / columns, 560 / rows));
    const width = Math.round(
      Math.max(120, Math.min(across, columns * (columns > 60 ? across / columns : each))),
    );
    const height = Math.round(
      Math.max(100, Math.min(560, rows * (rows > 60 ? 560 / rows : Math.max(each, 14)))),
    );
    return {
      width,
      height,
      left: longest(this.options.axes.rows),
      top: Math.round(longest(this.options.axes.columns) * 0.75),
    };
  }

  /** Where the columns are, for what belongs under them. */
  get columns(): { left: number; width: number } {
    return { left: this.size.left, width: this.size.width };
  }

  /** Shows all of it. */
  whole(): void {
    this.see(0, 0, this.matrix.columns, this.matrix.rows);
    this.remember();
  }

  private see(x: number, y: number, columns: number, rows: number): void {
    this.view = { x, y, across: this.size.width / columns, down: this.size.height / rows };
    this.draw();
  }

  /** Shows what the address says. */
  private restore(): void {
    const { rows, columns } = this.matrix;
    const given = state.zoom.split(" ").map(Number);
    const [x, y, across, down] = given as [number, number, number, number];
    const isView = given.length === 4 && given.every(Number.isFinite) && across > 0 && down > 0;
    if (isView) this.see(x, y, Math.min(columns, across), Math.min(rows, down));
    else this.see(0, 0, columns, rows);
  }

  /** Writes into the address what is in view, once it rests. */
  private remember(): void {
    clearTimeout(this.resting);
    this.resting = window.setTimeout(() => {
      if (!this.element.isConnected) return;
      const { view, size, matrix } = this;
      const [columns, rows] = [size.width / view.across, size.height / view.down];
      const isWhole = columns > matrix.columns - 0.01 && rows > matrix.rows - 0.01;
      const cells = [view.x, view.y, columns, rows].map((n) => Number(n.toFixed(2)));
      set({ zoom: isWhole ? "" : cells.join(" ") });
    }, REST);
  }

  private listen(): void {
    const at = (event: PointerEvent | MouseEvent | WheelEvent) => {
      const box = this.canvas.getBoundingClientRect();
      const scale = this.size.width / Math.max(1, box.width);
      return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
    };
    let drag: { x: number; y: number; from: { x: number; y: number }; moved: boolean } | null = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      drag = { ...at(event), from: { x: this.view.x, y: this.view.y }, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const point = at(event);
      if (drag && Math.hypot(point.x - drag.x, point.y - drag.y) > 4) drag.moved = true;
      if (drag?.moved) {
        this.view.x = drag.from.x - (point.x - drag.x) / this.view.across;
        this.view.y = drag.from.y - (point.y - drag.y) / this.view.down;
        this.draw();
        this.remember();
        return;
      }
      this.point(
        Math.floor(this.view.y + point.y / this.view.down),
        Math.floor(this.view.x + point.x / this.view.across),
      );
    });
    this.canvas.addEventListener("pointerup", () => {
      if (drag && !drag.moved) this.options.open?.(this.cursor.row, this.cursor.column);
      drag = null;
    });
    this.canvas.addEventListener("pointerleave", () => hover(null));
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        // A plain wheel scrolls the page; with Ctrl, as a pinch sends it, it zooms.
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY / 300), at(event));
      },
      { passive: false },
    );
    this.canvas.addEventListener("focus", () => {
      this.focused = true;
      this.point(this.cursor.row, this.cursor.column);
    });
    this.canvas.addEventListener("blur", () => {
      this.focused = false;
      hover(null);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const step = event.shiftKey ? 10 : 1;
    const { row, column } = this.cursor;
    const middle = { x: this.size.width / 2, y: this.size.height / 2 };
    const acts: Record<string, () => void> = {
      ArrowUp: () => this.point(row - step, column),
      ArrowDown: () => this.point(row + step, column),
      ArrowLeft: () => this.point(row, column - step),
      ArrowRight: () => this.point(row, column + step),
      Home: () => this.point(row, 0),
      End: () => this.point(row, this.matrix.columns - 1),
      Enter: () => this.options.open?.(row, column),
      l: () => this.lockBoth(),
      "+": () => this.zoom(1.5, middle),
      "-": () => this.zoom(1 / 1.5, middle),
      "0": () => this.whole(),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  private lockBoth(): void {
    const { rowSide, columnSide } = this.options.axes;
    const { matrix, cursor } = this;
    if (rowSide) lock(rowSide, matrix.firstQuery + cursor.row * matrix.queriesARow);
    if (columnSide) lock(columnSide, matrix.firstKey + cursor.column * matrix.keysAColumn);
  }

  zoom(by: number, at = { x: this.size.width / 2, y: this.size.height / 2 }): void {
    const { view, matrix, size } = this;
    const [x, y] = [view.x + at.x / view.across, view.y + at.y / view.down];
    const least = { across: size.width / matrix.columns, down: size.height / matrix.rows };
    view.across = Math.min(60, Math.max(least.across, view.across * by));
    view.down = Math.min(60, Math.max(least.down, view.down * by));
    view.x = x - at.x / view.across;
    view.y = y - at.y / view.down;
    this.draw();
    this.remember();
  }

  /** Points at a cell: its words, and its tokens everywhere. */
  private point(row: number, column: number): void {
    const { matrix } = this;
    row = Math.min(matrix.rows - 1, Math.max(0, row));
    column = Math.min(matrix.columns - 1, Math.max(0, column));
    this.cursor = { row, column };
    // What the keyboard points at stays in view.
    const { view, size } = this;
    const before = { x: view.x, y: view.y };
    view.x = Math.min(column, Math.max(view.x, column + 1 - size.width / view.across));
    view.y = Math.min(row, Math.max(view.y, row + 1 - size.height / view.down));
    if (view.x !== before.x || view.y !== before.y) this.remember();
    const value = matrix.values[row * matrix.columns + column] as number;
    this.told.replaceChildren(...this.options.tell(row, column, value));
    const { rowSide } = this.options.axes;
    if (rowSide) hover({ side: rowSide, at: matrix.firstQuery + row * matrix.queriesARow });
    this.draw();
  }

  draw(): void {
    const context = this.canvas.getContext("2d");
    if (!context || !this.image) return;
    const { view, matrix, size } = this;
    view.x = Math.max(0, Math.min(view.x, matrix.columns - size.width / view.across));
    view.y = Math.max(0, Math.min(view.y, matrix.rows - size.height / view.down));
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    // Shrunk cells are smoothed, enlarged ones keep their edges.
    context.imageSmoothingEnabled = view.across < 1 || view.down < 1;
    context.clearRect(0, 0, size.width, size.height);
    context.drawImage(
      this.image,
      view.x,
      view.y,
      size.width / view.across,
      size.height / view.down,
      0,
      0,
      size.width,
      size.height,
    );
    this.outline(context);
    this.axis(this.left, "left");
    this.axis(this.top, "top");
    const { columns } = matrix;
    this.options.seen?.(view.x / columns, (view.x + size.width / view.across) / columns);
  }

  private outline(context: CanvasRenderingContext2D): void {
    const { view, size, options, matrix } = this;
    context.lineWidth = 2;
    context.strokeStyle = "#ff7f0e";
    const band = (x: number, y: number, across: number, down: number) => {
      context.strokeRect(x + 1, y + 1, Math.max(2, across) - 2, Math.max(2, down) - 2);
    };
    for (const at of options.axes.rowSide ? selected(options.axes.rowSide) : []) {
      const row = Math.floor((at - matrix.firstQuery) / matrix.queriesARow);
      band(0, (row - view.y) * view.down, size.width, view.down);
    }
    for (const at of options.axes.columnSide ? selected(options.axes.columnSide) : []) {
      const column = Math.floor((at - matrix.firstKey) / matrix.keysAColumn);
      band((column - view.x) * view.across, 0, view.across, size.height);
    }
    if (this.focused) {
      context.strokeStyle = "#ffffff";
      context.lineWidth = 3;
      band(
        (this.cursor.column - view.x) * view.across,
        (this.cursor.row - view.y) * view.down,
        view.across,
        view.down,
      );
    }
  }

  private axis(svg: SVGSVGElement, where: "left" | "top"): void {
    const { view, size, options, matrix } = this;
    const isLeft = where === "left";
    const [texts, each, from, room, first] = isLeft
      ? [options.axes.rows, view.down, view.y, size.height, matrix.firstQuery]
      : [options.axes.columns, view.across, view.x, size.width, matrix.firstKey];
    svg.setAttribute("width", String(isLeft ? size.left : size.width));
    svg.setAttribute("height", String(isLeft ? size.height : size.top));
    // Labels that do not collide: every so many. Times and numbers need no neighbours to be read, tokens do.
    const side = isLeft ? options.axes.rowSide : options.axes.columnSide;
    const apart = side ? (isLeft ? 12 : 16) : isLeft ? 24 : 40;
    const every = Math.max(1, Math.ceil(apart / each));
    const chosen = side ? selected(side) : [];
    const labels: SVGElement[] = [];
    for (let i = Math.ceil(from / every) * every; i < texts.length && (i - from) * each < room; i += every) {
      const middle = (i + 0.5 - from) * each;
      const place = isLeft
        ? { x: size.left - 4, y: middle + 4, "text-anchor": "end" }
        : { transform: `translate(${middle + 3} ${size.top - 4}) rotate(-50)` };
      const text = s(
        "text",
        { ...place, class: chosen.includes(i + first) ? "selected" : null },
        short(texts[i] as Label),
      );
      text.append(s("title", {}, labelText(texts[i] as Label)));
      labels.push(text);
    }
    svg.replaceChildren(...labels);
  }

  /** The whole picture as SVG, for a file. */
  svg(): SVGSVGElement | null {
    if (!this.image) return null;
    const { matrix, options } = this;
    const each = Math.max(2, Math.min(24, Math.floor(1200 / Math.max(matrix.columns, matrix.rows))));
    const [left, top] = [this.size.left + 10, this.size.top + 30];
    const [width, height] = [left + matrix.columns * each + 20, top + matrix.rows * each + 40];
    const labels: SVGElement[] = [];
    const every = Math.ceil(12 / each);
    options.axes.rows.forEach((text, i) => {
      if (i % every === 0)
        labels.push(
          s("text", { x: left - 4, y: top + (i + 0.5) * each + 4, "text-anchor": "end" }, short(text)),
        );
    });
    options.axes.columns.forEach((text, i) => {
      if (i % every === 0)
        labels.push(
          s(
            "text",
            { transform: `translate(${left + (i + 0.5) * each + 3} ${top - 4}) rotate(-50)` },
            short(text),
          ),
        );
    });
    const stops = [0, 0.25, 0.5, 0.75, 1].map((at) => s("stop", { offset: at, "stop-color": css(at) }));
    const { least, most, how } = endsOf(matrix.low, matrix.high, options.log);
    const bottom = height - 22;
    return s(
      "svg",
      {
        xmlns: "http://www.w3.org/2000/svg",
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        "font-family": "sans-serif",
        "font-size": 11,
      },
      s("title", {}, visible(options.name)),
      s("defs", {}, s("linearGradient", { id: "colours" }, ...stops)),
      s("rect", { width, height, fill: "#ffffff" }),
      s("text", { x: 8, y: 18, "font-size": 13, "font-weight": 600 }, visible(options.name)),
      ...labels,
      s("image", {
        href: this.image.toDataURL(),
        x: left,
        y: top,
        width: matrix.columns * each,
        height: matrix.rows * each,
        preserveAspectRatio: "none",
        "image-rendering": "pixelated",
      }),
      s("text", { x: left, y: bottom + 10, "text-anchor": "end" }, `${least} `),
      s("rect", { x: left + 4, y: bottom, width: 120, height: 12, fill: "url(#colours)" }),
      s("text", { x: left + 130, y: bottom + 10 }, `${most}${how ? ` (${how})` : ""}`),
    );
  }
}

/** A label of at most 16 letters. */
export function short(label: Label): string {
  const most = label.length > 1 ? 7 : 16;
  return labelText(label, (token) => {
    const letters = [...visible(token)];
    return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
  });
}

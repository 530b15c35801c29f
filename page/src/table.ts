// Tables, which can be saved.

import { h, visible } from "./dom.ts";
import { csvButton } from "./save.ts";

export interface Column<Row> {
  title: string;
  /** What is shown. */
  cell: (row: Row) => Node | string;
  /** What is saved; what is shown, where it is a text. A column of pictures is not saved. */
  value?: ((row: Row) => string | number | null | undefined) | null;
  numeric?: boolean;
  /** Names the row. */
  head?: boolean;
}

export function table<Row>(
  name: string,
  columns: Column<Row>[],
  rows: Row[],
  mark?: (row: Row, element: HTMLTableRowElement) => void,
): HTMLElement {
  const text = (column: Column<Row>, row: Row) => {
    if (column.value) return column.value(row);
    const cell = column.cell(row);
    return typeof cell === "string" ? cell : cell.textContent;
  };
  const line = (row: Row) => {
    const cell = (column: Column<Row>) => {
      const content = column.cell(row);
      const shown = typeof content === "string" ? visible(content) : content;
      return column.head
        ? h("th", { scope: "row" }, shown)
        : h("td", { class: column.numeric ? "number" : null }, shown);
    };
    const element = h("tr", {}, ...columns.map(cell));
    mark?.(row, element);
    return element;
  };
  const head = h(
    "tr",
    {},
    ...columns.map((column) =>
      h("th", { scope: "col", class: column.numeric ? "number" : null }, column.title),
    ),
  );
  const saved = columns.filter((column) => column.value !== null);
  return h(
    "div",
    { class: "table" },
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": name },
      h(
        "table",
        {},
        h("caption", { class: "hidden" }, name),
        h("thead", {}, head),
        h("tbody", {}, ...rows.map(line)),
      ),
    ),
    csvButton(name, () => [
      saved.map((column) => column.title),
      ...rows.map((row) => saved.map((column) => text(column, row))),
    ]),
  );
}

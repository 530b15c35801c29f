// Elements. Texts of a model or a user only ever become text nodes, never markup.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | EventListener | null | undefined>;

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.filter(
      (child): child is Node | string => child !== null && child !== undefined && child !== false,
    ),
  );
  return element;
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

export function button(label: string, act: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return h("button", { type: "button", onclick: act, ...attributes }, label);
}

/** Control characters have no shape: their pictures stand for them. What would turn the reading direction is shown, too. */
export function visible(text: string): string {
  const picture = (c: string) => {
    const code = c.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "\u2421" : `\\u{${code.toString(16)}}`;
  };
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    picture,
  );
}

/** A text that keeps its own direction. */
export function own(text: string): HTMLElement {
  return h("bdi", {}, visible(text));
}

/** Several texts in a row, each with its own direction: tokens of languages that are written from right to left stay apart. */
export function apart(texts: string[], between = " "): (HTMLElement | string)[] {
  return texts.flatMap((text, i) => (i === 0 ? [own(text)] : [between, own(text)]));
}

/** The same where there are no elements: a title, a label in SVG. Marks of direction in the text itself were made visible. */
export function isolated(text: string): string {
  return `\u2068${text}\u2069`;
}

/** `1 layer`, `2 layers`. */
export function counted(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function number(x: number | null | undefined, digits = 4): string {
  if (x === null || x === undefined) return "–";
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text = size < 1e-3 || size >= 1e6 ? x.toExponential(2) : String(Number(x.toPrecision(digits)));
  return text.replace("-", "−");
}

export function shape(of: (number | null)[] | null | undefined, dims?: string[]): string {
  if (!of) return dims ? `(${dims.join(", ")})` : "–";
  return `(${of.map((n, i) => n ?? dims?.[i] ?? "?").join(", ")})`;
}

let said: HTMLElement | undefined;
let timer = 0;

/** Tells everybody: a line at the bottom, which a screen reader reads out. */
export function say(text: string): void {
  said ??= document.body.appendChild(h("p", { id: "said", role: "status" }));
  said.textContent = visible(text);
  said.classList.add("on");
  clearTimeout(timer);
  timer = window.setTimeout(() => said?.classList.remove("on"), 2000);
}

/** Copies a text. A page opened from disk may have no clipboard; the text is then at least shown. */
export function copy(text: string): void {
  if (navigator.clipboard)
    navigator.clipboard.writeText(text).then(
      () => say(`copied ${text}`),
      () => say(text),
    );
  else say(text);
}

export function copyButton(text: string): HTMLButtonElement {
  return button("copy", () => copy(text), { class: "small", "aria-label": `copy ${text}` });
}

/** The same as a small picture, where there are many. */
export function copyIcon(text: string): HTMLButtonElement {
  const sheet = (x: number, y: number) => s("rect", { x, y, width: 8, height: 9, rx: 1.5 });
  const attributes = { width: 14, height: 14, viewBox: "0 0 14 14", class: "icon", "aria-hidden": "true" };
  const icon = s("svg", attributes, sheet(1.5, 1.5), sheet(4.5, 3.5));
  const act = () => copy(text);
  return h(
    "button",
    { type: "button", class: "small", onclick: act, "aria-label": `copy ${text}`, title: "copy" },
    icon,
  );
}

/** A choice among a few words, one of which is pressed. */
export function choice<T extends string>(
  label: string,
  options: readonly { value: T; label: string; disabled?: boolean; title?: string }[],
  current: () => T,
  choose: (value: T) => void,
): { element: HTMLElement; refresh: () => void } {
  const buttons = options.map((option) =>
    button(option.label, () => choose(option.value), { "data-value": option.value, title: option.title }),
  );
  const refresh = () => {
    options.forEach((option, i) => {
      const element = buttons[i] as HTMLButtonElement;
      element.setAttribute("aria-pressed", String(option.value === current()));
      element.disabled = option.disabled ?? false;
    });
  };
  refresh();
  return { element: h("div", { class: "choice", role: "group", "aria-label": label }, ...buttons), refresh };
}

export function select(
  label: string,
  options: [string, string][],
  value: string,
  choose: (value: string) => void,
): HTMLElement {
  const element = h(
    "select",
    { "aria-label": label },
    ...options.map(([v, text]) => h("option", { value: v }, text)),
  );
  element.value = value;
  element.addEventListener("change", () => choose(element.value));
  return h("label", { class: "select" }, `${label} `, element);
}

// Small pieces of the page. Texts of items are set as text, never as markup.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const kbd = (key) => h("kbd", { ariaHidden: "true" }, key);

// A button gives the focus back after a click, so that the next key goes to the items and not to the button again.
export function button(text, { key, kind = "", label, disabled, onclick, title } = {}) {
  const click = (event) => {
    if (event.detail > 0) event.currentTarget.blur();
    onclick(event);
  };
  const properties = { type: "button", className: `button ${kind}`, disabled, title, onclick: click };
  if (label) properties["aria-label"] = label;
  if (key) properties["aria-keyshortcuts"] = { "⏎": "Enter", "⌫": "Backspace", "␣": "Space" }[key] ?? key;
  return h("button", properties, h("span", { className: "words" }, text), key ? kbd(key) : null);
}

// Replace the buttons of a toolbar; the one with the focus keeps it.
export function refill(toolbar, ...children) {
  const held = toolbar.contains(document.activeElement) ? document.activeElement.getAttribute("aria-keyshortcuts") : null;
  toolbar.replaceChildren(...children);
  if (held) [...toolbar.querySelectorAll("button:enabled")].find((one) => one.getAttribute("aria-keyshortcuts") === held)?.focus({ preventScroll: true });
}

// Change a text only where it differs: a change costs a layout.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const number = (value) => value.toLocaleString("en");
export const percent = (share) => `${Math.round(100 * share)} %`;
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
export const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "0"];

// Small pictures are loaded two at a time: browsers have six connections to a server, and a decision must find one free.
const MOST_LOADING = 2;
const waiting = [];
let loading = 0;

function loadInTurn(image, address) {
  if (loading < MOST_LOADING) begin(image, address);
  else waiting.push([image, address]);
}

function begin(image, address) {
  const done = () => {
    loading -= 1;
    while (loading < MOST_LOADING && waiting.length) {
      const [next, at] = waiting.shift();
      if (next.isConnected) begin(next, at); // else it is no longer shown
    }
  };
  loading += 1;
  image.onload = image.onerror = done;
  image.src = address;
}

// An item as it stands in a grid or beside another: picture, text or name.
export function face(store, row, { size = "small" } = {}) {
  const { kind, names, texts } = store.items;
  if (kind === "images") {
    const image = h("img", { alt: "", decoding: "async", draggable: false });
    if (size === "small") loadInTurn(image, `picture/${size}/${row}`);
    else image.src = `picture/${size}/${row}`;
    return image;
  }
  if (kind === "texts") return h("p", { className: "text" }, texts[row]);
  return h("p", { className: "number" }, names[row]);
}

let timer = 0;
export function say(text, action) {
  const told = document.getElementById("told");
  told.replaceChildren(h("span", {}, text));
  if (action) told.append(action);
  told.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => (told.hidden = true), 4000);
}

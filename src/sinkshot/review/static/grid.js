// A grid of any number of items: only the lines in sight are in the document.
//
// A listbox for assistive technology: the list has the focus, the current item is its active descendant. Headings are
// beside the list, since a listbox holds options only.

import { h, percent } from "./parts.js";
import { ACCEPTED, GIVEN } from "./store.js";

const SHAPES = {
  images: { least: 128, height: (width) => width + 30 },
  texts: { least: 270, height: (_, texts) => (fewLines(texts) ? 100 : 148) },
  embeddings: { least: 150, height: () => 74 },
};
const GAP = 12;
const HEADING = 56;
const AHEAD = 2; // lines above and below what is in sight
const FAST = 1 / 3; // of the height in one frame: nobody can look at pictures then, so they are not asked for
const SETTLED = 100; // milliseconds after which they are

// Whether nearly all texts fit into two or three lines.
function fewLines(texts) {
  const long = texts.reduce((count, text) => count + (text.length > 100), 0);
  return long <= texts.length / 20;
}

export class Grid {
  // `about(row)` returns what a tile says: { mark, label }.
  constructor(store, { label, onchange, about = () => ({}) }) {
    this.store = store;
    this.about = about;
    this.onchange = onchange;
    this.list = h("div", { className: "list", role: "listbox", tabIndex: 0 });
    this.list.setAttribute("aria-label", label);
    this.list.setAttribute("aria-multiselectable", "true");
    this.inner = h("div", { className: "inner" }, this.list);
    this.element = h("div", { className: `grid ${store.items.kind}` }, this.inner);
    this.order = [];
    this.places = new Map(); // row -> its place in the order
    this.lines = []; // { top, height, from, to } or { top, height, heading }
    this.tiles = new Map(); // row -> element in the document
    this.spare = []; // tiles that left the sight, to be used again
    this.headings = new Map();
    this.selected = new Set();
    this.current = -1; // row
    this.anchor = -1;
    this.columns = 1;
    this.queued = false;
    this.seenAt = 0; // where the last frame was
    this.settling = 0;
    this.element.addEventListener("scroll", () => this.queue(), { passive: true });
    this.element.addEventListener("click", (event) => this.clicked(event));
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(this.element);
  }

  focus() {
    this.list.focus({ preventScroll: true });
  }

  destroy() {
    clearTimeout(this.settling);
    this.observer.disconnect();
  }

  // Show sections of rows; the current item keeps its place on the screen, or its neighbour takes it.
  show(sections) {
    const before = this.places.get(this.current) ?? 0;
    const offset = this.offset(this.current);
    this.sections = sections;
    this.order = sections.flatMap((section) => section.rows);
    this.places = new Map(this.order.map((row, place) => [row, place]));
    for (const row of this.selected) if (!this.places.has(row)) this.selected.delete(row);
    const stayed = this.places.has(this.current);
    if (!stayed) this.current = this.order[Math.min(before, this.order.length - 1)] ?? -1;
    if (!this.places.has(this.anchor)) this.anchor = this.current;
    this.layout();
    if (stayed && offset !== null && this.element.scrollTop > 0) this.element.scrollTop = this.top(this.current) - offset;
    this.render(true);
  }

  layout() {
    const shape = SHAPES[this.store.items.kind];
    const width = this.element.clientWidth || 800;
    this.columns = Math.max(1, Math.floor((width + GAP) / (Math.min(shape.least, width / 2 - GAP) + GAP)));
    if (this.store.items.kind !== "images" && width < 420) this.columns = 1;
    this.width = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.height = Math.round(shape.height(this.width, this.store.items.texts));
    this.lines = [];
    let top = 4;
    let place = 0;
    for (const section of this.sections ?? []) {
      if (section.heading) {
        this.lines.push({ top, height: HEADING, section });
        top += HEADING;
      }
      const end = place + section.rows.length;
      for (; place < end; place += this.columns) {
        const to = Math.min(place + this.columns, end);
        this.lines.push({ top, height: this.height, from: place, to });
        top += this.height + GAP;
      }
      place = end;
    }
    this.inner.style.height = `${top + 4}px`;
    this.inner.style.setProperty("--width", `${this.width}px`);
    this.inner.style.setProperty("--height", `${this.height}px`);
  }

  resized() {
    if (Math.abs((this.element.clientWidth || 0) - (this.laidOut ?? 0)) < 1) return this.queue();
    this.laidOut = this.element.clientWidth;
    const offset = this.offset(this.current);
    this.layout();
    if (offset !== null && this.element.scrollTop > 0) this.element.scrollTop = this.top(this.current) - offset;
    this.render(true);
  }

  queue() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.render(false);
    });
  }

  // The line that holds a height.
  lineAt(height) {
    let low = 0;
    let high = this.lines.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.lines[middle].top <= height) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  lineOf(place) {
    let low = 0;
    let high = this.lines.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const line = this.lines[middle];
      const from = line.section ? this.lines[middle + 1].from : line.from;
      if (line.section ? from <= place && middle + 1 <= high : from <= place) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  top(row) {
    return this.lines[this.lineOf(this.places.get(row))].top;
  }

  // Where a row stands on the screen, below the upper edge of the grid.
  offset(row) {
    return this.places.has(row) && this.lines.length ? this.top(row) - this.element.scrollTop : null;
  }

  // Whether the grid is scrolled so fast that only names are shown; pictures come once it slows down.
  isFast(top, height) {
    const fast = Math.abs(top - this.seenAt) > FAST * height;
    this.seenAt = top;
    if (!fast) return false;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.render(false), SETTLED);
    return true;
  }

  render(all) {
    const { scrollTop, clientHeight } = this.element;
    const fast = !all && this.isFast(scrollTop, clientHeight);
    const ahead = fast ? 0 : AHEAD;
    const first = Math.max(0, this.lineAt(scrollTop) - ahead);
    const last = Math.min(this.lines.length - 1, this.lineAt(scrollTop + clientHeight) + ahead);
    const wanted = new Map(); // row -> line and place
    const headings = new Set();
    const fresh = [];
    for (let at = first; at <= last; at++) {
      const line = this.lines[at];
      if (line.section) {
        headings.add(line.section.key);
        this.heading(line);
      } else for (let place = line.from; place < line.to; place++) wanted.set(this.order[place], [line, place]);
    }
    for (const [row, tile] of this.tiles) {
      if (wanted.has(row)) continue;
      this.spare.push(tile);
      this.tiles.delete(row);
    }
    for (const [row, [line, place]] of wanted) {
      let tile = this.tiles.get(row);
      if (tile && !fast) this.picture(tile, row);
      if (tile && !all) continue;
      if (!tile) {
        tile = this.spare.pop() ?? this.tile();
        this.fill(tile, row);
        if (!fast) this.picture(tile, row);
        this.tiles.set(row, tile);
        if (!tile.isConnected) fresh.push(tile);
      }
      this.put(tile, row, line.top, place - line.from, place);
    }
    for (const tile of this.spare) tile.remove();
    for (const [key, heading] of this.headings) {
      if (headings.has(key)) continue;
      heading.remove();
      this.headings.delete(key);
    }
    this.list.append(...fresh);
    if (this.tiles.has(this.current)) this.list.setAttribute("aria-activedescendant", `item-${this.current}`);
  }

  heading(line) {
    let heading = this.headings.get(line.section.key);
    if (!heading) {
      heading = h("div", { className: "heading" }, line.section.heading());
      this.headings.set(line.section.key, heading);
      this.inner.append(heading);
    }
    heading.style.transform = `translateY(${line.top}px)`;
  }

  // Texts of a tile are nodes that stay: to change one costs less than to replace it.
  tile() {
    const { kind } = this.store.items;
    const shown = kind === "images" ? h("img", { alt: "", decoding: "async", draggable: false }) : h("p", { className: kind === "texts" ? "text" : "number" });
    const [name, sure] = [new Text(), new Text()];
    const title = h("span", { className: "name" }, name);
    const bar = h("i");
    const tile = h("div", { className: "tile", role: "option" }, shown, h("div", { className: "caption" }, title, " ", h("span", { className: "sure" }, sure)), h("div", { className: "bar" }, bar), h("span", { className: "tick", ariaHidden: "true" }));
    tile.parts = { shown, title, name, sure, bar };
    const show = () => (shown.style.visibility = tile.pictured === Number(tile.dataset.row) ? "" : "hidden");
    if (kind === "images") shown.onload = shown.onerror = show;
    return tile;
  }

  // Have a tile show an item; the picture of the one before is hidden until its own is there.
  fill(tile, row) {
    const { kind, names, texts } = this.store.items;
    const { shown, title, name } = tile.parts;
    tile.id = `item-${row}`;
    tile.dataset.row = row;
    if (kind === "images") shown.style.visibility = "hidden";
    else shown.textContent = kind === "texts" ? texts[row] : names[row];
    name.data = names[row].split("/").at(-1);
    title.title = names[row];
  }

  picture(tile, row) {
    const { shown } = tile.parts;
    if (this.store.items.kind !== "images" || tile.pictured === row) return;
    tile.pictured = row;
    shown.style.visibility = "hidden";
    shown.src = `picture/small/${row}`;
  }

  put(tile, row, top, column, place) {
    const { state, items } = this.store;
    const { above, label } = this.about(row);
    const sure = state.sure[row] / 1000;
    tile.style.transform = `translate(${column * (this.width + GAP)}px, ${top}px)`;
    const decided = state.source[row] === ACCEPTED ? "accepted" : state.source[row] === GIVEN ? "given" : "";
    const said = label ?? this.store.className(state.label[row]);
    const selected = this.selected.has(row);
    tile.parts.sure.data = label ? label : decided || percent(sure);
    tile.parts.bar.style.transform = `scaleX(${sure})`;
    const kinds = `tile${above ? " above" : ""}${selected ? " selected" : ""}${row === this.current ? " current" : ""}`;
    if (tile.className !== kinds) tile.className = kinds;
    tile.setAttribute("aria-selected", selected);
    tile.setAttribute("aria-setsize", this.order.length);
    tile.setAttribute("aria-posinset", place + 1);
    const seen = `${items.kind === "texts" ? `${items.texts[row]} ` : ""}${tile.parts.name.data} ${tile.parts.sure.data}`;
    tile.setAttribute("aria-label", `${seen}, ${label ? decided || percent(sure) : said}`); // what is seen comes first
  }

  clicked(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const row = Number(tile.dataset.row);
    if (event.shiftKey && this.anchor >= 0) this.select(this.anchor, row);
    else {
      if (this.selected.has(row)) this.selected.delete(row);
      else this.selected.add(row);
      this.anchor = row;
    }
    this.current = row;
    this.changed();
  }

  // Select everything between two items.
  select(from, to) {
    const [low, high] = [this.places.get(from), this.places.get(to)].sort((a, b) => a - b);
    for (let place = low; place <= high; place++) this.selected.add(this.order[place]);
  }

  selectAll(rows = this.order) {
    for (const row of rows) this.selected.add(row);
    this.changed();
  }

  selectNone() {
    this.selected.clear();
    this.changed();
  }

  // Selected items in their order; without any, the current one.
  chosen() {
    if (this.selected.size) return this.order.filter((row) => this.selected.has(row));
    return this.current >= 0 ? [this.current] : [];
  }

  move(key, extend) {
    const place = this.places.get(this.current);
    if (place === undefined) return;
    let next = place;
    if (key === "ArrowLeft") next = place - 1;
    else if (key === "ArrowRight") next = place + 1;
    else next = this.vertical(place, key === "ArrowUp" ? -1 : 1);
    next = Math.min(Math.max(next, 0), this.order.length - 1);
    const from = this.current;
    this.current = this.order[next];
    if (extend) this.select(from, this.current);
    else this.anchor = this.current;
    this.reveal();
    this.changed();
  }

  vertical(place, step) {
    let line = this.lineOf(place);
    const column = place - this.lines[line].from;
    do line += step;
    while (this.lines[line]?.section);
    if (!this.lines[line]) return place;
    return Math.min(this.lines[line].from + column, this.lines[line].to - 1);
  }

  reveal() {
    const top = this.top(this.current);
    const { scrollTop, clientHeight } = this.element;
    if (top - 8 < scrollTop) this.element.scrollTop = top - HEADING;
    else if (top + this.height + 8 > scrollTop + clientHeight) this.element.scrollTop = top + this.height + 8 - clientHeight;
  }

  changed() {
    this.render(true);
    this.onchange();
  }
}

// What was decided, the newest first; any decision can be taken back.

import { button, h, plural } from "./parts.js";
import { ask, OUTSIDER_NAME } from "./store.js";

export class HistoryView {
  constructor(store) {
    this.store = store;
    this.list = h("ol", { className: "history" });
    this.more = h("p", {});
    this.element = h("section", { className: "view" },
      h("div", { className: "head" }, h("div", {}, h("p", { className: "eyebrow" }, "decisions.jsonl"), h("h1", {}, "History"), h("p", { className: "lead" }, "Every decision, the newest first."))),
      h("div", { className: "scroll", tabIndex: 0 }, this.list, this.more));
  }

  start() {
    this.update();
  }

  stop() {}

  async update() {
    if (this.store.waiting.length) return;
    const shown = await ask("history").catch(() => null);
    if (!shown) return;
    this.list.replaceChildren(...shown.map((one) => this.line(one)));
    if (!shown.length) this.list.replaceChildren(h("li", { className: "empty" }, "Nothing has been decided yet."));
    this.older(shown);
  }

  older(shown) {
    const last = shown.at(-1)?.number ?? 1;
    this.more.replaceChildren();
    if (last <= 1) return;
    this.more.append(button("Older", { onclick: async () => {
      const next = await ask(`history?before=${last}`).catch(() => []);
      this.list.append(...next.map((one) => this.line(one)));
      this.older(next);
    } }));
  }

  line(one) {
    const undoable = !one.undone && (one.kind === "label" || one.kind === "reject");
    return h("li", { className: one.undone ? "undone" : "" },
      h("time", { dateTime: one.time }, ...moment(new Date(one.time))),
      h("div", { className: "what" }, h("span", {}, words(one)), one.first.length ? h("small", {}, one.first.join(", ") + (one.count > 3 ? ", …" : "")) : null),
      undoable ? button("Undo", { kind: "small quiet", label: `Undo decision ${one.number}`, onclick: () => this.store.decide({ kind: "undo", of: one.number }) })
        : h("span", { className: "mark" }, one.undone ? "undone" : ""));
  }
}

// The time of a decision, below its date unless that is today's.
function moment(time) {
  const today = time.toDateString() === new Date().toDateString();
  const clock = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return today ? [clock] : [time.toLocaleDateString(), h("br"), clock];
}

export function words(one) {
  const items = plural(one.count, "item");
  if (one.kind === "undo") return `Undo of decision ${one.of}`;
  if (one.kind === "draw") return `Audit: ${items} drawn at random`;
  if (one.kind === "reject") return `${items}: not ${one.label}`;
  return `${items}: ${one.label === OUTSIDER_NAME ? "none of the classes" : one.label}`;
}

// The queues and classes with their numbers, and how far the review is.

import { h, number, percent, write } from "./parts.js";

export class Sidebar {
  constructor(store, element) {
    this.store = store;
    this.element = element;
    this.links = new Map();
    this.bar = h("div", { className: "progress", role: "img" });
    this.legend = h("dl", { className: "counts" });
    this.estimate = h("p", { className: "estimate" });
    this.queues = h("ul", {});
    this.classes = h("ul", { className: "class-list" });
    element.append(h("div", { className: "summary" }, this.bar, this.legend, this.estimate), h("h2", {}, "Queues"), this.queues, h("h2", {}, "Predicted classes"), this.classes);
  }

  update(address) {
    const { state } = this.store;
    const { counts, audit } = state;
    const kinds = [["given", counts.given], ["accepted", counts.accepted], ["predicted", counts.predicted], ["unknown", counts.unknown]];
    const name = (kind) => (kind === "unknown" && this.store.unpredicted ? "unlabelled" : kind);
    this.bar.setAttribute("aria-label", kinds.map(([kind, count]) => `${count} ${name(kind)}`).join(", "));
    sync(this.bar, kinds, ([kind]) => h("i", { className: kind }), (part, [, count]) => (part.style.flexGrow = count));
    sync(this.legend, kinds, ([kind]) => h("div", { className: kind }, h("dt", {}, kind), h("dd", {})), (part, [kind, count]) => {
      write(part.firstChild, name(kind));
      write(part.lastChild, number(count));
    });
    const audited = JSON.stringify([audit.answered, audit.accuracy, audit.drawn]);
    if (audited !== this.audited) this.estimate.replaceChildren(...estimate(audit));
    this.audited = audited;
    const queues = [
      ["doubtful", "Doubtful", counts.predicted],
      ["next", "Label next", state.next.filter((row) => state.source[row] === 0).length],
      ["unknown", "Unknown", this.store.unpredicted ? 0 : counts.unknown],
      ["suspicious", "Suspicious", state.suspicious.filter((one) => state.source[one.row] === 1).length],
      ["audit", "Audit", audit.open.length],
      ["history", "History", null],
    ];
    const link = ([where, text]) => h("li", {}, h("a", { href: `#/${where}` }, h("span", {}, text), h("b", {})));
    const fill = (part, [where, , count]) => {
      write(part.firstChild.lastChild, count === null ? "" : number(count));
      mark(part.firstChild, address === where);
    };
    sync(this.queues, queues, link, fill);
    const { open } = this.store.classCounts();
    const rows = state.classes.map((name, code) => [`class/${encodeURIComponent(name)}`, name, open[code]]);
    rows.sort((a, b) => a[1].localeCompare(b[1]));
    if (rows.map((row) => row[1]).join("\n") !== this.shown) this.classes.replaceChildren();
    this.shown = rows.map((row) => row[1]).join("\n");
    sync(this.classes, rows, link, fill);
  }
}

function estimate(audit) {
  if (!audit.answered) return [h("a", { href: "#/audit" }, "Estimate the accuracy"), " of what nobody has looked at."];
  const [low, high] = audit.interval;
  return [h("strong", {}, percent(audit.accuracy)), ` right of what nobody looked at (${percent(low)} to ${percent(high)}, ${audit.answered} of ${audit.drawn} drawn at random)`];
}

function mark(link, current) {
  if (current) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}

// Make as many children as there are entries, and fill each.
function sync(parent, entries, make, fill) {
  while (parent.children.length > entries.length) parent.lastChild.remove();
  entries.forEach((entry, index) => {
    if (index >= parent.children.length) parent.append(make(entry));
    fill(parent.children[index], entry);
  });
}

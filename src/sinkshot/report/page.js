// What a page gains by a script: sorting, searching, downloads, a theme switch, and closed parts that print. Without it,
// everything can still be read.
(() => {
  "use strict";
  const root = document.documentElement;
  const make = (tag, attributes, ...children) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  };
  const words = (element) => element.textContent.replace(/\s+/g, " ").trim();
  const plain = (text) => text.replace(/\u2212/g, "-").replace(/(\d),(?=\d{3})/g, "$1").trim();
  const fileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "sinkshot";

  // Theme: of the system, light or dark. A page opened from a file may have no storage.
  const remember = (theme) => { try { localStorage.setItem("sinkshot-theme", theme); } catch { /* for this view alone */ } };
  const remembered = () => { try { return localStorage.getItem("sinkshot-theme"); } catch { return null; } };
  const show = (theme) => { if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme; };
  const bar = document.querySelector(".bar");
  if (bar) {
    const choice = make("select", { name: "theme" });
    for (const theme of ["system", "light", "dark"]) choice.append(make("option", { value: theme, textContent: theme }));
    choice.value = remembered() || "system";
    show(choice.value);
    choice.addEventListener("change", () => { show(choice.value); remember(choice.value); });
    bar.append(make("label", { className: "theme" }, "Theme ", choice));
    const contents = bar.querySelector("details");
    contents.addEventListener("click", (event) => { if (event.target.closest("a")) contents.open = false; });
    document.addEventListener("click", (event) => { if (!contents.contains(event.target)) contents.open = false; });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") contents.open = false; });
  }

  const save = (name, type, content) => {
    const address = URL.createObjectURL(new Blob([content], { type }));
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };

  // Tables
  const headRow = (table) => table.tHead && table.tHead.rows[table.tHead.rows.length - 1];
  const dataRows = (body) => [...body.rows].filter((row) => !row.classList.contains("heading"));
  const measured = (cell) => plain(words(cell.querySelector(".here") || cell).replace(/\s*±.*/, ""));
  const value = (cell) => {
    const text = measured(cell);
    const number = parseFloat(text);
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const order = (a, b) => {
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1; // words and dashes after numbers
  };

  const sortable = (table) => {
    [...headRow(table).cells].forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = make("button", { type: "button", className: "sort", title: "Sort by this column" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") === "descending";
        for (const other of headRow(table).cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        for (const body of table.tBodies) {
          const rows = dataRows(body).map((row) => [value(row.cells[column]), row]);
          const numbers = rows.filter(([key]) => typeof key === "number").sort(([a], [b]) => (rising ? a - b : b - a));
          const others = rows.filter(([key]) => typeof key !== "number").sort(([a], [b]) => (rising ? order(b, a) : order(a, b)));
          for (const [, row] of [...numbers, ...others]) body.append(row);
        }
      });
    });
  };

  const searchable = (table, tools) => {
    const field = make("input", { type: "search", placeholder: "Search rows" });
    field.setAttribute("aria-label", "Search rows of this table");
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const body of table.tBodies) {
        let left = 0;
        for (const row of dataRows(body)) {
          const text = words(row).toLowerCase();
          row.hidden = !wanted.every((word) => text.includes(word));
          left += !row.hidden;
        }
        for (const row of body.querySelectorAll(".heading")) row.hidden = !left;
      }
    });
    tools.append(field);
  };

  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const parts = (cell) => {
    if (!cell.classList.contains("place")) return [plain(words(cell))];
    const of = (name) => { const part = cell.querySelector(name); return part ? plain(words(part)) : ""; };
    const [mean, width] = of(".here").split("±").map((text) => text.trim());
    return [mean || "", width || "", of(".paper").replace(/^(paper|time per episode) /, "")];
  };
  const csv = (table) => {
    const above = table.tHead.rows.length > 1 ? [...table.tHead.rows[0].cells].flatMap((cell) => Array(cell.colSpan).fill(words(cell))) : [];
    const heads = [...headRow(table).cells].flatMap((head, i) => {
      const title = [above[i], words(head.querySelector(".title") || head)].filter(Boolean).join(" ");
      const second = table.querySelector(".place time") ? "time per episode" : "paper";
      return head.classList.contains("place") ? [title, `${title} ci95`, `${title} ${second}`] : [title];
    });
    const lines = [["group", ...heads]];
    for (const body of table.tBodies) {
      const heading = body.querySelector(".heading");
      for (const row of dataRows(body)) lines.push([heading ? words(heading) : "", ...[...row.cells].flatMap(parts)]);
    }
    return lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  };

  for (const table of document.querySelectorAll("table.sheet, table.fine")) {
    const rows = [...table.tBodies].flatMap(dataRows).length;
    const name = fileName([table.closest("section")?.getAttribute("aria-labelledby"), table.caption && words(table.caption.querySelector("span") || table.caption).split(" measured here")[0]].filter(Boolean).join(" "));
    const tools = make("div", { className: "tools" });
    if (rows > 8) searchable(table, tools);
    const button = make("button", { type: "button", textContent: "CSV", title: "Download this table as CSV" });
    button.addEventListener("click", () => save(`${name}.csv`, "text/csv", csv(table)));
    tools.append(button);
    table.closest(".scroll").before(tools);
    if (rows > 2) sortable(table);
  }

  // Figures: drawings take their colours from the page, so a copy takes them along.
  const alone = (svg) => {
    const copy = svg.cloneNode(true);
    const style = getComputedStyle(root);
    const names = [...new Set([...copy.outerHTML.matchAll(/var\((--[a-z0-9-]+)/g)].map((found) => found[1]))];
    const rules = names.map((name) => `${name}: ${style.getPropertyValue(name).trim()};`).join(" ");
    copy.setAttribute("xmlns", svg.namespaceURI);
    const sheet = document.createElementNS(svg.namespaceURI, "style");
    sheet.textContent = `:root { ${rules} background: ${style.getPropertyValue("--paper")}; } text { font-family: sans-serif; }`;
    copy.prepend(sheet);
    return new XMLSerializer().serializeToString(copy);
  };
  for (const panel of document.querySelectorAll(".panel")) {
    const svg = panel.querySelector("svg");
    if (!svg) continue;
    const button = make("button", { type: "button", textContent: "SVG", title: "Download this figure as SVG" });
    const name = fileName(`${panel.closest("section")?.getAttribute("aria-labelledby") || ""} ${words(panel.querySelector("h3"))}`);
    button.addEventListener("click", () => save(`${name}.svg`, "image/svg+xml", alone(svg)));
    panel.append(make("div", { className: "tools" }, button));
  }

  // What is folded is printed too.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("main details:not([open])")];
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of closed) part.open = false; });
})();

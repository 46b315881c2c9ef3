// Filters, pages, and opens what a link points to. The page says everything without it: what is not on a
// list's first page waits in noscript elements behind it, as text that costs nothing until it is asked for.
"use strict";
document.documentElement.classList.add("js");
document.addEventListener("DOMContentLoaded", () => {
  const lists = new Map();

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function decoded(text) {
    const names = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: " " };
    return text.replace(/&(?:#(\d+)|(\w+));/g, (all, code, name) =>
      code ? String.fromCodePoint(Number(code)) : names[name] || all);
  }

  function setUp(list) {
    const size = Number(list.dataset.size), total = Number(list.dataset.total), noun = list.dataset.list;
    const items = [...list.children], words = [], waiting = [];
    for (let n = list.nextElementSibling; n && n.tagName === "NOSCRIPT"; n = n.nextElementSibling) waiting.push(n);
    let matching = null, page = 0, shown = [];

    // Items are elements, or their source until they are shown: thousands of pictures take seconds to parse.
    function upTo(count) {
      while (items.length < count && waiting.length) {
        const next = waiting.shift();
        items.push(...next.textContent.split("<!--,-->").slice(1, -1));
        next.remove();
      }
      return items;
    }
    function elementOf(index) {
      if (typeof items[index] === "string") {
        const parsed = document.createElement("template");
        parsed.innerHTML = items[index];
        items[index] = parsed.content.firstElementChild;
      }
      return items[index];
    }
    function says(index) {
      if (words[index] === undefined) {
        const item = items[index], source = typeof item === "string" ? item : item.outerHTML;
        const more = / data-t="([^"]*)"/.exec(source);
        words[index] = decoded(source.replace(/<[^>]*>/g, " ") + (more ? more[1] : "")).toLowerCase();
      }
      return words[index];
    }
    function is(index, attribute, value) {
      const item = items[index];
      return typeof item === "string" ? item.slice(0, item.indexOf(">")).includes(` ${attribute}="${value}"`)
        : item.getAttribute(attribute) === value;
    }
    function named(index) {
      const item = items[index], source = typeof item === "string" ? item : item.outerHTML;
      const found = /class="name"[^>]*>([^<]+)/.exec(source);
      return found ? decoded(found[1]) : "";
    }
    const indices = () => Object.keys(upTo(total)).map(Number);
    const place = (chosen) => {
      list.replaceChildren(...(shown = chosen.map(elementOf)));
      copyables(list);
      if (list.classList.contains("cards")) shown.forEach(linked);
    };
    if (total <= size && total < 10) {
      place(indices());
      return;
    }

    const search = element("input", { type: "search", placeholder: "Filter " + noun });
    search.setAttribute("aria-label", "Filter " + noun);
    const kinds = (list.dataset.kinds || "").split(" ").filter(Boolean);
    const kind = element("select", {}, new Option("all", ""), ...kinds.map((k) => new Option(k, k)));
    kind.setAttribute("aria-label", "Status");
    const back = element("button", { type: "button", textContent: "Previous" });
    const next = element("button", { type: "button", textContent: "Next" });
    const where = element("span", { role: "status" });
    const tools = element("div", { className: "tools" }, search);
    if (kinds.length > 1) tools.append(kind);
    const order = element("select", {}, new Option("As reported", ""), new Option("By name", "name"));
    order.setAttribute("aria-label", "Order");
    if (named(0)) tools.append(order);
    if (list.querySelector("details")) {
      const all = element("button", { type: "button", textContent: "Open all" });
      all.onclick = () => {
        const open = all.textContent === "Open all";
        shown.forEach((i) => i.querySelectorAll("details").forEach((d) => { d.open = open; }));
        all.textContent = open ? "Close all" : "Open all";
      };
      tools.append(all);
    }
    tools.append(back, next, where);
    list.before(tools);

    function show() {
      const from = page * size, count = matching ? matching.length : total, to = Math.min(from + size, count);
      if (!matching) upTo(to);
      place(matching ? matching.slice(from, to) : Array.from({ length: to - from }, (_, n) => from + n));
      back.disabled = page === 0;
      next.disabled = to >= count;
      where.textContent = (to > from ? from + 1 : 0) + "\u2013" + to + " of " + count +
        (count < total ? " (" + total + " in all)" : "");
    }
    function filter() {
      const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      matching = wanted.length || kind.value || order.value ? indices().filter((i) =>
        (!kind.value || is(i, "data-k", kind.value)) && wanted.every((w) => says(i).includes(w))) : null;
      if (order.value) {
        const names = new Map(matching.map((i) => [i, named(i)]));
        matching.sort((a, b) => names.get(a).localeCompare(names.get(b), undefined, { numeric: true }) || a - b);
      }
      page = 0;
      show();
    }
    function narrow() {
      filter();
      const kept = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
      for (const [key, value] of [[noun, search.value], [noun + ".is", kind.value], [noun + ".by", order.value]])
        if (value) kept.set(key, value); else kept.delete(key);
      history.replaceState(null, "", "#" + kept);
    }
    search.oninput = narrow;
    kind.onchange = order.onchange = narrow;
    back.onclick = () => { page -= 1; show(); };
    next.onclick = () => { page += 1; show(); };
    show();
    lists.set(list, {
      reveal(attribute, id) {
        const index = indices().findIndex((i) => is(i, attribute, id));
        if (index < 0) return null;
        search.value = kind.value = order.value = "";
        matching = null;
        page = Math.floor(index / size);
        show();
        return elementOf(index);
      },
      restore(kept) {
        search.value = kept.get(noun) || "";
        kind.value = kinds.includes(kept.get(noun + ".is")) ? kept.get(noun + ".is") : "";
        order.value = kept.get(noun + ".by") === "name" ? "name" : "";
        if (search.value || kind.value || order.value) filter();
      },
      all() { place(matching || indices()); },
      some: show,
    });
  }

  function follow() {
    const said = location.hash.slice(1), paged = lists.get(document.querySelector(".cards"));
    const kept = new URLSearchParams(said.includes("=") ? said : ""), name = kept.get("constraint");
    lists.forEach((l) => { if (said.includes("=") && !name) l.restore(kept); });
    const id = said.includes("=") ? "" : decodeURIComponent(said);
    if (id && paged) paged.reveal("id", id);
    const item = id ? document.getElementById(id)
      : name && (paged ? paged.reveal("data-s", name) : document.querySelector(`[data-s="${CSS.escape(name)}"]`));
    if (!item || !item.dataset.k) return;
    item.querySelectorAll("details").forEach((d) => { d.open = true; });
    item.scrollIntoView();
  }

  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = element("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.onclick = () => {
        const up = head.getAttribute("aria-sort") === "descending" || !head.hasAttribute("aria-sort") &&
          !head.classList.contains("n");
        const of = (row) => row.cells[column].textContent.trim();
        const number = (text) => Number(text.replace(/,/g, ""));
        const rows = [...body.rows].sort((a, b) => head.classList.contains("n")
          ? number(of(a)) - number(of(b)) : of(a).localeCompare(of(b), undefined, { numeric: true }));
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        body.append(...(up ? rows : rows.reverse()));
      };
    });
  });

  // A link that leads to the same constraint in the next report, too.
  function linked(card) {
    if (card.querySelector(".link")) return;
    const link = element("a", { className: "link", textContent: "#", href: "#constraint=" + card.dataset.s });
    link.setAttribute("aria-label", "Link to this constraint");
    card.querySelector("summary").append(" ", link);
  }

  function copyable(remedy) {
    const button = element("button", { type: "button", className: "copy", textContent: "Copy" });
    const around = element("div", { className: "copies" });
    remedy.replaceWith(around);
    around.append(remedy, button);
    button.onclick = () => {
      getSelection().selectAllChildren(remedy);
      const done = navigator.clipboard ? navigator.clipboard.writeText(remedy.textContent)
        : Promise.resolve(document.execCommand("copy"));
      done.then(() => { button.textContent = "Copied"; });
    };
  }
  const copyables = (within) => within.querySelectorAll(":not(.copies) > .remedy").forEach(copyable);

  const later = new Map();
  document.querySelectorAll("[data-list]").forEach((list) => {
    const around = list.closest("details:not([open])");
    if (!around) setUp(list);
    else {
      later.set(list, around);
      around.addEventListener("toggle", () => { if (later.delete(list)) setUp(list); });
    }
  });
  addEventListener("hashchange", follow);
  follow();
  let closed = [];
  addEventListener("beforeprint", () => {
    later.forEach((_, list) => setUp(list));
    later.clear();
    lists.forEach((l) => l.all());
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => {
    closed.forEach((d) => { d.open = false; });
    lists.forEach((l) => l.some());
  });
});

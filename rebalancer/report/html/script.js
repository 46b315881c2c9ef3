// Filters, pages, and opens what a link points to. The page says everything without it: what is not on a
// list's first page waits in noscript elements, as text that costs no layout until it is shown.
"use strict";
document.documentElement.classList.add("js");
document.addEventListener("DOMContentLoaded", () => {
  const lists = new Map();

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function fill(item) {
    const waiting = item.firstElementChild;
    if (!waiting || waiting.tagName !== "NOSCRIPT") return;
    const parsed = document.createElement("template");
    parsed.innerHTML = waiting.textContent;
    waiting.replaceWith(parsed.content);
  }

  function setUp(list) {
    const items = [...list.children], size = Number(list.dataset.size), noun = list.dataset.list;
    if (items.length <= size && items.length < 10) return;
    let matching = items, page = 0, shown = items.slice(0, size);
    const search = element("input", { type: "search", placeholder: "Filter " + noun });
    search.setAttribute("aria-label", "Filter " + noun);
    const kinds = [...new Set(items.map((i) => i.dataset.k).filter(Boolean))].sort();
    const kind = element("select", {}, new Option("all", ""), ...kinds.map((k) => new Option(k, k)));
    kind.setAttribute("aria-label", "Status");
    const back = element("button", { type: "button", textContent: "Previous" });
    const next = element("button", { type: "button", textContent: "Next" });
    const where = element("span", { role: "status" });
    const tools = element("div", { className: "tools" }, search);
    if (kinds.length > 1) tools.append(kind);
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
      shown.forEach((i) => i.classList.remove("on"));
      shown = matching.slice(page * size, (page + 1) * size);
      shown.forEach((i) => { fill(i); i.classList.add("on"); });
      const pages = Math.max(1, Math.ceil(matching.length / size));
      back.disabled = page === 0;
      next.disabled = page >= pages - 1;
      const first = shown.length ? page * size + 1 : 0;
      where.textContent = first + "\u2013" + (page * size + shown.length) + " of " + matching.length +
        (matching.length < items.length ? " (" + items.length + " in all)" : "");
    }
    function filter() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      matching = items.filter((i) => (!kind.value || i.dataset.k === kind.value) &&
        words.every((w) => i.dataset.t.includes(w)));
      page = 0;
      show();
    }
    search.oninput = filter;
    kind.onchange = filter;
    back.onclick = () => { page -= 1; show(); };
    next.onclick = () => { page += 1; show(); };
    show();
    lists.set(list, {
      reveal(item) {
        search.value = kind.value = "";
        matching = items;
        page = Math.floor(items.indexOf(item) / size);
        show();
      },
      all() { shown = matching; shown.forEach((i) => { fill(i); i.classList.add("on"); }); },
      some: show,
    });
  }

  function follow() {
    const item = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!item || !item.parentElement.dataset.list) return;
    const list = lists.get(item.parentElement);
    if (list) list.reveal(item);
    item.querySelectorAll("details").forEach((d) => { d.open = true; });
    item.scrollIntoView();
  }

  document.querySelectorAll("[data-list]").forEach(setUp);
  addEventListener("hashchange", follow);
  follow();
  let closed = [];
  addEventListener("beforeprint", () => {
    lists.forEach((l) => l.all());
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => {
    closed.forEach((d) => { d.open = false; });
    lists.forEach((l) => l.some());
  });
});

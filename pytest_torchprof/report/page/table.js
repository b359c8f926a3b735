// A table that sorts by its headings and finds by its filter; everything in it is text.
const DataTable = (() => {
  const FIRST_ROWS = 20;

  const compare = (key, falling) => (a, b) => {
    const [x, y] = key === "difference" ? [Math.abs(a[key]), Math.abs(b[key])] : [a[key], b[key]];
    // Of differences the size counts. What is not known comes last, whichever way it is sorted.
    if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1;
    if (y === null || y === undefined) return -1;
    const order = isNumber(x) && isNumber(y) ? x - y : String(x).localeCompare(String(y), "en", {numeric: true});
    return falling ? -order : order;
  };

  const bar = (share, className = "") => {
    const found = h("span", {class: `bar ${className}`, "aria-hidden": "true"});
    found.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    return found;
  };

  // Bars are as long as they are to the largest of them; the number beside them says how much of the whole it is.
  const cell = (column, row, largest) => {
    const value = row[column.key];
    if (column.draw) return column.draw(row, value);
    if (column.kind === "text") return h("td", {class: "left"}, h("bdi", {}, shown(value, column.most ?? 80)));
    if (column.kind === "bar") {
      const bars = [column.before && bar((row[column.before] ?? 0) / largest, "before"), bar((value ?? 0) / largest)];
      return h("td", {class: "share"}, h("span", {class: "bars"}, bars), h("span", {class: "percent"}, told("share", value)));
    }
    return h("td", {}, bounded(row, column, told(column.kind, value)));
  };
  // What may be larger or smaller has ">=" or "<=" before it.
  const bounded = (row, {key}, words) => `${row[`${key}_bound`] ?? ""}${words}`;

  // Where a row stands by itself, as on a phone, each of its cells has its title.
  const titled = (column, row, largest) => {
    const found = cell(column, row, largest);
    found.dataset.title = column.title;
    if (!column.draw && (row[column.key] ?? null) === null) found.classList.add("unknown");
    return found;
  };

  const heading = (column, state, sort) => {
    const own = state.key === column.key;
    const left = column.kind === "text" || column.left;
    return h(
      "th",
      {scope: "col", class: left ? "left" : "number", "aria-sort": own ? (state.falling ? "descending" : "ascending") : null},
      h("button", {type: "button", title: column.hint, on: {click: () => sort(column)}}, column.title),
    );
  };

  const asText = (columns, rows) =>
    [columns, ...rows]
      .map((row) => columns.map((column) => (row === columns ? column.title : bounded(row, column, shown(row[column.key] ?? "", 1000)))).join("\t"))
      .join("\n");

  // rows: objects; columns: {key, title, kind: "us"|"count"|"bytes"|"rate"|"bar"|"text", hint, before, draw, left}.
  const make = ({caption, columns, rows, by, filter = rows.length > FIRST_ROWS}) => {
    const state = {key: by, falling: true, words: "", all: false};
    const bars = columns.filter((column) => column.kind === "bar").flatMap((column) => [column.key, column.before]);
    const largest = Math.max(...rows.flatMap((row) => bars.map((key) => row[key] ?? 0)), 1e-9);
    const head = h("tr");
    const body = h("tbody");
    const more = h("button", {type: "button", class: "more", on: {click: () => { state.all = !state.all; draw(); }}});
    const status = h("span", {class: "hint", role: "status"});

    const sort = (column) => {
      state.falling = state.key === column.key ? !state.falling : column.kind !== "text" && !column.left;
      state.key = column.key;
      draw();
      head.querySelector("[aria-sort] button")?.focus();
    };
    const matching = () => {
      const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
      const says = (row) => columns.map((column) => row[column.key]).concat(row.name).join(" ").toLowerCase();
      return words.length ? rows.filter((row) => words.every((word) => says(row).includes(word))) : rows;
    };
    function draw() {
      const found = [...matching()].sort(compare(state.key, state.falling));
      const now = state.all ? found : found.slice(0, FIRST_ROWS);
      head.replaceChildren(...columns.map((column) => heading(column, state, sort)));
      body.replaceChildren(...now.map((row) => h("tr", {class: row.className}, columns.map((column) => titled(column, row, largest)))));
      more.hidden = found.length <= FIRST_ROWS;
      more.textContent = state.all ? `show the first ${FIRST_ROWS}` : `show all ${found.length.toLocaleString("en-US")}`;
      status.textContent = state.words ? `${found.length.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}` : "";
    }
    const search = h("input", {
      type: "search", placeholder: "filter", "aria-label": `Filter: ${caption}`, autocomplete: "off", spellcheck: "false",
      on: {input: (event) => { state.words = event.target.value; draw(); }},
    });
    const copy = h("button", {type: "button", class: "quiet", on: {click: () => copyText(asText(columns, matching()), copy)}}, "copy");
    draw();
    return h(
      "div", {class: "data"},
      h("div", {class: "tools"}, h("p", {class: "hint"}, caption), filter && search, status, copy),
      h("div", {class: "scroll rows", tabindex: "0", role: "region", "aria-label": caption},
        h("table", {}, h("caption", {class: "unseen"}, caption), h("thead", {}, head), body)),
      more,
    );
  };

  const copyText = async (text, button) => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without a clipboard of its own, a file opened from a disk has the old way.
      const area = h("textarea", {readonly: true, class: "unseen"});
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  };

  return {make, copyText, bar};
})();

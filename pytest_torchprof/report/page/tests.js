// The list of verdicts: filter, search, sort and the way through it by keyboard. The file has the list without this, too.
const Tests = (() => {
  const table = document.getElementById("tests");
  const rows = table ? [...table.tBodies].flatMap((body) => [...body.rows]) : [];
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const chips = [...document.querySelectorAll(".chip")];
  const chosen = new Set();
  const names = new Map(rows.map((row) => [row, row.querySelector(".name").textContent.toLowerCase()]));

  // The parts of a long list that are not shown yet: one after another, when there is nothing else to do, or all at once.
  const later = table ? [...table.querySelectorAll(".later")] : [];
  const unfold = (parts = later.length) => {
    for (const body of later.splice(0, parts)) body.classList.remove("later");
  };
  const whenIdle = (call) => (globalThis.requestIdleCallback ? requestIdleCallback(call, {timeout: 1000}) : setTimeout(call, 100));
  const unfoldInTime = () => {
    unfold(1);
    if (later.length) whenIdle(unfoldInTime);
  };

  const filter = () => {
    unfold();
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let fitting = 0;
    for (const row of rows) {
      const fits = (!chosen.size || chosen.has(row.dataset.outcome)) && words.every((word) => names.get(row).includes(word));
      row.hidden = !fits;
      fitting += fits;
    }
    const narrowed = chosen.size || words.length;
    count.textContent = narrowed ? `${fitting.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} ${count.dataset.noun}` : "";
  };

  const value = (row, place) => {
    const cell = row.cells[place];
    if (place === 0) return Number(row.dataset.place);
    return cell.dataset.v === undefined ? cell.textContent : cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };
  const ORDER = ["failed", "error", "not measured", "xfailed", "warned", "skipped", "passed", "recorded", "gone"];
  const sort = (button) => {
    const heading = button.closest("th");
    const place = heading.cellIndex;
    const before = heading.getAttribute("aria-sort");
    const numeric = heading.classList.contains("number");
    const falling = before ? before === "ascending" : numeric;
    for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = (row) => (place === 0 ? ORDER.indexOf(row.dataset.outcome) : value(row, place));
    const keyed = rows.map((row) => [key(row), row]);
    keyed.sort(([x, a], [y, b]) => {
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", {numeric: true});
      return (falling ? -order : order) || a.dataset.place - b.dataset.place;
    });
    rows.splice(0, rows.length, ...keyed.map(([, row]) => row));
    unfold();
    table.tBodies[0].append(...rows);
  };

  const mark = (number) => {
    table?.querySelector("tr.current")?.classList.remove("current");
    table?.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const row = document.getElementById(`row-${number}`);
    if (!row) return;
    if (row.closest(".later")) unfold();
    row.classList.add("current");
    row.querySelector("a").setAttribute("aria-current", "true");
    const box = row.closest(".scroll");
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    if (top < box.scrollTop + 40) box.scrollTop = top - 60;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight + 20;
  };
  // The number of the test so many places further in the list as it stands.
  const beside = (number, by) => {
    const seen = rows.filter((row) => !row.hidden);
    const place = seen.findIndex((row) => Number(row.dataset.place) === number);
    return seen.length ? Number(seen[Math.min(Math.max(place + by, 0), seen.length - 1)].dataset.place) : number;
  };
  const first = () => {
    const worst = ORDER.map((outcome) => rows.find((row) => row.dataset.outcome === outcome)).find(Boolean);
    return worst ? Number(worst.dataset.place) : 0;
  };

  if (table) {
    search.addEventListener("input", filter);
    for (const chip of chips) {
      chip.addEventListener("click", () => {
        const outcome = chip.dataset.outcome;
        if (!chosen.delete(outcome)) chosen.add(outcome);
        chip.setAttribute("aria-pressed", String(chosen.has(outcome)));
        filter();
      });
    }
    for (const button of table.tHead.querySelectorAll("button")) button.addEventListener("click", () => sort(button));
    // A row is as good as its link.
    table.addEventListener("click", (event) => {
      if (!event.target.closest("a, thead") && !String(getSelection())) event.target.closest("tr")?.querySelector("a").click();
    });
  }
  return {mark, beside, first, search, unfold: () => whenIdle(unfoldInTime)};
})();

// The page of a history: each test from commit to commit, and what is known of each change.
(async () => {
  const FIRST_ROWS = 50;
  const HEIGHT = 40;
  const MOST_STEPS = 3;
  const index = await unpackJson("index");
  const state = {words: "", number: index.numbers[0]?.[0], rows: FIRST_ROWS};
  const list = document.getElementById("series");
  const last = Math.max(1, index.commits.length - 1);
  // Where nothing was measured there is no number at all.
  const title = (number) => index.numbers.find(([name]) => name === number)?.[1] ?? "numbers";
  const noun = (number, value) => index.numbers.find(([name]) => name === number)[value === 1 ? 2 : 1];
  const plural = (count, noun) => `${show.count(count)} ${noun}${count === 1 ? "" : "s"}`;
  const share = (place) => (index.commits.length === 1 ? 50 : (100 * place) / last);

  // Stretches without a change are level; a gap is empty, and never filled.
  const path = (spans, low, high) => {
    const y = (value) => (high === low ? HEIGHT / 2 : HEIGHT - 2 - ((value - low) / (high - low)) * (HEIGHT - 4));
    let drawn = "";
    let end = null;
    for (const {from, to, value} of spans) {
      const [x, level] = [share(from).toFixed(3), y(value).toFixed(1)];
      drawn += `${end !== null && (from === end + 1 || from === end) ? `H${x}V${level}` : `M${x} ${level}`}H${share(to).toFixed(3)}`;
      end = to;
    }
    return drawn;
  };

  // Not by spreading: a call takes only so many arguments.
  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

  const svgOf = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  // segments: what was measured without a change, each as its spans of commits and its value.
  const chart = (segments, heading, shownAs, steps = []) => {
    const spans = segments.flatMap(({spans, value}) => spans.map(([from, to]) => ({from, to, value}))).sort((a, b) => a.from - b.from || a.to - b.to);
    const values = spans.map((span) => span.value);
    const [low, high] = [least(values), most(values)];
    const range = low === high ? shownAs(low) : `${shownAs(low)} to ${shownAs(high)}`;
    const summary = values.length ? `${heading}: ${range}` : `${heading}: not known`;
    const svg = svgOf("svg", {viewBox: `0 0 100 ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": summary});
    // A step of times is known to lie among some commits.
    for (const {from, to} of steps) svg.append(svgOf("rect", {class: "band", x: share(from), width: share(to) - share(from), y: 0, height: HEIGHT}));
    svg.append(svgOf("path", {d: path(spans, low, high)}));
    return {svg, summary, now: spans.length ? spans[spans.length - 1].value : null};
  };

  const countsOf = (row, number) =>
    row.segments.filter((segment) => isNumber(segment.counts[number])).map(({spans, counts}) => ({spans, value: counts[number]}));

  const kernels = (heading, className, rows) =>
    rows.length > 0 && [h("h4", {}, heading), h("ul", {class: className}, rows.map(([name, count]) => h("li", {}, `${show.count(count)} x `, h("bdi", {}, shown(name)))))];

  const command = (text) => {
    const copy = h("button", {type: "button", class: "quiet"}, "copy");
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(copy.previousElementSibling);
      }
    });
    return h("p", {class: "command"}, h("code", {tabindex: 0}, visible(text)), copy);
  };

  const panel = (event, id) => {
    return h(
      "section",
      {class: "event", id, tabindex: -1, "aria-label": `${event.kind} ${event.id}`},
      h("h3", {}, `${index.dates[event.at]}  ${visible(event.cause)} `, h("span", {class: "hint"}, event.id)),
      event.remarks.map(([word, text]) => h("p", {}, `${word}: `, h("bdi", {}, shown(text, 4000)))),
      kernels("came", "came", event.came),
      kernels("went", "went", event.went),
      h("h4", {}, plural(event.of, "test")),
      h("ul", {}, event.tests.map((test) => h("li", {}, h("bdi", {}, shown(test, 400)))), event.more > 0 && h("li", {}, `${show.count(event.more)} more`)),
      event.command && command(event.command),
      event.commits.length > 1 && [h("h4", {}, "commits"), h("p", {}, event.commits.map((sha) => sha.slice(0, 12)).join(" "))],
    );
  };

  const gapsOf = (row) => {
    const gaps = Object.entries(row.gaps).map(([why, count]) => `${show.count(count)} ${visible(why)}`);
    return gaps.length ? `gaps: ${gaps.join(", ")}` : null;
  };

  const axis = () => h("div", {class: "axis"}, h("span", {}, index.dates[0]), h("span", {}, index.dates[index.dates.length - 1]));

  // The times on one machine that moved: drawn with their steps.
  const movedTimes = (times, markOf) => {
    const segments = times.segments.map(({spans, us}) => ({spans, value: us}));
    const {svg, now} = chart(segments, times.title, show.us, times.steps);
    const newest = times.steps.slice(-MOST_STEPS).reverse();
    const older = times.steps.length - newest.length;
    return h(
      "div",
      {class: "times"},
      h("div", {class: "facts"}, h("span", {}, "now ", h("b", {}, show.us(now)), ` ${times.title}`), h("span", {}, visible(times.machine)), h("span", {}, times.could_show)),
      h(
        "ul",
        {class: "steps"},
        newest.map((step) => h("li", {}, `${index.dates[index.events[step.event].at]}  ${visible(index.events[step.event].cause)}: ${step.moved}`)),
        older > 0 && h("li", {}, plural(older, "older step")),
      ),
      h("div", {class: "chart"}, svg, times.steps.map((step) => markOf(step.event, step.at))),
      axis(),
    );
  };

  const steadyTimes = (rows) =>
    rows.length > 2
      ? h("span", {}, `times on ${show.count(rows.length)} machines: no step`)
      : rows.map((times) => h("span", {}, `${times.title} ${show.us(times.segments[0].us)} on ${visible(times.machine)}: ${times.is_long_enough ? "no step; " : ""}${times.could_show}`));

  const drawRow = (row, number) => {
    const {svg, summary, now} = chart(countsOf(row, state.number), title(state.number), show.count);
    const box = h("article", {class: "series"});
    let open = null;
    const close = () => {
      open?.panel.remove();
      open?.mark.setAttribute("aria-expanded", "false");
      open = null;
    };
    const markOf = (place, at) => {
      const event = index.events[place];
      const known = event.remarks.some(([word]) => word === "known");
      const mark = h("button", {type: "button", class: known ? "mark known" : "mark", "aria-expanded": "false", "aria-label": `${event.kind} ${event.id} at ${index.commits[at].slice(0, 7)}`, title: `${index.dates[at]} ${visible(event.cause)}`});
      mark.style.left = `${share(at)}%`;
      mark.addEventListener("click", () => {
        const again = open?.mark === mark;
        close();
        if (again) return;
        open = {mark, panel: panel(event, `event-${number}-${place}`)};
        mark.setAttribute("aria-expanded", "true");
        mark.closest(".chart").nextElementSibling.after(open.panel);
      });
      return mark;
    };
    box.addEventListener("keydown", (pressed) => {
      if (pressed.key !== "Escape" || open === null) return;
      const {mark} = open;
      close();
      mark.focus();
    });
    const moved = row.times.filter((times) => times.steps.length > 0);
    const newest = most([...row.events, ...moved.flatMap((times) => times.steps.map((step) => step.event))].map((place) => index.events[place].at));
    box.append(
      h("h2", {}, h("bdi", {}, shown(row.name, 300)), h("span", {class: "hint"}, `${visible(row.hardware)}, device ${visible(row.device)}`)),
      h(
        "div",
        {class: "facts"},
        now !== null && h("span", {}, "now ", h("b", {}, show.count(now)), ` ${noun(state.number, now)}`),
        h("span", {}, summary),
        h("span", {}, isNumber(newest) ? `last changed ${index.dates[newest]}` : "never changed"),
        gapsOf(row) && h("span", {}, gapsOf(row)),
        row.removed_at && h("span", {class: "hint"}, `removed: not in ${visible(row.removed_at.slice(0, 7))} any more`),
        row.ends_open && h("span", {class: "v v-not-measured"}, "not known of the newest commit"),
        steadyTimes(row.times.filter((times) => times.steps.length === 0)),
      ),
      h("div", {class: "chart"}, svg, row.events.map((place) => markOf(place, index.events[place].at))),
      axis(),
      ...moved.map((times) => movedTimes(times, markOf)),
    );
    return box;
  };

  const draw = () => {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = index.series.filter((row) => words.every((word) => `${row.name} ${row.hardware}`.toLowerCase().includes(word)));
    const now = matching.slice(0, state.rows);
    const more = h("button", {type: "button", class: "more", on: {click: () => { state.rows += FIRST_ROWS; draw(); }}}, `show ${show.count(Math.min(FIRST_ROWS, matching.length - now.length))} more`);
    list.replaceChildren(...now.map(drawRow), ...(matching.length > now.length ? [more] : []));
    status.textContent = words.length ? `${show.count(matching.length)} of ${show.count(index.series.length)} series` : "";
  };

  const search = h("input", {type: "search", id: "search", placeholder: "filter tests", "aria-label": "Filter tests", autocomplete: "off", spellcheck: "false", on: {input: (event) => { state.words = event.target.value; state.rows = FIRST_ROWS; draw(); }}});
  const status = h("span", {class: "hint", role: "status"});
  const numbers = h("select", {"aria-label": "Number that is drawn", on: {change: (event) => { state.number = event.target.value; draw(); }}}, index.numbers.map(([name, words]) => h("option", {value: name}, words)));
  const remarks = Object.entries(index.remarks).flatMap(([sha, texts]) => texts.map((text) => [sha, text]));
  document.getElementById("tools").append(...(index.numbers.length ? [numbers] : []), status, search);
  if (remarks.length) {
    list.before(h("section", {class: "event", id: "remarks"}, h("h3", {}, "Remarks"), h("ul", {}, remarks.map(([sha, text]) => h("li", {}, `${sha.slice(0, 7)}: `, h("bdi", {}, shown(text, 4000)))))));
  }
  draw();
  document.documentElement.dataset.ready = "true";
})();

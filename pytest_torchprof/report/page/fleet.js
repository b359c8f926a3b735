// The page of a fleet: what became of its files, groups with their quantiles, and the files to be looked at.
(async () => {
  const report = await unpackJson("report");
  const main = document.getElementById("fleet");
  const plural = (count, noun) => `${show.count(count)} ${noun}${count === 1 ? "" : "s"}`;
  // A colour each, and a pattern where colours are close to some readers.
  const OUTCOMES = [
    ["hold", "hold", "good"],
    ["without_limits", "without limits", "plain p-rising"],
    ["missed", "missed", "bad p-falling"],
    ["not_measured", "not measured", "warn p-standing"],
    ["quarantined", "quarantined", "warn2 p-lying"],
    ["left", "left", "left"],
  ];

  const svg = (name, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // How many files came out in each way, beside one another.
  const census = (row, className) => {
    const parts = OUTCOMES.map(([key, title, kind]) => ({count: row[key] ?? 0, title, kind})).filter((part) => part.count > 0);
    const drawn = parts.map(({count, kind}) => {
      const bar = h("span", {class: `part ${kind}`});
      bar.style.flexGrow = count;
      return bar;
    });
    const label = parts.map(({count, title}) => `${show.count(count)} ${title}`).join(", ");
    return h("div", {role: "img", "aria-label": label, class: className}, drawn);
  };

  // From the tenth to the ninetieth of a hundred files, with a mark at the median: one scale of powers for all rows.
  const spread = (rows, number) => {
    const known = rows.flatMap((row) => (row.numbers[number] ? [row.numbers[number].p10, row.numbers[number].p90] : [])).filter((value) => value > 0);
    const low = Math.log(known.reduce((a, b) => Math.min(a, b), Infinity));
    const high = Math.log(known.reduce((a, b) => Math.max(a, b), -Infinity));
    const at = (value) => (value <= 0 ? 0 : high === low ? 50 : (100 * (Math.log(value) - low)) / (high - low));
    return (row) => {
      const own = row.numbers[number];
      if (!own) return h("td", {class: "left"}, "–");
      const [from, to, median] = [at(own.p10), at(own.p90), at(own.median)];
      const label = `10 %: ${show.us(own.p10)}, median ${show.us(own.median)}, 90 %: ${show.us(own.p90)}`;
      return h(
        "td",
        {class: "left"},
        svg(
          "svg",
          {viewBox: "-3 0 106 14", role: "img", "aria-label": label, class: "spread"},
          svg("rect", {x: from, y: 5, width: Math.max(1, to - from), height: 4, class: "range"}),
          svg("circle", {cx: median, cy: 7, r: 3, class: "median"}),
        ),
      );
    };
  };

  const section = (title, ...content) => main.append(h("section", {}, h("h2", {}, title), content));

  const command = (text) => {
    const copy = h("button", {type: "button", class: "quiet", on: {click: () => DataTable.copyText(text, copy)}}, "copy");
    return h("p", {class: "command"}, h("code", {tabindex: 0}, visible(text)), copy);
  };

  const groups = (title, rows) => {
    const unknown = title === "rule" ? "no rule" : "not known";
    const flat = rows.map((row) => ({
      ...row,
      value: row.value ?? unknown,
      not_judged: row.not_measured + row.quarantined,
      busy: row.numbers.gpu_busy_us?.median,
      slow: row.numbers.gpu_busy_us?.p90,
      kernels: row.numbers.kernels?.median,
      used: row.numbers.gpu_utilization?.median,
      finding: Object.entries(row.findings).map(([code, count]) => `${code} (${show.count(count)})`)[0],
    }));
    const columns = [
      {key: "value", title, kind: "text"},
      {key: "listed", title: "files", kind: "count"},
      {key: "missed", title: "missed", kind: "count"},
      {key: "not_judged", title: "not judged", kind: "count"},
      {key: "hold", title: "outcomes", left: true, draw: (row) => h("td", {class: "left"}, census(row, "outcomes"))},
      {key: "busy", title: "GPU busy, median", kind: "us"},
      {key: "slow", title: "GPU busy, 90 %", kind: "us", hint: "as much or less in 90 of 100 files"},
      {key: "spread", title: "GPU busy, 10 to 90 %", left: true, draw: spread(flat, "gpu_busy_us")},
      {key: "kernels", title: "kernels, median", kind: "count"},
      {key: "used", title: "GPU utilization, median", kind: "share"},
      {key: "finding", title: "most frequent finding", kind: "text"},
    ];
    section(`By ${title}`, DataTable.make({caption: `By ${title}: ${plural(rows.length, "group")}, those that missed most limits first`, columns, rows: flat}));
  };

  const all = {...report.summary, left: report.left};
  const legend = OUTCOMES.filter(([key]) => all[key] > 0).map(([key, title, kind]) => h("li", {}, h("span", {class: `swatch ${kind}`, "aria-hidden": "true"}), `${show.count(all[key])} ${title}`));
  section("All files", census(all, "all"), h("ul", {class: "legend"}, legend));

  for (const [key, rows] of Object.entries(report.groups)) groups(key === "gpu" ? "GPU" : key, rows);

  if (report.findings.length > 0) {
    const rows = report.findings.map((row) => ({...row, share: row.files / (report.summary.listed - report.left), median: row.saves_us.median || null, highest: row.saves_us.highest || null}));
    const columns = [
      {key: "code", title: "finding", kind: "text"},
      {key: "title", title: "what it is", kind: "text"},
      {key: "files", title: "files", kind: "count"},
      {key: "share", title: "of all files", kind: "bar"},
      {key: "median", title: "could save, median", kind: "us"},
      {key: "highest", title: "at most", kind: "us"},
      {key: "worst", title: "in", kind: "text"},
    ];
    section("Findings", DataTable.make({caption: "What stands out, and the most that could be saved by it", columns, rows, by: "files"}));
  }

  const missed = Object.entries(report.summary.limits_missed).map(([limit, files]) => ({limit, files}));
  if (missed.length > 0) {
    const columns = [{key: "limit", title: "limit", kind: "text"}, {key: "files", title: "files", kind: "count"}];
    section("Limits missed", DataTable.make({caption: "In how many files each limit was missed", columns, rows: missed, by: "files"}));
  }

  if (report.worst.length > 0) {
    const rows = report.worst.map((file) =>
      h(
        "li",
        {},
        h("b", {}, h("bdi", {}, shown(file.name, 300))),
        file.limits_missed.length > 0 && h("p", {class: "v v-missed"}, `missed ${visible(file.limits_missed.join(", "))}`),
        file.finding && h("p", {}, `${file.finding}, up to ${show.us(file.saves_us)}`),
        command(file.command),
      ),
    );
    section("The worst", h("p", {class: "hint"}, "Those that miss most limits, then those where most time could be saved."), h("ol", {class: "files"}, rows));
  }

  if (report.other_structures.length > 0 || report.divided.length > 0) {
    const rows = report.other_structures.map((file) =>
      h(
        "li",
        {},
        h("b", {}, h("bdi", {}, shown(file.name, 300))),
        h("p", {}, `${show.count(file.majority)} of ${show.count(file.group)} are like `, h("bdi", {}, shown(file.of_majority, 300))),
        command(file.command),
      ),
    );
    section(
      "Other kernels than their group",
      h("p", {class: "hint"}, "Files that launch other kernels, or in another order, than most files of the same model, GPU and torch."),
      report.divided.length > 0 && h("p", {}, "Groups in which no more than half of the files launch the same kernels in the same order:"),
      report.divided.length > 0 && h("ul", {}, report.divided.map((line) => h("li", {}, h("bdi", {}, shown(line, 500))))),
      report.more_divided > 0 && h("p", {}, `${show.count(report.more_divided)} more`),
      h("ol", {class: "files"}, rows),
      report.more_other_structures > 0 && h("p", {}, `${show.count(report.more_other_structures)} more`),
    );
  }

  if (report.jobs.length > 0) {
    const rows = report.jobs.map((job) => ({...job, missing: job.missing.join(", "), limits_missed: job.limits_missed.join(", "), findings: job.findings.join(", ")}));
    const columns = [
      {key: "name", title: "job", kind: "text"},
      {key: "outcome", title: "outcome", kind: "text"},
      {key: "ranks", title: "ranks", kind: "count"},
      {key: "missing", title: "ranks without a recording", kind: "text"},
      {key: "late", title: "late rank", kind: "count"},
      {key: "skew_us", title: "skew, median", kind: "us"},
      {key: "limits_missed", title: "limits missed", kind: "text"},
      {key: "findings", title: "findings", kind: "text"},
      {key: "why", title: "why it is not judged", kind: "text", most: 400},
    ];
    section("Jobs of several ranks", DataTable.make({caption: "Jobs whose ranks are among the files", columns, rows}));
  }

  if (report.not_judged.length > 0) {
    const rows = report.not_judged.map((file) => ({...file, kind: file.quarantined ? "quarantined" : "not measured"}));
    const columns = [
      {key: "name", title: "file", kind: "text"},
      {key: "kind", title: "outcome", kind: "text"},
      {key: "code", title: "code", kind: "text"},
      {key: "why", title: "why", kind: "text", most: 400},
    ];
    const more = report.more_not_judged;
    const caption = `${plural(rows.length + more, "file")}${more > 0 ? `, of which the first ${show.count(rows.length)} are here` : ""}`;
    section("Not judged", DataTable.make({caption, columns, rows}));
  }
  document.documentElement.dataset.ready = "true";
})();

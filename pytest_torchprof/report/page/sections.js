// What the page tells of one test, a section each; a function that has nothing to tell returns null.
const Sections = (() => {
  const ROLES = {
    kernel: "kernels", memcpy: "copies", memset: "fills", communication: "communication", runtime: "runtime calls",
    data_loader: "data loading", cpu: "operators, annotations, Python", other: "nothing recorded",
  };
  const STATUSES = {holds: "v-holds", missed: "v-missed", "not measured": "v-not-measured"};
  // So many changes of kernels are shown unasked.
  const FEW_LINES = 6;
  // Shares and ratios speak for themselves.
  const changed = (unit, before, now) => {
    if (!isNumber(before) || !isNumber(now) || !before || !now || ["share", "ratio"].includes(unit)) return null;
    const factor = show.factor(now / before);
    return factor === show.factor(1) ? null : factor;
  };
  // A difference of so little is no news, and has no colour.
  const FLAT = 0.02;
  const isFlat = (before, now) => before === now || (before > 0 && Math.abs(now / before - 1) < FLAT);
  const direction = (better, before, now) =>
    !better || !isNumber(before) || !isNumber(now) || isFlat(before, now) ? "" : (now > before) === (better === "higher") ? "good" : "bad";

  // What is wider than the window scrolls by itself, by keyboard too.
  const scrolled = (label, table) => h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label}, table);
  // On a phone each row is a block of its own, and each value has its heading.
  const inRows = (label, table) => {
    const titles = [...table.tHead.rows[0].cells].map((head) => head.textContent);
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, place) => { cell.dataset.title = titles[place]; });
    table.classList.add("plain");
    const found = scrolled(label, table);
    found.classList.add("rows");
    return found;
  };
  // A line that is wrapped goes on further to the right than it begins, so that each still looks like one.
  const lines = (text) => String(text).split("\n").map((line) => {
    const found = h("span", {class: "line"}, `${visible(line)}\n`);
    found.style.setProperty("--begins", `${Math.min(line.search(/\S|$/), 12)}ch`);
    return found;
  });

  const message = (test) => {
    if (!test.message) return null;
    const copy = h("button", {type: "button", class: "quiet", on: {click: () => DataTable.copyText(test.message, copy)}}, "copy");
    return h("div", {class: `message m-${test.outcome.replace(" ", "-")}`}, copy, h("pre", {tabindex: "0", role: "region", "aria-label": "What does not hold"}, lines(test.message)));
  };

  const arrowed = (words) => shown(words, 600).replaceAll(" -> ", " → ");
  // As `torchprof diff` names it; whole names, of which there may be several, on hover.
  const shiftName = (row) => {
    const names = [...new Set([row.was, row.now].filter(Boolean))];
    const mark = row.calls === 0 ? " gone" : row.before_calls === 0 ? " new" : "";
    return h("th", {scope: "row", class: "left"}, h("span", {class: "label"}, h("span", {class: `swatch ${Painting.swatchClass(row.family)}`, title: row.family}),
      h("span", {}, h("bdi", {title: names.map((name) => shown(name, 1000)).join(" → ") || null}, shown(arrowed(row.label), 140)), mark && h("span", {class: "file"}, mark))));
  };
  // Times are kept to a nanosecond: what is less is no difference.
  const moved = (us) => Math.abs(us) > 0.001;
  const signed = (us) => (moved(us) ? `${us > 0 ? "+" : "−"}${told("us", Math.abs(us))}` : "0 us");
  const difference = (row) => h("td", {class: !moved(row.difference) || row.isFlat ? "" : row.difference > 0 ? "bad" : "good"}, signed(row.difference));
  const shiftTable = (rows, whole, title, noun, more, isWhole) => {
    for (const row of rows) {
      row.difference = row.time_us - row.before_us;
      row.isFlat = isFlat(row.before_us, row.time_us);
      row.share = whole ? row.difference / whole : 0;
      row.name = [row.family, row.was, row.now].join(" ");
      row.each = row.before_calls && row.calls && row.before_us ? row.time_us / row.calls / (row.before_us / row.before_calls) : null;
    }
    const largest = Math.max(...rows.map((row) => Math.abs(row.difference)), 1e-9);
    const diverging = (row) => {
      const bar = DataTable.bar(Math.abs(row.difference) / largest, row.difference > 0 ? "longer" : "shorter");
      return h("td", {class: "diverging"}, h("span", {class: "half"}, row.difference < 0 && bar), h("span", {class: "half"}, row.difference > 0 && bar));
    };
    const columns = [
      {key: "name", title: title === "families" ? "family" : "kernel", left: true, draw: shiftName},
      {key: "difference", title: "difference", kind: "us", draw: difference},
      {key: "share", title: "of the difference", kind: "share", draw: diverging},
      {key: "before_us", title: "before", kind: "us"},
      {key: "time_us", title: "now", kind: "us"},
      ...(rows.some((row) => isNumber(row.calls)) ? [
        {key: "before_calls", title: "calls before", kind: "count"},
        {key: "calls", title: "now", kind: "count"},
        {key: "each", title: "each", kind: "factor", hint: "how much longer one call takes"},
      ] : []),
      ...(rows.some((row) => row.op) ? [{key: "op", title: "launched by", kind: "text", most: 44}] : []),
    ];
    const caption = title === "families" ? `${noun}${isWhole ? "" : " of a step"}, by family` : "by kernel and operator";
    return DataTable.make({caption: more ? `${caption}; ${show.count(more)} more are left out` : caption, columns, rows, by: "difference"});
  };

  const headline = ({words, ratio, note, better, values}) => h("p", {class: "headline"}, arrowed(words),
    ratio && h("b", {class: `ratio ${direction(better, ...values)}`}, ` ${ratio} as much`),
    note && h("span", {class: "hint"}, ` (${note})`));
  const whereItIs = (found, isWhole) => {
    if (!found.families.length) return null;
    const whole = found.time_us[1] - found.time_us[0];
    const where = [
      shiftTable(found.families, whole, "families", found.noun, 0, isWhole),
      found.kernels.length ? shiftTable(found.kernels, whole, "kernels", found.noun, found.more, isWhole) : null,
    ];
    return found.why.length ? [h("p", {class: "why"}, arrowed(found.why.join("; "))), ...where]
      : h("details", {}, h("summary", {}, `as much ${found.noun} as before, in the same places`), where);
  };
  const singleKernels = (found) => {
    if (!found.single.length) return found.words && h("p", {}, shown(found.words, 400));
    return h("details", {open: found.single.length <= FEW_LINES}, h("summary", {}, `single kernels: ${shown(found.words, 400)}`),
      h("pre", {class: "changes"}, found.single.map((line) => visible(line)).join("\n")),
      found.lacks_lines && h("p", {class: "hint"}, "A kernel that went has its operator and no line of code: a baseline keeps none, since it would soon point to other code. The commit that wrote the baseline has it."),
      found.more_single ? h("p", {class: "hint"}, `and ${show.count(found.more_single)} more`) : null);
  };
  const changes = (test, compared) => {
    const found = test.compared;
    if (found?.why_not) return h("p", {}, shown(found.why_not, 1000));
    const pace = test.pace && h("p", {}, arrowed(test.pace));
    if (!found) return test.changes?.length ? h("pre", {class: "changes"}, test.changes.map((line) => visible(line)).join("\n")) : pace ?? null;
    return [
      found.verdict && h("p", {}, `${compared}: ${shown(found.verdict, 400)}`),
      found.notes.map((note) => h("p", {class: "hint"}, shown(note, 1000))),
      pace,
      found.numbers.length > 0 && h("p", {class: "hint"}, `before → now; times and counts are ${test.is_whole ? "of the whole recording" : "per step"}`),
      found.numbers.map(headline),
      found.small.length ? h("p", {class: "hint"}, `also: ${arrowed(found.small.join("; "))}`) : null,
      whereItIs(found, test.is_whole),
      found.exchange && h("p", {}, `what came and went: ${arrowed(found.exchange)}`),
      singleKernels(found),
    ];
  };

  const limits = (test) => {
    if (!test.limits?.length) return null;
    const row = (limit) => {
      const measured = limit.measured === null || limit.measured === undefined ? limit.message : limit.measured;
      const details = limit.details?.length
        ? h("details", {}, h("summary", {}, shown(limit.message || measured, 300)), h("pre", {}, limit.details.map(visible).join("\n")))
        : shown(limit.message || measured, 300);
      return h(
        "tr", {},
        h("td", {class: "verdict"}, h("span", {class: `v ${STATUSES[limit.status] ?? ""}`}, shown(limit.status, 40))),
        h("th", {scope: "row", class: "left"}, h("code", {}, shown(limit.name)), limit.range ? h("span", {class: "file"}, ` in “${shown(limit.range)}”`) : null),
        h("td", {class: "left"}, shown(limit.expected, 300)),
        h("td", {class: "left"}, details),
      );
    };
    return inRows("Table of limits",
      h("table", {class: "limits"}, h("caption", {class: "unseen"}, "Limits: what was expected and what was measured"),
        h("thead", {}, h("tr", {}, ["verdict", "limit", "expected", "measured"].map((title) => h("th", {scope: "col", class: "left"}, title)))),
        h("tbody", {}, test.limits.map(row))));
  };

  // What numbers are of: without the recording nobody knows how many steps there are.
  const ofStep = ({steps, is_whole: isWhole}) => (isWhole ? "of the whole recording" : steps === 1 ? "of the one step" : `per step: the median of ${steps ? `${show.count(steps)} steps` : "the steps"}, and the worst where it differs`);
  const ofAll = (steps) => `of ${steps ? `all ${show.count(steps)} steps` : "all steps"} together`;

  const numbers = (test) => {
    const known = test.numbers ?? [];
    if (!known.length) return null;
    const item = ([title, unit, better, median, worst, before]) => {
      const ratio = changed(unit, before, median);
      return h("div", {class: "fact"},
        h("dt", {}, title),
        h("dd", {},
          isNumber(before) && told(unit, before) !== told(unit, median) && h("span", {class: "was"}, `${told(unit, before)} → `),
          h("span", {}, told(unit, median)),
          ratio && h("span", {class: `ratio ${direction(better, before, median)}`}, ` ${ratio} as much`),
          isNumber(worst) && told(unit, worst) !== told(unit, median) && h("span", {class: "worst"}, `worst step ${told(unit, worst)}`)));
    };
    // What is zero, and was before, is said in a line; and so is what nobody knows.
    const isZero = ([, , , median, worst, before]) => [median, worst, before].every((value) => value === 0 || !isNumber(value)) && isNumber(median);
    const unknown = known.filter(([, , , median]) => !isNumber(median)), zero = known.filter((row) => isNumber(row[3]) && isZero(row));
    const large = known.filter((row) => isNumber(row[3]) && !isZero(row));
    const line = (rows, words) => rows.length > 0 && h("p", {class: "hint"}, `${words}: ${rows.map(([title]) => title).join(", ")}`);
    const group = (rows, words) => rows.length > 0 && [h("p", {class: "hint scope"}, words), h("dl", {class: "numbers"}, rows.map(item))];
    const isOfAll = (row) => row[6] === "window" && test.steps !== 1 && !test.is_whole;
    return [
      group(large.filter((row) => !isOfAll(row)), ofStep(test)), group(large.filter(isOfAll), ofAll(test.steps)),
      line(zero, "none"), line(unknown, "not measured"),
    ].filter(Boolean);
  };

  const asObjects = (table) => table.rows.map((cells) => Object.fromEntries(table.columns.map(({key}, place) => [key, cells[place]])));
  const asRows = (table) => asObjects(table).map((row) => ({...row, calls: row[table.counts], before_calls: row[`before_${table.counts}`]}));
  const withShares = (rows, {time, own}) => {
    const total = (name) => rows.reduce((sum, row) => sum + (row[name] ?? 0), 0) || 1;
    const compared = rows.some((row) => row[`before_${time}`] !== undefined);
    const both = compared && own === time;
    // Side by side, both are shares of the longer one, so that their lengths compare.
    const whole = both ? Math.max(total(own), total(`before_${own}`)) : total(own);
    for (const row of rows) {
      row.share = (row[own] ?? 0) / whole;
      if (both) row.before_share = (row[`before_${own}`] ?? 0) / whole;
      if (compared) {
        row.difference = (row[time] ?? 0) - (row[`before_${time}`] ?? 0);
        row.isFlat = isFlat(row[`before_${time}`] ?? 0, row[time] ?? 0);
        row.className = !row.calls ? "gone" : row.before_calls === 0 ? "came" : null;
      }
    }
    return {compared, both};
  };

  const nameCell = (find) => (row) => {
    const facts = [row.dtype, row.library && row.library !== row.name ? row.library : null, row.forward_op && `backward of ${row.forward_op}`, row.operands];
    const long = row.name !== row.short && row.short !== undefined;
    const rest = facts.filter(Boolean);
    const mark = row.className && h("span", {class: "file"}, row.className === "gone" ? " gone" : " new");
    const words = h("span", {}, h("bdi", {}, shown(row.short ?? row.name, 90)), mark);
    const label = h("span", {class: "label"}, row.family && h("span", {class: `swatch ${Painting.swatchClass(row.family)}`, title: row.family}), words);
    if (!long && !rest.length && !find) return h("th", {scope: "row", class: "left"}, label);
    return h("th", {scope: "row", class: "left"},
      h("details", {}, h("summary", {}, label),
        long && h("code", {class: "whole"}, shown(row.name, 3000)),
        rest.length ? h("p", {class: "hint"}, rest.map((fact) => shown(fact, 400)).join(" · ")) : null,
        find && row.calls ? h("button", {type: "button", class: "quiet", on: {click: () => find(row)}}, "show in the timeline") : null));
  };
  const SHARES = {time_us: "share", self_gpu_us: "share, own GPU", self_cpu_us: "share, own CPU"};
  const NAMES = {kernel: "kernel", family: "family", op: "operator", module: "module"};
  const NOUNS = {kernel: ["kernel name", "kernel names"], family: ["kernel family", "kernel families"], op: ["operator", "operators"], module: ["module", "modules"]};

  // Columns come with their titles and units; what has no title stands below a row's name.
  const rowTable = (table, way, find, steps) => {
    const rows = asRows(table);
    const {compared, both} = withShares(rows, table);
    const drawn = ({key, title, unit, compared: comparable}) => {
      const beside = compared && comparable && [table.counts, table.time].includes(key);
      return [
        beside && {key: `before_${key}`, title: `${title} before`, kind: unit},
        {key, title: beside ? "now" : title, kind: unit, most: 40},
        compared && key === table.time && {key: "difference", title: "difference", kind: "us", draw: difference},
        key === table.own && {key: "share", title: SHARES[key], kind: "bar", before: both ? "before_share" : null},
      ].filter(Boolean);
    };
    const columns = [
      {key: "name", title: NAMES[way], left: true, draw: nameCell(find)},
      ...table.columns.filter(({title}) => title).flatMap(drawn),
    ];
    const total = rows.reduce((sum, row) => sum + (row.time_us ?? 0), 0);
    const caption = [
      `${show.count(rows.length)} ${NOUNS[way][rows.length === 1 ? 0 : 1]}`, steps > 1 && ` over ${show.count(steps)} steps`, table.own === "time_us" && `, shares of ${told("us", total)}`,
      table.of_step && ", of one step", table.more && `; ${show.count(table.more)} more are left out`,
    ].filter(Boolean).join("");
    return DataTable.make({caption, columns, rows, by: compared ? "difference" : table.own});
  };

  // Where a step's time goes, as one bar; two of them have one scale.
  const ROLE_PATTERNS = {memcpy: "falling", memset: "standing", communication: "lying", data_loader: "falling", cpu: "rising"};
  const roleClass = (name) => `r-${name} p-${ROLE_PATTERNS[name] ?? "solid"}`;
  const strip = (parts, scale, label) => {
    const bar = h("div", {class: "strip", role: "img", "aria-label": label});
    for (const [name, us] of parts) {
      if (!(us > 0)) continue;
      const piece = h("span", {class: roleClass(name), title: `${ROLES[name] ?? name}: ${told("us", us)}`});
      piece.style.width = `${(100 * us) / scale}%`;
      bar.append(piece);
    }
    return bar;
  };
  const stepTime = (test, sides) => {
    const both = [test.time_before, test.time].filter(Boolean);
    if (!both.length) return null;
    const scale = Math.max(...both.map((time) => time.total_us)) || 1;
    const names = Object.keys(ROLES).filter((name) => both.some((time) => time.parts[name] > 0.0005 * time.total_us));
    const title = (time) => (both.length > 1 ? `${time === test.time ? sides[1] : sides[0]}: ` : "");
    const rows = names.map((name) => h("tr", {},
      h("th", {scope: "row", class: "left"}, h("span", {class: `swatch ${roleClass(name)}`}), ROLES[name]),
      both.map((time) => [h("td", {}, told("us", time.parts[name])), h("td", {}, told("share", time.parts[name] / time.total_us))])));
    const heads = both.map((time) => [h("th", {scope: "col", class: "number"}, both.length > 1 ? (time === test.time ? "now" : "before") : "time"), h("th", {scope: "col", class: "number"}, "share")]);
    const gaps = (test.time ?? both[0]).other ?? [];
    const goes = test.is_whole ? "Where the time goes" : "Where a step's time goes";
    return [
      both.map((time) => [
        h("p", {class: "hint"}, `${title(time)}${told("us", time.total_us)}${test.is_whole ? "" : " a step"}, until CPU and GPU are done${time === test.time && test.steps > 1 ? `; the mean of ${show.count(test.steps)}` : ""}`),
        strip(names.map((name) => [name, time.parts[name]]), scale, `${goes}: ${names.map((name) => `${ROLES[name]} ${told("share", time.parts[name] / time.total_us)}`).join(", ")}`),
      ]),
      h("div", {class: "side"},
        (both.length > 1 ? inRows : scrolled)(goes, h("table", {class: "fit"}, h("caption", {class: "unseen"}, goes), h("thead", {}, h("tr", {}, h("th", {scope: "col", class: "left"}, "part"), heads)), h("tbody", {}, rows))),
        gaps.length > 0 && inRows("Nothing recorded",
          h("table", {class: "fit"}, h("caption", {class: "hint"}, "nothing recorded on CPU or GPU between"),
            h("thead", {}, h("tr", {}, ["after", "before", test.is_whole ? "time" : "a step", "gaps", "longest"].map((head, place) => h("th", {scope: "col", class: place < 2 ? "left" : "number"}, head)))),
            h("tbody", {}, gaps.map((gap) => h("tr", {},
              h("td", {class: "left"}, shown(gap.profiler ? `${gap.profiler} (the profiler)` : gap.after ?? (test.is_whole ? "the beginning" : "the step's beginning"), 44)),
              h("td", {class: "left"}, shown(gap.before ?? (test.is_whole ? "the end" : "its end"), 44)),
              h("td", {}, told("us", gap.time_us)), h("td", {}, told("count", gap.count)), h("td", {}, told("us", gap.longest_us)))))))),
    ];
  };

  // What it comes to, and where to look: the link leads to exactly that event.
  // Of two recordings it is what changed, of a rank what its job comes to; what one looks like by itself is less.
  const lead = (test, number, job, show) => {
    const {headline, compared} = test;
    const [first, ...others] = job?.headline ?? [];
    const isPair = Boolean(compared?.headline);
    const together = isPair ? h("p", {class: "lead"}, `${arrowed(compared.headline)}; `, h("a", {href: `#${number}/changes`}, arrowed(compared.why?.[0] ?? "Changes")))
      : first && !job.above && [
        h("p", {class: "lead"}, `${shown(first, 500)}. `, h("a", {href: `#${number}/ranks`}, "Ranks side by side")),
        others.map((line) => h("p", {}, shown(line, 500)))];
    if (!headline) return together;
    const itself = isPair ? "Now by itself: " : first && test.rank && `Rank ${test.rank.rank} by itself: `;
    const link = headline.mark === undefined ? shown(headline.where, 500) : h("a", {href: `#${number}/show-${headline.mark}`, on: {click: show}}, shown(headline.where, 500));
    return [
      together,
      h("p", {class: itself ? "alone" : "lead"}, itself, shown(headline.what, 500), " ", headline.where && link),
      headline.of_all && test.steps > 1 && h("p", {class: "hint scope"}, ofAll(test.steps)),
    ];
  };

  // So many stand out; the others are a click away.
  const FIRST_FINDINGS = 3;
  const KINDS = {recording: "about the recording", warning: "could be better", information: "good to know"};
  const kind = (one) => (one.severity === "warning" && one.saves_us > 0 ? `could save up to ${told("us", one.saves_us)}` : KINDS[one.severity] ?? "");
  const finding = (highlight, number) => (one) => h("li", {class: KINDS[one.severity] && `s-${one.severity}`},
    h("h4", {}, shown(one.title), h("span", {class: "file"}, ` ${kind(one)}`), h("code", {title: `torchprof explain ${shown(one.code)}`}, shown(one.code))),
    h("p", {}, shown(one.message, 2000)),
    one.source && h("p", {class: "hint"}, shown(one.source)),
    one.in_job && h("p", {class: "remedy"}, "first look at what the ranks show together: ", h("a", {href: `#${number}/ranks`}, "Ranks side by side")),
    one.remedy && h("p", {class: "remedy"}, shown(one.remedy, 2000)),
    one.command && h("p", {class: "remedy"}, h("code", {}, shown(one.command, 2000))),
    one.mark !== undefined && highlight ? h("button", {type: "button", class: "quiet", on: {click: () => highlight(one)}}, "show in the timeline") : null);
  const findings = (test, number, highlight) => {
    if (!test.findings?.length) return test.tables ? h("p", {class: "hint"}, "Nothing stands out.") : null;
    const items = test.findings.map(finding(highlight, number)), rest = items.slice(FIRST_FINDINGS);
    return [test.steps > 1 && h("p", {class: "hint scope"}, `totals ${ofAll(test.steps)}, unless a step is named`), h("ol", {class: "findings"}, items.slice(0, FIRST_FINDINGS)),
      rest.length ? h("details", {class: "more-findings"}, h("summary", {}, `${rest.length} more`), h("ol", {class: "findings", start: FIRST_FINDINGS + 1}, rest)) : null];
  };

  // The ranks of a job, one lane each: hatched where a rank waits for the last one, full where something is sent.
  const lanes = ({step, names, lanes: rows, total_us: total, waiting_us: waiting, more}) => {
    const part = (start, us, className, title) => {
      const piece = h("span", {class: className, title});
      piece.style.left = `${(100 * start) / (total || 1)}%`;
      piece.style.width = `${(100 * us) / (total || 1)}%`;
      return piece;
    };
    const pieces = (row) => row.flatMap(([start, wait, transfer, name]) => {
      const words = `${shown(names[name], 80)} from ${told("us", start)}: waits ${told("us", wait)}, then ${told("us", transfer)}`;
      return [wait > 0 && part(start, wait, "waits", words), part(start + wait, transfer, "sends", words)];
    });
    const left = more ? `; ${show.count(more)} shorter ones are left out` : "";
    return h("figure", {class: "lanes"},
      h("figcaption", {class: "hint"}, `collectives${isNumber(step) ? ` of step ${step + 1}, in which the ranks wait longest` : ""}: they wait for ${told("us", waiting)} in all; from left to right ${told("us", total)}${left}`),
      h("ul", {class: "tl-legend"}, h("li", {}, h("span", {class: "tl-swatch waits"}), "waits for the last rank"), h("li", {}, h("span", {class: "tl-swatch sends"}), "all are there")),
      rows.map(([rank, row]) => h("div", {class: "lane"}, h("span", {class: "file"}, `rank ${rank}`),
        h("div", {class: "track", role: "img", "aria-label": `rank ${rank} waits ${told("us", row.reduce((sum, [, wait]) => sum + wait, 0))} of ${told("us", total)}`}, pieces(row)))));
  };
  const ranks = (job) => {
    if (!job) return null;
    if (job.why_not) return h("p", {class: "hint"}, shown(job.why_not, 1000));
    const own = (row) => h("th", {scope: "row", class: "left"}, isNumber(row.number) ? h("a", {href: `#${row.number}`}, `rank ${row.rank}`) : `rank ${row.rank}`);
    const table = (one, caption, first, by) => DataTable.make({caption, by, rows: asObjects(one), columns: one.columns.filter(({title}) => title).map(
      ({key, title, unit}) => ({key, title, kind: unit, most: 60, ...(key === first ? {left: true, draw: first === "rank" ? own : null} : {})}))});
    return [
      job.lines.map((line) => h("p", {}, shown(line, 1000))),
      job.findings.length > 0 && h("ol", {class: "findings"}, job.findings.map(finding(null))),
      job.drawn && lanes(job.drawn),
      table(job.ranks, "ranks", "rank", "caused_us"),
      job.collectives && table(job.collectives, "collectives of all ranks together", "name", "transfer_us"),
    ].flat().filter(Boolean);
  };

  const SPELLED = {gpu: "GPU", cpu: "CPU", cuda: "CUDA", cudnn: "cuDNN", rocm: "ROCm", tf32: "TF32", mhz: "(MHz)", gcn: "GCN", python: "Python", triton: "Triton"};
  const environment = (test, sides) => {
    const [before, now] = [test.before?.environment ?? {}, test.environment ?? {}];
    const names = [...new Set([...Object.keys(now), ...Object.keys(before)])].filter((name) => (now[name] ?? before[name] ?? null) !== null);
    if (!names.length) return null;
    const told = (one) => one === true ? "on" : one === false ? "off" : one && typeof one === "object" ? Object.entries(one).map(([key, each]) => `${key.replaceAll("_", " ")} ${each}`).join(", ") : one ?? "–";
    const value = (side, name) => shown(told(side[name]), 300);
    const compared = Boolean(test.before);
    return (compared ? inRows : scrolled)("Table of the environment", h("table", {class: "fit"}, h("caption", {class: "unseen"}, "Environment"),
      h("thead", {}, h("tr", {}, ["", ...(compared ? sides : ["value"])].map((head) => (head ? h("th", {scope: "col", class: "left"}, head) : h("td", {}))))),
      h("tbody", {}, names.map((name) => h("tr", {class: compared && value(before, name) !== value(now, name) ? "differs" : null},
        h("th", {scope: "row", class: "left"}, name.split("_").map((word) => SPELLED[word] ?? word).join(" ")),
        compared && h("td", {class: "left"}, value(before, name)), h("td", {class: "left"}, value(now, name)))))));
  };

  return {headline: lead, message, changes, limits, numbers, rowTable, stepTime, findings, ranks, environment};
})();

// What a stretch of time holds: how busy the GPUs were, kernels by family, copies, waits and operators, each within it.
const Selection = (() => {
  const inside = (lane, i, from, to) => {
    const begin = Math.max(lane.start[i], from), end = Math.min(lane.end[i], to);
    // What has no length is in it at an instant.
    return end > begin || (lane.start[i] === lane.end[i] && lane.start[i] >= from && lane.start[i] < to) ? end - begin : -1;
  };

  // Counts by number, of a name or a variant: texts for each slice would take ten times as long.
  const add = (found, number, ns) => {
    const known = found.get(number);
    if (known) { known.count += 1; known.ns += ns; } else found.set(number, {count: 1, ns});
  };

  const named = (kind, found, name) => {
    const rows = new Map();
    for (const [number, {count, ns}] of found) {
      const text = name(number), row = rows.get(text);
      if (row) { row.count += count; row.ns += ns; } else rows.set(text, {kind, name: text, count, ns});
    }
    return [...rows.values()];
  };

  // The length of what spans cover together.
  const covered = (spans) => {
    let length = 0, reached = -Infinity;
    for (const [begin, end] of spans.sort((one, other) => one[0] - other[0])) {
      if (end > reached) { length += end - Math.max(begin, reached); reached = end; }
    }
    return length;
  };

  // Times are cut to the selection, from and to in ns since the recording began.
  const sum = (recording, from, to) => {
    const kernels = new Map(), copies = new Map(), waits = new Map(), operators = new Map(), busy = new Map();
    for (const lane of recording.lanes) {
      if (lane.onGpu && !busy.has(lane.title)) busy.set(lane.title, []);
      const spans = busy.get(lane.title), isOperators = lane.kind === "operators";
      for (let i = 0; i < lane.slices && lane.start[i] < to; i += 1) {
        const ns = inside(lane, i, from, to);
        if (ns < 0) continue;
        if (lane.onGpu) spans.push([Math.max(lane.start[i], from), Math.min(lane.end[i], to)]);
        if (lane.variant && lane.variant[i]) add(kernels, lane.variant[i], ns);
        else if (lane.onGpu) add(copies, lane.name[i], ns);
        if (lane.waits && lane.waits[i]) add(waits, lane.name[i], ns);
        if (isOperators) add(operators, lane.name[i], ns);
      }
    }
    const name = (number) => recording.names[number];
    const rows = [...named("kernels", kernels, (number) => recording.variants[number - 1][0]), ...named("copies", copies, name), ...named("waits", waits, name),
      ...named("operators", operators, name)];
    const shares = Array.from(busy.values(), (spans) => covered(spans) / (to - from));
    return {ns: to - from, busy: shares.length ? shares.reduce((all, one) => all + one, 0) / shares.length : null, rows};
  };

  const ORDER = ["kernels", "copies", "waits", "operators"];

  const draw = (element, sides, selection, close) => {
    element.replaceChildren(...sides.flatMap(({recording, zero, label}) => {
      const found = sum(recording, selection.from + zero, selection.to + zero), of = sides.length > 1 ? `${shown(label)}: ` : "";
      const rows = found.rows.map(({kind, name, count, ns}) => ({kind, name: shown(name, 400), count, time_us: ns / 1000, share: ns / found.ns}))
        .sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind) || other.time_us - one.time_us);
      const columns = [
        {key: "kind", title: "what", kind: "text"}, {key: "name", title: "name", kind: "text", most: 90}, {key: "count", title: "how many", kind: "count"},
        {key: "time_us", title: "time in it", kind: "us"}, {key: "share", title: "of the selection", kind: "share"},
      ];
      const busy = found.busy === null ? "" : `, the GPU busy ${show.share(found.busy)} of it`;
      return [h("p", {class: "tl-name"}, h("strong", {}, `${of}${Recording.timeText(found.ns)} selected${busy}`), " ", h("button", {type: "button", class: "quiet", on: {click: close}}, "let go")),
        rows.length ? DataTable.make({caption: `${of}what is in the selection; of what reaches beyond it, the part within`, columns, rows, by: null}) : h("p", {class: "tl-hint"}, "Nothing is in it.")];
    }));
  };

  return {sum, draw};
})();

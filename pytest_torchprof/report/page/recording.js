// Reads the bytes that packing.py packs: every slice of a recording, lane by lane, times in ns since its first event.
const Recording = (() => {
  const GPU_KINDS = new Set(["stream", "communication"]);

  const planes = (bytes, from, width, count) => {
    const values = width > 4 ? new Float64Array(count) : new Uint32Array(count);
    let scale = 1;
    for (let plane = 0; plane < width; plane += 1, scale *= 256) {
      const begin = from + plane * count;
      for (let i = 0; i < count; i += 1) values[i] += bytes[begin + i] * scale;
    }
    return values;
  };

  const signed = (values) => Float64Array.from(values, (value) => (value % 2 ? -(value + 1) / 2 : value / 2));

  const sums = (values, unit = 1) => {
    const found = new Float64Array(values.length);
    for (let i = 0, sum = 0; i < values.length; i += 1) found[i] = sum += values[i] * unit;
    return found;
  };

  // The slices of each row in order of time: of a row no two overlap, so their ends are in order too.
  const byRow = (rows, count) => {
    const sizes = new Uint32Array(count);
    for (const row of rows) sizes[row] += 1;
    const found = Array.from(sizes, (size) => new Uint32Array(size));
    const filled = new Uint32Array(count);
    for (let i = 0; i < rows.length; i += 1) found[rows[i]][filled[rows[i]]++] = i;
    return found;
  };

  const lane = (entry, columns, unit, first) => {
    const start = sums(columns.start, unit);
    const duration = Float64Array.from(columns.duration, (value) => value * unit);
    const found = {
      ...entry, ...columns, start, duration, first, onGpu: GPU_KINDS.has(entry.kind), inRow: byRow(columns.row, entry.rows),
      end: start.map((value, i) => value + duration[i]), total: duration.reduce((sum, value) => sum + value, 0),
    };
    for (const link of ["call", "op"]) if (columns[link]) found[link] = sums(signed(columns[link]));
    return found;
  };

  const flame = (entry, columns) => ({
    ...entry, name: columns.name, parent: Int32Array.from(columns.parent, (value) => value - 1), cpu: signed(columns.cpu),
    gpu: columns.gpu, calls: columns.calls,
  });

  const read = (buffer) => {
    const bytes = new Uint8Array(buffer);
    const headed = 4 + new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, headed)));
    let at = headed;
    const take = (listed, count) => {
      const columns = {};
      for (const [name, width] of listed) {
        columns[name] = planes(bytes, at, width, count);
        at += width * count;
      }
      return columns;
    };
    let first = 1;
    const lanes = header.lanes.map((entry) => {
      const found = lane(entry, take(entry.columns, entry.slices), header.unit_ns, first);
      first += entry.slices;
      return found;
    });
    const memory = header.memory.map((entry) => {
      const columns = take(entry.columns, entry.points);
      const used = sums(signed(columns.size)), of = (pick) => used.reduce((found, value) => pick(found, value), 0);
      return {title: entry.title, time: sums(columns.time), used, least: of(Math.min), most: of(Math.max)};
    });
    const flames = header.flames.map((entry) => flame(entry, take(entry.columns, entry.nodes)));
    const marks = header.marks.map((entry) => mark(lanes, entry, entry.columns ? take(entry.columns, entry.slices) : {}, entry.gap_columns ? take(entry.gap_columns, entry.gaps) : {}, header.unit_ns));
    return {...header, ...totals(lanes, flames), lanes, memory, flames, marks, kernels: kernelsByName(lanes, header)};
  };

  // The events of a finding: `of` has for each lane which of its slices they are, `gaps` times in which a GPU idled,
  // by the title of its lane, and those without any event on CPU and GPU by none, `chains`
  // slices that belong together, as numbers.
  const mark = (lanes, entry, columns, gapColumns, unit) => {
    const numbers = entry.slices ? Array.from(sums(signed(columns.slice))) : [], of = new Map();
    // Most are in the lane of the one before.
    let lane = lanes[0];
    const place = (number) => {
      if (!lane || number < lane.first || number >= lane.first + lane.slices) lane = lanes.find(({first, slices}) => number >= first && number < first + slices);
      return lane ? {lane, at: number - lane.first} : null;
    };
    for (const number of numbers) {
      const {lane: its, at} = place(number);
      if (!of.has(its)) of.set(its, new Uint8Array(its.slices));
      of.get(its)[at] = 1;
    }
    const gaps = new Map();
    if (entry.gaps) {
      const starts = sums(gapColumns.start, unit), beside = sums(signed(gapColumns.beside));
      for (let i = 0; i < entry.gaps; i += 1) {
        const next = place(beside[i]), title = next ? next.lane.title : "";
        if (!gaps.has(title)) gaps.set(title, []);
        gaps.get(title).push({start: starts[i], end: starts[i] + gapColumns.length[i] * unit, beside: next});
      }
    }
    let at = 0;
    const chains = entry.chains.map((length) => numbers.slice(at, at += length));
    return {slices: numbers.length, of, gaps, gapCount: entry.gaps, chains};
  };

  const totals = (lanes, flames) => {
    const sum = (which) => lanes.reduce((found, one) => found + which(one), 0);
    const kinds = new Set(flames.map((one) => one.kind));
    return {
      slices: sum((one) => one.slices), timeNs: sum((one) => one.total), gpuTimeNs: sum((one) => (one.onGpu ? one.total : 0)),
      endNs: lanes.reduce((latest, one) => one.end.reduce((most, end) => Math.max(most, end), latest), 0),
      hasModules: kinds.has("module"), hasStacks: kinds.has("stack"),
    };
  };

  // What is known of the kernels of each name, for the flames, which have names alone.
  const kernelsByName = (lanes, {variants, names}) => {
    const found = new Map();
    for (const {variant, name, onGpu} of lanes) {
      for (let i = 0; variant && i < name.length; i += 1) {
        if (variant[i]) found.set(name[i], variants[variant[i] - 1]);
        else if (onGpu) found.set(name[i], ["copy", "", null, null, names[name[i]]]);
      }
    }
    return found;
  };

  // The lane of a slice by its number among all, and its place in that lane.
  const placeOf = (recording, number) => {
    const found = recording.lanes.find(({first, slices}) => number >= first && number < first + slices);
    return found ? {lane: found, at: number - found.first} : null;
  };

  // The numbers of what each call launched, made when first asked for.
  const launchedBy = (recording, call) => {
    if (!recording.launched) {
      recording.launched = new Map();
      for (const one of recording.lanes) {
        for (let i = 0; one.call && i < one.slices; i += 1) {
          if (!one.call[i]) continue;
          const known = recording.launched.get(one.call[i]);
          if (known) known.push(one.first + i);
          else recording.launched.set(one.call[i], [one.first + i]);
        }
      }
    }
    return recording.launched.get(call) || [];
  };

  // The names of the operators that launched the slices of a lane, from 1 on; 0 is none. Made when first asked for.
  const operatorNames = (recording, lane) => {
    if (lane.op && !lane.operatorNames) {
      lane.operatorNames = Uint32Array.from(lane.op, (number) => {
        const op = number ? placeOf(recording, number) : null;
        return op ? op.lane.name[op.at] + 1 : 0;
      });
    }
    return lane.operatorNames;
  };

  // The place in `row` (places of a lane in order of time) of the first slice that ends after `moment`.
  const firstAfter = (times, row, moment) => {
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[row[middle]] > moment) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  // Beside what the page shows elsewhere, slices are so short that ns are needed.
  const timeText = (ns) => (Math.abs(ns) < 999.5 ? `${Math.round(ns)} ns` : show.us(ns / 1000));

  return {read, placeOf, launchedBy, operatorNames, firstAfter, timeText};
})();

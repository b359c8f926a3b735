// Paints the lanes of recordings on a canvas: only what is in view, and what is narrower than a pixel together.
const Painting = (() => {
  const AXIS = 24, SIDE = 24, HEADER = 19, GPU_ROW = 19, CPU_ROW = 15, MEMORY = 44;
  const FAMILIES = ["gemm", "conv", "attention", "pointwise", "reduction", "normalization", "softmax", "optimizer", "copy",
    "index", "sort", "rng", "communication", "other", "not known", "wait"];
  const LETTER = 6.2;  // The mean width of a letter, in pixels at 11 px.
  const MOST_ARROWS = 200;

  const themeOf = (element) => {
    const style = getComputedStyle(element);
    const colour = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
    const families = Object.fromEntries(FAMILIES.map((name) => [name, colour(`--f-${name === "not known" ? "other" : name}`, "#8a929c")]));
    return {
      dark, families, bg: colour("--panel", "#fff"), fg: colour("--fg", "#111"), muted: colour("--muted", "#666"),
      line: colour("--line", "#ddd"), accent: colour("--accent", "#15c"), warn: colour("--warn", "#850"),
      mark: colour("--mark", "#fe8"), sans: colour("--sans", "sans-serif"), cache: new Map(), widths: new Map(),
      bad: colour("--bad", "#b00"), pen: document.createElement("canvas").getContext("2d"),
    };
  };

  const inkOn = (colour) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.58 ? "#0d1013" : "#ffffff";
  };

  const familyOf = (recording, lane, i) => {
    if (lane.variant && lane.variant[i]) return recording.variants[lane.variant[i] - 1][0];
    return lane.onGpu ? "copy" : lane.waits && lane.waits[i] ? "wait" : null;
  };

  // What a slice is filled with, and what its name is written in.
  const inkOf = (theme, recording, lane, i) => {
    const family = familyOf(recording, lane, i), key = family || `${lane.kind} ${lane.name[i]}`;
    let found = theme.cache.get(key);
    if (!found) theme.cache.set(key, found = family ? inkOfFamily(theme, family) : inkOfName(theme, null, recording.names[lane.name[i]], lane.kind));
    return found;
  };

  const inkOfName = (theme, family, name, kind = "operators") => {
    if (family) return inkOfFamily(theme, family);
    let hue = 0;
    for (const letter of name.slice(0, 60)) hue = (hue * 31 + letter.codePointAt(0)) % 360;
    const [strength, light] = kind === "launches" ? [12, theme.dark ? 38 : 78] : [kind === "Python" ? 20 : theme.dark ? 28 : 42, theme.dark ? 32 : 80];
    return {fill: `hsl(${hue} ${strength}% ${light}%)`, text: theme.fg};
  };

  // What a family is told by besides its colour: two that share a pattern differ in colour for readers who see fewer of them.
  const PATTERNS = {
    solid: [],
    rising: [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]],
    falling: [[0, 0, 8, 8], [-2, 6, 2, 10], [6, -2, 10, 2]],
    lying: [[0, 2, 8, 2], [0, 6, 8, 6]],
    standing: [[2, 0, 2, 8], [6, 0, 6, 8]],
  };
  const PATTERN_OF = {
    gemm: "solid", reduction: "solid", optimizer: "solid", pointwise: "rising", normalization: "rising", copy: "rising", attention: "falling",
    index: "falling", sort: "falling", rng: "falling", communication: "lying", conv: "lying", "not known": "lying", softmax: "standing",
    other: "standing", wait: "standing",
  };
  const swatchClass = (family) => `f-${family.replace(" ", "-")} p-${PATTERN_OF[family] || "standing"}`;

  const patternOf = (context, colour, lines, width = 1.6) => {
    if (!lines.length) return null;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    for (const [x, y, toX, toY] of lines) {
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(toX, toY);
      pen.stroke();
    }
    return context.createPattern(tile, "repeat");
  };

  const inkOfFamily = (theme, family) => {
    const fill = theme.families[family] || theme.families.other, text = inkOn(fill);
    const over = text === "#ffffff" ? "rgb(255 255 255 / 34%)" : "rgb(0 0 0 / 26%)";
    return {fill, text, pattern: patternOf(theme.pen, over, PATTERNS[PATTERN_OF[family] || "standing"])};
  };

  // Where it is too narrow for a line of the pattern, the colour alone.
  const fillWith = (context, ink, x, y, wide, tall) => {
    context.fillStyle = ink.fill;
    context.fillRect(x, y, wide, tall);
    if (!ink.pattern || wide <= 4) return;
    context.fillStyle = ink.pattern;
    context.fillRect(x, y, wide, tall);
  };

  const rowHeight = (lane) => (lane.onGpu ? GPU_ROW : CPU_ROW);

  // Where everything stands, from the top: {y, height} of the sides' headings, of lanes and of memory.
  const layOut = (sides) => {
    let y = AXIS;
    for (const side of sides) {
      side.y = y;
      y += sides.length > 1 ? SIDE : 0;
      for (const one of side.parts) {
        one.y = y;
        one.height = HEADER + (one.closed ? 0 : one.lane ? one.lane.rows * rowHeight(one.lane) : MEMORY) + 3;
        y += one.height;
      }
      side.height = y - side.y;
    }
    return y + 4;
  };

  const labelOf = (recording, lane, i) => {
    const variant = lane.variant && lane.variant[i] ? recording.variants[lane.variant[i] - 1] : null;
    return variant ? variant[4] : recording.names[lane.name[i]];
  };

  // A painter of one frame. `frame`: {context, theme, width, height, top, from, to, sides, marks, counted}
  const paint = (frame) => {
    const {context, theme, width, height} = frame;
    context.fillStyle = theme.bg;
    context.fillRect(0, 0, width, height);
    frame.scale = width / (frame.to - frame.from);
    frame.counted = {seen: 0, together: 0};
    context.textBaseline = "middle";
    for (const side of frame.sides) paintSide(frame, side);
    for (const side of frame.sides) paintArrows(frame, side);
    paintAxis(frame);
    paintSelection(frame);
    return frame.counted;
  };

  const paintSide = (frame, side) => {
    const {context, theme, width, height, top} = frame;
    if (side.y - top > height || side.y + side.height < top) return;
    paintSteps(frame, side);
    if (frame.sides.length > 1) {
      context.fillStyle = theme.line;
      context.fillRect(0, side.y - top, width, SIDE - 2);
      write(frame, side.label, 8, side.y - top + SIDE / 2 - 1, width - 16, theme.fg, "600 12px");
    }
    for (const one of side.parts) {
      const y = one.y - top;
      if (y > height || y + one.height < AXIS) continue;
      paintHeader(frame, one, y);
      if (one.closed) continue;
      if (one.memory) paintMemory(frame, side, one.memory, y + HEADER);
      else {
        for (const mark of shownMarks(frame, side)) paintGaps(frame, side, mark, one, y + HEADER);
        paintRows(frame, side, one, y);
      }
    }
  };

  const paintRows = (frame, side, one, y) => {
    for (let row = 0; row < one.lane.rows; row += 1) paintRow(frame, side, one.lane, row, y + HEADER + row * rowHeight(one.lane));
  };

  // Findings that are shown: the one that was asked for, else all that are worth it.
  const shownMarks = ({marks}, side) => {
    if (marks.of) return marks.of.side === side ? [marks.of.mark] : [];
    return marks.found ? [] : side.standing;
  };

  // By which title the gaps of a lane go: where nothing has an event anywhere, that is a gap of every lane.
  const gapsTitle = (mark, lane) => (lane.onGpu && mark.gaps.has(lane.title) ? lane.title : "");

  // Gaps of a device follow one another, so that their ends are in order.
  const paintGaps = (frame, side, mark, one, y) => {
    const {context, theme, scale, width, from, to} = frame, title = gapsTitle(mark, one.lane), gaps = mark.gaps.get(title);
    if (!gaps) return;
    theme.gaps = theme.gaps || patternOf(context, theme.warn, PATTERNS.falling, 1.2);
    const begin = from + side.zero, until = to + side.zero, tall = one.lane.rows * rowHeight(one.lane);
    let low = 0, high = gaps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (gaps[middle].end > begin) high = middle;
      else low = middle + 1;
    }
    context.globalAlpha = frame.marks.of ? 0.85 : 0.4;
    for (let at = low, drawn = -1; at < gaps.length && gaps[at].start < until; at += 1) {
      const x = Math.max((gaps[at].start - begin) * scale, 0), end = Math.min((gaps[at].end - begin) * scale, width);
      // Of many in one pixel one is enough.
      if (end - x < 1 && Math.floor(x) === drawn) continue;
      drawn = Math.floor(x);
      context.fillStyle = end - x < 3 ? theme.warn : theme.gaps;
      context.fillRect(x, y + 1, Math.max(end - x, 0.7), tall - 2);
    }
    context.globalAlpha = 1;
    if (frame.marks.gap && frame.marks.gap.mark === mark && frame.marks.gap.title === title) {
      const {gap} = frame.marks.gap;
      context.strokeStyle = theme.accent;
      context.lineWidth = 3;
      context.strokeRect((gap.start - begin) * scale, y + 1, Math.max((gap.end - gap.start) * scale, 2), tall - 2);
    }
  };

  // Text that ends where its room does: what a name takes is measured once.
  const writeIn = (context, theme, text, x, y, room, colour, font = "11px") => {
    if (room < 3 * LETTER) return;
    context.font = `${font} ${theme.sans}`;
    const key = `${font}|${text}`;
    let wide = theme.widths.get(key);
    if (wide === undefined) theme.widths.set(key, wide = context.measureText(text).width);
    const letters = wide > room ? Math.floor(text.length * room / wide) - 1 : text.length;
    context.fillStyle = colour;
    if (letters > 1 || letters === text.length) context.fillText(letters < text.length ? `${text.slice(0, letters)}…` : text, x, y);
  };

  const write = ({context, theme}, ...rest) => writeIn(context, theme, ...rest);

  const paintHeader = (frame, one, y) => {
    const {context, theme, width} = frame;
    context.fillStyle = theme.line;
    context.fillRect(0, y, width, 1);
    const about = one.memory ? `at most ${show.bytes(one.memory.most)}` : `${show.count(one.lane.slices)} slice${one.lane.slices === 1 ? "" : "s"}, ${Recording.timeText(one.lane.total)}`;
    const sign = one.closed ? "▸" : "▾";
    write(frame, `${sign} ${one.title}`, 6, y + HEADER / 2 + 1, width - 12, theme.muted, one === frame.marks.part ? "600 11px" : "11px");
    const used = (one.title.length + 5) * LETTER;
    if (width - used > about.length * LETTER + 20) {
      context.textAlign = "right";
      write(frame, about, width - 8, y + HEADER / 2 + 1, width, theme.muted);
      context.textAlign = "left";
    }
  };

  const paintSteps = (frame, side) => {
    const {context, theme, from, scale, width, top} = frame;
    for (const step of side.recording.steps) {
      const x = (step.start_ns - side.zero - from) * scale, end = (step.end_ns - side.zero - from) * scale;
      if (end < 0 || x > width) continue;
      context.fillStyle = theme.line;
      for (const edge of [x, end]) context.fillRect(Math.round(edge), side.y - top, 1, side.height);
    }
  };

  // Slices of a row do not overlap: of those that begin in one pixel only the last can reach beyond it.
  const paintRow = (frame, side, lane, row, y) => {
    const tall = rowHeight(lane), {from, to, scale, width, height, counted} = frame;
    if (y > height || y + tall < AXIS) return;
    const places = lane.inRow[row], begin = from + side.zero, until = to + side.zero;
    for (let at = Recording.firstAfter(lane.end, places, begin); at < places.length;) {
      const i = places[at];
      if (lane.start[i] > until) break;
      const x = (lane.start[i] - begin) * scale, wide = lane.duration[i] * scale;
      if (wide >= 1) {
        paintSlice(frame, side, lane, i, Math.max(x, -2), Math.min(x + wide, width + 2), y, tall);
        counted.seen += 1;
        at += 1;
        continue;
      }
      const pixel = begin + (Math.floor(x) + 1) / scale;
      let next = Math.max(Recording.firstAfter(lane.start, places, pixel), at + 1);
      if (next - 1 > at && lane.duration[places[next - 1]] * scale >= 1) next -= 1;
      paintTogether(frame, side, lane, places, at, next, Math.floor(x), y, tall);
      counted.seen += next - at;
      counted.together += next - at;
      at = next;
    }
  };

  const paintTogether = (frame, side, lane, places, at, next, x, y, tall) => {
    let longest = places[at], found = FAINT;
    // A few tell colour and strength; marks are looked for in all.
    const stride = frame.marks.found ? 1 : Math.max(1, (next - at) >> 4);
    for (let one = at; one < next; one += stride) {
      if (lane.duration[places[one]] > lane.duration[longest]) longest = places[one];
      found = Math.max(found, strength(frame, side, lane, places[one]));
    }
    frame.context.globalAlpha = found * 0.9;
    frame.context.fillStyle = inkOf(frame.theme, side.recording, lane, longest).fill;
    frame.context.fillRect(x, y + 1, 1, tall - 2);
    frame.context.globalAlpha = 1;
  };

  const FAINT = 0.18, BESIDE = 0.4;

  // Others than those looked for are faint, and what is not of the step paler than what is.
  const strength = (frame, side, lane, i) => {
    if (frame.marks.found) return isMarked(frame, side, lane, i) ? 1 : FAINT;
    return isOfStep(side, lane, i) ? 1 : BESIDE;
  };

  const isOfStep = ({recording, step}, lane, i) => {
    const {start_ns: begin, end_ns: end} = recording.steps[step];
    if (recording.steps.length === 1) return true;
    return lane.step ? lane.step[i] === step + 1 : lane.end[i] > begin && lane.start[i] < end;
  };

  const isMarked = ({marks}, side, lane, i) => {
    const found = marks.found.get(lane);
    return found !== undefined && found[i] === 1;
  };

  const paintSlice = (frame, side, lane, i, x, end, y, tall) => {
    const {context, theme, marks} = frame, wide = end - x;
    const ink = inkOf(theme, side.recording, lane, i);
    context.globalAlpha = strength(frame, side, lane, i);
    fillWith(context, ink, x, y + 1, Math.max(wide - (wide > 3 ? 1 : 0), 1), tall - 2);
    if (wide > 26) write(frame, shown(labelOf(side.recording, lane, i), 120), Math.max(x, 0) + 4, y + tall / 2 + 0.5, end - Math.max(x, 0) - 8, ink.text);
    context.globalAlpha = 1;
    if (wide > 2) underline(frame, side, lane, i, x, end, y + tall - 3);
    for (const [mark, colour, line] of [[marks.over, theme.fg, 1.5], [marks.chosen, theme.accent, 3]]) {
      if (!mark || mark.side !== side || mark.lane !== lane || mark.at !== i) continue;
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(x + 0.5, y + 1, Math.max(wide - 1, 1), tall - 2);
    }
  };

  // What a finding is of has a line below it, which joins the pieces of a chain.
  const underline = ({context, theme, marks, from, scale}, side, lane, i, x, end, y) => {
    const joined = lane.joined ? lane.joined[i] : 0;
    if (marks.of || marks.found || !(joined || (lane.standing && lane.standing[i]))) return;
    context.fillStyle = theme.bad;
    const next = joined ? (lane.start[joined - 1] - side.zero - from) * scale : end;
    context.fillRect(x, y, Math.max(Math.max(next, end) - x - (joined ? 0 : 1), 1), 2);
  };

  const paintSelection = ({context, theme, width, height, selection, from, scale}) => {
    if (!selection) return;
    const x = (selection.from - from) * scale, end = (selection.to - from) * scale;
    context.fillStyle = theme.accent;
    context.globalAlpha = 0.14;
    context.fillRect(Math.max(x, 0), 0, Math.min(end, width) - Math.max(x, 0), height);
    context.globalAlpha = 1;
    for (const edge of [x, end]) context.fillRect(Math.round(edge), 0, 1, height);
  };

  const paintMemory = (frame, side, memory, y) => {
    const {context, theme, from, scale, width} = frame, {time, used} = memory;
    const tall = MEMORY - 8, level = (value) => y + tall - ((value - memory.least) / Math.max(memory.most - memory.least, 1)) * tall;
    let value = 0;
    context.beginPath();
    context.moveTo(0, level(0));
    for (let i = 0; i < time.length; i += 1) {
      const x = Math.max((time[i] - side.zero - from) * scale, 0);
      if (x > width) break;
      context.lineTo(x, level(value));
      context.lineTo(x, level(used[i]));
      value = used[i];
    }
    const last = time.length ? Math.min((time[time.length - 1] - side.zero - from) * scale, width) : 0;
    context.lineTo(Math.max(last, 0), level(value));
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.2;
    context.stroke();
    context.lineTo(Math.max(last, 0), level(0));
    context.lineTo(0, level(0));
    context.globalAlpha = 0.15;
    context.fillStyle = theme.accent;
    context.fill();
    context.globalAlpha = 1;
  };

  // Where a slice stands on the canvas; of a closed lane its heading.
  const placeOn = (frame, side, {lane, at}) => {
    const part = side.parts.find((one) => one.lane === lane);
    const y = part.y - frame.top + (part.closed ? HEADER / 2 : HEADER + (lane.row[at] + 0.5) * rowHeight(lane));
    return {x: (lane.start[at] - side.zero - frame.from) * frame.scale, end: (lane.end[at] - side.zero - frame.from) * frame.scale, y};
  };

  const paintArrows = (frame, side) => {
    const {context, theme, marks} = frame;
    for (const mark of [marks.over, marks.chosen]) {
      if (!mark || mark.side !== side) continue;
      const pairs = pairsOf(side.recording, mark);
      context.strokeStyle = theme.accent;
      context.globalAlpha = 0.9;
      context.lineWidth = 1.4;
      for (const [call, work] of pairs.slice(0, MOST_ARROWS)) paintArrow(context, placeOn(frame, side, call), placeOn(frame, side, work));
      context.globalAlpha = 1;
    }
  };

  // What is linked with a slice, as [launch, work on the GPU] each.
  const pairsOf = (recording, {lane, at}) => {
    if (lane.onGpu) return lane.call[at] ? [[Recording.placeOf(recording, lane.call[at]), {lane, at}]] : [];
    if (lane.kind !== "launches") return [];
    return Recording.launchedBy(recording, lane.first + at).map((number) => [{lane, at}, Recording.placeOf(recording, number)]);
  };

  const paintArrow = (context, from, to) => {
    const x = Math.min((from.x + from.end) / 2, from.x + 8), reach = Math.max(20, Math.abs(to.x - x) / 3);
    context.beginPath();
    context.moveTo(x, from.y);
    context.bezierCurveTo(x + reach, from.y, to.x - reach, to.y, to.x, to.y);
    context.moveTo(to.x - 6, to.y - 4);
    context.lineTo(to.x, to.y);
    context.lineTo(to.x - 6, to.y + 4);
    context.stroke();
  };

  const paintAxis = (frame) => {
    const {context, theme, width, from, to, scale} = frame;
    context.fillStyle = theme.bg;
    context.fillRect(0, 0, width, AXIS - 1);
    context.fillStyle = theme.line;
    context.fillRect(0, AXIS - 1, width, 1);
    const rough = (to - from) / Math.max(width / 110, 1), power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
    const most = Math.max(Math.abs(from), Math.abs(to));
    const [unit, called] = most < 1e3 ? [1, "ns"] : most < 1e6 ? [1e3, "us"] : most < 1e9 ? [1e6, "ms"] : [1e9, "s"];
    const digits = Math.max(0, Math.ceil(-Math.log10(tick / unit) - 1e-9));
    for (let place = Math.ceil(from / tick); place * tick <= to; place += 1) {
      const x = (place * tick - from) * scale;
      context.fillStyle = theme.line;
      context.fillRect(Math.round(x), AXIS - 8, 1, 8);
      write(frame, place ? `${(place * tick / unit).toFixed(digits)} ${called}` : "0", x + 4, AXIS / 2, 100, theme.muted);
    }
  };

  // The slice at a point of the canvas: {side, lane, at, together}, a heading as {side, part}, or null.
  const hit = (frame, x, y) => {
    if (y < AXIS) return null;
    for (const side of frame.sides) {
      const part = side.parts.find((one) => y + frame.top >= one.y && y + frame.top < one.y + one.height);
      if (!part) continue;
      const inside = y + frame.top - part.y - HEADER;
      if (inside < 0) return {side, part};
      if (part.lane) return hitRow(frame, side, part.lane, Math.floor(inside / rowHeight(part.lane)), x) || hitGap(frame, side, part.lane, x);
    }
    return null;
  };

  const WIDE = 5;
  const hitGap = (frame, side, lane, x) => {
    const moment = frame.from + side.zero + x / frame.scale;
    for (const mark of shownMarks(frame, side)) {
      const title = gapsTitle(mark, lane), gap = (mark.gaps.get(title) || []).find(({start, end}) => start <= moment && moment < end);
      if (gap && (gap.end - gap.start) * frame.scale >= WIDE) return {side, mark, gap, title};
    }
    return null;
  };

  const hitRow = (frame, side, lane, row, x) => {
    const places = lane.inRow[row], pixel = 1 / frame.scale;
    if (!places) return null;
    const moment = frame.from + side.zero + x / frame.scale;
    const under = places[Recording.firstAfter(lane.end, places, moment)];
    if (under !== undefined && lane.start[under] <= moment && lane.duration[under] >= pixel) return {side, lane, at: under, together: 0};
    const first = Recording.firstAfter(lane.end, places, moment - 2 * pixel);
    const beyond = Recording.firstAfter(lane.start, places, moment + 2 * pixel);
    if (beyond <= first || hitGap(frame, side, lane, x)) return null;
    let found = places[first], together = 0;
    for (let at = first; at < beyond; at += 1) {
      if (lane.duration[places[at]] > lane.duration[found]) found = places[at];
      together += lane.duration[places[at]] < pixel;
    }
    if (lane.duration[found] >= pixel) together = 0;
    return {side, lane, at: found, together};
  };

  return {themeOf, layOut, paint, hit, writeIn, fillWith, pairsOf, familyOf, inkOfName, labelOf, isMarked, isOfStep, HEADER, AXIS, FAMILIES, PATTERN_OF, swatchClass};
})();

// The timeline: one recording, or two on one scale; zoom, pan, search, details, all by pointer and by keyboard.
const Timeline = (() => {
  const NARROWEST_NS = 50, DEEP = 8, TALLEST = 720;
  const FIRST_KEYS = "Arrow keys or W A S D: zoom and pan. + and -: zoom. ", STEP_KEYS = "0: the whole step. [ and ]: other steps. ", WHOLE_KEYS = "0: all of it. ";
  const MORE_KEYS = "/: search, then N and Shift+N: hits. Enter: details of the slice under the pointer, else of the longest in view. , and .: the slice before and after in its row. "
    + "G: to its launch or kernel. X: sum up what is in view. Escape: let go. Drag: select, and what is in it is summed up below. Shift+drag: pan. "
    + "Ctrl+wheel: zoom. Double click: zoom to a slice. Click a heading: fold its lane.";

  const draw = (element, recordings, {view = null, labels = [], step = null, findings = []} = {}) => {
    const last = recordings.length - 1;
    const sides = recordings.map((recording, i) => sideOf(recording, labels[i] || "", recordings.length > 1, i === last ? findings : []));
    const state = {element, sides, from: 0, to: 1, marks: {}, hits: [], hit: -1, frame: null, theme: null, due: false, selection: null, gone: []};
    build(state);
    const wanted = step === null ? -1 : recordings[0].steps.findIndex(({name}) => name === step);
    goToStep(state, wanted);
    if (view) look(state, view[0] * 1000 - sides[0].zero, view[1] * 1000 - sides[0].zero);
    element.dataset.slices = sides.reduce((sum, {recording}) => sum + recording.slices, 0);
    element.dataset.timeNs = sides.reduce((sum, {recording}) => sum + recording.timeNs, 0);
    element.dataset.gpuTimeNs = sides.reduce((sum, {recording}) => sum + recording.gpuTimeNs, 0);
    return {
      show: (from, to) => look(state, from * 1000 - sides[0].zero, to * 1000 - sides[0].zero),
      highlight: (wanted) => (wanted.mark === undefined ? highlight(state, wanted) : showMark(state, wanted.mark, wanted.title)),
      destroy: () => { for (const undo of state.gone) undo(); element.replaceChildren(); },
    };
  };

  // Where no steps are marked, none is spoken of.
  const areWhole = (sides) => sides.every(({recording}) => recording.steps[0].name === null);
  const helpOf = (sides) => FIRST_KEYS + (areWhole(sides) ? WHOLE_KEYS : STEP_KEYS) + MORE_KEYS;

  // Of two recordings the GPUs are to be in view together: the other lanes are folded at first.
  const sideOf = (recording, label, paired, findings) => {
    const fold = (lane) => (paired && recording.gpuTimeNs ? !lane.onGpu && lane.kind !== "ranges" : lane.kind === "Python" && lane.rows > DEEP);
    const lanes = recording.lanes.map((lane) => ({lane, title: shown(`${lane.title} · ${lane.subtitle}`, 90), closed: fold(lane)}));
    const memory = recording.memory.map((one) => ({memory: one, title: shown(`${one.title} · in use since the recording began`, 90), closed: paired}));
    const standing = standingOut(recording, findings);
    return {recording, label, step: recording.worst, zero: 0, parts: [...lanes, ...memory], findings: findings.filter(({mark}) => mark !== undefined), standing};
  };

  // What is drawn of findings unasked: gaps of a GPU, and a line below the slices of what costs time. Two with the same gaps are one.
  const standingOut = (recording, findings) => {
    const seen = new Set(), standing = [];
    for (const {mark: number, severity} of findings) {
      const mark = number === undefined ? null : recording.marks[number];
      if (!mark || severity === "information") continue;
      for (const [lane, of] of mark.of) {
        lane.standing = lane.standing || new Uint8Array(lane.slices);
        for (let i = 0; i < of.length; i += 1) lane.standing[i] |= of[i];
      }
      for (const chain of mark.chains) join(recording, chain);
      const key = Array.from(mark.gaps, ([title, gaps]) => `${title} ${gaps.length} ${gaps[0].start}`).join();
      if (mark.gapCount && !mark.gaps.has("") && !seen.has(key)) standing.push(mark);
      seen.add(key);
    }
    return standing;
  };

  // Pieces of a chain that follow one another in a row know the next one.
  const join = (recording, chain) => {
    const places = chain.map((number) => Recording.placeOf(recording, number));
    for (let i = 1; i < places.length; i += 1) {
      const [one, next] = [places[i - 1], places[i]];
      if (one.lane !== next.lane || one.lane.row[one.at] !== one.lane.row[next.at] || next.lane.start[next.at] < one.lane.end[one.at]) continue;
      one.lane.joined = one.lane.joined || new Uint32Array(one.lane.slices);
      one.lane.joined[one.at] = next.at + 1;
    }
  };

  const listen = (state, target, kind, handler, options) => {
    target.addEventListener(kind, handler, options);
    state.gone.push(() => target.removeEventListener(kind, handler, options));
  };

  const button = (title, text, click) => h("button", {type: "button", title, "aria-label": title, on: {click}}, text);

  const build = (state) => {
    const {element, sides} = state;
    state.canvas = h("canvas", {class: "tl-canvas", tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": `Timeline of ${sides.length > 1 ? "two recordings" : "the recording"}. ${helpOf(sides)}`});
    state.room = h("div", {class: "tl-room"}, state.canvas);
    state.scroll = h("div", {class: "tl-scroll"}, state.room);
    state.tip = h("div", {class: "tl-tip", hidden: true, "aria-hidden": "true"});
    state.pane = h("div", {class: "tl-pane", role: "region", "aria-label": "Details of the chosen slice", "aria-live": "polite"});
    state.status = h("p", {class: "tl-status"});
    state.sums = h("div", {class: "tl-sums", role: "region", "aria-label": "What is selected", hidden: true});
    const text = h("div", {});
    const asText = h("details", {class: "tl-text"}, h("summary", {}, areWhole(sides) ? "All of it as text" : "This step as text"), text);
    asText.addEventListener("toggle", () => { if (asText.open) Details.fillText(text, sides); });
    state.refillText = () => { if (asText.open) Details.fillText(text, sides); };
    element.replaceChildren(toolbar(state), legend(sides), h("div", {class: "tl-frame"}, state.scroll, state.tip), state.status, state.sums, state.pane, asText);
    listenAll(state);
    Details.fillPane(state.pane, null);
  };

  const toolbar = (state) => {
    const most = Math.max(...state.sides.map(({recording}) => recording.steps.length));
    const longer = state.sides.find(({recording}) => recording.steps.length === most).recording;
    const worst = state.sides.length > 1 ? "the longest step of each" : `the longest step: ${stepName(longer, longer.worst)}`;
    state.select = h("select", {"aria-label": "Step", on: {change: () => goToStep(state, Number(state.select.value))}},
      h("option", {value: "-1"}, worst), ...longer.steps.map((_, i) => h("option", {value: String(i)}, stepName(longer, i))));
    const steps = most > 1 ? [h("span", {class: "tl-group"}, button("step before ([)", "◂", () => otherStep(state, -1)), state.select, button("step after (])", "▸", () => otherStep(state, 1)))] : [];
    state.search = h("input", {type: "search", placeholder: "Search ( / )", title: "Names, labels, families, operators, modules and source lines", "aria-label": "Search names, labels, families, operators, modules and source lines", on: {input: () => search(state), keydown: (event) => inSearch(state, event)}});
    state.found = h("span", {class: "tl-found", role: "status"});
    return h("div", {class: "tl-bar"}, ...steps,
      h("span", {class: "tl-group"}, button("zoom in (+)", "+", () => zoom(state, 0.5)), button("zoom out (-)", "−", () => zoom(state, 2)), button(areWhole(state.sides) ? "fit all of it (0)" : "fit the whole step (0)", "fit", () => fit(state))),
      h("span", {class: "tl-group"}, state.search, button("hit before (Shift+N)", "◂", () => nextHit(state, -1)), button("next hit (N)", "▸", () => nextHit(state, 1))), state.found,
      h("details", {class: "tl-help"}, h("summary", {}, "Keys"), h("p", {}, helpOf(state.sides))));
  };

  // By its number too, as failures have it: the profiler counts from 0.
  const stepName = ({steps}, i) => {
    const name = steps[i].name === null ? "the whole recording" : `step ${i + 1} of ${steps.length}, ${shown(steps[i].name)}`;
    return `${name}, ${Recording.timeText(steps[i].until_ns - steps[i].start_ns)}`;
  };

  const legend = (sides) => {
    const used = new Set();
    for (const {recording} of sides) {
      for (const [family] of recording.variants) used.add(family);
      if (recording.lanes.some((lane) => lane.onGpu && lane.variant.includes(0))) used.add("copy");
      if (recording.lanes.some((lane) => lane.waits && lane.waits.includes(1))) used.add("wait");
    }
    const swatch = (name) => h("span", {class: `tl-swatch ${Painting.swatchClass(name)}`});
    const items = Painting.FAMILIES.filter((family) => used.has(family)).map((family) => h("li", {}, swatch(family), family === "wait" ? "the CPU waits for the GPU" : family));
    const gaps = sides.some(({standing}) => standing.length) ? [h("li", {}, h("span", {class: "tl-swatch tl-gap"}), "the GPU idles, see Findings")] : [];
    const lines = sides.some(({recording}) => recording.lanes.some((lane) => lane.standing)) ? [h("li", {}, h("span", {class: "tl-swatch tl-line"}), "of a finding")] : [];
    return h("ul", {class: "tl-legend", "aria-label": "Colours and patterns"}, ...items, ...gaps, ...lines);
  };

  // Steps and the view.
  const goToStep = (state, wanted) => {
    state.chosenStep = wanted;
    for (const side of state.sides) {
      side.step = wanted >= 0 && wanted < side.recording.steps.length ? wanted : side.recording.worst;
      side.zero = side.recording.steps[side.step].start_ns;
    }
    state.select.value = String(wanted);
    fit(state);
    state.refillText();
  };

  const otherStep = (state, by) => {
    const now = state.chosenStep < 0 ? state.sides[0].step : state.chosenStep;
    const count = state.select.options.length - 1;
    goToStep(state, Math.min(Math.max(now + by, 0), count - 1));
  };

  const fit = (state) => {
    const lengths = state.sides.map(({recording, step, zero}) => Math.max(recording.steps[step].until_ns - zero, 1000));
    const length = Math.max(...lengths);
    look(state, -length * 0.01, length * 1.01);
  };

  const look = (state, from, to) => {
    const width = Math.max(to - from, NARROWEST_NS), middle = (from + to) / 2;
    const ends = state.sides.map(({recording, zero}) => recording.endNs - zero), begins = state.sides.map(({zero}) => -zero);
    const longest = (Math.max(...ends) - Math.min(...begins)) * 1.1 + 1000, taken = Math.min(width, longest);
    const held = Math.min(Math.max(middle, Math.min(...begins)), Math.max(...ends));
    state.from = held - taken / 2;
    state.to = held + taken / 2;
    redraw(state);
  };

  const zoom = (state, factor, at = 0.5) => {
    const width = state.to - state.from, pivot = state.from + width * at;
    const next = Math.max(width * factor, NARROWEST_NS);
    look(state, pivot - next * at, pivot + next * (1 - at));
  };

  const pan = (state, share) => look(state, state.from + (state.to - state.from) * share, state.to + (state.to - state.from) * share);

  const redraw = (state) => {
    if (state.due) return;
    state.due = true;
    requestAnimationFrame(() => { state.due = false; paint(state); });
  };

  const paint = (state) => {
    const {canvas, scroll, room, sides} = state;
    const tall = Painting.layOut(sides), width = scroll.clientWidth;
    const height = Math.min(tall, TALLEST, Math.max(240, Math.round(innerHeight * 0.75)));
    const dense = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
      canvas.style.height = `${height}px`;
      scroll.style.height = `${height}px`;
    }
    room.style.height = `${tall}px`;
    state.theme = state.theme || Painting.themeOf(state.element);
    const context = canvas.getContext("2d");
    context.setTransform(dense, 0, 0, dense, 0, 0);
    state.frame = {context, theme: state.theme, width, height, top: scroll.scrollTop, from: state.from, to: state.to, sides, marks: state.marks, selection: state.selection};
    const counted = Painting.paint(state.frame);
    state.element.dataset.frames = Number(state.element.dataset.frames || 0) + 1;
    state.element.dataset.fromNs = state.from + sides[0].zero;
    state.element.dataset.toNs = state.to + sides[0].zero;
    const together = counted.together ? `; ${show.count(counted.together)} of them are narrower than a pixel, and those side by side are drawn as one line` : "";
    const left = sides.map(({recording}) => recording.left_out).filter(Boolean).join("; ");
    state.status.textContent = `${Recording.timeText(state.to - state.from)} in view, ${show.count(counted.seen)} slices in the rows shown${together}. ${left ? `${left}.` : "No slice is left out."}`;
  };

  // Search and marks.
  const PATTERN_WORDS = {copy: "copy", wait: "waits"};
  // Which texts of a list hold what is searched, a byte for each.
  const holding = (texts, wanted) => Uint8Array.from(texts, (text) => (text.toLowerCase().includes(wanted) ? 1 : 0));

  // What is searched is looked for in all that is told of a slice: name, label, family, library, type, operator, module, line.
  const likeText = (recording, text) => {
    const wanted = text.toLowerCase(), names = holding(recording.names, wanted), origins = holding(recording.origins, wanted);
    const variants = holding(recording.variants.map((variant) => variant.filter(Boolean).join("\n")), wanted);
    const words = Object.fromEntries(Object.entries(PATTERN_WORDS).map(([family, word]) => [family, word.includes(wanted)]));
    const byOperator = (lane, i) => { const of = Recording.operatorNames(recording, lane); return of && of[i] && names[of[i] - 1]; };
    return (lane, i) => names[lane.name[i]] || byOperator(lane, i) || (lane.variant && lane.variant[i] && variants[lane.variant[i] - 1]) || (lane.origin && lane.origin[i] && origins[lane.origin[i] - 1])
      || (lane.onGpu && !lane.variant[i] && words.copy) || (lane.waits && lane.waits[i] && words.wait);
  };

  const slicesLike = (side, like) => {
    const found = new Map();
    for (const lane of side.recording.lanes) {
      const of = new Uint8Array(lane.slices);
      let some = false;
      for (let i = 0; i < lane.slices; i += 1) if (like(lane, i)) { of[i] = 1; some = true; }
      if (some) found.set(lane, of);
    }
    return found;
  };

  // `found` says of each side which slices of its lanes are meant; `shown` is the finding that it is, with its gaps.
  const mark = (state, found, shown = null) => {
    const all = found && new Map([...found.values()].flatMap((lanes) => [...lanes]));
    state.marks = {...state.marks, found: all, of: shown, gap: null};
    state.hits = [];
    state.hit = -1;
    let time = 0;
    for (const side of found ? state.sides : []) {
      for (const [lane, of] of found.get(side) || []) {
        for (let at = 0; at < lane.slices; at += 1) {
          if (!of[at]) continue;
          state.hits.push({side, lane, at, start: lane.start[at] - side.zero, end: lane.end[at] - side.zero});
          time += lane.duration[at];
        }
      }
    }
    for (const [title, gaps] of shown ? shown.mark.gaps : []) {
      for (const gap of gaps) {
        state.hits.push({side: shown.side, mark: shown.mark, title, gap, start: gap.start - shown.side.zero, end: gap.end - shown.side.zero});
        time += gap.end - gap.start;
      }
    }
    state.hits.sort((one, other) => one.start - other.start);
    state.element.dataset.marked = state.hits.length;
    state.element.dataset.markedNs = time;
    const gaps = shown && shown.mark.gapCount === state.hits.length ? (state.hits.length === 1 ? " gap" : " gaps") : "";
    // The time of a finding's calls stands in its sentence, which may count what they waited for as well.
    const took = state.hits.length && (!shown || gaps) ? `, ${Recording.timeText(time)}` : "";
    state.found.textContent = found ? `${show.count(state.hits.length)}${gaps} found${took}` : "";
    redraw(state);
    return state.hits.length;
  };

  const search = (state) => {
    const text = state.search.value.trim();
    mark(state, text ? new Map(state.sides.map((side) => [side, slicesLike(side, likeText(side.recording, text))])) : null);
  };

  const inSearch = (state, event) => {
    if (event.key === "Enter") nextHit(state, event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { state.search.value = ""; search(state); state.canvas.focus(); }
    event.stopPropagation();
  };

  const nextHit = (state, by) => {
    if (!state.hits.length) return;
    if (state.hit < 0) state.hit = Math.max(state.hits.findIndex(({start}) => start >= state.from), 0);
    else state.hit = (state.hit + by + state.hits.length) % state.hits.length;
    goTo(state, state.hits[state.hit]);
  };

  // All slices of these names, of the newer recording.
  const highlight = (state, {names = null, ops = null}) => {
    const side = state.sides[state.sides.length - 1], {recording} = side;
    const wanted = new Set([...(names || []), ...(ops || [])].map((name) => shown(name, 10000)));
    const found = Uint8Array.from(recording.names, (name) => (wanted.has(name) ? 1 : 0));
    const count = mark(state, new Map([[side, slicesLike(side, (lane, i) => found[lane.name[i]])]]));
    nextHit(state, 1);
    return count;
  };

  // The events of a finding and nothing else: they are in view from the first to the last, the longest one with its details.
  const showMark = (state, number, title) => {
    const side = state.sides[state.sides.length - 1], found = side.recording.marks[number];
    state.search.value = "";
    const count = mark(state, new Map([[side, found.of]]), {side, mark: found, title});
    if (!count) return count;
    const begin = state.hits[0].start, end = state.hits.reduce((latest, hit) => Math.max(latest, hit.end), begin);
    const longest = state.hits.reduce((best, hit) => (hit.end - hit.start > best.end - best.start ? hit : best));
    const room = Math.max((end - begin) * (count > 1 ? 0.02 : 0.4), 25);
    look(state, begin - room, end + room);
    state.hit = state.hits.indexOf(longest);
    goTo(state, longest, {frame: false});
    return count;
  };

  // One slice.
  const choose = (state, chosen) => {
    state.marks = {...state.marks, chosen, gap: null};
    Details.fillPane(state.pane, chosen, (place) => goTo(state, {side: chosen.side, ...place}));
    redraw(state);
  };

  const chooseGap = (state, hit) => {
    state.marks = {...state.marks, chosen: null, gap: hit};
    Details.fillGap(state.pane, hit, (place) => goTo(state, {side: hit.side, ...place}));
    redraw(state);
  };

  const laneOfGap = ({lanes}, title) => lanes.find((one) => one.onGpu && one.title === title) || lanes.find(({kind}) => kind === "operators") || lanes[0];

  const goTo = (state, chosen, {frame = true} = {}) => {
    const {side, gap} = chosen, lane = gap ? (gap.beside ? gap.beside.lane : laneOfGap(side.recording, chosen.title)) : chosen.lane;
    const [start, end] = gap ? [gap.start, gap.end] : [chosen.lane.start[chosen.at], chosen.lane.end[chosen.at]];
    const part = side.parts.find((one) => one.lane === lane), row = gap ? 0 : lane.row[chosen.at];
    const begin = start - side.zero, length = Math.max(end - start, 1), width = state.to - state.from;
    part.closed = false;
    Painting.layOut(state.sides);
    const fitting = Math.min(Math.max(width, length * 1.2), length * 400), middle = begin + length / 2;
    if (frame && (begin < state.from || begin + length > state.to || fitting !== width)) look(state, middle - fitting / 2, middle + fitting / 2);
    const y = part.y + Painting.HEADER + row * 16;
    if (y < state.scroll.scrollTop + Painting.AXIS || y > state.scroll.scrollTop + state.scroll.clientHeight - 30) {
      state.room.style.height = `${Painting.layOut(state.sides)}px`;
      state.scroll.scrollTop = y - state.scroll.clientHeight / 2;
    }
    if (gap) chooseGap(state, chosen);
    else choose(state, chosen);
  };

  // What is selected, in the time of the drawing.
  const select = (state, from, to) => {
    state.selection = to > from ? {from, to} : null;
    state.sums.hidden = !state.selection;
    if (state.selection) Selection.draw(state.sums, state.sides, state.selection, () => select(state, 0, 0));
    redraw(state);
  };

  const longestInView = (state) => {
    let best = null;
    for (const side of state.sides) {
      for (const {lane} of side.parts.filter((part) => part.lane && !part.closed)) {
        for (let at = 0; at < lane.slices; at += 1) {
          if (lane.end[at] - side.zero < state.from || lane.start[at] - side.zero > state.to) continue;
          const works = lane.onGpu || Boolean(lane.variant && lane.variant[at]);
          const rank = 2 * Painting.isOfStep(side, lane, at) + works;
          const better = !best || rank > best.rank || (rank === best.rank && lane.duration[at] > best.lane.duration[best.at]);
          if (better) best = {side, lane, at, rank};
        }
      }
    }
    return best;
  };

  const beside = (state, by) => {
    const {chosen} = state.marks;
    if (!chosen) return;
    const places = chosen.lane.inRow[chosen.lane.row[chosen.at]], next = places[places.indexOf(chosen.at) + by];
    if (next !== undefined) goTo(state, {...chosen, at: next});
  };

  const toPartner = (state) => {
    const {chosen} = state.marks, [pair] = chosen ? Painting.pairsOf(chosen.side.recording, chosen) : [];
    if (pair) goTo(state, {side: chosen.side, ...pair[chosen.lane.onGpu ? 0 : 1]});
  };

  const letGo = (state) => {
    if (state.selection) select(state, 0, 0);
    else if (state.marks.chosen || state.marks.gap) choose(state, null);
    else { state.search.value = ""; search(state); }
    hideTip(state);
  };

  const chooseSome = (state) => {
    const chosen = state.marks.over || longestInView(state);
    if (chosen) goTo(state, chosen);
  };

  // Keys and pointer.
  const KEYS = {
    ArrowLeft: (state) => pan(state, -0.15), a: (state) => pan(state, -0.15), ArrowRight: (state) => pan(state, 0.15), d: (state) => pan(state, 0.15),
    w: (state) => zoom(state, 0.7), s: (state) => zoom(state, 1 / 0.7), "+": (state) => zoom(state, 0.5), "=": (state) => zoom(state, 0.5), "-": (state) => zoom(state, 2),
    ArrowUp: (state) => { state.scroll.scrollTop -= 48; }, ArrowDown: (state) => { state.scroll.scrollTop += 48; },
    0: fit, "[": (state) => otherStep(state, -1), "]": (state) => otherStep(state, 1), "/": (state) => state.search.focus(),
    n: (state) => nextHit(state, 1), N: (state) => nextHit(state, -1), Enter: chooseSome, Escape: letGo,
    x: (state) => select(state, state.from, state.to), ",": (state) => beside(state, -1), ".": (state) => beside(state, 1), g: toPartner,
  };

  const listenAll = (state) => {
    const {canvas, scroll} = state;
    listen(state, canvas, "keydown", (event) => {
      const action = KEYS[event.key] || KEYS[event.key.toLowerCase()];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action(state);
    });
    listen(state, scroll, "scroll", () => redraw(state));
    listen(state, canvas, "wheel", (event) => wheel(state, event), {passive: false});
    let drag = null;
    listen(state, canvas, "pointerdown", (event) => { drag = {x: event.clientX, y: event.clientY, from: state.from, top: scroll.scrollTop, moved: false, pans: event.shiftKey || event.button === 1 || event.pointerType === "touch"}; canvas.setPointerCapture(event.pointerId); });
    listen(state, canvas, "pointermove", (event) => { if (drag) dragged(state, drag, event); else hover(state, event); });
    listen(state, canvas, "pointerup", (event) => { if (drag && !drag.moved) click(state, event); else if (drag && !drag.pans) select(state, state.selection.from, state.selection.to); drag = null; });
    listen(state, canvas, "pointercancel", () => { drag = null; });
    listen(state, canvas, "pointerleave", () => { state.marks.over = null; hideTip(state); redraw(state); });
    listen(state, canvas, "dblclick", (event) => {
      const found = at(state, event);
      if (found && found.lane) look(state, found.lane.start[found.at] - found.side.zero - found.lane.duration[found.at] * 0.1, found.lane.end[found.at] - found.side.zero + found.lane.duration[found.at] * 0.1);
    });
    const themed = () => { state.theme = null; redraw(state); };
    for (const query of ["(prefers-color-scheme: dark)", "print"]) listen(state, matchMedia(query), "change", themed);
    const observer = new ResizeObserver(() => redraw(state));
    observer.observe(scroll);
    state.gone.push(() => observer.disconnect());
  };

  const at = (state, event) => {
    const box = state.canvas.getBoundingClientRect();
    return state.frame && Painting.hit(state.frame, event.clientX - box.left, event.clientY - box.top);
  };

  const wheel = (state, event) => {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      const box = state.canvas.getBoundingClientRect();
      zoom(state, Math.exp(Math.max(Math.min(event.deltaY, 100), -100) * 0.004), (event.clientX - box.left) / box.width);
    } else if (sideways) pan(state, sideways / state.canvas.clientWidth);
    else return;
    event.preventDefault();
  };

  const momentAt = (state, clientX) => {
    const box = state.canvas.getBoundingClientRect();
    return state.from + (Math.min(Math.max(clientX - box.left, 0), box.width) / box.width) * (state.to - state.from);
  };

  const dragged = (state, drag, event) => {
    const x = event.clientX - drag.x, y = event.clientY - drag.y;
    drag.moved = drag.moved || Math.abs(x) + Math.abs(y) > 4;
    if (!drag.moved) return;
    hideTip(state);
    if (!drag.pans) {
      const ends = [drag.x, event.clientX].map((place) => momentAt(state, place)).sort((one, other) => one - other);
      state.selection = {from: ends[0], to: ends[1]};
      redraw(state);
      return;
    }
    const width = state.to - state.from, from = drag.from - (x / state.canvas.clientWidth) * width;
    state.scroll.scrollTop = drag.top - y;
    look(state, from, from + width);
  };

  const hover = (state, event) => {
    const found = at(state, event), over = found && found.lane ? found : null;
    state.canvas.style.cursor = found ? "pointer" : "default";
    if (!over && !(found && found.gap)) hideTip(state);
    else {
      if (over) Details.fillTip(state.tip, over);
      else Details.fillGap(state.tip, found);
      state.tip.hidden = false;
      const frame = state.tip.parentElement.getBoundingClientRect(), tip = state.tip.getBoundingClientRect();
      const x = Math.min(event.clientX - frame.left + 14, frame.width - tip.width - 4), y = event.clientY - frame.top;
      state.tip.style.left = `${Math.max(x, 0)}px`;
      state.tip.style.top = `${y + tip.height + 24 > frame.height && y > tip.height ? y - tip.height - 10 : y + 18}px`;
    }
    state.marks.over = over;
    redraw(state);
  };

  const hideTip = (state) => { state.tip.hidden = true; };

  const click = (state, event) => {
    const found = at(state, event);
    if (found && found.part) found.part.closed = !found.part.closed;
    if (found && found.gap) chooseGap(state, found);
    else if (!found || found.lane) choose(state, found);
    redraw(state);
  };

  return {read: Recording.read, draw};
})();

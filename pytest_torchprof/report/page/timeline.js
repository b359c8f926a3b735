// The timeline: one recording, or two on one scale; zoom, pan, search, details, all by pointer and by keyboard.
const Timeline = (() => {
  const NARROWEST_NS = 50, DEEP = 8, TALLEST = 720;
  const HELP = "Arrow keys or W A S D: zoom and pan. + and -: zoom. 0: the whole step. [ and ]: other steps. /: search, then N and Shift+N: "
    + "hits. Enter: details of the slice under the pointer, else of the longest in view. , and .: the slice before and after in its row. "
    + "G: to its launch or kernel. Escape: let go. Drag: pan. Ctrl+wheel: zoom. Double click: zoom to a slice. Click a heading: fold its lane.";

  const draw = (element, recordings, {view = null, labels = [], step = null} = {}) => {
    const sides = recordings.map((recording, i) => sideOf(recording, labels[i] || "", recordings.length > 1));
    const state = {element, sides, from: 0, to: 1, marks: {}, hits: [], hit: -1, frame: null, theme: null, due: false, gone: []};
    build(state);
    const wanted = step === null ? -1 : recordings[0].steps.findIndex(({name}) => name === step);
    goToStep(state, wanted);
    if (view) look(state, view[0] * 1000 - sides[0].zero, view[1] * 1000 - sides[0].zero);
    element.dataset.slices = sides.reduce((sum, {recording}) => sum + recording.slices, 0);
    element.dataset.timeNs = sides.reduce((sum, {recording}) => sum + recording.timeNs, 0);
    element.dataset.gpuTimeNs = sides.reduce((sum, {recording}) => sum + recording.gpuTimeNs, 0);
    return {
      show: (from, to) => look(state, from * 1000 - sides[0].zero, to * 1000 - sides[0].zero),
      highlight: (wanted) => highlight(state, wanted),
      destroy: () => { for (const undo of state.gone) undo(); element.replaceChildren(); },
    };
  };

  // Of two recordings the GPUs are to be in view together: the other lanes are folded at first.
  const sideOf = (recording, label, paired) => {
    const fold = (lane) => (paired && recording.gpuTimeNs ? !lane.onGpu && lane.kind !== "ranges" : lane.kind === "Python" && lane.rows > DEEP);
    const lanes = recording.lanes.map((lane) => ({lane, title: shown(`${lane.title} · ${lane.subtitle}`, 90), closed: fold(lane)}));
    const memory = recording.memory.map((one) => ({memory: one, title: shown(`${one.title} · in use since the recording began`, 90), closed: paired}));
    return {recording, label, step: recording.worst, zero: 0, parts: [...lanes, ...memory]};
  };

  const listen = (state, target, kind, handler, options) => {
    target.addEventListener(kind, handler, options);
    state.gone.push(() => target.removeEventListener(kind, handler, options));
  };

  const button = (title, text, click) => h("button", {type: "button", title, "aria-label": title, on: {click}}, text);

  const build = (state) => {
    const {element, sides} = state;
    state.canvas = h("canvas", {class: "tl-canvas", tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": `Timeline of ${sides.length > 1 ? "two recordings" : "the recording"}. ${HELP}`});
    state.room = h("div", {class: "tl-room"}, state.canvas);
    state.scroll = h("div", {class: "tl-scroll"}, state.room);
    state.tip = h("div", {class: "tl-tip", hidden: true, "aria-hidden": "true"});
    state.pane = h("div", {class: "tl-pane", role: "region", "aria-label": "Details of the chosen slice", "aria-live": "polite"});
    state.status = h("p", {class: "tl-status"});
    const text = h("div", {});
    const asText = h("details", {class: "tl-text"}, h("summary", {}, "This step as text"), text);
    asText.addEventListener("toggle", () => { if (asText.open) Details.fillText(text, sides); });
    state.refillText = () => { if (asText.open) Details.fillText(text, sides); };
    element.replaceChildren(toolbar(state), legend(sides), h("div", {class: "tl-frame"}, state.scroll, state.tip), state.status, state.pane, asText);
    listenAll(state);
    Details.fillPane(state.pane, null);
  };

  const toolbar = (state) => {
    const most = Math.max(...state.sides.map(({recording}) => recording.steps.length));
    const longer = state.sides.find(({recording}) => recording.steps.length === most).recording;
    const worst = state.sides.length > 1 ? "the worst step of each" : `the worst step: ${stepName(longer, longer.worst)}`;
    state.select = h("select", {"aria-label": "Step", on: {change: () => goToStep(state, Number(state.select.value))}},
      h("option", {value: "-1"}, worst), ...longer.steps.map((_, i) => h("option", {value: String(i)}, stepName(longer, i))));
    const steps = most > 1 ? [h("span", {class: "tl-group"}, button("step before ([)", "◂", () => otherStep(state, -1)), state.select, button("step after (])", "▸", () => otherStep(state, 1)))] : [];
    state.search = h("input", {type: "search", placeholder: "Search names ( / )", "aria-label": "Search the names of slices", on: {input: () => search(state), keydown: (event) => inSearch(state, event)}});
    state.found = h("span", {class: "tl-found", role: "status"});
    return h("div", {class: "tl-bar"}, ...steps,
      h("span", {class: "tl-group"}, button("zoom in (+)", "+", () => zoom(state, 0.5)), button("zoom out (-)", "−", () => zoom(state, 2)), button("fit the whole step (0)", "fit", () => fit(state))),
      h("span", {class: "tl-group"}, state.search, button("hit before (Shift+N)", "◂", () => nextHit(state, -1)), button("next hit (N)", "▸", () => nextHit(state, 1))), state.found,
      h("details", {class: "tl-help"}, h("summary", {}, "Keys"), h("p", {}, HELP)));
  };

  const stepName = (recording, i) => `${shown(recording.steps[i].name || "the whole recording")}, ${Recording.timeText(recording.steps[i].until_ns - recording.steps[i].start_ns)}`;

  const legend = (sides) => {
    const used = new Set();
    for (const {recording} of sides) {
      for (const [family] of recording.variants) used.add(family);
      if (recording.lanes.some((lane) => lane.onGpu && lane.variant.includes(0))) used.add("copy");
    }
    const items = Painting.FAMILIES.filter((family) => used.has(family)).map((family) => h("li", {}, h("span", {class: `tl-swatch tl-f-${family.replace(" ", "-")}`}), family));
    return h("ul", {class: "tl-legend", "aria-label": "Colours of kernel families"}, ...items);
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
    state.frame = {context, theme: state.theme, width, height, top: scroll.scrollTop, from: state.from, to: state.to, sides, marks: state.marks};
    const counted = Painting.paint(state.frame);
    state.element.dataset.frames = Number(state.element.dataset.frames || 0) + 1;
    const together = counted.together ? `; ${show.count(counted.together)} of them are narrower than a pixel, and those side by side are drawn as one line` : "";
    const left = sides.map(({recording}) => recording.left_out).filter(Boolean).join("; ");
    state.status.textContent = `${Recording.timeText(state.to - state.from)} in view, ${show.count(counted.seen)} slices in the rows shown${together}. ${left || "No slice is left out."}`;
  };

  // Search and marks.
  const namesLike = (recording, text) => {
    const wanted = text.toLowerCase(), found = new Set();
    recording.names.forEach((name, i) => { if (name.toLowerCase().includes(wanted)) found.add(i); });
    return found;
  };

  const mark = (state, names, lanes = () => true, during = null) => {
    state.marks = {...state.marks, names, during};
    state.hits = [];
    state.hit = -1;
    let time = 0;
    for (const side of names ? state.sides : []) {
      for (const {lane} of side.parts.filter((part) => part.lane && lanes(part.lane))) {
        for (let at = 0; at < lane.slices; at += 1) {
          if (!Painting.isMarked(state, side, lane, at)) continue;
          state.hits.push({side, lane, at});
          time += lane.duration[at];
        }
      }
    }
    state.hits.sort((one, other) => one.lane.start[one.at] - one.side.zero - (other.lane.start[other.at] - other.side.zero));
    state.found.textContent = names ? `${show.count(state.hits.length)} found${state.hits.length ? `, ${Recording.timeText(time)}` : ""}` : "";
    redraw(state);
    return state.hits.length;
  };

  const search = (state) => {
    const text = state.search.value.trim();
    mark(state, text ? new Map(state.sides.map((side) => [side, namesLike(side.recording, text)])) : null);
  };

  const inSearch = (state, event) => {
    if (event.key === "Enter") nextHit(state, event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { state.search.value = ""; search(state); state.canvas.focus(); }
    event.stopPropagation();
  };

  const nextHit = (state, by) => {
    if (!state.hits.length) return;
    const ahead = ({side, lane, at}) => lane.start[at] - side.zero >= state.from;
    if (state.hit < 0) state.hit = Math.max(state.hits.findIndex(ahead), 0);
    else state.hit = (state.hit + by + state.hits.length) % state.hits.length;
    goTo(state, state.hits[state.hit]);
  };

  const highlight = (state, {names = null, ops = null, step = null, start_us = null, end_us = null}) => {
    const chosen = step === null ? -1 : state.sides[0].recording.steps.findIndex(({name}) => name === step);
    if (chosen >= 0) goToStep(state, chosen);
    const side = state.sides[state.sides.length - 1], {recording} = side;
    const wanted = new Set([...(names || []), ...(ops || [])].map((name) => shown(name, 10000)));
    const found = new Set();
    recording.names.forEach((name, i) => { if (!wanted.size || wanted.has(name)) found.add(i); });
    const told = chosen >= 0 ? recording.steps[side.step] : null;
    const during = start_us !== null ? [start_us * 1000, (end_us === null ? start_us : end_us) * 1000] : told ? [told.start_ns, told.until_ns] : null;
    const count = mark(state, new Map([[side, found]]), () => true, during);
    nextHit(state, 1);
    return count;
  };

  // One slice.
  const choose = (state, chosen) => {
    state.marks = {...state.marks, chosen};
    Details.fillPane(state.pane, chosen, (place) => goTo(state, {side: chosen.side, ...place}));
    redraw(state);
  };

  const goTo = (state, chosen) => {
    const {side, lane, at} = chosen, part = side.parts.find((one) => one.lane === lane);
    const begin = lane.start[at] - side.zero, length = Math.max(lane.duration[at], 1), width = state.to - state.from;
    part.closed = false;
    Painting.layOut(state.sides);
    const fitting = Math.min(Math.max(width, length * 1.2), length * 400), middle = begin + length / 2;
    if (begin < state.from || begin + length > state.to || fitting !== width) look(state, middle - fitting / 2, middle + fitting / 2);
    const y = part.y + Painting.HEADER + lane.row[at] * 16;
    if (y < state.scroll.scrollTop + Painting.AXIS || y > state.scroll.scrollTop + state.scroll.clientHeight - 30) {
      state.room.style.height = `${Painting.layOut(state.sides)}px`;
      state.scroll.scrollTop = y - state.scroll.clientHeight / 2;
    }
    choose(state, chosen);
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
    if (state.marks.chosen) choose(state, null);
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
    ",": (state) => beside(state, -1), ".": (state) => beside(state, 1), g: toPartner,
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
    listen(state, canvas, "pointerdown", (event) => { drag = {x: event.clientX, y: event.clientY, from: state.from, top: scroll.scrollTop, moved: false}; canvas.setPointerCapture(event.pointerId); });
    listen(state, canvas, "pointermove", (event) => { if (drag) dragged(state, drag, event); else hover(state, event); });
    listen(state, canvas, "pointerup", (event) => { if (drag && !drag.moved) click(state, event); drag = null; });
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

  const dragged = (state, drag, event) => {
    const x = event.clientX - drag.x, y = event.clientY - drag.y;
    drag.moved = drag.moved || Math.abs(x) + Math.abs(y) > 4;
    if (!drag.moved) return;
    hideTip(state);
    const width = state.to - state.from, from = drag.from - (x / state.canvas.clientWidth) * width;
    state.scroll.scrollTop = drag.top - y;
    look(state, from, from + width);
  };

  const hover = (state, event) => {
    const found = at(state, event), over = found && found.lane ? found : null;
    state.canvas.style.cursor = found ? "pointer" : "default";
    if (!over) hideTip(state);
    else {
      Details.fillTip(state.tip, over);
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
    if (!found || found.lane) choose(state, found);
    redraw(state);
  };

  return {read: Recording.read, draw};
})();

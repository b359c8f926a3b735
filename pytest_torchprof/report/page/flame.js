// What called what, the wider the more time: by module, by Python stack or by operator, of one recording or of two on one scale.
const Flame = (() => {
  const ROW = 19, GAP = 26, LONGEST = 20;
  const KINDS = {module: "by module", stack: "by Python stack", operator: "by operator"};
  const HELP = "Arrow keys: to the holder, into it, to the neighbours. Enter or click: widen. Escape: all of it.";

  const draw = (element, columns, {labels = []} = {}) => {
    const recordings = Array.isArray(columns) ? columns : [columns];
    const kinds = Object.keys(KINDS).filter((kind) => recordings.every(({flames}) => flames.some((one) => one.kind === kind)));
    if (!kinds.length) {
      element.replaceChildren(h("p", {class: "tl-hint"}, "No operators, modules or Python stacks ran meanwhile."));
      return {destroy: () => element.replaceChildren()};
    }
    const hasGpu = recordings.some(({gpuTimeNs}) => gpuTimeNs > 0);
    const state = {element, recordings, labels, kind: kinds[0], weight: hasGpu ? "gpu" : "cpu", path: [], chosen: null, gone: [], due: false};
    build(state, kinds, hasGpu);
    plant(state);
    return {destroy: () => { for (const undo of state.gone) undo(); element.replaceChildren(); }};
  };

  // What times and counts are of; where no steps are marked, of the whole recording.
  const perStep = (recordings) => (recordings.every(({steps}) => steps[0].name === null) ? "" : " per step");

  const build = (state, kinds, hasGpu) => {
    const pick = (label, texts, key) => h("select", {"aria-label": label, on: {change: (event) => { state[key] = event.target.value; state.path = []; plant(state); }}},
      ...Object.entries(texts).map(([value, text]) => h("option", {value}, text)));
    const weights = hasGpu ? {gpu: "time on the GPU", cpu: "time on the CPU"} : {cpu: "time on the CPU"};
    state.search = h("input", {type: "search", placeholder: "Search names", "aria-label": "Search the names in the flame view", on: {input: () => redraw(state)}});
    state.found = h("span", {class: "tl-found", role: "status"});
    const bar = h("div", {class: "tl-bar"}, pick("What the frames are", Object.fromEntries(kinds.map((kind) => [kind, KINDS[kind]])), "kind"), pick("What makes them wide", weights, "weight"),
      h("button", {type: "button", on: {click: () => widen(state, [])}}, "all of it"), state.search, state.found);
    state.canvas = h("canvas", {class: "tl-canvas", tabindex: "0", role: "application", "aria-roledescription": "flame view", "aria-label": `Where the time${perStep(state.recordings) && " of a step"} goes. ${HELP}`});
    state.pane = h("div", {class: "tl-pane", role: "region", "aria-label": "The chosen frame", "aria-live": "polite"});
    state.table = h("div", {});
    state.element.replaceChildren(bar, h("div", {class: "tl-frame"}, state.canvas), state.pane,
      h("details", {class: "tl-text"}, h("summary", {}, "Its largest parts as text"), state.table));
    const listen = (kind, handler) => { state.canvas.addEventListener(kind, handler); };
    listen("pointermove", (event) => { const found = hit(state, event); state.canvas.style.cursor = found ? "pointer" : "default"; if (found) choose(state, found); });
    listen("click", (event) => { const found = hit(state, event); if (found) widen(state, pathOf(found)); });
    listen("keydown", (event) => key(state, event));
    const observer = new ResizeObserver(() => redraw(state));
    observer.observe(state.element);
    const themed = matchMedia("(prefers-color-scheme: dark)"), again = () => { state.theme = null; redraw(state); };
    themed.addEventListener("change", again);
    state.gone.push(() => { observer.disconnect(); themed.removeEventListener("change", again); });
  };

  // The trees of this kind and weight, a node for each frame: {name, own, all, calls, children, holder}, per step.
  const plant = (state) => {
    state.sides = state.recordings.map((recording, i) => ({recording, label: state.labels[i] || "", root: treeOf(recording, state)}));
    state.chosen = null;
    fillTable(state);
    choose(state, {side: state.sides[0], node: state.sides[0].root});
  };

  const treeOf = (recording, {kind, weight}) => {
    const flame = recording.flames.find((one) => one.kind === kind), steps = recording.steps.length;
    const root = {name: -1, text: recording.steps[0].name === null ? "the whole recording" : "a step, the mean of all", own: 0, all: 0, calls: 0, children: [], holder: null, depth: 0};
    const nodes = Array.from(flame.name, (name, i) => {
      const own = flame[weight][i] / steps;
      return {name, text: recording.names[name], own, all: own, calls: flame.calls[i] / steps, children: []};
    });
    nodes.forEach((node, i) => {
      node.holder = flame.parent[i] < 0 ? root : nodes[flame.parent[i]];
      node.depth = node.holder.depth + 1;
    });
    for (const node of nodes.slice().reverse()) node.holder.all += node.all;
    for (const node of nodes) if (node.all > 0) node.holder.children.push(node);
    for (const node of [root, ...nodes]) node.children.sort((one, other) => other.all - one.all);
    return root;
  };

  const pathOf = ({node}) => (node.holder ? [...pathOf({node: node.holder}), node.text] : []);

  const atPath = (root, path) => path.reduce((node, text) => node && node.children.find((child) => child.text === text), root);

  const widen = (state, path) => { state.path = path; redraw(state); };

  const choose = (state, chosen) => {
    state.chosen = chosen;
    const {side, node} = chosen, whole = side.root.all || 1, path = pathOf(chosen);
    const others = state.sides.filter((one) => one !== side).map((one) => [one, atPath(one.root, path)]);
    const timeAndShare = (one, found) => (found ? `${Recording.timeText(found.all)}${perStep(state.recordings)}, ${(100 * found.all / (one.root.all || 1)).toFixed(1)} %` : "not there");
    const of = node.holder ? [["of it its own", Recording.timeText(Math.max(node.own, 0))], [`calls${perStep(state.recordings)}`, show.count(node.calls)]] : [];
    const facts = [["time", timeAndShare(side, node)], ...of,
      ...others.map(([one, found]) => [shown(one.label || "the other"), timeAndShare(one, found)]), ["inside", path.slice(0, -1).map((text) => shown(text, 60)).join(" › ")]];
    state.pane.replaceChildren(h("p", {class: "tl-name"}, h("strong", {}, `${state.sides.length > 1 ? `${shown(side.label)}: ` : ""}${shown(node.text, 300)}`)),
      h("dl", {class: "tl-facts"}, ...facts.filter(([, text]) => text).flatMap(([what, text]) => [h("dt", {}, what), h("dd", {}, text)])));
    state.share = node.all / whole;
    redraw(state);
  };

  const key = (state, event) => {
    const {side, node} = state.chosen, siblings = node.holder ? node.holder.children : [node], place = siblings.indexOf(node);
    const next = {ArrowUp: node.holder, ArrowDown: node.children[0], ArrowLeft: siblings[place - 1], ArrowRight: siblings[place + 1]};
    if (event.key in next) { if (next[event.key]) choose(state, {side, node: next[event.key]}); }
    else if (event.key === "Enter") widen(state, pathOf(state.chosen));
    else if (event.key === "Escape") widen(state, []);
    else if (event.key === "/") state.search.focus();
    else return;
    event.preventDefault();
  };

  const redraw = (state) => {
    if (state.due) return;
    state.due = true;
    requestAnimationFrame(() => { state.due = false; paint(state); });
  };

  const paint = (state) => {
    const {canvas, element, sides} = state, width = canvas.parentElement.clientWidth, dense = devicePixelRatio || 1;
    state.theme = state.theme || Painting.themeOf(element);
    const tops = sides.map(({root}) => atPath(root, state.path) || null), widest = Math.max(...tops.map((top) => (top ? top.all : 0)), 1);
    state.boxes = [];
    state.scale = width / widest;
    let y = 0;
    sides.forEach((side, i) => {
      side.y = y + (sides.length > 1 ? GAP : 4);
      y = side.y + ROW + (tops[i] ? Math.max(layOut(state, side, tops[i], 0, 0), 0) : ROW);
    });
    const height = Math.max(y + 6, 60);
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(dense, 0, 0, dense, 0, 0);
    context.textBaseline = "middle";
    if (sides.length > 1) for (const side of sides) Painting.writeIn(context, state.theme, `${shown(side.label, 60)}: ${Recording.timeText(side.root.all)}${perStep(state.recordings)}`, 6, side.y - GAP / 2, width, state.theme.fg, "600 12px");
    const wanted = state.search.value.trim().toLowerCase();
    let found = 0;
    for (const box of state.boxes) found += paintBox(state, context, box, wanted);
    element.dataset.boxes = state.boxes.length;
    state.found.textContent = wanted ? `${show.count(found)} of the frames shown` : "";
  };

  // Places a node and what it holds; returns how deep it reaches. What is narrower than half a pixel is in its holder's width.
  const layOut = (state, side, node, x, depth) => {
    const wide = node.all * state.scale;
    state.boxes.push({side, node, x, wide, y: side.y + depth * ROW});
    let at = x, deepest = depth * ROW;
    for (const child of node.children) {
      if (child.all * state.scale < 0.5) break;
      deepest = Math.max(deepest, layOut(state, side, child, at, depth + 1));
      at += child.all * state.scale;
    }
    return deepest;
  };

  const paintBox = (state, context, {side, node, x, wide, y}, wanted) => {
    const {theme, chosen} = state, kernel = side.recording.kernels.get(node.name), marked = wanted && node.text.toLowerCase().includes(wanted);
    const ink = Painting.inkOfName(theme, kernel ? kernel[0] : null, node.text);
    context.globalAlpha = wanted && !marked ? 0.25 : 1;
    Painting.fillWith(context, ink, x, y + 1, Math.max(wide - 1, 0.5), ROW - 2);
    Painting.writeIn(context, theme, shown(kernel ? kernel[4] : node.text, 160), x + 4, y + ROW / 2 + 0.5, wide - 8, ink.text);
    context.globalAlpha = 1;
    if (chosen && chosen.node === node) {
      context.strokeStyle = theme.accent;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(wide - 2, 1), ROW - 2);
    }
    return marked ? 1 : 0;
  };

  const hit = (state, event) => {
    const box = state.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return (state.boxes || []).find((one) => x >= one.x && x < one.x + Math.max(one.wide, 1) && y >= one.y && y < one.y + ROW) || null;
  };

  const fillTable = (state) => {
    state.table.replaceChildren(...state.sides.map(({recording, root, label}) => {
      const nodes = [], gather = (node) => { nodes.push(node); node.children.forEach(gather); };
      gather(root);
      const most = nodes.filter(({own}) => own > 0).sort((one, other) => other.own - one.own).slice(0, LONGEST);
      const caption = `${label ? `${shown(label)}: ` : ""}most time of their own, ${KINDS[state.kind]}`;
      const head = h("tr", {}, ...["Name", `Own time${perStep(state.recordings)}`, "Share", `Calls${perStep(state.recordings)}`, "Inside"].map((title) => h("th", {scope: "col"}, title)));
      const rows = most.map((node) => h("tr", {}, h("th", {scope: "row"}, shown(recording.kernels.has(node.name) ? recording.kernels.get(node.name)[4] : node.text, 100)),
        ...[Recording.timeText(node.own), `${(100 * node.own / (root.all || 1)).toFixed(1)} %`, show.count(node.calls), node.holder.holder ? shown(node.holder.text, 80) : ""].map((cell) => h("td", {}, cell))));
      return h("div", {class: "tl-wide", tabindex: "0", role: "region", "aria-label": caption}, h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, ...rows)));
    }));
  };

  return {draw};
})();

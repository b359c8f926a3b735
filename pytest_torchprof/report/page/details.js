// What is known of a slice, as words: beside the pointer, in the pane below the drawing, and as tables of the longest.
const Details = (() => {
  const LONGEST = 20;

  const looked = (recording, texts, column, i) => (column && column[i] ? recording[texts][column[i] - 1] : null);

  // The operators around a slice of an operator lane, innermost first.
  const around = (lane, i) => {
    const found = [];
    for (let row = lane.row[i] - 1; row >= 0; row -= 1) {
      const places = lane.inRow[row], at = places[Recording.firstAfter(lane.end, places, lane.start[i])];
      if (at !== undefined && lane.start[at] <= lane.start[i]) found.push(at);
    }
    return found;
  };

  // Facts as [what, text, slice that it leads to or null].
  const factsOf = (recording, {lane, at}) => {
    const name = (one) => recording.names[one.lane.name[one.at]];
    const begun = lane.step && lane.step[at] ? recording.steps[lane.step[at] - 1] : stepAt(recording, lane.start[at]);
    const facts = [["took", Recording.timeText(lane.duration[at]), null]];
    facts.push(["starts", begun ? `${Recording.timeText(lane.start[at] - begun.start_ns)} after ${shown(begun.name || "the recording")} began` : `${Recording.timeText(lane.start[at])} into the recording`, null]);
    if (lane.step) facts.push(["step", lane.step[at] ? shown(recording.steps[lane.step[at] - 1].name || "the whole recording") : "none: queued outside of the steps", null]);
    const variant = lane.variant && lane.variant[at] ? recording.variants[lane.variant[at] - 1] : null;
    if (variant) facts.push(["family", variant[0], null], ["library", variant[1], null], ["dtype", variant[2], null], ["layout", variant[3], null]);
    const shape = lane.shape && lane.shape[at] ? recording.shapes[lane.shape[at] - 1] : {};
    const sizes = (three) => three && three.map(show.count).join(" x ");
    facts.push(["grid", sizes(shape.grid), null], ["block", sizes(shape.block), null],
      ["registers", isNumber(shape.registers) ? `${show.count(shape.registers)} per thread` : null, null],
      ["shared memory", isNumber(shape.shared_bytes) ? show.bytes(shape.shared_bytes) : null, null],
      ["occupancy", isNumber(shape.occupancy) ? show.share(shape.occupancy) : null, null],
      ["blocks per SM", isNumber(shape.blocks_per_sm) ? show.ratio(shape.blocks_per_sm) : null, null]);
    if (lane.bytes && lane.bytes[at]) facts.push(["size", show.bytes(lane.bytes[at]), null]);
    const op = lane.op && lane.op[at] ? Recording.placeOf(recording, lane.op[at]) : null;
    if (op) facts.push(["operator", name(op), op], ["operands", looked(recording, "inputs", op.lane.inputs, op.at), null]);
    facts.push(["operands", looked(recording, "inputs", lane.inputs, at), null], ["from", looked(recording, "origins", lane.origin, at), null]);
    if (lane.kind === "operators") {
      const holder = around(lane, at)[0];
      if (holder !== undefined) facts.push(["inside", recording.names[lane.name[holder]], {lane, at: holder}]);
    }
    if (lane.call && lane.call[at]) {
      const call = Recording.placeOf(recording, lane.call[at]);
      facts.push(["launched by", name(call), call], ["waited", Recording.timeText(lane.start[at] - call.lane.start[call.at]), null]);
    } else if (lane.call) facts.push(["launched by", "nothing in the recording", null]);
    if (lane.kind === "launches") {
      const work = Recording.launchedBy(recording, lane.first + at);
      const first = work.length ? Recording.placeOf(recording, work[0]) : null;
      if (first) facts.push([work.length > 1 ? `launched ${work.length}, first` : "launched", Painting.labelOf(recording, first.lane, first.at), first]);
    }
    facts.push(["on", `${lane.title}, ${lane.subtitle}`, null]);
    return facts.filter(([, text]) => text);
  };

  const stepAt = (recording, moment) => recording.steps.find((step) => moment >= step.start_ns && moment < step.end_ns);

  const listed = (facts, go = null) => h("dl", {class: "tl-facts"}, ...facts.flatMap(([what, text, place]) => {
    const words = shown(text, 400);
    return [h("dt", {}, what), h("dd", {}, place && go ? h("button", {type: "button", class: "tl-link", on: {click: () => go(place)}}, words) : words)];
  }));

  const named = (recording, {lane, at}, most) => shown(recording.names[lane.name[at]], most);

  const headed = (recording, slice, most) => {
    const raw = named(recording, slice, most), short = shown(Painting.labelOf(recording, slice.lane, slice.at), 120);
    const whole = short === raw ? [] : [h("p", {class: "tl-raw"}, raw)];
    return [h("p", {class: "tl-name"}, h("strong", {}, short)), ...whole];
  };

  // The sentences of the findings that a slice is of, or that a gap is.
  const findingsOf = (side, {lane, at, gap, title}) => side.findings.filter(({mark}) => {
    const found = side.recording.marks[mark];
    if (gap) return (found.gaps.get(title) || []).some(({start, end}) => start < gap.end && gap.start < end);
    return found.of.has(lane) && found.of.get(lane)[at] === 1;
  });
  const findingLines = (side, hit) => findingsOf(side, hit).map((finding) => h("p", {class: "tl-finding"}, h("b", {}, shown(finding.title, 80)), ": ", shown(finding.message, 400)));

  const fillGap = (element, hit, go = null) => {
    const {side, gap} = hit, {recording} = side;
    const begun = stepAt(recording, gap.start), facts = [["lasts", Recording.timeText(gap.end - gap.start), null],
      ["starts", begun ? `${Recording.timeText(gap.start - begun.start_ns)} after ${shown(begun.name || "the recording")} began` : `${Recording.timeText(gap.start)} into the recording`, null]];
    if (gap.beside) {
      const op = gap.beside.lane.op && gap.beside.lane.op[gap.beside.at] ? Recording.placeOf(recording, gap.beside.lane.op[gap.beside.at]) : null;
      const label = Painting.labelOf(recording, gap.beside.lane, gap.beside.at);
      facts.push([gap.beside.lane.start[gap.beside.at] >= gap.end ? "before" : "after", label, gap.beside]);
      if (op) facts.push(["launched by", recording.names[op.lane.name[op.at]], op]);
      facts.push(["from", looked(recording, "origins", gap.beside.lane.origin, gap.beside.at), null]);
    }
    element.replaceChildren(h("p", {class: "tl-name"}, h("strong", {}, hit.title ? "The GPU idles" : "Nothing is recorded")), ...findingLines(side, hit), listed(facts.filter(([, text]) => text), go));
  };

  const fillTip = (tip, {side, lane, at, together}) => {
    const more = together > 1 ? [h("p", {class: "tl-more"}, `the longest of ${show.count(together)} slices here that are narrower than a pixel: zoom in to see each`)] : [];
    tip.replaceChildren(...headed(side.recording, {lane, at}, 120), ...more, ...findingLines(side, {lane, at}), listed(factsOf(side.recording, {lane, at})));
  };

  const fillPane = (pane, chosen, go) => {
    if (!chosen) {
      pane.replaceChildren(h("p", {class: "tl-hint"}, "Click a slice, or press Enter for the longest one in view, and its details stand here."));
      return;
    }
    pane.replaceChildren(...headed(chosen.side.recording, chosen, 4000), ...findingLines(chosen.side, chosen), listed(factsOf(chosen.side.recording, chosen), go));
  };

  // The longest slices of a step, from lanes of this kind.
  const longestIn = (recording, step, wanted) => {
    const {start_ns: begin, end_ns: until} = recording.steps[step];
    let found = [];
    for (const lane of recording.lanes.filter(wanted)) {
      for (let i = 0; i < lane.slices; i += 1) {
        const inside = lane.step ? lane.step[i] === step + 1 : lane.start[i] >= begin && lane.start[i] < until;
        if (inside) found.push({lane, at: i});
      }
      found = found.sort((one, other) => other.lane.duration[other.at] - one.lane.duration[one.at]).slice(0, LONGEST);
    }
    return found;
  };

  const table = (recording, step, caption, slices) => {
    const head = h("tr", {}, ...["Name", "Took", "Starts", "Family or kind", "Operator or operands", "Lane"].map((title) => h("th", {scope: "col"}, title)));
    const rows = slices.map((one) => {
      const {lane, at} = one, op = lane.op && lane.op[at] ? Recording.placeOf(recording, lane.op[at]) : null;
      const cells = [Recording.timeText(lane.duration[at]), Recording.timeText(lane.start[at] - step.start_ns),
        Painting.familyOf(recording, lane, at) || lane.kind,
        op ? named(recording, op, 80) : shown(looked(recording, "inputs", lane.inputs, at) || "", 80), `${lane.title}, ${lane.subtitle}`];
      return h("tr", {}, h("th", {scope: "row"}, shown(Painting.labelOf(recording, lane, at), 100)), ...cells.map((cell) => h("td", {}, cell)));
    });
    return h("div", {class: "tl-wide", tabindex: "0", role: "region", "aria-label": caption},
      h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, ...rows)));
  };

  // The step in words, for those who do not see the drawing.
  const fillText = (element, sides) => {
    element.replaceChildren(...sides.flatMap(({recording, step, label}) => {
      const lasting = recording.steps[step], name = shown(lasting.name || "the whole recording");
      const of = sides.length > 1 ? `${shown(label)}: ` : "";
      const gpu = longestIn(recording, step, (lane) => lane.onGpu);
      const cpu = longestIn(recording, step, (lane) => lane.kind === "operators");
      const onGpu = lasting.gpu_ops ? `; its ${show.count(lasting.gpu_ops)} GPU operations took ${Recording.timeText(lasting.gpu_ns)} together, and the last one ended ${Recording.timeText(lasting.until_ns - lasting.start_ns)} after the step began` : "";
      const sentence = `${of}${name} lasted ${Recording.timeText(lasting.end_ns - lasting.start_ns)} on the CPU${onGpu}.`;
      return [h("p", {}, sentence), ...(gpu.length ? [table(recording, lasting, `${of}longest work on the GPU in ${name}`, gpu)] : []),
        ...(cpu.length ? [table(recording, lasting, `${of}longest operators on the CPU in ${name}`, cpu)] : [])];
    }));
  };

  return {fillTip, fillGap, fillPane, fillText, factsOf};
})();

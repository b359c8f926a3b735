// The page: which test is shown, and its sections in order.
(async () => {
  const index = await unpackJson("index");
  const sides = (index.sides ?? ["before", "now"]).map((side) => shown(side, 60));
  const main = document.getElementById("details");
  const chunks = new Map();
  let current = {number: null, close() {}, draw() {}, highlight() {}};

  const detailsOf = async (number) => {
    const chunk = Math.floor(number / index.together);
    if (!chunks.has(chunk)) chunks.set(chunk, unpackJson(`details-${chunk}`));
    return (await chunks.get(chunk))[number % index.together];
  };

  // The drawings are made when they come into view, or when something is to be shown in them.
  const drawings = (test) => {
    const timeline = h("div", {class: "timeline"});
    const flame = h("div", {class: "flame"});
    let views = null;
    const draw = () => {
      views ??= (async () => {
        const columns = await Promise.all(test.drawn.map(async (id) => Timeline.read(await unpack(id))));
        const inTurn = columns.length > 1 ? [columns[1], columns[0]] : columns;
        const labels = columns.length > 1 ? sides : [];
        return [Timeline.draw(timeline, inTurn, {labels, findings: test.findings ?? []}), Flame.draw(flame, inTurn, {labels})];
      })();
      return views;
    };
    const watch = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && draw(), {rootMargin: "300px"});
    watch.observe(timeline);
    watch.observe(flame);
    const highlight = async (events) => {
      timeline.scrollIntoView({block: "start"});
      (await draw())[0].highlight(events);
      // What stands above may have grown meanwhile.
      timeline.scrollIntoView({block: "start"});
    };
    // Print shows what is drawn by then, out of view too.
    const soon = setTimeout(draw, 500);
    const close = async () => {
      clearTimeout(soon);
      watch.disconnect();
      if (views) for (const view of await views) view.destroy();
    };
    return {timeline, flame, highlight, draw, close};
  };

  const sectionsOf = (test, number, job) => {
    const drawn = test.drawn ? drawings(test) : null;
    const find = drawn && ((row) => drawn.highlight(row.short === undefined ? {ops: [row.name]} : {names: [row.name]}));
    const tables = test.tables ?? {};
    const kernels = [tables.kernel && Sections.rowTable(tables.kernel, "kernel", find, test.steps), tables.family && Sections.rowTable(tables.family, "family", null, test.steps)];
    const operators = [tables.op && Sections.rowTable(tables.op, "op", find, test.steps), tables.module && Sections.rowTable(tables.module, "module", find, test.steps)];
    const found = [
      ["changes", "Changes", Sections.changes(test, shown(index.compared, 60))],
      ["findings", "Findings", Sections.findings(test, number, drawn?.highlight)],
      ["numbers", "Numbers", Sections.numbers(test)],
      ["limits", "Limits", Sections.limits(test)],
      ["ranks", "Ranks", Sections.ranks(job)],
      ["timeline", "Timeline", drawn ? drawn.timeline : test.missing && h("p", {class: "hint"}, shown(test.missing, 500))],
      ["flame", "Flame view", drawn?.flame],
      ["kernels", "Kernels", kernels.some(Boolean) ? kernels : test.doubt && h("p", {class: "hint"}, shown(test.doubt, 500))],
      ["operators", "Operators", operators.some(Boolean) ? operators : null],
      ["step-time", test.is_whole ? "Time" : "Step time", Sections.stepTime(test, sides)],
      ["environment", "Environment", Sections.environment(test, sides)],
    ].filter(([, , content]) => content);
    return {found, close() {}, draw() {}, highlight() {}, ...(drawn && {close: drawn.close, draw: drawn.draw, highlight: drawn.highlight})};
  };

  const heading = (test, number, job) => {
    const facts = [
      test.recording === test.name ? null : test.recording, test.devices?.length ? test.devices.join(", ") : null,
      test.rank ? `rank ${test.rank.rank} of ${show.count(test.rank.of)}` : null,
      test.is_whole ? "no steps are marked: the whole recording is one" : test.steps ? `${show.count(test.steps)} ${test.steps === 1 ? "step" : "steps"}` : null, test.events ? `${show.count(test.events)} events` : null,
      test.orphans ? `${show.count(test.orphans)} GPU ${test.orphans === 1 ? "operation" : "operations"} in no step` : null,
      test.with_stacks ? "recorded with Python functions, which inflates CPU times" : null,
      test.unlinked ? "launches and kernels are not linked: kernels count where they ran" : null,
    ];
    const asked = test.outcome !== "recorded";
    return h("div", {class: "title"},
      h("h2", {}, asked && h("span", {class: `v v-${test.outcome.replace(" ", "-")}`}, test.outcome), h("bdi", {}, shown(test.name, 300))),
      Sections.message(test),
      Sections.headline(test, number, job, () => current.highlight({mark: test.headline.mark})),
      h("p", {class: "hint"}, facts.filter(Boolean).map((fact) => shown(fact, 300)).join(" · ")),
      index.count > 1 && h("p", {class: "hint steps"},
        h("a", {href: `#${Tests.beside(number, -1)}`}, "← previous"), " ", h("a", {href: `#${Tests.beside(number, 1)}`}, "next →")));
  };

  const open = async (number) => {
    if (current.number === number) return;
    current.close();
    current = {number, close() {}, draw() {}, highlight() {}};
    const test = await detailsOf(number);
    const job = test.job && (await unpackJson(test.job));
    if (current.number !== number) return;
    const {found, ...drawing} = sectionsOf(test, number, job);
    current = {number, ...drawing};
    const nav = h("nav", {class: "sections", "aria-label": "Sections"}, found.map(([id, title]) => h("a", {href: `#${number}/${id}`}, title)));
    const sections = found.map(([id, title, content]) => h("section", {id: `${number}/${id}`, "aria-labelledby": `title-${id}`}, h("h3", {id: `title-${id}`}, title), content));
    main.replaceChildren(heading(test, number, job), nav, ...sections.flat());
    Tests.mark(number);
  };

  // "#12" is a test, "#12/kernels" a section of it, "#12/show-0" what its headline is of in the timeline, "#12/show-3" its third finding.
  const go = async () => {
    const asked = /^#(\d+)(?:\/([\w-]+))?$/.exec(location.hash);
    if (location.hash === "#details") return;
    const number = asked ? Math.min(Number(asked[1]), index.count - 1) : Tests.first();
    if (!(number >= 0 && index.count)) return;
    await open(number);
    const event = /^show-(\d+)$/.exec(asked?.[2] ?? "");
    if (event) {
      await current.highlight({mark: Number(event[1])});
      return;
    }
    const section = asked?.[2] && document.getElementById(`${number}/${asked[2]}`);
    // What stands below the drawings moves until they are made.
    if (section) await current.draw();
    if (asked) (section ?? main).scrollIntoView();
  };
  addEventListener("hashchange", go);
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, canvas, [role=application]");
    if (event.key === "Escape" && event.target === Tests.search) Tests.search.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && Tests.search) {
      event.preventDefault();
      Tests.search.focus();
    }
    if (event.key === "j" || event.key === "k") location.hash = `#${Tests.beside(current.number, event.key === "j" ? 1 : -1)}`;
  });
  await go();
  document.documentElement.dataset.ready = "true";
  Tests.unfold();
})();

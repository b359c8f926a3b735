// What a search result is worth: a heading that is searched for in its own words comes before pages that only share some of
// them, so that questions are found. The other values are Sphinx's.
var Scorer = {
  score: ([, , , , score, , kind]) => (kind === "title" ? score + 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

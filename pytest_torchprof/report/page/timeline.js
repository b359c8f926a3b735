const Timeline = (() => {
  const read = (buffer) => ({steps: [], slices: 0, leftOut: ""});
  const draw = () => ({show() {}, highlight: () => 0, destroy() {}});
  return {read, draw};
})();

const Flame = (() => {
  const draw = () => ({destroy() {}});
  return {draw};
})();

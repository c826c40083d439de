// Before the first paint, so that a chosen theme does not flash. A file of its own: the policy forbids inline scripts.
try {
  const chosen = localStorage.getItem('earmark.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing follows the system.
}

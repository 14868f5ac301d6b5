document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copies]");
  if (!button) return;
  const lines = document.getElementById(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(lines.textContent);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(lines);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
});
const show = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let outer = target; outer; outer = outer.parentElement) if (outer.tagName === "DETAILS") outer.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", show);
show();

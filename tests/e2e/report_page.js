// What a reader would stumble over on the page.

/** Words of charts that lie on each other, or outside of their chart. */
function overlapping() {
  const found = [];
  for (const svg of document.querySelectorAll("svg.chart")) {
    const name = svg.getAttribute("aria-label").slice(0, 30);
    const texts = [...svg.querySelectorAll("text")].filter((t) => t.textContent.trim());
    const boxes = texts.map((t) => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([one, a], i) => {
      for (const [other, b] of boxes.slice(0, i)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) found.push(`${name}: ${one} on ${other}`);
      }
    });
    const frame = svg.getBoundingClientRect();
    for (const [words, box] of boxes) {
      if (box.right > frame.right + 1 || box.left < frame.left - 1) found.push(`cut: ${words}`);
    }
  }
  return found;
}

/** Words whose contrast with what is under them is below 4.5 (WCAG AA). */
function faint() {
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const under = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parts(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  const all = "p, li, td, th, dt, dd, h1, h2, h3, text, figcaption, a, footer, .verdict";
  for (const e of document.querySelectorAll(all)) {
    if (!e.textContent.trim()) continue;
    const style = getComputedStyle(e);
    const ink = light(parts(e.tagName === "text" ? style.fill : style.color));
    const paper = light(under(e));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) found.add(`${e.tagName} ${e.getAttribute("class")} ${ratio.toFixed(2)}`);
  }
  return [...found];
}

(() => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.push(`the page is ${root.scrollWidth} wide on a screen of ${innerWidth}`);
  const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = s => s.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    const box = e.getBoundingClientRect();
    if (!own || e.closest("svg, noscript, script") || box.width < 2 || getComputedStyle(e).display === "none") continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`"${e.textContent.trim().slice(0, 40)}" has a contrast of ${contrast.toFixed(2)}`);
    if (box.width < 40 && box.height > 100) found.push(`"${e.textContent.trim().slice(0, 40)}" is squeezed`);
    if (parseFloat(getComputedStyle(e).fontSize) < 12) found.push(`"${e.textContent.trim().slice(0, 40)}" is small`);
  }
  for (const e of document.querySelectorAll("svg")) {
    if (e.getAttribute("aria-hidden") !== "true" && !e.getAttribute("aria-label")) found.push("a drawing has no name");
  }
  for (const e of document.querySelectorAll(".table, .card")) {
    if (e.scrollWidth > e.clientWidth) found.push(`${e.textContent.trim().slice(0, 20)} is ${e.scrollWidth} wide in ${e.clientWidth}`);
  }
  for (const e of document.querySelectorAll("table")) if (!e.caption) found.push(`table ${e.id} has no caption`);
  if (!root.lang) found.push("the page has no language");
  return found;
})()

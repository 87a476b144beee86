// Added to a copy of the page by tests/page.rs: what the browser made of it, as JSON in the document.
const all = (query, within = document) => [...within.querySelectorAll(query)];
const text = (node) => node.textContent;
const seen = (node) => node.checkVisibility();
const sum = (nodes) => nodes.reduce((sum, node) => sum + Number(node.dataset.keys), 0);

// Contrast as WCAG 2 has it.
const colour = (text) => text.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const found = colour(getComputedStyle(node).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
const contrast = (node) => {
  const [a, b] = [light(colour(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
  return (a + 0.05) / (b + 0.05);
};

addEventListener("load", () => {
  const look = {};
  look.title = document.title;
  look.width = innerWidth;
  look.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  look.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  look.rows = all(".matrix tbody tr:not(.section)").map((row) => [
    text(row.cells[0]), ...[...row.cells].slice(1).map((cell) => text(cell.querySelector(".badge") ?? cell))]);
  look.sections = all(".matrix tr.section").map(text);
  look.kernels = all(".kernels li").map((item) => all(".badge", item).map(text));
  look.links = all("a[href]").length;
  look.astray = all("a[href]").map((link) => link.getAttribute("href"))
    .filter((to) => !to.startsWith("#") || !document.getElementById(to.slice(1)));
  look.twice = all("[id]").map((node) => node.id).filter((id, at, ids) => ids.indexOf(id) !== at);
  look.foreign = all("img, script:not(#looks), iframe, object, embed, form, link:not([rel=icon]), [onerror], [onmouseover]").length;
  look.bad = all(".tries td.bad").map((cell) => [text(cell.closest("tr").cells[0]), cell.title]);
  look.tries = all(".tries").map((table) => all("td", table).length);
  look.clipped = all(".tries td a").filter((cell) => cell.scrollWidth > cell.clientWidth).map(text);
  look.open = all("details[open] > summary").map(text);
  look.closed = all("details:not([open]) > summary").length;
  look.lines = all(".answer tbody tr").map((row) => text(row.cells[0]));
  look.refusals = all("pre.refusal").map(text);
  look.logs = all("pre.log").map(text);
  look.marks = all("pre.log mark").map(text);
  look.bars = all(".timeline").map((picture) => sum(all("g.bar", picture)));
  look.pictures = all(".timeline").map((picture) => all("g.bar", picture).length);
  look.listed = all(".keys").map((list) => sum(all("tr[data-keys]", list)));
  look.lists = all(".keys").map((list) => all("tr[data-keys]", list).length);
  look.firstLine = all(".keys tr[data-keys]").slice(0, 1).map((row) => [...row.cells].map(text))[0];
  look.guests = all(".guests li").map(text);
  // What belongs to the picture is in it, and names end before the bars begin.
  look.outside = all(".timeline svg").flatMap((picture) => {
    const { width, height } = picture.viewBox.baseVal;
    return all("text, rect", picture).filter((node) => {
      const { x, y, width: w, height: h } = node.getBBox();
      return x < 0 || y < 0 || x + w > (node.closest("a") ? 270 : width) || y + h > height;
    }).map((node) => text(node) || node.getAttribute("class"));
  });
  all("details").forEach((details) => { details.open = true; });
  look.faint = all(".badge, .soft, .says, .bad-text, .tries .good, .tries .bad a, .tries small, main a, summary, pre, mark, .keys td, p")
    .filter((node) => seen(node) && contrast(node) < 4.5)
    .map((node) => `${node.tagName}.${node.className}: ${contrast(node).toFixed(2)}`);
  look.overflowOpen = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  document.getElementById("worse").click();
  look.worse = all(".matrix tbody tr:not(.section)").filter(seen).map((row) => text(row.cells[0]));
  look.headings = all(".matrix tr.section").filter(seen).length;
  const out = document.createElement("pre");
  out.id = "looked";
  out.textContent = JSON.stringify(look).replace(/[^ -~]|[<>&]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  document.body.append(out);
  console.log("looked");
});

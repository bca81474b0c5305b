"use strict";
// The contents, and the pictures of the sentences: numbers, a map and pairs, before and after, texts under the pointer.
const source = document.getElementById("data-sentences");
if (source) draw(JSON.parse(source.textContent));
const contents = add(add(document.body, "nav", { "aria-label": "Contents" }), "ul");
for (const title of document.querySelectorAll("section > h2")) add(add(contents, "li"), "a", { href: "#" + title.id }, title.textContent);
document.querySelector(".choice, section").before(contents.parentNode);

function draw(data) {
  const names = Object.keys(data.models);
  const change = data.changes.find((pair) => pair.every((name) => names.includes(name)));
  let [after, before] = change || [names[names.length > 1 ? 1 : 0], names[0]];
  const texts = {
    maps: ["Map of the sentences", "Each point is a sentence; sentences that the model finds similar are close. Both maps use the same projection, so their sizes can be compared. A sentence has the same colour in both: where colours mix, sentences have new neighbours."],
    pairs: ["Pairs of sentences", data.graded
      ? "Each point is a pair of sentences, with its cosine before and after, coloured by its grade. A good model puts pairs with a high grade at the top right and the others far below."
      : "Each point is a sentence and the one nearest to it by one of the models, with their cosine before and after. The data have no pairs of their own, so this says what moved, not which model is better."],
    distributions: data.graded
      ? ["Related and unrelated", "The distribution of the cosines: the less the two overlap, the better search works."]
      : ["Neighbours and others", "The distribution of the cosines of each sentence with its nearest ones, chosen by the models themselves, and with all others."],
  };
  for (const [id, [title, meaning]] of Object.entries(texts)) {
    const section = document.createElement("section");
    add(section, "h2", { id: "to-" + id }, title);
    add(section, "p", { class: "meaning" }, meaning);
    add(section, "div", { id });
    source.before(section);
  }
  const maps = document.getElementById("maps");
  if (names.length > 1) {
    const choice = document.createElement("div");
    choice.className = "choice";
    maps.closest("section").before(choice);
    for (const [label, value, set] of [["before", before, (name) => (before = name)], ["after", after, (name) => (after = name)]]) {
      const select = add(add(choice, "label", {}, label + " "), "select", { id: "choose-" + label });
      for (const name of names) add(select, "option", name === value ? { selected: "" } : {}, name);
      select.onchange = () => { set(select.value); redraw(); };
    }
    add(choice, "div", { class: "tiles", id: "tiles" });
  }
  const tip = add(document.body, "div", { id: "tip", role: "status" });
  redraw();

  function redraw() {
    for (const id of ["tiles", "maps", "pairs", "distributions"]) document.getElementById(id)?.replaceChildren();
    const shown = before === after ? [before] : [before, after];
    const one = shown.length === 1;
    if (!one) drawTiles();
    drawMaps(shown);
    drawPairs(one);
    drawDistributions(shown);
  }

  // The numbers that changed, the first one largest.
  function drawTiles() {
    for (const [name, title, digits, better] of data.measures) {
      const [from, to] = [before, after].map((model) => data.models[model].numbers[name]);
      const [first, last] = [from, to].map((value) => minus(value.toFixed(digits)));
      const verdict = !better || first === last ? "" : to > from ? "better" : "worse";
      const tile = add(document.getElementById("tiles"), "div", { class: "tile " + verdict });
      add(tile, "span", { class: "what" }, title);
      add(add(tile, "span", { class: "change" }, `${first} → ${last}`), "span", { class: "verdict" }, verdict);
    }
    const [was, is] = [before, after].map((model) => data.models[model].nearest), same = was.filter((place, number) => place === is[number]);
    const tile = add(document.getElementById("tiles"), "div", { class: "tile" });
    add(tile, "span", { class: "what" }, "have the same nearest sentence as before");
    add(tile, "span", { class: "change" }, `${Math.round((100 * same.length) / was.length)}%`);
  }

  // The sentences of each model on one projection; the pointer finds the same sentence in both, and its nearest one.
  function drawMaps(shown) {
    const size = 480, all = shown.flatMap((name) => data.models[name].map.points);
    const middle = [0, 1].map((axis) => (max(all, axis) + min(all, axis)) / 2);
    const half = 0.54 * Math.max(...[0, 1].map((axis) => max(all, axis) - min(all, axis)), 1e-9);
    const place = (point) => point.map((value, axis) => size * (0.5 + ((axis ? -1 : 1) * (value - middle[axis])) / (2 * half)));
    const hues = colours(data.models[shown[0]].map.points);
    const row = add(maps, "div", { class: "panels" });
    const panels = shown.map((name) => {
      const model = data.models[name], figure = add(row, "figure");
      add(figure, "figcaption", {}, `${name}: mean cosine ${minus(model.numbers.unrelated.toFixed(2))}`);
      const svg = graphic(figure, size, size, `Sentences of ${data.data} on a map, ${name}`);
      const points = model.map.points.map(place);
      const dots = points.map(([x, y], number) => dot(svg, x, y, 4, hues[number]));
      const line = shape(svg, "line", { class: "link" });
      shape(svg, "text", { x: 10, y: size - 10, class: "axis" }, model.map.title);
      const found = dot(svg, -9, -9, 8, "none"), near = dot(svg, -9, -9, 6, "none");
      found.classList.add("found"); near.classList.add("found");
      return { name, svg, points, line, found, near, dots };
    });
    for (const panel of panels) {
      pointer(panel.svg, size, size, panel.points, (number) => {
        for (const { name, points, line, found, near } of panels) {
          const hidden = number === null, other = hidden ? 0 : data.models[name].nearest[number];
          for (const part of [line, found, near]) part.style.display = hidden ? "none" : "";
          if (hidden) continue;
          const [[x, y], [u, v]] = [points[number], points[other]];
          set(found, { cx: x, cy: y }); set(near, { cx: u, cy: v }); set(line, { x1: x, y1: y, x2: u, y2: v });
        }
        return number === null ? null : [
          ["strong", data.texts[data.sentences[number]]],
          ...shown.map((name) => ["span", `nearest, ${name}: ${data.texts[data.sentences[data.models[name].nearest[number]]]}`]),
        ];
      });
    }
  }

  // The cosine of each pair before and after, or of one model with the grade.
  function drawPairs(one) {
    const box = document.getElementById("pairs"), wide = 1000, high = 520, edge = { left: 56, right: 16, top: 14, bottom: 44 };
    const [x, y] = [before, after].map((name) => data.models[name].cosines);
    const graded = data.graded;
    if (one && !graded) return add(box, "p", { class: "note" }, "With a second model, its cosines are drawn against these.");
    const heights = one ? data.pairs.map((pair) => pair[2]) : y;
    const ends = one ? [[floor(x), 1], [Math.min(...heights), Math.max(...heights)]] : [[floor([...x, ...y]), 1], [floor([...x, ...y]), 1]];
    const across = scale(ends[0], edge.left, wide - edge.right), up = scale(ends[1], high - edge.bottom, edge.top);
    const svg = graphic(box, wide, high, "Cosines of the pairs of sentences");
    axis(svg, across, ticks(ends[0]), high - edge.bottom, `cosine, ${before}`, true, [edge.top, high - edge.bottom]);
    axis(svg, up, ticks(ends[1]), edge.left, one ? "grade" : `cosine, ${after}`, false, [edge.left, wide - edge.right]);
    if (!one) {
      shape(svg, "line", { class: "same", x1: across(ends[0][0]), y1: up(ends[0][0]), x2: across(1), y2: up(1) });
      shape(svg, "text", { class: "axis", x: across(ends[0][0]) + 60, y: up(ends[0][0]) - 10 }, "on the line: unchanged");
    }
    const [low, top] = graded ? [Math.min(...data.pairs.map((pair) => pair[2])), Math.max(...data.pairs.map((pair) => pair[2]))] : [0, 1];
    const hue = (grade) => (grade === null ? "var(--after)" : ramp((grade - low) / (top - low || 1)));
    const points = x.map((cosine, number) => [across(cosine), up(heights[number])]);
    points.forEach(([cx, cy], number) => dot(svg, cx, cy, 4.5, hue(data.pairs[number][2])));
    const found = dot(svg, -9, -9, 8, "none");
    found.classList.add("found");
    const about = (number) => {
      const grade = data.pairs[number][2], change = one ? x[number].toFixed(2) : `${x[number].toFixed(2)} → ${y[number].toFixed(2)}`;
      return `cosine ${minus(change)}` + (grade === null ? "" : `, graded ${grade}`);
    };
    const texts = (number) => data.pairs[number].slice(0, 2).map((place) => data.texts[place]);
    pointer(svg, wide, high, points, (number) => {
      found.style.display = number === null ? "none" : "";
      if (number === null) return null;
      set(found, { cx: points[number][0], cy: points[number][1] });
      return [["strong", texts(number)[0]], ["strong", texts(number)[1]], ["span", about(number)]];
    });
    if (graded) {
      const legend = add(box, "p", { class: "note legend" }, `grade ${low} `);
      add(legend, "span", { class: "ramp", style: `background: linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(ramp)})` });
      legend.append(` ${top}`);
    }
    if (one) return;
    const order = x.map((_, number) => number).sort((a, b) => Math.abs(y[b] - x[b]) - Math.abs(y[a] - x[a])).slice(0, 6);
    const list = add(box, "div", { class: "most" });
    add(list, "p", { class: "note" }, "The pairs that changed most:");
    for (const number of order) {
      const row = add(list, "div", { class: "pair" });
      add(row, "span", { class: "numbers" }, about(number));
      add(row, "span", {}, texts(number).join("  ·  "));
    }
  }

  // The densities of unrelated and related cosines, a line for each model, on one axis.
  function drawDistributions(shown) {
    const box = document.getElementById("distributions"), wide = 1000, each = 130, left = 16, high = each * shown.length + 46;
    const centres = data.bins.slice(1).map((end, number) => (end + data.bins[number]) / 2);
    const used = centres.filter((_, bin) => shown.some((name) => data.models[name].distributions.some((part) => part[bin] > 0.02)));
    const across = scale([used[0] - 0.05, Math.min(1, used[used.length - 1] + 0.05)], left, wide - 16);
    const svg = graphic(box, wide, high, "Distributions of the cosines of unrelated and related sentences");
    axis(svg, across, ticks([used[0] - 0.05, 1]), high - 40, "cosine", true, [10, high - 40]);
    shown.forEach((name, number) => {
      const bottom = each * (number + 1), parts = data.models[name].distributions;
      parts.forEach((part, kind) => {
        const most = Math.max(...part);
        const line = centres.map((centre, bin) => [centre, part[bin]]).filter(([centre]) => centre >= used[0] - 0.05 && centre <= used[used.length - 1] + 0.05);
        const path = line.map(([centre, value]) => `L${across(centre).toFixed(1)} ${(bottom - (value / most) * (each - 30)).toFixed(1)}`).join("");
        if (line.length) shape(svg, "path", { class: kind ? "related" : "unrelated", d: `M${across(line[0][0])} ${bottom}${path}L${across(line[line.length - 1][0])} ${bottom}Z` });
      });
      shape(svg, "text", { x: left, y: bottom - each + 24, class: "name" }, name);
    });
    const legend = add(box, "p", { class: "note legend" });
    for (const [kind, text] of [["unrelated", "unrelated sentences"], ["related", data.related]]) {
      add(legend, "span", { class: "swatch " + kind });
      legend.append(` ${text}   `);
    }
    legend.append("(each at its own height)");
  }

  // The nearest point to the pointer, its texts beside it.
  function pointer(svg, wide, high, points, show) {
    const leave = () => { show(null); tip.style.display = "none"; };
    svg.onpointerleave = leave;
    svg.onpointermove = svg.onpointerdown = (event) => {
      const box = svg.getBoundingClientRect();
      const [x, y] = [((event.clientX - box.left) * wide) / box.width, ((event.clientY - box.top) * high) / box.height];
      const far = points.map(([u, v]) => Math.hypot(u - x, v - y)), number = far.indexOf(Math.min(...far));
      if (far[number] > 28) return leave();
      tip.replaceChildren();
      for (const [tag, text] of show(number)) add(tip, tag, {}, text);
      tip.style.display = "block";
      const right = event.clientX + 16 + tip.offsetWidth > document.documentElement.clientWidth;
      const below = event.clientY + 16 + tip.offsetHeight > document.documentElement.clientHeight;
      tip.style.left = `${Math.max(4, right ? event.clientX - tip.offsetWidth - 12 : event.clientX + 16)}px`;
      tip.style.top = `${Math.max(4, below ? event.clientY - tip.offsetHeight - 12 : event.clientY + 16)}px`;
    };
    leave();
  }

  function axis(svg, along, values, at, name, flat, [start, end]) {
    for (const value of values) {
      const place = along(value);
      shape(svg, "line", flat ? { class: "grid", x1: place, x2: place, y1: start, y2: end } : { class: "grid", x1: start, x2: end, y1: place, y2: place });
      shape(svg, "text", flat ? { class: "axis", x: place, y: at + 17, "text-anchor": "middle" } : { class: "axis", x: at - 8, y: place + 4, "text-anchor": "end" }, minus(String(value)));
    }
    const middle = (along(values[0]) + along(values[values.length - 1])) / 2;
    shape(svg, "text", flat ? { class: "axis", x: middle, y: at + 37, "text-anchor": "middle" } : { class: "axis", "text-anchor": "middle", transform: `translate(14 ${middle}) rotate(-90)` }, name);
  }
}

function set(node, attributes) { for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value); return node; }
function add(parent, tag, attributes = {}, text = "") {
  const node = set(document.createElement(tag), attributes);
  node.textContent = text;
  return parent.appendChild(node);
}
function shape(parent, tag, attributes, text = "") {
  const node = set(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
  node.textContent = text;
  return parent.appendChild(node);
}
function graphic(parent, wide, high, label) {
  return shape(parent, "svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label });
}
function dot(svg, x, y, r, fill) { return shape(svg, "circle", { cx: x.toFixed(1), cy: y.toFixed(1), r, fill }); }
function scale([low, high], from, to) { return (value) => from + ((value - low) / (high - low || 1)) * (to - from); }
function ticks([low, high]) {
  const step = [0.05, 0.1, 0.2, 0.25, 0.5, 1, 2].find((size) => (high - low) / size <= 10) || 5, found = [];
  for (let value = Math.ceil(low / step - 1e-9); value * step <= high + 1e-9; value++) found.push(Number((value * step).toFixed(2)));
  return found;
}
function floor(values) { return Math.floor(20 * Math.min(...values) - 0.2) / 20; }
function max(points, axis) { return Math.max(...points.map((point) => point[axis])); }
function min(points, axis) { return Math.min(...points.map((point) => point[axis])); }
function minus(text) { return text.replace(/-/g, "−"); }
// From pale to dark: an ordered value has an ordered colour.
function ramp(share) {
  const stops = [[232, 163, 61], [207, 91, 74], [150, 60, 130], [88, 76, 180]], place = Math.min(share * 3, 2.999), first = Math.floor(place);
  return `rgb(${stops[first].map((value, part) => Math.round(value + (stops[first + 1][part] - value) * (place - first)))})`;
}
// A colour for each place: its direction from the middle is the hue, its distance the strength.
function colours(points) {
  const middle = [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
  const away = points.map(([x, y]) => [x - middle[0], y - middle[1]]), far = Math.max(...away.map(([x, y]) => Math.hypot(x, y)), 1e-9);
  return away.map(([x, y]) => `hsl(${Math.round((Math.atan2(y, x) * 180) / Math.PI + 180)} ${Math.round(35 + (50 * Math.hypot(x, y)) / far)}% 52%)`);
}

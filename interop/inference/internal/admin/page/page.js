// Draws what the server's events tell, once a second. Texts are set as text, never as markup.
"use strict";

const kept = 120; // seconds in the lines
const svgNS = "http://www.w3.org/2000/svg";
const $ = id => document.getElementById(id);
const past = {rate: [], p50: [], p99: [], flight: [], used: []};

const number = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const count = n => number.format(n);
const known = n => n == null ? "–" : count(n);
const rate = n => n == null ? "–" : n >= 100 || n === 0 ? count(n) : n.toPrecision(2);

function bytes(n) {
  if (n == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i === 0 || n >= 100 ? Math.round(n) : n.toPrecision(3)) + " " + units[i];
}

function seconds(s) {
  if (s == null) return "–";
  if (s === 0) return "0";
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (s >= size) return (s / size >= 100 ? Math.round(s / size) : (s / size).toPrecision(2)) + " " + unit;
  }
  return Math.round(s * 1e9) + " ns";
}

function age(s) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const i = Math.max(0, parts.findIndex(([size]) => s >= size));
  return parts.slice(i, i + 2).map(([size, unit], k) =>
    Math.floor(k === 0 ? s / size : s % parts[i][0] / size) + " " + unit).join(" ");
}

function text(id, value) {
  const e = $(id);
  if (e.textContent !== value) e.textContent = value;
}

function make(name, attributes, parent) {
  const e = document.createElementNS(svgNS, name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (parent) parent.append(e);
  return e;
}

// line draws series over the last two minutes, from 0 to their common top.
function line(id, ...series) {
  const svg = $(id), top = Math.max(1e-9, ...series.flat().filter(v => v != null));
  svg.setAttribute("viewBox", `0 0 ${kept - 1} 40`);
  svg.setAttribute("preserveAspectRatio", "none");
  const paths = [make("path", {class: "ground", d: `M0 39.5H${kept - 1}`})];
  series.forEach((values, i) => {
    let d = "", pen = "M";
    values.forEach((v, k) => {
      if (v == null) { pen = "M"; return; }
      d += `${pen}${kept - values.length + k} ${(39 - 37 * v / top).toFixed(1)}`;
      pen = "L";
    });
    paths.push(make("path", {class: i ? "second" : "first", d: d || "M0 39"}));
  });
  svg.replaceChildren(...paths);
}

function remember(s) {
  const now = {rate: s.rate, p50: s.p50, p99: s.p99, flight: s.in_flight, used: s.memory ? s.memory.allocated : null};
  for (const key in past) {
    past[key].push(now[key]);
    past[key].splice(0, past[key].length - kept);
  }
}

// rows fills a table. A cell is text, or {node}.
function rows(id, list, none) {
  const table = $(id), labels = [...table.tHead.rows[0].cells].map(c => c.textContent);
  if (list.length === 0) {
    const row = document.createElement("tr"), cell = row.insertCell();
    cell.className = "empty";
    cell.colSpan = labels.length;
    cell.textContent = none;
    table.tBodies[0].replaceChildren(row);
    return;
  }
  table.tBodies[0].replaceChildren(...list.map(cells => {
    const row = document.createElement("tr");
    cells.forEach((value, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (i) cell.dataset.label = labels[i]; else cell.scope = "row";
      if (value && value.node) { cell.append(value.node); cell.className = "wide"; } else cell.textContent = value;
      row.append(cell);
    });
    return row;
  }));
}

const stages = ["queue", "input", "infer", "output"];

// share shows into what parts the time of requests went.
function share(times) {
  const all = times.reduce((a, b) => a + b, 0);
  const told = all === 0 ? "no requests yet" : stages.map((name, i) => `${name} ${Math.round(100 * times[i] / all)} %`).join(", ");
  const div = document.createElement("div");
  const svg = make("svg", {class: "share", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true"});
  let at = 0;
  times.forEach((t, i) => {
    const width = all === 0 ? 0 : 100 * t / all;
    make("rect", {class: stages[i], x: at, y: 0, width, height: 8}, svg);
    at += width;
  });
  const words = document.createElement("small");
  words.textContent = told;
  div.append(svg, words);
  return {node: div};
}

// segments draws each as a bar of its cells, runs of one state as one rectangle.
function segments(m) {
  const list = m.segments.map(s => {
    const div = document.createElement("div"), label = document.createElement("span");
    div.className = "segment";
    label.textContent = `${bytes(s.size)}, ${bytes(s.used)} in use${s.kept ? ", kept for one who waits" : ""}`;
    const svg = make("svg", {viewBox: `0 0 ${s.cells.length} 1`, preserveAspectRatio: "none", role: "img", "aria-label": label.textContent});
    for (let i = 0, from = 0; i < s.cells.length; i = from) {
      while (from < s.cells.length && s.cells[from] === s.cells[i]) from++;
      if (s.cells[i] !== "f") make("rect", {class: s.cells[i], x: i, y: 0, width: from - i, height: 1}, svg);
    }
    div.append(label, svg);
    return div;
  });
  if (m.more > 0) {
    const p = document.createElement("p");
    p.className = "quiet";
    p.textContent = `and ${count(m.more)} smaller segments`;
    list.push(p);
  }
  $("segments").replaceChildren(...list);
}

// told is a pool in words.
function told(m) {
  return `${m.name}: ${m.place}. ${bytes(m.allocated)} in use in ${count(m.buffers)} buffers (${bytes(m.requested)} asked for), ` +
    `${bytes(m.reserved)} held in ${count(m.segment_count)} segments, at most ${bytes(m.peak)} so far` +
    (m.limit ? `, of ${bytes(m.limit)}` : "") + (m.waiting ? `; ${count(m.waiting)} wait for memory` : "") + ".";
}

function memory(m) {
  if (!m) {
    text("pool-about", "No pool is open.");
    return;
  }
  text("used", bytes(m.allocated));
  text("used-of", m.limit ? `of ${bytes(m.limit)}` : "no limit");
  text("pool-about", told(m));
  if (m.segments) {
    segments(m);
    rows("holders", m.holders.map(h => [h.tag || "(no tag)", bytes(h.bytes), count(h.buffers)]), "Nobody holds any.");
  }
}

function badge(id, words, kind) {
  text(id, words);
  $(id).className = "badge " + kind;
}

function show(s) {
  if (s.live) badge("state", "not live: " + s.live, "bad");
  else if (s.ready) badge("state", "not ready: " + s.ready, "");
  else badge("state", "ready", "good");
  text("about", `${s.server.name} ${s.server.version}, up ${age(s.uptime)}`);
  text("rate", rate(s.rate));
  text("failed", rate(s.failed_rate));
  text("p50", seconds(s.p50));
  text("p99", seconds(s.p99));
  text("flight", count(s.in_flight));
  text("flight-of", s.most ? `of at most ${count(s.most)}` : "");
  text("waiting", count(s.waiting));
  text("copied", bytes(s.copied_rate));
  memory(s.memory);
  text("calls-about", s.calls ? told(s.calls) + " It is for calls that run; requests that wait take none of it." : "");
  rows("models", s.models.map(m => [m.name, m.ready ? m.ready : "ready", rate(m.rate), seconds(m.p50), seconds(m.p99),
    count(m.served), count(m.failed), count(m.kept), share(m.stages)]), "There are none.");
  const more = s.all_tenants - s.tenants.length;
  rows("tenants", s.tenants.map(t => [t.name, count(t.requests), bytes(t.bytes)])
    .concat(more > 0 ? [[`and ${count(more)} more`, "", ""]] : []), "Nobody is here.");
  rows("workers", s.workers.map(w => [w.name, w.state, known(w.running), known(w.waiting), count(w.calls), known(w.failed),
    known(w.restarts)]), "None.");
  rows("refused", s.refused.map(r => [r.kind, count(r.requests)]), "None.");
  rows("regions", s.regions ? [["all together", count(s.regions.count), bytes(s.regions.bytes), count(s.regions.uses)]] : [], "Not served here.");
  remember(s);
  line("rate-line", past.rate);
  line("latency-line", past.p50, past.p99);
  line("flight-line", past.flight);
  line("used-line", past.used);
  document.documentElement.dataset.shown = String(Number(document.documentElement.dataset.shown || 0) + 1);
}

let events = null, again = 0;

function connect() {
  clearTimeout(again);
  events = new EventSource("events");
  events.addEventListener("history", e => {
    const h = JSON.parse(e.data);
    for (const key in past) past[key] = h[key];
  });
  events.addEventListener("state", e => { badge("link", "", ""); show(JSON.parse(e.data)); });
  events.onerror = () => {
    badge("link", "no connection: the figures are old", "bad");
    if (events.readyState === EventSource.CLOSED) again = setTimeout(connect, 5000); // refused: too many look on
  };
}

// A page that nobody sees costs the server nothing.
addEventListener("visibilitychange", () => {
  clearTimeout(again);
  events.close();
  if (!document.hidden) connect();
});
connect();

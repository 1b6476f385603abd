'use strict';
// Everything from the traced system gets into the page as text (textContent), never as markup.
const data = JSON.parse(document.getElementById('data').textContent);
const PAGE = 100, MOST_CHARTS = 20, MOST_LINES = 8, ROW = 17;
const TRACKS = 60, GUTTER = 190;
const COLORS = ['#2f6fd0', '#d9822b', '#2e9e5b', '#b4418e', '#7a5cc7', '#0f9aa8', '#c23b3b', '#7f8a2c'];
const initial = new URLSearchParams(location.hash.slice(1)).get('q') || '';

function el(name, properties, ...children) {
  const e = document.createElement(name);
  Object.assign(e, properties);
  children.forEach(c => e.append(c));
  return e;
}
const number = v => typeof v === 'number' ? v : typeof v === 'string' && v !== '' && !isNaN(v) ? Number(v) : null;
const spelled = v => typeof v === 'number' ? v.toLocaleString('en-US', { maximumFractionDigits: 3 }) : v === null ? '' : String(v);
const percent = (part, whole) => whole ? (100 * part / whole).toFixed(1) + '%' : '0.0%';

// A table that can be sorted and filtered. It shows one page of rows at a time.
function table(columns, rows, numeric) {
  const input = el('input', { type: 'search', placeholder: 'filter', value: initial });
  const told = el('span', { className: 'dim' });
  const back = el('button', { textContent: '‹' }), next = el('button', { textContent: '›' });
  const head = el('tr'), body = el('tbody');
  let page = 0, by = -1, up = false, shown = rows;
  columns.forEach((name, i) => {
    const th = el('th', { textContent: name, className: numeric[i] ? 'n' : '', title: 'sort' });
    th.onclick = () => { up = by === i ? !up : !numeric[i]; by = i; select(); };
    head.append(th);
  });
  function select() {
    const words = input.value.toLowerCase();
    shown = words ? rows.filter(r => r.some(c => String(c).toLowerCase().includes(words))) : rows.slice();
    if (by >= 0) {
      shown.sort((a, b) => {
        const x = a[by], y = b[by], n = number(x), m = number(y);
        const order = n !== null && m !== null ? n - m : String(x).localeCompare(String(y));
        return up ? order : -order;
      });
    }
    page = 0;
    draw();
  }
  function draw() {
    const from = page * PAGE, part = shown.slice(from, from + PAGE);
    body.replaceChildren(...part.map(r => el('tr', {}, ...r.map((c, i) => el('td', { textContent: spelled(c), className: numeric[i] ? 'n' : '' })))));
    [...head.children].forEach((th, i) => { th.textContent = columns[i] + (i === by ? up ? ' ▲' : ' ▼' : ''); });
    told.textContent = shown.length ? `${spelled(from + 1)}–${spelled(from + part.length)} of ${spelled(shown.length)}` +
      (shown.length < rows.length ? ` (${spelled(rows.length)} in all)` : '') : 'nothing matches';
    back.disabled = !page;
    next.disabled = from + PAGE >= shown.length;
  }
  back.onclick = () => { page--; draw(); };
  next.onclick = () => { page++; draw(); };
  input.oninput = select;
  select();
  return el('div', {}, el('div', { className: 'bar' }, input, back, next, told),
    el('div', { className: 'scroll' }, el('table', {}, el('thead', {}, head), body)));
}

function histogram(buckets) {
  const most = Math.max(...buckets.map(b => b[1]));
  const grid = el('div', { className: 'hist' });
  buckets.forEach(([label, count]) => {
    const bar = el('i');
    bar.style.width = count ? `max(1px, ${100 * count / most}%)` : '0';
    grid.append(el('span', { className: 'mono', textContent: label }), el('span', { className: 'mono n', textContent: spelled(count) }), el('div', {}, bar));
  });
  return grid;
}

const SVG = 'http://www.w3.org/2000/svg';
const clock = ms => new Date(ms).toISOString().slice(11, 23);

// A line chart of several series over one time axis.
function chart(series) {
  const points = series.flatMap(s => s[1]), xs = points.map(p => p[0]), ys = points.map(p => number(p[1]) ?? 0);
  const least = f => f.reduce((a, b) => Math.min(a, b), Infinity), greatest = f => f.reduce((a, b) => Math.max(a, b), -Infinity);
  const [x0, x1, y0, y1] = [least(xs), greatest(xs), Math.min(0, least(ys)), greatest(ys)];
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', 'chart');
  svg.setAttribute('viewBox', '0 0 1000 100');
  svg.setAttribute('preserveAspectRatio', 'none');
  const legend = el('div', { className: 'legend mono' });
  series.forEach(([name, all], i) => {
    const line = document.createElementNS(SVG, 'polyline');
    const at = ([x, y]) => `${x1 > x0 ? 1000 * (x - x0) / (x1 - x0) : 500},${98 - 96 * ((number(y) ?? 0) - y0) / (y1 - y0 || 1)}`;
    const path = all.length > 1 ? all.map(at) : all.length ? [at([x0, all[0][1]]).replace(/^[^,]*/, '0'), at([x0, all[0][1]]).replace(/^[^,]*/, '1000')] : [];
    line.setAttribute('points', path.join(' '));
    line.setAttribute('stroke', COLORS[i % COLORS.length]);
    svg.append(line);
    const label = el('span', { textContent: '— ' + name });
    label.style.color = COLORS[i % COLORS.length];
    legend.append(label);
  });
  return el('div', {}, el('div', { className: 'dim', textContent: `${spelled(y0)} to ${spelled(y1)}` }), svg,
    el('div', { className: 'bar dim' }, `${clock(x0)} to ${clock(x1)} UTC`), series.length > 1 ? legend : '');
}

// Draws a heat map: time from left to right, values from bottom to top, counts as shades.
function heat({ labels, columns, step }) {
  const most = Math.max(1, ...columns.flatMap(c => c[1])), high = 14, wide = Math.max(2, Math.min(24, Math.floor(900 / columns.length)));
  const canvas = el('canvas', { width: columns.length * wide, height: labels.length * high });
  const names = el('div', { className: 'rows mono dim' }, ...labels.toReversed().map(text => el('div', { textContent: text })));
  const g = canvas.getContext('2d');
  // The shade follows the logarithm, as in text and SVG, because counts differ by orders of magnitude.
  const shade = n => {
    const part = most > 1 ? Math.log(n) / Math.log(most) : 1;
    return `hsl(${50 - 50 * part} 90% ${75 - 40 * part}%)`;
  };
  columns.forEach(([, counts], x) => counts.forEach((n, y) => {
    if (!n) return;
    g.fillStyle = shade(n);
    g.fillRect(x * wide, (labels.length - 1 - y) * high, wide - (wide > 4), high - 1);
  }));
  const first = clock(columns[0][0]), last = clock(columns[columns.length - 1][0]);
  const told = el('div', { className: 'mono dim', textContent: `${first === last ? first : `${first} to ${last}`} UTC, ${step} per column` });
  const counts = [...new Set([0, .25, .5, .75, 1].map(part => Math.round(most ** part)))];
  const legend = el('div', { className: 'legend mono dim' }, ...counts.map(n => {
    const box = el('i');
    box.style.background = shade(n);
    return el('span', {}, box, spelled(n));
  }), 'values in a cell');
  canvas.onmousemove = e => {
    const x = Math.floor(e.offsetX * canvas.width / canvas.clientWidth / wide), y = labels.length - 1 - Math.floor(e.offsetY / high);
    if (columns[x] && labels[y] !== undefined) told.textContent = `${clock(columns[x][0])} ${labels[y]}: ${spelled(columns[x][1][y])}`;
  };
  return el('div', {}, el('div', { className: 'heat' }, names, canvas), told, legend);
}

function tree(rows) {
  const root = { name: 'all', kind: -1, n: 0, b: 0, children: new Map() };
  let depth = 1;
  for (const [stack, n, b] of rows) {
    let node = root;
    root.n += n;
    root.b += b;
    depth = Math.max(depth, stack.length + 1);
    for (const frame of stack) {
      let child = node.children.get(frame);
      if (!child) node.children.set(frame, child = { name: data.frames[frame][0], kind: data.frames[frame][1], n: 0, b: 0, children: new Map(), parent: node });
      child.n += n;
      child.b += b;
      node = child;
    }
  }
  return [root, depth];
}

const GRAY = '#c8c8d0';
const isTime = unit => /seconds$/.test(unit);
// Red marks frames that are larger than in the base, and blue marks those that are smaller.
const change = (node, most) => {
  const part = most ? Math.round(210 - 210 * Math.min(1, Math.abs(node.n - node.b) / most)) : 255;
  return node.n === node.b ? '#f2f2f2' : node.n > node.b ? `rgb(255 ${part} ${part})` : `rgb(${part} ${part} 255)`;
};
const color = (kind, unit) => kind < 0 ? GRAY : data.kinds[kind][isTime(unit) ? 2 : 1];

// The legend of a flame graph's colors, the widest kinds first.
function legend(root, unit) {
  const sums = new Map(), todo = [root];
  while (todo.length) {
    const node = todo.pop();
    sums.set(node.kind, (sums.get(node.kind) || 0) + node.n);
    todo.push(...node.children.values());
  }
  const named = [...sums].filter(([kind]) => kind >= 0 && data.kinds[kind][0]).sort((a, b) => b[1] - a[1]).slice(0, 12);
  return el('div', { className: 'legend mono' }, ...named.map(([kind]) => {
    const box = el('i');
    box.style.background = color(kind, unit);
    return el('span', {}, box, data.kinds[kind][0]);
  }));
}

// A flame graph with a search. A click zooms to a frame.
function flame({ stacks, unit, least, base }) {
  const [root, depth] = tree(stacks);
  let most = 0;
  for (let todo = [...root.children.values()]; base && todo.length;) {
    const node = todo.pop();
    most = Math.max(most, Math.abs(node.n - node.b));
    for (const child of node.children.values()) todo.push(child);
  }
  const input = el('input', { type: 'search', placeholder: 'search functions', value: initial });
  const told = el('span', { className: 'dim' }), out = el('button', { textContent: 'zoom out' });
  const canvas = el('canvas'), name = el('div', { className: 'mono dim', textContent: '\u00a0' });
  let top = root, boxes = [];
  function draw() {
    const ratio = devicePixelRatio || 1, width = canvas.parentElement ? canvas.parentElement.clientWidth || 1200 : 1200, height = depth * ROW;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    const g = canvas.getContext('2d');
    g.scale(ratio, ratio);
    g.font = '11px ui-monospace, monospace';
    g.textBaseline = 'middle';
    boxes = [];
    const words = input.value.toLowerCase();
    const matches = node => words && node.name.toLowerCase().includes(words);
    const above = [];
    for (let n = top.parent; n; n = n.parent) above.unshift(n);
    const box = (node, x, level, w) => {
      g.fillStyle = matches(node) ? '#c03ad0' : base && node !== root ? change(node, most) : color(node.kind, unit);
      g.fillRect(x, height - (level + 1) * ROW, Math.max(w - .5, .5), ROW - 1);
      boxes.push([node, x, level, w]);
      if (w > 24) {
        g.fillStyle = matches(node) ? '#fff' : '#111';
        const room = Math.floor((w - 6) / 6.7);
        g.fillText(node.name.length > room ? node.name.slice(0, Math.max(room - 1, 0)) + '…' : node.name, x + 3, height - level * ROW - ROW / 2);
      }
    };
    above.forEach((node, level) => box(node, 0, level, width));
    const todo = [[top, 0, above.length, width]];
    while (todo.length) {
      const [node, x, level, w] = todo.pop();
      box(node, x, level, w);
      let left = x;
      for (const child of [...node.children.values()].sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0)) {
        const part = w * child.n / node.n;
        if (part >= .4) todo.push([child, left, level + 1, part]);
        left += part;
      }
    }
    let found = 0;
    const search = [root];
    while (search.length) {
      const node = search.pop();
      if (matches(node)) found += node.n; else search.push(...node.children.values());
    }
    told.textContent = (words ? `matched: ${percent(found, root.n)} of ` : 'total: ') + spelled(root.n) + ' ' + unit;
    out.disabled = top === root;
  }
  const under = e => boxes.find(([, x, level, w]) => e.offsetX >= x && e.offsetX < x + w && Math.floor((canvas.clientHeight - e.offsetY) / ROW) === level);
  canvas.onmousemove = e => {
    const hit = under(e);
    name.textContent = hit ? `${hit[0].name}: ${spelled(hit[0].n)} ${unit} (${percent(hit[0].n, root.n)})${base ? `, before: ${spelled(hit[0].b)}` : ''}` : '\u00a0';
  };
  canvas.onclick = e => { const hit = under(e); if (hit) { top = hit[0]; draw(); } };
  out.onclick = () => { top = root; draw(); };
  input.oninput = draw;
  addEventListener('resize', draw);
  queueMicrotask(draw);
  return el('div', {}, el('div', { className: 'bar' }, input, out, told), el('div', {}, canvas), name,
    least ? el('div', { className: 'loss', textContent: `boxes of fewer than ${spelled(least)} ${unit} are part of their callers` }) : '',
    base ? el('div', { className: 'dim', textContent: `compared with ${base}: red is more, blue is less` }) : legend(root, unit));
}

const length = ns => ns < 1e3 ? `${ns} ns` : ns < 1e6 ? `${(ns / 1e3).toFixed(2)} μs` : ns < 1e9 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e9).toFixed(3)} s`;

// Spans on the tracks of their threads. A click zooms to a span. The wheel zooms, and with Shift, it moves.
function timeline({ tracks, order, names, base_ms, rows, more }) {
  const input = el('input', { type: 'search', placeholder: 'search spans', value: initial });
  const told = el('span', { className: 'dim' }), out = el('button', { textContent: 'zoom out' });
  const canvas = el('canvas'), detail = el('div', { className: 'mono dim', textContent: '\u00a0' });
  const deep = tracks.map(() => 1);
  let first = Infinity, last = -Infinity;
  for (const [track, depth, , start, duration] of rows) {
    deep[track] = Math.max(deep[track], depth + 1);
    first = Math.min(first, start);
    last = Math.max(last, start + duration);
  }
  last = Math.max(last, first + 1);
  const tops = [];
  let high = 0;
  for (const i of order.slice(0, TRACKS)) {
    tops[i] = high;
    high += deep[i] * ROW + 6;
  }
  let [from, to] = [first, last], boxes = [];
  function draw() {
    const ratio = devicePixelRatio || 1, width = canvas.parentElement ? canvas.parentElement.clientWidth || 1200 : 1200, height = high + ROW;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    const g = canvas.getContext('2d'), style = getComputedStyle(document.body), room = width - GUTTER;
    g.scale(ratio, ratio);
    g.font = '11px ui-monospace, monospace';
    g.textBaseline = 'middle';
    const x = ns => GUTTER + room * (ns - from) / (to - from), words = input.value.toLowerCase();
    let found = 0;
    boxes = [];
    const ends = new Map();
    for (const row of rows) {
      const [track, depth, name, start, duration, open, values] = row;
      const hit = words && (names[name] + ' ' + values + ' ' + tracks[track]).toLowerCase().includes(words);
      if (hit) found++;
      if (tops[track] === undefined || start + duration < from || start > to) continue;
      const y = tops[track] + depth * ROW, left = Math.max(x(start), GUTTER), right = Math.min(Math.max(x(start + duration), left + .7), width);
      const before = ends.get(y);
      // Draw only one of the spans that cover the same pixel.
      if (!hit && right - left < 1 && before === Math.round(left)) continue;
      if (right - left < 1) ends.set(y, Math.round(left));
      g.fillStyle = hit ? '#c03ad0' : COLORS[name % COLORS.length];
      g.globalAlpha = open ? .45 : 1;
      g.fillRect(left, y, right - left, ROW - 1);
      g.globalAlpha = 1;
      boxes.push([row, left, right, y]);
      if (right - left > 24) {
        g.fillStyle = open ? style.color : '#fff';
        const fits = Math.floor((right - left - 6) / 6.7), text = names[name] + (values ? ' ' + values : '');
        g.fillText(text.length > fits ? text.slice(0, Math.max(fits - 1, 0)) + '…' : text, left + 3, y + ROW / 2);
      }
    }
    g.clearRect(0, 0, GUTTER - 4, height);
    g.fillStyle = style.color;
    order.slice(0, TRACKS).forEach(i => g.fillText(tracks[i].length > 27 ? tracks[i].slice(0, 26) + '…' : tracks[i], 0, tops[i] + ROW / 2));
    g.fillText(clock(base_ms + from / 1e6), GUTTER, high + ROW / 2);
    const end = '+' + length(Math.round(to - from));
    g.fillText(end, width - end.length * 6.7, high + ROW / 2);
    told.textContent = (words ? `${spelled(found)} match of ` : '') + `${spelled(rows.length)} spans on ${spelled(tracks.length)} track${tracks.length > 1 ? 's' : ''}` +
      (tracks.length > TRACKS ? `; the first ${TRACKS} are drawn` : '');
    out.disabled = from === first && to === last;
  }
  const under = e => boxes.findLast(([, left, right, y]) => e.offsetX >= left - 1 && e.offsetX <= right + 1 && e.offsetY >= y && e.offsetY < y + ROW);
  canvas.onmousemove = e => {
    const hit = under(e);
    if (!hit) { detail.textContent = '\u00a0'; return; }
    const [track, , name, start, duration, open, values] = hit[0];
    detail.textContent = `${names[name]}: ${open ? 'longer than ' : ''}${length(duration)} at ${clock(base_ms + start / 1e6)} on ${tracks[track]} ${values}`;
  };
  canvas.onclick = e => {
    const hit = under(e);
    if (!hit) return;
    const [, , , start, duration] = hit[0];
    [from, to] = [start - duration * .05 - 1, start + duration * 1.05 + 1];
    draw();
  };
  canvas.onwheel = e => {
    e.preventDefault();
    const width = to - from, at = from + width * Math.max(0, e.offsetX - GUTTER) / (canvas.clientWidth - GUTTER);
    const factor = e.shiftKey ? 1 : Math.exp((e.deltaY || e.deltaX) / 400), shift = e.shiftKey ? width * (e.deltaY || e.deltaX) / 1000 : 0;
    from = Math.max(first, at - (at - from) * factor + shift);
    to = Math.min(last, at + (to - at) * factor + shift);
    if (to - from < 10) to = from + 10;
    draw();
  };
  out.onclick = () => { [from, to] = [first, last]; draw(); };
  input.oninput = draw;
  addEventListener('resize', draw);
  queueMicrotask(draw);
  const list = rows.map(([track, , name, start, duration, open, values]) => [clock(base_ms + start / 1e6), duration, open ? 'open' : '', tracks[track], names[name], values]);
  return el('section', {}, el('h2', { textContent: 'timeline' }),
    more ? el('div', { className: 'loss', textContent: `${spelled(more)} more spans are not in this page: -o FILE.pftrace has all` }) : '',
    el('div', { className: 'bar' }, input, out, told), el('div', {}, canvas), detail,
    el('details', {}, el('summary', { textContent: 'spans as a table' }), table(['start', 'ns', '', 'track', 'name', 'values'], list, [false, true, false, false, false, false])));
}

const titled = (key, what) => key.length ? el('div', {}, el('div', { className: 'mono', textContent: key.map(spelled).join(', ') }), what) : what;

// Shows the first of many items, and a button that shows more.
function several(items, make) {
  const box = el('div'), more = el('button');
  let at = 0;
  const go = () => {
    items.slice(at, at + MOST_CHARTS).forEach(i => box.insertBefore(make(i), more));
    at += MOST_CHARTS;
    more.hidden = at >= items.length;
    more.textContent = `${spelled(items.length - at)} more`;
  };
  more.onclick = go;
  box.append(more);
  go();
  return box;
}

function map(m) {
  const section = el('section', {}, el('h2', { textContent: m.name }));
  if (m.graph) section.append(flame(m.graph));
  if (m.kind === 'hist') section.append(several(m.rows, ([key, buckets]) => titled(key, histogram(buckets))));
  else if (m.kind === 'heatmap') section.append(several(m.rows, ([key, h]) => titled(key, heat(h))));
  else if (m.kind === 'tseries') {
    const named = m.rows.map(([key, points]) => [key.map(spelled).join(', ') || m.name, points]);
    const groups = [];
    for (let i = 0; i < named.length; i += MOST_LINES) groups.push(named.slice(i, i + MOST_LINES));
    section.append(several(groups, chart));
  } else {
    const rows = m.rows.map(([key, values]) => key.concat(values));
    const numeric = m.columns.map((_, i) => rows.length > 0 && rows.every(r => number(r[i]) !== null));
    if (m.more_rows) section.append(el('div', { className: 'loss', textContent: `${spelled(m.more_rows)} more rows are not in this page: -o FILE.csv has all` }));
    section.append(table(m.columns, rows, numeric));
  }
  return section;
}

// The number of messages that are shown above the maps. The others are folded.
const OPEN_LOSSES = 8;
const main = document.getElementById('main');
const losses = data.losses.map(text => el('div', { className: 'loss', textContent: text }));
if (data.more_losses) losses.push(el('div', { className: 'loss', textContent: `${spelled(data.more_losses)} more messages are not in this page` }));
main.append(...losses.slice(0, OPEN_LOSSES));
if (losses.length > OPEN_LOSSES) {
  main.append(el('details', {}, el('summary', { textContent: `${spelled(losses.length - OPEN_LOSSES)} more messages` }), ...losses.slice(OPEN_LOSSES)));
}
data.maps.forEach(m => main.append(map(m)));
if (data.spans.rows.length) main.append(timeline(data.spans));
if (data.lines.length) {
  main.append(el('section', {}, el('h2', { textContent: 'output' }),
    data.more_lines ? el('div', { className: 'loss', textContent: `${spelled(data.more_lines)} more lines are not in this page` }) : '',
    table(['line', 'text'], data.lines.map((text, i) => [i + 1, text]), [true, false])));
}

// Where services stand in the picture of the mesh, and the ways of the edges between them. Nothing here makes an element,
// so a test can call it.

export const box = { width: 190, height: 46, across: 28, down: 18, pad: 14, title: 40 };
const margin = 30; // around all namespaces
const beside = 60, below = 40; // between namespaces
const clear = 6; // between a box and the lanes beside it
const port = 8; // between the corner of a box and the first edge at its side

// layout places namespaces in bands, by their names, from left to right, and their services in columns. A box knows its
// namespace's frame, its row and its column. Of services with the same ID, edges lead to the first.
export function layout(islands, width) {
  const perRow = (n) => (n > 24 ? 3 : n > 6 ? 2 : 1);
  const fit = Math.max(1, Math.floor((width - 2 * margin - 2 * box.pad + box.across) / (box.width + box.across)));
  const places = new Map(), frames = [], bands = [];
  let x = margin, y = margin, tallest = 0, right = 0, band;
  for (const island of islands) {
    const across = Math.min(perRow(island.drawn.length), fit);
    const rows = Math.max(1, Math.ceil(island.drawn.length / across));
    const w = across * (box.width + box.across) - box.across + 2 * box.pad;
    const tall = box.title + rows * (box.height + box.down) - box.down + box.pad + (island.more ? 22 : 0);
    if (band && x + w + margin > width) {
      x = margin;
      y += tallest + below;
      tallest = 0;
      band = null;
    }
    if (!band) bands.push(band = { y, frames: [] });
    const frame = { island, x, y, width: w, height: tall, across, rows, band: bands.length - 1, index: band.frames.length };
    frame.boxes = island.drawn.map((service, i) => {
      const column = i % across, row = Math.floor(i / across);
      const place = { service, frame, row, column, x: x + box.pad + column * (box.width + box.across), y: y + box.title + row * (box.height + box.down) };
      if (!places.has(service.id)) places.set(service.id, place);
      return place;
    });
    band.frames.push(frame);
    frames.push(frame);
    band.height = tallest = Math.max(tallest, tall);
    right = Math.max(right, x + w);
    x += w + beside;
  }
  return { places, frames, bands, width: Math.max(width, right + margin), height: y + tallest + margin };
}

// channel returns a strip that has no box in it. Edges run along it, each in a lane of its own. A vertical channel is
// between two values of x, a horizontal one between two values of y.
const channel = (vertical, low, high) => ({ vertical, low, high, middle: (low + high) / 2, users: [] });

// channels adds the channels to a plan: beside and between namespaces, and between the columns and rows of each.
function channels(plan) {
  const left = channel(true, clear, margin - clear);
  plan.between = plan.bands.map((b, i) => channel(false, (i ? plan.bands[i - 1].y + plan.bands[i - 1].height : 0) + clear, b.y - clear));
  plan.between.push(channel(false, plan.height - margin + clear, plan.height - clear));
  plan.left = left;
  for (const { frames } of plan.bands) {
    frames.forEach((f, i) => {
      const next = frames[i + 1]?.x ?? f.x + f.width + margin;
      f.columns = [i ? frames[i - 1].columns.at(-1) : left];
      for (let c = 1; c < f.across; c++) {
        const end = f.x + box.pad + c * (box.width + box.across);
        f.columns.push(channel(true, end - box.across + clear, end - clear));
      }
      f.columns.push(channel(true, f.x + f.width + clear, next - clear));
      const first = f.y + box.title;
      f.lines = [channel(false, first - 9, first - 4)];
      for (let r = 1; r < f.rows; r++) {
        const end = first + r * (box.height + box.down);
        f.lines.push(channel(false, end - box.down + 4, end - 4));
      }
      const end = first + f.rows * (box.height + box.down) - box.down;
      f.lines.push(channel(false, end + 4, end + box.pad - 4));
    });
  }
}

// exits returns the ways from a box to the channels beside its namespace. right is the side on which a way leaves the box.
function exits(p) {
  const list = [];
  for (const right of [1, 0]) {
    const f = p.frame, column = p.column + right, side = f.columns[column];
    if (column === 0 || column === f.across) {
      list.push({ right, way: [side] });
    } else {
      for (const row of [p.row, p.row + 1]) list.push({ right, way: [side, f.lines[row], f.columns[right ? f.across : 0]] });
    }
  }
  return list;
}

// joins returns the ways from a channel beside one namespace to a channel beside another, without both.
function joins(plan, from, a, to, b) {
  if (from === to) return [[]];
  if (a.band === b.band) return [[plan.between[a.band]], [plan.between[a.band + 1]]];
  const down = b.band > a.band;
  const first = plan.between[a.band + (down ? 1 : 0)], last = plan.between[b.band + (down ? 0 : 1)];
  if (first === last) return [[first]];
  if (from === plan.left) return [[last]];
  if (to === plan.left) return [[first]];
  return [[first, plan.left, last]];
}

// ways returns the ways from one box to another: the channels in turn, of which the first and the last are vertical.
function ways(plan, a, b) {
  const list = [];
  if (a.frame === b.frame) {
    for (const outOf of [1, 0]) for (const into of [1, 0]) {
      const from = a.frame.columns[a.column + outOf], to = b.frame.columns[b.column + into];
      if (from === to) list.push({ outOf, into, way: [from] });
      else for (const row of new Set([a.row, a.row + 1, b.row, b.row + 1])) list.push({ outOf, into, way: [from, a.frame.lines[row], to] });
    }
    return list;
  }
  for (const x of exits(a)) for (const y of exits(b)) {
    const from = x.way.at(-1), to = y.way.at(-1);
    for (const join of joins(plan, from, a.frame, to, b.frame)) {
      const rest = y.way.toReversed();
      list.push({ outOf: x.right, into: y.right, way: [...x.way, ...join, ...(from === to ? rest.slice(1) : rest)] });
    }
  }
  return list;
}

const sideOf = (p, right) => p.x + (right ? box.width : 0);
const middleOf = (p) => p.y + box.height / 2;
const bend = 25; // how many pixels longer a way may be to have a bend less

// cost returns the length of a way and what its bends cost.
function cost(a, b, w) {
  let x = sideOf(a, w.outOf), y = middleOf(a), sum = 0;
  const to = (nx, ny) => {
    sum += Math.abs(nx - x) + Math.abs(ny - y) + (nx === x && ny === y ? 0 : bend);
    [x, y] = [nx, ny];
  };
  for (const c of w.way) to(c.vertical ? c.middle : x, c.vertical ? y : c.middle);
  to(x, middleOf(b));
  to(sideOf(b, w.into), y);
  return sum;
}

// spread gives each user its own place between low and high, in the order of keys.
function spread(users, low, high) {
  users.sort((u, v) => u.key - v.key || u.edge - v.edge);
  users.forEach((u, i) => u.set(low + ((high - low) * (i + 1)) / (users.length + 1)));
}

// route returns the points of each edge {a, b} between two boxes of a plan. An edge takes the cheapest way through the
// channels, so it crosses no box, and no namespace but the ones of its ends. Edges in the same channel have lanes of
// their own, in the order of where they come from and go to.
export function route(plan, edges) {
  channels(plan);
  const ports = new Map(); // by box: the edges at its left and at its right side
  const dock = (p, right, user) => {
    if (!ports.has(p)) ports.set(p, [[], []]);
    ports.get(p)[right].push(user);
  };
  const lines = edges.map(({ a, b }, edge) => {
    let best, least = Infinity;
    for (const w of ways(plan, a, b)) {
      const sum = cost(a, b, w);
      if (sum < least) [best, least] = [w, sum];
    }
    const { outOf, into, way } = best;
    const at = way.map((c) => c.middle); // the lane in each channel
    const line = { way, at, start: { x: sideOf(a, outOf), y: middleOf(a) }, end: { x: sideOf(b, into), y: middleOf(b) } };
    // Where the way is across the channel i before it enters it or after it leaves it.
    const across = (i, end) => way[i]?.middle ?? end;
    way.forEach((c, i) => {
      const key = c.vertical ? across(i - 2, line.start.x) + across(i + 2, line.end.x) : across(i - 2, line.start.y) + across(i + 2, line.end.y);
      c.users.push({ key, edge, set: (v) => { at[i] = v; } });
    });
    dock(a, outOf, { key: across(1, line.end.y), edge, set: (v) => { line.start.y = v; } });
    dock(b, into, { key: across(way.length - 2, middleOf(a)), edge, set: (v) => { line.end.y = v; } });
    return line;
  });
  for (const [p, sides] of ports) for (const users of sides) spread(users, p.y + port, p.y + box.height - port);
  const used = new Set(lines.flatMap((l) => l.way));
  for (const c of used) spread(c.users, c.low, c.high);
  return lines.map(({ way, at, start, end }) => {
    const points = [start];
    let { x, y } = start;
    way.forEach((c, i) => {
      if (c.vertical) x = at[i];
      else y = at[i];
      points.push({ x, y });
    });
    points.push({ x, y: end.y }, end);
    return points.filter((p, i) => { // without points at which the way does not turn
      const before = points[i - 1], after = points[i + 1];
      return !before || !after || !((before.x === p.x && p.x === after.x) || (before.y === p.y && p.y === after.y));
    });
  });
}

const round = 5; // radius of a corner, less than twice the distance of lanes from boxes

// curve returns the path through points, with rounded corners.
export function curve(points) {
  const text = (p) => `${+p.x.toFixed(2)} ${+p.y.toFixed(2)}`;
  const toward = (p, q, r) => {
    const far = Math.abs(q.x - p.x) + Math.abs(q.y - p.y) || 1;
    return { x: p.x + ((q.x - p.x) * r) / far, y: p.y + ((q.y - p.y) * r) / far };
  };
  let d = 'M' + text(points[0]);
  for (let i = 1; i < points.length - 1; i++) {
    const p = points[i], q = points[i - 1], s = points[i + 1];
    const r = Math.min(round, (Math.abs(q.x - p.x) + Math.abs(q.y - p.y)) / 2, (Math.abs(s.x - p.x) + Math.abs(s.y - p.y)) / 2);
    d += `L${text(toward(p, q, r))}Q${text(p)} ${text(toward(p, s, r))}`;
  }
  return d + 'L' + text(points.at(-1));
}

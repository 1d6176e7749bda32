'use strict';
// Answers of the report to what explore.js asks, from the data in the file. Text from the data only ever becomes
// textContent, or a figure that was made with its markup escaped.
(() => {
  const DATA = JSON.parse(document.getElementById('data').textContent), rows = DATA.rows, total = rows.id.length;
  const KINDS = new Map(DATA.columns.map((x) => [x.name, x.kind]));
  const unpacked = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (x) => x.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
  };
  let later, plotly;
  const more = () => { later ??= unpacked('later').then(JSON.parse); return later; };
  // The policy of the file allows the script by the hash of its text.
  const withPlotly = () => {
    plotly ??= unpacked('plotly').then((text) => {
      const script = document.createElement('script');
      script.textContent = text;
      document.head.append(script);
    });
    return plotly;
  };
  const without = (query, ...names) => { const made = new URLSearchParams(query); names.forEach((x) => made.delete(x)); return made; };
  const interval = (text) => { const [low, high] = text.split('..').map(Number); return Number.isFinite(low) && Number.isFinite(high) ? [low, high] : null; };
  // What a URL chooses: a thing to do, a search and intervals. The columns of the table are in the table's units.
  const value = (name, i) => (rows[name][i] === null ? null : rows[name][i] / (KINDS.has(name) ? DATA.numbers[name] : 1));
  const label = (text) => text.replace(/(\d)[x*](?=\d)/g, '$1×');
  const chosen = (query) => {
    const todo = query.get('todo'), words = (query.get('search') || '').trim().toLowerCase(), size = label(words);
    const pass = DATA.searched[words] || '';  // wgrad, or one letter, is a direction
    const wgrad = query.get('view') === 'weights';  // this view lists the backward-weight passes
    const facets = DATA.facets.map(({ name }) => [name, query.getAll(name)]).filter(([, x]) => x.length);
    const between = Object.keys(DATA.numbers).filter((x) => query.has(x) && rows[x]).map((x) => [x, interval(query.get(x))]).filter(([, x]) => x);
    return (i) => (!todo || rows.todos[i].split('|').includes(todo))
      && (!wgrad || rows.direction[i] === 'W')
      && facets.every(([name, x]) => x.includes(String(rows[name][i])))
      && (pass ? rows.direction[i] === pass : !words || `${rows.label[i]} ${rows.best[i]} ${rows.dtype[i]}`.toLowerCase().includes(words) || rows.label[i].toLowerCase().includes(size))
      && between.every(([name, [low, high]]) => { const x = value(name, i); return x !== null && x >= low && x <= high; });
  };
  // "W " is the beginning of a label, and no end of "NCHW ".
  const holds = (x, filter, name) => {
    const text = String(x).toLowerCase(), part = filter.toLowerCase();
    return name === 'label' && part.trimEnd() !== part ? text.startsWith(part) : text.includes(part);
  };
  const RULES = {
    contains: (x, { filter }, name) => x !== null && holds(x, filter, name),
    notContains: (x, { filter }, name) => x === null || !holds(x, filter, name),
    blank: (x) => x === null,
    notBlank: (x) => x !== null,
    greaterThan: (x, { filter }) => x !== null && x > filter,
    lessThan: (x, { filter }) => x !== null && x < filter,
    equals: (x, { filter }) => x === filter,
    inRange: (x, { filter, filterTo }) => x !== null && x >= filter && x <= filterTo,
  };
  const viewOf = (query) => (DATA.views[query.get('view')] ? query.get('view') : 'overview');
  const found = (search, filter = {}, given = []) => {
    const sort = given.length ? given : [[`rank_${viewOf(new URLSearchParams(search))}`, 'asc']];
    const fits = chosen(new URLSearchParams(search)), rules = Object.entries(filter).filter(([, x]) => RULES[x.type]);
    const places = [];
    for (let i = 0; i < total; i += 1) if (fits(i) && rules.every(([name, x]) => RULES[x.type](rows[name][i], x, name))) places.push(i);
    for (const [name, way] of [...sort].reverse()) {
      const column = rows[name];
      places.sort((a, b) => {
        const x = column[a], y = column[b];
        if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
        const order = typeof x === 'string' ? x.localeCompare(String(y)) : x - y;
        return (way === 'desc' ? -order : order) || a - b;
      });
    }
    return places;
  };
  const row = (i) => Object.fromEntries(Object.keys(rows).map((name) => [name, rows[name][i]]));
  const link = (text, href, name) => ['a', { href, class: name, within: '1' }, text];
  // The filters: the values of each column that other filters leave, with their share of the time.
  const toggled = (query, name, value) => {
    const made = without(query), old = made.getAll(name);
    made.delete(name);
    for (const x of old.includes(value) ? old.filter((y) => y !== value) : [...old, value]) made.append(name, x);
    return `?${made}`;
  };
  const facets = (query) => {
    const kept = without(query, 'problem', 'table'), weights = rows.total_us.some((x) => x > 0) ? rows.total_us : rows.calls;
    return DATA.facets.map(({ name, title, values }) => {
      const sums = new Map(), left = found(`?${without(kept, name)}`), on = query.getAll(name);
      for (const i of left) { const x = String(rows[name][i]); sums.set(x, (sums.get(x) || 0) + (weights.some((y) => y > 0) ? weights[i] || 0 : 1)); }
      const all = [...sums.values()].reduce((x, y) => x + y, 0) || 1;
      const entries = [...sums].sort((x, y) => y[1] - x[1]).map(([value_, sum]) => {
        const share = sum / all, text = values[value_] ?? value_;
        return { name: text, whole: text, share: share && share < 0.005 ? '<1%' : `${Math.round(100 * share)}%`, level: `${100 * share}%`, href: toggled(kept, name, value_), on: on.includes(value_) };
      });
      return { title, entries, more: '', open: true };
    }).filter(({ entries }) => entries.length > 1 || entries.some((x) => x.on));
  };
  // An interval in words, as interval_words of selection.py writes it.
  const limits = (name, text) => {
    const { titles, none } = DATA.limits, ends = interval(text);
    if (!ends) return `${titles[name]}: ${text}`;
    const words = ends.map((x) => (name.endsWith('_us') ? window.logparsePage.duration(x) : `${+x.toPrecision(4)}`));
    return `${titles[name]}: ${ends[1] >= none ? `${words[0]} or more` : words.join(' to ')}`;
  };
  const titleOf = (todo) => { const i = rows.todos.findIndex((x) => x.split('|')[0] === todo); return i < 0 ? todo : rows.action[i]; };
  const chips = (query) => {
    const made = [], kept = (...names) => `?${without(query, ...names)}`;
    if (query.get('todo')) made.push(link(`${titleOf(query.get('todo'))} ×`, kept('todo'), 'chip'));
    for (const { name, title, values } of DATA.facets) for (const x of query.getAll(name)) made.push(link(`${title}: ${values[x] ?? x} ×`, toggled(query, name, x), 'chip'));
    if (query.get('mark') && query.get('view') === 'timeline') made.push(link(`Marked: ${query.get('mark')} ×`, kept('mark'), 'chip'));
    if (query.get('search')) made.push(link(`“${query.get('search')}” ×`, kept('search'), 'chip'));
    for (const name of Object.keys(DATA.numbers)) if (query.has(name)) made.push(link(`${limits(name, query.get(name))} ×`, kept(name), 'chip'));
    if (made.length) made.push(link('Clear all', `?view=${query.get('view') || 'overview'}`, 'clear'));
    return made;
  };
  const webgl = !!document.createElement('canvas').getContext('webgl');
  const recoloured = (given, dark) => {
    if (typeof given === 'string') return dark[given] || given;
    if (Array.isArray(given)) return given.map((x) => recoloured(x, dark));
    if (given && typeof given === 'object') return Object.fromEntries(Object.entries(given).map(([k, v]) => [k, k === 'bdata' ? v : recoloured(v, dark)]));
    return given;
  };
  const figureOf = async (figure, theme) => {
    const { charts, dark } = await more(), made = structuredClone(figure);
    made.layout.template ??= Object.values(charts).find((x) => x.figure).figure.layout.template;
    if (!webgl) for (const trace of made.data) if (trace.type === 'scattergl') trace.type = 'scatter';
    return theme === 'dark' ? recoloured(made, dark) : made;
  };
  const isProblem = (mark) => typeof mark === 'string' && /^[0-9a-f]{12}$/.test(mark);
  const highlight = (figure, query) => {
    if (!isFiltered(query)) return;
    const shown = new Set(found(query).map((i) => rows.id[i]));
    for (const trace of figure.data) {
      if (!Array.isArray(trace.customdata) || !isProblem(trace.customdata[0]?.[0])) continue;
      trace.selectedpoints = trace.customdata.flatMap((x, i) => (shown.has(x[0]) ? [i] : []));
      trace.unselected = { marker: { opacity: 0.06 } };
    }
  };
  const limited = (query, intervals) => {
    const made = new URLSearchParams(query);
    for (const [name, [low, high]] of intervals) made.set(name, `${+low.toPrecision(6)}..${+high.toPrecision(6)}`);
    return `?${made}`;
  };
  // Under a filter, what is about the whole run or about other rows is left out, because a second way to make it here would
  // be one more place for its rules. WHOLE and FOLDS in components.py are the marks of the elements.
  const FILTERS = ['search', 'todo', ...Object.keys(DATA.numbers), ...DATA.facets.map((x) => x.name)];
  const isFiltered = (query) => FILTERS.some((x) => query.get(x));
  const isElement = (x) => Array.isArray(x) && x.length === 3 && typeof x[0] === 'string' && x[1] && typeof x[1] === 'object' && !Array.isArray(x[1]);
  const concerned = (given, names) => {
    if (!Array.isArray(given)) return given;
    if (!isElement(given)) return given.map((x) => concerned(x, names)).filter((x) => x !== undefined);
    const [tag, attributes, inside] = given, about = attributes['data-about'];
    if (attributes['data-whole'] || (about && !about.split('|').some((x) => names.has(x)))) return undefined;
    const made = concerned(inside, names);
    return attributes['data-folds'] ? made.filter((x) => x[0] !== 'summary') : [tag, attributes, made];
  };
  const WHOLE = 'Sums, bars, remarks and things to do of the whole run are hidden: clear the filters to see them.';
  const PARTS = {
    surroundings: ({ search }) => {
      const query = new URLSearchParams(search), made = structuredClone(DATA.views[viewOf(query)]);
      if (isFiltered(query)) {
        const names = new Set(found(query).flatMap((i) => [...rows.todos[i].split('|'), rows.analyzer[i]]));
        for (const id of ['verdict', 'answer']) made[id] = concerned(made[id], names);
        made.verdict.push(['p', {}, WHOLE]);
        if (viewOf(query) === 'regret') made.intro = `${made.intro} The chart is of the whole run.`;
      }
      const more_ = without(query, 'view', 'problem', 'table');
      // As Selection.on_tab of selection.py: a link to the comparison, or away from it, leaves out what a click has set.
      const some_ = without(more_, 'todo', 'mark', ...Object.keys(DATA.numbers));
      for (const [, given] of made.tabs) {
        if (!given.href) continue;
        const to = new URLSearchParams(given.href).get('view'), kept = to !== viewOf(query) && [to, viewOf(query)].includes('compare') ? some_ : more_;
        given.href += `${kept}` && `&${kept}`;
      }
      const what = rows.total_us.some((x) => x > 0) ? 'time' : 'calls';
      const base = `Share of the ${what} of the GEMMs and convolutions in this file; each list ignores its own filter.`;
      return { ...made, base, chips: chips(query), filters: facets(query) };
    },
    chart: async ({ search, theme }) => {
      const query = new URLSearchParams(search), { figure, height } = (await more()).charts[viewOf(query)];
      if (!figure) return {};
      const made = await figureOf(figure, theme);
      highlight(made, query);
      const mark = viewOf(query) === 'timeline' && query.get('mark');
      for (const trace of mark ? made.data : []) trace.opacity = trace.name === mark || trace.name.startsWith(`${mark},`) ? 1 : 0.15;
      return { figure: made, height };
    },
    card: async ({ search, theme }) => {
      const query = new URLSearchParams(search), card = structuredClone((await more()).cards[query.get('problem')]);
      if (!card) return { card: ['p', { class: 'faint' }, 'The solutions of this problem are not in this file; logparse explore has them.'] };
      for (const [, given] of card.card[2][0][2]) if (given?.class === 'close') given.href = `?${without(query, 'problem')}`;
      return { card: card.card, figure: await figureOf(card.figure, theme) };
    },
    rows: ({ search, start, end, sort, filter }) => {
      const view = viewOf(new URLSearchParams(search)), places = found(search, filter, sort.map((x) => [x.colId, x.sort])), some = places.length < total;
      return { rows: places.slice(start, end).map(row), count: places.length, by: DATA.by[view], note: some ? `${places.length.toLocaleString('en')} of ${total.toLocaleString('en')} problems` : DATA.notes[view] };
    },
    click: ({ search, data, boxed }) => {
      const query = new URLSearchParams(search), view = viewOf(query), [mark] = [data.points?.[0]?.customdata].flat(0);
      if (boxed) {
        const axes = DATA.boxes[view];
        return { search: axes ? limited(query, axes.map(([name, unit], i) => [name, data.range['xy'[i]].map((x) => x * unit).sort((a, b) => a - b)])) : null };
      }
      if (Array.isArray(mark) && isProblem(mark[0])) { query.set('problem', mark[0]); return { search: `?${query}` }; }
      return { search: Array.isArray(mark) && mark[0] === 'regret' ? limited(query, [['regret', [mark[1], mark[2] * (1 - 1e-9)]]]) : null };
    },
  };
  window.logparseReport = {
    answer: async (part, given) => PARTS[part](given),
    plotly: withPlotly,
    export: ({ search, sort, filter }) => {
      const cell = (x) => {
        if (x === null || x === undefined) return '';
        const text = typeof x === 'string' && /^[=+\-@\t\r]/.test(x) ? `'${x}` : String(x);
        return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
      };
      const titles = DATA.columns.map((x) => cell(x.head)).join(',');
      const lines = [titles, ...found(search, filter, sort).map((i) => DATA.columns.map((x) => cell(rows[x.name][i])).join(','))];
      const made = Object.assign(document.createElement('a'), { href: URL.createObjectURL(new Blob([`${lines.join('\n')}\n`], { type: 'text/csv' })), download: 'logparse-problems.csv' });
      made.click();
      URL.revokeObjectURL(made.href);
    },
  };
  // On paper: the first view, every chart one below the other in the light colours, and every chosen row.
  let before = null, sections = null;
  const paper = () => {
    if (before) return;
    const { table, page, drawBody, drawHead, themed } = window.logparsePage, query = page.search;
    before = { theme: page.theme, rows: table.rows, shown: table.shown };
    themed('light');
    table.rows = found(query, table.filter, table.sort).map(row);
    table.shown = DATA.paper;
    drawHead();
    drawBody();
    if (sections) document.getElementById('charts').before(sections);
  };
  const screen = () => {
    if (!before) return;
    const { table, drawBody, drawHead, themed } = window.logparsePage;
    themed(before.theme);
    Object.assign(table, { rows: before.rows, shown: before.shown });
    before = null;
    sections?.remove();
    drawHead();
    drawBody();
  };
  // The charts on paper are drawn beforehand, when nothing else is to be done, because printing waits for nothing.
  const prepared = async () => {
    await withPlotly();
    const { charts } = await more(), made = document.createElement('div');
    made.id = 'print';
    document.body.append(made);
    for (const [view, { figure }] of Object.entries(charts)) {
      if (!figure?.data.some((x) => x.x?.length && x.x[0] !== null) && !figure?.data.some((x) => x.x?.bdata)) continue;  // nothing to draw
      const section = document.createElement('section'), head = document.createElement('h2'), box = document.createElement('div');
      head.textContent = DATA.titles[view];
      box.className = 'plot';
      section.append(head, box);
      made.append(section);
      const light = await figureOf(figure, 'light');
      light.layout = { ...light.layout, width: 900, height: Math.min(light.layout.height, 480) };
      for (const trace of light.data) {
        if (trace.type === 'scattergl') trace.type = 'scatter';
        delete trace.marker?.pattern;  // each bar with a pattern would take ten kilobytes of a PDF
      }
      await Plotly.newPlot(box, light.data, light.layout, { staticPlot: true });
    }
    made.remove();
    sections = made;
    if (before) document.getElementById('charts').before(sections);
  };
  addEventListener('load', () => {
    matchMedia('print').addEventListener('change', (event) => (event.matches ? paper() : screen()));
    addEventListener('beforeprint', paper);
    addEventListener('afterprint', screen);
    setTimeout(() => requestIdleCallback(prepared, { timeout: 5000 }), 1500);
  });
})();

'use strict';
// The report's page: tabs of charts, a table, the solutions of one problem; a selection in any of them filters the rest.
// Text from the data only ever becomes textContent or a figure that was made with its markup escaped.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const columns = data.columns, count = columns.id.length, names = Object.keys(data.titles), texts = new Set(data.texts);
  const place = new Map(columns.id.map((id, i) => [id, i]));
  const state = { chart: Object.keys(data.charts)[0], ids: null, search: '', filters: {}, sort: null, problem: '', rows: 200 };
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, attributes = {}) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const clear = (node) => { while (node.firstChild) node.removeChild(node.firstChild); return node; };
  const dark = () => document.documentElement.dataset.theme === 'dark';

  const recoloured = (value) => {
    if (typeof value === 'string') return data.dark[value] || value;
    if (Array.isArray(value)) return value.length > 64 ? value : value.map(recoloured);
    if (value && typeof value === 'object' && !ArrayBuffer.isView(value)) {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, k === 'bdata' ? v : recoloured(v)]));
    }
    return value;
  };
  const webgl = !!document.createElement('canvas').getContext('webgl');
  const copy = (figure) => {
    const made = JSON.parse(JSON.stringify(figure));
    if (!webgl) for (const trace of made.data) if (trace.type === 'scattergl') trace.type = 'scatter';
    return dark() ? recoloured(made) : made;
  };
  const plot = (box, figure) => {
    box.style.height = `${figure.layout.height}px`;  // without its own the box collapses when the window changes its size
    return Plotly.react(box, figure.data, figure.layout, { displaylogo: false, responsive: true, toImageButtonOptions: { format: 'svg' } });
  };

  const passes = (i) => {
    if (state.ids && !state.ids.has(columns.id[i])) return false;
    if (state.search) {
      const text = `${columns.label[i]} ${columns.best[i]} ${columns.pick[i]} ${columns.finding[i]}`.toLowerCase();
      if (!text.includes(state.search)) return false;
    }
    for (const [name, rule] of Object.entries(state.filters)) if (!rule(columns[name][i])) return false;
    return true;
  };
  const filtered = () => state.ids !== null || state.search !== '' || Object.keys(state.filters).length > 0;
  const visible = () => {
    const found = [];
    for (let i = 0; i < count; i += 1) if (passes(i)) found.push(i);
    if (state.sort) {
      const { name, down } = state.sort, column = columns[name];
      found.sort((a, b) => {
        const x = column[a], y = column[b];
        if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
        const order = texts.has(name) ? String(x).localeCompare(String(y)) : x - y;
        return (down ? -order : order) || a - b;
      });
    }
    return found;
  };

  // `>10`, `<=2.5`, `3..8` for numbers; part of the text otherwise.
  const rule = (name, text) => {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return null;
    if (texts.has(name)) return (value) => value !== null && String(value).toLowerCase().includes(wanted);
    const range = wanted.match(/^(-?[\d.]+)\s*\.\.\s*(-?[\d.]+)$/), one = wanted.match(/^(<=|>=|<|>|=)?\s*(-?[\d.]+)$/);
    if (range) return (value) => value !== null && value >= +range[1] && value <= +range[2];
    if (!one) return () => false;
    const limit = +one[2];
    const test = { '<': (v) => v < limit, '<=': (v) => v <= limit, '>': (v) => v > limit, '>=': (v) => v >= limit }[one[1]] || ((v) => v === limit);
    return (value) => value !== null && test(value);
  };

  const number = (value) => value === null ? '' : Math.abs(value) >= 1000 ? value.toLocaleString('en', { maximumFractionDigits: 0 }) : String(+value.toPrecision(4));

  const drawChart = () => {
    const figure = copy(data.charts[state.chart]);
    if (filtered()) highlight(figure);
    figure.layout.uirevision = state.chart;  // a zoom stays while filters change; the next chart has axes of its own
    plot($('chart'), figure);
    $('chart').setAttribute('aria-label', state.chart);
    $('caption').textContent = data.captions[state.chart];
  };
  const isProblem = (mark) => /^[0-9a-f]{12}$/.test(mark);
  const highlight = (figure) => {
    const shown = new Set(visible().map((i) => columns.id[i]));
    for (const trace of figure.data) {
      const first = trace.customdata && trace.customdata[0];
      if (!Array.isArray(first)) continue;
      if ((trace.type.startsWith('scatter') || trace.type === 'bar') && isProblem(first[0])) {
        trace.selectedpoints = trace.customdata.flatMap((x, i) => shown.has(x[0]) ? [i] : []);
        trace.unselected = { marker: { opacity: 0.06 } };
      }
    }
  };
  const media = (name) => (data.paper.includes(name) ? '' : 'screen');
  const guess = (name, i) => name === 'saving_us' && columns.saving_from[i] === 'estimated';
  const drawTable = () => {
    const found = visible(), body = clear($('table').tBodies[0]);
    for (const cell of $('table').tHead.querySelectorAll('th')) {
      const sorted = state.sort && state.sort.name === cell.dataset.name;
      cell.setAttribute('aria-sort', sorted ? (state.sort.down ? 'descending' : 'ascending') : 'none');
    }
    for (const i of found.slice(0, state.rows)) {
      const row = make('tr', undefined, { tabindex: '0', 'data-id': columns.id[i] });
      if (columns.id[i] === state.problem) row.className = 'here';
      for (const name of names) {
        const value = columns[name][i];
        if (name === 'label') row.append(make('th', value, { scope: 'row', title: value }));
        else row.append(texts.has(name) ? make('td', value === null ? '' : value, { title: value || '', class: media(name) }) : make('td', (guess(name, i) ? '≈ ' : '') + number(value), { class: `number ${media(name)}` }));
      }
      body.append(row);
    }
    $('more').style.display = found.length > state.rows ? '' : 'none';
    const of = data.total > count ? ` of ${data.total.toLocaleString('en')}` : '';
    $('note').textContent = filtered() ? `${found.length.toLocaleString('en')} of ${count.toLocaleString('en')} problems${of}` : `${count.toLocaleString('en')} problems${of}`;
  };

  const drawChips = () => {
    const box = clear($('chips'));
    const chip = (text, remove) => { const b = make('button', text === 'Clear all' ? text : `${text} ×`); b.onclick = () => { remove(); draw(); }; box.append(b); };
    if (state.ids) chip(`${state.ids.size} marked in a chart`, () => { state.ids = null; });
    if (state.search) chip(`“${state.search}”`, () => { state.search = $('search').value = ''; });
    for (const name of Object.keys(state.filters)) chip(`${data.titles[name]}: ${filterOf(name).value}`, () => { delete state.filters[name]; filterOf(name).value = ''; });
    if (box.firstChild) {
      chip('Clear all', () => {
        for (const name of Object.keys(state.filters)) filterOf(name).value = '';
        Object.assign(state, { ids: null, filters: {}, search: '' });
        $('search').value = '';
      });
    }
  };
  const filterOf = (name) => document.querySelector(`input[data-column="${name}"]`);
  const drawDetail = () => {
    const box = clear($('detail')), mark = data.details[state.problem], i = place.get(state.problem);
    if (!mark) {
      if (state.problem) box.append(make('p', 'The solutions of this problem are not in this file; logparse explore has them.', { class: 'faint' }));
      return;
    }
    const section = make('section', undefined, { class: 'problem', id: 'problem' }), head = make('div', undefined, { class: 'bar' });
    const close = make('button', 'Close');
    close.onclick = () => { state.problem = ''; drawDetail(); drawTable(); };
    head.append(make('h2', columns.label[i]), close);
    const numbers = make('dl');
    for (const [name, column] of [['Now (µs)', 'time_us'], ['Best known (µs)', 'then_us'], ['Calls', 'calls'], ['Could save (ms)', 'saving_us'], ['TFLOP/s', 'tflops'], ['Of roofline (%)', 'efficiency'], ['In the other run (µs)', 'other_us']]) {
      if (!columns[column]) continue;  // of a report without another store
      const pair = make('div');
      const elsewhere = column === 'time_us' && !columns.own[i];  // what another run measured
      pair.append(make('dt', elsewhere ? `As of ${columns.file[i]} (µs)` : name), make('dd', number(columns[column][i]) || 'unknown'));
      numbers.append(pair);
    }
    section.append(head, make('p', mark.sentence, { class: 'sentence' }), numbers);
    const chart = make('div');
    section.append(chart);
    const row = mark.override.name ? `Override row (${mark.override.name})` : 'Override row';
    for (const [title, { text, note }] of [['Bench command', mark.command], [row, mark.override]]) {
      const bar = make('div', undefined, { class: 'bar' });
      bar.append(make('h3', title));
      if (text) {
        const button = make('button', 'Copy', { class: 'copy' });
        button.onclick = () => {
          const done = () => { button.textContent = 'Copied'; };
          if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(done, () => fallback(code, done)); else fallback(code, done);
        };
        bar.append(button);
      }
      bar.append(make('span', note, { class: 'faint' }));
      section.append(bar);
      const code = make('code', text), pre = make('pre');
      pre.append(code);
      if (text) section.append(pre);
    }
    const key = make('details');
    key.append(make('summary', 'Full key'), make('code', mark.problem));
    section.append(key);
    box.append(section);
    if (!mark.figure) { section.removeChild(chart); return; }
    const figure = JSON.parse(JSON.stringify(mark.figure));
    figure.layout.template = data.charts[Object.keys(data.charts)[0]].layout.template;
    plot(chart, copy(figure));
  };
  const fallback = (node, done) => {  // a file from disk may not use the clipboard interface
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    if (document.execCommand('copy')) done();
  };

  const open = (id) => {
    if (!id) return;
    state.problem = id;
    drawDetail();
    drawTable();
    $('detail').scrollIntoView({ block: 'start', behavior: 'smooth' });
  };
  const draw = () => { drawTabs(); drawChips(); drawChart(); drawTable(); };
  const drawTabs = () => {
    const bar = clear($('tabs'));
    for (const name of Object.keys(data.charts)) {
      const button = make('button', name, { class: name === state.chart ? 'here' : '' });
      button.onclick = () => { state.chart = name; draw(); };
      bar.append(button);
    }
  };

  const head = make('tr');
  for (const name of names) {
    const cell = make('th', undefined, { scope: 'col', 'data-name': name, class: media(name) }), button = make('button', data.titles[name], { title: 'Sort' });
    button.onclick = () => { state.sort = { name, down: !(state.sort && state.sort.name === name && state.sort.down) }; drawTable(); };
    const input = make('input', undefined, { 'aria-label': `Filter ${data.titles[name]}`, placeholder: texts.has(name) ? 'contains' : '>0, 1..9', 'data-column': name });
    input.oninput = () => {
      const made = rule(name, input.value);
      if (made) state.filters[name] = made; else delete state.filters[name];
      drawTable();
    };
    input.onchange = draw;
    cell.append(button, input);
    head.append(cell);
  }
  $('table').tHead.append(head);
  const rowOf = (event) => event.target.closest('tr[data-id]');
  $('table').tBodies[0].onclick = (event) => { const row = rowOf(event); if (row) open(row.dataset.id); };
  $('table').tBodies[0].onkeydown = (event) => { const row = rowOf(event); if (row && event.key === 'Enter') open(row.dataset.id); };
  $('more').onclick = () => { state.rows += 500; drawTable(); };
  $('search').oninput = (event) => { state.search = event.target.value.trim().toLowerCase(); drawTable(); };
  $('search').onchange = draw;
  $('switch').onclick = () => { document.documentElement.dataset.theme = dark() ? 'light' : 'dark'; draw(); drawDetail(); };
  $('export').onclick = () => {
    const cell = (value) => {
      if (value === null) return '';
      const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
      return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    };
    const lines = [names.map((n) => cell(data.titles[n])).join(','), ...visible().map((i) => names.map((n) => cell(columns[n][i])).join(','))];
    const link = make('a', undefined, { href: URL.createObjectURL(new Blob([lines.join('\n') + '\n'], { type: 'text/csv' })), download: 'logparse-problems.csv' });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  // On paper: every chart one below the other in the light colours, and every chosen row.
  let before = null;
  const paper = () => {
    if (before) return;
    before = { theme: document.documentElement.dataset.theme, rows: state.rows };
    document.documentElement.dataset.theme = 'light';
    state.rows = Infinity;
    drawTable();
    for (const [name, figure] of Object.entries(data.charts)) {
      const section = make('section'), box = make('div');
      section.append(make('h2', name), make('p', data.captions[name], { class: 'faint' }), box);
      $('print').append(section);
      const made = copy(figure);
      made.layout.width = 700;
      Plotly.newPlot(box, made.data, made.layout, { staticPlot: true });
    }
  };
  const screen = () => {
    if (!before) return;
    document.documentElement.dataset.theme = before.theme;
    state.rows = before.rows;
    before = null;
    clear($('print'));
    drawTable();
  };
  matchMedia('print').addEventListener('change', (event) => (event.matches ? paper() : screen()));
  addEventListener('beforeprint', paper);
  addEventListener('afterprint', screen);
  document.documentElement.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  draw();
  const mark = (test) => {
    state.ids = new Set(columns.id.filter((id, i) => test(i)));
    draw();
  };
  $('chart').on('plotly_click', (event) => {
    const clicked = event.points[0].customdata;
    if (!Array.isArray(clicked)) return;
    if (isProblem(clicked[0])) open(clicked[0]);
    else if (clicked[0] === 'regret') mark((i) => columns.regret[i] !== null && Math.max(0, columns.regret[i] / 100) >= clicked[1] && columns.regret[i] / 100 < clicked[2]);
  });
  $('chart').on('plotly_deselect', () => { if (state.ids) { state.ids = null; draw(); } });
  $('chart').on('plotly_selected', (event) => {
    if (!event || !event.points) return;
    const ids = event.points.map((p) => p.customdata && p.customdata[0]).filter(isProblem);
    if (ids.length) { state.ids = new Set(ids); drawChips(); drawTable(); }
  });
})();

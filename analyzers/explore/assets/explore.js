'use strict';
// The page of logparse explore, and the report. Both have one frame (page.html.in), whose parts this script fills. The
// page asks its server for each part; the report answers from its own data (report.js). The URL holds the state.
(() => {
  const DATA = JSON.parse(document.getElementById('data').textContent);
  const COLUMNS = new Map(DATA.columns.map((x) => [x.name, x]));
  const $ = (id) => document.getElementById(id);
  // ------------------------------------------------------------------------------------------------- elements
  // A page that is served over plain HTTP to another machine has no clipboard interface: there a selection is copied.
  const bySelection = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand('copy');
  };
  const copy = async (button) => {
    const node = $(button.dataset.copies);
    let done = false;
    try { await navigator.clipboard.writeText(node.textContent); done = true; } catch (refused) { done = bySelection(node); }
    button.textContent = done ? 'Copied' : 'Press Ctrl + C';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  };
  // Elements stay and only what differs is set, so that the focus and what a reader opened stay, too.
  const put = (node, name, value) => { if (node[name] !== value) node[name] = value; };
  const make = (tag, name = '', ...inside) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    node.append(...inside);
    return node;
  };
  const children = (node, count, one) => {
    while (node.children.length > count) node.lastChild.remove();
    while (node.children.length < count) node.append(one());
    return [...node.children];
  };
  const withAttributes = (node, { within, ...given }) => {
    node.href_ = within ? given.href : undefined;
    const all = node.href_ ? { ...given, href: addressed(node, given.class), 'data-within': '' } : given;
    for (const name of node.given || []) if (!(name in all)) node.removeAttribute(name);
    for (const [name, value] of Object.entries(all)) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    node.given = Object.keys(all);
  };
  // What the server describes is a text, [tag, attributes, children], or a list of both.
  const isElement = (x) => Array.isArray(x) && typeof x[0] === 'string' && x.length === 3 && x[1] !== null && typeof x[1] === 'object' && !Array.isArray(x[1]);
  const flat = (x) => (isElement(x) ? [x] : Array.isArray(x) ? x.flatMap(flat) : x === null || x === undefined ? [] : [x]);
  const fill = (node, given) => {
    const all = flat(given);
    all.forEach((one, i) => {
      const old = node.childNodes[i];
      let now;
      if (!isElement(one)) {
        now = old?.nodeType === Node.TEXT_NODE ? old : document.createTextNode('');
        put(now, 'data', `${one}`);
      } else {
        const [tag, attributes, inside] = one;
        now = old?.localName === tag && old.id === (attributes.id || '') ? old : document.createElement(tag);
        withAttributes(now, attributes);
        if (now.id !== 'solutions') fill(now, inside);
      }
      if (now !== old) { if (old) old.replaceWith(now); else node.append(now); }
    });
    while (node.childNodes.length > all.length) node.lastChild.remove();
  };
  // The filters.
  const entry = () => make('li', '', make('a', 'entry', make('span', 'name'), make('span', 'share'), make('span', 'level')));
  const showEntry = (node, given) => {
    const link = node.firstChild, [name, share, level] = link.children;
    put(link, 'className', given.on ? 'entry on' : 'entry');
    link.href_ = given.href;
    if (link.getAttribute('href') !== addressed(link)) link.setAttribute('href', addressed(link));
    put(link, 'ariaCurrent', given.on ? 'true' : null);
    put(name, 'textContent', given.name);
    put(name, 'title', given.whole);
    put(share, 'textContent', given.share);
    put(level.style, 'width', given.level);
  };
  const group = () => make('details', '', make('summary'), make('ul'), make('p', 'faint more'));
  const showGroup = (node, given) => {
    const [title, list, more] = node.children;
    if (title.textContent !== given.title) node.open = given.open;  // another group than before; else as the reader left it
    if (given.entries.some((x) => x.on)) node.open = true;
    put(title, 'textContent', given.title);
    put(more, 'textContent', given.more);
    children(list, given.entries.length, entry).forEach((x, i) => showEntry(x, given.entries[i]));
  };
  // ------------------------------------------------------------------------------------------------- state
  // Parts are asked for by what they follow from; of each the latest question counts.
  const page = { search: '', theme: '', webgl: false, empty: new Set(), names: ['', ''], versions: new Map(), finished: new Set() };
  const without = (search, ...names) => {
    const query = new URLSearchParams(search || '');
    names.forEach((name) => query.delete(name));
    return query;
  };
  const current = () => (DATA.live ? location.search : decodeURI(location.hash.slice(1)));
  // The tab Compare has the data of the later run of a pair, the others those of the run that the reader looks at.
  const runs = () => {
    const query = new URLSearchParams(page.search), other = query.get('compare');
    return `${query.get('run')} ${other} ${other && query.get('view') === 'compare'}`;
  };
  // The version of all data grows with each news, the version of the tables only if the tables have changed.
  const NO_NEWS = { all: 0, tables: 0 };
  const known = () => page.versions.get(runs()) ?? NO_NEWS;
  const learn = (of, made) => page.versions.set(of, { all: made.version ?? 0, tables: made.tables ?? 0 });
  const asking = new Map();  // what is being asked for or drawn, by name
  const busy = () => { $('content').ariaBusy = asking.size ? 'true' : 'false'; };
  const answered = async (part, given, signal) => {
    if (!DATA.live) return window.logparseReport.answer(part, given);
    const answer = await fetch(`/part/${part}`, {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(given), signal,
    });
    return answer.ok ? answer.json() : null;
  };
  const ask = async (name, part, given, use = (made) => made) => {
    asking.get(name)?.abort();
    const mine = new AbortController();
    asking.set(name, mine);
    busy();
    try {
      const made = await answered(part, given, mine.signal);
      if (made && asking.get(name) === mine) return await use(made);
    } catch (error) {
      if (error.name !== 'AbortError') throw error;
    } finally {
      if (asking.get(name) === mine) { asking.delete(name); busy(); }
    }
    return null;  // refused, or a later question took its place
  };
  // Links within the page keep the open problem and the table's arrangement, but one to everything, and one to a run.
  const addressed = (link, name = link.className) => {
    const query = new URLSearchParams(link.href_), now = new URLSearchParams(page.search), classes = `${name || ''}`.split(' ');
    if (classes.includes('clear')) return link.href_;
    const kept = classes.includes('close') || ['run', 'compare'].some((x) => query.get(x) !== now.get(x)) ? ['table'] : ['problem', 'table'];
    for (const x of kept) if (!query.has(x) && now.has(x)) query.set(x, now.get(x));
    return `?${query}`;
  };
  const readdress = () => document.querySelectorAll('#page a').forEach((link) => {
    if (link.href_) { const to = addressed(link); if (link.getAttribute('href') !== to) link.setAttribute('href', to); }
  });
  // Of the views one is reached by Tab; the arrow keys lead to the others.
  const views = () => [...document.querySelectorAll('#tabs a')].forEach((link, i, all) => {
    const here = link.classList.contains('here');
    link.tabIndex = here || (!i && !all.some((x) => x.classList.contains('here'))) ? 0 : -1;
    if (here) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  });
  // Of the cards one is reached by Tab, with its buttons; the arrow keys lead to the others.
  const cards = (chosen = document.querySelector('.cards li')) => document.querySelectorAll('.cards li').forEach((card) => {
    for (const x of card.querySelectorAll('a, button')) x.tabIndex = card === chosen ? 0 : -1;
  });
  document.addEventListener('focusin', (event) => { const card = event.target.closest('.cards li'); if (card) cards(card); });
  // When another run is chosen, the page names it at once. What belongs to the run before is hidden until its own is there.
  const PIECES = ['around', 'chart', 'rows'], BONES = ['p', { class: 'skeleton' }, [['span', { class: 'bone' }, []], ['span', { class: 'bone' }, []]]];
  const renewed = (piece) => $('page').classList.remove(`old-${piece}`);
  const nameOf = (run) => {
    if (run === null) return page.first;
    return [...$('runs').querySelectorAll('ul a')].find((x) => new URLSearchParams(x.href_).get('run') === run)?.textContent;
  };
  const outdate = () => {
    const query = new URLSearchParams(page.search), now = runs(), view = query.get('view') || 'overview';
    const old = page.of !== undefined && page.of !== now;
    page.of = now;
    if (!old) return;
    PIECES.forEach((x) => $('page').classList.add(`old-${x}`));
    const run = nameOf(query.get('run')), other = view === 'compare' && query.has('compare') && nameOf(query.get('compare'));
    fill($('verdict'), [['strong', {}, `Reading ${!run ? 'the store' : other ? `runs ${run} and ${other}` : `run ${run}`} …`], BONES]);
    fill($('answer'), view === 'overview' ? [BONES] : []);
    fill($('after'), []);
    const button = $('runs').querySelector('summary, span');
    if (run && button) { fill(button, ['Run ', ['b', {}, run]]); put(button, 'title', run); }
  };
  const surround = (made) => {
    for (const id of ['verdict', 'tabs', 'chips', 'intro', 'answer', 'after', 'runs']) fill($(id), made[id]);
    children($('facets'), made.filters.length, group).forEach((x, i) => showGroup(x, made.filters[i]));
    put($('base'), 'textContent', made.base);
    put($('content'), 'className', made.content);
    if (!/[?&](run|compare)=/.test(page.search) && made.names) [page.first] = made.names;
    renewed('around');
    put($('doing'), 'textContent', made.doing);
    views();
    cards();
    page.empty = new Set(made.empty || []);
    page.names = made.names || page.names;
    if (made.finished) page.finished.add(runs()); else page.finished.delete(runs());
    // The first answer is about the same data as the first answers for the chart and the table.
    const first = !page.versions.has(runs()), before = known().tables;
    learn(runs(), made);
    if (first) Object.assign(page, keys()); else page.around = keys().around;
    if (!first && known().tables !== before) show();
    const classes = made.content.split(' ');
    own = classes.includes('beside') ? 'compare' : classes.includes('weights') ? 'weights' : '';
    refit();
  };
  // ------------------------------------------------------------------------------------------------- charts
  // What is drawn of each view is kept, and is there again at once as long as nothing has changed.
  const CONFIG = { displaylogo: false, responsive: false, toImageButtonOptions: { format: 'svg' } };
  let plotly;
  const withPlotly = () => {
    plotly ??= (DATA.live ? new Promise((done) => {
      const script = Object.assign(make('script'), { src: DATA.plotly, onload: done });
      document.head.append(script);
    }) : window.logparseReport.plotly()).then(() => {
      // WebGL draws as many pixels as the screen has: plotly's default, four times as many, costs a machine without a
      // GPU up to 0.1 s per click.
      Plotly.setPlotConfig({ plotGlPixelRatio: Math.min(2, devicePixelRatio) });
    });
    return plotly;
  };
  // A chart is reached by the keyboard, has a name, and leads to the table, which lists what it draws.
  const describe = (chart) => {
    const title = chart.querySelector('.gtitle')?.textContent || document.querySelector('nav .here')?.textContent || '';
    const given = {
      tabindex: '0',
      role: 'group',
      'aria-label': `Chart: ${title}. The table below lists the same problems; Enter leads there.`,
      'aria-describedby': 'intro table-note',
    };
    chart.querySelectorAll('.modebar-btn').forEach((x) => { x.tabIndex = -1; });  // the keyboard passes one stop per chart
    for (const [name, value] of Object.entries(given)) if (chart.getAttribute(name) !== value) chart.setAttribute(name, value);
  };
  // A name in the legend may be shortened. Its tooltip is the whole one, which is escaped for plotly.
  const nameLegend = (plot) => plot.querySelectorAll('.legend .traces').forEach((node) => {
    const whole = node.__data__?.[0]?.trace.meta, over = node.querySelector('.legendtoggle');
    if (!whole || !over || over.firstChild) return;
    over.append(document.createElementNS('http://www.w3.org/2000/svg', 'title'));
    over.firstChild.textContent = new DOMParser().parseFromString(whole, 'text/html').body.textContent;
  });
  // In a narrow window, such as that of a phone, plots stand one below the other, and long lines of text are broken, because
  // plotly cuts them off. The figure gets as much higher.
  const NARROW = 600, LETTER = 6.4, SIDE = 110, ENTRY = 19;  // px: SIDE is room for the names of lines
  const broken = (text, width) => text.split('<br>').flatMap((line) => line.split(' ').reduce((lines, word) => {
    const last = lines.length - 1, joined = `${lines[last]} ${word}`;
    if (last >= 0 && joined.length * LETTER <= width) lines[last] = joined; else lines.push(word);
    return lines;
  }, []));
  const narrowed = (figure, width) => {
    if (!width || width >= NARROW) return figure;
    const made = structuredClone(figure), { layout } = made, { margin } = layout, old = layout.height;
    const axes = Object.keys(layout).filter((x) => /^[xy]axis\d*$/.test(x)), plots = axes.filter((x) => x[0] === 'x');
    margin.l = Math.min(margin.l, SIDE);
    let above = 0, inside = 0, below = 0;
    const title = layout.title?.text && broken(layout.title.text, width - 30);
    if (title) {
      above = 18 * (title.length - layout.title.text.split('<br>').length);
      layout.title.text = title.join('<br>');
    }
    for (const name of plots) {
      const text = layout[name].title?.text || '', lines = broken(text, width - margin.l - margin.r + 2 * Math.min(margin.l, margin.r));
      if (!text) continue;
      if (layout[name].dtick === 'D2') Object.assign(layout[name], { dtick: undefined, nticks: 4 });
      below = Math.max(below, 16 * (lines.length - text.split('<br>').length));
      layout[name].title.text = lines.join('<br>');
    }
    layout.annotations = layout.annotations?.filter((x) => !x.bgcolor);  // names of marks, for which there is no room
    if (plots.length > 1) {
      const high = 0.75 * (old - margin.t - margin.b), gap = 110 + below, all = plots.length * (high + gap) - gap;
      inside = all - (old - margin.t - margin.b);
      axes.forEach((name) => {
        const top = 1 - (((+name.slice(5) || 1) - 1) * (high + gap)) / all;
        layout[name].domain = name[0] === 'x' ? [0, 1] : [Math.max(0, top - high / all), top];
      });
      // The first annotations are the titles of the plots (subplots of charts/figure.py).
      plots.forEach((_, i) => Object.assign(layout.annotations[i], { x: 0.5, y: 1 - (i * (high + gap)) / all }));
    }
    const names = made.data.filter((x) => x.showlegend !== false && x.name).map((x) => x.name.length);
    if (layout.legend?.yanchor === 'bottom') {  // below the plot: its entries stand in fewer columns
      const columns = Math.max(1, Math.floor(width / (50 + Math.max(...names) * LETTER)));
      below += Math.max(0, ENTRY * Math.ceil(names.length / columns) - 90);
      layout.legend.maxheight = 1000;
    }
    layout.height = old + above + inside + below;
    margin.t += above;
    margin.b += below;
    // What hangs from the top of the figure keeps its distance to it.
    for (const x of [layout.title, layout.legend]) if (x?.y > 0.5) x.y = 1 - ((1 - x.y) * old + above) / layout.height;
    return made;
  };
  const drawn = new Map();  // by view: what it was drawn from, its plot (null: it has none) and the height of its box
  const fitted = (plot) => {
    if (plot.offsetParent && plot._fullLayout && Math.abs(plot.clientWidth - plot._fullLayout.width) >= 1) Plotly.Plots.resize(plot);
  };
  const roomy = () => { const width = $('charts').clientWidth; return width < NARROW ? width : NARROW; };
  const attach = (view) => {
    const box = $('chart');
    put(box.style, 'display', view.plot ? '' : 'none');
    if (view.plot) put(box.style, 'height', view.height);
    if (!view.plot) box.replaceChildren();
    else if (box.firstChild !== view.plot) box.replaceChildren(view.plot);
    if (view.plot) fitted(view.plot);
  };
  const plot = async (node, figure) => {
    await withPlotly();
    await Plotly.react(node, figure.data, figure.layout, CONFIG);
  };
  const chosenIn = (data, boxed) => ask('click', 'click', { search: page.search, data, boxed }, (made) => {
    if (made.search) move(made.search);
  });
  const listen = (node) => {
    node.heard = true;
    node.on('plotly_afterplot', () => nameLegend(node));
    nameLegend(node);
    node.on('plotly_click', (event) => chosenIn({ points: event.points.map((x) => ({ customdata: x.customdata })) }, false));
    node.on('plotly_selected', (event) => event?.range && chosenIn({ range: event.range }, true));
  };
  const draw = async (view, given) => {
    if (!given.figure) view.plot = null;
    const width = roomy(), figure = given.figure && narrowed(given.figure, width);
    Object.assign(view, { given, width });
    if (figure) {
      // The box is higher than the chart by its edge.
      const height = parseFloat(given.height) + figure.layout.height - given.figure.layout.height;
      Object.assign(view, { plot: view.plot || make('div'), height: `${height}px` });
    }
    attach(view);
    if (!figure) return;
    await plot(view.plot, figure);
    if (!view.plot.heard) listen(view.plot);
  };
  // When everything on the screen is there and nothing else is to be done.
  const idle = async () => {
    while (!page.finished.has(runs()) || [...asking.keys()].some((name) => name !== 'chart')) await new Promise((done) => setTimeout(done, 50));
    await new Promise((done) => requestIdleCallback(done, { timeout: 1000 }));
  };
  // plotly.js is run and WebGL is set up when nothing else is to be done, before the first views with points ask for it.
  let warmed = false;
  const warm = async () => {
    if (warmed || !DATA.live) return;
    warmed = true;
    await idle();
    await withPlotly();
    for (const name of page.webgl ? ['roofline', 'weights'] : []) {
      await idle();
      if (drawn.has(name)) continue;
      const node = make('div');
      drawn.set(name, { plot: node });
      await plot(node, { data: [{ type: 'scattergl', mode: 'markers', x: [null], y: [null] }], layout: { dragmode: 'select' } });
    }
  };
  const chart = (name, key) => {
    const view = drawn.get(name) || {}, here = () => describe($('chart'));
    drawn.set(name, view);
    if (view.key === key) {
      asking.get('chart')?.abort();
      asking.delete('chart');
      if (view.given?.figure && view.width !== roomy()) draw(view, view.given); else attach(view);
      renewed('chart');
      if (view.plot) here();
      busy();
      return;
    }
    view.key = undefined;
    // The timeline marks the kernels of the open problem.
    const dropped = name === 'timeline' ? ['table'] : ['problem', 'table'];
    const given = { search: `?${without(page.search, ...dropped)}`, theme: page.theme, webgl: page.webgl };
    ask('chart', 'chart', given, async (made) => {
      await draw(view, made);
      renewed('chart');
      if (made.figure) here();
      if (page.charts === key) view.key = key;
    }).then(warm);
  };
  // The card of one problem.
  const card = (given) => ask('card', 'card', given, async (made) => {
    fill($('detail'), made.card);
    $('problem')?.focus();
    if (!made.figure) return;
    const box = $('solutions');
    if (!box.firstChild) box.append(make('div'));
    await plot(box.firstChild, made.figure);
  });
  const close = () => {
    asking.get('card')?.abort();
    asking.delete('card');
    $('detail').replaceChildren();
    busy();
  };
  // ------------------------------------------------------------------------------------------------- the table
  // Its rows come in blocks, as the reader scrolls; those of before stay until others are there. It is one stop of the
  // keyboard: the arrow keys move between its cells, Enter sorts by a head or opens a row.
  const table = { rows: [], count: 0, sort: [], filter: {}, shown: [], at: [0, 0], block: 0, by: '' };
  const head = () => $('table').tHead, body = () => $('table').tBodies[0];
  const number = (value) => (Math.abs(value) < 1e-9 ? '0' : Math.abs(value) >= 1000 ? value.toLocaleString('en', { maximumFractionDigits: 0 }) : `${+value.toPrecision(4)}`);
  // A time in the unit that fits it, as logparse.text.duration writes it.
  const duration = (us) => {
    const size = Math.abs(us), [unit, scale] = size < 999.5 ? ['µs', 1] : size < 999.5e3 ? ['ms', 1e3] : size < 6e8 ? ['s', 1e6] : ['min', 6e7];
    return `${+(us / scale).toPrecision(3)} ${unit}`;
  };
  const AT_LEAST = new Set(['time_us', 'w_us', 'total_us', 'w_total_us']);  // lower bounds if no log names the solution that ran
  const cell = (row, { name, kind, each }) => {
    const value = row[name];
    if (value === null || value === undefined) return '';
    if (name === 'then_us' && row.aim_us < value && row.aim_us !== null) return `≈ ${duration(row.aim_us)}`;
    if (name === 'then_us' && (row.saving_us ?? null) === null && value >= row.time_us) return '';  // nothing faster is known
    if (kind === 'text') return value;
    if (kind === 'change') return `${value > 0 ? '+' : ''}${value.toFixed(1)}`.replace('-', '−');
    const text = kind === 'time' ? duration(value * each) : number(value);
    if (name === 'change_us') return value > 0 ? `+${text}` : text.replace('-', '−');
    if (AT_LEAST.has(name) && row.at_least) return `≥ ${text}`;
    if (name === 'beyond_us' && value > 0) return `≈ ${text}`;
    const mark = { estimated: '≈ ', conditional: '0 or ' };  // how sure a saving is
    return name === 'saving_us' && row.saving_from in mark ? mark[row.saving_from] + text : text;
  };
  const titled = (column) => {
    const [here, other] = page.names, named = {
      here_us: here, other_us: other, pick_here: here && `Pick, ${here}`, pick_there: other && `Pick, ${other}`,
      pick_here_us: here && `${here}'s pick takes`, pick_there_us: other && `${other}'s pick takes`,
    };
    return named[column.name] || column.title;
  };
  const wide = () => matchMedia('print').matches;
  // Rules of a column, as typed: `>10`, `<2.5 ms`, `3..8`, `=4` or `none` for numbers, where a number alone means `>`;
  // a part of the text, `!part`, or `none` for texts.
  const US = { 'µs': 1, us: 1, ms: 1e3, s: 1e6 };
  const understoodRule = (column, text) => {
    const typed = column.name === 'label' ? text.trimStart() : text.trim(), word = typed.trim().toLowerCase();
    if (!word) return null;
    if (word === 'none') return { type: 'blank' };
    if (word === 'any') return { type: 'notBlank' };
    if (column.kind === 'text') return word[0] === '!' && typed[1] ? { type: 'notContains', filter: typed.slice(1) } : { type: 'contains', filter: typed };
    const value = (amount, unit) => (unit && column.kind === 'time' ? (US[unit.toLowerCase()] * +amount) / column.each : +amount);
    const range = word.match(/^(-?[\d.]+)\s*(µs|us|ms|s)?\s*\.\.\s*(-?[\d.]+)\s*(µs|us|ms|s)?$/);
    if (range) return { type: 'inRange', filter: value(range[1], range[2] || range[4]), filterTo: value(range[3], range[4]) };
    const one = word.match(/^([<>=]?)=?\s*(-?[\d.]+)\s*(µs|us|ms|s)?$/);
    const type = { '<': 'lessThan', '=': 'equals' }[one?.[1]] || 'greaterThan';
    return one && Number.isFinite(+one[2]) ? { type, filter: value(one[2], one[3]) } : undefined;
  };
  const ruleText = (rule) => {
    if (!rule) return '';
    const sign = { greaterThan: '> ', lessThan: '< ', equals: '= ', notContains: '!' }[rule.type] || '';
    if (rule.type === 'inRange') return `${rule.filter}..${rule.filterTo}`;
    return { blank: 'none', notBlank: 'any' }[rule.type] || `${sign}${rule.filter}`;
  };
  const columnsShown = () => table.shown.map((name) => COLUMNS.get(name));
  const sortedBy = (name) => table.sort.find(([x]) => x === name)?.[1];
  const drawHead = () => {
    const columns = columnsShown();
    const [titles, rules] = children(head(), 2, () => make('tr'));
    rules.className = 'rules';
    children(titles, columns.length, () => make('th', '', make('span'), make('span', 'way'))).forEach((node, i) => {
      const column = columns[i], way = sortedBy(column.name);
      put(node, 'scope', 'col');
      node.dataset.name = column.name;
      const first = !table.sort.length && column.name === table.by;  // the order until the reader chooses one
      node.title = [titled(column), column.about, first ? 'The rows are in this order.' : '', 'Click: sort.'].filter(Boolean).join('\n');
      put(node.firstChild, 'textContent', titled(column));
      put(node.lastChild, 'textContent', way === 'desc' || first ? ' ▼' : way === 'asc' ? ' ▲' : '');
      put(node.lastChild, 'className', first ? 'way faint' : 'way');
      node.ariaSort = way === 'desc' || first ? 'descending' : way === 'asc' ? 'ascending' : 'none';
      node.className = column.kind === 'text' ? '' : 'number';
      node.style.width = `${widths.get(column.name) || column.width}px`;
    });
    children(rules, columns.length, () => make('td', '', Object.assign(make('input'), { type: 'text', tabIndex: -1, autocomplete: 'off' }))).forEach((node, i) => {
      const column = columns[i], box = node.firstChild;
      box.dataset.column = column.name;
      box.placeholder = column.kind === 'text' ? 'contains' : `> ${column.unit || ''}`;
      box.ariaLabel = `Filter ${titled(column)}`;
      if (document.activeElement !== box) put(box, 'value', ruleText(table.filter[column.name]));
    });
    put($('table').style, 'width', `${columns.reduce((sum, x) => sum + (widths.get(x.name) || x.width), 0)}px`);
    $('table').setAttribute('aria-colcount', columns.length);
  };
  const drawRow = (node, row, problem, columns) => {
    node.dataset.id = row.id;
    node.ariaSelected = row.id === problem ? 'true' : 'false';
    node.className = row.id === problem ? 'here' : '';
    children(node, columns.length, () => make('td')).forEach((x, i) => {
      const text = cell(row, columns[i]);
      put(x, 'textContent', text);
      x.dataset.column = columns[i].name;
      put(x, 'className', columns[i].kind === 'text' ? '' : 'number');
      const aims = columns[i].name === 'then_us' && row.aim_us;
      put(x, 'title', columns[i].kind === 'text' ? text : aims ? `The estimated saving assumes this time. The fastest known solution takes ${duration(row.then_us)}.` : '');
    });
  };
  const drawBody = () => {
    const problem = new URLSearchParams(page.search).get('problem'), columns = columnsShown();
    const rows = wide() ? table.rows : table.rows.slice(0, Math.max(table.rows.length, 0));
    children(body(), rows.length, () => make('tr')).forEach((node, i) => drawRow(node, rows[i], problem, columns));
    $('table').setAttribute('aria-rowcount', table.count + 2);
    rove();
  };
  const marked = () => {
    const problem = new URLSearchParams(page.search).get('problem');
    for (const node of body().rows) {
      put(node, 'className', node.dataset.id === problem ? 'here' : '');
      node.ariaSelected = node.dataset.id === problem ? 'true' : 'false';
    }
  };
  // Only one cell is reached by Tab.
  const cellAt = ([row, column]) => {
    const node = $('table').rows[row]?.cells[column];
    return node && (node.querySelector('input') || node);
  };
  const rove = () => {
    const now = cellAt(table.at) || cellAt(table.at = [0, 0]);
    for (const x of $('table').querySelectorAll('[tabindex="0"]')) if (x !== now) x.tabIndex = -1;
    if (now) now.tabIndex = 0;
  };
  const focusCell = (row, column) => {
    const rows = $('table').rows.length, columns = table.shown.length;
    table.at = [Math.min(Math.max(row, 0), rows - 1), Math.min(Math.max(column, 0), columns - 1)];
    rove();
    cellAt(table.at)?.focus();
    if (row >= rows - 3) more();
  };
  const viewNow = () => new URLSearchParams(page.search).get('view') || 'overview';
  // Some views have an order and columns of their own.
  const choice = () => `?${without(page.search, ...(viewNow() in DATA.sets ? [] : ['view']), 'mark', 'problem', 'table')}`;
  const load = async (start) => {
    const given = {
      search: choice(), start, end: start + DATA.rows_at_once, filter: table.filter,
      sort: table.sort.map(([colId, sort]) => ({ colId, sort })),
    };
    table.block = start;
    const made = await ask('rows', 'rows', given).catch(() => null);
    if (!made || given.search !== choice()) return;
    table.rows = start ? [...table.rows.slice(0, start), ...made.rows] : made.rows;
    table.count = made.count;
    if (table.by !== made.by) { table.by = made.by; drawHead(); }
    $('table-note').textContent = made.note;
    drawBody();
    $('table').classList.toggle('waits', made.final === false);
    renewed('rows');
    if (!start) $('table-scroll').scrollTop = 0;
  };
  const more = () => { if (table.rows.length < table.count && !asking.has('rows')) load(table.rows.length); };
  const arrangement = () => {
    const filter = table.filter;
    return table.sort.length || Object.keys(filter).length ? JSON.stringify({ sort: table.sort, filter }) : '';
  };
  const arranged = () => { drawHead(); changed('table', arrangement()); page.rows = keys().rows; load(0); };
  // What a URL, which anybody may have written, asks of the table's columns: the rest is dropped.
  const NUMBER_RULES = ['greaterThan', 'lessThan', 'equals', 'inRange'], TEXT_RULES = ['contains', 'notContains'];
  const arrange = (text) => {
    let given = null;
    try { given = JSON.parse(text || 'null'); } catch (unreadable) {}
    const pairs = Array.isArray(given?.sort) ? given.sort : [], models = Object.entries(given?.filter ?? {});
    table.sort = pairs.filter((x) => Array.isArray(x) && COLUMNS.has(x[0]) && ['asc', 'desc'].includes(x[1]));
    table.filter = Object.fromEntries(models.filter(([name, x]) => {
      const column = COLUMNS.get(name);
      if (!column || x === null || typeof x !== 'object') return false;
      if (['blank', 'notBlank'].includes(x.type)) return true;
      if (column.kind === 'text') return TEXT_RULES.includes(x.type) && typeof x.filter === 'string';
      return NUMBER_RULES.includes(x.type) && typeof x.filter === 'number' && (x.type !== 'inRange' || typeof x.filterTo === 'number');
    }));
    drawHead();
  };
  // Which columns the table shows: sets of them and one box each. The choice stays in this browser.
  const KEPT = 'logparse-columns', widths = new Map();
  const LONG = ['finding', 'best', 'action', 'pick_there', 'file'], LABEL = 64;
  let own = '', wanted = Object.values(DATA.presets)[0];  // the view whose columns are shown, if it has columns of its own
  const sets = Object.fromEntries(Object.entries(DATA.sets).map(([view, title]) => [view, DATA.presets[title]]));
  const stored = (name, value) => {
    try { if (value === undefined) return localStorage.getItem(name); localStorage.setItem(name, value); } catch (refused) {}
    return null;
  };
  try { const kept = JSON.parse(stored(KEPT)); if (Array.isArray(kept)) wanted = kept.filter((x) => COLUMNS.has(x)); } catch (unreadable) {}
  // The columns of a preset that have values and for which there is room. What room they leave goes to the problem, then
  // to one other text; what a reader chose one by one is shown whole, and scrolls.
  const fitting = (names) => {
    widths.clear();
    if (!Object.values(DATA.presets).some((x) => `${x}` === `${names}`)) return names;
    const width = (name) => COLUMNS.get(name).width, least = (some) => some.reduce((sum, x) => sum + width(x), width('label'));
    const room = $('table-scroll').clientWidth - 2, full = names.filter((x) => !page.empty.has(x));
    const left = DATA.spared.reduce((some, name) => (least(some) <= room ? some : some.filter((x) => x !== name)), full);
    const over = Math.max(0, room - least(left)), long = LONG.find((x) => left.includes(x)), label = long ? Math.min(over, LABEL) : over;
    widths.set('label', width('label') + label);
    if (long) widths.set(long, width(long) + over - label);
    return left;
  };
  const boxes = DATA.columns.filter((x) => x.name !== 'label').map((x) => Object.assign(make('input'), { type: 'checkbox', value: x.name }));
  let arrangedFor = '';
  const refit = () => {
    const shown = fitting(own ? sets[own] : wanted);
    table.shown = ['label', ...DATA.columns.map((x) => x.name).filter((x) => x !== 'label' && shown.includes(x))];
    if (own) table.shown = ['label', ...shown];
    boxes.forEach((x) => { x.checked = shown.includes(x.value); });
    const now = `${table.shown} ${[...widths]} ${page.names}`;
    if (now === arrangedFor) return;
    arrangedFor = now;
    drawHead();
    drawBody();
  };
  const keep = (names) => {
    if (own) sets[own] = names; else wanted = names;
    refit();
    stored(KEPT, JSON.stringify(wanted));
  };
  const chooser = () => {
    const set = (title, names) => {
      const button = make('button', '', title);
      button.addEventListener('click', () => keep(names));
      return button;
    };
    boxes.forEach((x) => x.addEventListener('change', () => keep(boxes.filter((y) => y.checked).map((y) => y.value))));
    $('chooser').replaceChildren(
      make('div', 'sets', ...Object.entries(DATA.presets).map(([title, names]) => set(title, names)), set('All', boxes.map((x) => x.value))),
      ...boxes.map((x) => make('label', '', x, COLUMNS.get(x.value).title)),
    );
  };
  const open = (row) => { if (row?.dataset.id) changed('problem', row.dataset.id); };
  const sortBy = (name) => {
    const next = { desc: 'asc', asc: undefined }, way = sortedBy(name), then = way ? next[way] : 'desc';
    table.sort = then ? [[name, then]] : [];
    arranged();
  };
  const place = (node) => [node.closest('tr').rowIndex, node.closest('td, th').cellIndex];
  const tableKey = (event) => {
    const [row, column] = place(event.target), typing = event.target.matches('input');
    const leap = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ...(typing ? {} : { ArrowLeft: [0, -1], ArrowRight: [0, 1], PageDown: [10, 0], PageUp: [-10, 0] }) }[event.key];
    if (leap) focusCell(row + leap[0], column + leap[1]);
    else if (!typing && event.key === 'Home') focusCell(row, 0);
    else if (!typing && event.key === 'End') focusCell(row, table.shown.length - 1);
    else if (!typing && ['Enter', ' '].includes(event.key)) { if (row === 0) sortBy(event.target.dataset.name); else open(event.target.closest('tr')); }
    else return false;
    return true;
  };
  let typed;
  const typeRule = (box) => {
    const column = COLUMNS.get(box.dataset.column), rule = understoodRule(column, box.value);
    box.classList.toggle('wrong', rule === undefined);
    box.title = rule === undefined ? 'Not understood: > 10, < 2.5 ms, 3..8, none' : '';
    if (rule === undefined) return;
    clearTimeout(typed);
    typed = setTimeout(() => {
      if (rule) table.filter[column.name] = rule; else delete table.filter[column.name];
      arranged();
    }, 250);
  };
  // ------------------------------------------------------------------------------------------------- what is shown
  const keys = () => {
    const query = new URLSearchParams(page.search), problem = query.get('problem'), rest = `${page.theme} ${known().tables}`;
    const timeline = query.get('view') === 'timeline';
    return {
      charts: `${without(page.search, ...(timeline ? ['table'] : ['mark', 'problem', 'table']))} ${rest}`,
      around: `?${without(page.search, ...(timeline ? ['table'] : ['problem', 'table']))} ${known().all}`,
      opened: problem ? `${problem} ${runs()} ${rest} ${query.get('view')}` : '',
      rows: `${choice()} ${known().tables}`,
    };
  };
  // Asks for what differs from what is shown.
  const show = () => {
    const query = new URLSearchParams(page.search), now = keys(), name = query.get('view') || 'overview';
    const before = { ...page };
    Object.assign(page, now);
    outdate();
    if (before.charts !== now.charts) chart(name, now.charts);
    if (before.around !== now.around) ask('surroundings', 'surroundings', { search: now.around.slice(0, now.around.lastIndexOf(' ')) }, surround);
    if (before.opened !== now.opened) { if (now.opened) card({ search: page.search, theme: page.theme }); else close(); }
    if (before.rows !== now.rows) load(0);
    marked();
    readdress();
  };
  const follow = () => {
    page.search = current();
    const query = new URLSearchParams(page.search), text = query.get('search') || '', table_ = query.get('table') || '';
    if (document.activeElement !== $('search') || !text) put($('search'), 'value', text);
    if (table_ !== arrangement()) { arrange(table_); page.rows = ''; }
    show();
  };
  const move = (search, instead = false) => {
    if (DATA.live) history[instead ? 'replaceState' : 'pushState'](null, '', search);
    else if (instead) location.replace(`#${search}`);
    else location.hash = search;
    follow();
  };
  const changed = (name, value, instead = false) => {
    const query = new URLSearchParams(page.search);
    if ((query.get(name) || '') === value) return;
    if (value) query.set(name, value); else query.delete(name);
    move(`?${query}`, instead);
  };
  // How far the reading is. The server answers when there is news, or after a second; one that has ended, never.
  let watching;  // the runs that the server is asked about: it gets one question at a time
  const watch = async () => {
    const now = runs();
    if (watching === now || page.finished.has(now)) return;
    watching = now;
    const made = await answered('watch', { search: page.search, version: known().all }).catch(() => null);
    if (watching === now) watching = undefined;
    if (!made || now !== runs()) return;
    put($('doing'), 'textContent', made.doing);
    if (made.finished) page.finished.add(now);
    if (!page.versions.has(now) && asking.has('surroundings')) return;  // its answer is under way
    if (made.version !== known().all) { learn(now, made); show(); }
    if (!made.finished) watch();
  };
  // ------------------------------------------------------------------------------------------------- what a reader does
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a.entry, a[data-within]');
    if (link && !(event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)) {
      event.preventDefault();
      move(link.search);
      if (link.closest('#tabs')) scrollTo(0, 0);
      if (link.matches('.whole, .leads')) $(new URLSearchParams(link.search).get('view') === 'timeline' ? 'tabs' : 'chips').scrollIntoView({ block: 'start' });
      if (link.closest('#runs')) link.closest('details').open = false;
    }
    const button = event.target.closest('button[data-copies]');
    if (button) copy(button);
    const cell_ = event.target.closest('#table th, #table tbody tr');
    if (cell_?.matches('th')) { table.at = place(cell_); sortBy(cell_.dataset.name); rove(); } else if (cell_ && !getSelection().toString()) { table.at = place(event.target); rove(); open(cell_); }
    if (event.target.id === 'export') {
      if (DATA.live) location.href = `${DATA.table}${location.search}`; else window.logparseReport.export({ search: choice(), sort: table.sort, filter: table.filter });
    }
    if (event.target.id === 'switch') { themed(page.theme === 'dark' ? 'light' : 'dark', true); show(); }
  });
  let searching, fresh = true;
  $('search').addEventListener('input', (event) => {
    clearTimeout(searching);
    searching = setTimeout(() => { changed('search', event.target.value.trim(), !fresh); fresh = false; }, 200);
  });
  $('search').addEventListener('blur', () => { fresh = true; });
  $('table').addEventListener('input', (event) => typeRule(event.target));
  $('table-scroll').addEventListener('scroll', (event) => {
    const box = event.target;
    if (box.scrollTop + 2 * box.clientHeight > box.scrollHeight) more();
  });
  // "/" searches, Esc closes the card, the arrow keys open the next problem of the table in it.
  const step = (by) => {
    const row = body().querySelector('tr.here'), next = by > 0 ? row?.nextElementSibling : row?.previousElementSibling;
    next?.scrollIntoView({ block: 'nearest' });
    open(next);
  };
  const shortcut = (event) => {
    const shown = $('problem'), typing = event.target.matches('input, textarea, select');
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape' && shown) shown.querySelector('.close').click();
    else if (event.key === 'Escape' && event.target.id === 'search') event.target.blur();
    else if (event.target.closest('#table')) { if (!tableKey(event)) return; }
    else if (event.key === 'Enter' && event.target.matches('#charts .chart')) focusCell(2, 0);
    else if (event.key === 'Enter' && event.target.id === 'search') { clearTimeout(searching); changed('search', event.target.value.trim()); }
    else if (typing) return;
    else if (event.target.matches('#tabs a') && ['ArrowLeft', 'ArrowRight'].includes(event.key)) {
      const all = [...document.querySelectorAll('#tabs a')];
      all[all.indexOf(event.target) + (event.key === 'ArrowLeft' ? -1 : 1)]?.focus();
    }
    else if (event.target.matches('.cards .whole') && ['ArrowLeft', 'ArrowRight'].includes(event.key)) {
      const all = [...document.querySelectorAll('.cards .whole')];
      all[all.indexOf(event.target) + (event.key === 'ArrowLeft' ? -1 : 1)]?.focus();
    }
    else if (event.key === '/') $('search').focus();
    else if (shown?.contains(event.target) && ['ArrowDown', 'ArrowUp'].includes(event.key)) step(event.key === 'ArrowDown' ? 1 : -1);
    else return;
    event.preventDefault();
  };
  document.addEventListener('keydown', shortcut);
  // The colours of the system until the reader chooses.
  const themed = (name, chosen) => {
    page.theme = name;
    document.documentElement.dataset.theme = name;
    if (chosen) stored('logparse-theme', name);
  };
  themed(stored('logparse-theme') || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
  page.webgl = !!document.createElement('canvas').getContext('webgl');
  chooser();
  refit();
  addEventListener(DATA.live ? 'popstate' : 'hashchange', () => { if (current() !== page.search) follow(); });
  addEventListener('resize', refit);
  let resizing;
  new ResizeObserver(() => {
    clearTimeout(resizing);
    resizing = setTimeout(() => {
      const view = drawn.get(viewNow());
      if (view?.given?.figure && view.width !== roomy()) draw(view, view.given);
      document.querySelectorAll('#content .js-plotly-plot').forEach(fitted);
    }, 100);
  }).observe($('page'));
  // For the report, which prints all its rows and charts.
  window.logparsePage = { table, drawHead, drawBody, themed, page, duration };
  if (DATA.opens && !current()) move(DATA.opens, true); else follow();
  if (DATA.live) setInterval(watch, 150);
})();

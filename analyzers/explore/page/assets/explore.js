'use strict';
// What the keyboard and the clipboard need beyond Dash's own parts.
(() => {
  // A page that is served over plain HTTP to another machine has no clipboard interface: there a selection is copied.
  const bySelection = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand('copy');
  };
  const copy = async (button) => {
    const node = document.getElementById(button.dataset.copies);
    let done = false;
    try { await navigator.clipboard.writeText(node.textContent); done = true; } catch (refused) { done = bySelection(node); }
    button.textContent = done ? 'Copied' : 'Press Ctrl + C';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  };
  // The filters. Elements stay and only what differs is set: a click changes some shares and one mark.
  const put = (node, name, value) => { if (node[name] !== value) node[name] = value; };
  const make = (tag, name = '', ...inside) => {
    const node = document.createElement(tag);
    node.className = name;
    node.append(...inside);
    return node;
  };
  const children = (node, count, one) => {
    while (node.children.length > count) node.lastChild.remove();
    while (node.children.length < count) node.append(one());
    return [...node.children];
  };
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
    if (title.textContent !== given.title) node.open = given.open;  // another one than before; else as the reader left it
    if (given.entries.some((x) => x.on)) node.open = true;
    put(title, 'textContent', given.title);
    put(more, 'textContent', given.more);
    children(list, given.entries.length, entry).forEach((x, i) => showEntry(x, given.entries[i]));
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
  // Of the views one is reached by Tab; the arrow keys lead to the others.
  const views = () => document.querySelectorAll('#tabs a').forEach((link) => {
    const here = link.classList.contains('here');
    link.tabIndex = here ? 0 : -1;
    if (here) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  });
  // Elements of what the server describes as Dash's components. Those that are there stay, with what differs set, so
  // that the focus and what a reader opened stay, too.
  const NAMES = { id: 'id', href: 'href', title: 'title', role: 'role', tabIndex: 'tabindex' };
  const withAttributes = (node, type, props) => {
    const given = new Map();
    for (const [name, value] of Object.entries(props)) {
      const attribute = NAMES[name] || (/^(aria|data)-/.test(name) ? name : '');
      if (attribute && value !== null && value !== undefined) given.set(attribute, `${value}`);
    }
    if (type === 'Link') given.set('data-within', '');
    const style = Object.entries(props.style || {}).map(([name, value]) => `${name}: ${value}`).join('; ');
    if (style) given.set('style', style);
    for (const name of node.given || []) if (!given.has(name)) node.removeAttribute(name);
    put(node, 'className', props.className || '');
    node.given = [...given.keys()];
    node.href_ = type === 'Link' ? given.get('href') : undefined;
    if (node.href_) given.set('href', addressed(node));
    for (const [name, value] of given) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  };
  const flat = (given) => (Array.isArray(given) ? given.flatMap(flat) : given === null || given === undefined ? [] : [given]);
  const fill = (node, given) => {
    const all = flat(given);
    all.forEach((one, i) => {
      const old = node.childNodes[i];
      let now;
      if (typeof one !== 'object') {
        now = old?.nodeType === Node.TEXT_NODE ? old : document.createTextNode('');
        put(now, 'data', `${one}`);
      } else {
        const tag = one.type === 'Link' ? 'a' : one.type.toLowerCase(), { children: inside, ...props } = one.props;
        now = old?.localName === tag && old.id === (props.id || '') ? old : document.createElement(tag);
        withAttributes(now, one.type, props);
        if (now.id !== 'solutions') fill(now, inside);
      }
      if (now !== old) { if (old) old.replaceWith(now); else node.append(now); }
    });
    while (node.childNodes.length > all.length) node.lastChild.remove();
  };
  // The page: its URL's query, and what else decides on how it looks. Parts are asked for by what they follow from; of
  // each the latest question counts.
  const page = { search: '', version: 0, theme: '', webgl: false };
  const without = (search, ...names) => {
    const query = new URLSearchParams(search || '');
    names.forEach((name) => query.delete(name));
    return query;
  };
  const asking = new Map();  // what is being asked for or drawn, by name
  const busy = () => { document.getElementById('content').ariaBusy = asking.size ? 'true' : 'false'; };
  const ask = async (name, part, given, use = (made) => made) => {
    asking.get(name)?.abort();
    const mine = new AbortController();
    asking.set(name, mine);
    busy();
    try {
      const answer = await fetch(`/part/${part}`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(given), signal: mine.signal,
      });
      if (answer.ok) {
        const made = await answer.json();
        if (asking.get(name) === mine) return await use(made);
      }
    } catch (error) {
      if (error.name !== 'AbortError') throw error;
    } finally {
      if (asking.get(name) === mine) { asking.delete(name); busy(); }
    }
    return null;  // refused, or a later question took its place
  };
  // Links within the page keep the open problem and the table's arrangement, but one to everything.
  const addressed = (link) => {
    const query = new URLSearchParams(link.href_), now = new URLSearchParams(page.search);
    if (link.classList.contains('clear')) return link.href_;
    for (const name of link.classList.contains('close') ? ['table'] : ['problem', 'table']) {
      if (!query.has(name) && now.has(name)) query.set(name, now.get(name));
    }
    return `?${query}`;
  };
  const readdress = () => document.querySelectorAll('#page a').forEach((link) => {
    if (link.href_) { const to = addressed(link); if (link.getAttribute('href') !== to) link.setAttribute('href', to); }
  });
  const surround = (made) => {
    for (const id of ['verdict', 'tabs', 'chips', 'intro', 'answer', 'runs']) fill(document.getElementById(id), made[id]);
    children(document.getElementById('facets'), made.filters.length, group).forEach((x, i) => showGroup(x, made.filters[i]));
    put(document.getElementById('content'), 'className', made.content);
    views();
    beside(made.content.split(' ').includes('beside'));
  };
  // Charts. What is drawn of each view is kept, and is there again at once as long as nothing has changed.
  const CONFIG = { displaylogo: false, responsive: false, toImageButtonOptions: { format: 'svg' } };
  let plotted, plotly = new Promise((done) => { plotted = done; });
  const drawn = new Map();  // by view: what it was drawn from, its plot (null: it has none) and the height of its box
  const fitted = (plot) => {
    if (plot.offsetParent && plot._fullLayout && Math.abs(plot.clientWidth - plot._fullLayout.width) >= 1) Plotly.Plots.resize(plot);
  };
  const attach = (view) => {
    const box = document.getElementById('chart');
    put(box.style, 'display', view.plot ? '' : 'none');
    if (view.plot) put(box.style, 'height', view.height);
    if (!view.plot) box.replaceChildren();
    else if (box.firstChild !== view.plot) box.replaceChildren(view.plot);
    if (view.plot) fitted(view.plot);
  };
  const plot = async (node, figure) => {
    await plotly;
    await Plotly.react(node, figure.data, figure.layout, CONFIG);
  };
  const chosenIn = (data, boxed) => ask('click', 'click', { search: page.search, data, boxed }, (made) => {
    if (made.search) move(made.search);
  });
  const listen = (node) => {
    node.heard = true;
    node.on('plotly_click', (event) => chosenIn({ points: event.points.map((x) => ({ customdata: x.customdata })) }, false));
    node.on('plotly_selected', (event) => event?.range && chosenIn({ range: event.range }, true));
  };
  const draw = async (view, { figure, style }) => {
    await plotly;
    if (!figure) view.plot = null;
    else Object.assign(view, { plot: view.plot || make('div'), height: style.height });
    attach(view);
    if (!figure) return;
    await plot(view.plot, figure);
    if (!view.plot.heard) listen(view.plot);
  };
  // When everything on the screen is there and nothing else is to be done.
  const idle = async () => {
    while ([...asking.keys()].some((name) => name !== 'chart')) await new Promise((done) => setTimeout(done, 20));
    await new Promise((done) => requestIdleCallback(done, { timeout: 1000 }));
  };
  // WebGL is set up when nothing else is to be done, before the first views with points ask for it.
  let warmed = false;
  const warm = async () => {
    if (warmed || !page.webgl) return;
    warmed = true;
    for (const name of ['roofline', 'weights']) {
      await idle();
      if (drawn.has(name)) continue;
      const node = make('div');
      drawn.set(name, { plot: node });
      await plot(node, { data: [{ type: 'scattergl', mode: 'markers', x: [null], y: [null] }], layout: { dragmode: 'select' } });
    }
  };
  const chart = (name, key) => {
    const view = drawn.get(name) || {}, here = () => describe(document.getElementById('chart'));
    drawn.set(name, view);
    if (view.key === key) {
      asking.get('chart')?.abort();
      asking.delete('chart');
      attach(view);
      here();
      busy();
      return;
    }
    view.key = undefined;
    const given = { search: `?${without(page.search, 'problem', 'table')}`, theme: page.theme, webgl: page.webgl };
    ask('chart', 'chart', given, async (made) => {
      await draw(view, made);
      here();
      if (page.charts === key) view.key = key;
    }).then(warm);
  };
  // The card of one problem.
  const card = (given) => ask('card', 'card', given, async (made) => {
    fill(document.getElementById('detail'), made.card);
    document.getElementById('problem')?.focus();
    if (!made.figure) return;
    const box = document.getElementById('solutions');
    if (!box.firstChild) box.append(make('div'));
    await plot(box.firstChild, made.figure);
  });
  const close = () => {
    asking.get('card')?.abort();
    asking.delete('card');
    document.getElementById('detail').replaceChildren();
    busy();
  };
  // The table's rows, by blocks; those of before stay until others are there. The grid waits for an answer to each of
  // its few questions before it asks another one: also those that were refused, or that a later one replaced, get one.
  let table;
  const compares = () => new URLSearchParams(page.search).get('view') === 'compare';  // of the views it alone orders rows
  const choice = () => `?${without(page.search, ...(compares() ? [] : ['view']), 'problem', 'table')}`;
  const rows = {
    getRows: async (params) => {
      const given = { search: choice(), start: params.startRow, end: params.endRow, sort: params.sortModel, filter: params.filterModel };
      const made = await ask(`rows ${params.startRow}`, 'rows', given).catch(() => null);
      if (!made) { params.failCallback(); return; }
      params.successCallback(made.rows, made.count);
      if (given.search !== choice()) return;
      document.getElementById('table-note').textContent = made.note;
      table.getRowNode(new URLSearchParams(page.search).get('problem'))?.setSelected(true, true);
    },
  };
  // Asks for what differs from what is shown.
  const show = () => {
    if (!page.theme) return;  // the browser has not reported it yet
    const query = new URLSearchParams(page.search), name = query.get('view') || 'overview', problem = query.get('problem');
    const around = `?${without(page.search, 'problem', 'table')}`, rest = `${page.theme} ${page.version}`;
    const charts = `${without(page.search, 'problem', 'table')} ${rest}`;
    const base = `${query.get('run')} ${query.get('compare')} ${rest}`;
    const opened = problem ? `${problem} ${base}` : '';
    if (page.charts !== charts) { page.charts = charts; chart(name, charts); }
    if (page.around !== `${around} ${page.version}`) {
      page.around = `${around} ${page.version}`;
      ask('surroundings', 'surroundings', { search: around }, surround);
    }
    if (page.opened !== opened) {
      page.opened = opened;
      if (opened) card({ search: page.search, theme: page.theme }); else close();
    }
    const chosen = `${choice()} ${page.version}`;
    if (page.rows !== chosen) {
      page.rows = chosen;
      table?.refreshInfiniteCache();
      if (table?.getDisplayedRowCount()) table.ensureIndexVisible(0, 'top');
    }
    readdress();
  };
  const move = (search) => {
    page.search = search;
    show();
    dash_clientside.set_props('url', { search });
  };
  const changed = (name, value) => {
    const query = new URLSearchParams(page.search);
    if ((query.get(name) || '') === value) return;
    if (value) query.set(name, value); else query.delete(name);
    move(`?${query}`);
  };
  // Which columns the table shows: sets of them and one box each. The choice stays in this browser.
  const COLUMNS = 'logparse-columns';
  const showColumns = (grid, names) => grid.getColumns().forEach((x) => {
    if (x.getColId() !== 'label') grid.setColumnsVisible([x.getColId()], names.includes(x.getColId()));
  });
  // The columns of a preset for which there is room, and what room they leave goes to the problem, then to one other
  // text; what a reader chose one by one is shown whole, and scrolls.
  const LONG = ['finding', 'best', 'action', 'file'], LABEL = 64;
  const fitting = (grid, names, presets, spared) => {
    if (!Object.values(presets).some((x) => `${x}` === `${names}`)) return names;
    const width = (name) => grid.getColumn(name).getColDef().width, least = (some) => some.reduce((sum, x) => sum + width(x), width('label'));
    const room = document.querySelector('#table .ag-body').clientWidth - 2;
    const left = spared.reduce((some, name) => (least(some) <= room ? some : some.filter((x) => x !== name)), names);
    const more = Math.max(0, room - least(left)), long = LONG.find((x) => left.includes(x)), label = long ? Math.min(more, LABEL) : more;
    const widths = [['label', label], ...(long ? [[long, more - label]] : [])];
    grid.setColumnWidths(widths.map(([key, extra]) => ({ key, newWidth: width(key) + extra })));
    return left;
  };
  let comparing = false, refit = () => {};  // the comparison has a set of its own, which is kept for this look alone
  const beside = (now) => { if (now !== comparing) { comparing = now; refit(); } };
  const chooser = (grid) => {
    const box = document.getElementById('chooser'), presets = JSON.parse(box.dataset.presets), spared = JSON.parse(box.dataset.spared);
    const columns = grid.getColumns().filter((x) => x.getColId() !== 'label');
    const boxes = columns.map((x) => Object.assign(document.createElement('input'), { type: 'checkbox', value: x.getColId() }));
    let wanted = Object.values(presets)[0], compared = presets[JSON.parse(box.dataset.beside)];
    try { const kept = JSON.parse(localStorage.getItem(COLUMNS)); if (Array.isArray(kept)) wanted = kept; } catch (unreadable) {}
    refit = () => {
      const shown = fitting(grid, comparing ? compared : wanted, presets, spared);
      showColumns(grid, shown);
      boxes.forEach((x) => { x.checked = shown.includes(x.value); });
    };
    const keep = (names) => {
      if (comparing) compared = names; else wanted = names;
      refit();
      try { localStorage.setItem(COLUMNS, JSON.stringify(wanted)); } catch (refused) {}
    };
    const set = (title, names) => {
      const button = make('button', '', title);
      button.addEventListener('click', () => keep(names));
      return button;
    };
    boxes.forEach((x) => x.addEventListener('change', () => keep(boxes.filter((y) => y.checked).map((y) => y.value))));
    box.replaceChildren(
      make('div', 'sets', ...Object.entries(presets).map(([title, names]) => set(title, names)), set('All', boxes.map((x) => x.value))),
      ...columns.map((x, i) => make('label', '', boxes[i], x.getColDef().headerName)),
    );
    refit();
    addEventListener('resize', refit);
  };
  const arrangement = (grid) => {
    const sort = grid.getColumnState().filter((x) => x.sort).sort((a, b) => a.sortIndex - b.sortIndex).map((x) => [x.colId, x.sort]);
    const filter = grid.getFilterModel();
    return sort.length || Object.keys(filter).length ? JSON.stringify({ sort, filter }) : '';
  };
  // What a URL, which anybody may have written, asks of the table's columns: the rest is dropped.
  const understood = (grid, text) => {
    let given = null;
    try { given = JSON.parse(text); } catch (unreadable) {}
    const pairs = Array.isArray(given?.sort) ? given.sort : [], models = Object.entries(given?.filter ?? {});
    const sort = pairs.filter((x) => Array.isArray(x) && grid.getColumn(String(x[0])) && ['asc', 'desc'].includes(x[1]));
    const rule = (kind, x) => x !== null && typeof x === 'object' && typeof x.type === 'string'
      && [x.filter, x.filterTo].every((value) => value === undefined || value === null || typeof value === kind);
    const filter = models.filter(([name, x]) => {
      const kind = grid.getColumn(name)?.getColDef().filter === 'agNumberColumnFilter' ? 'number' : 'string';
      return grid.getColumn(name) && x !== null && typeof x === 'object'
        && (Array.isArray(x.conditions) ? x.conditions.every((one) => rule(kind, one)) : rule(kind, x));
    });
    return {
      sort: sort.map(([colId, way], sortIndex) => ({ colId, sort: way, sortIndex })),
      filter: filter.length ? Object.fromEntries(filter) : null,
    };
  };
  let asked = '';
  const arranged = (grid) => {
    const now = arrangement(grid), search = new URLSearchParams(location.search);
    if (now === asked) return;
    asked = now;
    if (now) search.set('table', now); else search.delete('table');
    move(`?${search}`);
  };
  // A time of so many µs each in the unit that fits it, as logparse.text.duration writes it.
  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, { duration: (value, each) => {
    if (value === null || value === undefined) return '';
    const us = value * each, size = Math.abs(us);
    const [unit, scale] = size < 999.5 ? ['µs', 1] : size < 999.5e3 ? ['ms', 1e3] : size < 6e8 ? ['s', 1e6] : ['min', 6e7];
    return `${+(us / scale).toPrecision(3)} ${unit}`;
  },
  // What an analyzer estimates stands beside what was measured, and is marked so.
  estimated: (params, text) => (params.data && params.data.saving_from === 'estimated' && text ? `≈ ${text}` : text) });
  window.dash_clientside = Object.assign(window.dash_clientside || {}, { explore: {
    // Shows the URL's state in all parts of the page, the boxes and the table.
    follow: (search, version, theme, webgl, text) => {
      const url = new URLSearchParams(search || '');
      Object.assign(page, { search: search || '', version, theme, webgl });
      observe();
      show();
      dash_clientside.explore.arrange(url.get('table') || '');
      try {
        const grid = dash_ag_grid.getApi('table'), row = grid.getRowNode(url.get('problem'));
        if (row) row.setSelected(true, true); else if (grid.getSelectedNodes().length) grid.deselectAll();
      } catch (notThereYet) {}
      const wanted = url.get('search') || '';
      if (wanted !== (text || '')) dash_clientside.set_props('search', { value: wanted });
      return '';
    },
    // How far the reading is; a server that has ended answers nothing.
    watch: async (_, version, search) => {
      const same = dash_clientside.no_update, body = JSON.stringify({ search });
      const answer = await fetch('/part/watch', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body }).catch(() => null);
      const made = answer?.ok ? await answer.json() : null;
      return made ? [made.version === version ? same : made.version, made.finished, made.doing] : [same, same, same];
    },
    search: (text) => { changed('search', (text || '').trim()); return ''; },
    // The table sorted and filtered as in the URL; what the user changes goes there.
    arrange: async (wanted) => {
      const grid = await dash_ag_grid.getApiAsync('table');
      if (!table) {
        table = grid;
        // Dash sets a source of its own when the grid is ready, before or after this. It answers no question, so it is
        // replaced before a sort or a filter asks again.
        const take = () => { if (![undefined, null, rows].includes(grid.getGridOption('datasource'))) grid.setGridOption('datasource', rows); };
        grid.addEventListener('modelUpdated', take);
        take();
        for (const name of ['sortChanged', 'filterChanged']) grid.addEventListener(name, () => arranged(grid));
        grid.addEventListener('selectionChanged', () => { const [row] = grid.getSelectedNodes(); if (row?.data) changed('problem', row.data.id); });
        chooser(grid);
      }
      if (asked !== wanted) {  // else the URL has it from the table, which may differ again by now
        asked = wanted;
        const given = understood(grid, wanted);
        grid.applyColumnState({ state: given.sort, defaultState: { sort: null } });
        grid.setFilterModel(given.filter);
      }
    },
  } });
  // WebGL draws as many pixels as the screen has: plotly's default, four times as many, costs a machine without a GPU
  // up to 0.1 s per click.
  document.addEventListener('load', (event) => {
    if (!event.target.src?.includes('/plotly')) return;
    Plotly.setPlotConfig({ plotGlPixelRatio: Math.min(2, devicePixelRatio) });
    plotted();
  }, true);
  let observed = false, resizing;
  const observe = () => {
    if (observed) return;
    observed = true;
    // Dash moves the caret to where it was one key before: what is typed quickly would change places.
    document.getElementById('search').setSelectionRange = () => {};
    new ResizeObserver(() => {
      clearTimeout(resizing);
      resizing = setTimeout(() => document.querySelectorAll('#content .js-plotly-plot').forEach(fitted), 100);
    }).observe(document.getElementById('page'));
  };
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a.entry, a[data-within]');
    if (link && !(event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)) {
      event.preventDefault();
      move(link.search);
      if (link.closest('#tabs')) scrollTo(0, 0);
    }
    const button = event.target.closest('button[data-copies]');
    if (button) copy(button);
    if (event.target.id === 'export') location.href = `${event.target.dataset.url}${location.search}`;
  });
  // "/" searches, Esc closes the card, the arrow keys open the next problem of the table in it.
  const step = (by) => {
    const grid = dash_ag_grid.getApi('table'), row = grid.getSelectedNodes()[0];
    const next = row && grid.getDisplayedRowAtIndex(row.rowIndex + by);
    if (!next?.data) return;
    grid.ensureIndexVisible(next.rowIndex);
    next.setSelected(true, true);
  };
  const shortcut = (event) => {
    const card = document.getElementById('problem'), typing = event.target.matches('input, textarea, select');
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape' && card) card.querySelector('.close').click();
    else if (event.key === 'Escape' && event.target.id === 'search') event.target.blur();
    else if (typing) return;
    else if (event.target.matches('#tabs a') && ['ArrowLeft', 'ArrowRight'].includes(event.key)) {
      event.target[event.key === 'ArrowLeft' ? 'previousElementSibling' : 'nextElementSibling']?.focus();
    }
    else if (event.key === '/') document.getElementById('search').focus();
    else if (card?.contains(event.target) && ['ArrowDown', 'ArrowUp'].includes(event.key)) step(event.key === 'ArrowDown' ? 1 : -1);
    else return;
    event.preventDefault();
  };
  document.addEventListener('keydown', (event) => {
    shortcut(event);
    if (event.key !== 'Enter') return;
    if (event.target.matches('#charts .chart')) document.querySelector('#table .ag-row [role=gridcell]')?.focus();
    const row = event.target.closest('#table .ag-row');
    if (row) dash_ag_grid.getApi('table').getRowNode(row.getAttribute('row-id'))?.setSelected(true, true);
  });
})();

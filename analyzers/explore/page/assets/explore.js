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
  // A text that a spreadsheet would run as a formula gets a quote.
  const safe = (value) => typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  const write = (id) => dash_ag_grid.getApi(id).exportDataAsCsv({
    fileName: 'logparse-query.csv',
    processCellCallback: (cell) => safe(cell.value),
    processHeaderCallback: (head) => safe(head.column.getColDef().headerName),
  });
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
    if (link.getAttribute('href') !== given.href) link.setAttribute('href', given.href);
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
  // WebGL is set up when nothing else is to be done, before the first view with points asks for it.
  const warm = () => {
    const chart = document.querySelector('#chart-3 .js-plotly-plot');
    if (!chart || chart.data?.length) return;
    dash_clientside.set_props('chart-3', { figure: {
      data: [{ type: 'scattergl', mode: 'markers', x: [null], y: [null] }], layout: { dragmode: 'select' },
    } });
  };
  // Of the views one is reached by Tab; the arrow keys lead to the others.
  const views = () => document.querySelectorAll('#tabs a').forEach((link) => {
    const here = link.classList.contains('here');
    link.tabIndex = here ? 0 : -1;
    if (here) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  });
  // Which columns the table shows: sets of them and one box each. The choice stays in this browser.
  const COLUMNS = 'logparse-columns';
  const show = (grid, names) => grid.getColumns().forEach((x) => {
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
  const chooser = (grid) => {
    const box = document.getElementById('chooser'), presets = JSON.parse(box.dataset.presets), spared = JSON.parse(box.dataset.spared);
    const columns = grid.getColumns().filter((x) => x.getColId() !== 'label');
    const boxes = columns.map((x) => Object.assign(document.createElement('input'), { type: 'checkbox', value: x.getColId() }));
    let wanted = Object.values(presets)[0], beside = presets[JSON.parse(box.dataset.beside)];
    try { const kept = JSON.parse(localStorage.getItem(COLUMNS)); if (Array.isArray(kept)) wanted = kept; } catch (unreadable) {}
    refit = () => {
      const shown = fitting(grid, comparing ? beside : wanted, presets, spared);
      show(grid, shown);
      boxes.forEach((x) => { x.checked = shown.includes(x.value); });
    };
    const keep = (names) => {
      if (comparing) beside = names; else wanted = names;
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
  let asked = '', watched = false, chosen;
  const arranged = (grid) => {
    const now = arrangement(grid), search = new URLSearchParams(location.search);
    if (now === asked) return;
    asked = now;
    if (now) search.set('table', now); else search.delete('table');
    dash_clientside.set_props('url', { search: `?${search}` });
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
    filters: (given) => {
      const groups = given || [];
      children(document.getElementById('facets'), groups.length, group).forEach((x, i) => showGroup(x, groups[i]));
      requestAnimationFrame(views);
      return groups.length;
    },
    // Shows the URL's state in the boxes and the table. Returns the URL if a problem is open.
    follow: (search, version, opened, text, query) => {
      const url = new URLSearchParams(search || ''), choice = new URLSearchParams(url), before = chosen;
      ['view', 'problem', 'table', 'sql'].forEach((name) => choice.delete(name));  // they choose no rows
      chosen = `${choice} ${version}`;
      dash_clientside.explore.arrange(url.get('table') || '');
      try {
        const grid = dash_ag_grid.getApi('table'), row = grid.getRowNode(url.get('problem'));
        if (row) row.setSelected(true, true); else if (grid.getSelectedNodes().length) grid.deselectAll();
        if (before !== undefined && before !== chosen) grid.purgeInfiniteCache();
      } catch (notThereYet) {}
      const wanted = url.get('search') || '', sql = url.get('sql');
      if (wanted !== (text || '')) dash_clientside.set_props('search', { value: wanted });
      if (sql !== null && sql !== query) dash_clientside.set_props('sql-text', { value: sql });
      const open = url.get('problem') && url.get('view') !== 'sql' ? search : '';
      return open === opened ? dash_clientside.no_update : open;
    },
    // The table's columns of the view that is shown.
    columns: (shown) => {
      const now = (shown || '').split(' ').includes('beside');
      if (now !== comparing) { comparing = now; refit(); }
      return now;
    },
    // When everything on the screen is drawn and nothing else is to be done: where there is more below, what is shown.
    idle: async (shown, webgl) => {
      await new Promise((done) => requestIdleCallback(done, { timeout: 1000 }));
      document.querySelectorAll('#charts .chart').forEach(describe);
      if (webgl) warm();
      return shown?.[3] ? shown : dash_clientside.no_update;
    },
    late: (given, shown) => {
      const [made, place, figure, style] = given || [];
      if (given && JSON.stringify(made) === JSON.stringify(shown)) dash_clientside.set_props(`chart-${place}`, { figure, style });
      return '';
    },
    // The table sorted and filtered as in the URL; what the user changes goes there.
    arrange: async (wanted) => {
      const grid = await dash_ag_grid.getApiAsync('table');
      asked = wanted;
      if (!watched) {
        watched = true;
        for (const name of ['sortChanged', 'filterChanged']) grid.addEventListener(name, () => arranged(grid));
        chooser(grid);
      }
      if (arrangement(grid) === wanted) return;
      const given = understood(grid, wanted);
      grid.applyColumnState({ state: given.sort, defaultState: { sort: null } });
      grid.setFilterModel(given.filter);
    },
  } });
  // WebGL draws as many pixels as the screen has: plotly's default, four times as many, costs a machine without a GPU
  // up to 0.1 s per click.
  document.addEventListener('load', (event) => {
    if (event.target.src?.includes('/plotly')) Plotly.setPlotConfig({ plotGlPixelRatio: Math.min(2, devicePixelRatio) });
  }, true);
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a.entry');
    if (link && !(event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)) {
      event.preventDefault();
      dash_clientside.set_props('url', { search: link.search });
    }
    const button = event.target.closest('button[data-copies], button[data-exports]');
    if (button?.dataset.copies) copy(button);
    if (button?.dataset.exports) write(button.dataset.exports);
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
    if (event.target.id === 'sql-text' && (event.ctrlKey || event.metaKey)) document.getElementById('sql-run').click();
    if (event.target.matches('#charts .chart')) document.querySelector('#table .ag-row [role=gridcell]')?.focus();
    const row = event.target.closest('#table .ag-row');
    if (row) dash_ag_grid.getApi('table').getRowNode(row.getAttribute('row-id'))?.setSelected(true, true);
  });
})();

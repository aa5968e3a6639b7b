"use strict";
(() => {
  const root = document.documentElement;
  const SVG = "http://www.w3.org/2000/svg";

  // Light and dark: the system decides until the reader does; the choice is kept where storage is allowed.
  const stored = () => { try { return localStorage.getItem("torchlift-theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("torchlift-theme", theme); } catch { /* private window */ } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const first = stored();
  if (first === "light" || first === "dark") root.dataset.theme = first;

  function themeButton(button) {
    const show = () => {
      button.setAttribute("aria-pressed", String(isDark()));
      button.lastElementChild.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colors`);
    };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      store(root.dataset.theme);
      show();
    });
    system.addEventListener("change", show);
    button.hidden = false;
    show();
  }

  // Tables: a click on a column's name sorts by it, another the other way round; what is missing stays last.
  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const keys = new Map([...body.rows].map((row) => [row, row.cells[column].dataset.key]));
      const given = [...keys.values()].filter((key) => key !== "");
      const numeric = given.every((key) => !Number.isNaN(Number(key)));
      const now = head.getAttribute("aria-sort");
      const down = now ? now === "ascending" : numeric;
      const order = (a, b) => (numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true }));
      const rows = [...body.rows].sort((p, q) => {
        const [a, b] = [keys.get(p), keys.get(q)];
        if (a === "" || b === "") return (a === "") - (b === "");
        return down ? order(b, a) : order(a, b);
      });
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    }));
  }

  const number = (value, digits = 4) => {
    const size = Math.abs(value);
    if (size && (size < 1e-4 || size >= 1e7)) return value.toExponential(2).replace(/-/g, "−");
    const options = size >= 1000 ? { maximumFractionDigits: 1 } : { maximumSignificantDigits: digits };
    return value.toLocaleString("en", options).replace("-", "−");
  };
  const place = (axis, value) => {
    const turn = axis.log ? Math.log10 : (v) => v;
    return (turn(value) - turn(axis.low)) / (turn(axis.high) - turn(axis.low));
  };
  const drawable = (axis, value) => value !== null && value !== undefined && (!axis.log || value > 0);
  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const html = (tag, className, ...children) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.append(...children);
    return element;
  };

  // Charts: the values of all lines at the pointer's x, or of the point nearest to it.
  function hover(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const frame = figure.querySelector(".frame");
    const tip = figure.querySelector(".tip");
    const cursor = figure.querySelector(".cursor");
    const off = new Set();
    let at = null;

    figure.querySelectorAll(".legend button").forEach((button) => button.addEventListener("click", () => {
      const index = Number(button.dataset.series);
      if (!off.delete(index)) off.add(index);
      button.setAttribute("aria-pressed", String(!off.has(index)));
      figure.querySelectorAll(`.canvas [data-series="${index}"]`).forEach((g) => g.classList.toggle("off", off.has(index)));
      leave();
    }));

    const shown = () => data.series.map((series, index) => ({ series, index })).filter(({ index }) => !off.has(index));
    const points = ({ series }) => series.x.map((x, k) => ({ series, k, x, y: series.y[k] }))
      .filter((point) => drawable(data.x, point.x) && drawable(data.y, point.y));
    const nearest = (list, distance) => list.reduce((best, p) => (!best || distance(p) < distance(best) ? p : best), null);

    const all = () => {
      const seen = new Map();
      for (const point of shown().flatMap(points)) {
        seen.set(data.mode === "x" ? point.x : point, point);
      }
      return [...seen.values()].sort((p, q) => p.x - q.x);
    };

    function value(point) {
      const { series, k, y } = point;
      if (series.low && series.low[k] !== null) return `${number(y)}  [${number(series.low[k])}, ${number(series.high[k])}]`;
      return number(y);
    }
    const row = (label, text, color) => {
      const name = html("td", "", html("span", `key c${color}`), label);
      return html("tr", "", name, html("td", "", text));
    };
    const circle = (point) => make("circle", {
      class: `c${point.series.color}`, r: 4.5,
      cx: `${100 * place(data.x, point.x)}%`, cy: `${100 * (1 - place(data.y, point.y))}%`,
    });

    function linesAt(x) {
      const close = shown().map((one) => nearest(points(one), (p) => Math.abs(place(data.x, p.x) - place(data.x, x))))
        .filter((point) => point && Math.abs(place(data.x, point.x) - place(data.x, x)) < 0.03);
      const phase = data.phases.find(({ x0, x1 }) => x >= x0 && x <= x1);
      const head = [`${data.x.label || "x"} ${number(x)}`, ...(phase ? [phase.label] : [])].join(" · ");
      return { head, marks: close, rows: close.map((p) => row(p.series.name, value(p), p.series.color)) };
    }
    function pointAt(point) {
      const { series, k } = point;
      const wide = (v, errors) => (errors && errors[k] ? `${number(v)} ± ${number(errors[k], 2)}` : number(v));
      const head = [series.name, ...(series.labels ? [series.labels[k]] : [])].join(" · ");
      const rows = [[data.x.label || "x", wide(point.x, series.xe)], [data.y.label || "y", wide(point.y, series.ye)]];
      return { head, marks: [point], rows: rows.map(([label, text]) => row(label, text, series.color)) };
    }

    function show(point) {
      at = point;
      const { head, marks, rows } = data.mode === "x" ? linesAt(point.x) : pointAt(point);
      const x = place(data.x, point.x);
      const line = make("line", { x1: `${100 * x}%`, x2: `${100 * x}%`, y1: 0, y2: "100%" });
      cursor.replaceChildren(...(data.mode === "x" ? [line] : []), ...marks.map(circle));
      tip.replaceChildren(html("div", "at", head), html("table", "", html("tbody", "", ...rows)));
      tip.hidden = false;
      const room = frame.clientWidth - tip.offsetWidth;
      const wanted = x < 0.5 ? x * frame.clientWidth + 14 : x * frame.clientWidth - tip.offsetWidth - 14;
      tip.classList.toggle("low", data.mode === "point" && place(data.y, point.y) > 0.5);
      tip.style.left = `${Math.max(Math.min(0, room), Math.min(wanted, Math.max(0, room)))}px`;
    }
    function leave() {
      at = null;
      tip.hidden = true;
      cursor.replaceChildren();
    }
    function move(event) {
      const box = frame.getBoundingClientRect();
      const [x, y] = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
      const away = (p) => (data.mode === "x" ? Math.abs(place(data.x, p.x) - x)
        : Math.hypot((place(data.x, p.x) - x) * box.width, (place(data.y, p.y) - y) * box.height));
      const point = nearest(all(), away);
      if (point) show(point);
    }
    function step(event) {
      if (event.key === "Escape") leave();
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const list = all();
      const same = (p) => at && p.x === at.x && (data.mode === "x" || (p.series === at.series && p.k === at.k));
      const now = list.findIndex(same);
      const next = event.key === "ArrowRight" ? now + 1 : now < 0 ? list.length - 1 : now - 1;
      if (list.length) show(list[Math.max(0, Math.min(list.length - 1, next))]);
      event.preventDefault();
    }
    frame.addEventListener("pointermove", move);
    frame.addEventListener("pointerdown", move);
    frame.addEventListener("pointerleave", leave);
    frame.addEventListener("keydown", step);
    frame.addEventListener("blur", leave);
  }

  // Dots: pointing at one seed marks the same seed in the other rows.
  function pairs(figure) {
    const dots = [...figure.querySelectorAll("[data-dot]")];
    const mark = (name) => dots.forEach((dot) => dot.classList.toggle("same", dot.dataset.dot === name));
    dots.forEach((dot) => {
      dot.addEventListener("pointerenter", () => mark(dot.dataset.dot));
      dot.addEventListener("pointerleave", () => mark(null));
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton(document.querySelector(".theme"));
    document.querySelectorAll("table.data").forEach(sortable);
    document.querySelectorAll(".chart").forEach(hover);
    document.querySelectorAll(".dots").forEach(pairs);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
})();

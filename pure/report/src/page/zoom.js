"use strict";
// Makes the pictures of a page zoomable. Without it the page is whole: every picture is there, drawn.
(() => {
  const root = document.documentElement;
  const colour = name => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const element = (name, parent, set = {}) => Object.assign(parent.appendChild(document.createElement(name)), set);
  const figures = JSON.parse(document.getElementById("data").textContent);
  const dashes = [[], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4]];
  const LANE = 22;
  const groups = new Map();
  const charts = [];

  // As the still pictures write values.
  const prefixed = (value, unit) => {
    const bytes = unit === "B", base = bytes ? 1024 : 1000, plain = unit.startsWith(" ");
    const larger = plain || unit === "s" ? [] : bytes ? ["Ki", "Mi", "Gi", "Ti"] : ["k", "M", "G", "T"];
    const smaller = unit === "s" ? ["m", "\u00b5", "n"] : [];
    let divisor = 1, prefix = "";
    for (const p of larger) { if (Math.abs(value / divisor) < base) break; divisor *= base; prefix = p; }
    for (const p of smaller) { if (value === 0 || Math.abs(value / divisor) >= 0.9995) break; divisor /= base; prefix = p; }
    return { divisor, prefix, plain };
  };
  const moment = value => new Date(value * 1000).toISOString().replace("T", " ");
  const quantity = (value, unit) => {
    if (unit === "date") return moment(value).slice(0, 19);
    const { divisor, prefix, plain } = prefixed(value, unit);
    value /= divisor;
    const size = Math.abs(value);
    const digits = String(+value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 4));
    if (unit === "" || value === 0) return (digits + " " + prefix).trim();
    return plain ? digits + unit : digits + " " + prefix + unit;
  };
  // The marks of an axis in words, and its title with the unit that all of them share, as in the still pictures.
  const named = (of, splits) => {
    const known = splits.filter(v => v != null), step = known[1] - known[0], each = text => splits.map(v => (v == null ? "" : text(v)));
    if (of.unit === "date") {
      if (step < 60) return [of.label + ", " + moment(known[0]).slice(0, 10), each(v => moment(v).slice(11, 19))];
      return [of.label, each(v => (step < 86400 ? moment(v).slice(5, 16) : moment(v).slice(0, 10)))];
    }
    if (of.unit === "" || of.scale === "log") return [of.label, each(v => quantity(v, of.unit))];
    const { divisor, prefix } = prefixed(Math.max(0, ...known.map(Math.abs)), of.unit);
    return [of.label + " (" + prefix + of.unit.trim() + ")", each(v => String(+(v / divisor).toPrecision(10)))];
  };

  // Round values on an axis that goes by decades, as in the still pictures.
  const decades = (low, high, unit) => {
    const base = unit === "B" ? 2 : 10, of = v => Math.log(v) / Math.log(base);
    const first = Math.floor(of(low)), last = Math.ceil(of(high)), powers = last - first;
    const by = unit === "B" ? Math.max(1, Math.ceil(powers / 6)) : 1;
    const parts = unit !== "B" && powers <= 2 ? [1, 2, 5] : [1];
    const all = [];
    for (let power = Math.floor(first / by) * by; power <= last; power += by) parts.forEach(part => all.push(part * base ** power));
    return all.filter(v => low <= v && v <= high);
  };

  // Marks, by the number of the series, as in the still pictures.
  const mark = (path, n, x, y, r) => {
    const shapes = [
      () => { path.moveTo(x + r, y); path.arc(x, y, r, 0, 7); },
      () => { path.moveTo(x - r, y - r); path.lineTo(x + r, y + r); path.moveTo(x + r, y - r); path.lineTo(x - r, y + r); },
      () => path.rect(x - r, y - r, 2 * r, 2 * r),
      () => { path.moveTo(x, y - r); path.lineTo(x + r, y + r); path.lineTo(x - r, y + r); path.closePath(); },
      () => { path.moveTo(x - r, y); path.lineTo(x + r, y); path.moveTo(x, y - r); path.lineTo(x, y + r); },
      () => { path.moveTo(x, y - r); path.lineTo(x + r, y); path.lineTo(x, y + r); path.lineTo(x - r, y); path.closePath(); },
    ];
    shapes[n % 6]();
  };
  const marks = n => (u, series, from, to) => {
    const path = new Path2D(), xs = u.data[0], ys = u.data[series], scale = u.series[series].scale;
    for (let i = from; i <= to; i++)
      if (ys[i] != null) mark(path, n, u.valToPos(xs[i], "x", true), u.valToPos(ys[i], scale, true), 2.5 * uPlot.pxRatio);
    return n % 6 === 0 ? { fill: path, stroke: path } : { stroke: path };
  };

  // The value of a series at an index of the common axis: of steps the one that holds, of others the nearest.
  const nearest = (ys, index, holds) => {
    for (let d = 0; d < ys.length; d++) {
      if (ys[index - d] != null) return index - d;
      if (!holds && ys[index + d] != null) return index + d;
      if (ys[index - d] === null && holds) return null;
    }
    return null;
  };

  const zoom = (u, at, factor) => {
    const { min, max } = u.scales.x, [low, high] = u.whole;
    const log = u.scales.x.distr === 3, to = log ? Math.log : v => v, from = log ? Math.exp : v => v;
    const width = Math.min((to(max) - to(min)) * factor, to(high) - to(low));
    const share = (to(at) - to(min)) / (to(max) - to(min));
    let begin = to(at) - share * width;
    begin = Math.min(Math.max(begin, to(low)), to(high) - width);
    if (width > 0) u.setScale("x", { min: from(begin), max: from(begin + width) });
  };
  const pan = (u, share) => {
    const { min, max } = u.scales.x, [low, high] = u.whole;
    const by = Math.min(Math.max((max - min) * share, low - min), high - max);
    u.setScale("x", { min: min + by, max: max + by });
  };

  const make = (figure, data, place, said) => {
    const joined = uPlot.join(data.series.map(s => [s.x, s.y]));
    if (!joined || joined[0].length < 2) return null;
    const edges = data.lanes.flatMap(lane => lane.spans.flat());
    const whole = [joined[0], edges].reduce(
      ([low, high], list) => list.reduce(([l, h], v) => [Math.min(l, v), Math.max(h, v)], [low, high]), [Infinity, -Infinity]);
    if (data.x.scale === "zero") whole[0] = Math.min(0, whole[0]);
    const first = joined[0][0], last = joined[0][joined[0].length - 1];
    const positive = data.y.map(axis => axis.scale === "log");
    data.series.forEach((s, n) => {
      if (positive[s.axis]) joined[n + 1] = joined[n + 1].map(v => (v != null && v <= 0 ? null : v));
    });

    const tip = element("div", place, { className: "tip", hidden: true });
    const values = (u, index) => {
      const x = u.data[0][index], lines = [data.x.label + " " + quantity(x, data.x.unit)];
      data.series.forEach((s, n) => {
        const at = nearest(u.data[n + 1], index, s.stroke === "steps" || s.stroke === "reference");
        if (u.series[n + 1].show && at != null) lines.push(s.name + " " + quantity(u.data[n + 1][at], data.y[s.axis].unit));
      });
      data.lanes.forEach(lane => {
        if (lane.spans.some(([from, to]) => from <= x && x < to)) lines.push(lane.name);
      });
      return lines;
    };
    const hover = u => {
      const { left, top, idx } = u.cursor;
      tip.hidden = idx == null || left < 0;
      if (tip.hidden) return;
      tip.replaceChildren();
      values(u, idx).forEach(line => element("div", tip, { textContent: line }));
      const x = u.over.offsetLeft + left, y = u.over.offsetTop + Math.max(top, 0);
      const flipped = left > u.over.offsetWidth / 2;
      tip.style.left = flipped ? "auto" : x + 14 + "px";
      tip.style.right = flipped ? place.offsetWidth - x + 14 + "px" : "auto";
      tip.style.top = Math.min(y, Math.max(0, place.offsetHeight - tip.offsetHeight)) + "px";
    };
    const lanes = u => {
      const { ctx } = u, ratio = uPlot.pxRatio, { left, width, top } = u.bbox;
      const height = LANE * ratio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, 0, width, top);
      ctx.clip();
      ctx.font = 11.5 * ratio + "px system-ui, sans-serif";
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      data.lanes.forEach((lane, n) => {
        const y = top - (data.lanes.length - n) * height;
        ctx.fillStyle = colour("s" + lane.colour);
        const places = lane.spans.map(span => span.map(at => u.valToPos(at, "x", true)));
        const shown = places.filter(([a, b]) => b >= left && a <= left + width);
        shown.forEach(([a, b]) => ctx.fillRect(a, y + height - 7 * ratio, Math.max(b - a, ratio), 5 * ratio));
        if (!shown.length) return;
        ctx.fillStyle = colour("ink");
        const first = Math.max(left, shown[0][0]);
        ctx.fillText(lane.name, Math.min(first, left + width - ctx.measureText(lane.name).width), y + height - 14 * ratio);
      });
      ctx.restore();
    };

    const size = () => ({ width: place.clientWidth, height: 300 + LANE * data.lanes.length });
    const axis = (of, scale, side) => ({
      scale, side,
      label: named(of, [0])[0], labelSize: 20, labelFont: "11.5px system-ui, sans-serif", font: "11.5px system-ui, sans-serif",
      size: side % 2 ? 62 : 30,
      stroke: () => colour("faint"),
      grid: { show: side !== 1, stroke: () => colour("grid"), width: 1 },
      ticks: { stroke: () => colour("grid"), width: 1 },
      ...(of.scale === "log" ? { splits: (u, n, low, high) => decades(low, high, of.unit), filter: (u, splits) => splits }
        : of.unit === "date" ? { space: 110, incrs: [1, 2, 5, 10, 30, 60, 120, 300, 900, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000] }
        : of.unit === "B" ? { incrs: Array.from({ length: 50 }, (_, n) => 2 ** n) } : {}),
      values: (u, splits, index) => {
        const [title, texts] = named(of, splits);
        u.axes[index].label = title;
        return texts;
      },
    });
    // Charts that are zoomed together show all of each.
    const group = figure.closest("[data-part]").dataset.part + " " + data.x.label;
    const together = groups.get(group) || { charts: [], whole };
    groups.set(group, together);
    together.whole.splice(0, 2, Math.min(together.whole[0], whole[0]), Math.max(together.whole[1], whole[1]));
    const scales = { x: { time: false, distr: data.x.scale === "log" ? 3 : 1, range: (u, min, max) => (min == null || (min <= first && max >= last) ? together.whole : [min, max]) } };
    data.y.forEach((of, n) => {
      scales["y" + n] = of.scale === "log" ? { distr: 3 } : of.scale === "zero"
        ? { range: (u, min, max) => (max == null ? [0, 1] : [Math.min(0, min), max > 0 ? max * 1.05 : 1]) } : {};
    });
    const u = new uPlot({
      ...size(), scales,
      padding: [10 + LANE * data.lanes.length, data.y.length > 1 ? 0 : 14, 0, 0],
      legend: { show: false },
      cursor: {
        focus: { prox: -1 }, points: { show: false }, drag: { x: true, y: false },
        sync: { key: group, setSeries: false, scales: ["x", null], filters: { pub: type => type === "mousemove" || type === "mouseleave" } },
      },
      axes: [axis(data.x, "x", 2), ...data.y.map((of, n) => axis(of, "y" + n, n ? 1 : 3))],
      series: [{}, ...data.series.map((s, n) => {
        const ink = () => colour("s" + (n % 8)), points = s.stroke === "points";
        return {
          label: s.name, scale: "y" + s.axis, stroke: ink, fill: s.stroke === "bars" ? ink : undefined,
          width: s.stroke === "reference" || s.stroke === "bars" ? 1.1 : 1.6,
          dash: s.stroke === "reference" ? dashes[1 + (n % 4)] : s.stroke === "bars" ? [] : dashes[n % 5],
          paths: points ? () => null : s.stroke === "steps" || s.stroke === "reference" ? uPlot.paths.stepped({ align: 1 })
            : s.stroke === "bars" ? uPlot.paths.bars({ size: [0.2, 2, 1] }) : undefined,
          points: points ? { show: true, paths: marks(n), stroke: ink, fill: ink, width: 1.3 } : { show: false },
        };
      })],
      hooks: {
        setCursor: [hover], draw: [lanes],
        setScale: [(u, key) => {
          if (key !== "x") return;
          const { min, max } = u.scales.x;
          together.charts.forEach(other => {
            if (other !== u && (other.scales.x.min !== min || other.scales.x.max !== max)) other.setScale("x", { min, max });
          });
        }],
      },
    }, joined, place);
    u.whole = together.whole;
    together.charts.push(u);
    charts.push(u);

    place.addEventListener("wheel", event => {
      // A page scrolls by its wheel until the reader has turned to a picture.
      if (!event.ctrlKey && document.activeElement !== place) return;
      event.preventDefault();
      zoom(u, u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x"), event.deltaY < 0 ? 0.8 : 1.25);
    }, { passive: false });
    place.addEventListener("pointerdown", () => place.focus({ preventScroll: true }));
    place.addEventListener("keydown", event => {
      const { min, max } = u.scales.x, at = u.cursor.idx != null ? u.data[0][u.cursor.idx] : (min + max) / 2;
      const go = by => {
        const xs = u.data[0], first = xs.findIndex(x => x >= min), last = xs.findLastIndex(x => x <= max);
        const index = Math.min(Math.max((u.cursor.idx ?? first - by) + by, first), last);
        u.setCursor({ left: u.valToPos(xs[index], "x"), top: u.over.offsetHeight / 3 });
        said.textContent = values(u, index).join(", ");
      };
      const keys = {
        "+": () => zoom(u, at, 0.5), "=": () => zoom(u, at, 0.5), "-": () => zoom(u, at, 2),
        "0": () => u.setScale("x", { min: u.whole[0], max: u.whole[1] }),
        ArrowLeft: () => (event.shiftKey ? pan(u, -0.2) : go(-1)), ArrowRight: () => (event.shiftKey ? pan(u, 0.2) : go(1)),
        Escape: () => u.setCursor({ left: -10, top: -10 }),
      };
      if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    new ResizeObserver(() => place.clientWidth && place.clientWidth !== u.width && u.setSize(size())).observe(place);
    return u;
  };

  // Names of the series, which can be taken out.
  const legend = (figure, data, u) => {
    const list = element("ul", figure, { className: "legend" });
    data.series.forEach((s, n) => {
      const button = element("button", element("li", list), { type: "button" });
      button.setAttribute("aria-pressed", "true");
      const sample = button.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
      const path = sample.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
      const shapes = ["M12 6h0", "M9 3l6 6m0-6l-6 6", "M9 3h6v6h-6z", "M12 3l3 6h-6z", "M9 6h6m-3-3v6", "M12 3l3 3-3 3-3-3z"];
      const points = s.stroke === "points", dash = s.stroke === "reference" ? 1 + (n % 4) : n % 5;
      path.setAttribute("d", points ? shapes[n % 6] : s.stroke === "bars" ? "M12 0v12" : "M0 6h24");
      path.setAttribute("class", "s" + (n % 8) + (points ? " mark m" + (n % 6) : s.stroke === "bars" ? " thin" : " d" + dash));
      sample.setAttribute("aria-hidden", "true");
      element("span", button, { textContent: s.name });
      button.addEventListener("click", () => {
        const show = !u.series[n + 1].show;
        u.setSeries(n + 1, { show });
        button.setAttribute("aria-pressed", String(show));
      });
    });
    return list;
  };

  const cell = text => (/^[=+\-@]/.test(text) ? "'" + text : text).replace(/^.*[",\n\r].*$/s, all => '"' + all.replaceAll('"', '""') + '"');
  const table = data => {
    if (data.csv !== undefined) return data.csv;
    const named = (name, unit) => cell(unit.trim() ? name + " (" + unit.trim() + ")" : name);
    const head = [named(data.x.label, data.x.unit), ...data.series.map(s => named(s.name, data.y[s.axis].unit))];
    const joined = uPlot.join(data.series.map(s => [s.x, s.y]), data.series.map(s => s.x.map(() => 1))) || [[]];
    const rows = joined[0].map((_, row) => joined.map(column => column[row] ?? "").join(","));
    return [head.join(","), ...rows, ""].join("\n");
  };
  const drawn = figure => {
    const copy = figure.querySelector(".still svg").cloneNode(true);
    const add = (name, before) => copy.insertBefore(document.createElementNS("http://www.w3.org/2000/svg", name), before);
    const ground = add("rect", copy.firstChild);
    ground.setAttribute("width", "100%");
    ground.setAttribute("height", "100%");
    ground.setAttribute("class", "ground");
    const css = document.getElementById("of-pictures").textContent;
    add("style", ground).textContent = css.replace(/var\(--([\w-]+)\)/g, (_, name) => colour(name));
    return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  };
  const save = (blob, name) => {
    const link = element("a", document.body, { href: URL.createObjectURL(blob), download: name });
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };
  const raster = (figure, name) => {
    const image = new Image(), url = URL.createObjectURL(drawn(figure));
    image.onload = () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.width, height: 2 * image.height });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      URL.revokeObjectURL(url);
      canvas.toBlob(blob => save(blob, name));
    };
    image.src = url;
  };
  const tools = (figure, id, data, zooms) => {
    const row = element("div", figure, { className: "tools" });
    const button = (text, act) => element("button", row, { type: "button", textContent: text }).addEventListener("click", act);
    button("CSV", () => save(new Blob([table(data)], { type: "text/csv" }), id + ".csv"));
    button("SVG", () => save(drawn(figure), id + ".svg"));
    button("PNG", () => raster(figure, id + ".png"));
    if (zooms) {
      element("span", row, { className: "hint", textContent: "Drag to zoom, double-click for all. Once chosen: wheel or + \u2212, arrows, 0 for all." });
    }
  };

  const begin = (figure, id, data) => {
    if (figure.dataset.ready) return;
    figure.dataset.ready = "yes";
    const title = figure.querySelector("h3").textContent;
    const place = element("div", figure, { className: "zoom", tabIndex: 0 });
    place.setAttribute("role", "img");
    place.setAttribute("aria-roledescription", "zoomable picture");
    place.setAttribute("aria-label", title + ". " + (figure.querySelector("desc") || {}).textContent);
    const said = element("p", figure, { className: "said" });
    said.setAttribute("role", "status");
    const u = data.series && make(figure, data, place, said);
    if (!u) { place.remove(); said.remove(); }
    else { figure.classList.add("zoomed"); figure.insertBefore(legend(figure, data, u), place); }
    tools(figure, id, data, u);
  };

  // What lies folded has no width yet: it is made when it is opened.
  for (const [id, data] of Object.entries(figures)) {
    const figure = document.getElementById(id), folded = figure.closest("details");
    if (!folded || folded.open) begin(figure, id, data);
    else folded.addEventListener("toggle", () => begin(figure, id, data), { once: true });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(u => u.redraw()));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));
})();

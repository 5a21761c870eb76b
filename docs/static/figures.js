// Figures follow the theme and the width of the page; their titles and notes become text that wraps.
"use strict";

const plain = text => new DOMParser().parseFromString(text.replace(/<br>/g, " "), "text/html").documentElement.textContent;

function theme() {
  const chosen = document.body.dataset.theme;
  const dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  return dark ? "dark" : "light";
}

function element(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function describe(plot) {
  const meta = plot.layout.meta;
  if (!meta || !meta.footer) return;
  plot.parentElement.before(element("p", "figure-title", plain(meta.title)), element("p", "figure-subtitle", plain(meta.subtitle)));
  const notes = element("details", "figure-notes", ""), [first, ...rest] = meta.footer;
  notes.append(element("summary", "", first), ...rest.map(line => element("p", "", line)));
  plot.parentElement.after(notes);
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", `${plain(meta.title)}: ${plain(meta.subtitle)}`);
}

function draw(plot) {
  const narrow = plot.clientWidth < 640, layout = plot.layout;
  layout.template = figureTemplates[theme()];
  layout.title = undefined;
  layout.annotations = (layout.annotations || []).filter(note => note.name !== "footer");
  layout.margin = { l: narrow ? 50 : 70, r: narrow ? 10 : 24, t: layout.updatemenus && layout.updatemenus.length ? 48 : 16, b: 60 };
  layout.font = { size: narrow ? 11 : 13 };
  const height = plot.clientHeight - layout.margin.t - layout.margin.b;
  layout.legend = { orientation: "h", x: 0, y: -56 / height, yanchor: "top" };
  for (const name of Object.keys(layout).filter(key => /^[xy]axis/.test(key)))
    if (layout[name].title) layout[name].title.font = { size: narrow ? 12 : 14 };
  Plotly.react(plot, plot.data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
}

const plots = [...document.querySelectorAll(".plotly-graph-div")];
plots.forEach(describe);
const drawAll = () => plots.forEach(draw);
drawAll();
new MutationObserver(drawAll).observe(document.body, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

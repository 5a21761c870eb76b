"use strict";
// What the page does without its server: draw figures for this screen, keep the address, read files.
(() => {
  const NARROW = 640, LARGEST = 1 << 20;
  const FIGURES = ["map", "batch", "length", "waterfall", "memory"];
  const unchanged = () => window.dash_clientside.no_update;
  const root = document.documentElement;

  function layoutFor(figure, template, narrow) {
    const layout = structuredClone(figure.layout);
    layout.template = template;
    layout.margin = { l: narrow ? 48 : 62, r: narrow ? 10 : 20, t: narrow ? 14 : 24, b: narrow ? 110 : 92 };
    layout.autosize = true;
    layout.uirevision = "same";
    layout.font = { size: narrow ? 12 : 13 };
    layout.legend = { orientation: "h", x: 0, xref: "container", y: 0, yref: "container", yanchor: "bottom",
      traceorder: "normal", font: { size: 12 } };
    for (const name of Object.keys(layout).filter(name => /^[xy]axis/.test(name)))
      if (layout[name].title) layout[name].title.font = { size: 13 };
    return layout;
  }

  // A colour bar lies above the map, where it takes no width.
  const lying = trace => trace.colorbar
    ? { ...trace, colorbar: { ...trace.colorbar, orientation: "h", x: 0.5, y: 1.01, yanchor: "bottom", len: 1,
        thickness: 12, title: { text: "best draft length [tokens]", side: "top", font: { size: 12 } } } }
    : trace;

  function said(button, text, otherwise) {
    setTimeout(() => window.dash_clientside.set_props(button, { children: otherwise }), 1500);
    return text;
  }

  function textOf(contents) {
    const bytes = Uint8Array.from(atob(contents.slice(contents.indexOf(",") + 1)), c => c.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    explorer: {
      draw(drawn, theme, narrow, templates) {
        if (!drawn || !theme) return FIGURES.map(unchanged);
        return FIGURES.map(name => ({
          data: drawn[name].data.map(lying),
          layout: layoutFor(drawn[name], templates[theme], narrow),
        }));
      },

      theme(clicks) {
        const dark = clicks ? root.dataset.theme !== "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        root.dataset.theme = dark ? "dark" : "light";
        return [root.dataset.theme, dark ? "Light" : "Dark"];
      },

      // The address always shows the choice; it is replaced, so that going back leaves the page.
      address(query, clicks) {
        if (!query) return unchanged();
        history.replaceState(history.state, "", location.pathname + (query.text ? "?" + query.text : ""));
        const pressed = window.dash_clientside.callback_context.triggered.some(of => of.prop_id === "share.n_clicks");
        if (!clicks || !pressed) return unchanged();
        navigator.clipboard.writeText(location.href);
        return said("share", query.left_out.length ? "Copied, without the uploaded " + query.left_out.join(" and ") : "Copied",
          "Copy link");
      },

      reveal(draft, form) {
        return [draft !== "model", ...["constant", "text", "preset"].map(name => name !== form)];
      },

      settings(of, engine) {
        if (!of) return [unchanged(), unchanged()];
        const items = of[engine].notes.map(note => ({ type: "Li", namespace: "dash_html_components", props: { children: note } }));
        return [of[engine].text || "(no flags)", items];
      },

      problem(problem, notice) {
        return [!problem, problem ? "stale" : "", !notice];
      },

      png() {
        const name = window.dash_clientside.callback_context.triggered[0].prop_id.split(".")[0].replace("png-", "");
        const graph = document.querySelector("#figure-" + name + " .js-plotly-plot");
        const title = ["title-" + name, "subject"].map(id => document.getElementById(id).textContent).join("\n");
        const { width, height } = graph.getBoundingClientRect();
        const layout = { ...graph.layout, title: { font: { size: 14 },
          text: title.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace("\n", "<br>") } };
        layout.margin = { ...layout.margin, t: layout.margin.t + 60 };
        window.Plotly.downloadImage({ data: graph.data, layout, config: {} },
          { format: "png", width, height: height + 60, scale: 2, filename: "latency-model-" + name });
        return unchanged();
      },

      copy() {
        navigator.clipboard.writeText(document.getElementById("settings").textContent);
        return said("copy-settings", "Copied", "Copy");
      },

      pick(map, batch, length) {
        const same = unchanged();
        const [{ prop_id, value }] = window.dash_clientside.callback_context.triggered;
        if (!value) return [same, same, same];
        const { x, y } = value.points[0];
        // The map's cells are powers of two; plotly gives the middle between their edges.
        if (prop_id.startsWith("figure-map")) return [...[x, y].map(value => 2 ** Math.round(Math.log2(value))), same];
        return prop_id.startsWith("figure-batch") ? [x, same, same] : [same, same, x];
      },

      upload(contents, clicks, pasted, uploads) {
        const same = unchanged();
        const [{ prop_id }] = window.dash_clientside.callback_context.triggered;
        const name = prop_id.includes("config") ? "config" : "device", file = prop_id.startsWith("upload-");
        if (file ? !contents : !clicks) return [same, same, same];
        let text = pasted || "";
        try {
          if (file) text = textOf(contents);
        } catch {
          return [same, same, "The file is not UTF-8 text: a config.json and a profile are."];
        }
        if (text.length > LARGEST) return [same, same, `The file has ${text.length} characters; at most ${LARGEST} are read.`];
        return [{ ...uploads, [name]: text }, "uploaded", ""];
      },
    },
  });

  // Where no answer comes, Dash says so in the console alone.
  const send = window.fetch;
  window.fetch = async (...request) => {
    const asked = String(request[0]).includes("_dash-update-component");
    const complain = sentence => { if (asked) window.dash_clientside.set_props("problem", { children: sentence }); };
    try {
      const response = await send(...request);
      if (!response.ok) complain(`No answer came (HTTP ${response.status}); the terminal of the explorer says why.`);
      return response;
    } catch (error) {
      if (error.name !== "AbortError") complain("No answer came: does the command that serves this page still run?");
      throw error;
    }
  };

  // Dash gives its menus and sliders no name; the label beside them is one.
  function label() {
    for (const file of document.querySelectorAll(".upload input[type=file]"))
      file.setAttribute("aria-label", file.parentElement.textContent);
    for (const control of document.querySelectorAll(".control")) {
      const name = control.querySelector("label").id;
      for (const menu of control.querySelectorAll("button.dash-dropdown"))
        menu.setAttribute("aria-labelledby", name + " " + menu.id + "-value");
      for (const slider of control.querySelectorAll(".dash-slider-container [role=slider], .dash-slider-container input"))
        slider.setAttribute("aria-labelledby", name);
    }
  }

  // A phone that is turned needs another arrangement, not only another size.
  let narrow;
  function measure() {
    if (narrow === innerWidth < NARROW) return;
    narrow = innerWidth < NARROW;
    window.dash_clientside.set_props("narrow", { data: narrow });
    const controls = document.getElementById("controls");
    if (controls) controls.open = !narrow;  // a wide page has no summary to open them by
  }
  addEventListener("resize", measure);
  const waiting = setInterval(() => {
    if (!document.getElementById("controls") || !window.dash_clientside.set_props) return;
    clearInterval(waiting);
    measure();
    label();
    new MutationObserver(label).observe(document.getElementById("controls"), { childList: true, subtree: true });
  }, 50);
  // Explanations go away on Escape; Enter in a field must not send the form anywhere.
  addEventListener("keydown", event => {
    if (event.key === "Escape" && document.activeElement.classList.contains("help")) document.activeElement.blur();
  });
  addEventListener("submit", event => event.preventDefault());
})();
